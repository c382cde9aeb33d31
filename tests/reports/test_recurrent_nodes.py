"""Test recurrent nodes with other activations than the usual ones, a clip, and gates that are coupled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from isokern.onnx import UnsupportedModel, load
from isokern.onnx.recurrence import GATES, NUMBERS
from isokern.status import InvalidArgument

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
STEPS, BATCH, SIZE, HIDDEN = 5, 3, 4, 6


def build(
    op: str, attrs: dict[str, Any], lengths: bool = True, states: bool = True, layout: int = 0
) -> tuple[Any, Any]:
    """Return a model of one layer with weights of its own, and its feed."""
    draw, gates = np.random.default_rng(5), GATES[op]
    d = 2 if attrs.get("direction") == "bidirectional" else 1

    def numbers(*shape: int) -> Any:
        return draw.uniform(-1, 1, shape).astype(np.float32)

    x = numbers(STEPS, BATCH, SIZE)
    held = {
        "w": numbers(d, gates * HIDDEN, SIZE),
        "r": numbers(d, gates * HIDDEN, HIDDEN),
        "b": numbers(d, 2 * gates * HIDDEN),
        "n": np.int32([5, 2, 0]) if lengths else None,
        "h": numbers(d, BATCH, HIDDEN) if states else None,
    }
    if op == "LSTM":
        held |= {"c": numbers(d, BATCH, HIDDEN) if states else None, "p": numbers(d, 3 * HIDDEN) if states else None}
    if layout:
        x = np.ascontiguousarray(x.swapaxes(0, 1))
        held |= {n: np.ascontiguousarray(held[n].swapaxes(0, 1)) for n in ("h", "c") if held.get(n) is not None}
    outputs = ["y", "yh", "yc"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(
        op,
        ["x", *(n if a is not None else "" for n, a in held.items())],
        outputs,
        hidden_size=HIDDEN,
        layout=layout,
        **attrs,
    )
    infos = [helper.make_tensor_value_info("x", 1, x.shape)]
    results = [helper.make_tensor_value_info(n, 1, None) for n in outputs]
    known = [numpy_helper.from_array(a, n) for n, a in held.items() if a is not None]
    graph = helper.make_graph([node], "g", infos, results, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), x


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("lengths", "states", "layout"), [(True, True, 0), (False, False, 0), (True, False, 0), (False, True, 1)]
)
def test_steps_are_what_the_operator_computes(
    op: str, direction: str, lengths: bool, states: bool, layout: int
) -> None:
    """A clip that nothing reaches takes the layer apart, and changes nothing."""
    how: dict[str, Any] = {"direction": direction, **({"linear_before_reset": 1} if op == "GRU" and states else {})}
    whole, x = build(op, how, lengths, states, layout)
    apart, _ = build(op, {**how, "clip": 1e6}, lengths, states, layout)
    loaded = load(apart, "cpu:0")
    assert op.lower() not in {call.kind for call in loaded.graph.ops}
    for found, wanted in zip(loaded.run(x), load(whole, "cpu:0").run(x), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_a_gated_unit_by_hand() -> None:
    """Keras writes HardSigmoid and Relu: 1 - z is 0.4, and the new state 2."""
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [1, 1, 1]), ("w", [1, 3, 1]), ("r", [1, 3, 1]))]
    node = helper.make_node("GRU", ["x", "w", "r"], ["y"], hidden_size=1, activations=["HardSigmoid", "Relu"])
    graph = helper.make_graph([node], "g", infos, [helper.make_tensor_value_info("y", 1, [1, 1, 1, 1])])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    feeds = np.float32([[[1]]]), np.float32([[[0.5], [1], [2]]]), np.zeros((1, 3, 1), np.float32)
    np.testing.assert_allclose(load(made, "cpu:0").run(*feeds), [[[[0.8]]]], rtol=1e-6)


COMPARED = [
    ("RNN", {"activations": ["Affine"], "activation_alpha": [0.5], "activation_beta": [0.1]}),
    ("RNN", {"activations": ["ThresholdedRelu"], "activation_alpha": [0.2]}),
    ("RNN", {"activations": ["ScaledTanh"], "activation_alpha": [0.5], "activation_beta": [2.0]}),
    ("RNN", {"activations": ["Softsign", "Elu"], "activation_alpha": [0.3], "direction": "bidirectional"}),
    ("GRU", {"activations": ["HardSigmoid", "Relu"], "activation_alpha": [0.25], "activation_beta": [0.4]}),
    ("GRU", {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.2], "clip": 0.5}),
    ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Softsign"], "activation_alpha": [0.2], "activation_beta": [0.5]}),
    ("LSTM", {"clip": 0.3}),
    ("LSTM", {"input_forget": 1}),
]


@pytest.mark.full
@pytest.mark.parametrize(("op", "attrs"), COMPARED, ids=str)
def test_onnx_runtime_computes_the_same(op: str, attrs: dict[str, Any]) -> None:
    runtime = pytest.importorskip("onnxruntime")
    made, x = build(op, attrs, lengths=False)
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for found, wanted in zip(load(made, "cpu:0").run(x), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", NUMBERS)
def test_every_activation_is_one_of_onnx(name: str) -> None:
    made, x = build("RNN", {"activations": [name]})
    y = load(made, "cpu:0").run(x)[0]
    assert y.shape == (STEPS, 1, BATCH, HIDDEN)
    assert np.isfinite(y).all()


@pytest.mark.parametrize(
    ("op", "attrs", "error"),
    [
        ("GRU", {"activations": ["Sigmoid"]}, InvalidArgument),
        ("GRU", {"activations": ["Sigmoid", "Nothing"]}, InvalidArgument),
        ("RNN", {"activations": ["Elu"], "direction": "sideways"}, InvalidArgument),
    ],
)
def test_layers_that_are_wrong(op: str, attrs: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error, match=op):
        load(build(op, attrs)[0], "cpu:0")


def test_a_layer_that_is_too_long_to_be_taken_apart() -> None:
    made, _ = build("RNN", {"activations": ["Elu"]}, lengths=False)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 3000
    with pytest.raises(UnsupportedModel, match="3000 steps"):
        load(made, "cpu:0")
