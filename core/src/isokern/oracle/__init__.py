"""What is right: cases, the values they hold, how their tensors lie, and the interval that each result has to be in."""
