"""PyTorch's reductions, scans and orders, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_rows import (
    ANY,
    FLOATS,
    INTEGERS,
    TRIED,
    Elsewhere,
    Row,
    along,
    both,
    dims,
    extremes,
    ik,
    lift,
    shape_of,
    wide,
)


def reduced(name: str, widen: bool = False) -> Callable[..., Any]:
    """Return a reduction of PyTorch's arguments; `widen` makes sums of integers and truths ones of I64."""

    def call(x: Any, dim: Any = None, keepdim: bool = False, dtype: str | None = None) -> Any:
        if dtype == "BOOL":
            raise Elsewhere("results of truths")
        x = wide(x, dtype) if widen or dtype else x
        return getattr(ik, name)(x, axes=dims(x, dim), keepdims=keepdim)

    return call


def truth(name: str) -> Callable[..., Any]:
    """Return all or any, of which PyTorch has U8 for U8, and truths for all other types."""

    def call(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        y = getattr(ik, name)(x, axes=dims(x, dim), keepdims=keepdim)
        return ik.cast(y, dtype="U8") if x.dtype.name == "U8" else y

    return call


def nansum(x: Any, dim: Any = None, keepdim: bool = False, dtype: str | None = None) -> Any:
    x = wide(x, dtype)
    return ik.reduce_sum(ik.nan_to_num(x), axes=dims(x, dim), keepdims=keepdim)


def spread(name: str) -> Callable[..., Any]:
    def call(
        x: Any, *given: Any, dim: Any = None, keepdim: bool = False, unbiased: Any = None, correction: Any = None
    ) -> Any:
        if given and isinstance(given[0], bool):
            unbiased = given[0]
        elif given:
            dim = given[0]
            unbiased = given[1] if len(given) > 1 else unbiased
            keepdim = given[2] if len(given) > 2 else keepdim
        amount = 1 if unbiased is None else int(unbiased)
        amount = amount if correction is None else correction
        if amount < 0:
            raise Elsewhere("a correction below 0")
        options = {"axes": dims(x, dim), "keepdims": keepdim, "correction": amount}
        if name == "std_mean":
            var, mean = ik.var_mean(x, **options)
            return ik.sqrt(var), mean
        return getattr(ik, name)(x, **options)

    return call


def chosen(name: str) -> Callable[..., Any]:
    """Return argmax or argmin; without a dim that of the flat tensor."""

    def call(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is not None:
            return lift(getattr(ik, name), x, axis=dim, keepdims=keepdim)
        y = getattr(ik, name)(ik.reshape(x, shape=(-1,)), axis=0)
        return ik.reshape(y, shape=(1,) * x.ndim) if keepdim else y

    return call


def extreme(reduce: str, arg: str) -> Callable[..., Any]:
    """Return max or min with a dim: values and indices."""

    def call(x: Any, dim: int, keepdim: bool = False) -> Any:
        values = getattr(ik, reduce)(x, axes=dims(x, dim), keepdims=keepdim)
        return values, lift(getattr(ik, arg), x, axis=dim, keepdims=keepdim)

    return call


def aminmax(x: Any, *, dim: int | None = None, keepdim: bool = False) -> Any:
    return [getattr(ik, f"reduce_{n}")(x, axes=dims(x, dim), keepdims=keepdim) for n in ("min", "max")]


def vector_norm(x: Any, ord: float = 2, dim: Any = None, keepdim: bool = False, dtype: str | None = None) -> Any:
    x = wide(x, dtype) if dtype else x
    return ik.norm(x, p=float(ord), axes=dims(x, dim), keepdims=keepdim)


def norm(x: Any, p: Any = "fro", dim: Any = None, keepdim: bool = False, dtype: str | None = None) -> Any:
    if p == "nuc":
        raise Elsewhere("the nuclear norm")
    return vector_norm(x, 2 if p in ("fro", None) else p, dim, keepdim, dtype)


def running(name: str) -> Callable[..., Any]:
    def call(x: Any, dim: int, dtype: str | None = None) -> Any:
        return lift(getattr(ik, name), wide(x, dtype) if name.startswith(("cums", "cump")) else x, axis=dim)

    return call


def running_extreme(name: str) -> Callable[..., Any]:
    return lambda x, dim: (lift(getattr(ik, name), x, axis=dim), ANY)


def difference(x: Any, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None) -> Any:
    if n == 0:
        return ik.diff(x, n=0, axis=dim)  # PyTorch leaves what is prepended and appended out
    parts = [p for p in (prepend, x, append) if p is not None]
    return ik.diff(x if len(parts) == 1 else ik.concat(parts, axis=dim), n=n, axis=dim)


def bounds(x: Any, low: float, high: float) -> tuple[float, float]:
    """Return histc's limits: those of the elements where both are equal, one apart where these are equal too."""
    if low == high and math.prod(x.shape):
        low, high = (float(getattr(ik, n)(x).numpy()) for n in ("reduce_min", "reduce_max"))
    return (low - 1, high + 1) if low == high else (low, high)


def histc(x: Any, bins: int = 100, min: float = 0, max: float = 0) -> Any:
    low, high = bounds(x, min, max)
    return ik.histc(x, bins=bins, min=low, max=high)


def bincount(x: Any, weights: Any = None, minlength: int = 0) -> Any:
    most = int(ik.reduce_max(x).numpy()) + 1 if math.prod(x.shape) else 0
    length = max(most, minlength)
    x = ik.cast(x, dtype="I32") if x.dtype.name == "U8" else x
    if weights is None:
        return ik.bincount(x, length=length)
    wanted = "F32" if weights.dtype.name == "F32" else "F64"
    return ik.index_add(ik.fill(shape=(length,), dtype=wanted), x, ik.cast(weights, dtype=wanted))


def is_distinct(x: Any) -> bool:
    return bool(np.unique(x.numpy()).size == x.numpy().size)


def kthvalue(x: Any, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    """Of equal elements PyTorch's index is any; ours is that of their order."""
    value, index = lift(ik.kthvalue, x, k=k, axis=dim, keepdims=keepdim)
    return value, index if is_distinct(x) else ANY


def middle(name: str) -> Callable[..., Any]:
    """Return median or nanmedian; without a dim the value alone, of the flat tensor."""

    def call(x: Any, dim: int | None = None, keepdim: bool = False) -> Any:
        if dim is None:
            return getattr(ik, name)(ik.reshape(x, shape=(-1,)), axis=0)[0]
        return lift(getattr(ik, name), x, axis=dim, keepdims=keepdim)

    return call


def quantile(x: Any, q: Any, dim: int | None = None, keepdim: bool = False, interpolation: str = "linear") -> Any:
    rank, y = x.ndim, x
    if dim is None:
        y = ik.reshape(x, shape=(-1,))
    shares = [float(v) for v in np.atleast_1d(np.asarray(q.numpy() if hasattr(q, "numpy") else q))]
    found = [
        lift(ik.quantile, y, q=share, axis=0 if dim is None else dim, keepdims=keepdim, interpolation=interpolation)
        for share in shares
    ]
    if dim is None and keepdim:
        found = [ik.reshape(f, shape=(1,) * rank) for f in found]
    return ik.stack(found) if shape_of(q) else found[0]


def sort(x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """PyTorch's order of equal elements is any unless `stable` asks for ours."""
    y, indices = lift(ik.sort, x, axis=dim, descending=descending)
    return y, indices if stable or is_distinct(x) else ANY


def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k smallest are those that `sort` has first; of equal elements PyTorch's choice is any."""
    if largest:
        found = lift(ik.topk, x, k=k, axis=dim)
    else:
        found = [
            f if not f.ndim else ik.slice(f, starts=(0,), ends=(k,), axes=(dim,)) for f in lift(ik.sort, x, axis=dim)
        ]
    return found if is_distinct(x) else (found[0], ANY)


def unique(
    x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    if dim is not None:
        raise Elsewhere("distinct slices")
    y, _, inverse, counts, count = ik.unique(x)
    n = int(count.numpy())
    return [y[:n], *([inverse] if return_inverse else []), *([counts[:n]] if return_counts else [])]


def np_broadcast(a: Any, b: Any) -> tuple[Any, Any]:
    shape = np.broadcast_shapes(a.shape, b.shape)
    return ik.broadcast_to(a, shape=shape), ik.broadcast_to(b, shape=shape)


def norms(dtype: Any) -> list[Any]:
    return [sample for p in (0, 1, 2, 3, 0.5, -1, math.inf, -math.inf) for sample in along(p)(dtype)]


ROWS = [
    Row("sum", "reduce_sum", reduced("reduce_sum", widen=True), dtypes=TRIED, inputs=both(along(), extremes(1, dim=0))),
    Row("nansum", "nan_to_num reduce_sum", nansum, dtypes=FLOATS, inputs=along()),
    Row("mean", "reduce_mean", reduced("reduce_mean"), dtypes=FLOATS, inputs=along()),
    Row("prod", "reduce_prod", reduced("reduce_prod", widen=True), share=0.9, dtypes=TRIED),
    Row("amax", "reduce_max", reduced("reduce_max"), inputs=along()),
    Row("amin", "reduce_min", reduced("reduce_min"), inputs=along()),
    Row("max.reduction_no_dim", "reduce_max", reduced("reduce_max"), inputs=along(where=(None,))),
    Row("min.reduction_no_dim", "reduce_min", reduced("reduce_min"), inputs=along(where=(None,))),
    Row("max.reduction_with_dim", "reduce_max argmax", extreme("reduce_max", "argmax"), inputs=along()),
    Row("min.reduction_with_dim", "reduce_min argmin", extreme("reduce_min", "argmin"), inputs=along()),
    Row("aminmax", "reduce_min reduce_max", aminmax, inputs=along(where=(None,))),
    Row("all", "reduce_all", truth("reduce_all"), inputs=along()),
    Row("any", "reduce_any", truth("reduce_any"), inputs=along()),
    Row("count_nonzero", "count_nonzero", reduced("count_nonzero"), inputs=along()),
    Row("logsumexp", "logsumexp", reduced("logsumexp"), inputs=along()),
    Row("argmax", "argmax", chosen("argmax"), inputs=along()),
    Row("argmin", "argmin", chosen("argmin"), inputs=along()),
    Row("var", "var", spread("var"), share=0.8, inputs=along()),
    Row("std", "std", spread("std"), share=0.8, inputs=along()),
    Row("var_mean", "var_mean", spread("var_mean"), share=0.8),
    Row("std_mean", "var_mean", spread("std_mean"), share=0.8),
    Row("var.unbiased", "var", spread("var")),
    Row("std.unbiased", "std", spread("std")),
    Row("var_mean.unbiased", "var_mean", spread("var_mean")),
    Row("std_mean.unbiased", "var_mean", spread("std_mean")),
    Row("linalg.vector_norm", "norm", vector_norm, inputs=norms),
    Row("norm", "norm", norm),
    Row("norm.inf", "norm", norm),
    Row("norm.fro", "norm", norm),
    Row("dist", "dist", lambda a, b, p=2: ik.dist(*np_broadcast(a, b), p=float(p))),
    Row("cumsum", "cumsum", running("cumsum"), dtypes=TRIED, inputs=both(along(), extremes(1, dim=0))),
    Row("cumprod", "cumprod", running("cumprod"), dtypes=TRIED, inputs=both(along(), extremes(1, dim=0))),
    Row("cummax", "cummax", running_extreme("cummax"), inputs=along()),
    Row("cummin", "cummin", running_extreme("cummin"), inputs=along()),
    Row("logcumsumexp", "logcumsumexp", running("logcumsumexp"), inputs=along()),
    Row("diff", "diff", difference, inputs=along(1)),
    Row("histc", "histc", histc),
    Row("bincount", "bincount", bincount, dtypes=INTEGERS),
    Row("kthvalue", "kthvalue", kthvalue, inputs=along(2)),
    Row("median", "median", middle("median"), inputs=along()),
    Row("nanmedian", "nanmedian", middle("nanmedian"), inputs=along()),
    Row("quantile", "quantile", quantile),
    Row("sort", "sort", sort, inputs=along()),
    Row("msort", "sort", lambda x: lift(ik.sort, x, axis=0)[0]),
    Row(
        "argsort",
        "sort",
        lambda x, dim=-1, descending=False, stable=False: sort(x, dim, descending, stable)[1],
        inputs=along(),
    ),
    Row("topk", "topk", topk, inputs=along(2)),
    Row("unique", "unique", unique, share=0.1),
]
