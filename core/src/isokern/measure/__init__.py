"""Measuring: calls timed in turn, the limits of a machine, and the least time that these allow a call."""
