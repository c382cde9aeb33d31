"""How graphs are rewritten: operator by operator, and into what a target has."""
