"""Graphs of operators: described once by layers, checked, printed and parsed; `isokern.runtime` compiles them for a device."""

from .builder import Builder
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
    "parse",
    "verify",
]
