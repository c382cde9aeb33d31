"""Test control flow that a run decides: the branch of an If, the steps of a Loop, and results whose size follows.

What is right is computed by NumPy, step by step. In full runs ONNX Runtime computes the same.
"""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import helper
from small_models import BOOL, INT64, model, node, tensor, value

from isokern import InvalidArgument
from isokern.onnx import UnsupportedModel, load, model as models

N = 100  # elements of an input that is too large to be part of a program
YES, ONE, ZERO = tensor("yes", np.array(True)), tensor("one", np.float32(1)), tensor("zero", np.float32(0))


def full(number, size=N):
    return np.full(size, number, np.float32)


def graph(nodes, inputs, outputs):
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs))


def loop_body(nodes, carried, *parts, going="going"):
    """Return a body that carries `a` to `b`, of these dims, and gives parts."""
    inputs = [value("i", [], INT64), value("so_far", [], BOOL), value("a", carried)]
    return graph(nodes, inputs, [value(going, [], BOOL), value("b", carried), *(value(p, None) for p in parts)])


def whether(condition, yes, no, name="y"):
    """Return an If of two branches, each a node from x to `r`."""
    branches = [graph([n], [], [value("r", None)]) for n in (yes, no)]
    return node("If", condition, name, then_branch=branches[0], else_branch=branches[1], name="choose")


SUM_IS_POSITIVE = [node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c")]
BELOW = [
    node("ReduceSum", "b", "total", keepdims=0),
    node("Less", "total limit", "going"),
]  # the sum of what is carried


def branches_of_other_dims(x):
    y = x + x if x.sum() > 0 else np.concatenate([x, x])
    return -y


def double_until(x, limit=5000):
    a, parts = x, []
    while True:
        a = a + a
        parts.append(-a)
        if not a.sum() < limit:
            return a, np.stack(parts)


def add_one(x):
    count = max(0, int(x.max()))
    parts = [(x + n + 1) ** 2 for n in range(count)]
    return x + np.float32(count), np.stack(parts) if parts else np.zeros((0, N), np.float32)


def grow_until(x, limit=1000):
    a = np.concatenate([x, x])
    while a.sum() < limit:
        a = np.concatenate([a, x])
    return a


def count_until(x, limit=10):
    a = np.float32(0)
    while True:
        going, a = a < limit, a + x.max()
        if not going:
            return a


def limited(number):
    return tensor("limit", np.float32(number))


OTHER_DIMS = model(
    [
        *SUM_IS_POSITIVE,
        whether("c", node("Add", "x x", "r"), node("Concat", "x x", "r", axis=0), "q"),
        node("Neg", "q", "y"),
    ],
    [value("x", [N])],
    [value("y", None)],
    [ZERO],
)
DOUBLE = model(
    [node("Loop", "_ yes x", "y", body=loop_body([node("Add", "a a", "b"), *BELOW], [N]))],
    [value("x", [N])],
    [value("y", [N])],
    [YES, limited(5000)],
)
DOUBLE_WITH_PARTS = model(
    [
        node(
            "Loop", "_ yes x", "y p", body=loop_body([node("Add", "a a", "b"), node("Neg", "b", "n"), *BELOW], [N], "n")
        ),
        node("ReduceSum", "p", "t", keepdims=0),
    ],
    [value("x", [N])],
    [value("y", [N]), value("p", ["steps", N]), value("t", [])],
    [YES, limited(5000)],
)
ADD_ONE = model(
    [
        node("ReduceMax", "x", "most", keepdims=0),
        node("Cast", "most", "count", to=INT64),
        node(
            "Loop",
            "count yes x",
            "y p",
            body=loop_body(
                [node("Add", "a one", "b"), node("Identity", "so_far", "going"), node("Mul", "b b", "q")], [N], "q"
            ),
        ),
    ],
    [value("x", [N])],
    [value("y", [N]), value("p", ["steps", N])],
    [YES, ONE],
)
GROW = model(
    [node("Loop", "_ yes x", "y", body=loop_body([node("Concat", "a x", "b", axis=0), *BELOW], None), name="grow")],
    [value("x", [N])],
    [value("y", None)],
    [YES, limited(1000)],
)
COUNT = model(
    [
        node("ReduceMax", "x", "most", keepdims=0),
        node(
            "Loop",
            "_ yes zero",
            "y",
            body=loop_body([node("Add", "a most", "b"), node("Less", "a limit", "going")], []),
        ),
    ],
    [value("x", [N])],
    [value("y", [])],
    [YES, ZERO, limited(10)],
)
PICK = model(
    [
        node("Greater", "x zero", "g"),
        node("NonZero", "g", "places"),
        node("Transpose", "places", "rows"),
        node("GatherND", "x rows", "y"),
    ],
    [value("x", [N])],
    [value("y", ["kept"])],
    [ZERO],
)
RANDOM = np.random.default_rng(3).standard_normal((2, N)).astype(np.float32)
CASES = {
    "branches of other dims": (OTHER_DIMS, branches_of_other_dims, [full(1), full(-1)]),
    "a condition": (DOUBLE, lambda x: double_until(x)[0], [full(1), full(3), full(100)]),
    "a condition, and parts": (
        DOUBLE_WITH_PARTS,
        lambda x: (*double_until(x), double_until(x)[1].sum()),
        [full(1), full(3), full(100)],
    ),
    "a trip count": (ADD_ONE, add_one, [full(1), full(3), full(0), full(7)]),
    "a carried tensor that grows": (GROW, grow_until, [full(1), full(3), full(100)]),
    "a carried constant": (COUNT, count_until, [full(1), full(4)]),
    "the elements that there are": (PICK, lambda x: x[x > 0], [*RANDOM, full(-1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_a_run_decides(cpu, name):
    made, compute, feeds = CASES[name]
    loaded = load(made, cpu)
    for x in (*feeds, *feeds):
        found, wanted = loaded.run(x), compute(x)
        for y, z in zip(*(v if isinstance(v, tuple) else (v,) for v in (found, wanted)), strict=True):
            assert y.shape == np.shape(z)
            np.testing.assert_allclose(y, z, 1e-5, 1e-6)
    assert loaded.known_inputs == set()


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_onnx_runtime_computes_the_same(cpu, name):
    runtime = pytest.importorskip("onnxruntime")
    made, _, feeds = CASES[name]
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for x in feeds:
        found = load(made, cpu).run(x)
        for y, z in zip(found if isinstance(found, tuple) else (found,), session.run(None, {"x": x}), strict=True):
            assert (y.shape, y.dtype) == (z.shape, z.dtype)
            np.testing.assert_allclose(y, z, 1e-5, 1e-6)


def test_a_loop_that_carries_the_same_dims_is_one_program_for_any_number_of_steps(cpu):
    loaded = load(DOUBLE, cpu)
    for number in (1, 2, 5, 40):
        loaded.run(full(number))
    assert len(loaded._programs) == 1


def test_a_small_input_of_floats_is_not_part_of_a_program(cpu):
    """Each run has other floats, and a program for each would be built anew in each run."""
    made = model(
        [*SUM_IS_POSITIVE, whether("c", node("Add", "x x", "r"), node("Concat", "x x", "r", axis=0))],
        [value("x", [2])],
        [value("y", None)],
        [ZERO],
    )
    loaded = load(made, cpu)
    for number in range(-20, 20):
        x = full(number, 2)
        np.testing.assert_array_equal(loaded.run(x), x + x if number > 0 else np.concatenate([x, x]))
    assert len(loaded._programs) == 3  # the condition, and what each branch leads to


def test_what_would_have_to_wait_too_often_is_refused(cpu):
    with pytest.raises(
        UnsupportedModel, match=r"'grow'.*the condition to go on.*up to 64 values that a run has to wait"
    ):
        load(GROW, cpu).run(full(0.01))


def test_what_is_asked_for_is_not_large(cpu, monkeypatch):
    monkeypatch.setattr("isokern.onnx.construction.KNOWN_INTEGERS", 2)
    made = model(
        [node("Cast", "x", "to", to=INT64), node("Reshape", "z to", "y")],
        [value("x", [3]), value("z", [6])],
        [value("y", None)],
    )
    with pytest.raises(UnsupportedModel, match=r"input 1, I64\[3\], has to be known; allowed: up to 2 elements"):
        load(made, cpu)


def test_many_lengths_in_turn_are_built_once(cpu, monkeypatch):
    loaded = load(model([node("Neg", "x", "y")], [value("x", ["n"])], [value("y", ["n"])]), cpu)
    built = []
    before = models.build
    monkeypatch.setattr(models, "build", lambda *given: built.append(1) or before(*given))
    for _ in range(3):
        for size in range(1, 13):
            assert loaded.run(full(2, size)).shape == (size,)
    assert len(built) == 12
    monkeypatch.setattr(models, "KEPT_BYTES", -1)
    loaded.run(full(2, 20))
    assert len(loaded._programs) == models.LEAST


def test_a_loop_that_never_ends_is_an_error(cpu, monkeypatch):
    monkeypatch.setattr("isokern.onnx.segments.LONGEST", 50)
    with pytest.raises(InvalidArgument, match="a loop of more than 50 steps"):
        load(DOUBLE, cpu).run(full(-1))
