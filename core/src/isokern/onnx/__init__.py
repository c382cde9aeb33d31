"""ONNX files as programs, read, checked and imported as graphs of our operators, and our graphs as ONNX files.

Parsing, checking, version conversion and the expansion of functions are the `onnx` package's; it comes with the extra
isokern[onnx], and importing `isokern` alone does not import it.
"""

from __future__ import annotations

from .exporter import export
from .model import Model, load
from .node import UnsupportedModel
from .tensor_info import TensorInfo

__all__ = ["Model", "TensorInfo", "UnsupportedModel", "export", "load"]
