"""What a tensor does as an array of the array API standard: its operators are the functions of isokern.array_api.

A tensor meets tensors of its device, Python's and NumPy's scalars, which take its dtype, and NumPy's arrays, which are
brought to its device. NumPy's universal functions take it (isokern.array_api.ufuncs).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np

from ..backend import BufferView
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

_OPERANDS = (BufferView, bool, int, float, complex, np.ndarray, np.generic)
VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12")


@cache
def functions() -> Any:
    """Return the namespace of the standard.

    It lies above this layer and computes with the operators, so it is imported when the first array computes.
    """
    return import_module("..array_api", __package__)


def _binary(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, /) -> Any:
        return getattr(functions(), name)(self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def _reflect(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, /) -> Any:
        return getattr(functions(), name)(other, self) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def _in_place(name: str) -> Callable[[Any, Any], Any]:
    def method(self: Any, other: Any, /) -> Any:
        return functions().in_place.update(name, self, other) if isinstance(other, _OPERANDS) else NotImplemented

    return method


def _unary(name: str) -> Callable[[Any], Any]:
    def method(self: Any, /) -> Any:
        return getattr(functions(), name)(self)

    return method


class Operators:
    """The operators, conversions and attributes of an array. Its hash is its identity: `==` compares elements."""

    __slots__ = ()

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        """Return what a universal function of NumPy or SciPy gives, as tensors of this device."""
        return functions().ufuncs.call(ufunc, inputs, named) if method == "__call__" else NotImplemented

    __add__, __radd__, __iadd__ = _binary("add"), _reflect("add"), _in_place("add")
    __sub__, __rsub__, __isub__ = _binary("subtract"), _reflect("subtract"), _in_place("subtract")
    __mul__, __rmul__, __imul__ = _binary("multiply"), _reflect("multiply"), _in_place("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _binary("divide"), _reflect("divide"), _in_place("divide")
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _reflect("floor_divide")
    __ifloordiv__ = _in_place("floor_divide")
    __mod__, __rmod__, __imod__ = _binary("remainder"), _reflect("remainder"), _in_place("remainder")
    __pow__, __rpow__, __ipow__ = _binary("pow"), _reflect("pow"), _in_place("pow")
    __matmul__, __rmatmul__, __imatmul__ = _binary("matmul"), _reflect("matmul"), _in_place("matmul")
    __and__, __rand__, __iand__ = _binary("bitwise_and"), _reflect("bitwise_and"), _in_place("bitwise_and")
    __or__, __ror__, __ior__ = _binary("bitwise_or"), _reflect("bitwise_or"), _in_place("bitwise_or")
    __xor__, __rxor__, __ixor__ = _binary("bitwise_xor"), _reflect("bitwise_xor"), _in_place("bitwise_xor")
    __lshift__, __rlshift__ = _binary("bitwise_left_shift"), _reflect("bitwise_left_shift")
    __ilshift__ = _in_place("bitwise_left_shift")
    __rshift__, __rrshift__ = _binary("bitwise_right_shift"), _reflect("bitwise_right_shift")
    __irshift__ = _in_place("bitwise_right_shift")

    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__, __ne__ = _binary("equal"), _binary("not_equal")
    __hash__ = object.__hash__

    __abs__, __neg__, __pos__ = _unary("abs"), _unary("negative"), _unary("positive")
    __invert__ = _unary("bitwise_invert")

    def __array_namespace__(self, /, *, api_version: str | None = None) -> Any:
        """Return the namespace of the standard that works on this array: `isokern.array_api`."""
        if api_version is not None and api_version not in VERSIONS:
            raise InvalidArgument("__array_namespace__", f"api_version={api_version!r}", allowed=", ".join(VERSIONS))
        return functions()

    @property
    def size(self: Any) -> int:
        """The number of elements."""
        count: int = self.desc.numel
        return count

    @property
    def mT(self: Any) -> Any:  # noqa: N802  # the standard's name
        """The view with its last two dims swapped."""
        return functions().matrix_transpose(self)

    def astype(self, dtype: Any, /, *, copy: bool = True) -> Any:
        """Return the elements as another dtype: a copy, or this tensor where it has the dtype and `copy` is False."""
        return functions().astype(self, dtype, copy=copy)

    def item(self: Any) -> Any:
        """Return the only element as a Python number, after the device's work."""
        if self.desc.numel != 1:
            raise BadTensorShape(
                "item", f"{self.desc} has {self.desc.numel} elements", allowed="one", hint="all of them: tensor.numpy()"
            )
        found = self.numpy().item()
        return found if self.dtype.kind != "f" else float(found)  # types of ml_dtypes give themselves

    def tolist(self: Any) -> Any:
        """Return the elements as nested lists of Python numbers."""
        return self.numpy().tolist()

    def __len__(self: Any) -> int:
        """Return the first dim."""
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no length")
        length: int = self.shape[0]
        return length

    def __bool__(self: Any) -> bool:
        """Return whether the only element is not zero."""
        if self.desc.numel != 1:
            raise InvalidArgument(
                "bool",
                f"{self.desc} has {self.desc.numel} elements",
                allowed="one",
                hint="any or all of isokern.array_api",
            )
        return bool(self.item())

    def __int__(self: Any) -> int:
        """Return the only element as an integer, a float without its fraction."""
        return int(self.item())

    def __float__(self: Any) -> float:
        """Return the only element as a float."""
        return float(self.item())

    def __complex__(self: Any) -> complex:
        """Return the only element as a complex number."""
        return complex(self.item())

    def __index__(self: Any) -> int:
        """Return the only element of a tensor of integers."""
        if self.dtype.kind not in "iu" or self.desc.numel != 1:
            raise BadTensorDtype("index", f"{self.desc} as an integer", allowed="one element of an integer dtype")
        return operator.index(self.item())
