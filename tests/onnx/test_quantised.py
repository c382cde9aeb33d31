"""Test that quantised models multiply integers, and say what ONNX's reference says of their floats."""

from collections import Counter

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import TensorProto
from onnx.reference import ReferenceEvaluator
from small_models import model, node, tensor, value

from isokern.onnx import load
from isokern.passes import DEFAULT, run
from isokern.rewriting.rewriter import State
from isokern.rewriting.target import Target
from isokern.runtime import compile

INTEGERS = ("matmul_integer", "conv_integer", "qlinear_matmul", "qlinear_conv")


def lower(loaded):
    """Return the state of a model after the usual passes, for no device."""
    built = loaded.built
    return run(State(built.graph, built.parameters), DEFAULT)


def kinds(loaded):
    """Return the operators of a model after the usual passes."""
    return Counter(op.kind for op in lower(loaded).graph.ops)


class Quantised:
    """A QDQ model of one layer, with random choices of types, scales and what is around the layer."""

    def __init__(self, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.held, self.names = [], [], 0

    def chance(self):
        return bool(self.random.integers(2))

    def add(self, kind, *inputs, **attrs):
        self.names += 1
        self.nodes.append(node(kind, " ".join(inputs), f"t{self.names}", **attrs))
        return f"t{self.names}"

    def hold(self, array):
        self.held.append(tensor(f"w{len(self.held)}", array))
        return f"w{len(self.held) - 1}"

    def zero(self, kind, shape=()):
        """Return a zero point of that type."""
        low, high = (0, 255) if kind is np.uint8 else (-128, 127)
        return self.random.integers(low + 80, high - 80, shape).astype(kind)

    def activations(self, x, scale=0.02):
        """Quantise and dequantise a tensor."""
        kind = np.uint8 if self.chance() else np.int8
        parts = self.hold(np.float32(scale)), self.hold(self.zero(kind))
        return self.add("DequantizeLinear", self.add("QuantizeLinear", x, *parts), *parts)

    def weights(self, shape, axis):
        """Dequantise weights, by one scale or one for each channel."""
        kind = np.uint8 if self.chance() else np.int8
        low, high = (0, 255) if kind is np.uint8 else (-127, 127)
        given = () if self.chance() else (shape[axis],)
        self.scale = (self.random.random(given) * 0.02 + 0.005).astype(np.float32)
        zero = self.zero(kind, given) if kind is np.uint8 or self.chance() else np.zeros(given, kind)
        integers = self.random.integers(low, high, shape).astype(kind)
        parts = self.hold(integers), self.hold(self.scale), self.hold(zero)
        return self.add("DequantizeLinear", *parts, axis=axis)

    def bias(self, count, scale=0.02):
        """Return a bias of integers in the scale of the sums, or of floats."""
        if self.chance():
            return self.hold(self.random.standard_normal(count).astype(np.float32))
        wanted = np.float32(scale) * np.broadcast_to(self.scale, count)
        integers = self.random.integers(-3000, 3000, count).astype(np.int32)
        return self.add("DequantizeLinear", self.hold(integers), self.hold(wanted), axis=0)

    def finish(self, y, shape, wanted):
        """Return the model, whose result is relu and quantised again, or neither."""
        if self.chance():
            y = self.add("Relu", y)
        if self.chance():
            y = self.activations(y, 0.05)
        self.nodes.append(node("Identity", y, "y"))
        return model(self.nodes, [value("x", shape)], [value("y", wanted)], self.held)


def conv(seed):
    q = Quantised(seed)
    groups = 2 if q.chance() else 1
    given = [q.activations("x"), q.weights((6, 4 // groups, 3, 3), 0)]
    if q.chance():
        given.append(q.bias(6))
    pads = [1, 0, 1, 2] if q.chance() else [0, 0, 0, 0]
    return q.finish(q.add("Conv", *given, pads=pads, group=groups), [2, 4, 7, 6], [2, 6, None, None])


def conv1d(seed):
    q = Quantised(seed)
    groups = 2 if q.chance() else 1
    given = [q.activations("x"), q.weights((6, 4 // groups, 3), 0)]
    if q.chance():
        given.append(q.bias(6))
    how = {"pads": [2, 1], "strides": [2]} if q.chance() else {"dilations": [2]}
    return q.finish(q.add("Conv", *given, group=groups, **how), [2, 4, 13], [2, 6, None])


def matmul(seed):
    q = Quantised(seed)
    x = q.activations("x")
    w = q.add("Transpose", q.weights((5, 9), 0), perm=[1, 0]) if q.chance() else q.weights((9, 5), 1)
    y = q.add("MatMul", x, w)
    if q.chance():
        y = q.add("Add", y, q.bias(5))
    return q.finish(y, [2, 3, 9], [2, 3, 5])


def gemm(seed):
    q = Quantised(seed)
    turned = q.chance()
    given = [q.activations("x"), q.weights((5, 9) if turned else (9, 5), 0 if turned else 1)]
    if q.chance():
        given.append(q.bias(5))
    return q.finish(q.add("Gemm", *given, transB=int(turned), alpha=0.5 if q.chance() else 1.0), [3, 9], [3, 5])


def scores(seed):
    """Return a product of two tensors that a run makes."""
    q = Quantised(seed)
    other = q.add("Transpose", q.activations("x"), perm=[0, 2, 1])
    return q.finish(q.add("MatMul", q.activations("x"), other), [2, 3, 9], [2, 3, 3])


@pytest.mark.parametrize("make", [conv, conv1d, matmul, gemm, scores])
def test_products_of_what_was_dequantised_are_of_integers(make, cpu):
    for seed in range(16):
        made = make(seed)
        loaded = load(made, cpu)
        found = kinds(loaded)
        assert sum(found[k] for k in INTEGERS) == 1, (seed, found)
        assert not any(found[k] for k in ("conv1d", "conv2d", "matmul", "gemm", "linear")), (seed, found)
        x = np.random.default_rng(seed).standard_normal(list(loaded.inputs[0].shape), np.float32)
        wanted = ReferenceEvaluator(made).run(None, {"x": x})[0]
        state = lower(loaded)  # on a device floats may stay, where it has no kernel
        got = compile(state.graph, cpu, parameters=state.parameters, passes="").run(x)
        if any(n.op_type == "QuantizeLinear" for n in made.graph.node[2:]):
            steps = np.abs(got - wanted) / 0.05  # a sum near a half may be rounded the other way
            assert steps.max() < 1.01 and (steps > 0.01).mean() < 0.02, seed
        else:
            np.testing.assert_allclose(got, wanted, 1e-4, 1e-4, err_msg=str(seed))


def test_numbers_that_are_quantised_again_by_their_own_scale_are_what_they_were(cpu):
    parts = [tensor("s", np.float32(0.1)), tensor("z", np.uint8(7)), tensor("other", np.float32(0.2))]
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("QuantizeLinear", "d s z", "same"),
        node("QuantizeLinear", "d other z", "not"),
        node("DequantizeLinear", "same s z", "y"),
        node("DequantizeLinear", "not other z", "w"),
    ]
    made = model(nodes, [value("x", [4, 5])], [value("y", [4, 5]), value("w", [4, 5])], parts)
    loaded = load(made, cpu)
    assert kinds(loaded)["quantize_linear"] == 2
    x = np.random.default_rng(0).standard_normal((4, 5), np.float32)
    for got, wanted in zip(loaded.run(x), ReferenceEvaluator(made).run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(got, wanted, 1e-6, 1e-6)


@pytest.mark.parametrize(("make", "shape"), [(conv, (2, 4, 7, 6)), (conv1d, (2, 4, 13))])
def test_results_are_the_same_on_every_device(devices, make, shape):
    made = make(3)
    x = np.random.default_rng(1).standard_normal(shape, np.float32)
    wanted = load(made, devices[0]).run(x)
    for device in devices[1:]:
        np.testing.assert_allclose(load(made, device).run(x), wanted, 1e-5, 1e-5, err_msg=device.name)


def lower_for(loaded, device):
    """Return the operators of a model after the usual passes for a device."""
    built = loaded.built
    state = State(built.graph, built.parameters, target=Target.of_device(device))
    return Counter(op.kind for op in run(state, DEFAULT).graph.ops)


def test_windows_are_multiplied_as_integers_on_processors(cpu):
    random = np.random.default_rng(2)
    parts = [tensor("s", np.float32(0.02)), tensor("z", np.uint8(113)), tensor("t", np.float32(0.3))]
    parts += [tensor("w", random.integers(-90, 90, (48, 6, 3, 3)).astype(np.int8))]
    parts += [tensor("ws", (random.random(48) * 0.01).astype(np.float32)), tensor("wz", np.arange(48, dtype=np.int8))]
    nodes = [
        node("QuantizeLinear", "x s z", "q"),
        node("DequantizeLinear", "q s z", "d"),
        node("DequantizeLinear", "w ws wz", "f", axis=0),
        node("Conv", "d f", "c", pads=[1, 1, 1, 1], strides=[2, 1]),
        node("QuantizeLinear", "c t z", "r"),
        node("DequantizeLinear", "r t z", "y"),
    ]
    made = model(nodes, [value("x", [2, 6, 9, 19])], [value("y", [2, 48, 5, 19])], parts)
    loaded = load(made, cpu)
    found = lower_for(loaded, cpu)
    assert found["qlinear_conv"] == 1 and not found["conv2d"], found
    x = random.standard_normal((2, 6, 9, 19), np.float32)
    steps = np.abs(loaded.run(x) - ReferenceEvaluator(made).run(None, {"x": x})[0]) / 0.3
    assert steps.max() < 1.01 and (steps > 0.01).mean() < 0.01  # a sum near a half may be rounded the other way


def test_a_sum_of_quantised_tensors_is_one_loop(cpu):
    random = np.random.default_rng(3)
    parts = [tensor(name, np.float32(s)) for name, s in (("s", 0.02), ("t", 0.031), ("u", 0.04))]
    parts += [tensor("z", np.uint8(113)), tensor("i", np.int8(-7))]
    nodes = [
        node("QuantizeLinear", "a s z", "qa"),
        node("DequantizeLinear", "qa s z", "da"),
        node("QuantizeLinear", "b t i", "qb"),
        node("DequantizeLinear", "qb t i", "db"),
        node("Add", "da db", "sum"),
        node("Relu", "sum", "r"),
        node("QuantizeLinear", "r u z", "q"),
        node("DequantizeLinear", "q u z", "y"),
    ]
    made = model(nodes, [value("a", [3, 37]), value("b", [3, 37])], [value("y", [3, 37])], parts)
    loaded = load(made, cpu)
    assert lower_for(loaded, cpu) == {"generic": 4}  # two that quantise, the sum, and one that dequantises
    a, b = random.standard_normal((2, 3, 37), np.float32) * 2
    wanted = ReferenceEvaluator(made).run(None, {"a": a, "b": b})[0]
    assert np.abs(loaded.run(a, b) - wanted).max() < 1e-6


@pytest.mark.parametrize("form", ["rounded", "quantised", "sum"])
def test_without_zero_points(form, device_group):
    parts = [tensor("s", np.float32(0.5)), tensor("u", np.float32(0.25))]
    ends = [node("QuantizeLinear", "a s", "q"), node("DequantizeLinear", "q u", "y")]
    nodes, result = {
        "rounded": (ends, value("y", [3, 37])),
        "quantised": (ends[:1], value("q", [3, 37], TensorProto.UINT8)),
        "sum": (
            [
                *ends[:1],
                node("DequantizeLinear", "q s", "d"),
                node("Relu", "d", "r"),
                node("QuantizeLinear", "r u", "y"),
            ],
            value("y", [3, 37], TensorProto.UINT8),
        ),
    }[form]
    made = model(nodes, [value("a", [3, 37])], [result], parts)
    a = np.random.default_rng(3).standard_normal((3, 37), np.float32) * 9
    (wanted,) = ReferenceEvaluator(made).run(None, {"a": a})
    for device in device_group:
        np.testing.assert_array_equal(load(made, device).run(a), wanted)
