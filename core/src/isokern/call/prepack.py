"""Constant inputs, such as weights, in the form that a kernel would rather read: made once, on request, kept while in use, and counted.

`create(…, prepared=["w"])` says that w will be prepared; `descriptor.prepare("w", w)` gives the tensor to call with. Where the kernel has no form
of its own that is w itself. Otherwise it is a tensor of bytes with a dtype of its own, which tells the form and the tensor that it came from, so
that a descriptor that wants another one refuses it.
"""

from __future__ import annotations

import itertools
import os
import threading
from typing import Any

import numpy as np

from ..backend import ALIGNMENT, Buffer, Device, Form, Kernel, Stream
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
    """The dtype of a prepared tensor: bytes, in `form`, of a tensor that was `of`."""

    form: Form
    of: TensorDesc

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"{self.name}: a prepared tensor stays in its process; save the tensor that it was made from")


def packed_desc(form: Form, of: TensorDesc) -> TensorDesc:
    """What a tensor is that was `of` and is in `form`: equal for equal arguments."""
    key = (form.name, form.nbytes, TensorDesc(of.dtype, of.shape))
    with _lock:
        made = _types.get(key)
        if made is None:
            made = PackedType(f"{of.dtype} {list(of.shape)} as {form.name}", next(_codes), "u", 1, np.dtype(np.uint8))
            object.__setattr__(made, "form", form)
            object.__setattr__(made, "of", key[2])
            _types[key] = made
    return TensorDesc(made, (form.nbytes,))


def is_prepared(tensor: Tensor) -> bool:
    """Whether a tensor is in a kernel's own form."""
    return isinstance(tensor.dtype, PackedType)


def described(tensor: Tensor) -> TensorDesc:
    """What an operator takes a tensor for: one that is prepared for what it was."""
    return tensor.dtype.of if isinstance(tensor.dtype, PackedType) else tensor.desc


def prepack(kernel: Kernel, position: int, source: Tensor, stream: Stream, where: str, into: Buffer | None) -> Tensor:
    """`source` in the form that the kernel has for its input at `position`, done on return.

    It lies in memory that the device's cache keeps while somebody has the tensor, or in `into`.
    """
    form, device = kernel.forms[position], source.device
    desc = packed_desc(form, source.desc)

    def pack() -> Tensor:
        room = device.memory.alloc(form.nbytes, U8, empty=True) if into is None else _room(device, form, where, into)
        made = Tensor(desc, room)
        kernel.pack(position, source.buffer.handle, made.buffer.handle, stream)
        stream.synchronize()
        return made

    cache = device.prepared
    found: Tensor = cache.get(source.buffer, (source.desc, form.name), pack) if into is None else cache.pack(pack)
    return found


def _room(device: Device, form: Form, where: str, given: Any) -> Buffer:
    """The caller's memory, or InvalidArgument where it will not do."""
    allowed = f"a buffer of {form.nbytes} bytes on {device.name}, aligned to {ALIGNMENT}"
    if not isinstance(given, Buffer):
        raise InvalidArgument(where, f"into is a {type(given).__name__}", allowed=allowed)
    if not given.alive or not given.writable:
        raise InvalidArgument(where, f"into is {'read-only' if given.alive else 'closed'}", allowed=allowed)
    astray = form.nbytes > 0 and given.address % ALIGNMENT
    if given.memory is not device.memory or given.nbytes < form.nbytes or astray:
        given_text = f"into has {given.nbytes} bytes on {given.device.name} at {given.address:#x}"
        raise InvalidArgument(where, given_text, allowed=allowed)
    return given
