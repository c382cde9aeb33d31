"""Rounding error bounds of scalar expressions, by interval arithmetic through the tree.

A node's interval holds every value that a correct kernel may have there. The node's function maps its operands'
intervals to one, and rounding its result widens that by the error that the function's own row is allowed. So where
terms cancel, the interval is as wide as their magnitudes make it; where a maximum or a condition drops an operand, that
operand's error is dropped too; where rounding may turn a condition, the interval covers both branches.

All intervals are float64 and use the eps of F32: to first order an interval's width is the same number of eps in every
compute type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from typing import Any

import numpy as np

from ..dtypes import BOOL, DType
from ..expr.evaluate import COMPARE, function
from ..expr.tree import Expr
from .registry import find, scan_operators

EPS = 2.0**-23
UNBOUNDED = 1e300  # in eps: any number is within this distance
_INF = math.inf
_IEEE = 0.5  # in eps: the rounding error of an IEEE 754 operation
# Domains of functions: an interval that rounding extends beyond one is clipped to it, and does not give NaN
_DOMAINS = {
    **dict.fromkeys(("sqrt", "rsqrt", "log", "log2", "log10"), (0.0, _INF)),
    **dict.fromkeys(("asin", "acos", "atanh"), (-1.0, 1.0)),
    "log1p": (-1.0, _INF),
    "acosh": (1.0, _INF),
}


@dataclass(frozen=True)
class Range:
    """The value without rounding, and its least and greatest values under rounding; arrays of float64."""

    value: Any
    low: Any
    high: Any

    @property
    def exact(self) -> bool:
        """Whether nothing was rounded."""
        return self.low is self.value and self.high is self.value

    @property
    def ends(self) -> tuple[Any, ...]:
        """The ends of the range; just the value where it is exact."""
        return (self.value,) if self.exact else (self.low, self.high)


def exactly(value: Any) -> Range:
    """Return the range of a value that was not rounded."""
    return Range(value, value, value)


def distance(found: Range) -> Any:
    """Return the largest distance of the ends from the value, in eps of the compute type.

    UNBOUNDED where any result is right: where the value is NaN and an end is a number (acos of 1 + 1e-9), and where the
    value is infinite and the ends are infinities of both signs (one over what rounding may make 0). 0 where value and
    ends are all NaN. A longdouble where a distance overflows float64.
    """
    with np.errstate(all="ignore"):
        width = np.maximum(found.high - found.value, found.value - found.low)
        off = width / EPS
        if np.any(np.isinf(off) & np.isfinite(width)):
            off = width.astype(np.longdouble) / EPS
    some = np.isnan(found.value) & ~(np.isnan(found.low) & np.isnan(found.high))
    some = some | (np.isinf(found.value) & np.isinf(found.low) & (found.low == -found.high))
    return np.where(some, UNBOUNDED, np.nan_to_num(off, nan=0.0, posinf=UNBOUNDED))


def bounds(tree: Expr, values: Mapping[str, Any], compute: DType) -> Range:
    """Return the range of an expression that a kernel computes in `compute`, F32 or F64.

    `values` are float64 arrays by name, or the ranges of values that were computed before.
    """
    limits = np.finfo(compute.numpy)
    tiny = float(limits.smallest_subnormal) * (EPS / float(limits.eps))

    def number(node: Expr) -> Range:
        if node.kind == "const":
            value = np.float64(node.value)
            return exactly(value) if np.isinf(value) else _round(value, value, value, _IEEE, 0.0)
        if node.kind == "name":
            given = values[node.value]
            return given if isinstance(given, Range) else exactly(given)
        if node.kind == "neg":
            x = number(node.args[0])
            return exactly(-x.value) if x.exact else Range(-x.value, -x.high, -x.low)
        if node.kind in ("arith", "call"):
            found, ulps = _apply(node.value, [number(a) for a in node.args]), find_ulps(node.value)
            least = 0.0 if node.value in ("+", "-") else (1 + ulps) * tiny  # sums are exact where they underflow
            return found if ulps == 0 else _round(found.value, found.low, found.high, ulps, least)
        if node.kind == "select":
            return _select(*condition(node.args[0]), number(node.args[1]), number(node.args[2]))
        return _select(*condition(node), exactly(np.float64(1)), exactly(np.float64(0)))

    def condition(node: Expr) -> tuple[Any, Any, Any]:
        """Return whether it is true, whether rounding may make it true, and whether rounding may make it false."""
        if node.kind == "compare":
            return _compare(node.value, *map(number, node.args))
        if node.kind == "not":
            true, may, may_not = condition(node.args[0])
            return np.logical_not(true), may_not, may
        if node.kind in ("and", "or"):
            true, may, may_not = zip(*map(condition, node.args), strict=True)
            every, some = (_join(np.logical_and), _join(np.logical_or))
            return (
                (every(true), every(may), some(may_not))
                if node.kind == "and"
                else (some(true), some(may), every(may_not))
            )
        return _compare("!=", number(node), exactly(np.float64(0)))

    with np.errstate(all="ignore"):
        return number(tree)


def find_ulps(name: str) -> float:
    """Return the error in eps of its result that a function's own row is allowed; for + - * that of IEEE 754."""
    if name in ("+", "-", "*"):
        return _IEEE
    row = find(find_rows()[name])
    free = row.exact or row.signature.outputs[0].type == BOOL.name
    return 0.0 if free else row.tolerance.ulps


@cache
def find_rows() -> dict[str, str]:
    """Return the operator whose row is a function alone, by the function's name."""
    found: dict[str, str] = {}
    for row in scan_operators():
        tree = row.expression
        names = [a.value for a in tree.args if a.kind == "name"] if tree else []
        if (
            row.family == "elementwise"
            and tree
            and tree.kind in ("arith", "call")
            and len(set(names)) == len(tree.args)
        ):
            found.setdefault(tree.value, row.name)
    return found


def _round(value: Any, low: Any, high: Any, ulps: float, tiny: float) -> Range:
    """Return the range widened by the rounding of its result.

    A result that is certainly 0 or infinite is not rounded, nor is one of + - * that is exact in F32.
    """
    off = ulps * EPS * np.maximum(np.abs(low), np.abs(high)) + tiny
    held = np.float32(low) if ulps == _IEEE else 0.0
    off = np.where(np.isfinite(off) & ((low != high) | (low != held)), off, 0.0)
    return Range(value, low - off, high + off)


def _apply(name: str, args: list[Range]) -> Range:
    """Return the range of a function without its own rounding.

    Its ends are the extremes over the ends of the operands' ranges, since most functions are monotone.
    """
    f = function(name)
    value = np.asarray(f(*(a.value for a in args)), np.float64)
    if all(a.exact for a in args):
        return exactly(value)
    x = args[-1]
    if name in _DOMAINS:
        first, last = _DOMAINS[name]
        beyond = (x.high < first) | (x.low > last)
        args = [Range(x.value, *(np.where(beyond, np.nan, np.clip(end, first, last)) for end in (x.low, x.high)))]
    sides = [f(*ends) for ends in product(*(a.ends for a in args))]
    low, high = (pick.reduce(np.broadcast_arrays(value, *sides)) for pick in (np.fmin, np.fmax))
    around_zero = (x.low < 0) & (x.high > 0)
    if name in ("abs", "cosh"):
        low = np.where(around_zero, f(0.0), low)
    elif name in ("sin", "cos"):
        off = np.maximum(x.high - x.value, x.value - x.low)
        low, high = np.maximum(value - off, -1), np.minimum(value + off, 1)
    elif name == "/" or name == "tan":  # across a pole
        over = around_zero if name == "/" else f(x.low) > f(x.high)
        low, high = np.where(over, -_INF, low), np.where(over, _INF, high)
    elif name in ("fmod", "remainder"):  # a step at every multiple of the divisor
        size = np.maximum(np.abs(x.low), np.abs(x.high))
        low, high = np.fmin(low, -size), np.fmax(high, size)
    elif name == "copysign":  # a computed NaN may have either sign
        size = np.where(np.isnan(x.value) & (not x.exact), np.maximum(np.abs(low), np.abs(high)), np.nan)
        low, high = np.fmin(low, -size), np.fmax(high, size)
    return Range(value, low, high)


def _compare(sign: str, a: Range, b: Range) -> tuple[Any, Any, Any]:
    true = COMPARE[sign](a.value, b.value)
    if a.exact and b.exact:
        return true, true, np.logical_not(true)
    if sign in ("==", "!="):
        meet = (a.low <= b.high) & (b.low <= a.high)
        apart = ~((a.low == a.high) & (b.low == b.high) & (a.low == b.low))
        return (true, meet, apart) if sign == "==" else (true, apart, meet)
    compare = COMPARE[sign]
    best, worst = (compare(a.low, b.high), compare(a.high, b.low))
    if sign in (">", ">="):
        best, worst = worst, best
    return true, best, np.logical_not(worst)


def _select(true: Any, may: Any, may_not: Any, yes: Range, no: Range) -> Range:
    """Return the range that a condition selects; it covers both branches where rounding may select either."""
    value = np.where(true, yes.value, no.value)
    low = np.where(may, np.where(may_not, np.fmin(yes.low, no.low), yes.low), no.low)
    high = np.where(may, np.where(may_not, np.fmax(yes.high, no.high), yes.high), no.high)
    return Range(value, low, high)


def _join(join: np.ufunc) -> Any:
    return lambda conditions: join.reduce(np.broadcast_arrays(*conditions))
