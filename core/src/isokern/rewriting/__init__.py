"""How graphs are rewritten: operator by operator, into the operators that a target has."""
