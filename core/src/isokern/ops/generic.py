"""generic: a loop nest over tensors whose dims are loops, with a scalar expression as body.

Normal form of the stem, which the operators of `structured.py` share: every tensor has the loops as dims, first those
of y, then the reduced ones, along which y and init have stride 0 (as in `reduce`). Dims of each kind are merged. A
tensor has stride 0 along a loop that does not move it, and the sum of its strides along a loop of several of its dims.
Where nothing is reduced, an init that is present is one more input of the body, after the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, Tolerance, declare
from ..declare.attributes import attrs, body, choice, text
from ..declare.conversion import convert
from ..declare.error_bound import EPS, UNBOUNDED, Range, bounds, distance
from ..declare.normal_form import Descs, coalesce
from ..dtypes import (
    BF16,
    BOOL,
    COMPUTED,
    F8E4M3FN,
    F8E5M2,
    F16,
    F32,
    F64,
    FLOATS,
    FP8,
    I8,
    I16,
    I32,
    I64,
    INTEGERS,
    SIGNED,
    U8,
    U64,
    DType,
    wider,
)
from ..expr.evaluate import evaluate
from ..expr.stack_code import CODE_NAMES, INPUTS, float_of, words_of
from ..expr.tree import INTEGER_FUNCTIONS, SHARED_FUNCTIONS, parse
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

COMBINES = ("none", "sum", "maximum", "minimum", "product")
Maps = tuple[tuple[str, ...], str]


def parse_maps(where: str, given: str, inputs: int) -> Maps:
    """Return the letters of each input and of the output: `mk,nk->mn`.

    A letter is a loop. An input that has one twice is read along its diagonal: `ii->i`.
    """
    left, arrow, out = given.replace(" ", "").partition("->")
    ins = tuple(left.split(","))
    every = (*ins, out)
    if not arrow or any(m != "" and not m.isalpha() for m in every) or len(set(out)) != len(out):
        allowed = "letters of each input and of the output, as in 'mk,nk->mn', those of the output each once"
        raise InvalidArgument(where, f"maps {given!r}", allowed=allowed)
    if len(ins) != inputs:
        raise InvalidArgument(where, f"maps {given!r} for {inputs} inputs", allowed="letters of each input")
    strange = [c for c in out if c not in left]
    if strange:
        raise InvalidArgument(
            where, f"maps {given!r}: {min(strange)} of the output is in no input", allowed="one input"
        )
    return ins, out


def loops_of(maps: Maps) -> str:
    """Return all loops, those of the output first."""
    ins, out = maps
    return "".join(dict.fromkeys(out + "".join(ins)))


def _sizes(where: str, maps: Maps, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for i, (letters, shape) in enumerate(zip(maps[0], shapes, strict=True)):
        if len(letters) != len(shape):
            raise BadTensorShape(
                where, f"x[{i}] is {list(shape)}", allowed=f"rank {len(letters)}, as the map {letters!r}"
            )
        for letter, size in zip(letters, shape, strict=True):
            if sizes.setdefault(letter, size) != size:
                raise BadTensorShape(
                    where, f"x[{i}] is {list(shape)}: loop {letter} is {size}", allowed=f"{sizes[letter]}, as before"
                )
    if len(loops_of(maps)) > MAX_RANK:
        raise InvalidArgument(where, f"{len(loops_of(maps))} loops", allowed=f"up to {MAX_RANK}")
    return sizes


def nest(y: TensorDesc, init: TensorDesc | None, ins: Sequence[TensorDesc], kept: int) -> tuple[Descs, Descs]:
    """Return (inputs, outputs) in normal form.

    All tensors are given over the loops, of which the first `kept` are the output's.
    """
    y_, *others = coalesce([_clear(y, kept), init, *ins])
    assert y_ is not None
    return others, [y_]


def _clear(d: TensorDesc, kept: int) -> TensorDesc:
    """Return y with stride 0 along reduced loops only; along a kept loop it becomes 1. init may repeat itself."""
    strides = [(s or 1) if i < kept else 0 for i, s in enumerate(d.strides)]
    return TensorDesc(d.dtype, d.shape, strides, d.offset)


def over(d: TensorDesc, letters: str, loops: str, sizes: Mapping[str, int]) -> TensorDesc:
    """Return a tensor over all loops."""
    steps: dict[str, int] = {}
    for letter, stride in zip(letters, d.strides, strict=True):
        steps[letter] = steps.get(letter, 0) + stride
    return TensorDesc(d.dtype, [sizes[c] for c in loops], [steps.get(c, 0) for c in loops], d.offset)


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return all tensors over the loops: y's letters first, then the reduced ones; absent ones by stride 0."""
    init, *given = inputs
    ins = [d for d in given if d is not None]
    maps = parse_maps("generic", values["maps"], len(ins))
    sizes, loops = _sizes("generic", maps, [d.shape for d in ins]), loops_of(maps)
    names = len(ins) + (1 if init is not None and values["combine"] == "none" else 0)
    check_body("generic", values["body"], names, find_widest(ins, outputs[0]))
    wide = [over(d, letters, loops, sizes) for d, letters in zip(ins, maps[0], strict=True)]
    out = maps[1]
    start = None if init is None else over(init, out, loops, sizes)
    return nest(over(outputs[0], out, loops, sizes), start, wide, len(out))


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    init, *ins = inputs
    maps = parse_maps("generic", values["maps"], len(ins))
    sizes = _sizes("generic", maps, ins)
    y = tuple(sizes[c] for c in maps[1])
    if values["combine"] == "none" and len(loops_of(maps)) > len(y):
        raise InvalidArgument(
            "generic", f"maps {values['maps']!r} reduce without combine", allowed=", ".join(COMBINES[1:])
        )
    if init is None and values["combine"] != "none":
        given = f"combine={values['combine']} without init"
        raise InvalidArgument("generic", given, allowed="init, with which the terms are combined")
    if init is not None and init != y:
        raise BadTensorShape("generic", f"init is {list(init)}", allowed=f"{list(y)}, as y")
    return [y]


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    read = len(inputs) - 1 + (1 if inputs[0] is not None and values["combine"] == "none" else 0)
    if read > INPUTS:
        raise InvalidArgument("generic", f"{read} tensors that the body may read", allowed=f"up to {INPUTS}")


def find_widest(ins: Sequence[TensorDesc], y: TensorDesc) -> DType:
    """Return the dtype among the inputs and a float y in whose compute type the body is computed."""
    found = ins[0].dtype
    for d in ins:
        found = wider(found, d.dtype)
    return wider(found, y.dtype) if y.dtype.kind == "f" else found


def check_body(where: str, text: str, names: int, element: DType) -> None:
    """Raise InvalidArgument where an expression has a name beyond x0 … x{names - 1}, or what its type lacks."""
    integer = element.compute in (I64, U64)
    for kind, name, value in body_parts(text):
        if kind == "input" and value >= names:
            known = ", ".join([f"x{i}" for i in range(names)])
            raise InvalidArgument(where, f"body has x{value}", allowed=known)
        reason = _find_misplaced(kind, name, value, integer)
        if reason:
            raise InvalidArgument(where, f"body has {reason} of {element.name}", allowed="what its type has")


def body_parts(body: str) -> list[tuple[str, str, Any]]:
    """Return (kind, name, value) of each part of an expression, in the order of its stack code.

    Parts are ("const", "", 2.0), ("input", "", 0), ("call", "exp", 0), ("other", "div", 0).
    """
    parts: list[tuple[str, str, Any]] = []
    code = iter(words_of(body))
    for word in code:
        name = CODE_NAMES[word & 255]
        if name == "const":
            parts.append(("const", "", float_of(next(code))))
        elif name == "input":
            parts.append(("input", "", word >> 8))
        elif name.startswith("fn_"):
            parts.append(("call", name[3:], 0))
        else:
            parts.append(("other", name, 0))
    return parts


def _find_misplaced(kind: str, name: str, value: Any, integer: bool) -> str:
    """Return what a part asks for that the compute type does not have; an empty text where it has it."""
    if kind == "other" and name == "div" and integer:
        return "a quotient (take quotient(a, b))"
    if kind == "const" and integer and value % 1 != 0:  # not an integer, NaN, or infinite
        return f"the constant {value}"
    if kind == "call" and name not in SHARED_FUNCTIONS and (name in INTEGER_FUNCTIONS) != integer:
        return name
    return ""


def goes(types: Mapping[str, DType]) -> bool:
    """Return whether dtypes go together: a body that is computed in F64 is not rounded to a smaller float."""
    t, u = types["T"], types["U"]
    return t is not F64 or u.kind != "f" or u is F64


def _is_plain(types: Mapping[str, DType]) -> bool:
    """Return whether inputs of one dtype make an output of that dtype, of BOOL, or a wider or narrower float."""
    t, u = types["T"], types["U"]
    return u in (t, BOOL) or (t.kind == u.kind == "f" and t.compute is u.compute and F32 in (t, u))


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

    Where y is no float, F64 stands for F32, too: their bodies are exact in the samples.
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
    sizes = _sizes("generic", maps, [a.shape for a in x])
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


def _generic(init: Any, x: Sequence[Any], maps: str, body: str, combine: str, out: Sequence[TensorDesc]) -> Any:
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
    """Return where the order decides what a product is.

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


def _scale(init: Any, x: Sequence[Any], maps: str, body: str, combine: str, compute: DType) -> Any:
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


def _sample(
    maps: str, body: str, *shapes: Any, combine: str = "none", types: Any = FLOATS, init: bool = False, **fields: Any
) -> Sample:
    """Return a sample with inputs of one dtype."""
    given: dict[str, Any] = {"x": list(shapes)}
    if combine != "none" or init:
        ins, out = parse_maps("generic", maps, len(shapes))
        sizes = _sizes("generic", (ins, out), shapes)
        given["init"] = tuple(sizes[c] for c in out)
    attributes = {"maps": maps, "body": body, "combine": combine}
    own = {"T": types, **fields.pop("other", {})}
    return Sample(given, attributes, types=own, **{"goes": _is_plain, **fields})


def _mixed_samples() -> list[Sample]:
    """Return samples with inputs of several dtypes, or that y has another dtype than.

    They are a choice: every kind of conversion of an input and of y, and maps, sums and extremes with them.
    """

    def sample(maps: str, body: str, shapes: Any, each: tuple[DType, ...], y: DType, **fields: Any) -> Sample:
        of = reduce(wider, each)
        return _sample(maps, body, *shapes, types=(of,), other={"U": (y,)}, goes=None, each={"x": each}, **fields)

    row, plane = ((301,),) * 3, ((5, 301), (301,), (301,))
    quantised = "minimum(maximum(rint(x0 * 4) + 3, -100), 100)"
    return [
        sample("ab,b,b->ab", "(x0 - x2) * x1", plane, (I8, F32, I8), F32),
        sample("ab,b,b->ab", "(x0 - x2) * x1", plane, (U8, F16, U8), F16),
        sample("ab,b,b->ab", "(x0 + x2) * x1", plane, (F16, BF16, F32), BF16, values={"x": "moderate"}),
        sample("ab,b,b->ab", "x0 * x1 + x2", plane, (F32, F8E4M3FN, F8E5M2), F32, values={"x": "moderate"}),
        sample("ab->ab", "x0 * 0.5 - 3", plane[:1], (U8,), F32),
        sample("a,a,a->a", "x0 + x1 - x2", row, (I64, F32, U64), F32),
        sample("a,a,a->a", "x0 * x1 + x2", row, (F32, I64, F64), F64),
        sample("ab,b,b->ab", "x1 if x0 != 0 else x2", plane, (BOOL, F32, F32), F32),
        sample("ab,b,b->ab", "x1 if x2 != 0 else x0", plane, (I32, I32, BOOL), I32),
        sample("a,a,a->a", "x0 + x1 * x2", row, (U64, I8, U8), U64),
        sample("a,a->a", "x0 < x1", row[:2], (I16, F32), BOOL),
        *(sample("ab->ab", quantised, plane[:1], (F32,), y) for y in (I8, U8, I32)),
        sample("ab->ab", "x0 * 4", plane[:1], (F32,), I64),
        sample("ab,b->ab", "x0 * x1", ((0, 5), (5,)), (I8, F32), F32),
        sample("ab,b->a", "x0 * x1", ((5, 1025), (1025,)), (I8, F32), F32, combine="sum", values={"x": "moderate"}),
        sample("ab,a->b", "x0 - x1", ((1025, 37), (1025,)), (I16, F32), F32, combine="maximum"),
        sample("mk,nk->mn", "x0 * x1", ((7, 70), (53, 70)), (I8, U8), I32, combine="sum"),
        sample("mk,nk->mn", "x0 * x1", ((7, 70), (53, 70)), (F32, F16), F32, combine="sum"),
        sample("ab,b->ab", "x0 * x1", ((769, 801), (801,)), (I8, F32), F32, size="wide"),
    ]  # fmt: skip


def _init_samples() -> list[Sample]:
    """Return samples whose body reads y's old content."""
    return [
        _sample("ab,b->ab", "x2 + x0 * x1", (5, 301), (301,), types=(F32, F16, I32), init=True),
        _sample("ba->ab", "x0 if x0 > x1 else x1", (37, 41), types=(F32, I64, U64), init=True),
        _sample("a->a", "x1", (65,), types=(F32, U8), init=True),
        _sample("a->a", "x0 + x1", (0,), types=(F32,), init=True),
    ]


def _samples() -> list[Sample]:
    numbers, bits = (F32, F16, BF16, F64, I32, I64, U64), (*INTEGERS, BOOL)
    return [
        _sample("ab,ab->ab", "x0 + x1", (3, 37), (3, 37), types=COMPUTED),
        _sample("ab,b->ab", "maximum(x0 - x1, 0)", (5, 41), (41,), types=numbers),
        _sample("a,b->ba", "x0 * x1 + x0", (33,), (6,), types=numbers),
        _sample(",->", "x0 if x0 < x1 else x1", (), (), types=numbers),
        _sample("abc->cab", "x0 * 3 if x0 > 0 else -x0", (2, 3, 40), types=(*FLOATS, *SIGNED)),
        _sample("ab,a,b->ab", "(x0 - x1) * x2 / (1 + exp(-x0))", (5, 36), (5,), (36,), values={"x": "moderate"}),
        _sample("a,a,a,a,a,a,a,a->a", "x0 + x1 * x2 + x3 * x4 + x5 * x6 - x7", *[(35,)] * 8, values={"x": "moderate"}),
        _sample("ab,b->ab", "(x0 * x1) * (x0 * x1) / (1 + (x0 * x1) * (x0 * x1)) + abs(x0 * x1) / (2 + abs(x0 * x1))",
            (4, 301), (301,), types=(F32, F16), other={"U": FLOATS}),
        _sample("ab,ab->ab",
            "0 if x0 + x1 < -9 else (x0 + x1) * (1 if x0 + x1 >= 0 else exp(-abs(x0 + x1))) / (1 + exp(-abs(x0 + x1)))",
            (5, 33), (5, 33), values={"x": "moderate"}),
        _sample("a->a", "(x0 + 1) * (x0 + 1) - bitand(x0 + 1, 3) * ((x0 + 1) * (x0 + 1))", (65,), types=(I32, U64)),
        _sample("a->a", "tanh(x0) * erf(x0) * sqrt(abs(x0)) + 0.1", (1025,), types=(F32, F16, F64)),
        _sample("a,a->a", "bitand(x0, x1) + quotient(x0, 7) if x0 != 3 and not x1 == 2 else bitnot(x1)",
            (67,), (67,), types=bits),
        _sample("ab,b->ab", "x0 if x1 > 0 or x0 != x0 else -1e999", (4, 65), (65,), types=(F32, F16)),
        _sample("aa->a", "x0", (37, 37), types=COMPUTED),
        _sample("aba,b->ba", "x0 - x1", (5, 41, 5), (41,), types=(F32, F16, I64)),
        _sample("aa->", "x0", (65, 65), combine="sum", types=(F32, F64, I32)),
        _sample("aabb,bc->ac", "x0 * x1", (3, 3, 33, 33), (33, 7), combine="sum", types=(F32, F16)),
        _sample("abca->cb", "abs(x0)", (17, 2, 5, 17), combine="maximum", types=(F32, I32)),
        _sample("aa->a", "x0", (0, 0), types=(F32,)),
        _sample("ab->", "x0", (33, 65), combine="sum", types=COMPUTED),
        _sample("ab->a", "x0 * x0", (5, 1025), combine="sum", values={"x": "moderate"}),
        _sample("ab->b", "x0", (1025, 37), combine="maximum", types=numbers),
        _sample("a->a", "minimum(x0, 18446744073709551616)", (37,), types=(U64,)),
        _sample("a->a", "minimum(x0, 9223372036854775808)", (37,), types=(I64, U64)),
        _sample("abc->b", "abs(x0)", (3, 34, 5), combine="minimum", types=numbers),
        _sample("abc->ac", "x0", (3, 9, 5), combine="product", types=numbers),
        _sample("ab,ab->a", "x0 * x1", (5, 301), (5, 301), combine="product", types=(F32, F16),
            values={"x": "near_one"}),
        _sample("ab->b", "x0", (1025, 37), combine="product", types=(F32, F64), values={"x": "near_one"}),
        _sample("a->", "x0", (7_001,), combine="product", types=(F32, I32), values={"x": "near_one"}),
        _sample("ab->b", "x0", (0, 5), combine="product", types=(F32, I64)),
        _sample("mk,nk->mn", "x0 * x1", (7, 70), (53, 70), combine="sum"),
        # With gaps between rows, the 128 terms that a kernel takes at a time end one after a gap
        _sample("mjk,njk->mn", "x0 * x1", (5, 2, 127), (7, 2, 127), combine="sum", types=(F32, F16)),
        _sample("mk,nk->mn", "x0 * x1", (5, 1157), (9, 1157), combine="sum", types=(F32, F16)),
        _sample("bmk,bkn->bmn", "x0 * x1", (3, 4, 33), (3, 33, 35), combine="sum", types=(F32, F16)),
        _sample("ab,cb->ac", "exp(-abs(x0 - x1))", (6, 35), (7, 35), combine="sum", types=(F32, F64),
            values={"x": "moderate"}),
        _sample("abcdefgh->hfdb", "x0", (2, 1, 3, 2, 1, 2, 2, 3), combine="sum", types=(F32, I32)),
        _sample("ab->a", "x0", (4, 0), combine="sum", types=(F32, I64)),
        _sample("ab->b", "x0 + 1", (0, 5), combine="maximum", types=(F32,)),
        _sample("ab->ab", "x0 + 1", (0, 5), types=(F32, BOOL)),
        *_mixed_samples(),
        *_init_samples(),
        _sample("ab,b->ab", "x0 * 0.5 + x1", (769, 801), (801,), types=(F32, F16), size="wide"),
        _sample("ab->a", "x0", (601, 1025), combine="sum", types=(F32, F16), size="wide"),
        _sample("ab->b", "x0", (1025, 601), combine="sum", types=(F32, F16), size="wide"),
        *(
            _sample("ab,ab,b->ab", "maximum(x0 * 0.5 + x1, 0) * x2", (n, n), (n, n), (n,), size=size)
            for n, size in [(64, "small"), (512, "medium"), (4096, "large")]
        ),
        _sample("ab->a", "x0 * x0", (4096, 4096), combine="sum", size="large"),
        _sample("mk,nk->mn", "x0 * x1", (1024, 1024), (1024, 1024), combine="sum", size="large"),
    ]  # fmt: skip


_MAPS = {"maps": "a,a->a", "body": "x0 + x1"}

generic = declare(
    "generic",
    "GENR",
    "init?: U[*i], x...: T...[*s] -> y: U[*d]",
    {"T": (*COMPUTED, *FP8), "U": COMPUTED},
    combinations=goes,
    family="structured",
    doc=(
        "One loop nest (linalg.generic): y[out] = body(x0[…], x1[…], …), or init[out] combined with the body over all"
        " loops that the output lacks. `maps` gives each tensor a letter a dim, as einsum does ('ab,b->ab'); a letter"
        " is a loop, and an input that has it twice is read along its diagonal. Without combine, init is one more"
        " input, with y's letters, called by the next name (x1 beside one input), so that a body can update y in place."
        " Inputs may have a dtype each: the body is computed in the widest compute type among theirs and that of a"
        " float y (F64, F32, U64, then I64). Inputs are converted to it as `cast` does, and so is the result to y's"
        " dtype. Sums are made in blocks (error grows with log2 of the length), products in any order, each in the"
        " compute type; a maximum or minimum with NaN is NaN."
    ),
    reference=_generic,
    tolerance=Tolerance(1, _scale),
    attrs=attrs(
        "GEN1",
        text("maps", doc="a letter for each dim of each input, and of y: 'mk,nk->mn'"),
        body("body", doc="an expression of x0, x1, … in the language of elementwise rows"),
        choice("combine", COMBINES, "none", "how terms of loops that y lacks, and init, become one"),
    ),
    shapes=_shapes,
    check=_check,
    normal_form=_normal_form,
    aliases=("init",),
    flops=lambda i, o: float(max(o[0].numel, *(d.numel for d in i if d is not None))),
    samples=_samples,
    errors=[
        ErrorCase({"x": [(3,), (4,)]}, BadTensorShape, _MAPS),
        ErrorCase({"x": [(3,), (3, 1)]}, BadTensorShape, _MAPS),
        ErrorCase({"x": [(3,)]}, InvalidArgument, _MAPS),
        ErrorCase({"x": [(3,)], "init": (3,)}, InvalidArgument, {"maps": "a->a", "body": "x0 + x2"}),
        ErrorCase({"x": [(3,)] * 8, "init": (3,)}, InvalidArgument, {"maps": f"{'a,' * 7}a->a", "body": "x0"}),
        ErrorCase({"x": [(3,)], "init": (4,)}, BadTensorShape, {"maps": "a->a", "body": "x0 + x1"}),
        ErrorCase({"x": [(3,), (3,)]}, InvalidArgument, {**_MAPS, "combine": "sum"}),
        ErrorCase({"x": [(3,), (3,)], "init": (4,)}, BadTensorShape, {**_MAPS, "combine": "sum"}),
        ErrorCase({"x": [(3, 4)]}, BadTensorShape, {"maps": "aa->a", "body": "x0"}),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"maps": "a->aa", "body": "x0"}),
        ErrorCase({"x": [(3, 3)]}, InvalidArgument, {"maps": "ab->a", "body": "x0"}),
        ErrorCase({"x": [(3, 3)]}, InvalidArgument, {"maps": "ab->c", "body": "x0"}),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"maps": "a->a", "body": "x1"}),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"maps": "a->a", "body": "x0 @ 2"}),
        ErrorCase(
            {"x": [(3,)]},
            InvalidArgument,
            {"maps": "a->a", "body": "exp(x0)"},
            dtypes={"T": I32, "U": I32},
            outputs={"y": (3,)},
        ),
        ErrorCase({"x": [(3,)]}, InvalidArgument, {"maps": "a->a", "body": "quotient(x0, 2)"}),
        ErrorCase(
            {"x": [(3,)]},
            InvalidArgument,
            {"maps": "a->a", "body": "x0 / 2"},
            dtypes={"T": I32, "U": I32},
            outputs={"y": (3,)},
        ),
        ErrorCase(
            {"x": [(3,)]},
            BadTensorDtype,
            {"maps": "a->a", "body": "x0"},
            dtypes={"T": F64, "U": F16},
            outputs={"y": (3,)},
        ),
    ],
)
