"""The closed scalar language of elementwise operators and loop bodies.

Has its tree, its evaluation by NumPy, and its code for stack machines.
"""
