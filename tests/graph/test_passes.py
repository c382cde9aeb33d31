"""Passes: what each makes of a graph, as text."""

import pytest
from graph_models import after, lines


@pytest.mark.parametrize(
    ("name", "before", "wanted"),
    [
        (
            "fuse_elementwise",
            """
            graph g {
              %0 = input "x": F32[4, 5]
              %1 = input "y": F32[5]
              %2 = input "z": F32[4, 1]
              %3 = mul(%0, %1): F32[4, 5]
              %4 = add(%3, %2): F32[4, 5]
              %5 = less(%4, %0): BOOL[4, 5]
              %6 = where(%5, %4, %0): F32[4, 5]
              %7 = scale(%6) {value = -2.5} "last": F32[4, 5]
              %8 = exp(%7): F32[4, 5]
              return %7, %8
            }""",
            """
            graph g {
              %0 = input "x": F32[4, 5]
              %1 = input "y": F32[5]
              %2 = input "z": F32[4, 1]
              %3 = collapse_shape(%2) {groups = [2]} "last": F32[4]
              %4 = generic(_, %0, %1, %3) {maps = "ab,b,a->ab", body = "(BODY * -2.5)"} "last": F32[4, 5]
              %5 = exp(%4): F32[4, 5]
              return %4, %5
            }""".replace(
                "BODY",
                "(((x0 * x1) + x2) if (((((x0 * x1) + x2) < x0) != 0.0)) else x0)".replace("((((", "(((").replace(
                    "0.0))", "0.0)"
                ),
            ),
        ),
        (
            "fuse_elementwise",
            """
            graph g {
              %0 = input "x": F16[2, 3, 4]
              %1 = input "b": F16[3]
              %2 = input "c": F16[1]
              %3 = bias_add(%0, %1) {axis = -2}: F16[2, 3, 4]
              %4 = relu(%3): F16[2, 3, 4]
              %5 = mul(%4, %2): F16[2, 3, 4]
              %6 = cast(%5) "wide": F32[2, 3, 4]
              %7 = exp(%6): F32[2, 3, 4]
              %8 = cast(%7) "narrow": BF16[2, 3, 4]
              %9 = neg(%8): BF16[2, 3, 4]
              %10 = cast(%9): F16[2, 3, 4]
              return %10
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3, 4]
              %1 = input "b": F16[3]
              %2 = input "c": F16[1]
              %3 = collapse_shape(%2) {groups = []} "wide": F16[]
              %4 = generic(_, %0, %1, %3) {maps = "abc,b,->abc", body = "(maximum((x0 + x1), 0.0) * x2)"} "wide": F32[2, 3, 4]
              %5 = generic(_, %4) {maps = "abc->abc", body = "exp(x0)"} "narrow": BF16[2, 3, 4]
              %6 = neg(%5): BF16[2, 3, 4]
              %7 = cast(%6): F16[2, 3, 4]
              return %7
            }""",
        ),
        (
            "fuse_elementwise",
            """
            graph g {
              %0 = input "x": F32[3, 3]
              %1 = input "b": F32[3]
              %2 = bias_add(%0, %1) {axis = 0}: F32[3, 3]
              %3 = add(%2, %1): F32[3, 3] strides [1, 3] offset 0
              %4 = bias_add(%3, %1): F32[3, 3]
              %5 = input "h": F16[3, 3]
              %6 = cast(%5): F32[3, 3]
              %7 = mul(%6, %4): F32[3, 3] strides [4, 1] offset 5
              return %7
            }""",
            """
            graph g {
              %0 = input "x": F32[3, 3]
              %1 = input "b": F32[3]
              %2 = input "h": F16[3, 3]
              %3 = cast(%2): F32[3, 3]
              %4 = generic(_, %3, %0, %1, %1) {maps = "ab,ab,a,b->ab", body = "(x0 * (((x1 + x2) + x3) + x3))"}: F32[3, 3] strides [4, 1] offset 5
              return %4
            }""",
        ),
        (
            "choose_layouts",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "y": F32[2, 3, 4]
              %2 = input "s": F32[1]
              %3 = transpose(%0) {axes = [0, 2, 1]} "a": F32[2, 4, 3]
              %4 = transpose(%1) {axes = [0, -1, 1]} "b": F32[2, 4, 3]
              %5 = add(%3, %4) "sum": F32[2, 4, 3]
              %6 = mul(%5, %2) "product": F32[2, 4, 3]
              %7 = transpose(%6) {axes = [0, 2, 1]} "back": F32[2, 3, 4]
              %8 = transpose(%7) "turned": F32[4, 3, 2]
              %9 = softmax(%8): F32[4, 3, 2]
              %10 = transpose(%9): F32[2, 3, 4]
              return %7, %10
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "y": F32[2, 3, 4]
              %2 = input "s": F32[1]
              %3 = add(%0, %1) "sum": F32[2, 3, 4]
              %4 = mul(%3, %2) "product": F32[2, 3, 4]
              %5 = transpose(%4) {axes = [2, 1, 0]} "turned": F32[4, 3, 2]
              %6 = softmax(%5): F32[4, 3, 2]
              %7 = transpose(%6) {axes = [2, 1, 0]}: F32[2, 3, 4]
              return %4, %7
            }""",
        ),
        (
            "choose_layouts",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "w": F32[5, 4]
              %2 = transpose(%1): F32[4, 5]
              %3 = matmul(%0, %2): F32[2, 3, 5]
              %4 = transpose(%3) {axes = [1, 0, 2]}: F32[3, 2, 5]
              %5 = softmax(%4): F32[3, 2, 5]
              %6 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5]
              %7 = flatten(%6): F32[2, 15]
              %8 = transpose(%7): F32[15, 2]
              %9 = exp(%8): F32[15, 2]
              %10 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5]
              %11 = flatten(%10): F32[2, 15]
              %12 = flatten(%10) {axis = 0}: F32[1, 30]
              %13 = matmul(%11, %9): F32[2, 2]
              return %13, %12
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3, 4]
              %1 = input "w": F32[5, 4]
              %2 = transpose(%1) {axes = [1, 0]}: F32[4, 5] strides [1, 4] offset 0
              %3 = matmul(%0, %2): F32[2, 3, 5] strides [5, 10, 1] offset 0
              %4 = transpose(%3) {axes = [1, 0, 2]}: F32[3, 2, 5]
              %5 = softmax(%4): F32[3, 2, 5]
              %6 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5] strides [5, 10, 1] offset 0
              %7 = flatten(%6): F32[2, 15]
              %8 = exp(%7): F32[2, 15]
              %9 = transpose(%5) {axes = [1, 0, 2]}: F32[2, 3, 5]
              %10 = flatten(%9): F32[2, 15]
              %11 = flatten(%9) {axis = 0}: F32[1, 30]
              %12 = transpose(%8) {axes = [1, 0]}: F32[15, 2] strides [1, 15] offset 0
              %13 = matmul(%10, %12): F32[2, 2]
              return %13, %11
            }""",
        ),
        (
            "to_primitives",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = rms_norm(%0) {eps = 0.5} "norm": F16[2, 3]
              return %1
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = cast(%0) "norm": F32[2, 3]
              %2 = fill() {shape = [2]} "norm": F32[2]
              %3 = generic(%2, %1) {maps = "ab->a", body = "(x0 * x0)", combine = "sum"} "norm": F32[2]
              %4 = generic(_, %1, %3) {maps = "ab,a->ab", body = "(x0 / sqrt(((x1 / 3.0) + 0.5)))"} "norm": F16[2, 3]
              return %4
            }""",
        ),
        (
            "dead_code",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "unused": F32[1]
              %2 = parameter "w": F32[3]
              %3 = mul(%0, %2): F32[2, 3]
              %4 = topk(%0) {k = 1}: F32[2, 1], I64[2, 1]
              %6 = relu(%0): F32[2, 3]
              return %6
            }""".replace("%4 = topk", "%4, %5 = topk"),
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "unused": F32[1]
              %2 = relu(%0): F32[2, 3]
              return %2
            }""",
        ),
        (
            "common_subexpressions",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = relu(%0): F32[2, 3]
              %2 = relu(%0): F32[2, 3]
              %3 = softmax(%1): F32[2, 3]
              %4 = softmax(%2): F32[2, 3]
              %5 = softmax(%2) {axis = 0}: F32[2, 3]
              %6 = add(%3, %4): F32[2, 3]
              %7 = add(%6, %5): F32[2, 3]
              return %7, %2
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = relu(%0): F32[2, 3]
              %2 = softmax(%1): F32[2, 3]
              %3 = softmax(%1) {axis = 0}: F32[2, 3]
              %4 = add(%2, %2): F32[2, 3]
              %5 = add(%4, %3): F32[2, 3]
              return %5, %1
            }""",
        ),
        (
            "canonicalise",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = flatten(%0): F32[2, 3]
              %2 = cast(%1): F32[2, 3]
              %3 = relu(%2): F32[2, 3]
              %4 = relu(%3): F32[2, 3]
              %5 = copy(%0): F32[2, 3]
              %6 = flatten(%4) {axis = 0}: F32[1, 6]
              return %6, %4, %5
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = relu(%0): F32[2, 3]
              %2 = copy(%0): F32[2, 3]
              %3 = flatten(%1) {axis = 0}: F32[1, 6]
              return %3, %1, %2
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = parameter "w": F32[4, 3]
              %2 = parameter "b": F32[4]
              %3 = linear(%0, %1, %2) "fc": F32[2, 4]
              %4 = gelu(%3) "act": F32[2, 4]
              %5 = linear(%0, %1, _) "two": F32[2, 4]
              %6 = relu(%5): F32[2, 4]
              %7 = add(%5, %6): F32[2, 4]
              return %4, %7
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = parameter "w": F32[4, 3]
              %2 = parameter "b": F32[4]
              %3 = gemm(%0, %1, %2) {trans_b = true, activation = "gelu"} "act": F32[2, 4]
              %4 = linear(%0, %1, _) "two": F32[2, 4]
              %5 = relu(%4): F32[2, 4]
              %6 = add(%4, %5): F32[2, 4]
              return %3, %6
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F32[1, 3, 4, 4]
              %1 = parameter "w": F32[3, 3, 3, 3]
              %2 = parameter "v": F32[3, 3, 1, 1]
              %3 = parameter "b": F32[3]
              %4 = conv2d(%0, %1) {padding = [1]} "one": F32[1, 3, 4, 4]
              %5 = conv2d(%0, %2) "two": F32[1, 3, 4, 4]
              %6 = bias_add(%5, %3) {axis = 1} "bias": F32[1, 3, 4, 4]
              %7 = add(%4, %6) "sum": F32[1, 3, 4, 4]
              %8 = relu(%7) "act": F32[1, 3, 4, 4]
              %9 = conv2d(%8, %2, %3) "three": F32[1, 3, 4, 4]
              %10 = silu(%9): F32[1, 3, 4, 4]
              %11 = conv2d(%8, %2) "four": F32[1, 3, 4, 4]
              %12 = add(%11, %11): F32[1, 3, 4, 4]
              %13 = conv2d(%8, %2) "five": F32[1, 3, 4, 4]
              %14 = parameter "rows": F32[4]
              %15 = bias_add(%13, %14) {axis = 2}: F32[1, 3, 4, 4]
              return %10, %12, %15
            }""",
            """
            graph g {
              %0 = input "x": F32[1, 3, 4, 4]
              %1 = parameter "w": F32[3, 3, 3, 3]
              %2 = conv2d(%0, %1) {padding = [1]} "one": F32[1, 3, 4, 4]
              %3 = parameter "v": F32[3, 3, 1, 1]
              %4 = parameter "b": F32[3]
              %5 = conv2d(%0, %3, %4, %2) {activation = "relu"} "act": F32[1, 3, 4, 4]
              %6 = conv2d(%5, %3, %4) {activation = "silu"} "three": F32[1, 3, 4, 4]
              %7 = conv2d(%5, %3) "four": F32[1, 3, 4, 4]
              %8 = add(%7, %7): F32[1, 3, 4, 4]
              %9 = conv2d(%5, %3) "five": F32[1, 3, 4, 4]
              %10 = parameter "rows": F32[4]
              %11 = bias_add(%9, %10) {axis = 2}: F32[1, 3, 4, 4]
              return %6, %8, %11
            }""",
        ),
        (
            "fuse_epilogue",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = input "r": F16[2, 4]
              %2 = parameter "w": F16[4, 3]
              %3 = linear(%0, %2) "fc": F16[2, 4]
              %4 = add(%1, %3): F16[2, 4]
              %5 = relu(%4) "act": F16[2, 4]
              return %5
            }""",
            """
            graph g {
              %0 = input "x": F16[2, 3]
              %1 = input "r": F16[2, 4]
              %2 = parameter "w": F16[4, 3]
              %3 = gemm(%0, %2, _, %1) {trans_b = true, activation = "relu"} "act": F16[2, 4]
              return %3
            }""",
        ),
        (
            "fuse_add_rms_norm",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "r": F32[2, 3]
              %2 = parameter "w": F32[3]
              %3 = add(%0, %1): F32[2, 3]
              %4 = rms_norm(%3, %2) {eps = 0.001} "norm": F32[2, 3]
              %5 = add(%4, %3): F32[2, 3]
              %6 = add(%5, %2): F32[2, 3]
              %7 = rms_norm(%6, _): F32[2, 3]
              return %7
            }""",
            """
            graph g {
              %0 = input "x": F32[2, 3]
              %1 = input "r": F32[2, 3]
              %2 = parameter "w": F32[3]
              %3, %4 = add_rms_norm(%0, %1, %2) {eps = 0.001} "norm": F32[2, 3], F32[2, 3]
              %5 = add(%3, %4): F32[2, 3]
              %6 = add(%5, %2): F32[2, 3]
              %7 = rms_norm(%6, _): F32[2, 3]
              return %7
            }""",
        ),
    ],
)
def test_before_and_after(name, before, wanted):
    assert lines(after(before, name).graph.dump()) == lines(wanted)
    assert lines(after(wanted, name).graph.dump()) == lines(wanted), "once is enough"


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
    m.set({"c.1.running_var": -np.ones(6)})
    with np.errstate(invalid="ignore"):
        kept = run(State(m.graph, m.parameters), "fold_batch_norm")
    assert [op.kind for op in kept.graph.ops].count("batch_norm") == 1


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
    """But for results, and for what is more than four times as large as the parameters that it comes from, however many steps lie between."""
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


def weighted():
    """A layer whose weight is dequantised, cast, joined, scaled and transposed."""
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


def test_a_sum_in_float64_keeps_its_own_norm():
    text = """
        graph g {
          %0 = input "x": F64[2, 3]
          %1 = add(%0, %0): F64[2, 3]
          %2 = rms_norm(%1): F64[2, 3]
          return %2
        }"""
    assert lines(after(text, "fuse_add_rms_norm").graph.dump()) == lines(text)


def heads(mixed="softmax"):
    """Heads split, turned, and put together again, as in attention; and a weight that is used transposed."""
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


def moved(program):
    """Bytes that the program only copies from one place to another."""
    calls = [op for op in program.plan.calls if op.operator.stem == "rearrange"]
    return sum(op.outputs[0].spec.nbytes for op in calls)


@pytest.mark.parametrize(("mixed", "left"), [("softmax", 1), ("tanh", 0)])
def test_layouts_save_copies_and_change_nothing_else(mixed, left, devices):
    graph, random = heads(mixed), np.random.default_rng(8)
    feeds = {v.name: random.standard_normal(v.spec.shape) for v in graph.inputs}
    parameters = {v.name: random.standard_normal(v.spec.shape) for v in graph.parameters}
    for device in devices:
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
    """What asks for something of its operand stays an operator."""
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
