"""Nodes of ai.onnx.ml that prepare features: scalers, encoders, what picks and joins columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..dtypes import F32, F64, I64
from ..status import InvalidArgument, quote
from .elements import Array
from .node import Handler, Maps, Node, Operand, Output, dtype_of, is_float, shape_of
from .scores import floats_of

# Scaling


def scaler(node: Node) -> Output:
    """Return (x - offset) scale, in F32; both have one number, or one for each feature."""
    dtype, width = F64 if dtype_of(node.x()) is F64 else F32, node.shape()[-1]
    y = node.cast(node.x(), dtype)
    for kind, name in (("sub", "offset"), ("mul", "scale")):
        numbers = floats_of(node, name)
        if numbers.size not in (0, 1, width):
            raise InvalidArgument(node.op_type, f"{numbers.size} numbers of {name}", allowed=f"1 or {width}")
        if numbers.size:
            y = node.emit(kind, y, node.cast(numbers, dtype))
    return node.cast(y, F32)


def normalizer(node: Node) -> Output:
    """Divide each row by its largest element, the sum of sizes or the root of the sum of squares, unless that is 0."""
    x, axis, kind = node.cast(node.x(), F32), node.rank - 1, node.attrs.get("norm", "MAX")
    kinds = {"MAX": "reduce_max", "L1": "reduce_l1", "L2": "reduce_l2"}
    if kind not in kinds or node.rank not in (1, 2):
        given = f"norm {quote(kind)} of {list(node.shape())}"
        raise InvalidArgument(node.op_type, given, allowed=f"{', '.join(kinds)} of rank 1 or 2")
    size = node.emit(kinds[kind], x, axes=(axis,), keepdims=True)
    zero = node.emit("equal", size, node.full((), 0, F32))
    return node.emit("div", x, node.emit("where", zero, node.full((), 1, F32), size))


def binarizer(node: Node) -> Output:
    """Return 1 for what is above the threshold, and 0 for the rest, in the input's type."""
    x, dtype = node.x(), F64 if dtype_of(node.x()) is F64 else F32
    threshold = node.full((), float(node.attrs.get("threshold", 0.0)), dtype)
    return node.cast(node.emit("greater", node.cast(x, dtype), threshold), dtype_of(x))


def imputer(node: Node) -> Output:
    """Replace a number, which may be NaN, by another one, or by that of its feature."""
    x, dtype, width = node.x(), dtype_of(node.x()), node.shape()[-1]
    names = ["imputed_value_floats", "replaced_value_float"]
    if not is_float(x):
        names = ["imputed_value_int64s", "replaced_value_int64"]
    values, old = np.asarray(node.attrs.get(names[0]) or [], dtype.numpy), node.attrs.get(names[1], 0)
    if values.size not in (1, width):
        raise InvalidArgument(node.op_type, f"{values.size} numbers of {names[0]}", allowed=f"1 or {width}")
    missing = node.emit("isnan", x) if math.isnan(old) else node.emit("equal", x, node.full((), old, dtype))
    return node.emit("where", missing, values, x)


# Categories


def look_up(node: Node, x: Operand, keys: Array, values: Array, default: Array) -> Operand:
    """Return for each number the value of its key, or the default; of equal keys the first one counts.

    The keys are sorted and halved again and again.
    """
    known, first = np.unique(keys, return_index=True)  # with one NaN, the last
    if not known.size:
        return node.expand(default.reshape(()), shape_of(x))
    size = 1 << (known.size - 1).bit_length()
    places = np.minimum(np.arange(size), known.size - 1)
    known, held = known[places], values[first[places]]
    at: Operand = node.full(shape_of(x), 0, I64)
    step = size >> 1
    while step:
        next_ = node.emit("add", at, node.full((), step, I64))
        reached = node.emit("less_equal", node.emit("gather", known, next_, axis=0), x)
        at, step = node.emit("where", reached, next_, at), step >> 1
    hit = node.emit("equal", node.emit("gather", known, at, axis=0), x)
    y = node.emit("where", hit, node.emit("gather", held, at, axis=0), default.reshape(()))
    if keys.dtype.kind == "f" and np.isnan(keys).any():
        unknown = values[np.flatnonzero(np.isnan(keys))[0]].reshape(())
        y = node.emit("where", node.emit("isnan", x), unknown, y)
    return y


def label_encoder(node: Node) -> Output:
    """Return the value of each key, both of which are numbers."""
    sides: list[Array] = []
    for side in ("keys", "values"):
        told = [f"{side}_{kind}" for kind in ("int64s", "floats", "tensor") if f"{side}_{kind}" in node.attrs]
        if len(told) != 1 or f"{side}_strings" in node.attrs:
            raise node.refuse(f"{side} that are text, or none", f"{side}_int64s, {side}_floats or {side}_tensor")
        kind = {"s": np.float32 if told[0].endswith("floats") else np.int64}.get(told[0][-1])
        sides.append(np.asarray(node.attrs[told[0]], kind).reshape(-1))
    keys, values = sides
    if keys.size != values.size or dtype_of(keys) is not dtype_of(node.x()):
        given = f"{keys.size} keys of {dtype_of(keys)} and {values.size} values for {dtype_of(node.x())}"
        raise InvalidArgument(node.op_type, given, allowed="a value for each key, keys of the input's type")
    default = node.attrs.get("default_tensor")
    if default is None or not default.size:
        name, usual = ("default_float", -0.0) if values.dtype.kind == "f" else ("default_int64", -1)
        default = node.attrs.get(name, usual)
    return look_up(node, node.x(), keys, values, np.asarray(default, values.dtype))


def one_hot_encoder(node: Node) -> Output:
    """Mark the category of each number, truncated to an integer, along a new axis.

    Without `zeros` an unknown one is an error: its place is out of range for a gather.
    """
    categories = np.asarray(node.attrs.get("cats_int64s") or [], np.int64)
    if node.attrs.get("cats_strings") or not categories.size:
        raise node.refuse("categories that are text, or none", "cats_int64s")
    if np.unique(categories).size != categories.size:
        raise InvalidArgument(node.op_type, "a category is named twice", allowed="each once")
    x, count = node.cast(node.x(), I64), categories.size
    if node.attrs.get("zeros", 1):
        return node.cast(node.emit("equal", node.reshape(x, (*shape_of(x), 1)), categories), F32)
    place = look_up(node, x, categories, np.arange(count), np.asarray(count))
    return node.emit("gather", np.eye(count, dtype=np.float32), place, axis=0)


# Columns


def array_feature_extractor(node: Node) -> Output:
    """Return columns of the last axis; those of a vector are a row."""
    places = node.reshape(node.x(1), (math.prod(node.shape(1)),))
    x = node.reshape(node.x(), (1, *node.shape())) if node.rank == 1 else node.x()
    return node.emit("gather", x, places, axis=len(shape_of(x)) - 1)


def feature_vectorizer(node: Node) -> Output:
    """Join the columns of all inputs in F32, each cut or filled up with zeros to the width that an attribute says."""
    widths = [int(v) for v in node.attrs.get("inputdimensions") or []]
    if len(widths) != len(node.inputs):
        raise InvalidArgument(node.op_type, f"inputdimensions {widths}", allowed=f"{len(node.inputs)} numbers")
    return node.emit("concat", *(_widen(node, n, width) for n, width in enumerate(widths)), axis=1)


def _widen(node: Node, n: int, width: int) -> Operand:
    """Return the columns of an input: as many as asked for."""
    shape = node.shape(n)
    rows = shape[0] if len(shape) > 1 else 1
    given = math.prod(shape[1:]) if len(shape) > 1 else math.prod(shape)
    x = node.cast(node.reshape(node.x(n), (rows, given)), F32)
    if given > width:
        return node.emit("slice", x, starts=(0,), ends=(width,), axes=(1,))
    return x if given == width else node.emit("concat", x, node.full((rows, width - given), 0, F32), axis=1)


def zip_map(node: Node) -> Output:
    """Return a map for each row, from the labels to the scores."""
    labels: Sequence[int | str] = node.attrs.get("classlabels_int64s") or node.attrs.get("classlabels_strings") or []
    x = node.reshape(node.x(), (1, *node.shape())) if node.rank == 1 else node.x()
    if len(shape_of(x)) != 2 or shape_of(x)[1] != len(labels):
        raise InvalidArgument(node.op_type, f"dims {list(node.shape())}", allowed=f"rows of {len(labels)} scores")
    return Maps(x, tuple(labels))


NODES: dict[str, Handler] = {
    "ArrayFeatureExtractor": array_feature_extractor,
    "Binarizer": binarizer,
    "FeatureVectorizer": feature_vectorizer,
    "Imputer": imputer,
    "LabelEncoder": label_encoder,
    "Normalizer": normalizer,
    "OneHotEncoder": one_hot_encoder,
    "Scaler": scaler,
    "ZipMap": zip_map,
}
