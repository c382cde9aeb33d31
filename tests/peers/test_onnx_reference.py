"""Compare operators with ONNX's reference implementation, which is in NumPy and knows nothing of ours.

Each row is a node of ONNX, its inputs, and the call that means the same here. Where the meanings differ the call says
how one is made of the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import isokern
from isokern.backend import Device
from isokern.ops.peers import peer_names

onnx = pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")
helper = pytest.importorskip("onnx.helper")
evaluator = pytest.importorskip("onnx.reference")

RNG = np.random.default_rng(7)
OPSET = 23


def draw(*shape: int, low: float = -3, high: float = 3, dtype: Any = np.float32) -> Any:
    return RNG.uniform(low, high, shape).astype(dtype)


def ints(*shape: int, low: int = -9, high: int = 9, dtype: Any = np.int32) -> Any:
    return RNG.integers(low, high, shape, dtype)


def i64(*values: int) -> Any:
    return np.array(values, np.int64)


def cut(found: Any, count: Any, axis: int = 0) -> Any:
    """Return the elements that there are, of a result with room for more."""
    return isokern.slice(found, starts=(0,), ends=(int(count.numpy()),), axes=(axis,))


@dataclass
class Row:
    """A node, its inputs (None where one is left out), and our call of the inputs that are tensors here."""

    node: str
    inputs: tuple[Any, ...]
    call: Callable[..., Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    opset: int = OPSET
    atol: float = 1e-6

    def __str__(self) -> str:
        return "-".join([self.node, *(f"{n}={v}" for n, v in self.attrs.items())]).replace(" ", "")


X, A, B, C = draw(2, 3, 5), draw(4, 1, 3), draw(2, 3), draw(2, 8, 4, 6)
IMAGE, POSITIVE, UNIT = draw(2, 3, 6, 7), draw(3, 7, low=0.1), draw(3, 7, low=-0.99, high=0.99)
NANS = np.array([[np.nan, 1, -np.inf], [np.inf, -0.0, 2]], np.float32)
WHOLE, BITS = ints(3, 7), ints(3, 7, low=0, high=250, dtype=np.uint8)
LABELS = ints(4, 2, low=0, high=5, dtype=np.int64)
TRUTHS = RNG.integers(0, 2, (3, 5)).astype(bool)
SCALE, SCALES, WIDER = np.float32(0.125), np.array([0.5, 0.25, 2], np.float32), np.float32(64)
CORNERS = np.sort(draw(3, 2, 2, low=0, high=6), 1).reshape(3, 4)
BOXES = np.sort(draw(2, 9, 2, 2, low=0, high=3), 2).reshape(2, 9, 4)
ZERO, ZEROS, ONE = np.uint8(3), np.array([0, 7, 200], np.uint8), np.int8(1)
SIGNED = ints(7, 4, low=-100, high=100, dtype=np.int8)
SMALL, FILTERS = ints(1, 2, 5, 6, low=0, dtype=np.uint8), ints(3, 2, 3, 2, low=0, dtype=np.uint8)

STEPS, WAYS = draw(4, 2, 3), (("forward", 1), ("reverse", 1), ("bidirectional", 2))


def layer(n: int, gates: int, width: int = 3, h: int = 5) -> tuple[Any, ...]:
    """Return w, r and the biases of a recurrent layer of n directions."""
    return tuple(draw(n, *dims, low=-1, high=1) for dims in ((gates * h, width), (gates * h, h), (2 * gates * h,)))


def attend(q: Any, k: Any, v: Any, state: Any, *rest: Any, scale: float, update_rule: str) -> Any:
    """Return linear_attention of ONNX's packed tensors."""
    q, k, v = (isokern.reshape(x, shape=(2, 5, h, -1)) for x, h in ((q, 4), (k, 2), (v, 2)))
    gated = update_rule.startswith("gated")
    decay = isokern.reshape(rest[0], shape=(2, 5, 2, -1)) if gated else None
    beta = rest[-1] if update_rule.endswith("delta") else None
    y, _state = isokern.linear_attention(q, k, v, state, decay, beta, scale=scale)
    return isokern.reshape(y, shape=(2, 5, -1))


# Elementwise: ONNX's name, ours, and the inputs
UNARY = """Abs Asinh Atan Ceil Cos Cosh Erf Exp Floor HardSwish Mish Neg Reciprocal Relu Round Sigmoid Sign Sin Sinh
    Softplus Softsign Tan Tanh"""
ROWS = [
    *(Row(n, (draw(3, 7),), getattr(isokern, n.lower())) for n in UNARY.split()),
    *(Row(n, (UNIT,), getattr(isokern, n.lower())) for n in ("Acos", "Asin", "Atanh")),
    *(Row(n, (POSITIVE,), getattr(isokern, n.lower())) for n in ("Log", "Sqrt")),
    Row("Acosh", (draw(3, 7, low=1, high=9),), isokern.acosh),
    *(Row(n, (A, B), getattr(isokern, n.lower())) for n in ("Add", "Sub", "Mul", "Div", "Greater", "Less", "Equal")),
    *(Row(n, (WHOLE, WHOLE[:1]), call) for n, call in (("Add", isokern.add), ("Equal", isokern.equal))),
    Row("GreaterOrEqual", (A, B), isokern.greater_equal),
    Row("LessOrEqual", (A, B), isokern.less_equal),
    Row("Max", (A, B), isokern.maximum),
    Row("Min", (A, B), isokern.minimum),
    Row("Pow", (POSITIVE, draw(3, 7)), isokern.pow),
    Row("Mod", (WHOLE, ints(3, 7, low=1)), isokern.remainder),
    Row("Mod", (WHOLE, ints(3, 7, low=1)), isokern.fmod, {"fmod": 1}),
    Row("Mod", (draw(3, 7), draw(3, 7)), isokern.fmod, {"fmod": 1}),
    Row("BitShift", (BITS, BITS % 11), isokern.left_shift, {"direction": "LEFT"}),
    Row("BitShift", (BITS, BITS % 11), isokern.right_shift, {"direction": "RIGHT"}),
    *(Row(f"Bitwise{n}", (BITS, BITS[::-1].copy()), getattr(isokern, f"bitwise_{n.lower()}")) for n in ("And", "Or")),
    Row("BitwiseXor", (BITS, BITS[::-1].copy()), isokern.bitwise_xor),
    Row("BitwiseNot", (BITS,), isokern.bitwise_not),
    *(Row(n, (TRUTHS, TRUTHS[::-1].copy()), getattr(isokern, f"logical_{n.lower()}")) for n in ("And", "Or", "Xor")),
    Row("Not", (TRUTHS,), isokern.logical_not),
    Row("Where", (TRUTHS, draw(3, 5), draw(1, 5)), isokern.where),
    Row("IsNaN", (NANS,), isokern.isnan),
    Row("IsInf", (NANS,), isokern.isinf),
    Row("IsInf", (NANS,), isokern.isposinf, {"detect_negative": 0}),
    Row("IsInf", (NANS,), isokern.isneginf, {"detect_positive": 0}),
    # Activations
    Row("Celu", (X,), lambda x: isokern.celu(x, alpha=0.7), {"alpha": 0.7}),
    Row("Elu", (X,), lambda x: isokern.elu(x, alpha=0.7), {"alpha": 0.7}),
    Row("Gelu", (X,), isokern.gelu),
    Row("Gelu", (X,), isokern.gelu_tanh, {"approximate": "tanh"}),
    Row("HardSigmoid", (X,), isokern.hardsigmoid, {"alpha": 1 / 6}),
    Row("LeakyRelu", (X,), lambda x: isokern.leaky_relu(x, alpha=0.2), {"alpha": 0.2}),
    Row("PRelu", (X, draw(3, 1)), isokern.prelu),
    Row("Selu", (X,), isokern.selu),
    Row("Shrink", (X,), lambda x: isokern.shrink(x, lambd=0.6, bias=0.2), {"lambd": 0.6, "bias": 0.2}),
    Row("ThresholdedRelu", (X,), lambda x: isokern.thresholded_relu(x, alpha=0.4), {"alpha": 0.4}),
    Row("Clip", (X, np.float32(-1), np.float32(0.5)), lambda x, low, high: isokern.clip(x, min=-1, max=0.5)),
    Row("Clip", (X, np.float32(-0.5), np.float32(0.5)), isokern.clamp),
    Row("Clip", (X, np.float32(2), np.float32(-2)), isokern.clamp),
    Row("Clip", (X, np.float32(-0.5)), isokern.clamp),
    Row("Clip", (X, None, np.float32(0.5)), lambda x, high: isokern.clamp(x, None, high)),
    Row("Clip", (BITS, np.uint8(7), np.uint8(200)), lambda x, low, high: isokern.clip(x, min=7, max=200)),
    Row("Hardmax", (X,), lambda x: isokern.hardmax(x, axis=1), {"axis": 1}),
    Row("Softmax", (X,), lambda x: isokern.softmax(x, axis=1), {"axis": 1}),
    Row("LogSoftmax", (X,), lambda x: isokern.log_softmax(x, axis=1), {"axis": 1}),
    Row("Swish", (X,), lambda x: isokern.swish(x, beta=1.3), {"alpha": 1.3}, 24),
    # Reductions
    *(
        Row(node, (given, i64(0, 2)), lambda x, axes, f=call: f(x, axes=(0, 2), keepdims=True), {"keepdims": 1})
        for node, call, given in [
            ("ReduceL1", isokern.reduce_l1, X),
            ("ReduceL2", isokern.reduce_l2, X),
            ("ReduceLogSum", isokern.reduce_log_sum, draw(2, 3, 5, low=0.1)),
            ("ReduceLogSumExp", isokern.logsumexp, X),
            ("ReduceMax", isokern.reduce_max, X),
            ("ReduceMean", isokern.reduce_mean, X),
            ("ReduceMin", isokern.reduce_min, X),
            ("ReduceProd", isokern.reduce_prod, X),
            ("ReduceSum", isokern.reduce_sum, X),
            ("ReduceSumSquare", isokern.reduce_sum_square, X),
        ]
    ),
    Row("ReduceSum", (X,), lambda x: isokern.reduce_sum(x), {"keepdims": 0}),
    Row("ArgMax", (X,), lambda x: isokern.argmax(x, axis=1, keepdims=True), {"axis": 1, "keepdims": 1}),
    Row("ArgMin", (WHOLE,), lambda x: isokern.argmin(x, axis=0, keepdims=True), {"axis": 0, "keepdims": 1}),
    *(
        Row(
            node,
            (X, np.int64(1)),
            lambda x, axis, f=call, v=v: f(x, axis=1, **v),
            {n: int(b) for n, b in v.items()},
            opset,
        )
        for node, call, opset in [("CumSum", isokern.cumsum, OPSET), ("CumProd", isokern.cumprod, 26)]
        for v in ({}, {"exclusive": True}, {"reverse": True}, {"exclusive": True, "reverse": True})
    ),
    # Windows and losses
    *(
        Row(
            f"{n}Window",
            (np.int64(9),),
            lambda _, f=call, p=p, v=v: f(length=9, periodic=bool(p), dtype="F32", **v),
            {"periodic": p},
        )
        for n, call, v in [
            ("Hann", isokern.hann_window, {}),
            ("Hamming", isokern.hamming_window, {"alpha": 25 / 46, "beta": 21 / 46}),
            ("Blackman", isokern.blackman_window, {}),
        ]
        for p in (0, 1)
    ),
    *(
        Row(
            node,
            (draw(4, 5, 2), LABELS, POSITIVE[0, :5]),
            lambda x, t, w, f=call, r=r: f(x, t, w, reduction=r, ignore_index=3),
            {"reduction": r, "ignore_index": 3},
        )
        for node, call in [
            ("NegativeLogLikelihoodLoss", isokern.nll_loss),
            ("SoftmaxCrossEntropyLoss", isokern.cross_entropy),
        ]
        for r in ("none", "mean", "sum")
    ),
    # Layout
    Row("Concat", (X, X[:, :1].copy()), lambda a, b: isokern.concat([a, b], axis=1), {"axis": 1}),
    Row("Transpose", (X,), lambda x: isokern.transpose(x, axes=(2, 0, 1)), {"perm": [2, 0, 1]}),
    Row("Reshape", (X, i64(5, -1)), lambda x, shape: isokern.reshape(x, shape=(5, -1))),
    Row("Flatten", (X,), lambda x: isokern.reshape(x, shape=(6, 5)), {"axis": 2}),
    Row("Squeeze", (A, i64(1)), lambda x, axes: isokern.squeeze(x, axes=(1,))),
    Row("Unsqueeze", (A, i64(0, -1)), lambda x, axes: isokern.unsqueeze(x, axes=(0, -1))),
    Row("Expand", (A, i64(2, 4, 5, 3)), lambda x, shape: isokern.broadcast_to(x, shape=(2, 4, 5, 3))),
    Row("Tile", (X, i64(1, 2, 3)), lambda x, repeats: isokern.tile(x, repeats=(1, 2, 3))),
    Row(
        "Slice",
        (X, i64(4), i64(-9), i64(2), i64(-2)),
        lambda x, *_: isokern.flip(isokern.slice(x, starts=(0,), ends=(5,), axes=(2,), steps=(2,)), axes=(2,)),
    ),
    Row("Gather", (X, i64(2, 0, -1)), lambda x, at: isokern.gather(x, at, axis=1), {"axis": 1}),
    Row(
        "GatherElements",
        (X, ints(2, 4, 5, low=-3, high=3, dtype=np.int64)),
        lambda x, at: isokern.gather_elements(x, at, axis=1),
        {"axis": 1},
    ),
    Row("GatherND", (C, ints(5, 2, low=0, high=2, dtype=np.int64)), isokern.gather_nd),
    Row(
        "GatherND",
        (C, ints(2, 3, 2, low=0, high=4, dtype=np.int64)),
        lambda x, at: isokern.gather_nd(x, at, batch_dims=1),
        {"batch_dims": 1},
    ),
    *(
        Row(
            "ScatterElements",
            (X, ints(2, 3, 4, low=-5, high=5, dtype=np.int64), draw(2, 3, 4)),
            lambda x, at, u, how=how: isokern.scatter_elements(x, at, u, axis=2, reduction=how),
            {"axis": 2, "reduction": how},
        )
        for how in ("add", "mul", "min", "max")
    ),
    Row(
        "ScatterElements",
        (X, i64(1, 4, 0, 3).reshape(1, 1, 4), draw(1, 1, 4)),
        lambda x, at, u: isokern.scatter_elements(x, at, u, axis=-1),
        {"axis": -1},
    ),
    *(
        Row(
            "ScatterND",
            (X, i64(1, 2, 0, 1, 1, 2).reshape(3, 2), draw(3, 5)),
            lambda x, at, u, how=how: isokern.scatter_nd(x, at, u, reduction=how),
            {"reduction": how},
        )
        for how in ("none", "add", "mul", "min", "max")
    ),
    Row("DepthToSpace", (C,), lambda x: isokern.depth_to_space(x, block=2), {"blocksize": 2}),
    Row(
        "DepthToSpace", (C,), lambda x: isokern.depth_to_space(x, block=2, mode="CRD"), {"blocksize": 2, "mode": "CRD"}
    ),
    Row("SpaceToDepth", (C,), lambda x: isokern.space_to_depth(x, block=2), {"blocksize": 2}),
    Row("Trilu", (X, np.int64(1)), lambda x, k: isokern.triu(x, k=1)),
    Row("Trilu", (X, np.int64(-1)), lambda x, k: isokern.tril(x, k=-1), {"upper": 0}),
    Row(
        "OneHot",
        (i64(3, 0, 1), np.int64(4), np.array([0, 1], np.float32)),
        lambda at, *_: isokern.one_hot(at, depth=4, dtype="F32"),
    ),
    Row("EyeLike", (draw(3, 5),), lambda x: isokern.eye(rows=3, columns=5, k=1, dtype="F32"), {"k": 1}),
    Row(
        "Range",
        (np.int64(3), np.int64(17), np.int64(4)),
        lambda *_: isokern.arange(start=3, stop=17, step=4, dtype="I64"),
    ),
    Row("NonZero", (TRUTHS,), lambda x: cut(*isokern.nonzero(x), axis=1)),
    Row("Compress", (X, TRUTHS[0]), lambda x, t: cut(*isokern.compress(x, t, axis=2), axis=2), {"axis": 2}),
    Row("Compress", (X, TRUTHS[1]), lambda x, t: cut(*isokern.compress(x, t))),
    Row("Unique", (WHOLE,), lambda x: cut(*isokern.unique(x)[::4])),
    Row("CenterCropPad", (X, i64(3, 2, 8)), lambda x, shape: isokern.center_crop_pad(x, shape=(3, 2, 8))),
    Row("ReverseSequence", (X, i64(2, 3)), isokern.reverse_sequence, {"batch_axis": 0, "time_axis": 1}),
    *(
        Row(
            "Pad",
            (X, i64(0, 1, 2, 1, 1, 0)),
            lambda x, pads, f=call: f(x, low=(0, 1, 2), high=(1, 1, 0)),
            {"mode": mode},
        )
        for mode, call in [
            ("constant", isokern.pad),
            ("reflect", isokern.pad_reflect),
            ("edge", isokern.pad_replicate),
            ("wrap", isokern.pad_circular),
        ]
    ),
    # Normalisation
    Row(
        "LayerNormalization",
        (X, draw(5), draw(5)),
        lambda x, w, b: isokern.layer_norm(x, w, b, eps=1e-3),
        {"epsilon": 1e-3},
    ),
    Row("RMSNormalization", (X, draw(5)), lambda x, w: isokern.rms_norm(x, w, eps=1e-3), {"epsilon": 1e-3}),
    Row(
        "InstanceNormalization",
        (IMAGE, draw(3), draw(3)),
        lambda x, w, b: isokern.instance_norm(x, w, b, eps=1e-3),
        {"epsilon": 1e-3},
    ),
    Row(
        "GroupNormalization",
        (C, draw(8), draw(8)),
        lambda x, w, b: isokern.group_norm(x, w, b, groups=4, eps=1e-3),
        {"num_groups": 4, "epsilon": 1e-3},
    ),
    # As many images as channels: the reference computes no more channels than there are images
    Row(
        "LRN",
        (draw(3, 3, 4, 5),),
        lambda x: isokern.local_response_norm(x, size=2, alpha=0.1, bias=2.0),
        {"size": 2, "alpha": 0.1, "bias": 2.0},
    ),
    # Above 0: the reference takes no magnitudes where p is 1
    Row("LpNormalization", (POSITIVE,), lambda x: isokern.lp_normalize(x, p=1, axis=1), {"axis": 1, "p": 1}),
    Row("LpNormalization", (X,), lambda x: isokern.lp_normalize(x, axis=-1), {"p": 2}),
    Row("MeanVarianceNormalization", (IMAGE,), lambda x: isokern.mean_variance_normalize(x, eps=1e-9)),
    Row(
        "BatchNormalization",
        (IMAGE, draw(3), draw(3), draw(3), draw(3, low=0.1)),
        lambda x, w, b, mean, var: isokern.batch_norm(x, mean, var, w, b),
    ),
    # Contractions and windows
    Row(
        "MatMul",
        (draw(2, 1, 3, 4), draw(2, 4, 5)),
        lambda a, b: isokern.matmul(
            isokern.broadcast_to(a, shape=(2, 2, 3, 4)), isokern.broadcast_to(b, shape=(2, 2, 4, 5))
        ),
    ),
    Row(
        "Gemm",
        (draw(4, 3), draw(5, 4), draw(3, 5)),
        lambda a, b, c: isokern.gemm(a, b, None, c, trans_a=True, trans_b=True, alpha=0.5, beta=2.0),
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
    ),
    Row(
        "Conv",
        (draw(1, 4, 9), draw(6, 2, 3), draw(6)),
        lambda x, w, b: isokern.conv1d(x, w, b, stride=2, padding=1, end_padding=0, groups=2),
        {"strides": [2], "pads": [1, 0], "group": 2},
    ),
    Row(
        "Conv",
        (IMAGE, draw(4, 3, 3, 2), draw(4)),
        lambda x, w, b: isokern.conv2d(x, w, b, padding=(1, 1), dilation=(1, 2)),
        {"pads": [1, 1, 1, 1], "dilations": [1, 2]},
        atol=1e-5,  # 18 products of up to 9 are added in F32, in another order
    ),
    Row(
        "MaxPool",
        (draw(2, 3, 9),),
        lambda x: isokern.max_pool1d(x, kernel=3, stride=2, padding=1),
        {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
    ),
    Row(
        "MaxPool",
        (IMAGE,),
        lambda x: isokern.max_pool2d(x, kernel=(3, 2), stride=(2, 1)),
        {"kernel_shape": [3, 2], "strides": [2, 1]},
    ),
    Row(
        "AveragePool",
        (draw(2, 3, 9),),
        lambda x: isokern.avg_pool1d(x, kernel=3, stride=2, padding=1),
        {"kernel_shape": [3], "strides": [2], "pads": [1, 1]},
    ),
    Row(
        "AveragePool",
        (IMAGE,),
        lambda x: isokern.avg_pool2d(x, kernel=(3, 2), stride=(2, 1), padding=(1, 0), count_include_pad=True),
        {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 0], "count_include_pad": 1},
    ),
    Row(
        "Conv",
        (draw(1, 4, 5, 4, 6), draw(6, 2, 2, 3, 2), draw(6)),
        lambda x, w, b: isokern.conv3d(x, w, b, stride=(2, 1, 1), padding=(1, 0, 1, 0, 1, 0), groups=2),
        {"strides": [2, 1, 1], "pads": [1, 0, 1, 0, 1, 0], "group": 2},
    ),
    Row(
        "ConvTranspose",
        (draw(1, 4, 5), draw(4, 2, 3), draw(2)),
        lambda x, w, b: isokern.conv_transpose1d(x, w, b, stride=2, padding=1, output_padding=1),
        {"strides": [2], "pads": [1, 1], "output_padding": [1]},
    ),
    Row(
        "ConvTranspose",
        (IMAGE, draw(3, 2, 3, 2), draw(2)),
        lambda x, w, b: isokern.conv_transpose2d(x, w, b, stride=(2, 1), padding=(1, 0, 0, 1), dilation=(1, 2)),
        {"strides": [2, 1], "pads": [1, 0, 0, 1], "dilations": [1, 2]},
    ),
    Row(
        "CausalConvWithState",
        (draw(2, 3, 5), draw(3, 1, 4), draw(3), draw(2, 3, 3)),
        lambda x, w, b, s: isokern.causal_conv1d(x, isokern.reshape(w, shape=(3, 4)), b, s, activation="silu")[0],
        {"activation": "silu"},
        opset=27,
    ),
    Row(
        "MaxPool",
        (draw(1, 2, 5, 6, 7),),
        lambda x: isokern.max_pool3d(x, kernel=(3, 2, 2), stride=2, padding=(1, 0, 0)),
        {"kernel_shape": [3, 2, 2], "strides": [2, 2, 2], "pads": [1, 0, 0, 1, 0, 0]},
    ),
    Row(
        "AveragePool",
        (draw(1, 2, 5, 6, 7),),
        lambda x: isokern.avg_pool3d(x, kernel=3, stride=2, padding=1, ceil_mode=True),
        {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1] * 6, "ceil_mode": 1},
    ),
    Row(
        "LpPool",
        (IMAGE,),
        lambda x: isokern.lp_pool2d(x, kernel=(3, 2), stride=(2, 1), p=3),
        {"kernel_shape": [3, 2], "strides": [2, 1], "p": 3},
    ),
    *(
        Row(
            "Resize",
            (IMAGE, None, None, i64(2, 3, *sizes)),
            lambda x, _, sizes=sizes, more=more: isokern.interpolate(x, sizes=sizes, **more),
            {names.get(n, n): float(v) if n == "cubic_a" else v for n, v in more.items()},
        )
        for names in [{"coordinates": "coordinate_transformation_mode", "cubic_a": "cubic_coeff_a"}]
        for sizes, more in [
            ((9, 4), {"mode": "nearest", "coordinates": "asymmetric", "nearest_mode": "floor"}),
            ((9, 4), {"mode": "linear", "coordinates": "align_corners"}),
            ((4, 11), {"mode": "cubic", "coordinates": "half_pixel", "cubic_a": -0.5}),
            ((5, 9), {"mode": "cubic", "coordinates": "pytorch_half_pixel", "exclude_outside": 1}),
            ((3, 4), {"mode": "linear", "coordinates": "half_pixel", "antialias": 1}),
        ]
    ),
    *(
        Row(
            "GridSample",
            (IMAGE.astype(np.float64), draw(2, 4, 5, 2, low=-1.3, high=1.3, dtype=np.float64)),
            lambda x, g, more=more: isokern.grid_sample(
                x, g, mode=more["mode"], padding=more["padding_mode"], align_corners=bool(more["align_corners"])
            ),
            more,
            atol=1e-5 if more["mode"] == "cubic" else 1e-6,  # the reference computes places in F32
        )
        for more in [
            {"mode": "linear", "padding_mode": "zeros", "align_corners": 0},
            {"mode": "linear", "padding_mode": "reflection", "align_corners": 0},
            {"mode": "nearest", "padding_mode": "border", "align_corners": 1},
            {"mode": "cubic", "padding_mode": "zeros", "align_corners": 1},
        ]
    ),
    *(
        Row(
            "AffineGrid",
            (draw(2, 2, 3), i64(2, 3, 4, 5)),
            lambda theta, _, align=align: isokern.affine_grid(theta, shape=(2, 3, 4, 5), align_corners=bool(align)),
            {"align_corners": align},
        )
        for align in (0, 1)
    ),
    Row("GlobalAveragePool", (IMAGE,), isokern.global_avg_pool),
    Row(
        "Col2Im",
        (draw(2, 18, 12), i64(4, 6), i64(2, 3)),
        lambda x, *_: isokern.fold(x, size=(4, 6), kernel=(2, 3), padding=(1, 0), stride=(2, 1)),
        {"pads": [1, 0, 1, 0], "strides": [2, 1]},
    ),
    Row(
        "MaxUnpool",
        (draw(1, 2, 2, 2), i64(5, 7, 13, 10, 16, 22, 28, 31).reshape(1, 2, 2, 2)),
        lambda x, at: isokern.max_unpool(
            x, isokern.remainder(at, isokern.tensor(i64(16), device=at.device)), size=(4, 4)
        ),
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Row("GlobalMaxPool", (IMAGE,), isokern.global_max_pool),
    # Recurrences: x, w, r and bias, sequence_lens (which the reference ignores), the states, peepholes
    *(
        Row(
            "RNN",
            (STEPS, *layer(n, 1), None, draw(n, 2, 5)),
            lambda x, w, r, b, h, way=way: isokern.rnn(x, w, r, b, None, h, direction=way)[0],
            {"hidden_size": 5, "direction": way, "activations": ["Tanh"] * n},
            22,
        )
        for way, n in WAYS
    ),
    *(
        Row(
            "GRU",
            (STEPS, *layer(n, 3), None, draw(n, 2, 5)),
            lambda x, w, r, b, h, way=way, late=late: isokern.gru(
                x, w, r, b, None, h, direction=way, linear_before_reset=bool(late)
            )[0],
            {"hidden_size": 5, "direction": way, "linear_before_reset": late},
            22,
        )
        for (way, n), late in zip(WAYS, (0, 1, 1), strict=True)
    ),
    *(
        Row(
            "LSTM",
            (STEPS, *layer(n, 4), None, draw(n, 2, 5), draw(n, 2, 5), draw(n, 15)),
            lambda x, w, r, b, h, c, p, way=way: isokern.lstm(x, w, r, b, None, h, c, p, direction=way)[0],
            {"hidden_size": 5, "direction": way},
            22,
        )
        for way, n in WAYS
    ),
    *(
        Row(
            "LinearAttention",
            (draw(2, 5, 12), draw(2, 5, 6), draw(2, 5, 8), draw(2, 2, 3, 4), decay, beta),
            lambda *of, rule=rule, scale=scale: attend(*of, update_rule=rule, scale=scale),
            {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": rule, "scale": scale},
            27,
            atol=1e-5,
        )
        for rule, decay, beta, scale in [
            ("linear", None, None, 0.0),
            ("gated", draw(2, 5, 2, low=-1, high=0), None, 0.5),
            ("delta", None, draw(2, 5, 2, low=0, high=1), 0.0),
            ("gated_delta", draw(2, 5, 6, low=-1, high=0), draw(2, 5, 2, low=0, high=1), -1.5),
        ]
    ),
    # Quantised integers
    Row("QuantizeLinear", (A, SCALE, ZERO), isokern.quantize_linear),
    Row("QuantizeLinear", (B, SCALES, ZEROS), isokern.quantize_linear, {"axis": 1}),
    Row("DequantizeLinear", (BITS, SCALE, ZERO), isokern.dequantize_linear),
    Row("DequantizeLinear", (BITS[:, :3], SCALES, ZEROS), isokern.dequantize_linear, {"axis": 1}),
    *(
        Row("QuantizeLinear", (64 * A, SCALE, np.zeros((), dtype)), isokern.quantize_linear)
        for dtype in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2)
    ),
    Row("DequantizeLinear", (A.astype(ml_dtypes.float8_e4m3fn), SCALE), isokern.dequantize_linear),
    Row("DequantizeLinear", (A.astype(ml_dtypes.float8_e5m2), SCALE), isokern.dequantize_linear),
    Row("DynamicQuantizeLinear", (A,), lambda x: isokern.dynamic_quantize_linear(x)[0]),
    Row("MatMulInteger", (BITS, SIGNED, ZERO, -ONE), isokern.matmul_integer),
    Row("ConvInteger", (SMALL, FILTERS, ZERO), lambda *of: isokern.conv_integer(*of, padding=1), {"pads": [1] * 4}),
    Row("QLinearMatMul", (BITS, SCALE, ZERO, SIGNED, SCALE, -ONE, SCALE, ONE), isokern.qlinear_matmul),
    Row("QLinearConv", (SMALL, SCALE, ZERO, FILTERS, SCALE, ZERO, WIDER, ZERO), isokern.qlinear_conv),
    # Linear algebra, detection, spectra
    Row("Det", (draw(2, 5, 5),), isokern.det, atol=1e-4),
    *(
        Row(
            "RoiAlign",
            (IMAGE, CORNERS, i64(0, 1, 1)),
            lambda x, rois, images, how=how: isokern.roi_align(x, rois, images, spatial_scale=0.75, **how),
            {**given, "output_height": 2, "output_width": 3, "spatial_scale": 0.75, "sampling_ratio": ratio},
        )
        for mode, how_places, ratio in [
            ("avg", "half_pixel", 0),
            ("avg", "output_half_pixel", 2),
            ("max", "half_pixel", 2),
        ]
        for given in [{"mode": mode, "coordinate_transformation_mode": how_places}]
        for how in [
            {
                "output_height": 2,
                "output_width": 3,
                "sampling_ratio": ratio,
                "mode": mode,
                "aligned": how_places == "half_pixel",
            }
        ]
    ),
    Row(
        "DeformConv",
        (IMAGE, draw(4, 3, 2, 3), draw(2, 12, 7, 7, low=-1, high=1), draw(4), draw(2, 6, 7, 7)),
        lambda *of: isokern.deform_conv2d(*of, padding=1),
        {"kernel_shape": [2, 3], "pads": [1] * 4},
        atol=1e-4,
    ),
    Row(
        "NonMaxSuppression",
        (BOXES, draw(2, 3, 9), i64(4), np.array([0.2], np.float32), np.array([-1], np.float32)),
        lambda boxes, scores, *of: cut(
            *isokern.non_max_suppression(
                boxes, scores, max_output_boxes_per_class=4, iou_threshold=float(np.float32(0.2)), score_threshold=-1
            )
        ),
    ),
    Row(
        "MelWeightMatrix",
        (np.int64(8), np.int64(64), np.int64(8192), np.float32(20), np.float32(4000)),
        lambda *of: isokern.mel_weight_matrix(
            num_mel_bins=8,
            dft_length=64,
            sample_rate=8192,
            lower_edge_hertz=20,
            upper_edge_hertz=4000,
            dtype="F32",
            device=of[0].device,
        ),
    ),
    Row("DFT", (draw(2, 7, 1), None, np.int64(1)), lambda x, axis: isokern.dft(x, axis=1), opset=20, atol=1e-5),
    Row(
        "STFT",
        (draw(1, 40, 1), np.int64(5), draw(16)),
        lambda x, step, window: isokern.stft(x, window, step=5, onesided=True),
        atol=1e-4,
    ),
]


@pytest.mark.full
def test_every_operator_of_onnx_has_a_row_in_the_table_of_names() -> None:
    declared = {s.name for s in onnx.defs.get_all_schemas() if s.domain == "" and not s.deprecated}
    known = {row.name: row.operators for row in peer_names() if row.peer == "ONNX"}
    assert declared == known.keys()
    assert {row.node for row in ROWS} <= {name for name, operators in known.items() if operators}


@pytest.mark.full
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_the_meaning_is_that_of_onnx(cpu: Device, row: Row) -> None:
    names = [f"i{n}" if x is not None else "" for n, x in enumerate(row.inputs)]
    kinds = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(np.asarray(x).dtype), np.shape(x))
        for n, x in zip(names, row.inputs, strict=True)
        if x is not None
    ]
    node = helper.make_node(row.node, names, ["y"], **row.attrs)
    graph = helper.make_graph([node], "g", kinds, [onnx.ValueInfoProto(name="y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", row.opset)])
    given = {n: np.asarray(x) for n, x in zip(names, row.inputs, strict=True) if x is not None}
    (wanted,) = evaluator.ReferenceEvaluator(model).run(None, given)
    found = row.call(*(isokern.tensor(x, device=cpu) for x in given.values())).numpy()
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(found, wanted, 1e-5, row.atol)
