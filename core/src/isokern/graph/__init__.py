"""Graphs of operators: built from layers, verified, printed and parsed.

`isokern.runtime` compiles a graph for a device.
"""

from .builder import Builder
from .checkpoint import load_state
from .ir import Constraint, Graph, Op, TensorSpec, Value
from .layer import Context, Layer
from .model import Model
from .text import parse
from .verify import verify

__all__ = [
    "Builder",
    "Constraint",
    "Context",
    "Graph",
    "Layer",
    "Model",
    "Op",
    "TensorSpec",
    "Value",
    "load_state",
    "parse",
    "verify",
]
