"""Nodes of ai.onnx.ml that are support vector machines, as libsvm computes them."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ..declare.decomposition import constant
from ..dtypes import F32, I64
from ..importing.products import multiply
from ..status import InvalidArgument, quote
from .elements import Array
from .nests import nest, square_distances
from .node import Handler, Node, Operand, Output, shape_of
from .nodes_linear_models import weigh
from .scores import (
    add_second_class,
    column,
    floats_of,
    pick_label,
    read_floats,
    read_labels,
    read_transform,
    transform,
)

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")
SURE = 1e-7  # libsvm's distance of a probability from 0 and 1
PASSES = 10  # over the classes; 6 were the most in 36,000 draws of up to 20 classes
RESIDUAL = 0.005  # libsvm's bound, over the number of classes


def compare(node: Node, x: Operand, vectors: Array) -> Operand:
    """Return the kernel of each row and each support vector."""
    kind = node.attrs.get("kernel_type", "LINEAR")
    if kind not in KERNELS:
        raise InvalidArgument(node.op_type, f"kernel_type {quote(kind)}", allowed=", ".join(KERNELS))
    gamma, offset, degree = 0.0, 0.0, 0.0
    if kind != "LINEAR" and node.attrs.get("kernel_params"):
        gamma, offset, degree = (float(v) for v in floats_of(node, "kernel_params", 3))
    if kind == "RBF":
        return node.emit("exp", node.emit("scale", square_distances(node, x, vectors), value=-gamma))
    y = multiply(node, x, np.ascontiguousarray(vectors.T))
    if kind == "LINEAR":
        return y
    y = node.emit("add_scalar", node.emit("scale", y, value=gamma), value=offset)
    return node.emit("tanh", y) if kind == "SIGMOID" else node.emit("pow_scalar", y, value=degree)


def read_vectors(node: Node, x: Operand, count: int) -> Array:
    """Return the support vectors as rows."""
    features = shape_of(x)[1]
    return floats_of(node, "support_vectors", count * features).reshape(count, features)


def regressor(node: Node) -> Output:
    """Return one score for each row, or for one class 1 or -1."""
    x, count = read_floats(node), int(node.attrs.get("n_supports", 0))
    if read_transform(node) == "PROBIT":
        raise node.refuse("PROBIT of a score", "another post_transform")
    coefficients, rho = floats_of(node, "coefficients"), floats_of(node, "rho", 1)
    score = weigh(node, compare(node, x, read_vectors(node, x, count)) if count else x, coefficients, 1, rho)
    if not node.attrs.get("one_class", 0):
        return score
    one, other = (node.full((), v, F32) for v in (1, -1))
    return node.emit("where", node.emit("greater", score, node.full((), 0, F32)), one, other)


def classifier(node: Node) -> list[Output]:
    """Return labels and scores: of classes if there are probabilities or no support vectors, else of pairs of them."""
    labels, name = read_labels(node), read_transform(node)
    counts = [int(v) for v in node.attrs.get("vectors_per_class") or []]
    if not labels.size:
        raise InvalidArgument(node.op_type, "no labels", allowed="classlabels_ints")
    x, coefficients = read_floats(node), floats_of(node, "coefficients")
    if sum(counts) == 0:
        rho = floats_of(node, "rho")[:1]
        scores = weigh(node, x, coefficients, labels.size, np.repeat(rho, labels.size))
        return [_label_of_scores(node, scores, labels, coefficients), transform(node, scores, name)]
    if len(counts) != labels.size or min(counts) < 0:
        raise InvalidArgument(node.op_type, f"vectors_per_class {counts}", allowed=f"{labels.size} counts")
    pairs = list(combinations(range(labels.size), 2))
    matrix = _weights_of_pairs(node, coefficients, counts, pairs)
    kernel = compare(node, x, read_vectors(node, x, sum(counts)))
    scores = node.emit("add", multiply(node, kernel, matrix), floats_of(node, "rho", len(pairs)))
    label = pick_label(node, labels, _count_votes(node, scores, pairs, labels.size))
    if node.attrs.get("prob_a"):
        return [label, transform(node, _probabilities(node, scores, pairs, labels.size), name)]
    if labels.size == 2:
        return [label, add_second_class(node, scores, name, shares=name != "NONE")]
    return [label, transform(node, scores, name)]


def _label_of_scores(node: Node, scores: Operand, labels: Array, coefficients: Array) -> Operand:
    """Return the label of the largest score; of two classes the second one if that is large enough."""
    largest = pick_label(node, labels, node.emit("argmax", scores, axis=1, keepdims=False))
    if labels.size != 2 or node.attrs.get("prob_a"):
        return largest
    top = node.emit("reduce_max", scores, axes=(1,), keepdims=False)
    kind, bound = ("greater_equal", 0.5) if (coefficients >= 0).all() else ("greater", 0.0)
    sure = node.emit(kind, top, node.full((), bound, F32))
    return node.emit("where", sure, node.full((), int(labels[1]), I64), largest)


def _weights_of_pairs(node: Node, coefficients: Array, counts: list[int], pairs: list[tuple[int, int]]) -> Array:
    """Return the factors of each support vector in the decision of each pair of classes.

    The coefficients have a row for each other class: a vector of class i has its factor against class j > i in row
    j - 1, and one of class j its factor against i in row i.
    """
    total, classes = sum(counts), len(counts)
    if coefficients.size != (classes - 1) * total:
        given, allowed = f"{coefficients.size} coefficients", f"{classes - 1} × {total}"
        raise InvalidArgument(node.op_type, given, allowed=allowed)
    rows, starts = coefficients.reshape(classes - 1, total), np.cumsum([0, *counts])
    matrix = np.zeros((total, len(pairs)), np.float32)
    for n, (i, j) in enumerate(pairs):
        for own, row in ((i, j - 1), (j, i)):
            part = slice(starts[own], starts[own + 1])
            matrix[part, n] = rows[row, part]
    return matrix


def _count_votes(node: Node, scores: Operand, pairs: list[tuple[int, int]], classes: int) -> Operand:
    """Return the class that wins most of the decisions, the first one of several."""
    first, second = (np.eye(classes, dtype=np.float32)[[pair[n] for pair in pairs]] for n in (0, 1))
    won = node.cast(node.emit("greater", scores, node.full((), 0, F32)), F32)
    votes = node.emit("add", multiply(node, won, first - second), second.sum(0))
    return node.emit("argmax", votes, axis=1, keepdims=False)


def _probabilities(node: Node, scores: Operand, pairs: list[tuple[int, int]], classes: int) -> Operand:
    """Return the probabilities of classes that agree best with those of pairs: the second method of Wu et al. 2004.

    It minimises pᵀQp class by class until the residual is small, and like libsvm stops there, for each row.
    """
    a, b = (floats_of(node, f"prob_{c}", len(pairs)) for c in "ab")
    sign = node.emit("add", node.emit("mul", scores, a), b)
    share = node.emit("clip", node.emit("sigmoid", node.emit("neg", sign)), min=SURE, max=1 - SURE)
    # r[i, j] is the probability of i if it is i or j: that of the pair, or what is left of it
    place, side = np.zeros((classes, classes), np.int64), np.zeros((classes, classes), np.float32)
    for n, (i, j) in enumerate(pairs):
        place[i, j] = place[j, i] = n
        side[i, j], side[j, i] = 1, 2
    r = nest(node, "nij,ij->nij", "0 if x1 == 0 else x0 if x1 == 1 else 1 - x0", _take(node, share, place), side)
    diagonal = nest(node, "nji->ni", "x0 * x0", r, combine="sum")
    other = nest(node, "nji,nij->nij", "-x0 * x1", r, r)
    q = nest(node, "nij,ni,ij->nij", "x1 if x2 != 0 else x0", other, diagonal, np.eye(classes, dtype=np.float32))
    rows = shape_of(scores)[0]
    lines = [node.emit("slice", q, starts=(i,), ends=(i + 1,), axes=(1,)) for i in range(classes)]
    lines = [node.reshape(line, (rows, classes)) for line in lines]
    own = [column(node, diagonal, i) for i in range(classes)]
    p = node.full((rows, classes), 1 / classes, F32)
    done = node.full((rows,), 0, F32)
    for _ in range(PASSES):
        held = p
        qp = nest(node, "nij,nj->ni", "x0 * x1", q, p, combine="sum")
        total = nest(node, "ni,ni->n", "x0 * x1", p, qp, combine="sum")
        residual = nest(node, "ni,n->n", "abs(x0 - x1)", qp, total, combine="maximum")
        done = nest(node, "n,n->n", f"1 if x1 < {constant(RESIDUAL / classes)} else x0", done, residual)
        for i in range(classes):
            at = column(node, qp, i)
            step = nest(node, "n,n,n->n", "(x1 - x0) / x2", at, total, own[i])
            body = "(x0 + x1 * (x1 * x2 + 2 * x3)) / (1 + x1) / (1 + x1)"
            total = nest(node, "n,n,n,n->n", body, total, step, own[i], at)
            qp = nest(node, "ni,n,ni->ni", "(x0 + x1 * x2) / (1 + x1)", qp, step, lines[i])
            unit = np.eye(classes, dtype=np.float32)[i]
            p = nest(node, "ni,n,i->ni", "(x0 + x1 * x2) / (1 + x1)", p, step, unit)
        p = nest(node, "ni,ni,n->ni", "x0 if x2 != 0 else x1", held, p, done)
    return p


def _take(node: Node, x: Operand, places: Array) -> Operand:
    """Return columns of rows, as places tell them."""
    return node.emit("gather", x, places, axis=1)


NODES: dict[str, Handler] = {"SVMClassifier": classifier, "SVMRegressor": regressor}
