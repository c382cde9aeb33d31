"""Products with the weights of experts: rows sorted by expert (moe_align), matmul_id, and grouped_gemm.

Normal form of matmul_id: y[m, top, n], x[m, top, k], w[experts, n, k], ids[m, top]. A row of x that a token's experts
share has stride 0 along `top`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import Descs, as_given
from ..dtypes import ACTIVATIONS, ALL_WEIGHTS, BOOL, F32, F64, I64, INDICES, STORED_BLOCKS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .gemm import accumulated_magnitude
from .matmul_transposed import LHS_QUANTIZATION, QUANTISED, check_lhs_quantization, emit_rounded, round_lhs

Shape = tuple[int, ...]


# moe_align


def count_blocks(pairs: int, experts: int, block: int) -> int:
    """Return how many blocks hold the pairs of each expert at most: all but the last one of an expert are full."""
    return min(pairs, (pairs + min(experts, pairs) * (block - 1)) // block)


def _align_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (ids,) = inputs
    pairs = 1
    for d in ids:
        pairs *= d
    experts, block = values["experts"], values["block"]
    blocks = count_blocks(pairs, experts, block)
    return [(blocks * block,), (blocks,), (experts,), (experts + 1,), tuple(ids)]


def _align_reference(ids: Any, experts: int, block: int) -> tuple[Any, ...]:
    flat = ids.reshape(-1).astype(np.int64)
    known = (flat >= 0) & (flat < experts)
    blocks = count_blocks(flat.size, experts, block)
    counts = np.bincount(flat[known], minlength=experts)
    offsets = np.concatenate([[0], np.cumsum(-(-counts // block) * block)])
    order, places = np.full(blocks * block, flat.size), np.full(flat.size, blocks * block)
    for expert in np.flatnonzero(counts):
        (pairs,) = np.nonzero(flat == expert)
        slots = offsets[expert] + np.arange(pairs.size)
        order[slots], places[pairs] = pairs, slots
    owners = np.searchsorted(offsets[1:], np.arange(blocks) * block, "right")
    return order, np.where(owners < experts, owners, -1), counts, offsets, places.reshape(ids.shape)


def _align(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, ...]:
    (ids,), experts, block = inputs, values["experts"], values["block"]
    pairs, slots, blocks = ids.spec.numel, outputs[0].shape[0], outputs[1].shape[0]
    flat = e.cast(e.reshape(ids, (pairs,)), I64)
    keys = e.loop("a->a", f"x0 if 0 <= x0 and x0 < {experts} else {experts}", flat)
    ordered, order = e.all("sort", keys)
    # One more expert stands for the ids that name none
    counts = e("scatter", e.fill((experts + 1,), 0.0, I64), keys, e.fill((pairs,), 1.0, I64), axis=0, reduction="add")
    padded = f"quotient(x0 + {block - 1}, {block}) * {block} if x1 < {experts} else 0"
    starts = e("cumsum", counts, exclusive=True)
    offsets = e("cumsum", e.loop("a,a->a", padded, counts, e.iota(experts + 1, I64)), exclusive=True)
    shifts = e("gather", e.loop("a,a->a", "x0 - x1", offsets, starts), ordered, axis=0)
    taken = e.loop("a,a,a->a", f"x1 + x2 if x0 < {experts} else {slots}", ordered, shifts, e.iota(pairs, I64))
    places = e("scatter", e.fill((pairs,), 0.0, I64), order, taken, axis=0)
    filled = e("scatter", e.fill((slots + 1,), float(pairs), I64), taken, order, axis=0)
    ends = e("slice", offsets, starts=(1,), ends=(experts + 1,))
    owners = e.loop("a,b->a", "1 if x1 <= x0 else 0", e.iota(blocks, I64, step=block), ends, combine="sum")
    return (
        e("slice", filled, starts=(0,), ends=(slots,)),
        e.loop("a->a", f"x0 if x0 < {experts} else -1", owners),
        e("slice", counts, starts=(0,), ends=(experts,)),
        offsets,
        e.reshape(places, ids.spec.shape),
    )


declare(
    "moe_align",
    "MOAL",
    "ids: I[*i] -> order: I64[p], owners: I64[b], counts: I64[experts], offsets: I64[j], places: I64[*i]",
    {"I": INDICES},
    family="movement",
    doc=(
        "The pairs of tokens and experts that ids list, sorted by expert, each expert's in the order of ids and padded"
        " to a multiple of `block`. order has the number of the pair in each slot (the number of all pairs in a slot of"
        " padding), owners the expert of each block (-1 behind the last), counts the pairs of each expert, offsets"
        " the first slot of each and, at the end, how many slots there are; places has the slot of each pair."
        " An id outside 0 … experts - 1 is of no expert here: its place is the number of slots of order. As no shape"
        " depends on values, there are as many blocks as any ids may need (vLLM's moe_align_block_size; with block 1"
        " the sorted rows of a grouped product)."
    ),
    reference=_align_reference,
    attrs=attrs(
        "MOA1",
        integer("experts", doc="how many", minimum=0, maximum=1 << 20),
        integer("block", 1, "slots in a block", minimum=1, maximum=1 << 20),
    ),
    shapes=_align_shapes,
    normal_form=as_given,
    decompose=_align,
    samples=lambda: [
        Sample({"ids": i}, {"experts": experts, "block": block}, {"ids": f"index:{experts + 1}"}, size=size)
        for i, experts, block, size in [
            ((5, 2), 4, 4, "small"),
            ((7,), 3, 1, "small"),
            ((), 3, 2, "small"),
            ((3, 33), 9, 16, "small"),
            ((2, 1, 2, 1, 3, 1, 2, 2), 4, 3, "small"),
            ((0, 2), 3, 4, "small"),
            ((4,), 0, 2, "small"),
            ((6, 2), 64, 8, "small"),
            ((1031, 8), 60, 16, "wide"),
            ((512, 8), 64, 16, "medium"),
            ((8192, 8), 128, 64, "large"),
        ]
    ],
    errors=[
        ErrorCase({"ids": (3, 2)}, InvalidArgument),
        ErrorCase({"ids": (3, 2)}, InvalidArgument, {"experts": -1}),
        ErrorCase({"ids": (3, 2)}, InvalidArgument, {"experts": 3, "block": 0}),
        ErrorCase({"ids": (3, 2)}, BadTensorDtype, {"experts": 3}, dtypes={"ids": F32}),
    ],
    exact=True,
)


# matmul_id


def _product_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    x, w, ids = inputs
    rows, k = ids[:1], w[2]
    if x != (*rows, k) and x != (*ids, k):
        raise BadTensorShape(
            "matmul_id", f"x is {list(x)}", allowed=f"{[*rows, k]}, or {[*ids, k]} for a row of each expert"
        )
    return [(*ids, w[1])]


def _product_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return x as x[m, top, k], with stride 0 along top if its experts share a row."""
    x, w, ids = inputs
    assert x is not None and ids is not None
    if x.ndim == 2:
        x = TensorDesc(x.dtype, (*ids.shape, x.shape[1]), (x.strides[0], 0, x.strides[1]), x.offset)
    return [x, w, ids], [outputs[0]]


def _check_product(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    check_lhs_quantization("matmul_id", inputs[1], values)


def _product(x: Any, w: Any, ids: Any, lhs_quantization: str) -> Any:
    return apply_experts(np.matmul, round_lhs(x, lhs_quantization), w, ids)


def _product_scale(x: Any, w: Any, ids: Any, lhs_quantization: str) -> Any:
    return 2 * apply_experts(accumulated_magnitude, round_lhs(x, lhs_quantization), w, ids)


def apply_experts(of_rows: Any, x: Any, w: Any, ids: Any) -> Any:
    """Return of_rows(x, w) of each expert and its rows; 0 if an id has none."""
    wide = x if x.ndim == 3 else np.broadcast_to(x[:, None], (*ids.shape, x.shape[-1]))
    y = np.zeros((*ids.shape, w.shape[1]))
    for expert in range(w.shape[0]):
        y[ids == expert] = of_rows(wide[ids == expert], w[expert].T)
    return y


def _multiply(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit a product of matrices for each block of rows of one expert, with the experts' weights gathered.

    A block holds as many rows as an expert has on average, so there are at most twice as many weights and rows as the
    experts and the pairs have.
    """
    x, w, ids = inputs
    (experts, _, k), (rows, top), y = w.spec.shape, ids.spec.shape, outputs[0]
    pairs = rows * top
    if y.numel == 0 or experts == 0 or k == 0:
        return _multiply_nothing(e, ids, experts, y)
    if values["lhs_quantization"] == "q8_0":
        x = emit_rounded(e, x)
    plain = w if w.spec.dtype.block == 1 else e("dequantize", w, dtypes={"T": F32})
    element = y.dtype if plain.spec.dtype is y.dtype else F32
    shared = 1 if x.spec.ndim == 3 else top
    given = e.reshape(e.cast(x, element), (pairs // shared, k))
    block, known = -(-pairs // experts), find_known(e, ids, experts)
    if block == 1:
        owners = e.loop("a,a->a", "x0 if x1 > 0 else 0", e.cast(e.reshape(ids, (pairs,)), I64), known)
        each = given if shared == 1 else e("gather", given, count_by(e, pairs, shared), axis=0)
        product = _multiply_blocks(e, each, plain, owners, 1, element)
        return e.cast(e.reshape(e.loop("ab,a->ab", "x0 if x1 > 0 else 0", product, known), y.shape), y.dtype)
    order, owners, _, _, places = e.all("moe_align", ids, experts=experts, block=block)
    # The slot of an id that names no expert is behind the last; the check is first to report it, as an id
    slot = e.loop("a,a->a", f"x0 if x1 > 0 else {order.spec.numel}", e.reshape(places, (pairs,)), known)
    sources = e.loop("a->a", f"quotient(x0, {shared}) if x0 < {pairs} else 0", order)
    product = _multiply_blocks(e, e("gather", given, sources, axis=0), plain, owners, block, element)
    return e.cast(e.reshape(e("gather", product, slot, axis=0), y.shape), y.dtype)


def _multiply_blocks(e: Emitter[V], x: V, w: V, owners: V, block: int, element: Any) -> V:
    """Emit the products of blocks of rows with the weights of their owners."""
    (rows, k), n = x.spec.shape, w.spec.shape[1]
    weights = e.cast(e("gather", w, owners, axis=0), element)
    return e.reshape(e("gemm", e.reshape(x, (rows // block, block, k)), weights, trans_b=True), (rows, n))


def count_by(e: Emitter[V], length: int, each: int) -> V:
    """Emit 0 … as often as `each` says."""
    return e.loop("a->a", f"quotient(x0, {each})", e.iota(length, I64))


def find_known(e: Emitter[V], ids: V, experts: int) -> V:
    """Emit 1 for each pair whose id names an expert, else 0; the gather reports the first that does not."""
    flat = e.cast(e.reshape(ids, (ids.spec.numel,)), I64)
    # An index below 0 becomes less than -experts, so that it does not count from the end
    at = e.loop("a->a", f"x0 if x0 >= 0 else x0 - {experts}", flat)
    return e("gather", e.fill((experts,), 1.0, I64), at, axis=0)


def _multiply_nothing(e: Emitter[V], ids: V, experts: int, y: TensorDesc) -> V:
    """Emit zeros, and the check of ids."""
    if ids.spec.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype)
    zeros = e.loop("a->a", "x0 * 0", e.cast(find_known(e, ids, experts), F32))
    y_ = e.loop("ab,c->abc", "x0 + x1", e.reshape(zeros, ids.spec.shape), e.fill(y.shape[2:], 0.0, F32))
    return e.cast(y_, y.dtype)


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    x = inputs[0]
    return 2.0 * outputs[0].numel * (x.shape[-1] if x is not None else 0)


PRODUCTS: SampleTable = [
    ((3, 64), (4, 6, 64), 2, "small"),
    ((3, 2, 32), (4, 5, 32), 2, "small"),
    ((1, 160), (9, 33, 160), 3, "small"),
    ((37, 64), (5, 17, 64), 3, "small"),
    ((40, 3, 96), (2, 9, 96), 3, "small"),
    ((5, 32), (1, 7, 32), 1, "small"),
    ((0, 32), (4, 5, 32), 2, "small"),
    ((3, 32), (4, 5, 32), 0, "small"),
    ((3, 0), (4, 5, 0), 2, "small"),
    ((3, 32), (4, 0, 32), 2, "small"),
    ((2, 32), (0, 5, 32), 0, "small"),
    ((3, 5), (4, 3, 5), 2, "small"),
    ((70, 160), (6, 131, 160), 4, "wide"),
    ((1, 2048), (32, 768, 2048), 8, "medium"),
    ((1, 2048), (64, 2048, 2048), 8, "large"),
    ((512, 2048), (32, 768, 2048), 4, "large"),
]

QUANTISED_PRODUCTS: SampleTable = [
    ((3, 2, 256), (4, 5, 256), 2, "small"),
    ((1, 512), (9, 33, 512), 3, "small"),
    ((37, 256), (5, 17, 256), 3, "small"),
    ((0, 256), (4, 5, 256), 2, "small"),
    ((3, 0), (4, 5, 0), 2, "small"),
    ((70, 256), (6, 131, 256), 4, "wide"),
    ((1, 2048), (32, 768, 2048), 8, "medium"),
    ((1, 2048), (64, 2048, 2048), 8, "large"),
    ((512, 2048), (32, 768, 2048), 4, "large"),
]
_QUANTISED = {"lhs_quantization": "q8_0"}

declare(
    "matmul_id",
    "MMID",
    "x: T[*s], w: W[e, n, k], ids: I[m, top] -> y: T[m, top, n]",
    {"W": ALL_WEIGHTS, "T": ACTIVATIONS, "I": INDICES},
    family="contraction",
    doc=(
        "y[i, t] = w[ids[i, t]] x[i], the products of each token with the weights of its experts, which may have a"
        " dtype of their own, as in `matmul_transposed` (ggml's MUL_MAT_ID). x is [m, k], or [m, top, k] with a row for"
        " each expert. An id outside 0 … e - 1 gives zeros and raises InvalidArgument at the call on a synchronous"
        " device, else at the next synchronize. lhs_quantization=q8_0 quantizes each row of x first, as"
        " `matmul_transposed` does; it goes with block types only."
    ),
    reference=_product,
    tolerance=Tolerance(2, _product_scale),
    attrs=attrs("MMI1", LHS_QUANTIZATION),
    check=_check_product,
    shapes=_product_shapes,
    normal_form=_product_normal_form,
    decompose=_multiply,
    constants=("w",),
    flops=_flops,
    samples=lambda: [
        *(
            Sample({"x": (3, 256), "w": (4, 5, 256), "ids": (3, 2)}, values, {"ids": "length:3"}, types=types)
            for values, types in (({}, {"W": STORED_BLOCKS}), (_QUANTISED, {"W": STORED_BLOCKS}))
        ),
        *(
            Sample({"x": x, "w": w, "ids": (x[0], top)}, values, {"ids": f"length:{w[0] - 1}"}, size=size, types=types)
            for values, types, samples in (({}, {}, PRODUCTS), (_QUANTISED, {"W": QUANTISED}, QUANTISED_PRODUCTS))
            for x, w, top, size in samples
        ),
    ],
    errors=[
        ErrorCase({"x": (3, 64), "w": (4, 6, 32), "ids": (3, 2)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (4, 6, 64), "ids": (4, 2)}, BadTensorShape),
        ErrorCase({"x": (3, 3, 64), "w": (4, 6, 64), "ids": (3, 2)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (6, 64), "ids": (3, 2)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (4, 6, 64), "ids": (3,)}, BadTensorShape),
        ErrorCase({"x": (3, 64), "w": (4, 6, 64), "ids": (3, 2)}, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({"x": (3, 64), "w": (4, 6, 64), "ids": (3, 2)}, BadTensorDtype, dtypes={"ids": F32}),
        ErrorCase({"x": (3, 64), "w": (4, 6, 64), "ids": (3, 2)}, InvalidArgument, _QUANTISED),
        ErrorCase({"x": (3, 64), "w": (4, 6, 64), "ids": (3, 2)}, InvalidArgument, {"lhs_quantization": "int8"}),
    ],
    device_error="ids[{at}] is {value}, out of range for the experts",
)


# grouped_gemm


def _multiply_groups(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the group of each row, and matmul_id; rows of no group are multiplied by the last one's weights, then 0."""
    x, w, ends = inputs
    (rows, n), groups = outputs[0].shape, w.spec.shape[0]
    if groups == 0 or outputs[0].numel == 0:
        return e.fill(outputs[0].shape, 0.0, outputs[0].dtype)
    before = "1 if x0 >= x1 else 0"
    owners = e.loop("a,b->a", before, e.iota(rows, I64), e.cast(ends, I64), combine="sum")
    ids = e.reshape(e.loop("a->a", f"minimum(x0, {groups - 1})", owners), (rows, 1))
    y = e.reshape(e("matmul_id", x, w, ids), (rows, n))
    kept = e.loop("a->a", f"x0 < {groups}", owners, dtype=BOOL)
    return e("where", e.reshape(kept, (rows, 1)), y, e.fill((1, 1), 0.0, y.spec.dtype))


def _apply_groups(of_rows: Any, x: Any, w: Any, ends: Any) -> Any:
    # A row is of as many groups as ended before it, in whatever order they end
    owners = (np.arange(x.shape[0])[:, None] >= ends).sum(1)
    return apply_experts(of_rows, x, w, owners[:, None])[:, 0]


declare(
    "grouped_gemm",
    "GRGM",
    "x: T[m, k], w: W[e, n, k], ends: I[e] -> y: T[m, n]",
    {"W": ALL_WEIGHTS, "T": ACTIVATIONS, "I": INDICES},
    family="contraction",
    doc=(
        "y[i] = w[g] x[i] for the rows of each group g, one after the other: group g ends before row ends[g],"
        " and begins at the end of the one before it (PyTorch's grouped_mm with offs). Ends ascend: a row is of as many"
        " groups as end before it; rows behind the last end are 0."
    ),
    reference=lambda x, w, ends: _apply_groups(np.matmul, x, w, ends),
    tolerance=Tolerance(2, lambda x, w, ends: 2 * _apply_groups(accumulated_magnitude, x, w, ends)),
    normal_form=as_given,
    decompose=_multiply_groups,
    constants=("w",),
    flops=_flops,
    samples=lambda: [
        Sample({"x": (5, 512), "w": (3, 7, 512), "ends": (3,)}, {}, {"ends": "length:5"}, types={"W": STORED_BLOCKS}),
        Sample({"x": (2, 256), "w": (4, 3, 256), "ends": (4,)}, {}, {"ends": "length:2"}, types={"W": STORED_BLOCKS}),
        *(
            Sample({"x": (m, k), "w": (groups, n, k), "ends": (groups,)}, {}, {"ends": f"length:{m}"}, size=size)
            for m, groups, n, k, size in [
                (7, 3, 5, 64, "small"),
                (40, 2, 33, 96, "small"),
                (3, 5, 4, 32, "small"),
                (5, 1, 3, 7, "small"),
                (0, 2, 3, 32, "small"),
                (4, 0, 3, 32, "small"),
                (4, 2, 0, 32, "small"),
                (4, 2, 3, 0, "small"),
                (301, 6, 131, 160, "wide"),
                (512, 8, 512, 1024, "medium"),
                (2048, 16, 1024, 2048, "large"),
            ]
        ),
    ],
    errors=[
        ErrorCase({"x": (7, 64), "w": (3, 5, 32), "ends": (3,)}, BadTensorShape),
        ErrorCase({"x": (7, 64), "w": (3, 5, 64), "ends": (4,)}, BadTensorShape),
        ErrorCase({"x": (7, 2, 64), "w": (3, 5, 64), "ends": (3,)}, BadTensorShape),
        ErrorCase({"x": (7, 64), "w": (3, 5, 64), "ends": (3,)}, BadTensorDtype, dtypes={"ends": F32}),
    ],
)
