"""PyTorch's choices and updates by index and by mask, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_rows import (
    FLOATS,
    INTEGERS,
    Elsewhere,
    Row,
    along,
    ik,
)


def gather(x: Any, dim: int, index: Any, sparse_grad: bool = False) -> Any:
    if math.prod(index.shape) == 0:
        return ik.fill(shape=index.shape, dtype=x.dtype)
    if x.ndim == 0:
        return ik.reshape(ik.gather_elements(x[None], ik.reshape(index, shape=(1,))), shape=index.shape)
    return ik.gather_elements(x, index, axis=dim)


def scatter(x: Any, dim: int, index: Any, src: Any = None, value: Any = None, reduce: str | None = None) -> Any:
    how = {None: "none", "add": "add", "multiply": "mul"}[reduce]
    source = value if src is None else src
    if not hasattr(source, "shape"):
        source = ik.fill(value=source, shape=index.shape, dtype=x.dtype)
    return updated(x, dim, index, source, how)


def updated(x: Any, dim: int, index: Any, source: Any, how: str) -> Any:
    """Return scatter_elements of the part of `source` that PyTorch reads: as large as the indices."""
    if x.dtype.name == "BOOL" and how != "none":
        raise Elsewhere("sums of truths")
    if math.prod(index.shape) == 0:
        return ik.copy(x)
    if source.shape != index.shape:
        source = ik.slice(source, starts=(0,) * source.ndim, ends=index.shape)
    if x.ndim == 0:
        parts = [t[None] if t.ndim == 0 else t for t in (x, index, source)]
        return ik.reshape(ik.scatter_elements(*parts, reduction=how), shape=())
    return ik.scatter_elements(x, index, source, axis=dim, reduction=how)


def scatter_reduce(how: str) -> Callable[..., Any]:
    def call(x: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
        if not include_self:
            raise Elsewhere("without the elements that were there")
        return updated(x, dim, index, src, how)

    return call


def index_add(x: Any, dim: int, index: Any, source: Any, *, alpha: float = 1) -> Any:
    if x.ndim == 0:
        return ik.reshape(
            ik.index_add(
                x[None], index if index.ndim else index[None], source if source.ndim else source[None], alpha=alpha
            ),
            shape=(),
        )
    index = index if index.ndim else index[None]
    return ik.index_add(x, index, source, axis=dim, alpha=alpha)


def index_fill(x: Any, dim: int, index: Any, value: Any) -> Any:
    value = float(value.numpy()) if hasattr(value, "numpy") else float(value)
    index = index if index.ndim else index[None]
    if x.ndim == 0:
        return ik.reshape(ik.index_fill(x[None], index, value=value), shape=())
    return ik.index_fill(x, index, axis=dim, value=value)


def index_copy(x: Any, dim: int, index: Any, source: Any) -> Any:
    index = index if index.ndim else index[None]
    if x.ndim == 0:
        return ik.reshape(ik.scatter(x[None], index, source if source.ndim else source[None]), shape=())
    return ik.scatter(x, index, source, axis=dim)


def index_select(x: Any, dim: int, index: Any) -> Any:
    index = index if index.ndim else index[None]
    if x.ndim == 0:
        return ik.reshape(ik.gather(x[None], index), shape=())
    return ik.gather(x, index, axis=dim)


def take(x: Any, index: Any) -> Any:
    return ik.gather(ik.reshape(x, shape=(-1,)), index)


def take_along_dim(x: Any, index: Any, dim: int | None = None) -> Any:
    if dim is None:
        return ik.gather_elements(ik.reshape(x, shape=(-1,)), ik.reshape(index, shape=(-1,)), axis=0)
    axis = dim % x.ndim
    common = np.broadcast_shapes(*((*t.shape[:axis], 1, *t.shape[axis + 1 :]) for t in (x, index)))
    x, index = (ik.broadcast_to(t, shape=(*common[:axis], t.shape[axis], *common[axis + 1 :])) for t in (x, index))
    return ik.gather_elements(x, index, axis=axis)


def index_put(x: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    if any(i is None or i.dtype.name == "BOOL" for i in indices):
        raise Elsewhere("truths as indices, and dims between them")
    if x.dtype.name == "BOOL" and accumulate:
        raise Elsewhere("sums of truths")
    shape = np.broadcast_shapes(*(i.shape for i in indices))
    tuples = ik.stack([ik.broadcast_to(i, shape=shape) for i in indices], axis=-1)
    values = ik.broadcast_to(values, shape=(*shape, *x.shape[len(indices) :]))
    return ik.scatter_nd(x, tuples, values, reduction="add" if accumulate else "none")


def put(x: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    if math.prod(index.shape) == 0:
        return ik.copy(x)
    if x.dtype.name == "BOOL" and accumulate:
        raise Elsewhere("sums of truths")
    flat = [ik.reshape(t, shape=(-1,)) for t in (x, index, source)]
    return ik.reshape(ik.scatter(*flat, reduction="add" if accumulate else "none"), shape=x.shape)


def masked_fill(x: Any, mask: Any, value: Any) -> Any:
    value = value.numpy().item() if hasattr(value, "numpy") else value
    shape = np.broadcast_shapes(x.shape, mask.shape)
    return ik.masked_fill(ik.broadcast_to(x, shape=shape), mask, value=float(value))


def masked_select(x: Any, mask: Any) -> Any:
    found, count = ik.masked_select(x, mask)
    return found[: int(count.numpy())]


def argwhere(x: Any) -> Any:
    found, count = ik.argwhere(x)
    return found[: int(count.numpy())]


def nonzero(x: Any, as_tuple: bool = False) -> Any:
    if not as_tuple:
        return argwhere(x)
    found, count = ik.nonzero(ik.reshape(x, shape=(1,)) if x.ndim == 0 else x)
    return [row[: int(count.numpy())] for row in found]


SUMMED = (*FLOATS, *INTEGERS)
ROWS = [
    Row("gather", "gather_elements", gather),
    Row("scatter", "scatter_elements", scatter, share=0.9),
    Row(
        "scatter_add", "scatter_elements", lambda x, dim, index, src: updated(x, dim, index, src, "add"), dtypes=SUMMED
    ),
    *(
        Row(f"scatter_reduce.{theirs}", "scatter_elements", scatter_reduce(ours), share=0.3, dtypes=SUMMED)
        for theirs, ours in {"sum": "add", "prod": "mul", "amax": "max", "amin": "min"}.items()
    ),
    Row("index_add", "index_add", index_add),
    Row("index_fill", "index_fill", index_fill),
    Row("index_copy", "scatter", index_copy),
    Row("index_select", "gather", index_select),
    Row("index_put", "scatter_nd", index_put, share=0.1),
    Row("put", "scatter", put, share=0.9),
    Row("take", "gather", take),
    Row("take_along_dim", "gather_elements", take_along_dim),
    Row("masked_fill", "masked_fill", masked_fill),
    Row("masked_select", "masked_select", masked_select),
    Row("argwhere", "argwhere", argwhere, inputs=along(where=(None,))),
    Row("nonzero", "argwhere nonzero", nonzero, inputs=along(where=(None,))),
]
