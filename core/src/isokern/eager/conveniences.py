"""Eager functions by the names of NumPy, ONNX and PyTorch: views where memory allows them, else calls of operators.

split, chunk and meshgrid return tuples of views; the others call an operator, or two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..declare.operator import Operator
from ..dtypes import dtype as dtype_of
from ..layout import TensorDesc
from ..ops import find
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor, as_tensor
from ..tensors.strided import check_integers
from .calls import call


def _axis(where: str, axis: Any, rank: int) -> int:
    if not is_integer(axis) or not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "a tensor of rank 1 or more"
        raise InvalidArgument(where, f"axis={quote(axis)}", allowed=allowed)
    return int(axis) % rank


def split(x: Any, sizes: Any, axis: int = 0, *, device: Any = None) -> tuple[Tensor, ...]:
    """Return x in parts along `axis`, as views of its memory (PyTorch's and ONNX's split).

    `sizes` is a list of the parts' lengths, which add up to the axis, or the length of all parts but a shorter last.
    """
    return as_tensor(x, device).split(sizes, axis)


def chunk(x: Any, chunks: int, axis: int = 0, *, device: Any = None) -> tuple[Tensor, ...]:
    """Return x in at most so many parts of equal length along `axis`, the last one shorter, as views (PyTorch's chunk).

    ONNX's Split with num_outputs divides alike.
    """
    held = as_tensor(x, device)
    at = _axis("chunk", axis, held.ndim)
    if not is_integer(chunks) or chunks < 1:
        raise InvalidArgument("chunk", f"chunks={quote(chunks)}", allowed="an integer from 1")
    n = held.shape[at]
    return held.split(-(-n // chunks) if n else [0] * chunks, at)


def meshgrid(*xs: Any, indexing: str = "xy", device: Any = None) -> tuple[Tensor, ...]:
    """Return for each vector a view in the shape of all of them, in which it varies along its own dim (NumPy's).

    With "xy" the first vector varies along the second dim and the second along the first; with "ij" each along its own.
    """
    if indexing not in ("xy", "ij"):
        raise InvalidArgument("meshgrid", f"indexing={quote(indexing)}", allowed="'xy' or 'ij'")
    held = [as_tensor(x, device) for x in xs]
    for i, x in enumerate(held):
        if x.ndim > 1:
            raise BadTensorShape("meshgrid", f"x[{i}] is {x.desc}", allowed="vectors")
    vectors = [x[None] if x.ndim == 0 else x for x in held]
    order = list(range(len(vectors)))
    if indexing == "xy" and len(order) > 1:
        order[:2] = 1, 0
    shape = [vectors[i].shape[0] for i in order]
    return tuple(
        x[tuple(slice(None) if i == order.index(k) else None for i in range(len(order)))].broadcast_to(*shape)
        for k, x in enumerate(vectors)
    )


def diag(x: Any, k: int = 0, **options: Any) -> Any:
    """Return a matrix with the vector x on its diagonal k, or the diagonal k of a matrix (NumPy's diag)."""
    held = as_tensor(x, options.get("device"))
    if held.ndim not in (1, 2):
        raise BadTensorShape("diag", f"x is {held.desc}", allowed="a vector or a matrix")
    if held.ndim == 1:
        return call(find("diag_embed"), [held], offset=k, **options)
    return call(find("diagonal"), [held], offset=k, **options)


def diagflat(x: Any, k: int = 0, **options: Any) -> Any:
    """Return a matrix with the elements of x, in row-major order, on its diagonal k (NumPy's diagflat)."""
    return call(find("diag_embed"), [_flatten(as_tensor(x, options.get("device")))], offset=k, **options)


def _flatten(x: Tensor) -> Tensor:
    """Return x as a vector, a view if its strides allow one."""
    shape = (x.desc.numel,)
    if x.desc.reshape(shape) is not None:
        return x.reshape(*shape)
    copied: Tensor = call(find("reshape"), [x], shape=shape)
    return copied


def take(x: Any, indices: Any, axis: int | None = None, **options: Any) -> Any:
    """Return x[…, indices, …] along `axis`, or elements of the flat x if that is None (NumPy's take): `gather`."""
    held = as_tensor(x, options.get("device"))
    if axis is None:
        return call(find("gather"), [_flatten(held), indices], axis=0, **options)
    return call(find("gather"), [held, indices], axis=axis, **options)


def take_along_axis(x: Any, indices: Any, axis: int = -1, **options: Any) -> Any:
    """Return the elements along `axis` that indices name, one for each (NumPy's take_along_axis): `gather_elements`."""
    return call(find("gather_elements"), [x, indices], axis=axis, **options)


def index_copy(x: Any, axis: int, index: Any, source: Any, **options: Any) -> Any:
    """Return x with rows index[i] along `axis` replaced by rows i of source (PyTorch's index_copy): `scatter`."""
    return call(find("scatter"), [x, index, source], axis=axis, **options)


def select_last_token(x: Any, offsets: Any, **options: Any) -> Any:
    """Return of packed sequences x[tokens, …] the last token of each: rows offsets[1:] - 1 of x.

    offsets[i] is where sequence i begins, and the last of them the number of tokens; none may be empty.
    """
    held, starts = as_tensor(x, options.get("device")), as_tensor(offsets, options.get("device"))
    if starts.ndim != 1 or starts.shape[0] < 1:
        raise BadTensorShape("select_last_token", f"offsets is {starts.desc}", allowed="a vector of the first rows")
    last = call(find("sub"), [starts[1:], 1])
    return call(find("gather"), [held, last], axis=0, **options)


def full(shape: Sequence[int], value: Any, dtype: Any = "F32", **options: Any) -> Any:
    """Return a tensor of one value (NumPy's full): `fill`."""
    if is_integer(value):
        check_integers("full", np.asarray(value), dtype_of(dtype))
    return call(find("fill"), [], shape=shape, value=value, dtype=dtype, **options)


def ones(shape: Sequence[int], dtype: Any = "F32", **options: Any) -> Any:
    """Return a tensor of ones (NumPy's ones): `fill`."""
    return call(find("fill"), [], shape=shape, value=1.0, dtype=dtype, **options)


def div(a: Any, b: Any, **options: Any) -> Any:
    """Return a / b: the operator `div`; the quotient of integers is of the default float, F32, as in the array API."""
    device = options.get("device")
    held = [v if isinstance(v, (bool, int, float)) else as_tensor(v, device) for v in (a, b)]
    kinds = {v.dtype.kind for v in held if isinstance(v, Tensor)}
    if kinds and kinds <= {"i", "u"} and not any(isinstance(v, (bool, float)) for v in held):
        held = [call(find("cast"), [v], dtype="F32") if isinstance(v, Tensor) else float(v) for v in held]
    return call(find("div"), held, **options)


def float_power(x: Any, y: Any, **options: Any) -> Any:
    """Return x to the power of y in F64, whatever their types (NumPy's and PyTorch's float_power): `cast` and `pow`."""
    wide = [call(find("cast"), [as_tensor(v, options.get("device"))], dtype="F64") for v in (x, y)]
    return call(find("pow"), wide, **options)


def einsum(equation: str, *xs: Any, device: Any = None) -> Tensor:
    """Return the sum of products that an equation names, such as "bij,bjk->bik" (NumPy's and PyTorch's einsum).

    Each tensor has a letter for each of its dims; dims of one letter step together, and letters that the result lacks
    are summed. Without `->` the result has the letters that occur once, in the order of the alphabet. Two tensors at a
    time are combined, from left to right: by `matmul` if each has letters that the other lacks, of floats, and else
    by `generic`. "…" is written with three dots, and stands for leading dims, which do not broadcast. A letter that is
    in one tensor twice takes its diagonal.
    """
    held = [as_tensor(x, device) for x in xs]
    ins, out = parse_equation(equation, [x.ndim for x in held])
    pairs = [_take_diagonals(x, letters) for x, letters in zip(held, ins, strict=True)]
    kinds = {x.dtype for x, _ in pairs}
    if len(kinds) > 1:
        given = ", ".join(x.dtype.name for x, _ in pairs)
        raise BadTensorDtype("einsum", f"tensors of {given}", allowed="one dtype", hint="cast them")
    product, nest = find("matmul"), find("generic")
    x, letters = pairs[0]
    for i, (y, more) in enumerate(pairs[1:], 2):
        later = set(out).union(*(rest for _, rest in pairs[i:]))
        x, letters = _multiply(product, nest, x, letters, y, more, later)
    if letters == out:
        return x
    if sorted(letters) == sorted(out):
        return x.permute(*(letters.index(c) for c in out)) if out else x
    return _contract(nest, f"{letters}->{out}", "x0", [x], out)


def parse_equation(equation: str, ranks: Sequence[int]) -> tuple[list[str], str]:
    """Return the letters of each tensor and of the result, of an equation for tensors of these ranks."""
    left, arrow, out = equation.replace(" ", "").partition("->")
    ins = left.split(",")
    if len(ins) != len(ranks):
        raise InvalidArgument("einsum", f"{equation!r} for {len(ranks)} tensors", allowed="letters of each tensor")
    used = {c for c in equation if c.isalpha()}
    free = [c for c in "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in used]
    lead = [rank - len(text.replace("...", "")) if "..." in text else 0 for text, rank in zip(ins, ranks, strict=True)]
    dots = "".join(free[: max([0, *lead])])
    given = [t.replace("...", dots[len(dots) - n :], 1) for t, n in zip(ins, lead, strict=True)]
    if not arrow:
        every = "".join(given)
        out = dots + "".join(sorted(c for c in set(every) - set(dots) if every.count(c) == 1))
    out = out.replace("...", dots, 1)
    for text, rank in zip(given, ranks, strict=True):
        if (text and not text.isalpha()) or len(text) != rank:
            raise InvalidArgument("einsum", f"{equation!r}: {text!r} for rank {rank}", allowed="a letter for each dim")
    if (out and not out.isalpha()) or len(set(out)) != len(out) or set(out) - set("".join(given)):
        raise InvalidArgument(
            "einsum", f"{equation!r}: the result {out!r}", allowed="letters of the tensors, each once"
        )
    return given, out


def _take_diagonals(x: Tensor, letters: str) -> tuple[Tensor, str]:
    """Return a view in which a letter's dims step together, and its letters, each once."""
    kept = "".join(dict.fromkeys(letters))
    if kept == letters:
        return x, letters
    for c in kept:
        if len({d for d, name in zip(x.shape, letters, strict=True) if name == c}) > 1:
            raise BadTensorShape("einsum", f"{letters!r} for {x.desc}", allowed=f"equal dims of {c!r}")
    shape = [x.shape[letters.index(c)] for c in kept]
    strides = [sum(s for s, name in zip(x.strides, letters, strict=True) if name == c) for c in kept]
    return Tensor(TensorDesc(x.dtype, shape, strides, x.desc.offset), x.buffer), kept


def _multiply(
    product: Operator, nest: Operator, x: Tensor, a: str, y: Tensor, b: str, later: set[str]
) -> tuple[Tensor, str]:
    """Return the product of two tensors, summed over the letters that are not needed later, and its letters."""
    sizes = dict(zip(a, x.shape, strict=True))
    for c, d in zip(b, y.shape, strict=True):
        if sizes.setdefault(c, d) != d:
            raise BadTensorShape("einsum", f"{c!r} is {sizes[c]} and {d}", allowed="equal dims of a letter")
    batch = [c for c in a if c in b and c in later]
    terms = [c for c in a if c in b and c not in later]
    rows, columns = [c for c in a if c not in b], [c for c in b if c not in a]
    out = "".join(c for c in dict.fromkeys(a + b) if c in later)
    if x.dtype.kind != "f" or not terms or not {*rows, *columns} <= later or not rows or not columns:
        return _contract(nest, f"{a},{b}->{out}", "x0 * x1", [x, y], out), out
    left = _arrange(x, a, [batch, rows, terms], sizes)
    right = _arrange(y, b, [batch, terms, columns], sizes)
    made: Tensor = call(product, [left, right])
    order = [*batch, *rows, *columns]
    return made.reshape(*(sizes[c] for c in order)), "".join(order)


def _arrange(x: Tensor, letters: str, groups: Sequence[Sequence[str]], sizes: dict[str, int]) -> Tensor:
    """Return x with the dims of each group merged: a view if its strides allow one."""
    ordered = x.permute(*(letters.index(c) for group in groups for c in group))
    shape = []
    for group in groups:
        n = 1
        for c in group:
            n *= sizes[c]
        shape.append(n)
    if ordered.desc.reshape(shape) is not None:
        return ordered.reshape(*shape)
    copied: Tensor = call(find("rearrange"), [ordered])
    return copied.reshape(*shape)


def _contract(nest: Operator, maps: str, body: str, xs: Sequence[Tensor], out: str) -> Tensor:
    """Return the loop nest of these maps, its terms summed if the result lacks a letter."""
    sizes: dict[str, int] = {}
    for letters, x in zip(maps.partition("->")[0].split(","), xs, strict=True):
        sizes.update(zip(letters, x.shape, strict=True))
    element, init, combine = xs[0].dtype, None, "none"
    wide = element.compute if element.kind == "f" else element
    if len(sizes) > len(out):
        init = call(find("fill"), [], shape=[sizes[c] for c in out], value=0.0, dtype=wide, device=xs[0].device)
        combine = "sum"
    made: Tensor = call(nest, [init, xs], maps=maps, body=body, combine=combine, dtype=wide)
    narrow: Tensor = made if wide is element else call(find("cast"), [made], dtype=element)
    return narrow
