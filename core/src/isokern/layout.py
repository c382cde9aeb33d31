"""TensorDesc: the layout of a tensor (dtype, shape, strides, offset) without its memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index
from typing import Any

from .dtypes import DType, dtype
from .status import BadTensorShape, BadTensorStrides, quote

MAX_RANK = 8
INT64_MAX = 2**63 - 1
KNOWN = 1 << 14  # descriptions that are kept, to be found again without a check: some megabytes
_known: dict[tuple[Any, ...], TensorDesc] = {}


class TensorDesc:
    """Element type, shape, strides and offset of a tensor.

    Strides and offset count elements. For block types the last dim is contiguous and a whole number of blocks, and the
    offset and the other strides are multiples of the block. Rank 0 has one element. Instances are immutable and
    hashable, and are equal if all four parts are.

    >>> TensorDesc("F32", (2, 3)).strides
    (3, 1)
    """

    __slots__ = ("_hash", "_key", "dtype", "numel", "offset", "shape", "strides")
    _key: tuple[int, tuple[int, ...], tuple[int, ...], int]
    _hash: int

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    numel: int

    def __new__(
        cls, dtype_: object, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0
    ) -> TensorDesc:
        """Return the description; it may be one that was made before."""
        element = dtype(dtype_)
        dims = _integers("shape", shape)
        given = None if strides is None else _integers("strides", strides)
        (start,) = _integers("offset", (offset,))
        layout = (cls, element.code, dims, given, start)
        known = _known.get(layout)
        if known is not None:
            return known
        steps = check_layout(dims, given, start)
        made = super().__new__(cls)
        set_ = object.__setattr__
        set_(made, "dtype", element)
        set_(made, "shape", dims)
        set_(made, "strides", steps)
        set_(made, "offset", start)
        set_(made, "numel", math.prod(dims))
        set_(made, "_key", (element.code, dims, steps, start))
        set_(made, "_hash", hash(made._key))
        check_extent(made)
        if len(_known) >= KNOWN:
            _known.clear()
        _known[layout] = made
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"TensorDesc is immutable: make a new one instead of setting {name}")

    def __reduce__(self) -> tuple[Any, ...]:
        return TensorDesc, (self.dtype, self.shape, self.strides, self.offset)

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, TensorDesc) and self._key == other._key)

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        dims = ", ".join([f"{d}" for d in self.shape])
        text = f"{self.dtype.name}[{dims}]"
        if not self.is_contiguous:
            text += f" strides {self.strides}"
        return f"{text} offset {self.offset}" if self.offset else text

    @property
    def ndim(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the elements themselves, without gaps."""
        return self.dtype.nbytes(self.numel)

    @property
    def extent(self) -> tuple[int, int]:
        """First element touched and one past the last, from the buffer's start; (offset, offset) if it is empty."""
        if self.numel == 0:
            return self.offset, self.offset
        reach = [(d - 1) * s for d, s in zip(self.shape, self.strides, strict=True)]
        low = self.offset + sum(r for r in reach if r < 0)
        return low, self.offset + sum(r for r in reach if r > 0) + 1

    @property
    def byte_range(self) -> tuple[int, int]:
        """First byte touched and one past the last, from the buffer's start."""
        low, high = self.extent
        block = self.dtype.block
        return low // block * self.dtype.itemsize, -(-high // block) * self.dtype.itemsize

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements are in row-major order without gaps."""
        expected = 1
        for d, s in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if d != 1 and s != expected:
                return self.numel == 0
            expected *= d
        return True

    @property
    def overlaps_itself(self) -> bool:
        """Whether two indices may name one element; exact for nested strides, which views have."""
        reach = 0
        for step, dim in sorted([(abs(s), d) for d, s in zip(self.shape, self.strides, strict=True) if d > 1]):
            if step <= reach:
                return self.numel > 1 and repeats_itself(self)
            reach += step * (dim - 1)
        return False

    @property
    def raw(self) -> TensorDesc:
        """The same memory as a U8 tensor.

        For block types the last dim becomes the bytes of a row's blocks; for other types a last dim of `itemsize` bytes
        is added.
        """
        size, block = self.dtype.itemsize, self.dtype.block
        shape, strides = (*self.shape, 1), (*self.strides, 1)
        if block > 1:
            shape, strides = (*self.shape[:-1], self.shape[-1] // block), (*self.strides[:-1], block)
        steps = [s // block * size for s in strides[:-1]]
        return TensorDesc("U8", (*shape[:-1], shape[-1] * size), (*steps, 1), self.offset // block * size)

    def permute(self, axes: Sequence[int]) -> TensorDesc:
        """Return the view with its dims in the order `axes`."""
        if sorted(axes) != list(range(self.ndim)):
            raise BadTensorShape("permute", f"axes {tuple(axes)} for {self}", allowed=f"an order of 0..{self.ndim - 1}")
        return TensorDesc(self.dtype, [self.shape[a] for a in axes], [self.strides[a] for a in axes], self.offset)

    def broadcast_to(self, shape: Sequence[int]) -> TensorDesc:
        """Return the view of `shape` by NumPy's rule: dims added on the left, and dims of 1, repeat with stride 0."""
        lead = len(shape) - self.ndim
        fits = lead >= 0 and all(d in (1, w) for d, w in zip(self.shape, shape[max(lead, 0) :], strict=True))
        if not fits:
            raise BadTensorShape("broadcast_to", f"{self} to {tuple(shape)}", allowed="equal dims, or 1 in the source")
        steps = [0] * lead + [
            s if d == w else 0 for d, w, s in zip(self.shape, shape[lead:], self.strides, strict=True)
        ]
        return TensorDesc(self.dtype, shape, steps, self.offset)

    def reshape(self, shape: Sequence[int]) -> TensorDesc | None:
        """Return the view of `shape` in row-major order, or None if the strides do not allow one."""
        if math.prod(shape) != self.numel:
            raise BadTensorShape("reshape", f"{self} to {tuple(shape)}", allowed=f"{self.numel} elements")
        if self.numel == 0:
            return TensorDesc(self.dtype, shape, None, self.offset)
        runs: list[list[int]] = []  # maximal runs of dims that step together: [elements, innermost stride]
        for d, s in zip(self.shape, self.strides, strict=True):
            if d == 1:
                continue
            if runs and runs[-1][1] == d * s:
                runs[-1] = [runs[-1][0] * d, s]
            else:
                runs.append([d, s])
        steps: list[int] = []
        run, left = (runs.pop() if runs else [1, 1]), 0
        left, step = run
        for d in reversed(shape):
            if d == 1:
                steps.append(step)
                continue
            if left == 1 and runs:
                left, step = runs.pop()
            if left % d:
                return None
            steps.append(step)
            left, step = left // d, step * d
        return TensorDesc(self.dtype, shape, steps[::-1], self.offset)


def make_desc(
    dtype_: object, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0
) -> TensorDesc:
    """Return a description; compiled C hosts have this function built in (cabi/inference)."""
    return TensorDesc(dtype_, shape, strides, offset)


def check_layout(shape: tuple[int, ...], strides: tuple[int, ...] | None, offset: int) -> tuple[int, ...]:
    """Return the strides, row-major if none are given.

    Raises a typed error where shape, strides and offset do not make a layout.
    """
    for what, values in (("shape", shape), ("strides", strides or ()), ("offset", (offset,))):
        if any(abs(v) > INT64_MAX for v in values):
            raise BadTensorShape("TensorDesc", f"{what} {values} leaves 64 bits", allowed="|value| < 2^63")
    if len(shape) > MAX_RANK:
        raise BadTensorShape("TensorDesc", f"shape {shape} has rank {len(shape)}", allowed=f"rank 0 to {MAX_RANK}")
    if any(d < 0 for d in shape):
        raise BadTensorShape("TensorDesc", f"shape {shape} has a negative dim", allowed="dims from 0")
    spread = 1
    for d in shape:
        spread *= max(d, 1)  # the other dims of an empty tensor count too, as in NumPy
        if spread > INT64_MAX:
            raise BadTensorShape("TensorDesc", f"shape {shape} needs more than 2^63 bytes", allowed="less")
    steps = contiguous_strides(shape) if strides is None else strides
    if len(steps) != len(shape):
        raise BadTensorStrides("TensorDesc", f"{len(steps)} strides for {len(shape)} dims", allowed="one a dim")
    return steps


def check_extent(desc: TensorDesc) -> None:
    """Raise a typed error for a description that begins before its buffer, is too large for 64 bits or cuts blocks."""
    element, (low, high) = desc.dtype, desc.extent
    if low < 0:
        raise BadTensorStrides(
            "TensorDesc", f"{desc} reaches element {low}, before its buffer's start", hint="raise the offset"
        )
    spread = math.prod([max(d, 1) for d in desc.shape])
    large = high > INT64_MAX or high // element.block * element.itemsize > INT64_MAX
    if large or spread > INT64_MAX // (element.itemsize if 0 in desc.shape else 1):
        raise BadTensorShape("TensorDesc", f"{desc} needs more than 2^63 elements or bytes", allowed="less")
    if element.block > 1:
        check_blocks(desc)


def check_blocks(desc: TensorDesc) -> None:
    """Raise a typed error for a tensor of a block type whose rows are not whole blocks."""
    block, name = desc.dtype.block, desc.dtype.name
    if not desc.shape or desc.shape[-1] % block:
        raise BadTensorShape("TensorDesc", f"{desc}: the last dim of {name}", allowed=f"a multiple of {block}")
    if desc.strides[-1] != 1 and desc.numel:
        raise BadTensorStrides("TensorDesc", f"{desc}: the last stride of {name}", allowed="1")
    steps = [s for d, s in zip(desc.shape[:-1], desc.strides[:-1], strict=True) if d > 1 and desc.numel]
    if any(s % block for s in (*steps, desc.offset)):
        raise BadTensorStrides("TensorDesc", f"{desc}: strides and offset of {name}", allowed=f"multiples of {block}")


def repeats_itself(desc: TensorDesc) -> bool:
    """Return whether two indices name one element, for strides that are not nested.

    Counts the distinct offsets; returns True without counting if there are more than 2^20 elements.
    """
    import numpy as np

    if desc.numel > 1 << 20:
        return True
    offsets = np.zeros(1, dtype=np.int64)
    for d, s in zip(desc.shape, desc.strides, strict=True):
        offsets = (offsets[:, None] + np.arange(d, dtype=np.int64) * s).ravel()
    return len(np.unique(offsets)) < desc.numel


def broadcast_shapes(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """Return the shape to which both broadcast by NumPy's rule, or None if there is none."""
    rank = max(len(a), len(b))
    left, right = (*[1] * (rank - len(a)), *a), (*[1] * (rank - len(b)), *b)
    if any(x != y and x != 1 and y != 1 for x, y in zip(left, right, strict=True)):
        return None
    return tuple([y if x == 1 else x for x, y in zip(left, right, strict=True)])


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return row-major strides in elements."""
    steps: list[int] = []
    step = 1
    for d in reversed(shape):
        steps.append(step)
        step *= max(d, 1)
    return tuple(reversed(steps))


def _integers(what: str, values: Sequence[int]) -> tuple[int, ...]:
    try:
        result = tuple(map(index, values))
    except (AttributeError, TypeError):
        raise BadTensorShape("TensorDesc", f"{what} {quote(values)}", allowed="integers") from None
    if result and (max(result) > INT64_MAX or min(result) < -INT64_MAX):
        raise BadTensorShape("TensorDesc", f"{what} {quote(result)} leaves 64 bits", allowed="|value| < 2^63")
    return result
