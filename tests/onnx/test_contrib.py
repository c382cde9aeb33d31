"""Test the nodes that ONNX Runtime's quantiser writes, beside ONNX Runtime itself."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")
pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install onnxruntime")

import onnxruntime
from onnx import TensorProto, helper
from small_models import model, tensor, value

from isokern.onnx import UnsupportedModel, load
from isokern.passes import DEFAULT, run
from isokern.rewriting.rewriter import State

TYPES = {np.uint8: TensorProto.UINT8, np.int8: TensorProto.INT8, np.float32: TensorProto.FLOAT}
DOMAIN = "com.microsoft"
# On a processor without dot products of bytes, ONNX Runtime adds pairs of products of U8 and S8 in 16 bits, which
# saturate. Pairs with weights of this range fit; `test_the_widest_weights` tests wider ones, without ONNX Runtime
NARROW = (-64, 65)


class Made:
    """A node of the domain under construction: inputs of a run, and constants."""

    def __init__(self, kind, seed=0):
        self.random, self.kind = np.random.default_rng(seed), kind
        self.given, self.inputs, self.held = [], {}, []

    def feed(self, shape, dtype=np.uint8):
        """Add an input of a run."""
        wide = self.random.standard_normal(shape) if dtype is np.float32 else self.random.integers(-128, 128, shape)
        self.given.append(f"x{len(self.inputs)}")
        self.inputs[self.given[-1]] = wide.astype(dtype)
        return self

    def hold(self, *arrays):
        """Add constants; None is an absent input."""
        for array in arrays:
            self.given.append("" if array is None else f"c{len(self.held)}")
            if array is not None:
                self.held.append(tensor(self.given[-1], array))
        return self

    def scale(self, scale=0.02, zero=7, dtype=np.uint8):
        """Add a scale and a zero point."""
        return self.hold(np.float32(scale), dtype(zero))

    def finish(self, dtype=np.uint8, rank=2, **attrs):
        """Return the model of the node, of the domain that has it."""
        domain = "" if self.kind in ("QLinearConv", "ConvInteger") else DOMAIN
        made = helper.make_node(self.kind, self.given, ["y"], name="n", domain=domain, **attrs)
        inputs = [value(n, x.shape, TYPES[x.dtype.type]) for n, x in self.inputs.items()]
        kind = TYPES.get(dtype, TensorProto.INT32)
        return model([made], inputs, [value("y", [None] * rank, kind)], self.held, domains=[DOMAIN])


def compare(made, feeds, devices, steps=1, share=0.03):
    """Compare with ONNX Runtime: integers may be one step off where a number is close to a half."""
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    (wanted,) = session.run(None, feeds)
    for device in devices:
        got = load(made, device).run(feeds)
        assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape), device.name
        if wanted.dtype == np.float32:
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-4, err_msg=device.name)
            continue
        off = np.abs(got.astype(np.int64) - wanted)
        assert off.max() <= steps and (off > 0).mean() <= share, (device.name, off.max(), (off > 0).mean())
        assert np.unique(wanted).size > 3  # which are not all at an end of the range


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("kind", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products_of_two(devices, kind, dtype):
    q = Made(kind).feed((3, 4, 5), dtype).scale(0.02, 7, dtype).feed((4, 1), dtype).scale(0.03, 3, dtype)
    compare(q.scale(0.05, 11, dtype).finish(dtype, 3), q.inputs, devices)
    q = Made(kind).feed((3, 4), dtype).scale(0.02, 0, dtype).hold(np.arange(4).astype(dtype) * dtype(20))
    compare(q.scale(0.03, 1, dtype).scale(0.03, 0, dtype).finish(dtype), q.inputs, devices)


def test_a_result_without_a_zero_point_has_the_type_of_the_input(cpu):
    q = Made("QLinearSigmoid").feed((3, 40), np.int8).hold(np.float32(0.04), None, np.float32(1 / 128))
    (x,) = q.inputs.values()
    wanted = np.rint(128 / (1 + np.exp(-0.04 * x.astype(np.float32)))).clip(-128, 127)
    got = load(q.finish(np.int8), cpu).run(q.inputs)
    assert got.dtype == np.int8 and np.abs(got - wanted).max() <= 1


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
def test_functions_of_elements(devices, dtype):
    q = Made("QLinearSigmoid").feed((3, 40), dtype).scale(0.04, 20, dtype).scale(1 / 256, 0, dtype)
    compare(q.finish(dtype), q.inputs, devices)
    for attrs in ({}, {"alpha": 0.2}):
        q = Made("QLinearLeakyRelu").feed((3, 40), dtype).scale(0.04, 20, dtype).scale(0.05, 3, dtype)
        compare(q.finish(dtype, **attrs), q.inputs, devices)


@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (2, 12)])
def test_softmax(devices, axis, opset):
    q = Made("QLinearSoftmax").feed((2, 5, 7)).scale(0.02, 7).scale(1 / 256, 0)
    compare(q.finish(rank=3, axis=axis, opset=opset), q.inputs, devices)


def test_softmax_of_axes_that_were_flattened_is_refused():
    q = Made("QLinearSoftmax").feed((2, 5, 7)).scale().scale(1 / 256, 0)
    with pytest.raises(UnsupportedModel, match=r"'n', QLinearSoftmax: .*axis 1 of opset 12; allowed: the last axis"):
        load(q.finish(rank=3, axis=1, opset=12))


def test_pools(devices):
    q = Made("QLinearGlobalAveragePool").feed((2, 3, 5, 6)).scale(0.02, 100).scale(0.005, 110)
    compare(q.finish(rank=4), q.inputs, devices)
    for attrs in ({"pads": [1, 0, 1, 1]}, {"count_include_pad": 1, "pads": [1, 1, 1, 1]}, {"ceil_mode": 1}):
        q = Made("QLinearAveragePool").feed((2, 3, 6, 7)).scale(0.02, 100).scale(0.0113, 110)
        compare(q.finish(rank=4, kernel_shape=[3, 2], strides=[2, 2], **attrs), q.inputs, devices)
    with pytest.raises(UnsupportedModel, match=r"'n', QLinearAveragePool: .*channels_last 1; allowed: 0"):
        load(q.finish(rank=4, kernel_shape=[3, 2], channels_last=1))


def test_concat(devices):
    q = Made("QLinearConcat").scale(0.03, 50).feed((2, 3, 4)).scale(0.02, 7).feed((2, 5, 4)).scale(0.04, 90)
    compare(q.finish(rank=3, axis=1), q.inputs, devices)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"transB": 1}, {"alpha": 0.5, "transA": 1}])
@pytest.mark.parametrize("written", [False, True])
def test_gemm(devices, attrs, per_column, written):
    q = Made("QGemm").feed((9, 3) if attrs.get("transA") else (3, 9)).scale(0.02, 120)
    scale = np.float32(np.arange(1, 6) / 500) if per_column else np.float32(0.01)
    zero = np.zeros(5, np.int8) if per_column else np.int8(0)
    shape = (5, 9) if attrs.get("transB") else (9, 5)
    q.hold(q.random.integers(*NARROW, shape).astype(np.int8), scale, zero)
    q.hold(q.random.integers(-3000, 3000, 5).astype(np.int32))
    if written:
        q.scale(0.1, 100)
    made = q.finish(np.uint8 if written else np.float32, **attrs)
    compare(made, q.inputs, devices)
    if "transA" not in attrs:
        built = load(made).built
        kinds = Counter(op.kind for op in run(State(built.graph, built.parameters), DEFAULT).graph.ops)
        assert kinds["matmul_integer"] == 1 and not kinds["gemm"], kinds


def test_the_widest_weights(device_group):
    x, weights = np.full((3, 9), 255, np.uint8), np.full((9, 5), 127, np.int8)
    x[1], weights[:, 1], weights[4, 2] = 0, -127, -128
    q = Made("QGemm").feed(x.shape).scale(0.02, 120).hold(weights, np.float32(0.01), np.int8(0))
    made, wanted = q.finish(np.float32), (x.astype(np.int64) - 120) @ weights.astype(np.int64) * 2e-4
    for device in device_group:
        np.testing.assert_allclose(load(made, device).run({"x0": x}), wanted, 1e-6, err_msg=device.name)


@pytest.mark.parametrize("per_column", [False, True])
@pytest.mark.parametrize("zeros", [False, True])
def test_products_to_floats(devices, per_column, zeros):
    random = np.random.default_rng(1)
    weights = random.integers(0, 256, (9, 5)).astype(np.uint8)
    scale = np.float32(np.arange(1, 6) / 500) if per_column else np.float32([0.01])
    zero = (np.arange(5) + 100 if per_column else np.array([100])).astype(np.uint8) if zeros else None
    bias = random.standard_normal(5).astype(np.float32)
    q = Made("MatMulIntegerToFloat").feed((2, 3, 9)).hold(weights, np.float32(0.02), scale)
    q.hold(np.uint8(120) if zeros else None, zero, bias)
    compare(q.finish(np.float32, 3), q.inputs, devices)
    q = Made("DynamicQuantizeMatMul").feed((3, 9), np.float32).hold(weights, scale, zero, bias)
    compare(q.finish(np.float32), q.inputs, devices)


@pytest.mark.parametrize("attrs", [{}, {"pads": [2, 1], "strides": [2], "dilations": [2]}, {"group": 2}])
def test_convolutions_of_one_dim(devices, attrs):
    groups = attrs.get("group", 1)
    w = np.random.default_rng(2).integers(*NARROW, (6, 4 // groups, 3)).astype(np.int8)
    q = Made("QLinearConv").feed((2, 4, 11)).scale(0.02, 120)
    q.hold(w, np.float32(np.arange(1, 7) / 500), np.zeros(6, np.int8)).scale(0.1, 100)
    compare(q.hold(np.arange(6, dtype=np.int32) * 100).finish(rank=3, **attrs), q.inputs, devices)
    q = Made("ConvInteger").feed((2, 4, 11)).hold(w.view(np.uint8), np.uint8(120), np.uint8(128))
    compare(q.finish(np.int32, 3, **attrs), q.inputs, devices, steps=0)
