"""Test ensembles of trees of ai.onnx.ml: drawn ones against ONNX Runtime, ties, NaN, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx", reason="ONNX is not installed: pip install onnx")

from onnx import TensorProto, numpy_helper
from runtime_peer import ML, assert_same, feeds, make, ours, theirs

from isokern.onnx import UnsupportedModel
from isokern.onnx.forests import COMPARISONS
from isokern.status import InvalidArgument

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
GRID = np.arange(-3, 4, dtype=np.float32) / 2  # of features and of splits, so that many are equal


def draw_trees(draw: np.random.Generator, trees: int, depth: int, features: int, modes: list[str]) -> tuple[Any, Any]:
    """Return the attributes of nodes, and (tree, node) of each leaf. Nodes are in a drawn order behind their root."""
    columns: dict[str, list[Any]] = {
        n: [] for n in ("treeids", "nodeids", "modes", "featureids", "values", "truenodeids", "falsenodeids", "missing")
    }
    leaves = []

    def enter(tree: int, node: int, mode: str, yes: int = 0, no: int = 0) -> None:
        row = (tree, node, mode, int(draw.integers(features)), float(draw.choice(GRID)), yes, no, int(draw.integers(2)))
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)

    for tree in range(trees):
        free, waiting = 1, [(0, 0)]
        while waiting:
            node, level = waiting.pop(int(draw.integers(len(waiting))) if node_count(waiting) else 0)
            if level < depth and (draw.random() < 0.8 or not level):
                enter(tree, node, str(draw.choice(modes)), free, free + 1)
                waiting += [(free, level + 1), (free + 1, level + 1)]
                free += 2
            else:
                enter(tree, node, "LEAF")
                leaves.append((tree, node))
    missing = columns.pop("missing")
    attrs = {f"nodes_{name}": column for name, column in columns.items()}
    return attrs | {"nodes_missing_value_tracks_true": missing}, leaves


def node_count(waiting: list[Any]) -> int:
    """Return how many nodes wait, once the root is entered."""
    return len(waiting) if waiting[0] != (0, 0) else 0


def draw_rows(draw: np.random.Generator, rows: int, features: int, dtype: Any = np.float32) -> Any:
    """Return features that often equal a split, and some that are NaN or infinite."""
    x = draw.choice(GRID, (rows, features))
    if np.dtype(dtype).kind == "f":
        x[draw.random(x.shape) < 0.15] = np.nan
        x[draw.random(x.shape) < 0.05] = np.inf
    return x.astype(dtype)


def draw_weights(
    draw: np.random.Generator, kind: str, leaves: Any, targets: list[int], positive: bool, every: bool
) -> Any:
    """Return the attributes of weights: of every target in each leaf, or of one that is drawn."""
    told = [(t, n, c) for t, n in leaves for c in (targets if every else [int(draw.choice(targets))])]
    weights = draw.normal(size=len(told)).astype(np.float32)
    columns = zip(*told, strict=True)
    attrs = {f"{kind}_{name}": list(c) for name, c in zip(("treeids", "nodeids", "ids"), columns, strict=True)}
    return attrs | {f"{kind}_weights": [float(w) for w in (np.abs(weights) / 4 if positive else weights)]}


MODES = [["BRANCH_LEQ"], ["BRANCH_LT"], ["BRANCH_GTE"], ["BRANCH_GT"], ["BRANCH_EQ"], ["BRANCH_NEQ"], list(COMPARISONS)]


@pytest.mark.parametrize("seed", range(60))
def test_a_regressor(seed: int) -> None:
    draw = np.random.default_rng(seed)
    targets = int(draw.choice([1, 1, 3]))
    attrs, leaves = draw_trees(draw, int(draw.integers(1, 6)), int(draw.integers(0, 5)), 3, MODES[seed % len(MODES)])
    every = targets == 1 or seed % 2 == 0
    attrs |= draw_weights(draw, "target", leaves, list(range(targets)), False, every)
    if draw.random() < 0.5 and every:  # ONNX Runtime leaves out the base value of a target that no leaf of a row names
        attrs["base_values"] = [float(v) for v in draw.normal(size=targets)]
    if draw.random() < 0.3:
        del attrs["nodes_missing_value_tracks_true"]
    attrs["aggregate_function"] = str(draw.choice(["SUM", "AVERAGE", "MIN", "MAX"]))
    attrs["post_transform"] = str(draw.choice(["NONE", "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]))
    x = draw_rows(draw, 17, 3)
    assert_same(make("TreeEnsembleRegressor", ML, [x], [FLOAT], n_targets=targets, **attrs), feeds([x]))


@pytest.mark.parametrize("seed", range(80))
def test_a_classifier(seed: int) -> None:
    draw = np.random.default_rng(1000 + seed)
    classes = int(draw.choice([2, 3, 5]))
    attrs, leaves = draw_trees(draw, int(draw.integers(1, 6)), int(draw.integers(0, 5)), 3, MODES[seed % len(MODES)])
    named = list(range(classes)) if classes > 2 else [int(draw.choice([0, 0, 1]))]
    attrs |= draw_weights(draw, "class", leaves, named, bool(draw.integers(2)), seed % 2 == 0)
    if draw.random() < 0.4 and named != [1]:
        attrs["base_values"] = [float(v) for v in draw.normal(size=classes if classes > 2 else 1)]
    attrs["classlabels_int64s"] = [int(v) for v in draw.permutation(classes) * 3 - 4]
    attrs["post_transform"] = str(draw.choice(["NONE", "NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"]))
    x = draw_rows(draw, 17, 3, draw.choice([np.float32, np.float32, np.int64]))
    assert_same(make("TreeEnsembleClassifier", ML, [x], [INT64, FLOAT], **attrs), feeds([x]))


STUMP = {
    "nodes_treeids": [0, 0, 0],
    "nodes_nodeids": [0, 1, 2],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"],
    "nodes_featureids": [0, 0, 0],
    "nodes_values": [0.5, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0],
    "nodes_falsenodeids": [2, 0, 0],
}


def stump(**more: Any) -> dict[str, Any]:
    """Return the attributes of a regressor: 1 up to 0.5, and 2 above."""
    weights = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0]}
    return {**STUMP, **weights, "n_targets": 1, **more}


def test_the_border_belongs_to_the_side_that_its_mode_says() -> None:
    x = np.float32([[0.5], [np.nextafter(np.float32(0.5), 1, dtype=np.float32)], [-0.0], [np.nan]])
    for mode, right in [("BRANCH_LEQ", [1, 2, 1, 2]), ("BRANCH_LT", [2, 2, 1, 2]), ("BRANCH_GT", [2, 1, 2, 2])]:
        made = make("TreeEnsembleRegressor", ML, [x], [FLOAT], **stump(nodes_modes=[mode, "LEAF", "LEAF"]))
        np.testing.assert_array_equal(ours(made, feeds([x]))[0][:, 0], right)


def test_equal_votes_are_equal_scores(devices: Any) -> None:
    """Two classes have the same votes from other trees: in any order they are the same score, and the first wins."""
    draw, x = np.random.default_rng(3), np.zeros((1, 1), np.float32)
    weights = [float(w) for w in draw.uniform(0, 1, 9).astype(np.float32)] * 2
    found = set()
    for n in range(10):
        order = draw.permutation(18)
        attrs: dict[str, Any] = {name: column * 18 for name, column in STUMP.items()}
        attrs |= {"nodes_treeids": [t for t in range(18) for _ in range(3)], "class_nodeids": [1, 2] * 18}
        attrs |= {"class_treeids": [t for t in range(18) for _ in range(2)]}
        attrs |= {"class_ids": [int(v) // 9 for v in order for _ in range(2)]}
        attrs |= {"class_weights": [weights[v] for v in order for _ in range(2)], "classlabels_int64s": [7, 8, 9]}
        made = make("TreeEnsembleClassifier", ML, [x], [INT64, FLOAT], **attrs)
        label, scores = ours(made, feeds([x]), devices[n % len(devices)])
        assert label.tolist() == [7]
        found |= set(scores[0, :2].tolist())
    assert found == {float(np.float32(sum(np.float64(w) for w in weights[:9])))}


def test_leaves_that_name_both_of_two_classes_give_the_label_of_the_larger() -> None:
    """As ONNX says; ONNX Runtime gives 1 where the second is above 0, and 0 elsewhere, which need not be labels."""
    x = np.float32([[0], [1]])
    attrs = {**STUMP, "class_treeids": [0] * 4, "class_nodeids": [1, 1, 2, 2], "class_ids": [0, 1, 0, 1]}
    attrs |= {"class_weights": [0.75, 0.25, 0.125, 0.875], "classlabels_int64s": [5, 9]}
    label, scores = ours(make("TreeEnsembleClassifier", ML, [x], [INT64, FLOAT], **attrs), feeds([x]))
    assert label.tolist() == [5, 9]
    assert scores.tolist() == [[0.75, 0.25], [0.125, 0.875]]


def test_doubles_are_compared_as_doubles() -> None:
    tensors = {"nodes_values": np.float64([0.1, 0, 0]), "target_weights": np.float64([1, 2])}
    attrs = stump() | {f"{n}_as_tensor": numpy_helper.from_array(v) for n, v in tensors.items()}
    del attrs["nodes_values"], attrs["target_weights"]
    x = np.array([[0.1], [np.nextafter(0.1, 1)], [np.float64(np.float32(0.1))]])
    wanted = assert_same(make("TreeEnsembleRegressor", ML, [x], [FLOAT], **attrs), feeds([x]))
    assert wanted[0][:, 0].tolist() == [1, 2, 2]


def test_a_vector_is_one_row_and_no_rows_are_none() -> None:
    for x, rows in ((np.float32([1, 2]), 1), (np.zeros((0, 2), np.float32), 0)):
        made = make("TreeEnsembleRegressor", ML, [x], [FLOAT], **stump())
        assert ours(made, feeds([x]))[0].shape == (rows, 1)


def test_scores_of_other_sizes_on_every_device(devices: Any) -> None:
    draw = np.random.default_rng(5)
    attrs, leaves = draw_trees(draw, 4, 3, 3, ["BRANCH_LT"])
    attrs |= draw_weights(draw, "class", leaves, [0, 1, 2], False, True) | {"classlabels_int64s": [0, 1, 2]}
    x = draw_rows(draw, 9, 3)
    made = make("TreeEnsembleClassifier", ML, [x], [INT64, FLOAT], **attrs)
    first = ours(made, feeds([x]), devices[0])
    for device in devices[1:]:
        for y, right in zip(ours(made, feeds([x]), device), first, strict=True):
            np.testing.assert_array_equal(y, right)  # sums of leaves are exact


@pytest.mark.parametrize(
    ("attrs", "error", "match"),
    [
        ({"nodes_featureids": [4, 0, 0]}, InvalidArgument, "feature 4"),
        ({"nodes_truenodeids": [7, 0, 0]}, InvalidArgument, "child that is not there"),
        ({"nodes_truenodeids": [0, 0, 0]}, InvalidArgument, "below itself"),
        ({"nodes_nodeids": [0, 1, 1]}, InvalidArgument, "given twice"),
        ({"nodes_modes": ["BRANCH_XOR", "LEAF", "LEAF"]}, InvalidArgument, "BRANCH_XOR"),
        ({"nodes_values": [0.5]}, InvalidArgument, "1 of nodes_values"),
        ({"target_nodeids": [0, 2]}, InvalidArgument, "not a leaf"),
        ({"target_ids": [0, 1]}, InvalidArgument, "target 1"),
        ({"target_weights": [1.0]}, InvalidArgument, "1 of target_weights"),
        ({"base_values": [1.0, 2.0]}, UnsupportedModel, "2 base values"),
        ({"aggregate_function": "MEDIAN"}, InvalidArgument, "MEDIAN"),
        ({"post_transform": "TANH"}, InvalidArgument, "TANH"),
    ],
)
def test_trees_that_are_none(attrs: dict[str, Any], error: type[Exception], match: str) -> None:
    x = np.zeros((2, 2), np.float32)
    with pytest.raises(error, match=match):
        ours(make("TreeEnsembleRegressor", ML, [x], [FLOAT], **stump(**attrs)), feeds([x]))


# TreeEnsemble of version 5


def draw_ensemble(draw: np.random.Generator, modes: list[int], targets: int, dtype: Any) -> dict[str, Any]:
    """Return the attributes of a node: trees, which have at least one comparison, and sets for tests of members."""
    columns: dict[str, list[Any]] = {
        n: [] for n in ("featureids", "splits", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs")
    }
    roots, members, leaves = [], [], 0
    for _ in range(int(draw.integers(1, 5))):
        roots.append(len(columns["modes"]))
        waiting = [(-1, "")]
        while waiting:
            parent, side = waiting.pop(0)
            n, mode = len(columns["modes"]), int(draw.choice(modes))
            if side:
                columns[f"{side}nodeids"][parent] = n
            row = (int(draw.integers(3)), float(draw.choice(GRID)), mode, 0, 0, 0, 0)
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
            if mode == 6:
                members += [*draw.choice(np.arange(1, 7), int(draw.integers(1, 4)), replace=False), np.nan]
            for child in ("true", "false"):
                if draw.random() < 0.4:
                    waiting.append((n, child))
                else:
                    columns[f"{child}leafs"][n], columns[f"{child}nodeids"][n] = 1, leaves
                    leaves += 1
    attrs: dict[str, Any] = {f"nodes_{name}": column for name, column in columns.items()}
    tensors = {"nodes_splits": np.array(columns["splits"], dtype), "nodes_modes": np.array(columns["modes"], np.uint8)}
    tensors["leaf_weights"] = draw.normal(size=leaves).astype(dtype)
    if members:
        tensors["membership_values"] = np.array(members, dtype)
    attrs |= {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    attrs["nodes_missing_value_tracks_true"] = [int(v) for v in draw.integers(0, 2, len(columns["modes"]))]
    attrs |= {"tree_roots": roots, "n_targets": targets}
    return attrs | {"leaf_targetids": [int(v) for v in draw.integers(0, targets, leaves)]}


@pytest.mark.parametrize("seed", range(50))
def test_an_ensemble_with_leaves_of_its_own(seed: int) -> None:
    draw = np.random.default_rng(seed)
    dtype = draw.choice([np.float32, np.float32, np.float64])
    modes = [[0], [1], [2], [3], [4], [5], [0, 1, 2, 3, 4, 5], [6], [0, 6]][seed % 9]
    attrs = draw_ensemble(draw, modes, int(draw.choice([1, 1, 3])), dtype)
    attrs["aggregate_function"] = int(draw.integers(4))
    x = draw_rows(draw, 15, 3, dtype)
    if 6 in modes:
        x = draw.integers(0, 7, (15, 3)).astype(dtype)
    kind, transform = FLOAT if dtype == np.float32 else TensorProto.DOUBLE, int(draw.choice([0, 0, 1, 2, 3]))
    theirs_ = {1: 2, 2: 1}.get(
        transform, transform
    )  # ONNX Runtime takes softmax for logistic, and logistic for softmax
    models = [
        make("TreeEnsemble", ML, [x], [kind], (), {ML: 5}, post_transform=n, **attrs) for n in (transform, theirs_)
    ]
    (got,), (wanted,) = ours(models[0], feeds([x])), theirs(models[1], feeds([x]))
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    np.testing.assert_allclose(got, wanted, 2e-5, 2e-5)


@pytest.mark.parametrize(
    ("attrs", "match"),
    [
        ({"tree_roots": [99]}, "root 99"),
        ({"aggregate_function": 4}, "aggregate_function 4"),
        ({"post_transform": 5}, "post_transform 5"),
        ({"leaf_targetids": [0]}, "of leaf_weights"),
        ({"nodes_modes": numpy_helper.from_array(np.uint8([6, 6]), "m")}, "sets of membership_values"),
        ({"nodes_modes": numpy_helper.from_array(np.uint8([7, 0]), "m")}, "mode 7"),
        ({"nodes_truenodeids": [1, 0], "nodes_trueleafs": [0, 0]}, "below itself"),
    ],
)
def test_an_ensemble_that_is_none(attrs: dict[str, Any], match: str) -> None:
    x, usual = np.zeros((2, 1), np.float32), {"nodes_featureids": [0, 0], "tree_roots": [0], "n_targets": 1}
    usual |= {"nodes_truenodeids": [1, 0], "nodes_trueleafs": [0, 1], "nodes_falsenodeids": [1, 2]}
    usual |= {"nodes_falseleafs": [1, 1], "leaf_targetids": [0, 0, 0]}
    tensors = {
        "nodes_splits": np.float32([1, 2]),
        "nodes_modes": np.uint8([0, 0]),
        "leaf_weights": np.float32([1, 2, 3]),
    }
    usual |= {name: numpy_helper.from_array(array, name) for name, array in tensors.items()}
    with pytest.raises(InvalidArgument, match=match):
        ours(make("TreeEnsemble", ML, [x], [FLOAT], (), {ML: 5}, **usual | attrs), feeds([x]))


def test_probit_is_the_inverse_of_the_normal_distribution() -> None:
    """ONNX Runtime approximates it by a formula that is right to three digits."""
    x = np.float32([[0], [1]])
    attrs = stump(post_transform="PROBIT", target_weights=[0.25, 0.975])
    made = make("TreeEnsembleRegressor", ML, [x], [FLOAT], **attrs)
    np.testing.assert_allclose(ours(made, feeds([x]))[0][:, 0], [-0.6744898, 1.959964], 1e-5)
    np.testing.assert_allclose(theirs(made, feeds([x]))[0][:, 0], [-0.6744898, 1.959964], 1e-2)
