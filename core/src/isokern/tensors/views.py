"""Indexing by integers, slices, None and …: the description of a view, as NumPy's rule says."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np

from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument, quote


class IndexOutOfRange(InvalidArgument, IndexError):
    """An index is not one of its axis."""


class BadIndexShape(BadTensorShape, IndexError):
    """There are more indices than dims, or a mask has not the shape of what it selects from."""


def is_array_index(item: Any) -> bool:
    """Return whether an item of an index is an array, a list or a boolean: it selects elements, so it makes a copy."""
    if isinstance(item, np.integer):
        return False
    return isinstance(item, (list, bool, np.bool_, np.ndarray)) or hasattr(item, "__array_namespace__")


def has_arrays(items: tuple[Any, ...]) -> bool:
    """Return whether an item of an index selects elements."""
    return any(i.__class__ is not int and i.__class__ is not slice and is_array_index(i) for i in items)


def key_of_index(index: Any) -> tuple[Any, ...] | None:
    """Return what an index is known by: equal for those of the same integers, slices, None and …; None for others."""
    key: list[Any] = []
    for item in index if index.__class__ is tuple else (index,):
        kind = item.__class__
        if kind is slice:
            for part in (item.start, item.stop, item.step):
                if part is not None and part.__class__ is not int:
                    return None
            key += (slice, item.start, item.stop, item.step)
        elif kind is int or item is None or item is ...:
            key += (kind, item)
        else:
            return None
    return (*key,)


def expand_index(desc: TensorDesc, items: tuple[Any, ...], dims: list[int]) -> list[Any]:
    """Return the items with … replaced by slices; `dims` says for each how many dims it indexes."""
    given = sum(n for n, i in zip(dims, items, strict=True) if i is not None and not isinstance(i, EllipsisType))
    dots = [at for at, i in enumerate(items) if isinstance(i, EllipsisType)]
    if given > desc.ndim or len(dots) > 1:
        raise BadIndexShape("index", f"{given} indices for {desc}", allowed=f"at most {desc.ndim} and one …")
    rest = [slice(None)] * (desc.ndim - given)
    at = dots[0] if dots else len(items)
    return [*items[:at], *rest, *items[at + 1 :]]


def find_view(desc: TensorDesc, items: tuple[Any, ...]) -> TensorDesc:
    """Return the description of the view that integers, slices, None and … select."""
    shape: list[int] = []
    strides: list[int] = []
    offset, axis = desc.offset, 0
    for item in expand_index(desc, items, [1] * len(items)):
        if item is None:
            shape.append(1)
            strides.append(0)
        elif isinstance(item, slice):
            try:
                start, stop, step = item.indices(desc.shape[axis])
            except (TypeError, ValueError) as error:
                raise InvalidArgument("index", f"{quote(item)}: {error}", allowed="integers, steps not 0") from None
            length = len(range(start, stop, step))
            offset += start * desc.strides[axis] if length else 0
            shape.append(length)
            strides.append(desc.strides[axis] * (step if length > 1 else 1))
            axis += 1
        elif hasattr(item, "__index__"):
            at, size = item.__index__(), desc.shape[axis]
            if not -size <= at < size:
                allowed = f"{-size}..{size - 1}" if size else "none: the axis is empty"
                raise IndexOutOfRange("index", f"{quote(at)} along axis {axis} of {desc}", allowed=allowed)
            offset += at % size * desc.strides[axis]
            axis += 1
        else:
            raise InvalidArgument("index", quote(item), allowed="integers, slices, None, … and arrays")
    # A view without elements starts where the whole does: steps along its other dims could lead out of the buffer
    return TensorDesc(desc.dtype, shape, strides, desc.offset if 0 in shape else offset)
