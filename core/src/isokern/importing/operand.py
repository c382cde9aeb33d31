"""Operands: a value of the graph under construction, or an array where the elements are known."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from ..dtypes import DType, dtype
from ..graph.ir import Value

Array = np.ndarray[Any, Any]
Operand: TypeAlias = "Value | Array"


def shape_of(x: Operand) -> tuple[int, ...]:
    """Return an operand's dims."""
    return tuple(x.spec.shape) if isinstance(x, Value) else x.shape


def dtype_of(x: Operand) -> DType:
    """Return an operand's dtype."""
    return x.spec.dtype if isinstance(x, Value) else dtype(x.dtype)


def is_float(x: Operand) -> bool:
    """Return whether an operand has floats in which operators compute."""
    return dtype_of(x).kind == "f" and not dtype_of(x).storage
