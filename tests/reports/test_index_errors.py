"""Test that an error of range names the index that was given, the node of the graph, and the node's own operator.

Operators that a device decomposes compute other indices from those that are given, and kernels see these alone.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from onnx.parser import parse_model

import isokern
from isokern import InvalidArgument
from isokern.onnx import load


def f32(*shape: int) -> Any:
    return np.ones(shape, np.float32)


def i64(values: Any) -> Any:
    return np.array(values, np.int64)


CALLS = {
    "scatter_nd": (lambda o: isokern.scatter_nd(f32(3), i64([[5]]), f32(1), **o), "tuple 0 of indices has 5"),
    "scatter_nd of two": (
        lambda o: isokern.scatter_nd(f32(3, 4), i64([[0, 1], [2, -5]]), f32(2), **o),
        "tuple 1 of indices has -5",
    ),
    "gather_nd": (lambda o: isokern.gather_nd(f32(3, 4), i64([[0, 1], [7, 0]]), **o), "tuple 1 of indices has 7"),
    "gather_nd of a batch": (
        lambda o: isokern.gather_nd(f32(2, 3), i64([[[0], [2]], [[1], [3]]]), batch_dims=1, **o),
        "tuple 3 of indices has 3",
    ),
    "index_add": (lambda o: isokern.index_add(f32(3), i64([0, 5]), f32(2), **o), "indices[1] is 5"),
    "index_fill": (lambda o: isokern.index_fill(f32(3), i64([-7]), value=1.0, **o), "indices[0] is -7"),
    "gather_elements": (
        lambda o: isokern.gather_elements(f32(2, 3), i64([[0, 2], [1, 9]]), axis=1, **o),
        "indices[3] is 9",
    ),
    "scatter_elements": (lambda o: isokern.scatter_elements(f32(3), i64([4]), f32(1), **o), "indices[0] is 4"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_names_its_own_operator_and_the_index(cpu, name):
    call, words = CALLS[name]
    for _ in range(3):  # the later ones are repeated calls
        with pytest.raises(InvalidArgument, match=f"^{name.split()[0]}: {re.escape(words)}"):
            call({"device": cpu})


NODES = {
    "ScatterND": (
        "(float[3,2] d, int64[1,2] i, float[1] u) => (float[3,2] y) { e = Neg(d) y = ScatterND(e, i, u) }",
        (f32(3, 2), i64([[1, 5]]), f32(1)),
        "y: scatter_nd: tuple 0 of indices has 5",
    ),
    "GatherND": (
        "(float[3] d, int64[1,1] i) => (float[1] y) { y = GatherND(d, i) }",
        (f32(3), i64([[-5]])),
        "y: gather_nd: tuple 0 of indices has -5",
    ),
    "the second Gather": (
        "(float[3] d, int64[2] i) => (float[2] y, float[2] z)"
        " { e = Neg(d) y = Gather(e, i) j = Add(i, i) z = Gather(d, j) }",
        (f32(3), i64([0, 2])),
        "z: gather: indices[1] is 4",
    ),
    "GatherElements": (
        "(float[2,3] d, int64[2,1] i) => (float[2,1] y) { y = GatherElements<axis=1>(d, i) }",
        (f32(2, 3), i64([[0], [3]])),
        "y: gather_elements: indices[1] is 3",
    ),
}


@pytest.mark.parametrize("name", NODES)
def test_a_run_of_a_model_names_the_node(devices, name):
    """microsoft/onnxruntime#9411 and its neighbours: ScatterND told of an index 3, where 5 was given."""
    text, feeds, words = NODES[name]
    for device in devices:
        if device.name.startswith(("opencl", "cuda")):
            continue  # they compile each kernel
        model = load(parse_model(f'<ir_version: 10, opset_import: ["" : 21]> g {text}'), device)
        for _ in range(2):
            with pytest.raises(InvalidArgument, match=re.escape(words)):
                model.run(*feeds)
