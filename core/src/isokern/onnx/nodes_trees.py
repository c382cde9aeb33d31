"""Nodes of ai.onnx.ml that are ensembles of trees: sums, averages, least or greatest leaves of all trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import F32, F64, I64, DType
from ..status import InvalidArgument, quote
from .elements import Array
from .forests import COMPARISONS, Forest, add_leaves, build_forest, find_leaves
from .node import Handler, Node, Operand, Output, dtype_of
from .scores import (
    TRANSFORMS,
    add_second_class,
    column,
    pick_label,
    pick_of_two,
    read_labels,
    read_rows,
    read_transform,
    transform,
)

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")  # as TreeEnsemble numbers them


# What the attributes say


def _numbers(node: Node, name: str) -> list[float]:
    """Return an attribute of floats, or the tensor that newer versions have in its place."""
    tensor = node.attrs.get(f"{name}_as_tensor")
    found: list[float] = (node.attrs.get(name) or []) if tensor is None else tensor.reshape(-1).tolist()
    return found


def _columns(node: Node, names: Sequence[str], columns: Sequence[Sequence[Any]]) -> None:
    """Raise InvalidArgument unless attributes have as many elements as the first of them."""
    for name, column_ in zip(names, columns, strict=True):
        if len(column_) != len(columns[0]):
            given, allowed = f"{len(column_)} of {name}", f"{len(columns[0])}, as of {names[0]}"
            raise InvalidArgument(node.op_type, given, allowed=allowed)


def _read_forest(node: Node, kind: str, targets: int, reduce: str) -> Forest:
    """Return the trees of a classifier (`kind` class) or a regressor (target)."""
    names = ["treeids", "nodeids", "modes", "featureids", "truenodeids", "falsenodeids"]
    columns = [list(node.attrs.get(f"nodes_{n}") or []) for n in names] + [_numbers(node, "nodes_values")]
    _columns(node, [f"nodes_{n}" for n in (*names, "values")], columns)
    trees, nodes, modes, features, true, false, splits = columns
    tracks = list(node.attrs.get("nodes_missing_value_tracks_true") or []) or [0] * len(trees)
    _columns(node, ["nodes_treeids", "nodes_missing_value_tracks_true"], [trees, tracks])
    keys = list(zip(trees, nodes, strict=True))
    if len(set(keys)) != len(keys):
        raise InvalidArgument(node.op_type, "a node of a tree is given twice", allowed="each once")
    rows = zip(keys, modes, true, false, features, splits, tracks, strict=True)
    branches = {
        key: ((key[0], yes), (key[0], no), feature, split, mode, bool(lost))
        for key, mode, yes, no, feature, split, lost in rows
        if mode != "LEAF"
    }
    names = [f"{kind}_{n}" for n in ("treeids", "nodeids", "ids")]
    given = [list(node.attrs.get(n) or []) for n in names] + [_numbers(node, f"{kind}_weights")]
    _columns(node, [*names, f"{kind}_weights"], given)
    weights: dict[Any, list[tuple[int, float]]] = {}
    for tree, place, target, weight in zip(*given, strict=True):
        weights.setdefault((tree, place), []).append((target, weight))
    roots = [key for n, key in enumerate(keys) if not n or trees[n - 1] != trees[n]]
    return build_forest(node.op_type, keys, roots, branches, weights, targets, reduce)


def _read_bases(node: Node, *counts: int) -> Array:
    """Return the base values, of which there may be some numbers or none."""
    found = np.asarray(_numbers(node, "base_values"))
    if found.size not in (0, *counts):
        raise node.refuse(f"{found.size} base values", f"none, or {' or '.join(map(str, counts))}")
    return found


# Leaves to scores


def aggregate(node: Node, at: Operand, forest: Forest, how: str, dtype: DType) -> Operand:
    """Return the scores of all targets [rows, targets]; one that no leaf names is 0."""
    if how in ("SUM", "AVERAGE"):
        total = add_leaves(node, at, forest.weights, dtype)
        return node.emit("div_scalar", total, value=float(len(forest.roots))) if how == "AVERAGE" else total
    absent = np.inf if how == "MIN" else -np.inf
    table = np.where(forest.has, forest.weights, absent).astype(dtype.numpy)
    found = node.emit(f"reduce_{how.lower()}", node.emit("gather", table, at, axis=0), axes=(1,), keepdims=False)
    if forest.has.all():
        return found
    return node.emit("where", node.emit("equal", found, node.full((), absent, dtype)), node.full((), 0, dtype), found)


def _begin(node: Node) -> tuple[Operand, DType]:
    """Return the rows of features, and the dtype in which they are compared."""
    dtype = F64 if dtype_of(node.x()) is F64 else F32
    return node.cast(read_rows(node), dtype), dtype


def regressor(node: Node) -> Output:
    """Return the scores of the targets."""
    how, targets = str(node.attrs.get("aggregate_function", "SUM")), int(node.attrs.get("n_targets", 1))
    if how not in AGGREGATES or targets < 1:
        given = f"aggregate_function {quote(how)} of {targets} targets"
        raise InvalidArgument(node.op_type, given, allowed=f"{', '.join(AGGREGATES)} of 1 or more")
    forest, bases = _read_forest(node, "target", targets, how), _read_bases(node, targets)
    x, dtype = _begin(node)
    scores = aggregate(node, find_leaves(node, x, forest), forest, how, dtype)
    scores = node.emit("add", scores, bases.astype(dtype.numpy)) if bases.size else scores
    return node.cast(transform(node, scores, read_transform(node)), F32)


def classifier(node: Node) -> list[Output]:
    """Return labels and scores of classes; leaves that name one of two classes have the score of the second."""
    labels, name = read_labels(node, "classlabels_int64s"), read_transform(node)
    if not labels.size:
        raise InvalidArgument(node.op_type, "no labels", allowed="classlabels_int64s")
    forest = _read_forest(node, "class", labels.size, "SUM")
    x, dtype = _begin(node)
    at = find_leaves(node, x, forest)
    scores = aggregate(node, at, forest, "SUM", dtype)
    named = np.flatnonzero(forest.has.any(0))
    if labels.size == 2 and named.size == 1:
        return _decide(node, scores, forest, int(named[0]), labels, name)
    bases = _read_bases(node, labels.size).astype(dtype.numpy)
    scores = node.cast(node.emit("add", scores, bases) if bases.size else scores, F32)
    label = pick_label(node, labels, _find_largest(node, scores, None if bases.size else at, forest))
    return [label, transform(node, scores, name)]


def _find_largest(node: Node, scores: Operand, at: Operand | None, forest: Forest) -> Operand:
    """Return the class of the largest score, among those that leaves `at` name, if these count."""
    if at is not None and not forest.has.all():
        counts = node.emit("gather", forest.has.astype(np.int64), at, axis=0)
        counts = node.emit("reduce_sum", counts, axes=(1,), keepdims=False)
        named = node.emit("greater", counts, node.full((), 0, I64))
        scores = node.emit("where", named, scores, node.full((), -np.inf, F32))
    return node.emit("argmax", scores, axis=1, keepdims=False)


def _decide(node: Node, scores: Operand, forest: Forest, named: int, labels: Array, name: str) -> list[Output]:
    """Return labels and scores of two classes, of which leaves name one: its score alone decides.

    It is a share if no leaf is below 0, and then compared with 0.5.
    """
    shares = not (forest.weights < 0).any()
    bases = _read_bases(node, *([1] if named == 0 else []))
    score = node.emit("slice", scores, starts=(named,), ends=(named + 1,), axes=(1,))
    if bases.size:
        score = node.emit("add", score, bases.astype(dtype_of(scores).numpy))
    score = node.cast(score, F32)
    positive = node.emit("greater", column(node, score, 0), node.full((), 0.5 if shares else 0.0, F32))
    label = pick_of_two(node, positive, [int(v) for v in labels])
    if named == 0:
        return [label, add_second_class(node, score, name, shares=shares)]
    return [label, transform(node, node.cast(scores, F32), name)]


# Trees whose leaves are apart from nodes, as version 5 has them


def _find_child(node: Node, i: int, side: str) -> tuple[str, int]:
    """Return the leaf or the node that is one child of a node."""
    kind = "leaf" if node.attrs[f"nodes_{side}leafs"][i] else "node"
    return kind, int(node.attrs[f"nodes_{side}nodeids"][i])


def _read_sets(node: Node, count: int) -> list[list[float]]:
    """Return the sets of the nodes that test for members, which NaN separates."""
    sets: list[list[float]] = [[]]
    values = node.attrs.get("membership_values")
    for value in [] if values is None else values.reshape(-1).tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    found = [s for s in sets if s]
    if len(found) != count:
        raise InvalidArgument(node.op_type, f"{len(found)} sets of membership_values", allowed=f"{count}")
    return found


def _read_roots(node: Node, targets: int, reduce: str) -> Forest:
    """Return the trees of a TreeEnsemble; one that tests for members is a chain of tests for one each."""
    names = ["featureids", "splits", "modes", "truenodeids", "falsenodeids", "trueleafs", "falseleafs"]
    columns = [np.asarray(node.attrs[f"nodes_{n}"]).reshape(-1).tolist() for n in names]
    tracks = list(node.attrs.get("nodes_missing_value_tracks_true") or []) or [0] * len(columns[0])
    _columns(node, [f"nodes_{n}" for n in (*names, "missing_value_tracks_true")], [*columns, tracks])
    ids, weights = node.attrs["leaf_targetids"], node.attrs["leaf_weights"].reshape(-1).tolist()
    _columns(node, ["leaf_targetids", "leaf_weights"], [ids, weights])
    leaves = [("leaf", n) for n in range(len(ids))]
    keys: list[Any] = [*leaves, *(("node", n) for n in range(len(tracks)))]
    modes = [*COMPARISONS, "MEMBER"]
    branches: dict[Any, tuple[Any, Any, int, float, str, bool]] = {}
    sets = iter(_read_sets(node, columns[2].count(modes.index("MEMBER"))))
    for n, (feature, split, mode, lost) in enumerate(zip(*columns[:3], tracks, strict=True)):
        yes, no = (_find_child(node, n, side) for side in ("true", "false"))
        if not 0 <= mode < len(modes):
            raise InvalidArgument(node.op_type, f"mode {mode}", allowed=f"0 to {len(modes) - 1}")
        if modes[mode] != "MEMBER":
            branches["node", n] = (yes, no, feature, split, modes[mode], bool(lost))
            continue
        members = next(sets)
        chain: list[Any] = [("node", n), *(("member", n, m) for m in range(1, len(members))), no]
        keys += chain[1:-1]
        for place, member in enumerate(members):
            branches[chain[place]] = (yes, chain[place + 1], feature, member, "BRANCH_EQ", bool(lost))
    roots = [("node", int(r)) for r in node.attrs["tree_roots"]]
    if wrong := [r for _, r in roots if not 0 <= r < len(tracks)]:
        raise InvalidArgument(node.op_type, f"root {wrong[0]}", allowed=f"0 to {len(tracks) - 1}")
    given = {leaf: [(int(i), w)] for leaf, i, w in zip(leaves, ids, weights, strict=True)}
    return build_forest(node.op_type, keys, roots, branches, given, targets, reduce)


def ensemble(node: Node) -> Output:
    """Return the scores of the targets, in the input's type."""
    targets = int(node.attrs.get("n_targets", 1))
    kinds = {"aggregate_function": AGGREGATES, "post_transform": TRANSFORMS}
    chosen = {name: int(node.attrs.get(name, 1 - place)) for place, name in enumerate(kinds)}
    for name, value in chosen.items():
        if not 0 <= value < len(kinds[name]):
            raise InvalidArgument(node.op_type, f"{name} {value}", allowed=f"0 to {len(kinds[name]) - 1}")
    how = AGGREGATES[chosen["aggregate_function"]]
    forest, (x, dtype) = _read_roots(node, targets, how), _begin(node)
    scores = aggregate(node, find_leaves(node, x, forest), forest, how, dtype)
    return node.cast(transform(node, scores, TRANSFORMS[chosen["post_transform"]]), dtype_of(node.x()))


NODES: dict[str, Handler] = {
    "TreeEnsemble": ensemble,
    "TreeEnsembleClassifier": classifier,
    "TreeEnsembleRegressor": regressor,
}
