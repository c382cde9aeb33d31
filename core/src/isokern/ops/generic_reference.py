"""The reference of loop nests, and its rounding errors: sums, extremes and products of the values of a body."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..declare.conversion import convert
from ..declare.error_bound import EPS, UNBOUNDED, Range, bounds, distance
from ..dtypes import F32, F64, I64, U64, DType
from ..expr.evaluate import evaluate
from ..expr.tree import parse
from ..layout import TensorDesc
from .loop_maps import Maps, loops_of, parse_maps, sizes_of


def combine_terms(combine: str, terms: Any, axes: tuple[int, ...], init: Any) -> Any:
    """Return init combined with all terms along the axes."""
    if combine == "sum":
        return init + terms.sum(axes, dtype=terms.dtype)
    join, reduced = (np.maximum, np.max) if combine == "maximum" else (np.minimum, np.min)
    if 0 in [terms.shape[a] for a in axes]:
        return init
    return join(init, reduced(terms, axes))


def _diagonals(array: Any, letters: str) -> tuple[Any, str]:
    """Return an array with each letter's dims as one, and its letters, each once."""
    for letter in dict.fromkeys(letters):
        while letters.count(letter) > 1:
            first, second = letters.index(letter), letters.index(letter, letters.index(letter) + 1)
            array = np.diagonal(array, 0, first, second)
            letters = letters[:first] + letters[first + 1 : second] + letters[second + 1 :] + letter
    return array, letters


def _find_compute(x: Sequence[Any], y: DType) -> DType:
    """Return the compute type of inputs, whose floats are float64 here.

    If y is not a float, F64 is also used for F32: their bodies are exact in the samples.
    """
    if y.kind == "f":
        return y.compute
    return F64 if any(a.dtype.kind in "fV" for a in x) else U64 if any(a.dtype == np.uint64 for a in x) else I64


def _wide(x: Sequence[Any], maps: Maps, compute: DType) -> tuple[dict[str, Any], list[int], tuple[int, ...]]:
    """Return the inputs over all loops, the lengths of the loops, and the reduced axes.

    The inputs are arrays by name, in the dtype of the reference. Integers are rounded to a compute type of F32.
    """
    loops = loops_of(maps)
    kind = np.float64 if compute.kind == "f" else compute.numpy
    sizes = sizes_of("generic", maps, [a.shape for a in x])
    wide = {}
    for i, (given, spelt) in enumerate(zip(x, maps[0], strict=True)):
        array, letters = _diagonals(given, spelt)
        order = [letters.index(c) for c in loops if c in letters]
        lifted = [sizes[c] if c in letters else 1 for c in loops]
        if compute is F32 and array.dtype.kind in "iu":
            array = array.astype(np.float32)
        wide[f"x{i}"] = array.astype(kind).transpose(order).reshape(lifted)
    return wide, [sizes[c] for c in loops], tuple(range(len(maps[1]), len(loops)))


def _read(init: Any, x: Sequence[Any], maps: str, combine: str) -> tuple[Sequence[Any], Maps]:
    """Return the arrays that the body reads, init among them where nothing is combined with it, and their maps."""
    ins, out = parse_maps("generic", maps, len(x))
    return ([*x, init], ((*ins, out), out)) if combine == "none" and init is not None else (x, (ins, out))


def run_nest(init: Any, x: Sequence[Any], maps: str, body: str, combine: str, out: Sequence[TensorDesc]) -> Any:
    """Return y of a loop nest."""
    x, read = _read(init, x, maps, combine)
    wide, sizes, axes = _wide(x, read, _find_compute(x, out[0].dtype))
    with np.errstate(all="ignore"):
        terms = np.broadcast_to(evaluate(parse(body), wide, wide["x0"].dtype), sizes)
        y = terms
        if combine == "product":
            compute = out[0].dtype.compute if out[0].dtype.kind == "f" else F32
            y = multiply(terms, axes, compute, init.astype(terms.dtype))
        elif combine != "none":
            y = combine_terms(combine, terms, axes, init.astype(terms.dtype))
    return y if out[0].dtype.kind == "f" else convert(np.asarray(y), out[0].dtype.numpy)


def growth(terms: Any, axes: tuple[int, ...], init: Any) -> Any:
    """Return the magnitude to which the rounding of a blocked sum is relative."""
    length = math.prod(terms.shape[a] for a in axes)
    return (4 + math.log2(max(1, length))) * (np.abs(init) + np.abs(terms).sum(axes))


def find_lost(terms: Any, axes: tuple[int, ...], compute: DType, init: Any = 1) -> Any:
    """Return the places at which the order decides the value of a product.

    There, a product of some terms may leave the range of the compute type, and others would bring it back.
    """
    limits = np.finfo(compute.numpy)
    sizes, start = np.abs(terms.astype(np.float64)), np.abs(np.asarray(init, np.float64))
    with np.errstate(all="ignore"):
        powers, first = (np.where(np.isfinite(np.log2(v)), np.log2(v), 0) for v in (sizes, start))
        up, down = (pick(powers, 0).sum(axes) + pick(first, 0) for pick in (np.maximum, np.minimum))
    smaller = (down < 0) | (sizes == 0).any(axes) | (start == 0)
    larger = (up > 0) | np.isinf(sizes).any(axes) | np.isinf(start)
    return ((up >= limits.maxexp - 1) & smaller) | ((down <= limits.minexp + 1) & larger)


def multiply(terms: Any, axes: tuple[int, ...], compute: DType, init: Any = 1) -> Any:
    """Return init times all terms along the axes; floats are NaN, for which any result is right, where `find_lost`."""
    with np.errstate(all="ignore"):
        y = init * terms.prod(axes, dtype=terms.dtype)
    return y if terms.dtype.kind != "f" else np.where(find_lost(terms, axes, compute, init), np.nan, y)


def product_scale(terms: Any, axes: tuple[int, ...], compute: DType, off: Any = 0.0, init: Any = 1) -> Any:
    """Return the rounding error of a product of terms, each up to `off` eps from its value."""
    limits, count = np.finfo(compute.numpy), math.prod(terms.shape[a] for a in axes)
    with np.errstate(all="ignore"):
        whole = np.abs(init) * np.abs(terms).prod(axes)
        made = np.abs(init) * (np.abs(terms) + off * EPS).prod(axes)
        size = (made - whole) / EPS + count * (whole + float(limits.smallest_subnormal) / float(limits.eps))
    return np.where(find_lost(terms, axes, compute, init) | np.isnan(made), UNBOUNDED, np.nan_to_num(size, nan=0.0))


def nest_scale(init: Any, x: Sequence[Any], maps: str, body: str, combine: str, compute: DType) -> Any:
    """Return the rounding error of the body, carried through its combination, plus that of a sum itself."""
    x, read = _read(init, x, maps, combine)
    wide, sizes, axes = _wide(x, read, compute)
    found = bounds(parse(body), wide, compute)
    value, low, high = (np.broadcast_to(end, sizes) for end in (found.value, found.low, found.high))
    if combine == "none":
        return distance(Range(value, low, high))
    init = init.astype(np.float64)
    if combine == "product":
        return product_scale(value, axes, compute, distance(Range(value, low, high)), init)
    with np.errstate(all="ignore"):
        made = distance(Range(*(combine_terms(combine, terms, axes, init) for terms in (value, low, high))))
        return made + growth(value, axes, init) if combine == "sum" else made
