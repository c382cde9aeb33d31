"""Calls of NumPy's and SciPy's universal functions on arrays: np.add(x, y), scipy.special.jv(0, x).

Those of NumPy that the standard has are computed by the array's device. For the others the device has no operator: the
elements are read, the function computes on the host, and its results are written to the device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

import numpy as np

from ..tensors import Tensor
from .creation import asarray
from .operands import write

# The standard's names of NumPy's functions that have another name there
RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "absolute": "abs",
        "arccos": "acos",
        "arccosh": "acosh",
        "arcsin": "asin",
        "arcsinh": "asinh",
        "arctan": "atan",
        "arctan2": "atan2",
        "arctanh": "atanh",
        "conjugate": "conj",
        "invert": "bitwise_invert",
        "left_shift": "bitwise_left_shift",
        "power": "pow",
        "right_shift": "bitwise_right_shift",
        "rint": "round",
        "true_divide": "divide",
    }
)
OPERANDS = (Tensor, bool, int, float, complex, np.ndarray, np.generic)
INTO = (Tensor, np.ndarray)


def call(ufunc: Any, inputs: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return what a universal function gives; NotImplemented for operands that are another library's arrays.

    `out` may name tensors or NumPy's arrays that the results are written to.
    """
    named = dict(named)
    out = named.pop("out", None) or (None,) * ufunc.nout
    if not all(isinstance(x, OPERANDS) for x in inputs) or not all(y is None or isinstance(y, INTO) for y in out):
        return NotImplemented
    own = None if named else _counterpart(ufunc)
    made = _call_on_host(ufunc, inputs, out, named) if own is None else own(*inputs)
    results = made if isinstance(made, tuple) else (made,)
    found = tuple(y if into is None else _write(ufunc, into, y) for into, y in zip(out, results, strict=True))
    return found if isinstance(made, tuple) else found[0]


@cache
def _counterpart(ufunc: Any) -> Callable[..., Any] | None:
    """Return the standard's function that computes what one of NumPy's does; None if there is none."""
    name = str(ufunc.__name__)
    if ufunc.nout != 1 or getattr(np, name, None) is not ufunc:
        return None
    found: Callable[..., Any] | None = getattr(import_module(__package__), RENAMED.get(name, name), None)
    return found


def _call_on_host(ufunc: Any, inputs: Sequence[Any], out: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return what a function gives of the elements; where `named` has a mask, the others are those of `out`."""
    device = next(x.device for x in (*inputs, *out, *named.values()) if isinstance(x, Tensor))
    arrays = [_read(x) for x in inputs]
    held = tuple(None if y is None else np.array(_read(y)) for y in out)
    made = ufunc(*arrays, out=held, **{k: _read(v) for k, v in named.items()})
    if isinstance(made, tuple):
        return tuple(asarray(y, device=device) for y in made)
    return asarray(made, device=device)


def _read(x: Any) -> Any:
    return x.numpy() if isinstance(x, Tensor) else x


def _write(ufunc: Any, into: Any, result: Tensor) -> Any:
    if isinstance(into, np.ndarray):
        np.copyto(into, result.numpy(), casting="same_kind")
    else:
        write(into, result, ufunc.__name__)
    return into
