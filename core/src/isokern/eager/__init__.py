"""What a user calls on one operator: `create`, a function for each, and `op_call` for hosts that hold numbers and bytes."""
