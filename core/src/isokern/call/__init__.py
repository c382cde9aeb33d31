"""One call of one operator: its descriptor, and its constant inputs in packed layouts."""
