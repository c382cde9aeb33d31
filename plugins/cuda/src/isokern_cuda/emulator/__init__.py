"""The emulated GPU for kernels of one's own: their source, the program that is made of it, and its arguments."""
