"""Functions for one operator: `create`, a function for each operator, and `op_call` for hosts of numbers and bytes."""
