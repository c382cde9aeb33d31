"""The CPU backend of Isokern."""
