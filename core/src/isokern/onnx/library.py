"""The `onnx` package, or a typed error that says how to install it."""

from __future__ import annotations

from typing import Any

from ..status import InvalidArgument

try:
    import onnx
    import onnx.checker
    import onnx.defs
    import onnx.helper
    import onnx.numpy_helper
except ImportError:
    raise InvalidArgument("onnx", "the library is not installed", hint="pip install 'isokern[onnx]'") from None

proto: Any = onnx  # its messages are made at run time, so that a type checker knows none of them

__all__ = ["proto"]
