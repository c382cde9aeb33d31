"""Test nodes of com.microsoft as ONNX Runtime's optimiser and its quantiser of weights write them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from isokern.onnx import UnsupportedModel, load
from isokern.status import InvalidArgument

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
DRAW = np.random.default_rng(7)
X, SKIP, BIAS, W, B = (DRAW.standard_normal(s).astype(np.float32) for s in ((2, 3, 8), (2, 3, 8), (8,), (8,), (8,)))


def erf(x: Any) -> Any:
    return np.vectorize(math.erf)(x)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def norm(x: Any, w: Any, b: Any, eps: float) -> Any:
    x = x.astype(np.float64)
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + eps) * w + b


def rms(x: Any, w: Any, eps: float) -> Any:
    x = x.astype(np.float64)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * w


def model(
    op: str, inputs: list[Any], attrs: dict[str, Any], outputs: int, known: set[int], domain: str, opset: int
) -> Any:
    names = ["" if x is None else f"i{n}" for n, x in enumerate(inputs)]
    made = [f"o{n}" if outputs >> n & 1 else "" for n in range(outputs.bit_length())]
    node = helper.make_node(op, names, made, domain=domain, **attrs)
    number = helper.np_dtype_to_tensor_dtype
    feeds = {f"i{n}": x for n, x in enumerate(inputs) if x is not None and n not in known}
    infos = [helper.make_tensor_value_info(n, number(x.dtype), x.shape) for n, x in feeds.items()]
    results = [helper.make_tensor_value_info(n, number(inputs[0].dtype), None) for n in made if n]
    held = [numpy_helper.from_array(inputs[n], f"i{n}") for n in known if inputs[n] is not None]
    versions = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    graph = helper.make_graph([node], "g", infos, results, held)
    return helper.make_model(graph, opset_imports=versions, ir_version=8), feeds


PLANES, KERNELS = (
    DRAW.standard_normal((1, 3, 5, 5)).astype(np.float32),
    DRAW.standard_normal((4, 3, 1, 1)).astype(np.float32),
)
POINTS = np.einsum("nchw,oc->nohw", PLANES, KERNELS[:, :, 0, 0])
BATCH = DRAW.standard_normal((3, 2, 4, 5)).astype(np.float32)
TURNED = BATCH.transpose(1, 2, 0, 3)  # its first dim is the second last
Case = tuple[str, list[Any], dict[str, Any], dict[int, Any]]

CASES: list[Case] = [
    ("SkipLayerNormalization", [X, SKIP, W, B], {"epsilon": 1e-5}, {0: norm(X + SKIP, W, B, 1e-5)}),
    ("SkipLayerNormalization", [X, SKIP, W, B, BIAS], {}, {0: norm(X + SKIP + BIAS, W, B, 1e-12), 3: X + SKIP + BIAS}),
    ("SkipLayerNormalization", [X, SKIP[:1], W], {"epsilon": 1e-5}, {0: norm(X + SKIP[:1], W, 0, 1e-5)}),
    ("SkipSimplifiedLayerNormalization", [X, SKIP, W], {"epsilon": 1e-6}, {0: rms(X + SKIP, W, 1e-6), 3: X + SKIP}),
    ("SkipSimplifiedLayerNormalization", [X, SKIP, W, BIAS], {"epsilon": 1e-6}, {0: rms(X + SKIP + BIAS, W, 1e-6)}),
    ("FastGelu", [X], {}, {0: gelu_tanh(X)}),
    ("FastGelu", [X, BIAS], {}, {0: gelu_tanh(X + BIAS)}),
    ("BiasGelu", [X, BIAS], {}, {0: gelu(X + BIAS)}),
    ("Gelu", [X], {}, {0: gelu(X)}),
    ("QuickGelu", [X], {}, {0: X * sigmoid(1.702 * X)}),
    ("QuickGelu", [X], {"alpha": 0.5}, {0: X * sigmoid(0.5 * X)}),
    ("FusedMatMul", [X, SKIP], {"transB": 1, "alpha": 0.25}, {0: X @ SKIP.swapaxes(1, 2) * 0.25}),
    ("FusedMatMul", [X, SKIP], {"transA": 1}, {0: X.swapaxes(1, 2) @ SKIP}),
    (
        "FusedMatMul",
        [BATCH, BATCH],
        {"transBatchA": 1, "transBatchB": 1, "transB": 1},
        {0: TURNED @ TURNED.swapaxes(2, 3)},
    ),
    ("FusedConv", [PLANES, KERNELS], {"activation": "Relu"}, {0: np.maximum(POINTS, 0)}),
    (
        "FusedConv",
        [PLANES, KERNELS, W[:4], POINTS],
        {"activation": "Tanh"},
        {0: np.tanh(2 * POINTS + W[:4, None, None])},
    ),
    (
        "FusedConv",
        [PLANES, KERNELS],
        {"activation": "LeakyRelu", "activation_params": [0.3]},
        {0: np.where(POINTS > 0, POINTS, 0.3 * POINTS)},
    ),
    (
        "FusedConv",
        [PLANES, KERNELS],
        {"activation": "Clip", "activation_params": [-0.5, 0.5]},
        {0: np.clip(POINTS, -0.5, 0.5)},
    ),
    (
        "FusedConv",
        [PLANES, KERNELS],
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.5]},
        {0: np.clip(0.2 * POINTS + 0.5, 0, 1)},
    ),
]


def name(case: Any) -> str:
    return f"{case[0]}-{len(case[1])}-{'-'.join(map(str, case[2].values()))}".replace(" ", "")


def check(run: Callable[..., Any], case: Case) -> None:
    op, inputs, attrs, wanted = case
    made, feeds = model(op, inputs, attrs, sum(1 << n for n in wanted), set(), "com.microsoft", 17)
    found = run(made, feeds)
    for y, right in zip(found, wanted.values(), strict=True):
        np.testing.assert_allclose(y, right, rtol=2e-5, atol=2e-5)


def ours(made: Any, feeds: dict[str, Any]) -> Any:
    found = load(made, "cpu:0").run(feeds)
    return found if isinstance(found, tuple) else (found,)


def theirs(made: Any, feeds: dict[str, Any]) -> Any:
    runtime = pytest.importorskip("onnxruntime")
    runtime.set_default_logger_severity(4)
    return runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, feeds)


@pytest.mark.parametrize("case", CASES, ids=name)
def test_a_fused_node_is_what_it_was_made_from(case: Case) -> None:
    check(ours, case)


@pytest.mark.full
@pytest.mark.parametrize("case", CASES, ids=name)
def test_onnx_runtime_computes_the_same(case: Case) -> None:
    check(theirs, case)


@pytest.mark.parametrize(
    ("op", "opset", "right"),
    [
        ("SimplifiedLayerNormalization", 17, lambda: rms(X, W, 1e-5)),
        ("LayerNormalization", 13, lambda: norm(X, W, B, 1e-5)),
        ("LayerNormalization", 17, lambda: norm(X, W, B, 1e-5)),
    ],
)
def test_a_norm_that_onnx_did_not_define_yet(op: str, opset: int, right: Callable[[], Any]) -> None:
    made, feeds = model(op, [X, W, B][: 2 if op[0] == "S" else 3], {}, 1, set(), "", opset)
    np.testing.assert_allclose(ours(made, feeds)[0], right(), rtol=2e-5, atol=2e-5)


# Weights of a few bits


def pack(codes: Any, bits: int) -> Any:
    """Return bytes of numbers along the last axis, the first in the lowest bits."""
    each = 8 // bits
    wide = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, -codes.shape[-1] % each)]).astype(np.uint8)
    wide = wide.reshape(*codes.shape[:-1], -1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(wide, -1)


def weights(n: int, k: int, bits: int, block: int, zeros: str) -> tuple[list[Any], Any]:
    """Return the inputs of a node behind the first, and the matrix that they stand for."""
    draw, count = np.random.default_rng(bits), -(-k // block)
    codes = draw.integers(0, 1 << bits, (n, count, block))
    scales = draw.uniform(0.1, 1, (n, count)).astype(np.float32)
    given: list[Any] = [pack(codes, bits), scales]
    zero: Any = np.float32(1 << (bits - 1))
    if zeros == "packed":
        told = draw.integers(0, 1 << bits, (n, count))
        given.append(pack(told, bits))
        zero = told[..., None]
    elif zeros == "floats":
        told = draw.uniform(0, 1 << bits, (n, count)).astype(np.float32)
        given.append(told)
        zero = told[..., None]
    return given, ((codes - zero) * scales[..., None]).reshape(n, -1)[:, :k].astype(np.float32)


@pytest.mark.parametrize("zeros", ["", "packed", "floats"])
@pytest.mark.parametrize(
    ("n", "k", "bits", "block"), [(5, 32, 4, 16), (3, 40, 4, 32), (4, 64, 8, 32), (6, 96, 4, 32), (3, 32, 2, 16)]
)
def test_weights_of_a_few_bits(n: int, k: int, bits: int, block: int, zeros: str) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, k)).astype(np.float32)
    given, matrix = weights(n, k, bits, block, zeros)
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": 0}
    made, feeds = model(
        "MatMulNBits", [x, *given], attrs, 1, {1, 2, 3} & set(range(1, 1 + len(given))), "com.microsoft", 21
    )
    np.testing.assert_allclose(ours(made, feeds)[0], x @ matrix.T, rtol=1e-4, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("zeros", ["", "packed"])
@pytest.mark.parametrize(("n", "k", "bits", "block"), [(5, 32, 4, 16), (6, 96, 4, 32), (4, 64, 8, 32)])
def test_onnx_runtime_s_weights_of_a_few_bits(n: int, k: int, bits: int, block: int, zeros: str) -> None:
    x = np.random.default_rng(3).standard_normal((2, 3, k)).astype(np.float32)
    given, matrix = weights(n, k, bits, block, zeros)
    given[1:] = [v.reshape(-1) for v in given[1:]]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block}
    made, feeds = model(
        "MatMulNBits", [x, *given], attrs, 1, {1, 2, 3} & set(range(1, 1 + len(given))), "com.microsoft", 21
    )
    np.testing.assert_allclose(theirs(made, feeds)[0], x @ matrix.T, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(ours(made, feeds)[0], x @ matrix.T, rtol=1e-4, atol=1e-4)


def test_a_bias_is_added() -> None:
    given, matrix = weights(5, 32, 4, 16, "")
    x, bias = np.ones((1, 32), np.float32), np.arange(5, dtype=np.float32)
    attrs = {"K": 32, "N": 5, "bits": 4, "block_size": 16}
    made, feeds = model("MatMulNBits", [x, *given, None, None, bias], attrs, 1, {1, 2, 5}, "com.microsoft", 21)
    np.testing.assert_allclose(ours(made, feeds)[0], x @ matrix.T + bias, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attrs", "error"),
    [
        ({"bits": 3}, UnsupportedModel),
        ({"block_size": 0}, UnsupportedModel),
        ({"N": 6}, InvalidArgument),
        ({"K": 64}, InvalidArgument),
        ({"bits": 8}, InvalidArgument),
    ],
)
def test_weights_that_do_not_fit(attrs: dict[str, Any], error: type[Exception]) -> None:
    given, _ = weights(5, 32, 4, 16, "")
    how = {"K": 32, "N": 5, "bits": 4, "block_size": 16} | attrs
    made, _ = model("MatMulNBits", [np.ones((1, how["K"]), np.float32), *given], how, 1, {1, 2}, "com.microsoft", 21)
    with pytest.raises(error, match="MatMulNBits"):
        load(made, "cpu:0")
