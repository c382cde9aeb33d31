"""The binary interface: attribute records, the plan, the call, and the C that is made from their declarations."""
