"""PyTorch's functions that move elements or make tensors, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from torch_rows import FLOATS, Elsewhere, Row, ik, lift, size


def resolved(shape: tuple[int, ...], count: int) -> tuple[int, ...]:
    """Return a shape with -1 replaced, also of tensors without elements."""
    known = math.prod(d for d in shape if d != -1)
    return tuple(count // known if d == -1 and known else 0 if d == -1 else d for d in shape)


def reshape(x: Any, *shape: Any) -> Any:
    wanted = size(*shape)
    return ik.reshape(x, shape=resolved(wanted, math.prod(x.shape)))


def like(x: Any, other: Any) -> Any:
    return ik.reshape(x, shape=other.shape)


def flatten(x: Any, start_dim: int = 0, end_dim: int = -1) -> Any:
    if x.ndim == 0:
        return ik.reshape(x, shape=(1,))
    return ik.flatten(x, start_axis=start_dim, end_axis=end_dim)


def unflatten(x: Any, dim: int, sizes: Any) -> Any:
    axis = dim % max(x.ndim, 1)
    sizes = resolved(tuple(sizes), x.shape[axis])
    groups = [len(sizes) if i == axis else 1 for i in range(x.ndim)]
    return ik.expand_shape(x, groups=groups, shape=(*x.shape[:axis], *sizes, *x.shape[axis + 1 :]))


def permute(x: Any, *axes: Any) -> Any:
    axes = size(*axes)
    return ik.transpose(x, axes=[a % x.ndim for a in axes]) if x.ndim else ik.copy(x)


def exchange(x: Any, a: int, b: int) -> Any:
    axes = list(range(x.ndim))
    if axes:
        axes[a], axes[b] = axes[b], axes[a]
    return ik.transpose(x, axes=axes) if axes else ik.copy(x)


def move(x: Any, source: Any, destination: Any) -> Any:
    source, destination = ((d,) if isinstance(d, int) else d for d in (source, destination))
    return (
        ik.transpose(x, axes=list(np.moveaxis(np.empty(range(x.ndim)), source, destination).shape))
        if x.ndim
        else ik.copy(x)
    )


def squeeze(x: Any, dim: Any = None) -> Any:
    axes = (dim,) if isinstance(dim, int) else dim
    if axes is None:
        return ik.squeeze(x)
    kept = [a % x.ndim for a in axes if x.ndim and x.shape[a] == 1]
    return ik.squeeze(x, axes=kept) if kept else ik.copy(x)


def expand(x: Any, *shape: Any) -> Any:
    wanted = list(size(*shape))
    for i in range(1, x.ndim + 1):
        wanted[-i] = x.shape[-i] if wanted[-i] == -1 else wanted[-i]
    return ik.broadcast_to(x, shape=wanted)


def tile(x: Any, *repeats: Any) -> Any:
    repeats = size(*repeats)
    rank = max(len(repeats), x.ndim)
    x = ik.reshape(x, shape=(*(1,) * (rank - x.ndim), *x.shape))
    return ik.tile(x, repeats=(*(1,) * (rank - len(repeats)), *repeats))


def repeat_interleave(x: Any, repeats: Any, dim: int | None = None, output_size: int | None = None) -> Any:
    if hasattr(repeats, "numpy"):
        raise Elsewhere("a count for each element")
    if dim is None:
        return ik.repeat_interleave(ik.reshape(x, shape=(-1,)), repeats=repeats)
    return lift(ik.repeat_interleave, x, repeats=repeats, axis=dim)


def flip(x: Any, dims: Any) -> Any:
    axes = (dims,) if isinstance(dims, int) else tuple(dims)
    return ik.flip(x, axes=axes) if axes else ik.copy(x)


def roll(x: Any, shifts: Any, dims: Any = None) -> Any:
    shifts = (shifts,) if isinstance(shifts, int) else tuple(shifts)
    axes = (dims,) if isinstance(dims, int) else tuple(dims or ())
    if not axes:
        return ik.reshape(ik.roll(ik.reshape(x, shape=(-1,)), shifts=shifts, axes=(0,)), shape=x.shape)
    return lift(ik.roll, x, shifts=shifts, axes=axes)


def rot90(x: Any, k: int = 1, dims: Any = (0, 1)) -> Any:
    a, b = dims
    k %= 4
    if k == 2:
        return ik.flip(x, axes=(a, b))
    if k == 0:
        return ik.copy(x)
    return exchange(ik.flip(x, axes=(b,)), a, b) if k == 1 else ik.flip(exchange(x, a, b), axes=(b,))


def narrow(x: Any, dim: int, start: Any, length: int) -> Any:
    start = int(start.numpy()) if hasattr(start, "numpy") else start
    axis = dim % x.ndim
    start = start + x.shape[axis] if start < 0 else start
    return ik.slice(x, starts=(start,), ends=(start + length,), axes=(axis,))


def select(x: Any, dim: int, index: int) -> Any:
    axis = dim % x.ndim
    return ik.squeeze(narrow(x, axis, index % x.shape[axis], 1), axes=(axis,))


def cut(x: Any, dim: int, ends: list[int]) -> list[Any]:
    return [narrow(x, dim, start, end - start) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def split(x: Any, sizes: Any, dim: int = 0) -> Any:
    count = x.shape[dim]
    if isinstance(sizes, int):
        return cut(x, dim, [min(end, count) for end in range(sizes, count + sizes, sizes)] or [0])
    return cut(x, dim, list(np.cumsum(sizes)))


def chunk(x: Any, chunks: int, dim: int = 0) -> Any:
    return split(x, max(1, -(-x.shape[dim] // chunks)), dim)


def tensor_split(x: Any, parts: Any, dim: int = 0) -> Any:
    count = x.shape[dim]
    parts = parts.numpy().tolist() if hasattr(parts, "numpy") else parts
    if isinstance(parts, int):
        return cut(
            x, dim, [count * 0 + sum(count // parts + (i < count % parts) for i in range(p + 1)) for p in range(parts)]
        )
    ends = [*(slice(0, e).indices(count)[1] for e in parts), count]
    starts = [0, *ends[:-1]]
    return [narrow(x, dim, s, max(0, e - s)) for s, e in zip(starts, ends, strict=True)]


def unbind(x: Any, dim: int = 0) -> Any:
    return [select(x, dim, i) for i in range(x.shape[dim])]


def concat(*tensors: Any, dim: int = 0) -> Any:
    """PyTorch leaves vectors without elements out, whatever the other shapes are."""
    given = list(tensors[0]) if isinstance(tensors[0], (list, tuple)) else [*tensors]
    dim = tensors[1] if len(tensors) > 1 and isinstance(tensors[1], int) else dim
    kept = [t for t in given if t.shape != (0,)] or given[:1]
    return ik.concat(kept, axis=dim)


def stack(tensors: Any, dim: int = 0) -> Any:
    return ik.stack(list(tensors), axis=dim)


def joined(rank: int, axis: int, column: bool = False) -> Callable[..., Any]:
    """Return hstack, vstack, dstack or column_stack: concat of tensors of a rank, at least."""

    def at_least(t: Any) -> Any:
        if t.ndim >= rank:
            return t
        if column and t.ndim <= 1:
            return ik.reshape(t, shape=(-1, 1))
        shapes = {(0, 1): (1,), (0, 2): (1, 1), (1, 2): (1, *t.shape), (0, 3): (1, 1, 1)}
        return ik.reshape(t, shape=shapes.get((t.ndim, rank), (1, *t.shape, 1) if t.ndim == 1 else (*t.shape, 1)))

    def call(*tensors: Any) -> Any:
        given = [at_least(t) for t in (tensors[0] if isinstance(tensors[0], (list, tuple)) else tensors)]
        return ik.concat(given, axis=0 if axis == 1 and given[0].ndim == 1 else axis)

    return call


def unfold(x: Any, dim: int, size: int, step: int) -> Any:
    if x.ndim == 0:
        return ik.unfold(x[None], size=size, step=step)[0]
    return ik.unfold(x, axis=dim, size=size, step=step)


def last(x: Any, dim1: int, dim2: int) -> Any:
    """Return x with two dims moved to the end, in this order."""
    a, b = dim1 % x.ndim, dim2 % x.ndim
    return ik.transpose(x, axes=[*(i for i in range(x.ndim) if i not in (a, b)), a, b])


def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    """PyTorch takes the first two dims unless told otherwise; ours are the last two."""
    return ik.diagonal(last(x, dim1, dim2), offset=offset)


def diag(x: Any, diagonal: int = 0) -> Any:
    return ik.diag_embed(x, offset=diagonal) if x.ndim == 1 else ik.diagonal(x, offset=diagonal)


def diag_embed(x: Any, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
    y = ik.diag_embed(x, offset=offset)
    return move(y, (y.ndim - 2, y.ndim - 1), (dim1 % y.ndim, dim2 % y.ndim))


def block_diag(*tensors: Any) -> Any:
    return ik.block_diag([ik.reshape(t, shape=(1,) * (2 - t.ndim) + t.shape) for t in tensors])


def pad(x: Any, pad: Any, mode: str = "constant", value: float | None = None) -> Any:
    """PyTorch's pads begin with the last dim, and cut where they are negative."""
    pairs = [(pad[i], pad[i + 1]) for i in range(0, len(pad), 2)]
    pairs += [(0, 0)] * (x.ndim - len(pairs))
    pairs.reverse()
    negative = [(max(0, -a), max(0, -b)) for a, b in pairs]
    if mode == "circular" and any(map(any, negative)):
        raise Elsewhere("a circle of a part")
    low, high = ([max(0, p[i]) for p in pairs] for i in (0, 1))
    if mode == "constant":
        y = ik.pad(x, low=low, high=high, value=float(value or 0))
    else:
        call = {"reflect": ik.pad_reflect, "replicate": ik.pad_replicate, "circular": ik.pad_circular}[mode]
        y = call(x, low=low, high=high)
    if any(a or b for a, b in negative):
        ends = [n - b for n, (_, b) in zip(y.shape, negative, strict=True)]
        y = ik.slice(y, starts=[a for a, _ in negative], ends=ends)
    return y


def triangle(name: str) -> Callable[..., Any]:
    return lambda x, diagonal=0: getattr(ik, name)(x, k=diagonal)


def images(call: Callable[..., Any], **named: str) -> Callable[..., Any]:
    """Return an operator of images [n, c, h, w] for tensors with any number of dims in front of the last three."""

    def apply(x: Any, *given: Any, **attrs: Any) -> Any:
        y = call(ik.reshape(x, shape=(math.prod(x.shape[:-3]), *x.shape[-3:])), *given, **attrs)
        return ik.reshape(y, shape=(*x.shape[:-3], *y.shape[1:]))

    return apply


def one_hot(x: Any, num_classes: int = -1) -> Any:
    depth = int(ik.reduce_max(x).numpy()) + 1 if num_classes == -1 else num_classes
    return ik.one_hot(x, depth=depth, dtype="I64")


def full(value_first: Any = None) -> Callable[..., Any]:
    def call(x: Any, *given: Any, fill_value: Any = value_first, dtype: str | None = None, **_: Any) -> Any:
        value = given[0] if given else fill_value
        if (dtype or x.dtype.name) == "U8" and value < 0:
            raise Elsewhere("numbers that the type does not have wrap")
        return ik.fill(value=value, shape=x.shape, dtype=dtype or x.dtype)

    return call


def made(value: float) -> Callable[..., Any]:
    """Return new_zeros or new_ones: a tensor of a shape, in the type of another."""

    def call(x: Any, *shape: Any, dtype: str | None = None, **_: Any) -> Any:
        return ik.fill(value=value, shape=size(*shape), dtype=dtype or x.dtype)

    return call


def new_full(x: Any, shape: Any, value: Any, dtype: str | None = None, **_: Any) -> Any:
    return ik.fill(value=value, shape=tuple(shape), dtype=dtype or x.dtype)


def constant(value: float) -> Callable[..., Any]:
    return lambda *shape, dtype, **_: ik.fill(value=value, shape=size(*shape), dtype=dtype)


def arange(*limits: Any, start: Any = None, end: Any = None, step: Any = 1, dtype: str | None = None, **_: Any) -> Any:
    if end is None:
        first, stop = limits[:2] if len(limits) > 1 else (0 if start is None else start, limits[0])
    else:
        first, stop = limits[0] if limits else start, end
    step = limits[2] if len(limits) > 2 else step
    if any(isinstance(v, float) and not v.is_integer() for v in (first, stop, step)):
        raise Elsewhere("steps that are not whole")
    if not -(2**62) < first < 2**62:
        raise Elsewhere("numbers of 64 bits")
    return ik.arange(start=int(first), stop=int(stop), step=int(step), dtype=dtype or "I64")


def linspace(start: Any, end: Any, steps: int, dtype: str | None = None, **_: Any) -> Any:
    return ik.linspace(start=float(start), stop=float(end), count=steps, dtype=dtype or "F32")


def eye(n: int, m: int | None = None, dtype: str | None = None, **_: Any) -> Any:
    return ik.eye(rows=n, columns=-1 if m is None else m, dtype=dtype or "F32")


def window(name: str, **renamed: str) -> Callable[..., Any]:
    def call(m: int, *, sym: bool = True, dtype: str | None = None, **more: Any) -> Any:
        more = {k: v for k, v in more.items() if k not in ("layout", "device", "requires_grad")}
        return getattr(ik, name)(length=m, periodic=not sym, dtype=dtype or "F32", **more)

    return call


ROWS = [
    Row("reshape", "reshape", reshape),
    Row("reshape_as", "reshape", like),
    Row("view", "reshape", reshape),
    Row("view_as", "reshape", like),
    Row("ravel", "reshape", lambda x: ik.reshape(x, shape=(-1,)) if math.prod(x.shape) else ik.reshape(x, shape=(0,))),
    Row("flatten", "flatten", flatten),
    Row("unflatten", "expand_shape", unflatten),
    Row("permute", "rearrange", permute),
    Row("transpose", "rearrange", exchange),
    Row("t", "rearrange", lambda x: exchange(x, 0, -1)),
    Row("movedim", "rearrange", move),
    Row("squeeze", "squeeze", squeeze),
    Row("squeeze.multiple", "squeeze", squeeze),
    Row("unsqueeze", "unsqueeze", lambda x, dim: ik.unsqueeze(x, axes=(dim,))),
    Row("expand", "broadcast_to", expand),
    Row("expand_as", "broadcast_to", lambda x, other: ik.broadcast_to(x, shape=other.shape)),
    Row("broadcast_to", "broadcast_to", expand),
    Row("tile", "tile", tile),
    Row("repeat", "tile", tile),
    Row("repeat_interleave", "repeat_interleave", repeat_interleave, share=0.3),
    Row("flip", "flip", flip),
    Row("fliplr", "flip", lambda x: ik.flip(x, axes=(1,))),
    Row("flipud", "flip", lambda x: ik.flip(x, axes=(0,))),
    Row("roll", "roll", roll),
    Row("rot90", "flip rearrange", rot90),
    Row("narrow", "slice", narrow),
    Row("select", "slice", select),
    Row("split", "slice", split),
    Row("split.list_args", "slice", split),
    Row("split_with_sizes", "slice", split),
    Row("chunk", "slice", chunk),
    Row("tensor_split", "slice", tensor_split),
    Row("unbind", "slice", unbind),
    Row("cat", "concat", concat),
    Row("stack", "stack", stack),
    Row("hstack", "concat", joined(1, 1)),
    Row("vstack", "concat", joined(2, 0)),
    Row("dstack", "concat", joined(3, 2)),
    Row("column_stack", "concat", joined(2, 1, column=True)),
    Row("unfold", "unfold", unfold),
    Row("diagonal", "diagonal", diagonal),
    Row("diag", "diag_embed diagonal", diag),
    Row("diag_embed", "diag_embed", diag_embed),
    Row(
        "diagflat",
        "diag_embed",
        lambda x, offset=0: ik.diag_embed(ik.reshape(x, shape=(math.prod(x.shape),)), offset=offset),
    ),
    Row(
        "trace",
        "diagonal",
        lambda x: ik.reduce_sum(ik.cast(ik.diagonal(x), dtype="I64" if x.dtype.kind != "f" else x.dtype)),
    ),
    Row("tril", "tril", triangle("tril")),
    Row("triu", "triu", triangle("triu")),
    Row("block_diag", "block_diag", block_diag),
    Row("clone", "copy", lambda x, memory_format=None: ik.copy(x)),
    Row("contiguous", "copy", lambda x, memory_format=None: ik.copy(x)),
    *(
        Row(f"nn.functional.pad.{mode}", name, pad, share=0.8 if mode == "circular" else 1)
        for mode, name in {
            "constant": "pad",
            "reflect": "pad_reflect",
            "replicate": "pad_replicate",
            "replicate_negative": "pad_replicate",
            "circular": "pad_circular",
        }.items()
    ),
    Row(
        "nn.functional.pixel_shuffle",
        "pixel_shuffle",
        images(lambda x, upscale_factor: ik.pixel_shuffle(x, block=upscale_factor)),
    ),
    Row(
        "nn.functional.pixel_unshuffle",
        "pixel_unshuffle",
        images(lambda x, downscale_factor: ik.pixel_unshuffle(x, block=downscale_factor)),
    ),
    Row("nn.functional.channel_shuffle", "channel_shuffle", lambda x, groups: ik.channel_shuffle(x, groups=groups)),
    Row("nn.functional.one_hot", "one_hot", one_hot),
    Row("full_like", "fill", full(), share=0.9),
    Row("zeros_like", "fill", full(0)),
    Row("ones_like", "fill", full(1)),
    Row("new_full", "fill", new_full),
    Row("new_zeros", "fill", made(0)),
    Row("new_ones", "fill", made(1)),
    Row("zeros", "fill", constant(0)),
    Row("ones", "fill", constant(1)),
    Row("full", "fill", lambda shape, value, dtype, **_: ik.fill(value=value, shape=tuple(shape), dtype=dtype)),
    Row("arange", "arange", arange, share=0.3),
    Row("linspace", "linspace", linspace, dtypes=FLOATS),
    Row("eye", "eye", eye),
    Row("signal.windows.hann", "hann_window", window("hann_window"), dtypes=FLOATS),
    Row("signal.windows.hamming", "hamming_window", window("hamming_window"), dtypes=FLOATS),
    Row("signal.windows.blackman", "blackman_window", window("blackman_window"), dtypes=FLOATS),
]
