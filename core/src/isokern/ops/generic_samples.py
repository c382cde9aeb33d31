"""The samples and error cases of generic."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import Any

from ..declare import ErrorCase, Sample
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
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .loop_maps import parse_maps, sizes_of


def _is_plain(types: Mapping[str, DType]) -> bool:
    """Return whether inputs of one dtype make an output of that dtype, of BOOL, or a wider or narrower float."""
    t, u = types["T"], types["U"]
    return u in (t, BOOL) or (t.kind == u.kind == "f" and t.compute is u.compute and F32 in (t, u))


def _sample(
    maps: str, body: str, *shapes: Any, combine: str = "none", types: Any = FLOATS, init: bool = False, **fields: Any
) -> Sample:
    """Return a sample with inputs of one dtype."""
    given: dict[str, Any] = {"x": list(shapes)}
    if combine != "none" or init:
        ins, out = parse_maps("generic", maps, len(shapes))
        sizes = sizes_of("generic", (ins, out), shapes)
        given["init"] = tuple(sizes[c] for c in out)
    attributes = {"maps": maps, "body": body, "combine": combine}
    own = {"T": types, **fields.pop("other", {})}
    return Sample(given, attributes, types=own, **{"goes": _is_plain, **fields})


def _mixed_samples() -> list[Sample]:
    """Return samples whose inputs have several dtypes, or a dtype that differs from that of y.

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


def list_samples() -> list[Sample]:
    """Return the samples."""
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


def list_errors() -> list[ErrorCase]:
    """Return the error cases."""
    return [
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
    ]
