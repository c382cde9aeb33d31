"""The oracle: cases, the values and placements of their tensors, and the interval in which each result must lie."""
