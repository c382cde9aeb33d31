"""The closed scalar language of elementwise operators and loop bodies: its tree, its values by NumPy, its code for stack machines."""
