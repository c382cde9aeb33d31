"""Test the comparison of programs with ONNX Runtime: both run the same network, else a reason is reported."""

import json

import numpy as np
import pytest

from isokern.bench.onnx_peer import NoPeer, session
from isokern.cli import main
from isokern.demo.zoo import resnet18
from isokern.graph import Model
from isokern.graph.layers import AdaptiveAvgPool2d, BatchNorm, Conv2d, MaxPool2d, Operation, ReLU, Sequential
from isokern.runtime import compile


def test_a_model_is_timed_with_its_peers(devices, capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--device", devices[0].name, "--graph", "mlp", "--seconds", "0.01", "--json"])
    (found,) = json.loads(capsys.readouterr().out)
    assert found["op"] == "mlp" and found["case"] == "fused, prepacked" and found["time_us"] > 0 and found["rate"] > 0
    assert {"fused", "as built"} <= set(found["peers"])
    assert ("onnxruntime" in found["left_out"]) != any(name.startswith("onnxruntime") for name in found["peers"])


def test_onnx_runtime_gets_the_same_network(devices):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = resnet18(size=32, width=8, classes=10)
    random = np.random.default_rng(0)
    for name, array in model.parameters.items():
        model.set({name: np.abs(random.standard_normal(array.shape)) + 0.5 if "running" in name else array})
    x = random.standard_normal((1, 3, 32, 32)).astype(np.float32)
    (theirs,) = session(model.graph, model.parameters, 1)({"images": x})
    ours = compile(model, devices[0]).run(x)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4 * np.abs(ours).max())


@pytest.mark.parametrize(
    ("layers", "why"),
    [
        ([Operation("hardshrink")], "hardshrink"),
        ([AdaptiveAvgPool2d(3)], "windows of different sizes"),
        ([BatchNorm(), MaxPool2d(2), ReLU(), Conv2d(3, 1), AdaptiveAvgPool2d(1)], None),
    ],
)
def test_what_onnx_lacks_is_told(layers, why):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    m = Model("m")
    m.output(m.add(Sequential(*layers), m.input("x", (1, 2, 4, 4))))
    m.initialise()
    if why is None:
        session(m.graph, m.parameters, 1)
    else:
        with pytest.raises(NoPeer, match=why):
            session(m.graph, m.parameters, 1)
