"""Matrix products: matmul, gemm, linear, all computed by the kernel stem `gemm`.

Normal form: y[*b, m, n] = activation(alpha * a[*b, m, k] @ b[*b, k, n] + beta * c[*b, m, n] + bias[n]), with the batch
dims merged, and transposition and broadcasting expressed by strides. The table is y, a, b, bias, c (those that the
operator has). If one matrix b serves the whole batch, the batch dims are merged into the rows if they step together
with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, Tolerance, declare
from ..declare.attributes import attrs, flag, number
from ..declare.decomposition import LETTERS, Emitter, V
from ..declare.epilogue import ACTIVATION, activate, finish
from ..declare.normal_form import Descs, coalesce
from ..dtypes import ACTIVATIONS as ACTIVATION_TYPES, FLOATS, I16, NUMBERS, DType
from ..layout import MAX_RANK, TensorDesc, broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

GROWTH = "error <= eps(F32) * (2 + sqrt(K)) * sum |a||b|: K products added in any order"


def accumulated_magnitude(a: Any, b: Any) -> Any:
    """Return the magnitude to which the rounding of a K-term dot product is relative (see GROWTH)."""
    return (2 + np.sqrt(a.shape[-1])) * np.matmul(np.abs(a), np.abs(b))


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    a = inputs[0]
    return 2.0 * outputs[0].numel * (a.shape[-1] if a is not None else 0)


def _merge_batches(descs: Sequence[TensorDesc | None], outputs: int) -> tuple[Descs, Descs]:
    """Merge the batch dims of the tensors of rank 2 or more; the dims [m, k], [k, n], [m, n] stay."""
    full = [d for d in descs if d is not None and d.ndim > 1]
    heads = coalesce([TensorDesc(d.dtype, d.shape[:-2], d.strides[:-2], d.offset) for d in full])
    merged = iter(zip(heads, full, strict=True))
    result: Descs = []
    for d in descs:
        if d is None or d.ndim == 1:
            result.append(d)
            continue
        head, own = next(merged)
        assert head is not None
        result.append(
            TensorDesc(own.dtype, (*head.shape, *own.shape[-2:]), (*head.strides, *own.strides[-2:]), own.offset)
        )
    return result[outputs:], result[:outputs]


def product_normal_form(
    y: TensorDesc, a: TensorDesc, b: TensorDesc, bias: TensorDesc | None, c: TensorDesc | None
) -> tuple[Descs, Descs]:
    """Return the normal form of tensors that all have the batch dims of y; bias and c come last, where given."""
    if y.ndim > 2 and all(d == 1 or s == 0 for d, s in zip(b.shape[:-2], b.strides[:-2], strict=True)):
        rows = coalesce([y, a, c], keep=1)
        if rows[0] is not None and rows[0].ndim == 2:
            matrix = TensorDesc(b.dtype, b.shape[-2:], b.strides[-2:], b.offset)
            return [rows[1], matrix, bias, rows[2]], [rows[0]]
    return _merge_batches([y, a, b, bias, c], 1)


def _matmul_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return y[*b, m, n], a[*b, m, k] and b[*b, k, n]: batches merged, or taken as rows if all share one b."""
    a, b = inputs
    assert a is not None and b is not None
    ins, outs = product_normal_form(outputs[0], a, b, None, None)
    return ins[:2], outs


def _matmul_loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    a, b = inputs
    return _multiply(e, a, b, outputs[0].shape, outputs[0].dtype)


def _multiply(e: Emitter[V], a: V, b: V, shape: Sequence[int], dtype: DType) -> V:
    """Emit a @ b in a dtype: batch_matmul if the batches are equal, else one loop nest.

    The nest's dims of 1 are restored at the end.
    """
    if dtype.kind == "f" and a.spec.shape[:-2] == b.spec.shape[:-2]:
        lead, m, n = len(shape) - 2, *shape[-2:]
        groups = (lead, 1, 1)
        if lead == 0:
            a, b = (e("expand_shape", x, groups=(2, 1), shape=(1, *x.spec.shape)) for x in (a, b))
        else:
            a, b = (e.collapse(x, groups) for x in (a, b))
        init = e.fill((a.spec.shape[0], m, n), 0.0, dtype.compute)
        product = e.cast(e("batch_matmul", init, a, b), dtype)
        if lead == 0:
            return e.collapse(product, (2, 1))
        return product if lead == 1 else e("expand_shape", product, groups=groups, shape=tuple(shape))
    if sum(d != 1 for d in shape) >= MAX_RANK:  # with the dim that is summed, a nest would have too many loops
        batches = tuple(shape[:-2])
        groups = (len(batches), 1, 1)
        a, b = (e.collapse(e.repeat(x, (*batches, *x.spec.shape[-2:])), groups) for x in (a, b))
        product = _multiply(e, a, b, (prod(batches), *shape[-2:]), dtype)
        return e("expand_shape", product, groups=groups, shape=tuple(shape))
    rank = len(shape)
    loops = LETTERS[:rank]
    sizes = {c: d for c, d in zip(loops, shape, strict=True) if d != 1}
    left, right = (
        _drop_ones(e, x, loops[: rank - 2][rank - x.spec.ndim :] + own, sizes)
        for x, own in ((a, loops[-2] + "z"), (b, "z" + loops[-1]))
    )
    out = "".join(sizes)
    product = e.loop(f"{left[1]},{right[1]}->{out}", "x0 * x1", left[0], right[0], combine="sum", dtype=dtype)
    return product if len(out) == rank else e("expand_shape", product, groups=_around(shape), shape=tuple(shape))


def _drop_ones(e: Emitter[V], x: V, letters: str, sizes: Mapping[str, int]) -> tuple[V, str]:
    """Return x without its dims of 1, except the contracted one, and the letters that remain."""
    left = [i for i, c in enumerate(letters) if c == "z" or (c in sizes and x.spec.shape[i] != 1)]
    ends = [*left[1:], x.spec.ndim]
    groups = [end - start for start, end in zip([0, *left[1:]], ends, strict=True)]
    return e.collapse(x, groups), "".join(letters[i] for i in left)


def _around(shape: Sequence[int]) -> tuple[int, ...]:
    """Return, for each dim other than 1, how many dims it and the dims of 1 behind it are.

    The first also counts the dims of 1 before it.
    """
    found = [i for i, d in enumerate(shape) if d != 1]
    ends = [*found[1:], len(shape)]
    return tuple(end - start for start, end in zip([0, *found[1:]], ends, strict=True)) if found else ()


def _gemm_loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit the product of matrices as one loop nest, or that of batches as matmul's after transposes.

    Both have the compute type; then comes the epilogue.
    """
    a, b, bias, c = [*inputs, None, None][:4]
    assert a is not None and b is not None
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    compute = y.dtype.compute
    if a.spec.ndim == b.spec.ndim == 2:
        maps = f"{'ka' if values['trans_a'] else 'ak'},{'bk' if values['trans_b'] else 'kb'}->ab"
        product = e.loop(maps, "x0 * x1", a, b, combine="sum", dtype=compute)
    else:
        a = _transpose(e, a) if values["trans_a"] else a
        b = _transpose(e, b) if values["trans_b"] else b
        product = _multiply(e, a, b, y.shape, compute)
    terms: list[tuple[V | None, str, float]] = [(bias, loops[-1], 1.0)]
    if c is not None and values["beta"] != 0:
        added, letters = e.squeeze(c, loops[y.ndim - c.spec.ndim :], dict(zip(loops, y.shape, strict=True)))
        terms.insert(0, (added, letters, values["beta"]))
    return finish(e, product, terms, values["activation"], y.dtype, values["alpha"])


def _transpose(e: Emitter[V], x: V) -> V:
    """Emit x with each matrix transposed."""
    rank = x.spec.ndim
    return e("transpose", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def _linear_loops(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    """Emit matmul_transposed if it has the dtype, and the bias; else a loop nest."""
    x, w, bias = [*inputs, None][:3]
    assert x is not None and w is not None
    y, loops = outputs[0], LETTERS[: outputs[0].ndim]
    if y.dtype in ACTIVATION_TYPES and (bias is None or y.dtype.compute is y.dtype):
        product = e("matmul_transposed", x, w)
        return product if bias is None else e("bias_add", product, bias)
    rows = x if x.spec.ndim < MAX_RANK else e.collapse(x, (x.spec.ndim - 1, 1))
    own = LETTERS[: rows.spec.ndim]
    product = e.loop(f"{own[:-1]}z,{own[-1]}z->{own}", "x0 * x1", rows, w, combine="sum", dtype=y.dtype.compute)
    if rows is not x:
        product = e("expand_shape", product, groups=(x.spec.ndim - 1, 1), shape=y.shape)
    return finish(e, product, [(bias, loops[-1], 1.0)], "none", y.dtype)


matmul = declare(
    "matmul",
    "MATM",
    "a: T[*b, m, k], b: T[*b, k, n] -> y: T[*b, m, n]",
    {"T": NUMBERS},
    broadcast=("b",),
    family="contraction",
    stem="gemm",
    doc="a @ b over the last two dims, leading dims broadcast (NumPy's matmul for rank 2 and more); integers wrap.",
    reference=np.matmul,
    tolerance=Tolerance(2, accumulated_magnitude),
    normal_form=_matmul_normal_form,
    decompose=_matmul_loops,
    constants=("b",),
    flops=_flops,
    samples=lambda: [
        Sample({"a": a, "b": b}, size=size)
        for a, b, size in [
            ((1, 1), (1, 1), "small"),
            ((3, 5), (5, 4), "small"),
            ((17, 33), (33, 9), "small"),
            ((64, 64), (64, 64), "small"),
            ((1, 70), (70, 37), "small"),
            ((37, 70), (70, 1), "small"),
            ((2, 3, 4), (2, 4, 5), "small"),
            ((3, 1, 2, 4), (2, 4, 3), "small"),
            ((2, 3, 4), (4, 5), "small"),
            ((0, 3), (3, 2), "small"),
            ((3, 0), (0, 2), "small"),
            ((97, 130), (130, 67), "small"),
            ((2, 1, 1, 1, 1, 2, 3, 4), (1, 2, 1, 1, 1, 1, 4, 2), "small"),
            ((5, 4096), (4096, 3), "long"),
            ((3, 16_385), (16_385, 2), "long"),
            ((257, 130), (130, 259), "wide"),
            ((256, 256), (256, 256), "medium"),
            ((1024, 1024), (1024, 1024), "large"),
        ]
    ],
    errors=[
        ErrorCase({"a": (3,), "b": (3, 4)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (4, 5)}, BadTensorShape),
        ErrorCase({"a": (2, 2, 3), "b": (3, 3, 5)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 5)}, BadTensorShape, outputs={"y": (3, 5)}),
        ErrorCase({"a": (2, 3)}, InvalidArgument),
    ],
)


def _gemm_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    a, b = inputs[:2]
    bias, c = [*inputs[2:], None, None][:2]
    m, k = reversed(a[-2:]) if values["trans_a"] else a[-2:]
    k2, n = reversed(b[-2:]) if values["trans_b"] else b[-2:]
    if k != k2:
        raise BadTensorShape(
            "gemm",
            f"b is {list(b)} with trans_b={values['trans_b']}: its contracted dim is {k2}",
            allowed=f"{k}, as in a",
        )
    if bias is not None and bias != (n,):
        raise BadTensorShape("gemm", f"bias is {list(bias)}", allowed=f"[{n}]")
    batch = broadcast_shapes(a[:-2], b[:-2])
    assert batch is not None  # the signature ensures it
    shape = (*batch, m, n)
    if c is not None and (c[-2:] != (m, n) or broadcast_shapes(batch, c[:-2]) != batch):
        given = "" if len(shape) == 2 else ", and 1 for a dim before the last two"
        raise BadTensorShape("gemm", f"c is {list(c)}", allowed=f"{list(shape)}{given}")
    return [shape]


def _gemm_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of matmul, a and b transposed by their strides; c in y's shape, by stride 0."""
    a, b, bias, c = inputs
    assert a is not None and b is not None
    order = (*range(a.ndim - 2), a.ndim - 1, a.ndim - 2)
    a = a.permute(order) if values["trans_a"] else a
    b = b.permute(order) if values["trans_b"] else b
    return product_normal_form(outputs[0], a, b, bias, c)


def _gemm(
    a: Any, b: Any, bias: Any, c: Any, *, trans_a: bool, trans_b: bool, alpha: float, beta: float, activation: str
) -> Any:
    y = alpha * np.matmul(a.mT if trans_a else a, b.mT if trans_b else b)
    y = y if c is None or beta == 0 else y + beta * c
    return activate(activation, y if bias is None else y + bias)


def _gemm_scale(
    a: Any, b: Any, bias: Any, c: Any, *, trans_a: bool, trans_b: bool, alpha: float, beta: float, activation: str
) -> Any:
    size = abs(alpha) * accumulated_magnitude(a.mT if trans_a else a, b.mT if trans_b else b)
    size = size if c is None or beta == 0 else size + 2 * abs(beta) * np.abs(c)
    return 4 * (size if bias is None else size + 2 * np.abs(bias))


GEMM_SAMPLES: SampleTable = [
    ({"a": (3, 5), "b": (5, 4)}, {}),
    ({"a": (5, 3), "b": (5, 4)}, {"trans_a": True}),
    ({"a": (3, 5), "b": (4, 5)}, {"trans_b": True, "alpha": 0.5}),
    ({"a": (33, 17), "b": (9, 33)}, {"trans_a": True, "trans_b": True}),
    ({"a": (17, 33), "b": (33, 9), "bias": (9,)}, {"activation": "relu"}),
    ({"a": (17, 33), "b": (33, 9), "c": (17, 9)}, {"beta": -2.0}),
    (
        {"a": (17, 33), "b": (33, 9), "bias": (9,), "c": (17, 9)},
        {"activation": "gelu", "alpha": 0.25, "beta": 0.5},
    ),
    ({"a": (7, 8), "b": (8, 6), "c": (7, 6)}, {"beta": 0.0, "activation": "silu"}),
    ({"a": (2, 0), "b": (0, 3), "bias": (3,)}, {"activation": "tanh"}),
    ({"a": (4, 6), "b": (6, 5), "bias": (5,)}, {"activation": "gelu_tanh"}),
    ({"a": (65, 129), "b": (129, 130), "bias": (130,)}, {"activation": "sigmoid"}),
    ({"a": (9, 33), "b": (33, 40), "bias": (40,)}, {"activation": "hardswish"}),
    ({"a": (3, 40), "b": (40, 18)}, {"activation": "relu6"}),
    ({"a": (0, 3), "b": (3, 4)}, {}),
    ({"a": (150, 300), "b": (300, 100)}, {}),
    ({"a": (2, 3, 9), "b": (8, 9), "bias": (8,)}, {"trans_b": True, "activation": "gelu"}),
    ({"a": (2, 3, 70), "b": (2, 37, 70), "bias": (37,), "c": (2, 3, 37)}, {"trans_b": True, "activation": "relu"}),
    ({"a": (2, 1, 33, 20), "b": (3, 33, 40), "c": (2, 1, 20, 40)}, {"trans_a": True, "beta": 0.5}),
]


gemm = declare(
    "gemm",
    "GEMM",
    "a: T[*b, p, q], b: T[*b, r, s], bias?: T[n], c?: T[*b, m, n] -> y: T[*b, m, n]",
    {"T": FLOATS},
    broadcast=("b",),
    family="contraction",
    doc=(
        "activation(alpha · op(a) op(b) + beta · c + bias), op(x) being x or its transpose (BLAS gemm with an"
        " epilogue). With beta = 0, c is not read. Leading dims broadcast, those of c to what a and b have."
    ),
    reference=_gemm,
    tolerance=Tolerance(8, _gemm_scale),
    attrs=attrs(
        "GEM2",
        flag("trans_a", False, "use the transpose of a"),
        flag("trans_b", False, "use the transpose of b"),
        number("alpha", 1.0, "factor of the product"),
        number("beta", 1.0, "factor of c"),
        ACTIVATION,
    ),
    shapes=_gemm_shapes,
    normal_form=_gemm_normal_form,
    decompose=_gemm_loops,
    aliases=("c",),
    constants=("b",),
    flops=lambda i, o: (
        2.0 * o[0].numel * (prod(i[0].shape[-2:]) // max(1, o[0].shape[-2])) if i[0] is not None else 0.0
    ),
    samples=lambda: [
        *(Sample(shapes, values) for shapes, values in GEMM_SAMPLES),
        Sample({"a": (257, 129), "b": (129, 258), "bias": (258,)}, size="wide"),
        *(
            Sample({"a": (n, n), "b": (n, n)}, size=size)
            for size, n in [("small", 64), ("medium", 256), ("large", 1024)]
        ),
    ],
    errors=[
        ErrorCase({"a": (2, 3), "b": (4, 5)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 5)}, BadTensorShape, {"trans_a": True}),
        ErrorCase({"a": (2, 3), "b": (3, 5), "bias": (4,)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 5), "c": (5, 2)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 5), "c": (4, 2, 5)}, BadTensorShape),
        ErrorCase({"a": (4, 2, 3), "b": (3, 5), "c": (4, 1, 5)}, BadTensorShape),
        ErrorCase({"a": (4, 2, 3), "b": (6, 3, 5)}, BadTensorShape),
        ErrorCase({"a": (2, 3), "b": (3, 5)}, InvalidArgument, {"activation": "swish"}),
        ErrorCase({"a": (2, 3), "b": (3, 5)}, BadTensorDtype, dtypes={"T": I16}),
    ],
)


def _linear_normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of matmul: rows of x as m, and w transposed by its strides, with stride 0 along the batch."""
    x, w, *bias = inputs
    (y,) = outputs
    assert x is not None and w is not None
    if x.ndim == 1:
        x, y = as_matrix(x), as_matrix(y)
    else:  # rows that step together become one m; other dims stay as a batch
        x, y = (d for d in coalesce([x, y], keep=1) if d is not None)
    right = w.permute((1, 0)).broadcast_to((*x.shape[:-2], w.shape[1], w.shape[0]))
    return _merge_batches([y, x, right, *bias], 1)


def as_matrix(d: TensorDesc) -> TensorDesc:
    """Return a vector as a matrix of one row."""
    return TensorDesc(d.dtype, (1, *d.shape), (0, *d.strides), d.offset)


def _linear_scale(x: Any, w: Any, bias: Any) -> Any:
    size = accumulated_magnitude(x, w.T) if x.ndim > 1 else accumulated_magnitude(x[None], w.T)[0]
    return size if bias is None else size + np.abs(bias)


LINEAR_SAMPLES: SampleTable = [
    ({"x": (5,), "w": (4, 5)}, "small"),
    ({"x": (5,), "w": (4, 5), "bias": (4,)}, "small"),
    ({"x": (3, 5), "w": (4, 5), "bias": (4,)}, "small"),
    ({"x": (17, 128), "w": (10, 128), "bias": (10,)}, "small"),
    ({"x": (2, 3, 9), "w": (8, 9), "bias": (8,)}, "small"),
    ({"x": (1, 70), "w": (37, 70)}, "small"),
    ({"x": (0, 5), "w": (4, 5), "bias": (4,)}, "small"),
    ({"x": (3, 0), "w": (4, 0), "bias": (4,)}, "small"),
    ({"x": (2, 1, 3, 7), "w": (5, 7), "bias": (5,)}, "small"),
    ({"x": (130, 257), "w": (131, 257), "bias": (131,)}, "wide"),
    ({"x": (64, 512), "w": (512, 512), "bias": (512,)}, "medium"),
    ({"x": (512, 1024), "w": (4096, 1024), "bias": (4096,)}, "large"),
]


linear = declare(
    "linear",
    "LINR",
    "x: T[*b, k], w: T[n, k], bias?: T[n] -> y: T[*b, n]",
    {"T": FLOATS},
    family="contraction",
    stem="gemm",
    doc="x wᵀ + bias, the weight in the layout of PyTorch and ONNX: one row an output.",
    reference=lambda x, w, bias: x @ w.T + (0 if bias is None else bias),
    tolerance=Tolerance(2, _linear_scale),
    normal_form=_linear_normal_form,
    decompose=_linear_loops,
    constants=("w",),
    flops=lambda i, o: 2.0 * o[0].numel * (i[0].shape[-1] if i[0] is not None else 0),
    samples=lambda: [Sample(shapes, size=size) for shapes, size in LINEAR_SAMPLES],
    errors=[
        ErrorCase({"x": (3, 5), "w": (4, 6)}, BadTensorShape),
        ErrorCase({"x": (3, 5), "w": (4, 5), "bias": (5,)}, BadTensorShape),
        ErrorCase({"x": (3, 5), "w": (5,)}, BadTensorShape),
        ErrorCase({"x": (), "w": (4, 5)}, BadTensorShape),
    ],
)
