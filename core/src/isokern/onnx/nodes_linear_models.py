"""Nodes of ai.onnx.ml that are linear models."""

from __future__ import annotations

import numpy as np

from ..dtypes import F32
from ..importing.products import multiply
from ..status import InvalidArgument
from .elements import Array
from .node import Handler, Node, Operand, Output, shape_of
from .scores import (
    add_second_class,
    column,
    floats_of,
    pick_label,
    pick_of_two,
    read_floats,
    read_labels,
    read_transform,
    transform,
)


def weigh(node: Node, x: Operand, coefficients: Array, count: int, intercepts: Array) -> Operand:
    """Return `count` scores for each row: x coefficientsᵀ + intercepts."""
    features = shape_of(x)[1]
    if coefficients.size != count * features:
        allowed = f"{count} × {features}, the input's features"
        raise InvalidArgument(node.op_type, f"{coefficients.size} coefficients", allowed=allowed)
    y = multiply(node, x, np.ascontiguousarray(coefficients.reshape(count, features).T))
    return node.emit("add", y, intercepts) if intercepts.size else y


def classifier(node: Node) -> list[Output]:
    """Return the label of the largest score, or by the sign of the only one, and the scores."""
    coefficients, intercepts = floats_of(node, "coefficients"), floats_of(node, "intercepts")
    labels, name = read_labels(node), read_transform(node)
    count = intercepts.size
    if not count:
        raise node.refuse("no intercepts", "one for each class")
    if count > 1 and labels.size != count:
        raise InvalidArgument(node.op_type, f"{labels.size} labels", allowed=f"{count}, as there are intercepts")
    scores = weigh(node, read_floats(node), coefficients, count, intercepts)
    if count > 1:
        label = pick_label(node, labels, node.emit("argmax", scores, axis=1, keepdims=False))
        return [label, transform(node, scores, name)]
    positive = node.emit("greater", column(node, scores, 0), node.full((), 0, F32))
    if labels.size != 2:
        return [pick_of_two(node, positive, (0, 1)), transform(node, scores, name)]
    label = pick_of_two(node, positive, [int(v) for v in labels])
    return [label, add_second_class(node, scores, name, shares=True)]


def regressor(node: Node) -> Output:
    """Return the scores."""
    targets = int(node.attrs.get("targets", 1))
    intercepts = floats_of(node, "intercepts")
    if intercepts.size not in (0, targets):
        raise InvalidArgument(node.op_type, f"{intercepts.size} intercepts", allowed=f"{targets}, or none")
    scores = weigh(node, read_floats(node), floats_of(node, "coefficients"), targets, intercepts)
    return transform(node, scores, read_transform(node))


NODES: dict[str, Handler] = {"LinearClassifier": classifier, "LinearRegressor": regressor}
