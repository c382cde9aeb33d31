"""The conformance suite: cases derived from the declarations, run on any device."""
