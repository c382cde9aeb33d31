"""Test what a decomposed call moves: its result is computed in place, and slices and windows are views."""

import numpy as np
import pytest

import isokern
from isokern import TensorDesc
from isokern.declare.operator import Operator
from isokern.runtime import plan_memory
from isokern.runtime.lowered import decompose

CALLS = [  # operator, shapes, attributes, and its parts on the CPU
    ("tile", [(3, 5)], {"repeats": (2, 3)}, ["broadcast_to"]),
    ("tile", [(2, 2, 3, 2)], {"repeats": (2, 2, 2, 2)}, ["broadcast_to", "broadcast_to"]),
    ("repeat_interleave", [(3, 5)], {"repeats": 4, "axis": 1}, ["broadcast_to"]),
    ("im2col", [(1, 2, 5, 6)], {"kernel": (3, 2), "padding": (1, 1)}, ["pad", "sliding_windows"]),
    ("im2col", [(2, 3, 7, 6)], {"kernel": (3, 2), "dilation": (2, 1), "stride": (1, 2)}, ["sliding_windows"]),
    ("diff", [(4, 9)], {}, ["generic"]),
    ("conv1d", [(2, 3, 9), (4, 3, 3)], {"padding": 1}, ["conv2d"]),
    ("depth_to_space", [(2, 8, 3, 5)], {"block": 2}, ["expand_shape"]),
]


@pytest.fixture
def device():
    found = [d for d in isokern.devices() if d.name == "cpu:0"]
    if not found:
        pytest.skip("the CPU backend is not installed")
    return found[0]


@pytest.mark.parametrize(("name", "shapes", "attrs", "parts"), CALLS)
@pytest.mark.parametrize("place", ["dense", "offset", "gaps"])
def test_a_result_is_computed_where_it_lies(device, name, shapes, attrs, parts, place):
    """A dense result is written by the last part that computes, also behind an offset; one with gaps is moved."""
    rng = np.random.default_rng(3)
    arrays = [rng.normal(size=s).astype(np.float32) for s in shapes]
    inputs = [isokern.tensor(a, device=device) for a in arrays]
    wanted = getattr(isokern, name)(*inputs, **attrs).numpy()
    if place == "gaps":
        room = isokern.tensor(np.full((*wanted.shape, 2), np.nan, np.float32), device=device)
        out = room[..., 1]
    else:
        behind = 5 if place == "offset" else 0
        room = isokern.tensor(np.full((behind + wanted.size,), np.nan, np.float32), device=device)
        out = room[behind:].reshape(wanted.shape)
    made = isokern.create(name, [x.desc for x in inputs], [out.desc], device=device, **attrs)
    assert list(made.made_of) == (parts if place != "gaps" else [*parts, "rearrange"])
    made.calculate(inputs, out, workspace="auto")
    np.testing.assert_array_equal(out.numpy(), wanted)
    assert np.isnan(room.numpy()).sum() == room.numpy().size - wanted.size


def test_a_result_that_may_lie_in_an_input_is_not_computed_early(device):
    """Parts that still read the input would find the result there."""
    op: Operator = isokern.ops.find("tile")
    x = TensorDesc("F32", (3, 5))
    graph = decompose(device, op.resolve([x], [TensorDesc("F32", (6, 15))], {"repeats": (2, 3)}))
    assert len(plan_memory(graph).calls) == 2
    assert len(plan_memory(graph, early=True).calls) == 1


def test_a_value_of_two_results_lies_in_one_and_is_moved_to_the_other():
    b = isokern.graph.Builder("two")
    (y,) = b.emit("neg", [b.input("x", (2, 6))])
    for kind, attrs in (("collapse_shape", {"groups": (2,)}), ("expand_shape", {"groups": (1, 2), "shape": (2, 2, 3)})):
        b.output(*b.emit(kind, [y], attrs))
    made = plan_memory(b.graph, early=True)
    assert [op.kind for op in made.calls] == ["neg", "collapse_shape"]
    assert made.root[y] is b.graph.outputs[1]
