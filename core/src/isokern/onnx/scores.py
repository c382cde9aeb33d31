"""What nodes of ai.onnx.ml make of their scores: post transforms, a second class, labels.

Where ONNX's text leaves a choice (one score, two classes), it is that of ONNX Runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..dtypes import F32, I64
from ..status import InvalidArgument, quote
from .elements import Array
from .node import Node, Operand, dtype_of, shape_of

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
NEAR_ZERO = 1e-7  # scores up to there are 0 to SOFTMAX_ZERO


def read_rows(node: Node, i: int = 0) -> Operand:
    """Return an input as rows of features; a vector is one row."""
    x, shape = node.x(i), node.shape(i)
    if len(shape) not in (1, 2):
        raise InvalidArgument(node.op_type, f"input {i} has dims {list(shape)}", allowed="rank 1 or 2")
    return node.reshape(x, (1, *shape)) if len(shape) == 1 else x


def read_floats(node: Node) -> Operand:
    """Return the rows of the first input in F32, in which ONNX Runtime computes all but trees."""
    return node.cast(read_rows(node), F32)


def floats_of(node: Node, name: str, count: int | None = None) -> Array:
    """Return an attribute of floats; InvalidArgument unless it has `count` elements."""
    found = np.asarray(node.attrs.get(name) or [], np.float32)
    if count is not None and found.size != count:
        raise InvalidArgument(node.op_type, f"attribute {name} has {found.size} numbers", allowed=f"{count}")
    return found


def read_transform(node: Node) -> str:
    """Return the name of the post transform."""
    name = node.attrs.get("post_transform", "NONE")
    if name not in TRANSFORMS:
        raise InvalidArgument(node.op_type, f"post_transform {quote(name)}", allowed=", ".join(TRANSFORMS))
    return str(name)


def read_labels(node: Node, integers: str = "classlabels_ints") -> Array:
    """Return the labels of the classes, which have to be integers."""
    if node.attrs.get("classlabels_strings"):
        raise node.refuse("labels that are text", f"{integers}, that is integers")
    return np.asarray(node.attrs.get(integers) or [], np.int64)


def pick_label(node: Node, labels: Array, place: Operand) -> Operand:
    """Return the labels that stand at places."""
    return node.emit("gather", labels, place, axis=0)


def pick_of_two(node: Node, positive: Operand, labels: Sequence[int]) -> Operand:
    """Return the second label where a condition holds for a row, else the first."""
    no, yes = (node.full((), int(label), I64) for label in labels)
    return node.emit("where", positive, yes, no)


def column(node: Node, x: Operand, n: int) -> Operand:
    """Return column n of rows."""
    return node.reshape(node.emit("slice", x, starts=(n,), ends=(n + 1,), axes=(1,)), shape_of(x)[:1])


def transform(node: Node, scores: Operand, name: str) -> Operand:
    """Apply a post transform to rows of scores; to a single score only PROBIT applies."""
    if name == "PROBIT":
        centred = node.emit("add_scalar", node.emit("scale", scores, value=2.0), value=-1.0)
        return node.emit("scale", node.emit("erfinv", centred), value=math.sqrt(2))
    if shape_of(scores)[1] < 2 or name == "NONE":
        return scores
    if name == "LOGISTIC":
        return node.emit("sigmoid", scores)
    if name == "SOFTMAX":
        return node.emit("softmax", scores, axis=1)
    top = node.emit("reduce_max", scores, axes=(1,), keepdims=True)
    far = node.emit("greater", node.emit("abs", scores), node.full((), NEAR_ZERO, dtype_of(scores)))
    powers = node.emit("exp", node.emit("sub", scores, top))
    total = node.emit("where", far, powers, node.full((), 0, dtype_of(scores)))
    total = node.emit("reduce_sum", total, axes=(1,), keepdims=True)
    kept = node.emit("mul", scores, node.emit("exp", node.emit("neg", top)))
    return node.emit("div", node.emit("where", far, powers, kept), total)


def add_second_class(node: Node, score: Operand, name: str, *, shares: bool) -> Operand:
    """Return the scores of two classes from those of the second, [rows, 1]: shares add up to 1, others to 0."""
    if name == "PROBIT":
        raise node.refuse("PROBIT of one score for two classes", "another post_transform")
    rest = node.emit("rsub_scalar", score, value=1.0) if shares and name != "LOGISTIC" else node.emit("neg", score)
    pair = [rest, score]
    if name == "LOGISTIC":
        pair = [node.emit("sigmoid", s) for s in pair]
    return node.emit("concat", *pair, axis=1)
