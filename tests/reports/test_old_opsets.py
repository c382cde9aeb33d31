"""Test that an operator means what its version says: each change of meaning or form before opset 13, and a few later.

The right values are NumPy's words of the definitions in ONNX's `Changelog.md`. In full runs ONNX Runtime computes the
same, for the opsets that it has.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from isokern.onnx import load
from isokern.onnx.importer import handler_of
from isokern.status import InvalidArgument, IsokernError

onnx = pytest.importorskip("onnx")
helper, numpy_helper = onnx.helper, onnx.numpy_helper
X = np.float32([[[1, -2, 3], [4, 5, -6]], [[0.5, 8, 9], [-1, 7, 2]]])  # [2, 2, 3]
POSITIVE = np.abs(X) + 0.5


@dataclass
class Case:
    """A node of an opset: `known` are inputs that are initialisers, by their place."""

    op: str
    opset: int
    inputs: list[Any]
    wanted: Any
    attrs: dict[str, Any] = field(default_factory=dict)
    known: tuple[int, ...] = ()
    peer: bool = True  # whether ONNX Runtime has it, and means the same

    def __str__(self) -> str:
        return f"{self.op}-{self.opset}" + "".join(f"-{k}={v}" for k, v in self.attrs.items()).replace(" ", "")


def ints(*values: int) -> Any:
    return np.int64(values)


def soft(x: Any, axis: int, flat: bool = True) -> Any:
    """Return softmax over all axes from one on, or over one."""
    shape = x.shape
    y = x.reshape(int(np.prod(shape[:axis])), -1) if flat else x
    e = np.exp(y - y.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True)).reshape(shape)


def hard(x: Any, axis: int) -> Any:
    y = x.reshape(int(np.prod(x.shape[:axis])), -1)
    return np.eye(y.shape[1], dtype=np.float32)[y.argmax(1)].reshape(x.shape)


def line(values: Any, count: int, scale: float, mode: str) -> Any:
    """Return a row resized with asymmetric places."""
    at = np.arange(count) / scale
    if mode == "nearest":
        return values[np.floor(at).astype(int)]
    return np.interp(at, np.arange(len(values)), values).astype(np.float32)


LONG = np.arange(21, dtype=np.float32)
ROW = np.float32([[[[0, 1, 2, 3]]]])
W, B, MEAN, VAR = (np.float32(v) for v in ([2, -1], [0.5, 1], [1, 2], [4, 0.25]))


def normal(x: Any, w: Any, b: Any, mean: Any, var: Any) -> Any:
    return (x - mean) / np.sqrt(var + np.float32(1e-5)) * w + b


def column(v: Any) -> Any:
    return v[None, :, None]


SUFFIX, MIDDLE = np.float32([1, 2, 4]), np.float32([3, 5])
EACH = [POSITIVE[0] * n for n in (1, 2, 3, 4)]

CASES = [
    # Broadcasting in one direction, along an axis
    Case("Add", 6, [X, SUFFIX], X + SUFFIX, {"broadcast": 1}),
    Case("Add", 1, [X, MIDDLE], X + MIDDLE[:, None], {"broadcast": 1, "axis": 1}),
    Case("Sub", 6, [X, MIDDLE], X - MIDDLE[:, None], {"broadcast": 1, "axis": -2}),
    Case("Mul", 6, [X, np.float32(3)], X * 3, {"broadcast": 1}),
    Case("Div", 6, [X, X[0] + 20], X / (X[0] + 20), {"broadcast": 1}),
    Case("Pow", 1, [POSITIVE, SUFFIX], POSITIVE**SUFFIX, {"broadcast": 1}),
    Case("Less", 1, [X, MIDDLE], MIDDLE[:, None] > X, {"broadcast": 1, "axis": 1}),
    Case("Equal", 1, [np.int32([[1, 2], [2, 1]]), np.int32([1, 2])], [[True, True], [False, False]], {"broadcast": 1}),
    Case("And", 1, [X > 0, np.bool_([1, 0])], (X > 0) & np.bool_([[1], [0]]), {"broadcast": 1, "axis": 1}),
    Case("Add", 7, [X, MIDDLE[:, None]], X + MIDDLE[:, None]),
    Case("PRelu", 6, [X, MIDDLE], np.where(X < 0, X * MIDDLE[:, None], X)),
    Case("PRelu", 6, [X[..., :2], MIDDLE], np.where(X < 0, X * MIDDLE[:, None], X)[..., :2], peer=False),
    # All axes from one on
    *(Case("Softmax", v, [X], soft(X, 1)) for v in (1, 7, 11, 12)),
    Case("Softmax", 11, [X], soft(X, 2), {"axis": -1}),
    Case("Softmax", 11, [X], soft(X, 0), {"axis": 0}),
    Case("Softmax", 13, [X], soft(X, -1, flat=False)),
    Case("LogSoftmax", 11, [X], np.log(soft(X, 1))),
    Case("Hardmax", 11, [X], hard(X, 1)),
    Case("Hardmax", 1, [X], hard(X, 2), {"axis": 2}),
    # Attributes that became inputs
    Case("Clip", 6, [X], np.clip(X, -1, 4), {"min": -1.0, "max": 4.0}),
    Case("Clip", 6, [X], np.clip(X, None, 4), {"max": 4.0}),
    Case("Clip", 1, [X], X),
    Case("Clip", 11, [X, np.float32(-1)], np.maximum(X, -1)),
    Case("Dropout", 1, [X], X, {"is_test": 1, "ratio": 0.3}),
    Case("Dropout", 7, [X], X, {"ratio": 0.3}),
    Case("Dropout", 10, [X], X),
    Case(
        "Pad",
        1,
        [X],
        np.pad(X, ((0, 0), (1, 0), (0, 2)), constant_values=7),
        {"paddings": [0, 1, 0, 0, 0, 2], "value": 7.0},
    ),
    Case("Pad", 2, [X], np.pad(X, ((0, 0), (1, 0), (0, 2)), "edge"), {"pads": [0, 1, 0, 0, 0, 2], "mode": "edge"}),
    Case("Pad", 11, [X, ints(0, 0, 1, 0, 0, 0)], np.pad(X, ((0, 0), (0, 0), (1, 0))), {}, (1,)),
    Case("Reshape", 1, [X], X.reshape(2, 6), {"shape": [0, -1]}),
    Case("Reshape", 5, [X, ints(3, 4)], X.reshape(3, 4), {}, (1,)),
    Case("Tile", 1, [X, np.float32(2), np.float32(1)], np.tile(X, (1, 2, 1)), {}, (1, 2)),
    Case("Tile", 6, [X, ints(1, 2, 1)], np.tile(X, (1, 2, 1)), {}, (1,)),
    Case("TopK", 1, [X], np.sort(X, -1)[..., ::-1][..., :2], {"k": 2}),
    Case("TopK", 10, [X, ints(1)], X.max(1, keepdims=True), {"axis": 1}, (1,)),
    Case("Slice", 1, [X], X[:, 1:, :2], {"starts": [1, 0], "ends": [9, -1], "axes": [1, 2]}),
    Case("Slice", 9, [X], X[1:], {"starts": [1], "ends": [2]}),
    Case("Slice", 10, [X, ints(2), ints(-9), ints(2), ints(-1)], X[..., ::-1], {}, (1, 2, 3, 4)),
    Case("Split", 2, [X], X[..., :1], {"axis": 2, "split": [1, 2]}),
    Case("Split", 11, [X], X[..., :2], {"axis": -1, "split": [2, 1]}),
    Case("Squeeze", 1, [X[:, :1]], X[:, 0], {"axes": [1]}),
    Case("Squeeze", 11, [X[:, :1]], X[:, 0], {"axes": [-2]}),
    Case("Unsqueeze", 1, [X], X[:, None, :, None], {"axes": [1, 3]}),
    Case("Unsqueeze", 11, [X], X[..., None], {"axes": [-1]}),
    *(
        Case(f"Reduce{name}", v, [POSITIVE], f(POSITIVE), {"axes": [1], "keepdims": 0})
        for name, f in {
            "Sum": lambda x: x.sum(1),
            "Mean": lambda x: x.mean(1),
            "Max": lambda x: x.max(1),
            "Min": lambda x: x.min(1),
            "Prod": lambda x: x.prod(1),
            "L1": lambda x: np.abs(x).sum(1),
            "L2": lambda x: np.sqrt((x * x).sum(1)),
            "LogSum": lambda x: np.log(x.sum(1)),
            "LogSumExp": lambda x: np.log(np.exp(x).sum(1)),
            "SumSquare": lambda x: (x * x).sum(1),
        }.items()
        for v in (1, 11)
    ),
    Case("ReduceSum", 1, [X], X.sum(keepdims=True)),
    Case("ArgMax", 1, [X], X.argmax(2), {"axis": 2, "keepdims": 0}),
    Case("ArgMin", 11, [X], X.argmin(1)[:, None], {"axis": -2}),
    # Types as texts, axes by default
    Case("Cast", 1, [X], X.astype(np.int32), {"to": "INT32"}),
    Case("Cast", 6, [X], X.astype(np.int64), {"to": 7}),
    Case("Concat", 1, [X, X], np.concatenate([X, X], 1)),
    Case("Concat", 4, [X, X], np.concatenate([X, X], 2), {"axis": 2}),
    Case("Flatten", 1, [X], X.reshape(2, 6)),
    Case("Flatten", 9, [X], X.reshape(4, 3), {"axis": 2}),
    Case("GatherND", 11, [X, np.int64([[1, 0]])], X[1:, 0], {}, (1,)),
    Case("Gather", 1, [X, ints(1, 0)], X[:, ::-1], {"axis": 1}),
    Case("Scatter", 9, [X, np.int64([[[1, 0, 0]]]), np.float32([[[7, 8, 9]]])], None, {"axis": 1}),
    Case(
        "DepthToSpace",
        1,
        [np.arange(8, dtype=np.float32).reshape(1, 4, 1, 2)],
        np.float32([[[[0, 2, 1, 3], [4, 6, 5, 7]]]]),
        {"blocksize": 2},
    ),
    Case(
        "SpaceToDepth",
        1,
        [np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)],
        np.float32([[[[0]], [[1]], [[2]], [[3]]]]),
        {"blocksize": 2},
    ),
    # Places of a resized image
    *(
        Case(
            op,
            v,
            [ROW, *given],
            line(np.float32([0, 1, 2, 3]), 8, 2, mode)[None, None, None],
            {"mode": mode, **attrs},
            (1,),
        )
        for mode in ("nearest", "linear")
        for op, v, given, attrs in [
            ("Upsample", 7, [], {"scales": [1.0, 1.0, 1.0, 2.0]}),
            ("Upsample", 9, [np.float32([1, 1, 1, 2])], {}),
            ("Resize", 10, [np.float32([1, 1, 1, 2])], {}),
        ]
    ),
    Case("Upsample", 1, [ROW], np.repeat(ROW, 2, 3), {"height_scale": 1.0, "width_scale": 2.0, "mode": "nearest"}),
    Case(
        "Upsample",
        1,
        [ROW],
        line(ROW.reshape(-1), 8, 2, "linear")[None, None, None],
        {"height_scale": 1.0, "width_scale": 2.0, "mode": "bilinear"},
    ),
    Case(
        "Resize",
        11,
        [ROW, np.float32([]), np.float32([1, 1, 1, 2])],
        np.float32([[[[0, 0, 1, 1, 2, 2, 3, 3]]]]),
        {"coordinate_transformation_mode": "tf_half_pixel_for_nn", "nearest_mode": "floor"},
        (1, 2),
    ),
    # An axis that shrinks reads the element behind a place, and the places of version 11 are F32: 1 / 0.1 is 10
    Case("Resize", 10, [ROW, np.float32([1, 1, 1, 0.6])], np.float32([[[[0, 2]]]]), {}, (1,)),
    Case(
        "Resize",
        11,
        [LONG, np.float32([]), np.float32([0.1])],
        LONG[::10][:2],
        {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
        (1, 2),
    ),
    Case(
        "Resize",
        13,
        [ROW, np.float32([]), np.float32([1, 1, 1, 0.3])],
        np.float32([[[[0]]]]),
        {"coordinate_transformation_mode": "pytorch_half_pixel", "mode": "cubic"},
        (1, 2),
    ),
    # A backward slice from before the first element begins at that one
    Case("Slice", 10, [X, ints(-9), ints(-99), ints(2), ints(-1)], X[..., :1], {}, (1, 2, 3, 4)),
    # Integers, and a window of one element
    Case("PRelu", 16, [np.int64([-3, 2]), np.int64([2, 5])], np.int64([-6, 2]), peer=False),
    Case("Shrink", 9, [np.int32([-3, 0, 2])], np.int32([-1, 0, 0]), {"lambd": 1.5, "bias": 1.9}),
    Case("HannWindow", 17, [np.int64(1)], np.float32([0]), {}, (0,)),
    Case("NonZero", 13, [np.float32(3)], np.zeros((0, 1), np.int64), peer=False),
    # Normalisation
    *(
        Case("BatchNormalization", v, [X, W, B, MEAN, VAR], normal(X, *map(column, (W, B, MEAN, VAR))), a)
        for v, a in [
            (1, {"is_test": 1, "consumed_inputs": [0, 0, 0, 1, 1]}),
            (6, {"is_test": 1}),
            (7, {}),
            (9, {}),
            (14, {}),
        ]
    ),
    *(
        Case(
            "BatchNormalization",
            v,
            [X, *(np.stack([t] * 3, 1).reshape(-1) if v < 7 else np.stack([t] * 3, 1) for t in (W, B, MEAN, VAR))],
            normal(X, *map(column, (W, B, MEAN, VAR))),
            {"spatial": 0, **a},
            peer=False,
        )
        for v, a in [(6, {"is_test": 1}), (7, {})]
    ),
    Case("InstanceNormalization", 1, [X, W, B], None),
    Case("GroupNormalization", 18, [np.concatenate([X, X + 1], 1), W, B], None, {"num_groups": 2}, peer=False),
    # Sums of several
    *(
        Case(op, v, EACH, f(EACH))
        for v in (1, 6, 8)
        for op, f in [
            ("Sum", sum),
            ("Max", lambda e: np.max(e, 0)),
            ("Min", lambda e: np.min(e, 0)),
            ("Mean", lambda e: np.mean(e, 0)),
        ]
    ),
    # Products
    *(
        Case(
            "Gemm",
            v,
            [X[0], X[1].T.copy(), MIDDLE],
            X[0] @ X[1].T * 0.5 + 2 * MIDDLE,
            {"alpha": 0.5, "beta": 2.0, **({"broadcast": 1} if v < 7 else {})},
        )
        for v in (1, 6, 7, 9, 11)
    ),
    # Pools
    Case("AveragePool", 1, [X], (X[..., :2] + X[..., 1:]) / 2, {"kernel_shape": [2]}),
    Case("MaxPool", 1, [X], np.maximum(X[..., :2], X[..., 1:]), {"kernel_shape": [2]}),
    Case("MaxPool", 8, [X], np.maximum(X[..., :2], X[..., 1:]), {"kernel_shape": [2]}),
    Case("LpPool", 1, [X], np.sqrt(X[..., :2] ** 2 + X[..., 1:] ** 2), {"kernel_shape": [2], "p": 2.0}),
    Case("GlobalLpPool", 1, [X], np.sqrt((X * X).sum(2, keepdims=True)), {"p": 2.0}),
    # Factors by default
    Case("Selu", 1, [X], np.where(X > 0, X, 1.6732 * (np.exp(X) - 1)) * 1.0507),
    Case("Elu", 1, [X], np.where(X > 0, X, np.exp(X) - 1)),
    Case("LeakyRelu", 1, [X], np.where(X > 0, X, np.float32(0.01) * X)),
    Case("HardSigmoid", 1, [X], np.clip(0.2 * X + 0.5, 0, 1)),
    Case(
        "QuantizeLinear",
        10,
        [X, np.float32(0.5), np.uint8(10)],
        np.clip(np.rint(X / 0.5) + 10, 0, 255).astype(np.uint8),
    ),
    Case("DequantizeLinear", 10, [np.uint8([3, 9]), np.float32(0.5), np.uint8(4)], np.float32([-0.5, 2.5])),
]


def build(case: Case) -> tuple[Any, dict[str, Any]]:
    """Return the model of one node, and its feeds."""
    names = [f"i{n}" if np.size(x) or n in case.known else "" for n, x in enumerate(case.inputs)]
    count = max(schema_of(case).min_output, 2 if case.op == "Split" else 1)
    node = helper.make_node(case.op, names, [f"o{n}" for n in range(count)], **case.attrs)
    arrays = dict(zip(names, map(np.asarray, case.inputs), strict=True))
    known = [numpy_helper.from_array(arrays[f"i{n}"], f"i{n}") for n in case.known if n < len(names)]
    feeds = {n: a for n, a in arrays.items() if n and n not in {t.name for t in known}}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in feeds.items()
    ]
    kind = helper.np_dtype_to_tensor_dtype(np.asarray(case.wanted).dtype) if case.wanted is not None else 1
    outputs = [helper.make_tensor_value_info("o0", kind, None)]
    graph = helper.make_graph([node], "g", infos, outputs, known)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=7), feeds


def schema_of(case: Case) -> Any:
    return onnx.defs.get_schema(case.op, case.opset, "")


def expected(case: Case) -> Any:
    if case.op == "Scatter":
        return np.concatenate([np.float32([[[1, 8, 9], [7, 5, -6]]]), X[1:]])
    if case.op == "InstanceNormalization":
        return normal(X, column(W), column(B), X.mean(2, keepdims=True), X.var(2, keepdims=True))
    if case.op == "GroupNormalization":
        x = case.inputs[0].reshape(2, 2, -1)
        y = (x - x.mean(2, keepdims=True)) / np.sqrt(x.var(2, keepdims=True) + 1e-5)
        return (y * column(W) + column(B)).reshape(case.inputs[0].shape)
    return np.asarray(case.wanted)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_operator_means_what_its_version_says(case: Case) -> None:
    model, feeds = build(case)
    found = load(model, "cpu:0").run(feeds)
    np.testing.assert_allclose(found, expected(case), rtol=2e-6, atol=2e-6)


@pytest.mark.full
@pytest.mark.parametrize("case", [c for c in CASES if c.peer and c.opset >= 7], ids=str)
def test_onnx_runtime_means_the_same(case: Case) -> None:
    runtime = pytest.importorskip("onnxruntime")
    runtime.set_default_logger_severity(4)
    model, feeds = build(case)
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, feeds)[0], expected(case), rtol=2e-6, atol=2e-6)


def test_each_operator_has_its_versions_here() -> None:
    """Of every operator that changed before version 13 and that we read there is a case of an old version."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if s.domain == "" and not s.deprecated]
    history: dict[str, list[int]] = {}
    for schema in schemas:
        history.setdefault(schema.name, []).append(schema.since_version)
    changed = {
        name
        for name, versions in history.items()
        if handler_of(name, "") and len([v for v in versions if v <= 13]) > 1 and _forms(name, versions) > 1
    }
    lacking = changed - {case.op for case in CASES} - ELSEWHERE
    assert lacking == set()


# Of these the versions differ in types alone, in ways that a later one contains, or in what other tests have
ELSEWHERE = {"Constant", "Conv", "ConvTranspose", "GRU", "LSTM", "RNN", "Or", "Xor", "Greater"}


def _forms(name: str, versions: list[int]) -> int:
    """Return how many different sets of attributes and inputs an operator has had up to version 13."""
    forms = set()
    for version in versions:
        if version <= 13:
            schema = onnx.defs.get_schema(name, version, "")
            attributes = [
                (k, str(a.default_value)) for k, a in sorted(schema.attributes.items()) if k != "consumed_inputs"
            ]
            forms.add((tuple(attributes), tuple(i.name for i in schema.inputs)))
    return len(forms)


@pytest.mark.parametrize("opset", [6, 11])
def test_functions_and_loops_have_versions_of_their_own(opset: int) -> None:
    """A function of opset 11 in a model of opset 21 takes all axes from one on, also within a loop."""
    step = helper.make_graph(
        [helper.make_node("Softmax", ["before"], ["after"]), helper.make_node("Identity", ["go"], ["on"])],
        "step",
        [helper.make_tensor_value_info(n, k, s) for n, k, s in (("i", 7, []), ("go", 9, []), ("before", 1, None))],
        [helper.make_tensor_value_info(n, k, s) for n, k, s in (("on", 9, []), ("after", 1, None))],
    )
    nodes = [helper.make_node("Loop", ["n", "", "x"], ["y"], body=step)]
    function = helper.make_function("d", "F", ["x", "n"], ["y"], nodes, [helper.make_opsetid("", max(opset, 11))])
    infos = [helper.make_tensor_value_info("x", 1, [2, 2, 3])]
    call = [helper.make_node("F", ["x", "n"], ["t"], domain="d"), helper.make_node("Softmax", ["t"], ["y"])]
    graph = helper.make_graph(
        call, "g", infos, [helper.make_tensor_value_info("y", 1, None)], [numpy_helper.from_array(np.int64(2), "n")]
    )
    versions = [helper.make_opsetid("", 21), helper.make_opsetid("d", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10, functions=[function])
    wanted = soft(soft(soft(X, 1), 1), -1, flat=False)
    np.testing.assert_allclose(load(model, "cpu:0").run(X), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "opset", "inputs", "attrs"),
    [
        ("Add", 6, [X, SUFFIX], {}),
        ("Add", 6, [X, MIDDLE], {"broadcast": 1}),
        ("Add", 1, [SUFFIX, X], {"broadcast": 1}),
        ("Add", 1, [X, SUFFIX], {"broadcast": 1, "axis": 5}),
        ("Softmax", 11, [X], {"axis": 4}),
        ("Tile", 1, [X, np.float32(2), np.float32(7)], {}),
        ("Cast", 1, [X], {"to": "NOTHING"}),
        ("Upsample", 7, [ROW], {"scales": [1.0, 1.0]}),
    ],
    ids=str,
)
def test_what_an_old_version_refuses(op: str, opset: int, inputs: list[Any], attrs: dict[str, Any]) -> None:
    case = Case(op, opset, inputs, X, attrs, (1, 2) if op == "Tile" else ())
    with pytest.raises(IsokernError):
        load(build(case)[0], "cpu:0")


@pytest.mark.parametrize("opset", [0, -1, 99, 1 << 40])
def test_opsets_that_there_are_not(opset: int) -> None:
    model, _ = build(Case("Relu", 13, [X], X))
    model.opset_import[0].version = opset
    with pytest.raises(InvalidArgument, match=r"opset|opset_import|Opset|version"):
        load(model, "cpu:0")
