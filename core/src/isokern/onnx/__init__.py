"""ONNX files as programs: read, checked and imported as graphs of our operators.

Parsing, checking, version conversion and the expansion of functions are the `onnx` package's; it comes with the extra
isokern[onnx], and importing `isokern` alone does not import it.
"""

from __future__ import annotations

from .model import Model, TensorInfo, load
from .node import UnsupportedModel

__all__ = ["Model", "TensorInfo", "UnsupportedModel", "load"]
