"""Constant inputs, such as weights, in the layout that a kernel would rather read: made once, on request, kept while in use, and counted.

`create(…, prepacked=["w"])` says that w will be prepacked; `descriptor.prepack("w", w)` gives the tensor to call with. Where the kernel has no
layout of its own that is w itself. Otherwise it is a tensor of bytes with a dtype of its own, which names the layout and the tensor that it was made
from, so that a descriptor that wants another one refuses it.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import numpy as np

from ..backend import ALIGNMENT, Buffer, Device, Kernel, PackedLayout, Stream
from ..dtypes import U8, DType
from ..layout import TensorDesc
from ..status import InvalidArgument
from ..tensors import Tensor

_codes = itertools.count(-1, -1)  # beside the codes of the C interface, which no kernel sees of these
_types: dict[tuple[str, int, TensorDesc], PackedType] = {}
_lock = threading.RLock()


def _fork() -> None:
    global _lock
    _lock = threading.RLock()


if hasattr(os, "register_at_fork"):  # a thread that is not in the child may hold the lock
    os.register_at_fork(after_in_child=_fork)


class PackedType(DType):
    """The dtype of a prepacked tensor: its layout, and the tensor `of` that it was made from."""

    layout: PackedLayout
    of: TensorDesc

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self.name}: a prepacked tensor stays in its process; save the tensor that it was made from")


def packed_desc(layout: PackedLayout, of: TensorDesc) -> TensorDesc:
    """The description of a tensor that was made from `of` and has this layout: equal for equal arguments."""
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
    """Whether a tensor is in a kernel's own layout."""
    return isinstance(tensor.dtype, PackedType)


def describe_original(tensor: Tensor) -> TensorDesc:
    """The description by which an operator checks a tensor: a prepacked one stands for the tensor it was made from."""
    return tensor.dtype.of if isinstance(tensor.dtype, PackedType) else tensor.desc


def pack_constant(
    kernel: Kernel, position: int, source: Tensor, stream: Stream, where: str, into: Buffer | None
) -> Tensor:
    """`source` in the layout that the kernel has for its input at `position`, done on return.

    It lies in memory that the device's cache keeps while somebody has the tensor, or in `into`.
    """
    layout, device = kernel.packed_layouts[position], source.device
    desc = packed_desc(layout, source.desc)

    def pack() -> Tensor:
        memory = (
            device.memory.alloc(layout.nbytes, U8, empty=True)
            if into is None
            else _check_memory(device, layout, where, into)
        )
        made = Tensor(desc, memory)
        kernel.pack(position, source.buffer.handle, made.buffer.handle, stream)
        stream.synchronize()
        return made

    cache = device.prepack_cache
    found: Tensor = cache.get(source.buffer, (source.desc, layout.name), pack) if into is None else cache.pack(pack)
    return found


def _check_memory(device: Device, layout: PackedLayout, where: str, given: Any) -> Buffer:
    """The caller's memory, or InvalidArgument where it will not do."""
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
