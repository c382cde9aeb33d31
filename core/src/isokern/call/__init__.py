"""One call of one operator: its descriptor, and its constant inputs in the layout that the kernel would rather read."""
