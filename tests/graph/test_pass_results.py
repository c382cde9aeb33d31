"""Test what passes leave of a graph, and that its results stay the same."""

import numpy as np
import pytest
from graph_models import MODELS, after, lines
from graph_oracles import moved

import isokern
from isokern import InvalidArgument, passes
from isokern.demo.zoo import mlp, resnet18
from isokern.graph import Model, parse
from isokern.graph.builder import Builder
from isokern.graph.ir import Constraint
from isokern.graph.layers import BatchNorm, Conv2d, Linear, Operation, RMSNorm, Sequential, SiLU
from isokern.passes import DEFAULT, names, register_pass, run
from isokern.rewriting.rewriter import State
from isokern.runtime import compile


def normed():
    m = Model("normed")
    x = m.input("x", (2, 4, 5, 5))
    x = m.add(Sequential(Conv2d(6, 3, groups=2), BatchNorm(), Conv2d(3, 1, bias=False), BatchNorm(1e-3)), x, name="c")
    m.output(m.add(Sequential(Operation("flatten"), Linear(7), BatchNorm()), x, name="l"))
    m.initialise(5)
    random = np.random.default_rng(1)
    for name, array in m.parameters.items():
        if "running" in name or name.endswith(("weight", "bias")):
            m.set({name: np.abs(random.standard_normal(array.shape)) + 0.1})
    return m


def test_batch_norms_are_folded(device):
    m = normed()
    state = run(State(m.graph, m.parameters), "fold_batch_norm")
    assert [op.kind for op in state.graph.ops] == ["conv2d", "conv2d", "flatten", "linear"]
    assert set(state.parameters) == {v.name for v in state.graph.parameters}
    x = np.random.default_rng(2).standard_normal((2, 4, 5, 5))
    a, b = (compile(m, device, passes=p).run(x) for p in ("", "fold_batch_norm"))
    np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
    unknown = run(State(m.graph, {}), "fold_batch_norm")
    assert [op.kind for op in unknown.graph.ops] == [op.kind for op in m.graph.ops]
    for broken in (
        {"c.1.running_var": -np.ones(6)},
        {"c.0.weight": np.full((6, 2, 3, 3), np.inf), "c.1.weight": np.zeros(6)},
        {"c.0.weight": np.full((6, 2, 3, 3), 3e38), "c.1.weight": np.full(6, 1e3)},
    ):
        m = normed()
        m.set(broken)
        kept = run(State(m.graph, m.parameters), "fold_batch_norm")
        assert [op.kind for op in kept.graph.ops] == ["conv2d", "batch_norm", "conv2d", "flatten", "linear"]


@pytest.mark.parametrize("layout", ["", " strides [2, 2, 1] offset 1", " strides [4, 3, 2] offset 3"])
@pytest.mark.parametrize("results", ["%5", "%3, %5", "%3, %5, %3"])
def test_what_a_fused_operator_repeats_is_not_copied(layout, results, device):
    """An operand without its dims of 1 is a view of it, in whatever layout it is, and of a result too."""
    graph = parse(f"""graph g {{
      %0 = input "x": F32[3, 1, 2]
      %1 = input "y": F32[2, 2]
      %2 = exp(%0): F32[3, 1, 2]
      %3 = softmax(%2): F32[3, 1, 2]{layout}
      %4 = add(%1, %3): F32[3, 2, 2]
      %5 = neg(%4): F32[3, 2, 2]
      return {results}
    }}""")
    feeds = {"x": np.arange(6, dtype=np.float32).reshape(3, 1, 2), "y": np.float32([[1, 2], [3, 4]])}
    plain, fused = (compile(graph, device, passes=p) for p in ("", DEFAULT))
    assert [op.kind for op in fused.graph.ops] == ["exp", "softmax", "collapse_shape", "generic"]
    assert moved(fused) == moved(plain) == 0
    wanted = plain.run(feeds)
    for found in (fused.run(feeds), fused.run_direct(feeds), fused.run(feeds)):
        pairs = [(found, wanted)] if results == "%5" else zip(found, wanted, strict=True)
        for a, b in pairs:
            np.testing.assert_array_equal(a, b)


CONSTANTS = """
    graph g {
      %0 = input "x": F32[2, 3]
      %1 = parameter "w": F32[3, 2]
      %2 = parameter "s": F16[]
      %3 = transpose(%1) "wt": F32[2, 3]
      %4 = cast(%2): F32[]
      %5 = mul(%3, %4) "x": F32[2, 3]
      %6 = mul(%0, %5): F32[2, 3]
      %7 = copy(%5): F32[3, 2, 3]
      %8 = copy(%7): F32[2, 3, 2, 3]
      %9 = relu(%1): F32[3, 2]
      %10 = exp(%4) where aligned(0, 4): F32[]
      %11 = mul(%10, %8): F32[2, 3, 2, 3]
      return %6, %9, %11
    }"""


def test_what_parameters_alone_make_is_a_parameter(device):
    """Exceptions are results, and values over four times as large as their parameters, whatever the steps between."""
    w, s = np.arange(6.0).reshape(3, 2), np.array(0.1)
    made = after(CONSTANTS, "fold_constants", {"w": w, "s": s})
    assert lines(made.graph.dump()) == lines(
        """
        graph g {
          %0 = input "x": F32[2, 3]
          %1 = parameter "x constant": F32[2, 3]
          %2 = mul(%0, %1): F32[2, 3]
          %3 = parameter "copy constant": F32[3, 2, 3]
          %4 = copy(%3): F32[2, 3, 2, 3]
          %5 = parameter "w": F32[3, 2]
          %6 = relu(%5): F32[3, 2]
          %7 = parameter "cast constant": F32[]
          %8 = exp(%7) where aligned(0, 4): F32[]
          %9 = mul(%8, %4): F32[2, 3, 2, 3]
          return %2, %6, %9
        }"""
    )
    scaled = w.T.astype(np.float32) * np.float32(np.float16(0.1))
    np.testing.assert_array_equal(made.parameters["x constant"], scaled)
    unknown = after(CONSTANTS, "fold_constants").graph
    assert [op.kind for op in unknown.ops] == [op.kind for op in parse(CONSTANTS).ops], "without numbers"
    feeds = np.ones((2, 3))
    pairs = [compile(parse(CONSTANTS), device, parameters={"w": w, "s": s}, passes=p) for p in ("", "fold_constants")]
    for a, b in zip(*(p.run(feeds) for p in pairs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


@pytest.mark.parametrize("passes", ["fuse_elementwise", "to_primitives"])
@pytest.mark.parametrize(
    "limits", [(-np.inf, 0.75), (-2.5, np.inf), (-1e30, 1e30), (np.inf, np.inf), (2.0, -2.0), (1e18, 1e30)]
)
def test_limits_of_integers_are_whole_in_a_body(limits, passes, device):
    ends = [-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1]
    x = np.array([*ends, -5, -1, 0, 1, 7, 2**62], np.int64)
    b = Builder("limited")
    (y,) = b.emit("clip", [b.input("x", x.shape, "I64")], dict(zip(("min", "max"), map(float, limits), strict=True)))
    b.output(*b.emit("abs", [y]))
    plain, done = (compile(b.graph, device, passes=p).run(x) for p in ("", passes))
    np.testing.assert_array_equal(done, plain)


def weighted():
    """Return a graph and parameters of a layer whose weight is dequantised, cast, joined, scaled and transposed."""
    b = Builder("weighted")
    x = b.input("x", (3, 64), "F16")
    blocks, half = b.parameter("blocks", (32, 64), "Q8_0"), b.parameter("half", (8, 64), "F16")
    (low,) = b.emit("dequantize", [blocks], dtypes={"T": "F16"}, name="low")
    (joined,) = b.emit("concat", [low, half], {"axis": 0}, name="joined")
    (wide,) = b.emit("cast", [joined], dtypes={"T": "F32"}, name="wide")
    (scaled,) = b.emit("scale", [wide], {"value": 0.125}, name="scaled")
    (narrow,) = b.emit("cast", [scaled], dtypes={"T": "F16"}, name="narrow")
    (turned,) = b.emit("transpose", [narrow], name="turned")
    b.output(*b.emit("matmul", [x, turned], name="product"))
    random = np.random.default_rng(4)
    return b.graph, {v.name: random.standard_normal(v.spec.shape) for v in b.graph.parameters}


def test_a_weight_is_made_once(device):
    graph, parameters = weighted()
    state = run(State(graph, parameters), DEFAULT)
    assert [op.kind for op in state.graph.ops] == ["matmul"]
    assert list(state.parameters) == ["turned constant"]
    assert run(state, DEFAULT).graph.dump() == state.graph.dump(), "once is enough"
    x = np.random.default_rng(5).standard_normal((3, 64))
    a, b = (compile(graph, device, parameters=parameters, passes=p).run(x) for p in ("", DEFAULT))
    np.testing.assert_allclose(a, b, rtol=4e-3, atol=4e-3)


def test_a_norm_of_what_was_activated_stays():
    text = """
    graph g {
      %0 = input "x": F32[1, 2, 3, 3]
      %1 = parameter "w": F32[2, 2, 1, 1]
      %2 = conv2d(%0, %1) {activation = "relu"}: F32[1, 2, 3, 3]
      %3 = conv2d(%0, %1, _, %0): F32[1, 2, 3, 3]
      %4 = parameter "one": F32[2]
      %5 = batch_norm(%2, %4, %4): F32[1, 2, 3, 3]
      %6 = batch_norm(%3, %4, %4): F32[1, 2, 3, 3]
      %7 = add(%5, %6): F32[1, 2, 3, 3]
      return %7
    }"""
    known = {"w": np.ones((2, 2, 1, 1), np.float32), "one": np.ones(2, np.float32)}
    assert [op.kind for op in after(text, "fold_batch_norm", known).graph.ops].count("batch_norm") == 2


def test_what_lies_between_and_is_read_elsewhere_is_kept():
    m = Model("shared")
    x = m.input("x", (1, 2, 4, 4))
    y = m.add(Conv2d(2, 1), x)
    z = m.add(BatchNorm(), y)
    m.output(z, y)
    m.initialise()
    state = run(State(m.graph, m.parameters), DEFAULT)
    assert [op.kind for op in state.graph.ops] == ["conv2d", "batch_norm"]


@pytest.mark.parametrize("make", MODELS, ids=["mlp", "digits", "text", "pooled", "resnet18 of 32 x 32"])
def test_no_result_changes(make, device):
    model = make()
    model.initialise(9)
    random = np.random.default_rng(0)
    feeds = {
        v.name: random.integers(0, 11, v.spec.shape)
        if v.spec.dtype.kind == "i"
        else random.standard_normal(v.spec.shape)
        for v in model.graph.inputs
    }
    plain, done = (compile(model, device, passes=p).run(feeds) for p in ("", DEFAULT))
    for a, b in zip(*(x if isinstance(x, tuple) else (x,) for x in (plain, done)), strict=True):
        bound = 4e-3 if a.dtype == np.float16 else 2e-5
        np.testing.assert_allclose(a, b, rtol=bound, atol=bound * np.abs(a).max())


EPILOGUES = {
    "matmul": """
    graph g {
      %0 = input "a": F32[3, 1, 5, 7]
      %1 = input "b": F32[2, 7, 6]
      %2 = parameter "bias": F32[6]
      %3 = input "c": F32[3, 2, 5, 6]
      %4 = matmul(%0, %1): F32[3, 2, 5, 6]
      %5 = bias_add(%4, %2): F32[3, 2, 5, 6]
      %6 = add(%5, %3): F32[3, 2, 5, 6]
      %7 = relu(%6): F32[3, 2, 5, 6]
      return %7
    }""",
    "mask": """
    graph g {
      %0 = input "a": F32[3, 2, 5, 7]
      %1 = input "b": F32[3, 2, 7, 6]
      %2 = input "mask": F32[3, 1, 5, 6]
      %3 = matmul(%0, %1): F32[3, 2, 5, 6]
      %4 = add(%3, %2): F32[3, 2, 5, 6]
      return %4
    }""",
    "linear": """
    graph g {
      %0 = input "x": F16[2, 3, 9]
      %1 = parameter "w": F16[8, 9]
      %2 = parameter "bias": F16[8]
      %3 = linear(%0, %1, %2): F16[2, 3, 8]
      %4 = gelu(%3): F16[2, 3, 8]
      return %4
    }""",
    "vector": """
    graph g {
      %0 = input "x": F32[9]
      %1 = parameter "w": F32[8, 9]
      %2 = input "c": F32[8]
      %3 = linear(%0, %1): F32[8]
      %4 = add(%2, %3): F32[8]
      %5 = tanh(%4): F32[8]
      return %5
    }""",
    "weights": """
    graph g {
      %0 = input "x": F32[2, 3, 64]
      %1 = parameter "w": Q4_1[7, 64]
      %2 = parameter "bias": F32[7]
      %3 = input "c": F32[2, 3, 7]
      %4 = matmul_transposed(%0, %1) {lhs_quantization = "q8_0"}: F32[2, 3, 7]
      %5 = add(%4, %2): F32[2, 3, 7]
      %6 = add(%5, %3): F32[2, 3, 7]
      %7 = silu(%6): F32[2, 3, 7]
      return %7
    }""",
}


@pytest.mark.parametrize("name", EPILOGUES)
def test_a_product_with_its_epilogue_gives_the_same(name, device_group):
    """Results agree on every device, also when the product is lowered to primitives."""
    graph, random = parse(EPILOGUES[name]), np.random.default_rng(4)
    fused = run(State(graph, {}), "fuse_epilogue").graph
    assert len(fused.ops) == 1
    feeds = [random.standard_normal(v.spec.shape) for v in graph.inputs]
    drawn = {v.name: random.standard_normal(v.spec.shape) for v in graph.parameters}
    for device in device_group:
        known = {v.name: isokern.tensor(drawn[v.name], v.spec.dtype.name, device=device) for v in graph.parameters}
        plain, one, parts = (
            compile(graph, device, parameters=known, passes=p).run(feeds)
            for p in ("", "fuse_epilogue", "fuse_epilogue,to_primitives")
        )
        bound = 4e-3 if plain.dtype == np.float16 else 2e-5
        for made in (one, parts):
            np.testing.assert_allclose(made, plain, rtol=bound, atol=bound * np.abs(plain).max(), err_msg=device.name)


def test_resnet18_has_no_batch_norm_left():
    m = resnet18()
    state = run(State(m.graph, m.parameters), DEFAULT)
    kinds = [op.kind for op in state.graph.ops]
    assert (kinds.count("batch_norm"), kinds.count("conv2d"), len(m.graph.ops) - len(kinds)) == (0, 20, 45)


def test_the_sum_is_there_for_whoever_reads_it(device):
    m = Model("residual")
    x = m.input("x", (3, 8))
    y = m.add(Operation("softmax"), x)
    total = m.add(Operation("add"), x, y)
    m.output(m.add(RMSNorm(), total), m.add(SiLU(), total))
    m.initialise(1)
    state = run(State(m.graph, m.parameters), DEFAULT)
    assert [op.kind for op in state.graph.ops] == ["softmax", "add_rms_norm", "silu"]
    feeds = np.random.default_rng(3).standard_normal((3, 8))
    for a, b in zip(*(compile(m, device, passes=p).run(feeds) for p in ("", DEFAULT)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_a_sum_in_float64_is_merged_with_its_norm():
    text = """
        graph g {
          %0 = input "x": F64[2, 3]
          %1 = add(%0, %0): F64[2, 3]
          %2 = rms_norm(%1): F64[2, 3]
          return %2
        }"""
    assert [op.kind for op in after(text, "fuse_add_rms_norm").graph.ops] == ["add_rms_norm"]


def heads(mixed="softmax"):
    """Return a graph that splits, transposes and joins heads as attention does, with a weight that is transposed."""
    b = Builder("heads")
    x, w, v = b.input("x", (2, 16, 64)), b.parameter("w", (64, 64)), b.input("v", (32, 64))
    (y,) = b.emit("linear", [x, w])
    (y,) = b.emit("expand_shape", [y], {"groups": (1, 1, 2), "shape": (2, 16, 4, 16)})
    (y,) = b.emit("relu", [y])
    (y,) = b.emit("transpose", [y], {"axes": (0, 2, 1, 3)})
    (y,) = b.emit(mixed, [y])
    (y,) = b.emit("transpose", [y], {"axes": (0, 2, 1, 3)})
    (y,) = b.emit("collapse_shape", [y], {"groups": (1, 1, 2)})
    (t,) = b.emit("transpose", [v])
    b.output(*b.emit("matmul", [y, t]))
    return b.graph


@pytest.mark.parametrize(("mixed", "left"), [("softmax", 1), ("tanh", 0)])
def test_layouts_save_copies_and_change_nothing_else(mixed, left, device_group):
    graph, random = heads(mixed), np.random.default_rng(8)
    feeds = {v.name: random.standard_normal(v.spec.shape) for v in graph.inputs}
    parameters = {v.name: random.standard_normal(v.spec.shape) for v in graph.parameters}
    for device in device_group:
        programs = [compile(graph, device, parameters=parameters, passes=p) for p in ("", DEFAULT)]
        plain, less = map(moved, programs)
        tensor = 2 * 16 * 64 * 4
        assert (plain, less) == (2 * tensor + 32 * 64 * 4, left * tensor), device
        a, b = (p.run(feeds) for p in programs)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("make", MODELS, ids=["mlp", "digits", "text", "pooled", "resnet18 of 32 x 32"])
def test_no_pass_copies_more(make, device):
    model = make()
    model.initialise(9)
    plain, less = (moved(compile(model, device, passes=p)) for p in ("", DEFAULT))
    assert less <= plain


@pytest.mark.parametrize("dtype", ["F32", "F16"])
def test_a_bias_and_a_cast_are_part_of_a_loop_nest(dtype, device):
    b = Builder("biased")
    x, c = b.input("x", (2, 5, 7), dtype), b.parameter("c", (5,), dtype)
    (y,) = b.emit("bias_add", [x, c], {"axis": 1})
    (y,) = b.emit("silu", [y])
    b.output(*b.emit("cast", [y], dtypes={"T": "F16" if dtype == "F32" else "F32"}))
    random = np.random.default_rng(6)
    given = {"c": random.standard_normal(5)}
    assert [op.kind for op in run(State(b.graph, given), DEFAULT).graph.ops] == ["generic"]
    x = random.standard_normal((2, 5, 7))
    a, b = (compile(b.graph, device, parameters=given, passes=p).run(x) for p in ("", DEFAULT))
    np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("first", "last"), [("linear", "relu"), ("linear", "batch_norm")])
def test_constraints_are_not_lost_in_a_fusion(first, last):
    """An operator with a constraint on its operand is not fused."""
    b = Builder("kept")
    x, w, c = b.input("x", (3, 4)), b.parameter("w", (4, 4)), b.parameter("c", (4,))
    (y,) = b.emit(first, [x, w])
    b.output(*b.emit(last, [y] if last == "relu" else [y, c, c], constraints=[Constraint("contiguous", 0)]))
    ones = {"w": np.eye(4), "c": np.ones(4)}
    assert [op.kind for op in run(State(b.graph, ones), DEFAULT).graph.ops] == [first, last]


def test_pipelines():
    m = normed()
    told = []
    run(
        State(m.graph, m.parameters),
        " canonicalise , dead_code",
        seen=lambda name, state: told.append((name, len(state.graph.ops))),
    )
    assert told == [("canonicalise", 7), ("dead_code", 7)]
    assert {*DEFAULT.split(","), "to_primitives"} == set(names())
    assert run(State(m.graph, m.parameters), "").graph is m.graph
    with pytest.raises(InvalidArgument, match="no pass is called 'inline'; allowed: canonicalise, choose"):
        run(State(m.graph, {}), "dead_code,inline")


def test_a_pass_of_ones_own(monkeypatch):
    """A registered pass can be named in pipelines, compiles and the command line as any other."""
    monkeypatch.setattr(passes, "_registered", {})  # keeps it from other tests
    seen = []

    def count_operators(state):
        seen.append(len(state.graph.ops))
        return state

    register_pass("count_operators", count_operators)
    register_pass("count_operators", count_operators)  # registering the same function again is allowed
    assert "count_operators" in names()
    model = mlp(2)
    model.initialise(0)
    program = compile(model, "cpu:0", passes="canonicalise, count_operators")
    assert seen == [len(model.graph.ops)]
    program.close()
    for name, function, problem in (
        ("count_operators", lambda state: state, "a pass is called count_operators already"),
        ("canonicalise", count_operators, "a pass is called canonicalise already"),
        ("a, b", count_operators, "the name 'a, b'"),
        ("nothing", None, "nothing is a NoneType"),
    ):
        with pytest.raises(InvalidArgument, match=problem):
            register_pass(name, function)
    register_pass("returns_nothing", lambda state: None)
    with pytest.raises(InvalidArgument, match="returns_nothing returns a NoneType; allowed: a State"):
        run(State(model.graph, model.parameters), "returns_nothing")


def test_graphs_around_passes_are_printed_where_that_is_asked_for(monkeypatch, capsys):
    b = Builder("g")
    b.output(*b.emit("sqrt", b.emit("abs", [b.input("x", (3,))])))
    graph = b.graph
    monkeypatch.setattr("isokern.debug.LEVEL", 3)
    run(State(graph, {}))
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("isokern.debug.LEVEL", 4)
    run(State(graph, {}))
    shown = capsys.readouterr().err
    assert shown.startswith("isokern: g before passes\ngraph g {")
    assert "isokern: g after fuse_elementwise\ngraph g {" in shown and "sqrt(abs(x0))" in shown
    assert "after dead_code" not in shown, "it changes nothing here"
