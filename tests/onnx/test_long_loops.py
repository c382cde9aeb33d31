"""Test loops that are programs which run again and again, beside the same loops unrolled."""

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import TensorProto, helper
from small_models import BOOL, FLOAT, INT64, model, node, tensor, value

from isokern import InvalidArgument
from isokern.onnx import UnsupportedModel, control, load

STEPS = 12
INT4 = TensorProto.INT4


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


def short(nodes, results, carried=(), name="short", trip="none"):
    """Return a Loop whose body has no results but parts, beside what it carries."""
    ins = [
        value(f"{name}_i", [], INT64),
        value(f"{name}_c", [], BOOL),
        *(value(f"{n}_in", s, k) for n, s, k in carried),
    ]
    outs = [value(f"{name}_go", [], BOOL), *(value(f"{n}_out", s, k) for n, s, k in carried), *results]
    body = graph([*nodes, node("Identity", f"{name}_c", f"{name}_go")], ins, outs)
    given = " ".join([trip, "_", *(n for n, _, _ in carried)])
    return node("Loop", given, " ".join(f"{name}_{n}" for n in range(len(outs) - 1)), body=body, name=name)


NONE = tensor("none", np.int64(0))


def test_a_step_on_trial_leaves_nothing(cpu, monkeypatch):
    """A loop of no steps does not run the long loop of its body, and keeps no values and constants for it."""
    monkeypatch.setattr(control, "MAX_STEPS", 5)
    body = [double("in", "twice"), node("MatMul", "w in_y", "m"), node("Mul", "m twice", "p")]
    nodes = [node("MatMul", "w x", "twice"), short(body, [value("p", None)]), node("MatMul", "w twice", "y")]
    outputs = [value("short_0", [None, 2]), value("y", [2])]
    loaded = load(model(nodes, [value("x", [2])], outputs, [*HELD, NONE]), cpu)
    assert list(loaded.built.parameters) == ["w"] and len(loaded.graph.outputs) == 1
    parts, y = loaded.run(np.float32([1, 2]))
    assert parts.shape == (0, 2)
    np.testing.assert_array_equal(y, [27, 59])


def test_a_step_on_trial_within_a_long_loop(both):
    """It may have a long loop of its own, which a long loop cannot, and reads what the step around it is given."""
    inner = short([double("in", "out_a"), node("Mul", "in_y w", "p")], [value("p", None)])
    nodes = [double("out", "x", inner, node("Shape", "short_0", "dims"), node("Identity", "dims", "seen"))]
    both(model(nodes, [value("x", [2])], [value("out_y", [2])], [*HELD, NONE]), np.float32([1, 2]))


@pytest.mark.parametrize(("steps", "shape"), [(0, (0, 0, 4)), (1, None)])
def test_a_step_that_would_fail_and_never_runs(cpu, steps, shape):
    """The body says what a step would give."""
    body = short([node("SequenceAt", "nothing short_i", "p")], [value("p", ["rows", 4])], trip="trip")
    nodes = [node("SequenceEmpty", "", "nothing"), body]
    made = model(nodes, [value("x", [2])], [value("short_0", None)], [tensor("trip", np.int64(steps))])
    if shape is None:
        with pytest.raises(InvalidArgument, match=r"SequenceAt: position 0; allowed: none, as the sequence is empty"):
            load(made, cpu)
    else:
        assert load(made, cpu).run(np.zeros(2, np.float32)).shape == shape


@pytest.mark.parametrize("steps", [0, 2])
def test_parts_that_are_no_tensors_are_refused(cpu, steps):
    for kind, error in (("SequenceConstruct", UnsupportedModel), ("NonZero", None)):
        body = short([node(kind, "x", "p")], [value("p", None, INT64)], trip="trip")
        made = model([body], [value("x", [2])], [value("short_0", None, 0)], [tensor("trip", np.int64(steps))])
        if error is not None:
            with pytest.raises(error, match="a part of a result that is no tensor"):
                load(made, cpu)
        else:
            assert load(made, cpu).run(np.float32([1, 0])).shape == (steps, 1, min(steps, 1))


def int4(name):
    return value(name, None, INT4)


@pytest.mark.parametrize("steps", [0, 2, STEPS])
def test_results_of_loops_have_narrow_types(both, steps):
    """What is carried, and parts: each has its own type."""
    cast = [node("Cast", "short_i", "p", to=INT4), node("Identity", "short_i", "wide")]
    carried = [("q", [2], INT4), ("x", [2], FLOAT)]
    keep = [node("Identity", "q_in", "q_out"), node("Add", "x_in x_in", "x_out"), node("Identity", "q_in", "r")]
    results = [int4("p"), value("wide", [], INT64), int4("r")]
    nodes = [node("Cast", "x", "q", to=INT4), short([*cast, *keep], results, carried, trip="trip")]
    kinds = [INT4, FLOAT, INT4, INT64, INT4]
    outputs = [value(f"short_{n}", None, kind) for n, kind in enumerate(kinds)]
    made = model(nodes, [value("x", [2])], outputs, [tensor("trip", np.int64(steps))])
    found = both(made, np.float32([1, -2])).run(np.float32([1, -2]))
    assert [y.dtype.name for y in found] == ["int4", "float32", "int4", "int64", "int4"]
    np.testing.assert_array_equal(found[0].astype(int), [1, -2])
    np.testing.assert_array_equal(found[4].astype(int), [[1, -2]] * steps or np.zeros((0, 2)))


@pytest.mark.parametrize("steps", [0, 2, STEPS])
def test_results_of_scans_have_narrow_types(both, steps):
    """What is carried, and parts of what is scanned."""
    nodes = [node("Identity", "s", "t"), node("Identity", "n", "p"), node("Cast", "n", "wide", to=FLOAT)]
    body = graph(nodes, [int4("s"), int4("n")], [int4("t"), int4("p"), value("wide", None)])
    nodes = [node("Cast", "x", "q", to=INT4), node("Cast", "z", "m", to=INT4)]
    nodes.append(node("Scan", "q m", "last all wide_all", body=body, num_scan_inputs=1))
    outputs = [int4("last"), int4("all"), value("wide_all", None)]
    made = model(nodes, [value("x", [2]), value("z", [steps, 3])], outputs)
    feeds = np.float32([1, -2]), np.float32(np.arange(3 * steps).reshape(steps, 3) % 7)
    found = both(made, *feeds).run(*feeds)
    assert [y.dtype.name for y in found] == ["int4", "int4", "float32"]
    np.testing.assert_array_equal(found[1].astype(np.float32), feeds[1])


@pytest.mark.parametrize("yes", [True, False])
def test_results_of_branches_have_narrow_types(cpu, yes):
    branches = {
        f"{name}_branch": graph(
            [node("Cast", "x", f"{name}_q", to=INT4), node("Abs", "x", f"{name}_f")],
            [],
            [int4(f"{name}_q"), value(f"{name}_f", [2])],
        )
        for name in ("then", "else")
    }
    nodes = [node("If", "yes", "q f", **branches)]
    made = model(nodes, [value("x", [2])], [int4("q"), value("f", [2])], [tensor("yes", np.array(yes))])
    q, f = load(made, cpu).run(np.float32([1, -2]))
    assert (q.dtype.name, f.dtype.name) == ("int4", "float32")
    np.testing.assert_array_equal(q.astype(int), [1, -2])


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
    with pytest.raises(UnsupportedModel, match="a long loop within a loop that runs as a program"):
        load(model(nodes, [value("x", [2])], [value("outside_y", [2])], HELD), cpu)
