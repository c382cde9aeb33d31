"""Constant inputs, such as weights, in a kernel's packed layout: packed once, on request, and counted.

A prepacked tensor is kept while it is in use. `create(…, prepacked=["w"])` says that w will be prepacked;
`descriptor.prepack("w", w)` returns the tensor to call with. If the kernel has no packed layout, that is w itself.
Otherwise it is a tensor of bytes whose own dtype names the layout and the tensor it was made from, so that a descriptor
that wants another one refuses it.
"""

from __future__ import annotations

import itertools
import sys
from typing import Any

import numpy as np

from ..backend import ALIGNMENT, Buffer, Device, Kernel, PackedLayout, Stream
from ..dtypes import DType
from ..layout import TensorDesc
from ..process.forks import own_lock
from ..status import InvalidArgument
from ..tensors import Tensor
from .packed_files import keep_packed

_codes = itertools.count(-1, -1)  # negative, so distinct from the codes of the C interface; no kernel sees them
_types: dict[tuple[str, int, TensorDesc], PackedType] = {}
_lock = own_lock(sys.modules[__name__], "_lock")


class PackedType(DType):
    """The dtype of a prepacked tensor: its layout, and the description `of` the tensor it was made from."""

    layout: PackedLayout
    of: TensorDesc

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self.name}: a prepacked tensor stays in its process; save the tensor that it was made from")


def packed_desc(layout: PackedLayout, of: TensorDesc) -> TensorDesc:
    """Return the description of a tensor that was made from `of` and has this layout: equal for equal arguments."""
    key = (layout.name, layout.nbytes, TensorDesc(of.dtype, of.shape))
    with _lock:
        made = _types.get(key)
        if made is None:
            made = PackedType(f"{of.dtype} {list(of.shape)} as {layout.name}", next(_codes), "u", 1, np.dtype(np.uint8))
            object.__setattr__(made, "layout", layout)
            object.__setattr__(made, "of", key[2])
            _types[key] = made
    return TensorDesc(made, (layout.nbytes,))


def is_prepacked(tensor: Tensor) -> bool:
    """Return whether a tensor is in a kernel's packed layout."""
    return isinstance(tensor.dtype, PackedType)


def describe_original(tensor: Tensor) -> TensorDesc:
    """Return what an operator checks a tensor by: a prepacked one stands for the tensor it was made from."""
    return tensor.dtype.of if isinstance(tensor.dtype, PackedType) else tensor.desc


def pack_constant(
    kernel: Kernel, position: int, source: Tensor, stream: Stream, where: str, into: Buffer | None
) -> Tensor:
    """Return `source` in the packed layout of the kernel's input at `position`, complete on return.

    It is stored in memory that the device's cache keeps while the tensor is in use, which may be that of a file
    (`packed_files`), or in `into`.
    """
    layout, device = kernel.packed_layouts[position], source.device
    desc = packed_desc(layout, source.desc)

    def fill(memory: Buffer) -> Buffer:
        kernel.pack(position, source.buffer.handle, memory.handle, stream)
        stream.synchronize()
        if source.buffer.when_packed is not None:
            source.buffer.when_packed()
        return memory

    def pack() -> Tensor:
        if into is not None:
            return Tensor(desc, fill(_check_memory(device, layout, where, into)))
        return Tensor(desc, keep_packed(source, layout, lambda: fill(device.memory.alloc_lasting(layout.nbytes))))

    cache = device.prepack_cache
    found: Tensor = cache.get(source.buffer, (source.desc, layout), pack) if into is None else cache.pack(pack)
    return found


def _check_memory(device: Device, layout: PackedLayout, where: str, given: Any) -> Buffer:
    """Return the caller's memory; InvalidArgument if it does not fit."""
    allowed = f"a buffer of {layout.nbytes} bytes on {device.name}, aligned to {ALIGNMENT}"
    if not isinstance(given, Buffer):
        raise InvalidArgument(where, f"into is a {type(given).__name__}", allowed=allowed)
    if not given.alive or not given.writable:
        raise InvalidArgument(where, f"into is {'read-only' if given.alive else 'closed'}", allowed=allowed)
    misaligned = layout.nbytes > 0 and given.address % ALIGNMENT
    if given.memory is not device.memory or given.nbytes < layout.nbytes or misaligned:
        given_text = f"into has {given.nbytes} bytes on {given.device.name} at {given.address:#x}"
        raise InvalidArgument(where, given_text, allowed=allowed)
    return given
