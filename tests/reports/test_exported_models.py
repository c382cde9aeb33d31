"""Test models as exporters and quantisers write them, from public reports of other runtimes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx.parser import parse_model

from isokern.onnx import load
from isokern.status import BadTensorDtype

X = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)


def run(text: str, *feeds: Any, opset: int = 21) -> Any:
    return load(parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> g {text}'), "cpu:0").run(*feeds)


# Sizes and dims


@pytest.mark.parametrize(("scale", "size"), [(0.7, 7), (0.3, 3), (1.1, 11), (0.69, 6)])
def test_a_size_is_the_floor_of_a_product_of_f32(scale: float, size: int) -> None:
    """onnx/onnx#4919: 10 times the F32 0.7 is 7 in ONNX Runtime and PyTorch, and 6.99 in F64."""
    scales = f"s = Constant<value = float[4] {{1.0, 1.0, 1.0, {scale}}}>()"
    text = f'(float[1,1,1,10] x) => (float[1,1,1,n] y) {{ {scales} y = Resize<mode="nearest">(x, , s) }}'
    assert run(text, np.zeros((1, 1, 1, 10), np.float32)).shape == (1, 1, 1, size)


@pytest.mark.parametrize("dim", [-1, "?", "", "-1"])
def test_a_dim_that_is_not_known_is_any(dim: int | str) -> None:
    """Paddle2ONNX#928: -1 for a dynamic dim; each is one for itself."""
    import onnx

    infos = [onnx.helper.make_tensor_value_info(n, 1, [dim, dim]) for n in "xy"]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", infos[:1], infos[1:])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=7)
    model = load(made, "cpu:0")
    for shape in ((1, 2), (3, 1)):
        assert model.run(np.ones(shape, np.float32)).shape == shape


# Operators in forms that are valid


@pytest.mark.parametrize(
    ("attrs", "shape"),
    [
        ("kernel_shape=[2,2], strides=[2,2], ceil_mode=1", (3, 3)),
        ("kernel_shape=[3,2], strides=[2,3], pads=[1,0,1,1], ceil_mode=1", (4, 5)),
        ("kernel_shape=[2,2], strides=[3,3], ceil_mode=1", (4, 6)),
        ("kernel_shape=[2,2], strides=[2,2], dilations=[2,1], ceil_mode=1", (6, 5)),
    ],
)
def test_maxima_with_places_round_up(attrs: str, shape: tuple[int, int]) -> None:
    """onnxruntime#15446: as torch.nn.MaxPool2d(return_indices=True, ceil_mode=True) is exported."""
    x = np.random.default_rng(1).permutation(np.prod(shape)).astype(np.float32).reshape(1, 1, *shape)
    alone = run(f"(float[1,1,h,w] x) => (float[1,1,a,b] y) {{ y = MaxPool<{attrs}>(x) }}", x)
    y, places = run(f"(float[1,1,h,w] x) => (float[1,1,a,b] y, int64[1,1,a,b] i) {{ y, i = MaxPool<{attrs}>(x) }}", x)
    np.testing.assert_array_equal(y, alone)
    np.testing.assert_array_equal(x.reshape(-1)[places], y)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,ij->ij", ((2, 1), (2, 3))),
        ("ij,jk->ik", ((2, 1), (3, 4))),
        ("bij,bjk->bik", ((1, 2, 3), (5, 3, 4))),
        ("i,i->", ((1,), (4,))),
        ("ij->j", ((2, 1),)),
    ],
)
def test_a_dim_of_one_goes_with_any(equation: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    draw = np.random.default_rng(2)
    given = [draw.standard_normal(s).astype(np.float32) for s in shapes]
    names = "ab"[: len(given)]
    infos = ", ".join(f"float[{','.join(map(str, s))}] {n}" for n, s in zip(names, shapes, strict=True))
    rank = len(equation.split("->")[1])
    dims = f"[{','.join('pqr'[:rank])}]" if rank else ""
    text = f'({infos}) => (float{dims} y) {{ y = Einsum<equation="{equation}">({", ".join(names)}) }}'
    sizes: dict[str, int] = {}
    terms = equation.split("->")[0].split(",")
    for term, shape in zip(terms, shapes, strict=True):
        sizes.update((c, max(d, sizes.get(c, 1))) for c, d in zip(term, shape, strict=True))
    wide = [np.broadcast_to(x, [sizes[c] for c in term]) for x, term in zip(given, terms, strict=True)]
    np.testing.assert_allclose(run(text, *given), np.einsum(equation, *wide), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("zero", [False, True])
def test_the_last_block_may_be_short(zero: bool) -> None:
    """AMDMIGraphX#3412: 5 elements in blocks of 2."""
    x, s, z = np.uint8([[1, 2, 3, 4, 5]]), np.float32([[1, 10, 100]]), np.uint8([[1, 0, 2]])
    more, feeds = (", z", [x, s, z]) if zero else ("", [x, s])
    infos = "uint8[1,5] x, float[1,3] s" + (", uint8[1,3] z" if zero else "")
    y = run(f"({infos}) => (float[1,5] y) {{ y = DequantizeLinear<axis=1, block_size=2>(x, s{more}) }}", *feeds)
    at = [0, 0, 1, 1, 2]
    np.testing.assert_array_equal(y, (x.astype(np.float32) - (z[:, at] if zero else 0)) * s[:, at])
    infos = infos.replace("uint8[1,5]", "float[1,5]")
    back = run(f"({infos}) => (uint8[1,5] q) {{ q = QuantizeLinear<axis=1, block_size=2>(x, s{more}) }}", y, *feeds[1:])
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(
    ("op", "wanted"), [("ReduceMean", [1, -2]), ("ReduceL2", [7, 3]), ("ReduceSumSquare", [49, 14])]
)
def test_integers_are_reduced(op: str, wanted: list[int]) -> None:
    """Their mean is cut off towards zero, as by NumPy and ONNX Runtime."""
    x = np.int32([[2, -3, 6], [-1, -2, -3]])
    y = run(f"(int32[2,3] x) => (int32[2] y) {{ a = Constant<value_ints=[1]>() y = {op}<keepdims=0>(x, a) }}", x)
    assert y.tolist() == wanted


def test_a_body_for_each_element_of_a_sequence() -> None:
    import onnx

    helper = onnx.helper
    body = helper.make_graph(
        [helper.make_node("Mul", ["e", "f"], ["o"]), helper.make_node("Neg", ["e"], ["p"])],
        "b",
        [helper.make_tensor_value_info(n, 1, None) for n in "ef"],
        [helper.make_tensor_value_info(n, 1, None) for n in "op"],
    )
    nodes = [
        helper.make_node("SplitToSequence", ["x"], ["q"], axis=0),
        helper.make_node("SequenceMap", ["q", "w"], ["r", "s"], body=body),
        helper.make_node("ConcatFromSequence", ["r"], ["y"], axis=0),
        helper.make_node("ConcatFromSequence", ["s"], ["z"], axis=0),
    ]
    infos = [helper.make_tensor_value_info(n, 1, s) for n, s in (("x", [2, 2]), ("w", [1, 2]))]
    outputs = [helper.make_tensor_value_info(n, 1, [2, 2]) for n in "yz"]
    made = helper.make_model(helper.make_graph(nodes, "g", infos, outputs), opset_imports=[helper.make_opsetid("", 21)])
    made.ir_version = 10
    x, w = np.float32([[1, 2], [3, 4]]), np.float32([[10, 100]])
    y, z = load(made, "cpu:0").run(x, w)
    np.testing.assert_array_equal(y, x * w)
    np.testing.assert_array_equal(z, -x)


@pytest.mark.parametrize("pads", [(7, 9), (0, 12), (4, 0), (1, 2)])
def test_a_pad_goes_round_more_than_once(pads: tuple[int, int]) -> None:
    x = np.float32([[1, 2, 3, 4]])
    p = f"p = Constant<value_ints=[0, {pads[0]}, 0, {pads[1]}]>()"
    y = run(f'(float[1,4] x) => (float[1,n] y) {{ {p} y = Pad<mode="wrap">(x, p) }}', x)
    np.testing.assert_array_equal(y, np.pad(x, ((0, 0), pads), "wrap"))


# Control flow that data decide

IF = """(float[100] x) => (float[100] y) {
  s = ReduceSum<keepdims=0>(x) z = Constant<value = float {0.0}>() c = Greater(s, z)
  y = If(c)<then_branch = t () => (float[100] a) { a = Add(x, x) }, else_branch = e () => (float[100] b) { %s }> }"""


@pytest.mark.parametrize("sign", [1, -1])
def test_a_condition_that_large_inputs_decide(sign: int) -> None:
    """As torch.cond is exported; NaN of the other branch does not show."""
    x = np.full(100, sign, np.float32)
    np.testing.assert_array_equal(run(IF % "b = Neg(x)", x), x + x if sign > 0 else -x)
    y = run(IF % "l = Log(x) b = Mul(l, x)", np.full(100, 2, np.float32))
    np.testing.assert_array_equal(y, np.full(100, 4, np.float32))


def test_a_branch_that_may_fail_runs_only_if_it_is_taken() -> None:
    """Branches of other dims are chosen by the condition alone; a long loop is a graph of its own."""
    reads = "i = Constant<value_ints=[7]>() j = Cast<to=7>(x) b = Gather(x, j)"
    loop = (
        "n = Constant<value_int=30000>() b = Loop(n, , x) <body = l (int64 i, bool c, float[100] p)"
        " => (bool d, float[100] q) { d = Identity(c) k = Cast<to=7>(p) q = Gather(p, k) }>"
    )
    half = "k = Constant<value_ints=[50]>() l = Constant<value_ints=[0]>() b = Slice(x, l, k)"
    up, down = np.ones(100, np.float32), np.full(100, -1, np.float32)
    for body in (reads, loop, half):
        free = (IF % body).replace("(float[100] y)", "(float[n] y)").replace("(float[100] b)", "(float[m] b)")
        np.testing.assert_array_equal(run(free, up), up + up)
        if body is half:
            np.testing.assert_array_equal(run(free, down), down[:50])
        else:
            np.testing.assert_array_equal(run(free, np.full(100, -0.01, np.float32)), np.full_like(up, -0.01))


# Feeds


@pytest.mark.parametrize(
    ("kind", "feed", "message"),
    [
        ("int32", np.int64([2**40 + 5]), "1099511627781 of I64; allowed: INT32: numbers that I32 has"),
        ("uint8", np.int64([-1]), "dtype I64; allowed: UINT8"),
        ("int8", np.int16([-129]), "-129 of I16"),
        ("int64", np.uint64([2**63]), "9223372036854775808 of U64"),
        ("float", np.float64([1e300]), "1e.300 of F64"),
        ("float16", np.float32([65520]), "65520.0 of F32"),
    ],
)
def test_numbers_that_the_type_does_not_have_are_refused(kind: str, feed: Any, message: str) -> None:
    with pytest.raises(BadTensorDtype, match=message):
        run(f"({kind}[1] x) => ({kind}[1] y) {{ y = Identity(x) }}", feed)


@pytest.mark.parametrize(
    ("kind", "feed"),
    [
        ("int32", np.int64([-5])),
        ("float", np.float64([0.1, np.inf, np.nan])[:1]),
        ("float", np.float64([np.inf])),
        ("float", np.int64([3])),
        ("float16", np.float32([65504])),
        ("int64", np.bool_([True])),
    ],
)
def test_other_numbers_of_another_type_are_taken(kind: str, feed: Any) -> None:
    assert run(f"({kind}[1] x) => ({kind}[1] y) {{ y = Identity(x) }}", feed).shape == (1,)
