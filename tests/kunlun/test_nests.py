"""Test each way of computing loop nests on the card.

These are tiles along outputs, along terms and transposed, terms in parts, and expressions that exceed a launch's
parameters.
"""

from __future__ import annotations

from typing import Any

import pytest
from needs import assert_same_on_clusters, judge

from isokern.declare.operator import Sample
from isokern.dtypes import BF16, BOOL, F16, F32, I32, I64, U64, DType

LAYOUTS = ("contiguous", "permuted_in", "gaps", "negative")
BOTH = [(F32, F32), (I32, I32)]


def nest(maps: str, body: str, *shapes: tuple[int, ...], combine: str = "none", **fields: Any) -> Sample:
    ins, out = maps.split("->")
    sizes = {
        c: n for letters, shape in zip(ins.split(","), shapes, strict=True) for c, n in zip(letters, shape, strict=True)
    }
    given: dict[str, Any] = {"x": list(shapes)}
    if combine != "none":
        given["init"] = tuple(sizes[c] for c in out)
    return Sample(given, {"maps": maps, "body": body, "combine": combine}, **fields)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("types", [(F32, F32), (F16, F32), (I32, I32), (U64, BOOL)])
def test_outputs_in_another_order_than_inputs(types: tuple[DType, ...], layout: str) -> None:
    for sample in [
        nest("ab->ba", "x0 + 1", (70, 93)),
        nest("abc->cab", "x0 + x0", (33, 3, 130)),
        nest("abcd->dcba", "x0 * 3", (5, 18, 3, 40)),
        nest("ab,ba->ab", "x0 + x1", (150, 77), (77, 150)),
        nest("ab,ba,b,a->ba", "maximum(x0, x1) * 3 if x2 < x3 else x0 + 1", (40, 61), (61, 40), (61,), (40,)),
    ]:
        judge("generic", types, sample, layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("maps", ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn", "mk,kn->nm", "bmk,nbk->bnm"])
def test_products_of_every_order(maps: str, layout: str) -> None:
    sizes = {"m": 19, "n": 70, "k": 133, "b": 3}
    shapes = [tuple(sizes[c] for c in letters) for letters in maps.split("->")[0].split(",")]
    for types in [*BOTH, (F16, F32), (BF16, BF16)]:
        judge("generic", types, nest(maps, "x0 * x1", *shapes, combine="sum"), layout)


@pytest.mark.parametrize("combine", ["sum", "maximum", "minimum"])
@pytest.mark.parametrize("layout", ["contiguous", "permuted_in", "inplace"])
def test_parts(combine: str, layout: str) -> None:
    """Outputs of many terms are computed in parts, which are combined in the workspace."""
    for maps, shape in [("ab->", (90, 1025)), ("ab->a", (3, 30011)), ("ab->b", (30011, 3)), ("abc->b", (70, 5, 900))]:
        for types in [*BOTH, (U64, U64), (F16, F16), (I64, BOOL)]:
            sample = nest(maps, "x0", shape, combine=combine)
            judge("generic", types, sample, "contiguous" if layout == "inplace" else layout)


def test_sums_beyond_the_range_on_the_way() -> None:
    for maps, shape in [("ab->a", (5, 70)), ("ab->b", (70, 5)), ("ab->a", (3, 30011)), ("ab->b", (30011, 3))]:
        for types in [(F32, F32), (BF16, F32), (F16, F32)]:
            judge("generic", types, nest(maps, "x0", shape, combine="sum"), "contiguous", "special")


@pytest.mark.parametrize("types", BOTH)
def test_texts_that_are_launched_before(types: tuple[DType, ...]) -> None:
    eight = (
        "(x0 * 2 if x1 > 3 else x2 + 4) if x3 != 5 and x4 < 6"
        " else (maximum(x5, 7) * x6 if x7 - 8 < x0 else (x1 - 10 if x2 > 11 else minimum(x3, 12)) * 9)"
    )
    shape = (2, 3, 2, 3, 2, 2, 3, 5)
    for maps, shapes in [
        (f"{','.join(['abcd'] * 7)},d->dbca", [*[(3, 4, 5, 7)] * 7, (7,)]),
        ("a,b,c,d,e,f,g,h->abcdefgh", [(n,) for n in shape]),
    ]:
        judge("generic", types, nest(maps, eight, *shapes), "permuted_in")
    judge(
        "generic",
        types,
        nest("abcdefgh,bdfh,aceg->acfh", "x0 * 2 if x1 > x2 else x1", shape, (3, 3, 2, 5), (2, 2, 2, 3), combine="sum"),
        "gaps",
    )


def test_windows() -> None:
    """Where windows have strides, elements that are a few apart are copied together with what lies between them."""
    for stride, dilation in [((1,), (1,)), ((3, 2), (1, 2)), ((2,), (2, 9))]:
        kernel, x = (3, 4), (2, 3, 40, 66)
        reach = [d * (k - 1) + 1 for k, d in zip(kernel, (dilation * 2)[:2], strict=True)]
        out = [(n - r) // s + 1 for n, r, s in zip(x[2:], reach, (stride * 2)[:2], strict=True)]
        values: dict[str, Any] = {"stride": stride, "dilation": dilation}
        for op in ("pooling_nchw_sum", "pooling_nchw_max"):
            for layout in LAYOUTS:
                judge(op, BOTH[0], Sample({"init": (2, 3, *out), "x": x}, {"kernel": kernel, **values}), layout)
        for layout in LAYOUTS:
            judge(
                "conv_2d_nchw_fchw",
                BOTH[0],
                Sample({"init": (2, 5, *out), "x": x, "w": (5, 3, *kernel)}, values),
                layout,
            )


DIGEST = """
import hashlib, numpy as np, isokern
found = hashlib.sha256()
for shapes in (((4, 130, 70), (4, 70, 90)), ((1, 3, 30011), (1, 30011, 2))):
    x, w = (np.random.default_rng(1).standard_normal(s).astype(np.float32) for s in shapes)
    init = np.zeros((len(x), x.shape[1], w.shape[2]), np.float32)
    found.update(np.asarray(isokern.batch_matmul(init, x, w, device="kunlun_sim:0").numpy()).tobytes())
print(found.hexdigest())
"""


def test_the_same_bits_on_any_number_of_clusters() -> None:
    assert_same_on_clusters(DIGEST)
