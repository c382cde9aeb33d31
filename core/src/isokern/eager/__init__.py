"""What a user calls on one operator: `create`, a function for each, and `op_call` for hosts of numbers and bytes."""
