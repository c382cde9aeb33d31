"""Evaluation of scalar expressions by NumPy, in any dtype."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .tree import Expr, fit

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _quotient(a: Any, b: Any) -> Any:
    return np.where(b == 0, 0, np.floor_divide(a, np.where(b == 0, 1, b)))


def _divide(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a remainder that is a where an integer b is 0; floats follow NumPy, which gives NaN there."""

    def remainder(a: Any, b: Any) -> Any:
        if np.result_type(b).kind not in "iu":
            return function(a, b)
        return np.where(b == 0, a, function(a, np.where(b == 0, 1, b)))

    return remainder


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "erf": _erf,
    "erfc": _erfc,
    "fmod": _divide(np.fmod),
    "remainder": _divide(np.remainder),
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "pow": np.power,
    "quotient": _quotient,
    "bitand": np.bitwise_and,
    "bitor": np.bitwise_or,
    "bitxor": np.bitwise_xor,
    "bitnot": np.invert,
    "shift_left": np.left_shift,
    "shift_right": np.right_shift,
}
_ARITH = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
COMPARE = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}


def function(name: str) -> Callable[..., Any]:
    """Return the array function of an arithmetic sign (+ - * /) or of a named function."""
    return _ARITH.get(name) or _FUNCTIONS.get(name) or getattr(np, name)


def constant(value: float, kind: np.dtype[Any]) -> Any:
    """Return a constant as an array of no dims: rounded, or for integers truncated and saturated."""
    if kind.kind not in "iu":
        return np.array(value).astype(kind)
    limits = np.iinfo(kind)
    return np.array(fit(value, int(limits.min), int(limits.max)), kind)


def evaluate(tree: Expr, values: Mapping[str, Any], kind: Any) -> Any:
    """Return the expression's value over NumPy arrays of dtype `kind`; a condition is 1 or 0."""

    def number(node: Expr) -> Any:
        if node.kind == "const":
            return constant(node.value, np.dtype(kind))
        if node.kind == "name":
            return values[node.value]
        if node.kind == "neg":
            return np.negative(number(node.args[0]))
        if node.kind == "arith":
            return function(node.value)(*map(number, node.args))
        if node.kind == "call":
            return np.asarray(function(node.value)(*map(number, node.args)), kind)
        if node.kind == "select":
            test, yes, no = node.args
            return np.where(condition(test), number(yes), number(no))
        return condition(node).astype(kind)

    def condition(node: Expr) -> Any:
        if node.kind == "compare":
            return COMPARE[node.value](*map(number, node.args))
        if node.kind in ("and", "or"):
            join = np.logical_and if node.kind == "and" else np.logical_or
            return join.reduce(np.broadcast_arrays(*map(condition, node.args)))
        if node.kind == "not":
            return np.logical_not(condition(node.args[0]))
        return number(node) != 0

    return number(tree)
