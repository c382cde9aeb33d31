"""Tensor: a description and a buffer; NumPy and DLPack in and out, without a copy where the memory allows."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from marshal import dumps
from typing import Any

import numpy as np

from .. import blocks
from ..backend import BufferView, Device
from ..backend.buffer_view import Facts
from ..backend.discovery import device as find_device
from ..declare.conversion import convert
from ..dtypes import BLOCKS, COMPLEX, PLAIN, STORED_BLOCKS, DType, dtype, names
from ..layout import TensorDesc
from ..status import (
    BadTensorDtype,
    BadTensorShape,
    BadTensorStrides,
    InvalidArgument,
    NotImplementedOnDevice,
    quote,
)
from . import cuda_array, dlpack, dlpack_device
from .operators import Operators, functions
from .views import find_view, has_arrays, key_of_index

Array = np.ndarray[Any, Any]
_NUMPY = {d.numpy for d in (*PLAIN, *COMPLEX)}
_NUMBERS = f"numbers, lists of equal length, or arrays of {names((*PLAIN, *COMPLEX))}"


class Tensor(Operators, BufferView):
    """Elements of `buffer` laid out as `desc` says: an array of the array API standard.

    The description never changes, the elements do where something writes them.

    >>> x = tensor([[1, 2], [3, 4]], "F32")
    >>> x.T.numpy()
    array([[1., 3.],
           [2., 4.]], dtype=float32)
    """

    __slots__ = ()

    @property
    def device(self) -> Device:
        """The device that the memory is on."""
        found: Any = self.buffer.device
        device: Device = found
        return device

    # Views

    def _view(self, desc: TensorDesc) -> Tensor:
        return Tensor(desc, self.buffer)

    def _part(self, facts: Facts) -> Tensor:
        """Return the view of a part of this tensor that `facts` says, without a check."""
        made = Tensor.__new__(Tensor)
        made.desc, made.buffer, made.facts = facts.desc, self.buffer, facts
        (low, high), at = facts.extent, self.buffer.address
        made.span = (at + low, at + high)
        return made

    def derive(self, describe: Callable[[TensorDesc, Any], TensorDesc], given: Any) -> Tensor:
        """Return the view that `describe` says of the description and `given`, which it said before if it was asked."""
        try:
            key = describe, dumps(given, 0)  # as bytes, values are equal only where their types are
            facts = self.facts.views.get(key)
        except ValueError:  # an object that has no bytes
            return self._view(describe(self.desc, given))
        if facts is None:
            desc = describe(self.desc, given)
            if not _is_plain(given) or desc.dtype.alignment > self.desc.dtype.alignment:
                return self._view(desc)
            facts = self.facts.add_view(key, desc)
        return self._part(facts)

    def permute(self, *axes: int | Sequence[int]) -> Tensor:
        """Return the view with its dims in the order `axes` (integers, or one list of them)."""
        return self.derive(_permute, axes)

    @property
    def T(self) -> Tensor:  # noqa: N802  # NumPy's name
        """The view with its dims reversed."""
        facts = self.facts.views.get("T")
        if facts is None:
            facts = self.facts.add_view("T", self.desc.permute([*reversed(range(self.ndim))]))
        return self._part(facts)

    def broadcast_to(self, *shape: int | Sequence[int]) -> Tensor:
        """Return the view of `shape` (integers, or one list of them) by NumPy's rule."""
        return self.derive(_broadcast, shape)

    def reshape(self, *shape: int | Sequence[int]) -> Tensor:
        """Return the view of `shape` (one dim may be -1); BadTensorStrides where only a copy could have it."""
        return self.derive(_reshape, shape)

    def flatten(self, start_axis: int = 0, end_axis: int = -1) -> Tensor:
        """Return the view in which the dims from start_axis to end_axis are one; BadTensorStrides as `reshape`."""
        if self.ndim == 0:
            return self.reshape(1)
        first, last = self._axis("flatten", start_axis), self._axis("flatten", end_axis)
        if first > last:
            raise InvalidArgument(
                "flatten", f"start_axis={start_axis}, end_axis={end_axis} of {self.desc}", allowed="start up to end"
            )
        return self.reshape(*self.shape[:first], math.prod(self.shape[first : last + 1]), *self.shape[last + 1 :])

    def squeeze(self, axis: int | Sequence[int] | None = None) -> Tensor:
        """Return the view without the dims of 1 at `axis`, or without any (NumPy's squeeze)."""
        given = [i for i, d in enumerate(self.shape) if d == 1] if axis is None else axis
        axes = {self._axis("squeeze", a) for a in (given if isinstance(given, (list, tuple)) else (given,))}
        for a in axes:
            if self.shape[a] != 1:
                raise BadTensorShape("squeeze", f"dim {a} of {self.desc} is {self.shape[a]}", allowed="dims of 1")
        return self[tuple(0 if i in axes else slice(None) for i in range(self.ndim))]

    def unsqueeze(self, axis: int | Sequence[int]) -> Tensor:
        """Return the view with dims of 1 at the places `axis` of the result (PyTorch's and ONNX's unsqueeze)."""
        given = axis if isinstance(axis, (list, tuple)) else (axis,)
        rank = self.ndim + len(given)
        axes = {self._axis("unsqueeze", a, rank) for a in given}
        if len(axes) != len(given):
            raise InvalidArgument("unsqueeze", f"axis={quote(axis)}", allowed="each place once")
        return self[tuple(None if i in axes else slice(None) for i in range(rank))]

    def transpose(self, *axes: int | Sequence[int]) -> Tensor:
        """Return the view with its dims in the order `axes`, reversed where none are given (NumPy's transpose)."""
        return self.permute(*axes) if axes else self.T

    def split(self, sizes: int | Sequence[int], axis: int = 0) -> tuple[Tensor, ...]:
        """Return views of parts along the axis: of these lengths, or all of one but a shorter last."""
        at = self._axis("split", axis)
        n = self.shape[at]
        if isinstance(sizes, (list, tuple)):
            lengths = _integers("split", (tuple(sizes),))
        else:
            (size,) = _integers("split", (sizes,))
            if size < 1:
                raise InvalidArgument("split", f"sizes={quote(sizes)}", allowed="parts from 1")
            lengths = tuple(min(size, n - first) for first in range(0, n, size)) or (0,)
        if min(lengths, default=0) < 0 or sum(lengths) != n:
            raise InvalidArgument("split", f"sizes={quote(sizes)}", allowed=f"lengths that add up to {n}")
        ends = accumulate(lengths)
        places = [(slice(None),) * at + (slice(end - d, end),) for end, d in zip(ends, lengths, strict=True)]
        return tuple(self[place] for place in places)

    def tile(self, *repeats: int | Sequence[int]) -> Tensor:
        """Return the view with each dim repeated so often, where only dims of 1 are: BadTensorStrides for others."""
        counts = _integers("tile", repeats)
        rank = max(self.ndim, len(counts))
        counts = (1,) * (rank - len(counts)) + counts
        whole = self[(None,) * (rank - self.ndim) + (...,)]
        for i, (d, n) in enumerate(zip(whole.shape, counts, strict=True)):
            if n < 0:
                raise InvalidArgument("tile", f"repeats={quote(repeats)}", allowed="numbers from 0")
            if d != 1 and n != 1:
                given = f"dim {i} of {whole.desc}, {n} times"
                raise BadTensorStrides("tile", given, allowed="dims of 1", hint="a copy: isokern.tile(x, repeats=…)")
        return whole.broadcast_to(*(d * n for d, n in zip(whole.shape, counts, strict=True)))

    def _axis(self, where: str, axis: int, rank: int | None = None) -> int:
        """Return an axis counted from the front, or raise InvalidArgument with the range."""
        (given,), count = _integers(where, (axis,)), self.ndim if rank is None else rank
        if not -count <= given < count:
            allowed = f"{-count}..{count - 1}" if count else "rank 1 or more"
            raise InvalidArgument(where, f"axis {given} of {self.desc}", allowed=allowed)
        return given % count

    def __iter__(self) -> Iterator[Tensor]:
        """Iterate over views along the first dim."""
        if not self.shape:
            raise TypeError("a tensor of rank 0 has no first dim to go along")
        return (self[i] for i in range(self.shape[0]))

    def _select(self, index: Any) -> Tensor | None:
        """Return the view by integers, slices, None and …; None where an item selects elements."""
        key = index if index.__class__ is int else key_of_index(index)
        facts = None if key is None else self.facts.views.get(key)
        if facts is not None:
            return self._part(facts)
        items = index if isinstance(index, tuple) else (index,)
        if has_arrays(items):
            return None
        desc = find_view(self.desc, items)
        return self._view(desc) if key is None else self._part(self.facts.add_view(key, desc))

    def __getitem__(self, index: Any, /) -> Tensor:
        """Return a view by integers, slices, None and …, or a copy of what masks and arrays of integers select."""
        view = self._select(index)
        if view is None:
            view = functions().indexing.select(self, index if isinstance(index, tuple) else (index,))
        return view

    def __setitem__(self, index: Any, value: Any, /) -> None:
        """Write an array or a number, in this tensor's dtype, where `index` selects."""
        view = self._select(index)
        if view is None:
            functions().indexing.assign_selected(self, index if isinstance(index, tuple) else (index,), value)
        else:
            functions().indexing.assign(view, value)

    # Host memory in and out

    def numpy(self) -> Array:
        """Return a NumPy array: the memory itself where the host can reach it, else a copy; after the device's work.

        The array of a block type holds raw blocks: uint8, the last dim the bytes of a row (see isokern.blocks).
        """
        self.buffer._check("numpy")
        self.buffer.sync_device()
        view = self.buffer.view
        raw = self.buffer.read() if view is None else view
        return _as_strided(raw, self.desc if self.dtype.block == 1 else self.desc.raw)

    @property
    def raw(self) -> Tensor:
        """The view of the same memory as bytes (U8), the last dim the bytes of a row's blocks, or of an element."""
        return self._view(self.desc.raw)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        """Convert by NumPy's array protocol."""
        array = self.numpy()
        if copy is False and self.buffer.view is None:
            raise ValueError(f"{self!r} is not in host memory: a copy is needed")
        wanted = array if dtype is None else array.astype(dtype, copy=False)
        return wanted.copy() if copy and wanted is array else wanted

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export by DLPack, without a copy unless `copy` asks for one, or `dl_device` for the host's memory."""
        given = {"stream": stream, "max_version": max_version, "dl_device": dl_device, "copy": copy}
        options = {name: value for name, value in given.items() if value is not None}
        if self.buffer.view is not None:
            return dlpack.export(self, self.numpy(), **options)
        to_host = dl_device is not None and (int(dl_device[0]), dl_device[1]) == (dlpack.CPU, 0)
        if copy is not False and to_host and self.dtype.block == 1:
            return dlpack.export_array(
                self.numpy(), self.dtype, **({"max_version": max_version} if max_version else {})
            )
        if copy:
            copied: Tensor = functions().asarray(self, copy=True)
            return copied.__dlpack__(stream=stream, max_version=max_version, dl_device=dl_device)
        return dlpack_device.export(self, self.device, **options)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """CUDA's array interface, for memory on a CUDA device; other tensors have no such attribute."""
        return cuda_array.export(self, self.device)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (device type, index)."""
        return dlpack.device_of(self) if self.buffer.view is not None else dlpack_device.device_of(self.device)

    def __copy__(self) -> Tensor:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.raw.numpy() if self.dtype.block > 1 else self.numpy(), self.dtype, self.device.name)

    # Movement

    def copy_from(self, source: Any) -> Tensor:
        """Write the elements of `source`, an array or tensor of this shape, here, converted or quantised.

        Returns self.
        """
        if isinstance(source, Tensor) and self._takes(source):
            return self
        if self.dtype.block > 1:
            self.raw.copy_from(self._blocks_of(source))
            return self
        array = _elements_of(source) if isinstance(source, Tensor) else numbers("copy_from", source)
        if array.shape != self.shape:
            raise BadTensorShape(
                "copy_from", f"the source has shape {list(array.shape)}", allowed=str(list(self.shape))
            )
        if not self.buffer.writable:
            raise InvalidArgument("copy_from", "the tensor's memory is read-only", hint="copy it first")
        assert self.dtype.numpy is not None
        _check_real(array, self.dtype)
        converted = array if array.dtype == self.dtype.numpy else convert(array, self.dtype.numpy)
        if self.desc.is_contiguous:
            self.buffer.write(converted, self.desc.byte_range[0])
        elif self.desc.numel:
            self._write_elements(converted)
        return self

    def _write_elements(self, array: Array) -> None:
        """Write an array of this shape and dtype, and no byte between the elements: another thread may write there."""
        buffer, (low, high) = self.buffer, self.desc.byte_range
        if buffer.view is not None:
            buffer._check("copy_from")
            buffer.sync_device()
            _as_strided(buffer.view, self.desc)[...] = array
            buffer.memory.count_copy(array.nbytes)
        elif array.nbytes == high - low and not self.desc.overlaps_itself:  # all bytes of the range are elements
            raw = np.empty(high - low, np.uint8)
            start = self.desc.offset - low // self.dtype.itemsize
            _as_strided(raw, TensorDesc(self.dtype, self.shape, self.strides, start))[...] = array
            buffer.write(raw, low)
        elif self.desc.overlaps_itself or not self._write_by_kernel(array):
            inner, run = self.ndim, 1  # the dims from `inner` on lie in one run
            while inner and (self.shape[inner - 1] == 1 or self.strides[inner - 1] == run):
                inner -= 1
                run *= self.shape[inner]
            for index in np.ndindex(*self.shape[:inner]):
                place = self.desc.offset + sum(i * s for i, s in zip(index, self.strides, strict=False))
                buffer.write(array[index], place * self.dtype.itemsize)

    def _write_by_kernel(self, array: Array) -> bool:
        """Write by the device's own operator `copy`; False if it has none, or records what is called now."""
        stream = self.device.default_stream
        if stream.recording is not None:
            return False
        source = empty(self.shape, self.dtype, device=self.device).copy_from(array)
        try:
            with stream:
                functions().indexing.assign(self, source)
        except NotImplementedOnDevice:
            return False
        self.device.synchronize()
        return True

    def _blocks_of(self, source: Any) -> Array:
        """Return the raw blocks that hold `source`: as they are where it has this type, else quantised."""
        given = source if isinstance(source, Tensor) else numbers("copy_from", source)
        if given.shape != self.shape:
            raise BadTensorShape(
                "copy_from",
                f"the source has shape {list(given.shape)}",
                allowed=str(list(self.shape)),
                hint="raw blocks: tensor.raw.copy_from(…)",
            )
        if isinstance(given, Tensor):
            if given.dtype is self.dtype:
                return given.numpy()
            given = _elements_of(given)
        _check_real(given, self.dtype)
        return blocks.quantize(given, self.dtype)

    def _takes(self, source: Tensor) -> bool:
        """Let the devices copy the elements of `source` here among themselves; False where they cannot."""
        if (
            source.buffer.memory is self.buffer.memory
            or (source.dtype, source.shape) != (self.dtype, self.shape)
            or not (source.desc.is_contiguous and self.desc.is_contiguous)
            or not (source.buffer.alive and self.buffer.alive and self.buffer.writable)
        ):
            return False
        low, high = self.desc.byte_range
        return self.buffer.memory.copy_from(self.buffer, low, source.buffer, source.desc.byte_range[0], high - low)

    def to_device(self, device: str | Device, /, *, stream: Any = None) -> Tensor:
        """Return this tensor on `device`: itself where it is there already, else a contiguous copy.

        Copies wait for both devices, so there is no stream to name: only None is taken.
        """
        if stream is not None:
            raise InvalidArgument("to_device", f"stream={quote(stream)}", allowed="None")
        target = find_device(device)
        if target is self.device:
            return self
        return empty(self.shape, self.dtype, device=target).copy_from(self)


def _integers(where: str, given: tuple[Any, ...]) -> tuple[int, ...]:
    """Return the integers of `f(2, 3)` or `f((2, 3))`."""
    items = tuple(given[0]) if len(given) == 1 and isinstance(given[0], (list, tuple)) else given
    try:
        return tuple(operator.index(i) for i in items)
    except TypeError:
        raise BadTensorShape(where, quote(given), allowed="integers") from None


def _is_plain(given: Any) -> bool:
    """Return whether a value is an integer of Python's, or a tuple or list of such."""
    return type(given) is int or (type(given) in (tuple, list) and all(map(_is_plain, given)))


def _permute(desc: TensorDesc, axes: tuple[Any, ...]) -> TensorDesc:
    return desc.permute(_integers("permute", axes))


def _broadcast(desc: TensorDesc, shape: tuple[Any, ...]) -> TensorDesc:
    return desc.broadcast_to(_integers("broadcast_to", shape))


def _reshape(desc: TensorDesc, shape: tuple[Any, ...]) -> TensorDesc:
    dims = _integers("reshape", shape)
    if dims.count(-1) == 1:
        known = -math.prod(dims)
        if known < 1:
            raise BadTensorShape("reshape", f"{desc} to {quote(dims)}", allowed="other dims from 1 beside -1")
        dims = tuple(desc.numel // known if d == -1 else d for d in dims)
    found = desc.reshape(dims)
    if found is None:
        raise BadTensorStrides("reshape", f"{desc} has no view of shape {dims}", hint="copy it first: isokern.copy(x)")
    return found


def _as_strided(raw: Array, desc: TensorDesc) -> Array:
    assert desc.dtype.numpy is not None
    if desc.numel == 0:
        return np.empty(desc.shape, desc.dtype.numpy)
    size = desc.dtype.itemsize
    found: Array = np.ndarray(desc.shape, desc.dtype.numpy, raw, desc.offset * size, [s * size for s in desc.strides])
    return found


def empty(shape: Sequence[int], element: object = "F32", *, device: str | Device | None = None) -> Tensor:
    """Return a contiguous tensor of undefined content."""
    desc = TensorDesc(element, shape)
    return Tensor(desc, find_device(device).memory.alloc(desc.nbytes, desc.dtype, empty=True))


def zeros(shape: Sequence[int], element: object = "F32", *, device: str | Device | None = None) -> Tensor:
    """Return a contiguous tensor of zeros."""
    desc = TensorDesc(element, shape)
    return Tensor(desc, find_device(device).memory.alloc(desc.nbytes, desc.dtype))


def _check_real(array: Array, wanted: DType) -> None:
    """Raise BadTensorDtype for complex numbers where a tensor's are real."""
    if array.dtype.kind == "c" and wanted.kind != "c":
        given = f"{array.dtype} into a tensor of {wanted}"
        raise BadTensorDtype("copy_from", given, allowed="real numbers", hint="real or imag of isokern.array_api")


def _elements_of(source: Tensor) -> Array:
    """Return the elements of a tensor as an array, those of blocks dequantised to float32."""
    array = source.numpy()
    return array if source.dtype.block == 1 else blocks.dequantize(array, source.dtype)


def from_blocks(raw: Array, element: object, *, device: str | Device | None = None) -> Tensor:
    """Return a tensor over an array of raw blocks, without a copy: what GGUF files hold.

    The array is uint8 and C-contiguous, and its last dim is whole blocks.

    >>> from_blocks(np.zeros((2, 36), np.uint8), "Q4_0").shape
    (2, 64)
    """
    block = dtype(element)
    if block.block == 1:
        allowed = names((*BLOCKS, *STORED_BLOCKS))
        raise BadTensorDtype("from_blocks", f"{block} has no blocks", allowed=allowed, hint="from_numpy(array)")
    if not isinstance(raw, np.ndarray) or raw.dtype != np.uint8 or not raw.flags.c_contiguous or not raw.ndim:
        given = f"{raw.dtype} {list(raw.shape)}" if isinstance(raw, np.ndarray) else type(raw).__name__
        raise InvalidArgument("from_blocks", f"given {given}", allowed="a C-contiguous uint8 array of rank 1 or more")
    if raw.shape[-1] % block.itemsize:
        raise BadTensorShape(
            "from_blocks",
            f"rows of {raw.shape[-1]} bytes",
            allowed=f"multiples of {block.itemsize}, a block of {block}",
        )
    shape = (*raw.shape[:-1], raw.shape[-1] // block.itemsize * block.block)
    return Tensor(TensorDesc(block, shape), find_device(device).memory.wrap(raw, block))


def numbers(where: str, data: Any) -> Array:
    """Return `data` as an array; InvalidArgument where it is not made of numbers."""
    try:
        array = np.asarray(data)
    except (ValueError, TypeError, OverflowError, RuntimeError) as error:
        raise InvalidArgument(where, f"a {type(data).__name__} makes no array: {error}", allowed=_NUMBERS) from None
    if array.dtype.newbyteorder("=") not in _NUMPY:
        shown = repr(data)
        raise BadTensorDtype(
            where,
            f"{shown if len(shown) < 60 else type(data).__name__} has NumPy dtype {array.dtype}",
            allowed=_NUMBERS,
        )
    return array


def check_integers(where: str, array: Array, element: DType) -> None:
    """Raise InvalidArgument for an integer that an integer dtype lacks, and that would wrap."""
    if element.kind not in "iu" or array.dtype.kind not in "iu" or not array.size:
        return
    assert element.numpy is not None
    limits = np.iinfo(element.numpy)
    low, high = int(array.min()), int(array.max())
    if low < limits.min or high > limits.max:
        allowed = f"{limits.min}..{limits.max}"
        raise InvalidArgument(
            where,
            f"{low if low < limits.min else high} of {element}",
            allowed=allowed,
            hint="tensor(…).astype(…) wraps",
        )


def tensor(data: Any, element: object | None = None, *, device: str | Device | None = None) -> Tensor:
    """Return a contiguous copy of an array, a nested list, a scalar or a tensor.

    Python floats become F32, complex numbers C64, integers I64. InvalidArgument for integers that `element` lacks.
    """
    if isinstance(data, Tensor):
        return empty(data.shape, element or data.dtype, device=device).copy_from(data)
    array = numbers("tensor", data)
    if element is None:
        plain = None if hasattr(data, "dtype") else {"float64": "F32", "complex128": "C64"}.get(array.dtype.name)
        element = plain or array.dtype.newbyteorder("=")
    check_integers("tensor", array, dtype(element))
    made = empty(array.shape, dtype(element), device=device)
    if not made.dtype.holds(array) or made.buffer.view is None:
        return made.copy_from(array)
    made.numpy()[...] = array
    made.buffer.memory.count_copy(array.nbytes)
    return made


def _restore(array: Array, element: DType, device: str) -> Tensor:
    if element.block > 1:
        held = empty((*array.shape[:-1], array.shape[-1] // element.itemsize * element.block), element, device=device)
        held.raw.copy_from(array)
        return held
    return tensor(array, element, device=device)


def from_numpy(array: Array, *, device: str | Device | None = None) -> Tensor:
    """Return a tensor over the array's own memory, without a copy.

    A read-only array makes a tensor that is refused as an output.
    """
    if not isinstance(array, np.ndarray):
        raise InvalidArgument(
            "from_numpy", f"a {type(array).__name__}", allowed="a NumPy array", hint="copy: tensor(…)"
        )
    if not array.dtype.isnative:
        raise InvalidArgument(
            "from_numpy", f"dtype {array.dtype} is not in this machine's byte order", hint="convert it first"
        )
    element = dtype(array.dtype)
    memory = find_device(device).memory
    if array.flags.c_contiguous and 1 not in array.shape and array.size:
        return Tensor(TensorDesc(element, array.shape), memory.wrap(array, element))
    steps = []
    for d, s in zip(array.shape, array.strides, strict=True):
        if s % element.itemsize and d > 1:
            raise BadTensorStrides(
                "from_numpy",
                f"stride of {s} bytes for {element}",
                allowed=f"multiples of {element.itemsize}",
                hint="copy it first",
            )
        steps.append(s // element.itemsize if d > 1 else 1)
    buffer = memory.wrap(array, element)
    first = sum((1 - d) * s for d, s in zip(array.shape, steps, strict=True) if s < 0) if array.size else 0
    return Tensor(TensorDesc(element, array.shape, steps, first), buffer)


def from_dlpack(source: Any, *, device: str | Device | None = None) -> Tensor:
    """Return a tensor over the memory of a producer, without a copy where the device allows.

    A producer is any object with `__dlpack__`, or else `__cuda_array_interface__`. Memory of another device than the
    host, such as a GPU's, stays where it is: `device` is that of the memory, or not given. The tensor is ready for the
    thread's current stream.
    """
    if not hasattr(source, "__dlpack__") and hasattr(source, "__cuda_array_interface__"):
        return Tensor(*cuda_array.take(source, cuda_array.find_device() if device is None else find_device(device)))
    kind, index = dlpack.source_device(source)
    if kind != dlpack.CPU:
        of = find_device(device) if device is not None else dlpack_device.find_device(kind, index)
        if of.dlpack_device != (kind, index):
            raise InvalidArgument(
                "from_dlpack",
                f"memory of DLPack device {(kind, index)} for {of.name}",
                allowed=f"{of.dlpack_device or (dlpack.CPU, 0)}",
                hint="take it where it is, then tensor.to_device(…)",
            )
        return Tensor(*dlpack_device.take(source, of))
    return from_numpy(dlpack.to_numpy(source), device=device)


def as_tensor(value: Any, device: str | Device | None = None) -> Tensor:
    """Return tensors as they are; arrays in place on a device of the host, else copied; lists and scalars copied.

    An asynchronous device copies arrays too: the caller may change the array as soon as the call returns.
    """
    if isinstance(value, Tensor):
        return value
    target = find_device(device)
    if isinstance(value, np.ndarray) or hasattr(value, "__dlpack__"):
        array = value if isinstance(value, np.ndarray) else dlpack.to_numpy(value)
        if target.memory.wraps and not target.asynchronous and array.flags.aligned:
            return from_numpy(array, device=target)
        return tensor(array, device=target)
    return tensor(value, device=target)
