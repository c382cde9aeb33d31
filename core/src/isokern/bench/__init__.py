"""Benchmarks: operators beside NumPy and the machine's own limits, all in one interleaved run."""
