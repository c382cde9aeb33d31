"""Indexing by arrays: `take`, `take_along_axis`, and x[…] with masks and arrays of integers, as NumPy's rule says."""

from __future__ import annotations

from types import EllipsisType
from typing import Any

import numpy as np

from ..dtypes import BOOL, I64, INDICES
from ..layout import broadcast_shapes
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from ..tensors import Tensor, as_tensor
from ..tensors.views import BadIndexShape, expand_index, is_array_index
from .dtypes import astype, is_scalar
from .operands import as_array, as_scalar, axis_of, common_shape, takes_array, write
from .operators import function


def _indices(where: str, given: Any, x: Tensor) -> Tensor:
    """Return integers of a dtype that operators index by, on x's device."""
    held = as_array(where, given, x.device)
    if held.dtype.kind not in "iu":
        raise BadTensorDtype(where, f"indices of {held.dtype}", allowed="integers", hint="tensor.astype('I64')")
    return held if held.dtype in INDICES else astype(held, I64)


@takes_array
def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """Return the elements of x at indices along an axis, which may be left out for a vector."""
    if axis is None and x.ndim != 1:
        raise InvalidArgument("take", f"axis=None of {x.desc}", allowed="an axis for other ranks than 1")
    at = axis_of("take", 0 if axis is None else axis, x.ndim)
    made: Tensor = function("gather")(x, _indices("take", indices, x), axis=at)
    return made


@takes_array
def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """Return for each index along an axis the element of x in the same row; the other dims broadcast."""
    held = _indices("take_along_axis", indices, x)
    at = axis_of("take_along_axis", axis, x.ndim)
    if held.ndim != x.ndim:
        raise BadTensorShape("take_along_axis", f"indices {held.desc} of {x.desc}", allowed="the same rank")
    others = [tuple(1 if a == at else d for a, d in enumerate(t.shape)) for t in (x, held)]
    shape = broadcast_shapes(*others)
    if shape is None:
        given = f"indices {held.desc} of {x.desc}"
        raise BadTensorShape("take_along_axis", given, allowed=f"but for axis {at}, equal dims or 1")
    wide = [t.broadcast_to(tuple(t.shape[a] if a == at else d for a, d in enumerate(shape))) for t in (x, held)]
    made: Tensor = function("gather_elements")(*wide, axis=at)
    return made


class _Selection:
    """What an index with arrays selects: a view, the axes of it that are indexed, and where the result has their dims.

    Arrays broadcast together. Their dims stand where the arrays do, or in front where something is between these.
    """

    def __init__(self, x: Tensor, items: tuple[Any, ...]) -> None:
        held = [self._array(x, i) if is_array_index(i) else i for i in items]
        dims = [i.ndim if isinstance(i, Tensor) and i.dtype is BOOL else 1 for i in held]
        view: list[Any] = []
        self.axes: list[int] = []
        self.arrays: list[Tensor] = []
        before: int | None = None  # dims of the result before the first array
        axis = rank = 0  # of x, and of the view
        for item in expand_index(x.desc, tuple(held), dims):
            if isinstance(item, Tensor):
                arrays = _find_true(x, item, axis) if item.dtype is BOOL else [item]
                before = rank if before is None else before
                if not arrays:  # a mask of rank 0 chooses all or nothing along a new dim
                    view.append(None)
                    arrays = [function("fill")(shape=(int(bool(item)),), dtype=I64, device=x.device)]
                else:
                    view += [slice(None)] * len(arrays)
                    axis += len(arrays)
                self.axes += range(rank, rank + len(arrays))
                self.arrays += arrays
                rank += len(arrays)
                continue
            if item is not None and not isinstance(item, slice):
                before = rank if before is None else before
            else:
                rank += 1
            axis += item is not None
            view.append(item)
        # An integer counts as an array of rank 0, and … as something between, even where it stands for no dim
        places = [at for at, i in enumerate(held) if not (i is None or isinstance(i, (slice, EllipsisType)))]
        together = places[-1] - places[0] + 1 == len(places)
        self.before = before if together else 0
        whole = x[tuple(view)]
        self.rest = [a for a in range(whole.ndim) if a not in self.axes]
        self.view = whole.permute((*self.axes, *self.rest))
        shape = common_shape("index", *self.arrays)
        self.arrays = [a.broadcast_to(shape) for a in self.arrays]
        self.shape = shape

    @staticmethod
    def _array(x: Tensor, item: Any) -> Tensor:
        array = np.zeros(0, np.int64) if isinstance(item, list) and not item else item
        held = item if isinstance(item, Tensor) else as_tensor(np.asarray(array), x.device)
        if held.dtype.kind not in "biu":
            raise BadTensorDtype("index", f"an array of {held.dtype}", allowed="integers, or booleans as a mask")
        if held.dtype.kind != "b" and held.dtype is not I64:
            held = astype(held, I64)
        return held

    @property
    def indices(self) -> Tensor:
        """The indices as one tensor, the last dim of which names the axes."""
        made: Tensor = function("stack")(self.arrays, axis=len(self.shape))
        return made

    def gather(self) -> Tensor:
        """Return the elements, the dims of the arrays in front."""
        if len(self.arrays) == 1:
            made: Tensor = function("gather")(self.view, self.arrays[0], axis=0)
        else:
            made = function("gather_nd")(self.view, self.indices)
        return made

    def order(self) -> tuple[int, ...]:
        """Return the dims of `gather` in the order of the result."""
        lead, rest = range(len(self.shape)), range(len(self.shape), len(self.shape) + len(self.rest))
        return (*rest[: self.before], *lead, *rest[self.before :])


def _find_true(x: Tensor, mask: Tensor, axis: int) -> list[Tensor]:
    """Return where a mask is true, a vector of indices for each of its dims; the host waits for their number."""
    wanted = x.shape[axis : axis + mask.ndim]
    if any(m not in (d, 0) for m, d in zip(mask.shape, wanted, strict=True)):
        raise BadIndexShape("index", f"a mask {list(mask.shape)} of dims {list(wanted)}", allowed="the same dims")
    if mask.ndim == 0:
        return []
    places, count = function("nonzero")(mask)
    return [places[a, : int(count.item())] for a in range(mask.ndim)]


def select(x: Tensor, items: tuple[Any, ...]) -> Tensor:
    """Return a copy of what an index with masks or arrays of integers selects."""
    mask = items[0] if len(items) == 1 and x.ndim else None
    if mask.__class__ is Tensor and mask.desc.dtype is I64:
        gathered: Tensor = function("gather")(x, mask)  # along the first axis
        return gathered
    if isinstance(mask, Tensor) and mask.dtype is BOOL and mask.shape == x.shape and x.dtype.kind != "c":
        flat, count = function("masked_select")(x, mask)
        chosen: Tensor = flat[: int(count.item())]
        return chosen
    found = _Selection(x, items)
    return found.gather().permute(found.order())


def assign(target: Tensor, value: Any) -> None:
    """Write an array or a number into all elements of a view."""
    write(target, value, "assign")


def assign_selected(x: Tensor, items: tuple[Any, ...], value: Any) -> None:
    """Write an array or a number where masks or arrays of integers select; a repeated index has one of the values."""
    if is_scalar(value):
        source = as_scalar("assign", value, x.dtype, x.device)
    else:
        source = as_array("assign", value, x.device)
        if source.dtype is not x.dtype:
            held = function("fill")(shape=source.shape, dtype=x.dtype, device=x.device)
            write(held, source)  # which refuses what does not fit
            source = held
    mask = items[0] if len(items) == 1 else None
    if isinstance(mask, Tensor) and mask.dtype is BOOL and mask.shape == x.shape and source.ndim == 0:
        write(x, function("where")(mask, source, x))
        return
    found = _Selection(x, items)
    result = found.view.desc.shape[len(found.axes) :]
    shape = (*result[: found.before], *found.shape, *result[found.before :])
    if source.shape != shape and broadcast_shapes(source.shape, shape) != shape:
        raise BadTensorShape("assign", f"{source.desc} into {list(shape)}", allowed="what broadcasts to it")
    order = found.order()
    updates = source.broadcast_to(shape).permute(tuple(order.index(a) for a in range(len(order))))
    changed = function("scatter_nd")(found.view, found.indices, updates)
    write(found.view, changed)
