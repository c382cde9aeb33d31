"""A node of any domain in a model of its own, run here and by ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from isokern.onnx import load

ML, MICROSOFT = "ai.onnx.ml", "com.microsoft"


def make(kind: str, domain: str, inputs: Any, outputs: Any, held: Any = (), versions: Any = (), **attrs: Any) -> Any:
    """Return a node's model: `inputs` are arrays or None, `outputs` element types, `held` inputs that are constants."""
    names = ["" if x is None else f"i{n}" for n, x in enumerate(inputs)]
    made = ["" if kind_ is None else f"o{n}" for n, kind_ in enumerate(outputs)]
    node = helper.make_node(kind, names, made, name="node", domain=domain, **attrs)
    number = helper.np_dtype_to_tensor_dtype
    infos = [
        helper.make_tensor_value_info(names[n], number(x.dtype), x.shape)
        for n, x in enumerate(inputs)
        if x is not None and n not in held
    ]
    results = [helper.make_tensor_value_info(n, k, None) for n, k in zip(made, outputs, strict=True) if n]
    constants = [numpy_helper.from_array(inputs[n], names[n]) for n in held]
    told = {"": 21, ML: 3, MICROSOFT: 1} | dict(versions)
    graph = helper.make_graph([node], "g", infos, results, constants)
    opsets = [helper.make_opsetid(name, version) for name, version in told.items()]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def feeds(inputs: Any, held: Any = ()) -> dict[str, Any]:
    """Return what the model of a node reads."""
    return {f"i{n}": x for n, x in enumerate(inputs) if x is not None and n not in held}


def ours(model: Any, given: Any, device: Any = "cpu:0") -> list[Any]:
    """Return what a model gives here."""
    found = load(model, device).run(given)
    return list(found) if isinstance(found, tuple) else [found]


def theirs(model: Any, given: Any) -> list[Any]:
    """Return what ONNX Runtime gives, or skip the test without it."""
    runtime = pytest.importorskip("onnxruntime", reason="ONNX Runtime is not installed: pip install onnxruntime")
    runtime.set_default_logger_severity(4)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, given)


def assert_same(model: Any, given: Any, device: Any = "cpu:0", tolerance: float = 2e-5) -> list[Any]:
    """Check that both give the same, integers exactly, and return what ONNX Runtime gives."""
    wanted, got = theirs(model, given), ours(model, given, device)
    for y, right in zip(got, wanted, strict=True):
        assert (y.dtype, y.shape) == (right.dtype, right.shape)
        if y.dtype.kind == "f":
            np.testing.assert_allclose(y, right, tolerance, tolerance)
        else:
            np.testing.assert_array_equal(y, right)
    return wanted
