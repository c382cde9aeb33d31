"""The binary interface: attribute records, the plan, the call, and the C generated from their declarations."""
