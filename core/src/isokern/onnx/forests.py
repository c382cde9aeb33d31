"""Forests: the trees of a node of ai.onnx.ml as tables, and the way of all rows down all trees at once.

Nodes of all trees are numbered together, leaves first. A level is a few gathers from tables (Nakandala et al. 2020, the
strategy of tree traversal); a leaf is its own child, so that trees of any depth go on together.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..dtypes import I64, DType
from ..status import InvalidArgument, quote
from .elements import Array
from .node import Node, Operand, dtype_of, shape_of

MAX_DEPTH = 1000
COMPARISONS = {
    "BRANCH_LEQ": "less_equal",
    "BRANCH_LT": "less",
    "BRANCH_GTE": "greater_equal",
    "BRANCH_GT": "greater",
    "BRANCH_EQ": "equal",
    "BRANCH_NEQ": "not_equal",
}
EXACT = 61  # bits of a sum of leaves
MOST = 1 << 24  # leaves that are added at a time
LARGEST = 100  # powers of two by which leaves are scaled: what F32 can undo


@dataclass(frozen=True)
class Forest:
    """Tables by node: children, the feature and the number that it is compared with, how, and where NaN goes.

    The first `leaves` nodes have rows of `weights` [leaves, targets], and `has` says which of them were given.
    """

    roots: Array
    true: Array
    false: Array
    features: Array
    splits: Array
    modes: Array
    missing: Array
    weights: Array
    has: Array
    depth: int

    @property
    def leaves(self) -> int:
        """How many leaves all trees have."""
        return len(self.weights)


def build_forest(
    where: str,
    keys: Sequence[Any],
    roots: Sequence[Any],
    branches: Mapping[Any, tuple[Any, Any, int, float, str, bool]],
    given: Mapping[Any, Sequence[tuple[int, float]]],
    targets: int,
    reduce: str,
) -> Forest:
    """Return the tables of trees, whose nodes are called by any keys.

    `branches` have the child where the comparison is true, the other one, feature, number, mode, and whether NaN goes
    to the first; `given` has targets and weights of leaves.
    """
    order = [k for k in keys if k not in branches]
    leaves = len(order)
    order += [k for k in keys if k in branches]
    number = {key: n for n, key in enumerate(order)}
    own = np.arange(len(order))
    true, false, features = own.copy(), own.copy(), np.zeros(len(order), np.int64)
    splits, missing = np.zeros(len(order)), np.zeros(len(order), np.bool_)
    modes = np.zeros(len(order), np.int64)
    names = list(COMPARISONS)
    for key, (yes, no, feature, split, mode, tracks) in branches.items():
        n = number[key]
        if yes not in number or no not in number:
            raise InvalidArgument(where, f"node {key} has a child that is not there", allowed="nodes of its tree")
        if mode not in COMPARISONS:
            raise InvalidArgument(where, f"mode {quote(mode)}", allowed=", ".join(["LEAF", *names]))
        true[n], false[n], features[n], splits[n] = number[yes], number[no], feature, split
        modes[n], missing[n] = names.index(mode), tracks
    weights, has = np.zeros((leaves, targets)), np.zeros((leaves, targets), np.bool_)
    combine = {"MIN": min, "MAX": max}.get(reduce, operator.add)
    for key, told in given.items():
        n = number.get(key, leaves)
        if n >= leaves:
            raise InvalidArgument(where, f"a weight of node {key}, which is not a leaf", allowed="leaves")
        for target, weight in told:
            if not 0 <= target < targets:
                raise InvalidArgument(where, f"target {target}", allowed=f"0 to {targets - 1}")
            weights[n, target] = combine(weights[n, target], weight) if has[n, target] else weight
            has[n, target] = True
    starts = np.asarray([number[r] for r in roots], np.int64)
    depth = _measure_depth(where, starts, true, false, leaves)
    return Forest(starts, true, false, features, splits, modes, missing, weights, has, depth)


def _measure_depth(where: str, roots: Array, true: Array, false: Array, leaves: int) -> int:
    """Return the most comparisons on a way from a root to a leaf; InvalidArgument for a node that is below itself."""
    children = {n: {int(c) for c in (true[n], false[n]) if c >= leaves} for n in range(leaves, len(true))}
    above = dict.fromkeys(children, 0)
    for inner in children.values():
        for child in inner:
            above[child] += 1
    begun = {int(r) for r in roots}
    # Longest ways, from nodes that are below no other; those that no root leads to do not count
    waiting = [n for n, count in above.items() if not count]
    depths, done = {n: int(n in begun) for n in children}, 0
    while waiting:
        node, done = waiting.pop(), done + 1
        for child in children[node]:
            depths[child] = max(depths[child], depths[node] + 1 if depths[node] else 0)
            above[child] -= 1
            if not above[child]:
                waiting.append(child)
    if done < len(children):
        raise InvalidArgument(where, "a node is below itself", allowed="trees")
    depth = max(depths.values(), default=0)
    if depth > MAX_DEPTH:
        raise InvalidArgument(where, f"a tree of {depth} comparisons in a row", allowed=f"up to {MAX_DEPTH}")
    return depth


def find_leaves(node: Node, x: Operand, forest: Forest) -> Operand:
    """Return the number of the leaf that each row of features reaches in each tree, [rows, trees]."""
    rows, width = shape_of(x)
    branches = slice(forest.leaves, None)
    if (wrong := forest.features[branches][~np.isin(forest.features[branches], np.arange(width))]).size:
        raise InvalidArgument(node.op_type, f"feature {wrong[0]}", allowed=f"0 to {width - 1}, as the input has")
    modes = np.unique(forest.modes[branches])
    splits = forest.splits.astype(dtype_of(x).numpy)
    at: Operand = forest.roots.reshape(1, -1)
    for _ in range(forest.depth):
        known = isinstance(at, np.ndarray)
        features = node.emit("gather", forest.features, at, axis=0)
        if known:
            read = node.emit("gather", x, node.reshape(features, (shape_of(features)[1],)), axis=1)
        else:
            read = node.emit("gather_elements", x, features, axis=1)
        split = node.emit("gather", splits, at, axis=0)
        goes = None
        for mode in modes:
            found = node.emit(list(COMPARISONS.values())[mode], read, split)
            if goes is not None:
                meant = node.emit("equal", node.emit("gather", forest.modes, at, axis=0), node.full((), int(mode), I64))
                found = node.emit("where", meant, found, goes)
            goes = found
        assert goes is not None
        if forest.missing.any():
            lost = node.emit("logical_and", node.emit("isnan", read), node.emit("gather", forest.missing, at, axis=0))
            goes = node.emit("logical_or", goes, lost)
        at = node.emit("where", goes, *(node.emit("gather", t, at, axis=0) for t in (forest.true, forest.false)))
    return node.expand(at, (rows, len(forest.roots)))


def add_leaves(node: Node, at: Operand, table: Array, dtype: DType) -> Operand:
    """Return the sum over trees of the rows of a table [leaves, targets], [rows, targets], rounded once to a dtype.

    It is added in integers, in units of a power of two for each target: exact, and so the same in any order of trees
    and on every device. Equal scores stay equal.
    """
    trees = shape_of(at)[1]
    bound = np.abs(table).max(0, initial=0) * trees
    if not np.isfinite(bound).all() or (bound >= 2.0**LARGEST).any():
        rows = node.emit("gather", table.astype(dtype.numpy), at, axis=0)
        return node.emit("reduce_sum", rows, axes=(1,), keepdims=False)
    powers = np.minimum(EXACT - np.ceil(np.log2(np.where(bound > 0, bound, 1))), LARGEST).astype(np.int64)
    units = np.rint(np.ldexp(table.astype(np.float64), powers)).astype(np.int64)
    step = max(1, MOST // max(1, shape_of(at)[0] * units.shape[1]))
    total: Operand | None = None
    for start in range(0, trees, step):
        some = node.emit("slice", at, starts=(start,), ends=(start + step,), axes=(1,)) if step < trees else at
        part = node.emit("reduce_sum", node.emit("gather", units, some, axis=0), axes=(1,), keepdims=False)
        total = part if total is None else node.emit("add", total, part)
    assert total is not None
    return node.emit("mul", node.cast(total, dtype), np.ldexp(1.0, -powers).astype(dtype.numpy))
