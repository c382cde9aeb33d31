"""scaled_mm: products of matrices of 8-bit numbers with scales per tensor, row, column or block."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, integer
from ..declare.decomposition import Emitter, V, find_optional
from ..declare.normal_form import as_given
from ..dtypes import BF16, F16, F32, FP8, I8, I64, U8
from ..layout import MAX_RANK, TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .gemm import accumulated_magnitude
from .integer_products import check_parameter, lift, product_shapes

Shape = tuple[int, ...]


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    a, b, a_scale, b_scale, bias = [*inputs, None][:5]
    size, found = values["block_size"], product_shapes("scaled_mm", a, b)
    m, k, n = a[-2], a[-1], b[-1]
    if (len(a_scale) > 1 or len(b_scale) > 1) and k % size != 0:
        raise BadTensorShape("scaled_mm", f"a is {list(a)}", allowed=f"blocks of {size} along the last dim")
    _check_scale("a_scale", a_scale, m, "row of a", [(*a[:-1], k // size)])
    narrow, lead = -(-n // size), (*b[:-2], k // size)
    _check_scale("b_scale", b_scale, n, "column of b", [(*lead, narrow), (*lead, n)])
    if bias is not None and tuple(bias) != (n,):
        raise BadTensorShape("scaled_mm", f"bias is {list(bias)}", allowed=f"[{n}], one for each column of b")
    return found


def _check_scale(name: str, given: Shape, length: int, of: str, blocks: Sequence[Shape]) -> None:
    if len(given) < 2:
        check_parameter("scaled_mm", name, given, length, of)
    elif all(tuple(given) != tuple(one) for one in blocks):
        raise BadTensorShape("scaled_mm", f"{name} is {list(given)}", allowed=f"{list(blocks[0])}, one for each block")


def _widen_a(e: Emitter[V], a: V, scale: V, size: int) -> V:
    """Return a times the scales of its blocks, in F32."""
    *lead, k = a.spec.shape
    rows = math.prod(lead)
    blocks = e.reshape(e.cast(a, F32), (rows, k // size, size))
    return e.reshape(e.pointwise("x0 * x1", blocks, e.reshape(scale, (rows, k // size, 1))), a.spec.shape)


def _widen_b(e: Emitter[V], b: V, scale: V, size: int) -> V:
    """Return b times the scales of its blocks, in F32."""
    *lead, k, n = b.spec.shape
    if scale.spec.shape[-1] != n:  # a scale for blocks of columns, too
        block = e.loop("a->a", f"quotient(x0, {size})", e.iota(n, I64))
        scale = e("gather", scale, block, axis=scale.spec.ndim - 1)
    rows = math.prod(lead) * (k // size)
    blocks = e.reshape(e.cast(b, F32), (rows, size, n))
    return e.reshape(e.pointwise("x0 * x1", blocks, e.reshape(scale, (rows, 1, n))), b.spec.shape)


FEW = 64  # rows of a: reading b is the work, so that it is not widened in memory first


def _scaled_mm(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, b, a_scale, b_scale = inputs[:4]
    bias, size = find_optional(inputs, 4), values["block_size"]
    rows, columns = a.spec.shape[-2], b.spec.shape[-1]
    of_a, of_b = a_scale.spec.ndim > 1, b_scale.spec.ndim > 1
    if a.spec.dtype is I8 and not of_a and not of_b:
        total = e.cast(e("matmul_integer", a, b), F32)
    else:
        left = _widen_a(e, a, a_scale, size) if of_a else e.cast(a, F32)
        if of_b:
            total = e("matmul", left, _widen_b(e, b, b_scale, size))
        elif b.spec.ndim == 2 and a.spec.numel <= FEW * b.spec.shape[0] and b.spec.dtype.storage:
            total = e("matmul_mixed", left, b)
        else:
            total = e("matmul", left, e.cast(b, F32))
    factors = [] if of_a else [lift(e, a_scale, rows, 1)]
    factors += [] if of_b else [lift(e, b_scale, columns, 0)]
    body = " * ".join(f"x{i}" for i in range(1 + len(factors)))
    terms = [total, *factors]
    if bias is not None:
        body, terms = f"{body} + x{len(terms)}", [*terms, e.cast(bias, F32)]
    y = outputs[0].dtype
    return e.cast(total if len(terms) == 1 else e.pointwise(body, *terms), y)


def _dequantize(a: Any, b: Any, a_scale: Any, b_scale: Any, size: int) -> tuple[Any, Any]:
    """Return a and b times their scales."""
    if a_scale.ndim > 1:
        a = a * np.repeat(a_scale, size, -1)
    else:
        a = a * a_scale.reshape(() if a_scale.size == 1 else (-1, 1))
    if b_scale.ndim > 1:
        wide = b_scale if b_scale.shape[-1] == b.shape[-1] else np.repeat(b_scale, size, -1)[..., : b.shape[-1]]
        b = b * np.repeat(wide, size, -2)
    else:
        b = b * b_scale.reshape(() if b_scale.size == 1 else (-1,))
    return a, b


def _multiply(a: Any, b: Any, a_scale: Any, b_scale: Any, size: int) -> tuple[Any, Any]:
    """Return the product, and the magnitude that errors are relative to: floats are added as in matmul.

    Integers are added exactly, and scaled then: a sum that is 0 stays 0, of which terms that are scaled first leave
    what float64 rounds.
    """
    a, b, is_exact = a.astype(np.float64), b.astype(np.float64), a.dtype.kind == "i"
    if not is_exact or a_scale.ndim > 1 or b_scale.ndim > 1:
        wide = _dequantize(a, b, a_scale, b_scale, size)
        return np.matmul(*wide), accumulated_magnitude(*wide)
    y = np.matmul(a, b) * a_scale.reshape(() if a_scale.size == 1 else (-1, 1))
    y = y * b_scale.reshape(() if b_scale.size == 1 else (-1,))
    return y, np.abs(y)


def _reference(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any, block_size: int) -> Any:
    y, _ = _multiply(a, b, a_scale, b_scale, block_size)
    return y if bias is None else y + bias


def _scale(a: Any, b: Any, a_scale: Any, b_scale: Any, bias: Any, block_size: int) -> Any:
    y = 4 * _multiply(a, b, a_scale, b_scale, block_size)[1]
    return y if bias is None else y + np.abs(bias)


HIGH = (2, *(1,) * (MAX_RANK - 3))  # a batch of the highest rank
SAMPLES: SampleTable = [
    ((2, 3), (3, 4), (), (), None, 128, "small"),
    ((5, 33), (33, 7), (5,), (7,), (7,), 128, "small"),
    ((3, 2, 9), (9, 5), (1,), (5,), None, 128, "small"),
    ((0, 3), (3, 4), (), (4,), (4,), 128, "small"),
    ((3, 8), (8, 6), (3, 2), (2, 2), None, 4, "small"),
    ((5, 128), (128, 130), (5, 1), (1, 2), (130,), 128, "small"),
    ((2, 3, 12), (2, 12, 7), (2, 3, 3), (2, 3, 7), None, 4, "small"),
    ((*HIGH, 3, 8), (*HIGH, 8, 6), (*HIGH, 3, 2), (*HIGH, 2, 2), None, 4, "small"),
    ((3, 8), (8, 5), (3, 4), (5,), (5,), 2, "small"),
    ((3, 0), (0, 4), (), (), None, 128, "small"),
    ((2, 2500), (2500, 3), (), (), None, 128, "small"),  # more than F32 adds exactly
    ((183, 41), (41, 190), (), (), None, 128, "small"),  # some sums are 0
    ((301, 257), (257, 401), (), (401,), (401,), 128, "wide"),
    ((130, 256), (256, 384), (130, 2), (2, 3), None, 128, "wide"),
    ((64, 1024), (1024, 1024), (64,), (1024,), None, 128, "medium"),
    ((1024, 1024), (1024, 1024), (1024,), (1024,), None, 128, "large"),
    ((64, 4096), (4096, 4096), (64, 32), (32, 32), None, 128, "large"),
]

declare(
    "scaled_mm",
    "SCMM",
    "a: Q[*p], b: Q[*q], a_scale: F32[*r], b_scale: F32[*c], bias?: T[n] -> y: T[*d]",
    {"Q": (I8, *FP8), "T": (F32, F16, BF16)},  # no F64: the scales are F32, in which the products are scaled
    family="contraction",
    doc=(
        "(a · a_scale) @ (b · b_scale) + bias of 8-bit numbers, in F32, rounded once. A scale is one number, or one for"
        " each row of a (each token) or column of b (each channel); then products of integers are added in I32. Or it"
        " is one for each block: a_scale[…, m, k / block_size], and b_scale[…, k / block_size, n / block_size rounded"
        " up] or […, k / block_size, n] (DeepSeek-V3: 1 × 128 and 128 × 128)."
    ),
    reference=_reference,
    tolerance=Tolerance(2, _scale),
    attrs=attrs("SCM1", integer("block_size", 128, "of scales in blocks, along k and n", minimum=1)),
    shapes=_shapes,
    normal_form=as_given,
    decompose=_scaled_mm,
    flops=lambda i, o: 2.0 * o[0].numel * (i[0].shape[-1] if i[0] is not None else 0),
    samples=lambda: [
        Sample(
            {"a": a, "b": b, "a_scale": r, "b_scale": c, **({} if bias is None else {"bias": bias})},
            {"block_size": block},
            {"a_scale": "positive", "b_scale": "positive"},
            size=size,
        )
        for a, b, r, c, bias, block, size in SAMPLES
    ],
    errors=[
        ErrorCase({"a": (2, 3), "b": (4, 2), "a_scale": (), "b_scale": ()}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 2), "a_scale": (3,), "b_scale": ()}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 2), "a_scale": (), "b_scale": (), "bias": (3,)}, BadTensorShape),
        ErrorCase({"a": (2, 4), "b": (4, 2), "a_scale": (2, 1), "b_scale": ()}, BadTensorShape),
        ErrorCase({"a": (2, 4), "b": (4, 2), "a_scale": (2, 1), "b_scale": ()}, BadTensorShape, {"block_size": 2}),
        ErrorCase({"a": (2, 4), "b": (4, 6), "a_scale": (), "b_scale": (2, 2)}, BadTensorShape, {"block_size": 2}),
        ErrorCase({"a": (2, 3), "b": (3, 2), "a_scale": (), "b_scale": ()}, InvalidArgument, {"block_size": 0}),
        ErrorCase({"a": (2, 3), "b": (3, 2), "a_scale": (), "b_scale": ()}, BadTensorDtype, dtypes={"Q": U8}),
    ],
    domains={"a": "any", "b": "any"},
)
