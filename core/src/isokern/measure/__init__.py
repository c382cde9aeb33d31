"""Measuring: calls in turns, the limits of a machine, and what they leave a call."""
