"""The declaration of operators, and what derives from it.

Checks, inference, normal forms, samples and error bounds.
"""

from .operator import LENGTHS, ErrorCase, Operator, Sample, SampleTable, Tolerance
from .registry import declare

__all__ = ["LENGTHS", "ErrorCase", "Operator", "Sample", "SampleTable", "Tolerance", "declare"]
