"""Test loops that are programs which run again and again, beside the same loops unrolled."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import helper
from small_models import BOOL, FLOAT, INT64, model, node, tensor, value

from isokern.onnx import UnsupportedModel, control, load

STEPS = 12


@pytest.fixture
def both(cpu, monkeypatch):
    """Return a function that runs a model with its loops as programs, and compares it with its loops unrolled."""

    def run(made, *feeds):
        unrolled = load(made, cpu)
        wanted = unrolled.run(*feeds)
        monkeypatch.setattr(control, "MAX_STEPS", 5)
        loaded = load(made, cpu)
        for _ in range(2):
            got = loaded.run(*feeds)
            for y, z in zip(*(v if isinstance(v, tuple) else (v,) for v in (got, wanted)), strict=True):
                assert y.dtype == z.dtype
                np.testing.assert_allclose(y, z, 1e-5, 1e-6)
        monkeypatch.undo()
        return loaded

    return run


def graph(nodes, inputs, outputs, initialisers=()):
    return helper.make_graph(list(nodes), "body", list(inputs), list(outputs), list(initialisers))


def loop(*more, name="repeat", inputs="many yes start other"):
    """Return a Loop that carries two tensors, reads one from outside and the step's number, and gives parts."""
    body = graph(
        [
            node("Cast", "i", "f", to=FLOAT),
            node("Mul", "a x", "ax"),
            node("Add", "ax f", "b"),
            node("Tanh", "b", "t"),
            node("Add", "r outer", "sum"),
            node("Identity", "t", "each"),
            node("Identity", "c", "go"),
            *more,
        ],
        [value("i", [], INT64), value("c", [], BOOL), value("a", [2]), value("r", [])],
        [value("go", [], BOOL), value("t", [2]), value("sum", []), value("each", [2]), value("f", [])],
    )
    return node("Loop", inputs, f"{name}_t {name}_sum {name}_each {name}_f", body=body, name=name)


def double(name, start, *more):
    """Return a Loop that doubles a tensor in each step, whose body has more nodes."""
    names = [f"{name}_{part}" for part in ("i", "c", "a", "b", "go", "y")]
    body = graph(
        [*more, node("Add", f"{names[2]} {names[2]}", names[3]), node("Identity", names[1], names[4])],
        [value(names[0], [], INT64), value(names[1], [], BOOL), value(names[2], [2])],
        [value(names[4], [], BOOL), value(names[3], [2])],
    )
    return node("Loop", f"many yes {start}", names[5], body=body, name=name)


HELD = [
    tensor("many", np.int64(STEPS)),
    tensor("yes", np.array(True)),
    tensor("start", np.float32([0.5, -0.25])),
    tensor("other", np.float32(1.5)),
    tensor("w", np.float32([[1, 2], [3, 4]])),
]
OUTPUTS = [value("y", [2]), value("repeat_sum", []), value("repeat_each", [STEPS, 2]), value("repeat_f", [STEPS])]


def repeat(steps, going=True):
    """Return a model of a Loop, which carries x and gives parts."""
    body = graph(
        [node("Add", "a x", "b"), node("Concat", "b b", "each", axis=0), node("Identity", "c", "go")],
        [value("i", [], INT64), value("c", [], BOOL), value("a", [2])],
        [value("go", [], BOOL), value("b", [2]), value("each", [4]), value("i", [], INT64)],
    )
    held = [tensor("n", np.int64(steps)), tensor("yes", np.array(going))]
    nodes = [node("Loop", "n yes x", "last all places", body=body)]
    outputs = [value("last", [2]), value("all", [None, 4]), value("places", [None], INT64)]
    return model(nodes, [value("x", [2])], outputs, held)


@pytest.mark.parametrize(("steps", "going"), [(0, True), (5, False), (0, False)])
def test_a_loop_of_no_steps_gives_no_parts(cpu, steps, going):
    x = np.float32([1, 2])
    last, parts, places = load(repeat(steps, going), cpu).run(x)
    np.testing.assert_array_equal(last, x)
    assert (parts.shape, parts.dtype) == ((0, 4), np.float32)
    assert (places.shape, places.dtype) == ((0,), np.int64)


@pytest.mark.parametrize("axis", [0, -1])
def test_a_scan_of_no_steps_gives_no_parts(cpu, axis):
    body = graph(
        [node("Add", "a p", "b"), node("Concat", "b p", "each", axis=0)],
        [value("a", [2]), value("p", [2])],
        [value("b", [2]), value("each", [4])],
    )
    nodes = [node("Scan", "x z", "last all", body=body, num_scan_inputs=1, scan_output_axes=[axis])]
    inputs = [value("x", [2]), value("z", [0, 2])]
    loaded = load(model(nodes, inputs, [value("last", [2]), value("all", [None, None])]), cpu)
    last, parts = loaded.run(np.float32([1, 2]), np.zeros((0, 2), np.float32))
    np.testing.assert_array_equal(last, [1, 2])
    assert (parts.shape, parts.dtype) == ((0, 4) if axis == 0 else (4, 0), np.float32)


def test_a_loop_between_other_nodes(both, cpu):
    """Values from before the loop are read in it and behind it."""
    nodes = [
        node("Mul", "x x", "before"),
        node("ReduceSum", "before", "outer", keepdims=0),
        loop(),
        node("MatMul", "w repeat_t", "m"),
        node("Add", "m before", "y"),
    ]
    made = model(nodes, [value("x", [2])], OUTPUTS, HELD)
    loaded = both(made, np.float32([0.3, -0.7]))
    with pytest.raises(UnsupportedModel, match="3 graphs, for its long loops"):
        loaded.graph  # noqa: B018


def test_two_loops_one_after_the_other(both):
    nodes = [
        node("Abs", "x", "outer2"),
        node("ReduceMax", "outer2", "outer", keepdims=0),
        loop(),
        loop(name="again", inputs="many yes repeat_t repeat_sum"),
        node("Add", "again_t x", "y"),
    ]
    made = model(nodes, [value("x", [2])], [*OUTPUTS, value("again_each", [STEPS, 2])], HELD)
    both(made, np.float32([0.3, -0.7]))


def test_a_loop_whose_results_are_the_models(both):
    nodes = [node("Identity", "other", "outer"), loop(), node("Identity", "repeat_t", "y")]
    both(model(nodes, [value("x", [2])], OUTPUTS, HELD), np.float32([1.3, 0.7]))


def test_a_loop_of_known_numbers_in_a_branch(both):
    branch = graph([node("Identity", "other", "outer"), loop()], [], [value("repeat_t", [2])])
    nodes = [node("If", "yes", "t", then_branch=branch, else_branch=branch), node("Mul", "t x", "y")]
    both(model(nodes, [value("x", [2])], [value("y", [2])], HELD), np.float32([1.3, 0.7]))


@pytest.mark.parametrize("back", [0, 1])
def test_a_scan_along_axes(both, back):
    body = graph(
        [node("Add", "s p", "t"), node("Mul", "t k", "u"), node("Sub", "p q", "each")],
        [value("s", [3]), value("p", [3]), value("q", [3])],
        [value("u", [3]), value("each", [3])],
    )
    scan = node(
        "Scan",
        "zero x z",
        "last all",
        body=body,
        num_scan_inputs=2,
        scan_input_axes=[1, 0],
        scan_input_directions=[back, 0],
        scan_output_axes=[1],
        scan_output_directions=[back],
    )
    held = [tensor("zero", np.zeros(3, np.float32)), tensor("k", np.float32(0.5))]
    inputs = [value("x", [3, STEPS]), value("z", [STEPS, 3])]
    made = model([scan], inputs, [value("last", [3]), value("all", [3, STEPS])], held)
    random = np.random.default_rng(0)
    both(made, *(random.standard_normal(s).astype(np.float32) for s in ((3, STEPS), (STEPS, 3))))


def test_a_loop_of_many_steps(cpu):
    """Too many to be unrolled as a graph."""
    body = graph(
        [node("Add", "a one", "b"), node("Identity", "c", "go")],
        [value("i", [], INT64), value("c", [], BOOL), value("a", [2])],
        [value("go", [], BOOL), value("b", [2])],
    )
    held = [tensor("n", np.int64(20_001)), tensor("yes", np.array(True)), tensor("one", np.float32([1, 2]))]
    made = model([node("Loop", "n yes x", "y", body=body)], [value("x", [2])], [value("y", [2])], held)
    np.testing.assert_array_equal(load(made, cpu).run(np.float32([5, 6])), [20_006, 40_008])


def test_what_a_program_cannot_be_is_refused_by_name(cpu, monkeypatch):
    monkeypatch.setattr(control, "MAX_STEPS", 5)
    grows = graph(
        [node("Concat", "a a", "b", axis=0), node("Identity", "c", "go")],
        [value("i", [], INT64), value("c", [], BOOL), value("a", None)],
        [value("go", [], BOOL), value("b", None)],
    )
    made = model(
        [node("Loop", "many yes x", "y", body=grows, name="grow")], [value("x", [2])], [value("y", None)], HELD
    )
    with pytest.raises(UnsupportedModel, match=r"'grow', Loop: Loop: a carried value.*F32\[4\].*F32\[2\]"):
        load(made, cpu)
    nodes = [double("outside", "x", double("inside", "outside_a"))]
    with pytest.raises(UnsupportedModel, match="within a long loop"):
        load(model(nodes, [value("x", [2])], [value("outside_y", [2])], HELD), cpu)
