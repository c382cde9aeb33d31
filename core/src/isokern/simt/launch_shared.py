"""Launches that several kernel files share, and the choices that go with them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from ..dtypes import DType
from ..layout import TensorDesc
from .launch import Call, bits, ceil_div, coalesce, convert_bits, count_parts, tensor, whole_pack
from .traits import Traits


def launch_rows(call: Call, entry: str, y: TensorDesc, values: int, alone: bool = False, **more: Any) -> None:
    """Launch an entry over the rows of y: an item or a group for each, several groups where rows are few and long.

    Where a row has several groups, each leaves `values` numbers of the compute type in the workspace in PHASE 1, and
    joins those of its row in PHASE 2. No part of a row is empty.
    """
    d = y.shape[-1]
    rows = y.numel // max(1, d)
    length = max(1, ceil_div(d, count_parts(8 * call.device.units, rows, d // 4096)))
    parts = max(1, ceil_div(d, length))
    group = 64 if d <= 512 else 256
    if alone or d <= 32:
        call.launch(entry, items=rows, ALONE=1, PHASE=0, parts=1, length=d, **more)
    elif parts == 1:
        call.launch(entry, groups=rows, local=group, PHASE=0, parts=1, length=d, **more)
    else:
        call.workspace(values * y.dtype.compute.itemsize * rows * parts)
        for phase in (1, 2):
            call.launch(entry, groups=rows * parts, local=group, PHASE=phase, parts=parts, length=length, **more)


def launch_reduction(
    call: Call, entry: str, outputs: int, terms: int, alone: bool, nbytes: int, all: str = "", **values: Any
) -> int:
    """Launch an entry that reduces `terms` elements to each output: an item or a group for each part of an output.

    Returns the number of parts. Where it is not 1 (PARTS), each part leaves `nbytes` bytes in the workspace, and the
    caller launches the entry that joins them.
    """
    parts = count_parts((2048 if alone else 8) * call.device.units, outputs, terms // (64 if alone else 4096))
    tasks = outputs * parts
    how: dict[str, Any] = {"items": tasks, "ALONE": 1} if alone else {"groups": tasks, "local": 256}
    if parts > 1:
        call.workspace(nbytes * tasks)
        how["PARTS"] = 1
    call.launch(entry, all=all, **how, outputs=outputs, **values, length=ceil_div(terms, parts))
    return parts


def describe_reduction(call: Call) -> tuple[Any, int, int, int]:
    """Return the tensors y and x, how many of their dims are kept, the outputs, and the elements of each output."""
    t = call.tensors()
    kept = sum(s != 0 for s in t.y.strides)
    return t, kept, math.prod(t.x.shape[:kept]), math.prod(t.x.shape[kept:])


def launch_any_reduction(call: Call, stem: str, t: Any, nbytes: int, **known: Any) -> None:
    """Launch the entries `stem` and, where parts are to be joined, `stem`_join, of `nbytes` bytes a part.

    `known` are the numbers of kept dims, of outputs, and of elements d of each. An output has an item of its own where
    outputs are many and short, or adjacent in memory, else a group.
    """
    kept, outputs, d = known["kept"], known["outputs"], known["d"]
    adjacent = kept > 0 and abs(t.x.strides[kept - 1]) < abs(t.x.strides[-1])
    alone = d <= 32 or (adjacent and outputs >= 32)
    parts = launch_reduction(call, stem, outputs, d, alone, nbytes, kept=kept, d=d)
    if parts > 1:
        call.launch(f"{stem}_join", groups=outputs, local=64, **known, parts=parts)


def launch_float_reduction(call: Call, stem: str, nbytes: int, strided: bool = False) -> None:
    """Launch `stem`_rows or `stem`_columns for CPU devices, which read whole registers of floats, and `stem`_join.

    An item takes some outputs along memory, or 2,048 neighbours across it; where these are few, parts of `nbytes`.
    `strided` says that the entries take x at any strides, and any lengths.
    """
    t, kept, outputs, d = describe_reduction(call)
    if t.x.dtype.kind != "f" or t.x.numel == 0:
        call.refuse("only floats, and some of them")
    n, columns = t.x.shape[-1], t.x.shape[kept - 1] if kept else 1
    if d < 16 and not strided:
        call.refuse("fewer than 16 elements an output")
    along, across = t.x.strides[-1] == 1 and n >= 16, columns >= 16 and t.x.strides[kept - 1] == 1
    if strided:  # short runs take longer to reduce than to gather
        along = kept < t.x.ndim and not across and (d >= 96 or columns < 16)
    elif not along and not across:
        call.refuse("x does not lie along memory for 16 elements")
    taken = max(1, 16384 // d) if along else 2048
    tasks = ceil_div(outputs, taken) if along else outputs // columns * ceil_div(columns, taken)
    pieces = d // n * ceil_div(n, 8192) if along else d
    parts = count_parts(4 * call.device.units, tasks, pieces if along else d // 64)
    values: dict[str, Any] = {"outputs": outputs, "kept": kept, "d": d}
    shares: dict[str, Any] = {"tasks": tasks, "length": ceil_div(pieces, parts), "PARTS": int(parts > 1)}
    if along:
        call.launch(f"{stem}_rows", groups=tasks * parts, local=1, **values, **shares, taken=taken, pieces=pieces)
    else:
        call.launch(f"{stem}_columns", groups=tasks * parts, local=1, **values, **shares)
    if parts > 1:
        call.workspace(nbytes * outputs * parts)
        call.launch(f"{stem}_join", items=outputs, ALONE=1, **values, parts=parts, PARTS=0)


def choose_tile(device: Traits) -> tuple[int, int]:
    """Return the rows and columns of a tile of a product that a group of at most 256 items computes (`contraction.h`).

    Each item computes 16 elements.
    """
    group = min(256, device.group)
    cols = 64 if group >= 128 else 32 if group >= 32 else 16
    return 16 * group // cols, cols


def cast_by_bits(y: TensorDesc, x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
    """Return y and x as unsigned integers where a cast keeps or truncates bits, so that dtypes share programs."""
    same = x.dtype == y.dtype
    kept = same or (x.dtype.kind in "iub" and y.dtype.kind in "iu")
    whole = x.dtype.kind in "iu" and (y.dtype.kind == "b" or (kept and x.dtype.itemsize >= y.dtype.itemsize))
    return (bits(y) if kept else y), (bits(x) if same or whole else x)


def order_pad(call: Call) -> tuple[Any, int, list[int]]:
    """Return the tensors of `pad` as bits, with their dims in the order of y's memory; its value; and `low` so.

    A dim without a border joins the one before it, where both tensors allow that.
    """
    t = call.tensors()
    order = [d for _, d in sorted((-abs(s), d) for d, s in enumerate(t.y.strides))]
    value = convert_bits(call.attrs.value, t.y.dtype)
    y, x, low = bits(t.y.permute(order)), bits(t.x.permute(order)), [call.attrs.low[d] for d in order]
    dims: list[tuple[int, int, int, int, int]] = []  # lengths and strides of y and x, and low
    for n, m, to, of, before in zip(y.shape, x.shape, y.strides, x.strides, low, strict=True):
        if dims and n == m and (n == 1 or dims[-1][2:4] == (n * to, n * of)):
            last = dims[-1]
            dims[-1] = (last[0] * n, last[1] * n, *((to, of) if n > 1 else last[2:4]), last[4] * n)
        else:
            dims.append((n, m, to, of, before))
    t.y = tensor(y, [d[0] for d in dims], [d[2] for d in dims], y.offset)
    t.x = tensor(x, [d[1] for d in dims], [d[3] for d in dims], x.offset)
    return t, value, [d[4] for d in dims]


def pair_parts(call: Call) -> Iterator[tuple[TensorDesc, TensorDesc]]:
    """Yield for each input of `concat` its place in y and the input itself, as bits with merged dims."""
    t = call.tensors("y", "*parts")
    axis = call.attrs.axis % t.y.ndim
    starts = accumulate((part.shape[axis] for part in t.parts[:-1]), initial=0)
    for start, part in zip(starts, t.parts, strict=True):
        place = t.y.offset + start * t.y.strides[axis] if part.numel else 0
        y, x = coalesce([bits(tensor(t.y, part.shape, t.y.strides, place)), bits(part)])
        yield y, x


def merge_gather(call: Call) -> tuple[Any, int, int, TensorDesc]:
    """Return the tensors of `gather` in y's shape, rows and step of the axis, and the indices as they were given.

    x has stride 0 along the indices' dims, and the indices along all others; then dims are merged.
    """
    t = call.tensors()
    given, axis = t.indices, call.attrs.axis % t.x.ndim
    rows, step = t.x.shape[axis], t.x.strides[axis]
    after = t.y.ndim - axis - given.ndim
    still = tensor(t.x, t.y.shape, [*t.x.strides[:axis], *[0] * given.ndim, *t.x.strides[axis + 1 :]], t.x.offset)
    where = tensor(given, t.y.shape, [*[0] * axis, *given.strides, *[0] * after], given.offset)
    t.y, t.x, t.indices = coalesce([bits(t.y), bits(still), where])
    return t, rows, step, given


def launch_gather_check(call: Call, given: TensorDesc, rows: int, **macros: Any) -> None:
    """Launch the check of the indices of `gather`: by one group, or by parts where there are many."""
    count = given.numel
    parts = count_parts(8 * call.device.units, 1, count // 2048)
    known: dict[str, Any] = {"local": 256, "y": None, "x": None, "indices": given, "rows": rows, "count": count}
    length = ceil_div(count, parts)
    if parts > 1:
        call.workspace(8 * parts)
        call.launch("gather_check", groups=parts, **macros, PARTS=1, **known, length=length)
        call.launch("gather_report", groups=1, **macros, **known, parts=parts)
    elif count > 0:
        call.launch("gather_check", groups=1, **macros, **known, length=length)


def launch_held_rows(call: Call, entry: str) -> None:
    """Launch an entry over rows that the items of a group hold in registers, by packs of 16 bytes.

    A row has LANES items, which hold PER packs of EACH elements each; short rows share a group.
    """
    y, *others = (desc for desc in vars(call.tensors()).values() if desc is not None)
    d, takes = y.shape[-1], 16 // y.dtype.itemsize
    if y.numel == 0 or any(desc.strides[-1] != 1 for desc in (y, *others)):
        call.refuse("rows do not lie along memory")
    if d % takes != 0 or whole_pack([y, *others]) != takes:
        call.refuse("a row does not begin and end at 16 bytes")
    rows, packs, group = y.numel // d, d // takes, min(256, call.device.group)
    lanes = min(group, 1 << (packs - 1).bit_length())
    packs = ceil_div(packs, lanes)
    if packs * takes > 64 or packs > 16:
        call.refuse("a block cannot hold a row")
    threads = lanes if lanes > 32 else group
    per = 1 << (packs - 1).bit_length()
    groups = ceil_div(rows * lanes, threads)
    call.launch(entry, groups=groups, local=threads, rows=rows, d=d, LANES=lanes, EACH=takes, PER=per)


def count_lanes(device: Traits, packs: int) -> int:
    """Return how many items of a group of at most 256 reduce the packs of one output."""
    return min(256, device.group) if packs > 512 else min(32, 1 << max(1, packs // 2).bit_length() - 1)


def check_block_product(call: Call, dtype: DType) -> bool:
    """Refuse a product whose tiles blocks of threads do not compute; return whether tensor cores compute it."""
    half = dtype.name in ("F16", "BF16")
    if not half and dtype.name != "F32":
        call.refuse("neither F16, BF16 nor F32")
    if half and f"mma_{dtype.name.lower()}" not in call.device.features:
        call.refuse("no tensor cores for this dtype")
    if call.device.group < 64:
        call.refuse("blocks of less than 64 threads")
    return half


def choose_block(device: Traits, half: bool, large: bool) -> tuple[int, int, int]:
    """Return the threads of a block that computes a tile of a product, the tile's rows, and those of a warp."""
    group = min(device.group, 128 if half else 256 if large else 64)
    warp = 64 if large else 32
    return group, 2 * warp if half else 128 if group == 256 else 64, warp


def is_large(y: TensorDesc) -> bool:
    """Return whether y is so large that stores had better bypass the caches."""
    return y.numel * y.dtype.itemsize >= 2 << 20


def launch_runs(call: Call, entry: str, y: TensorDesc, **values: Any) -> None:
    """Launch an entry whose items compute runs of at most 8,192 elements along y's last dim, or several short rows."""
    d = max(1, y.shape[-1])
    rows, taken, parts = y.numel // d, max(1, 8192 // d), ceil_div(d, 8192)
    groups, stream = ceil_div(rows, taken) * parts, is_large(y)
    call.launch(entry, groups=groups, local=1, rows=rows, taken=taken, parts=parts, stream=stream, **values)


def choose_rows(device: Traits, rows: int, panels: int) -> int:
    """Return how many rows of one of so many panels of a product an item computes: at most 64, as equal as can be."""
    wanted = ceil_div(4 * device.units, max(1, panels))
    return min(64, 8 * ceil_div(max(1, rows), 8 * max(1, wanted, ceil_div(rows, 64))))


def key_form(dtype: DType) -> dict[str, Any]:
    """The macros from which `keys.h` knows how the bits of a dtype are ordered."""
    if dtype.kind == "f":
        return {"INFINITE": convert_bits(float("inf"), dtype)}
    return {"SIGNED": 1} if dtype.kind == "i" else {}


_FORMS = {  # the names that the kernels of attention have for the tensors of its forms, in the signatures' order
    "varlen_attention": ("y", "q", "k", "v", "starts", "key_starts", "sinks"),
    "paged_attention_prefill": ("y", "q", "k", "v", "block_table", "lengths", "starts", "sinks"),
    "mla_attention": ("y", "q", "k", "lengths", "sinks"),
    "paged_mla_attention": ("y", "q", "k", "block_table", "lengths", "sinks"),
}


def describe_attention(call: Call) -> Any:
    """Return the tensors of a form of attention, described as those of attention or paged_attention.

    Queries, keys and values have four dims: packed ones are of one batch, and all heads share the head of a cache of
    latents, which is k and v. `starts` and `key_starts` say where packed sequences begin; what a form lacks is None.
    """
    names = _FORMS.get(call.op, ())
    latent = "v" not in names and call.op in _FORMS
    if latent:
        call.tensors("y", "q", "v")
    t = call.tensors(*names)
    if latent:
        t.k = _insert_dim(t.k, 2)
        t.v = tensor(t.k, (*t.k.shape[:3], t.y.shape[3]), t.k.strides, t.k.offset)
    for name in ("y", "q", "k", "v"):
        setattr(t, name, _insert_dim(getattr(t, name), 0))
    for name in ("block_table", "lengths", "mask", "seen", "sinks", "alibi", "lse", "starts", "key_starts"):
        setattr(t, name, getattr(t, name, None))
    return t


def _insert_dim(x: TensorDesc, at: int) -> TensorDesc:
    """Return a description of three dims with one more, of one element."""
    if x.ndim == 4:
        return x
    return tensor(x, (*x.shape[:at], 1, *x.shape[at:]), (*x.strides[:at], 0, *x.strides[at:]), x.offset)


def launch_ends(call: Call, t: Any, macros: dict[str, Any], values: dict[str, Any]) -> int:
    """Sort the ends of packed sequences to the beginning of the workspace (`spans.h`); return how many bytes they take.

    The caller books them. `values` gets what the kernel reads of them: `ends`, those bytes, and `sequences`.
    """
    values["ends"] = 0
    if t.starts is not None:
        count = t.starts.shape[0] - 1
        values |= {"ends": 64 * ceil_div(16 * max(1, count), 64), "sequences": count}
        call.launch("sort_ends", items=count, **macros, **values)
    return int(values["ends"])
