"""Graphs of operators: described once by layers, checked, printed and parsed; `isokern.runtime` compiles them for a device."""

from .builder import Builder
from .ir import Constraint, Graph, Op, TensorSpec, Value
from .model import Context, Model
from .text import parse
from .verify import verify

__all__ = ["Builder", "Constraint", "Context", "Graph", "Model", "Op", "TensorSpec", "Value", "parse", "verify"]
