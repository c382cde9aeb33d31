"""Nodes that make tensors from attributes, shapes and a few numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import BOOL, F32, F64, I64, DType
from ..status import InvalidArgument
from .elements import NARROW, Array, element_name, narrow_name, our_dtype, widen
from .node import Handler, Node, Operand, Output, dtype_of, is_float

LISTS: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
}
MAX_RANGE = 1 << 24  # elements, which are part of the graph


def constant(node: Node) -> Output:
    """Return the array of an attribute."""
    if "value" in node.attrs:
        array: Array = node.attrs["value"]
        node.made = narrow_name(array)
        return widen(array)
    for name, kind in LISTS.items():
        if name in node.attrs:
            return np.asarray(node.attrs[name], kind)
    raise node.refuse(f"attributes {', '.join(node.attrs) or 'none'}", f"value, {', '.join(LISTS)}")


def shape(node: Node) -> Output:
    """Return the dims from `start` to `end`."""
    dims = node.shape()[slice(node.attrs.get("start", 0), node.attrs.get("end"))]
    return np.asarray(dims, np.int64)


def size(node: Node) -> Output:
    """Return the number of elements."""
    return np.asarray(math.prod(node.shape()), np.int64)


def constant_of_shape(node: Node) -> Output:
    """Return a tensor of one value, F32 zeros by default."""
    value = node.attrs.get("value", np.zeros(1, np.float32))
    if value.size != 1:
        raise InvalidArgument(node.op_type, f"value has {value.size} elements", allowed="1")
    node.made = narrow_name(value)
    value = widen(value)
    return node.full(node.ints(0), value.reshape(-1)[0], dtype_of(value))


def range_(node: Node) -> Output:
    """Return start, start + delta, … before limit; floats are products in their own type."""
    start, limit, delta = (node.constant(n).reshape(()) for n in range(3))
    if not delta:
        raise InvalidArgument(node.op_type, "delta 0", allowed="another step")
    wide = np.float64 if is_float(node.x()) else object
    gap = (limit.astype(wide) - start.astype(wide)) / delta.astype(np.float64)
    count = max(0, math.ceil(gap)) if math.isfinite(gap) else MAX_RANGE
    if count >= MAX_RANGE:
        raise InvalidArgument(node.op_type, f"{count} elements", allowed=f"fewer than {MAX_RANGE}")
    found: Array
    if is_float(node.x()):
        found = start.astype(np.float64) + np.arange(count) * delta.astype(np.float64)
    else:
        found = int(start) + np.arange(count) * int(delta)
    return found.astype(start.dtype)


def eye_like(node: Node) -> Output:
    """Return ones on a diagonal."""
    rows, columns = node.shape()
    kind = our_dtype(element_name(node.op_type, node.attrs["dtype"])) if "dtype" in node.attrs else dtype_of(node.x())
    return node.emit("eye", rows=rows, columns=columns, k=int(node.attrs["k"]), to=kind)


def window(kind: str, **more: float) -> Handler:
    """Return the handler of a window, computed in F32 or F64."""

    def handle(node: Node) -> Output:
        name = element_name(node.op_type, node.attrs["output_datatype"])
        if name in NARROW:
            raise node.refuse(f"elements of type {name}", "floats")
        wanted = our_dtype(name)
        computed = wanted if wanted.kind == "f" and not wanted.storage else F64
        length, periodic = int(node.number(0)), bool(node.attrs["periodic"])
        if length == 1 and periodic:  # its first element, as the definition computes it; ours is 1, as NumPy's
            longer = node.emit(kind, length=2, periodic=True, to=computed, **more)
            return node.cast(node.emit("slice", longer, starts=(0,), ends=(1,)), wanted)
        return node.cast(node.emit(kind, length=length, periodic=periodic, to=computed, **more), wanted)

    return handle


def mel_weight_matrix(node: Node) -> Output:
    """Return the weights of a bank of filters."""
    names = ["num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz"]
    wanted = our_dtype(element_name(node.op_type, node.attrs["output_datatype"]))
    computed = wanted if wanted in (F32, F64) else F64
    numbers = {name: node.number(n) for n, name in enumerate(names)}
    return node.cast(node.emit("mel_weight_matrix", to=computed, **numbers), wanted)


# Random numbers: a program draws the same ones in each run


def _seed(node: Node) -> Array:
    """Return the seed: of the attribute's bits, else of the node's name, so that two nodes draw different numbers."""
    told = node.attrs.get("seed")
    bits = hash_name(node.name) if told is None else int(np.float32(told).view(np.uint32))
    return np.array([bits, 0], np.uint64)


def hash_name(name: str) -> int:
    """Return a number of a name that is the same on every machine (FNV-1a, 64 bits)."""
    found = 0xCBF29CE484222325
    for byte in name.encode():
        found = (found ^ byte) * 0x100000001B3 % (1 << 64)
    return found


def _dtype(node: Node, default: DType) -> DType:
    return our_dtype(element_name(node.op_type, node.attrs["dtype"])) if "dtype" in node.attrs else default


def random(kind: str, first: str, ours: str, second: str, like: bool) -> Handler:
    """Return the handler of a node that draws: `first` and `second` are its attributes, `ours` what the first is."""

    def handle(node: Node) -> Output:
        shape = node.shape() if like else tuple(node.attrs["shape"])
        wanted = _dtype(node, dtype_of(node.x()) if like else F32)
        more = {ours: float(node.attrs[first]), second: float(node.attrs[second])}
        return node.emit(kind, _seed(node), shape=shape, to=wanted, **more)

    return handle


def bernoulli(node: Node) -> Output:
    """Draw 1 with the probability that each element is."""
    wanted = _dtype(node, dtype_of(node.x()))
    drawn = node.emit("bernoulli", node.x(), _seed(node), to=BOOL)
    return node.cast(drawn, wanted)


def multinomial(node: Node) -> Output:
    """Draw classes by their log probabilities, which need no norm."""
    weights: Operand = node.emit("softmax", node.x(), axis=-1)
    found = node.emit("multinomial", weights, _seed(node), num_samples=int(node.attrs["sample_size"]))
    return node.cast(found, _dtype(node, I64))


NODES: dict[str, Handler] = {
    "Bernoulli": bernoulli,
    "BlackmanWindow": window("blackman_window"),
    "Constant": constant,
    "ConstantOfShape": constant_of_shape,
    "EyeLike": eye_like,
    "HammingWindow": window("hamming_window", alpha=25 / 46, beta=21 / 46),
    "HannWindow": window("hann_window"),
    "MelWeightMatrix": mel_weight_matrix,
    "Multinomial": multinomial,
    "RandomNormal": random("random_normal", "mean", "mean", "scale", False),
    "RandomNormalLike": random("random_normal", "mean", "mean", "scale", True),
    "RandomUniform": random("random_uniform", "low", "low", "high", False),
    "RandomUniformLike": random("random_uniform", "low", "low", "high", True),
    "Range": range_,
    "Shape": shape,
    "Size": size,
}
