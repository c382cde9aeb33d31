"""KVCache: the keys and values of the tokens so far, on any device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..arguments import integer
from ..backend import Device, Stream, check_stream
from ..backend.discovery import device as find_device
from ..dtypes import DType, dtype as dtype_of, names
from ..eager import calls
from ..layout import TensorDesc
from ..ops import find
from ..ops.cache_update import CACHED
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument, quote
from ..tensors import Tensor, as_tensor, empty, tensor

_WIDTHS = ((8, "U64"), (4, "U32"), (2, "U16"), (1, "U8"))


class KVCache:
    """The keys and values of the tokens so far, filled from the front.

    Keys are [batch, max_seq_len, kv_heads, head_dim], values [batch, max_seq_len, kv_heads, value_dim]; `current_pos`
    positions of each sequence are stored. `dtype` is F32, F16, BF16, Q8_0 or Q4_0; block types need dims of whole
    blocks of 32. Nothing is allocated after the start. What does not fit is a typed error and leaves the cache as it
    was.
    """

    def __init__(
        self,
        max_seq_len: int,
        kv_heads: int,
        head_dim: int,
        dtype: object = "F16",
        *,
        batch: int = 1,
        value_dim: int | None = None,
        device: str | Device | None = None,
    ) -> None:
        element = cache_dtype("KVCache", dtype)
        given = {"batch": batch, "max_seq_len": max_seq_len, "kv_heads": kv_heads, "head_dim": head_dim}
        given["value_dim"] = head_dim if value_dim is None else value_dim
        dims = tuple(integer("KVCache", name, d, 1, error=BadTensorShape) for name, d in given.items())
        target = find_device(device)
        self.keys: Tensor = empty((*dims[:3], dims[3]), element, device=target)
        self.values: Tensor = empty((*dims[:3], dims[4]), element, device=target)
        self.batch, self.max_seq_len, self.current_pos = dims[0], dims[1], 0

    def __repr__(self) -> str:
        return f"<KV cache of {self.dtype}, {self.current_pos} of {self.max_seq_len} positions, on {self.device.name}>"

    @property
    def device(self) -> Device:
        """The device that the memory is on."""
        return self.keys.device

    @property
    def dtype(self) -> DType:
        """The element type of keys and values."""
        return self.keys.dtype

    def update(self, new_k: Any, new_v: Any, *, stream: Stream | None = None) -> None:
        """Append the keys and values [batch, n, kv_heads, dim] of the next n positions.

        They are cast or quantized in the same pass as the copy.
        """
        pairs = [(self.keys, as_tensor(new_k, self.device)), (self.values, as_tensor(new_v, self.device))]
        n = pairs[0][1].shape[1] if pairs[0][1].ndim == 4 else 0
        for name, (held, new) in zip(("new_k", "new_v"), pairs, strict=True):
            if new.shape != (self.batch, n, *held.shape[2:]):
                allowed = f"[{self.batch}, n, {held.shape[2]}, {held.shape[3]}], the same n for both"
                raise BadTensorShape("KVCache.update", f"{name} is {list(new.shape)}", allowed=allowed)
        start = self.take(n)
        at = tensor([start] * self.batch, "I64", device=self.device)
        try:
            for held, new in pairs:
                calls.call(find("cache_update"), [new, at], out=held, stream=stream)
        except BaseException:
            self.current_pos = start
            raise

    def take(self, n: int) -> int:
        """Count n positions as stored, and return the first one.

        It is for a caller that writes them itself (`cache_update`).
        """
        n = integer("KVCache.take", "n", n, 0)
        if self.current_pos + n > self.max_seq_len:
            given = f"{quote(n)} positions after {self.current_pos}"
            raise InvalidArgument(
                "KVCache.update", given, allowed=f"{self.max_seq_len} in all", hint="prune_prefix(n) or clear() first"
            )
        self.current_pos += n
        return self.current_pos - n

    def view(self, seq_len: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the keys and values of the first `seq_len` positions (by default all that are stored), in place."""
        stored = self.current_pos
        n = (
            stored
            if seq_len is None
            else integer("KVCache.view", "seq_len", seq_len, 0, stored, hint="so many positions are stored")
        )
        return self.keys[:, :n], self.values[:, :n]

    def prune_prefix(self, n: int, *, stream: Stream | None = None) -> None:
        """Drop the first n positions; the others move to the front, within the buffer, on the device."""
        self.drop(0, integer("KVCache.prune_prefix", "n", n, 0, self.current_pos), stream=stream)

    def drop(self, start: int, n: int, *, stream: Stream | None = None) -> None:
        """Drop n positions from `start` on; those behind take their places, within the buffer, on the device.

        Keys that were rotated stay so: `Session.drop` rotates them to their new positions.
        """
        start = integer("KVCache.drop", "start", start, 0, self.current_pos)
        n = integer("KVCache.drop", "n", n, 0, self.current_pos - start)
        if stream is not None:
            check_stream("KVCache.drop", stream, self.device)
        left = self.current_pos - start - n
        if n and left:
            for held in (self.keys, self.values):
                for sequence in range(self.batch):
                    _move(held, sequence, start, n, left, stream)
        self.current_pos -= n

    def clear(self) -> None:
        """Drop all positions; the memory stays."""
        self.current_pos = 0

    def memory_usage_bytes(self) -> int:
        """Return the bytes of the stored positions of keys and values."""
        return self.capacity_bytes() // self.max_seq_len * self.current_pos

    def capacity_bytes(self) -> int:
        """Return the bytes of keys and values in all."""
        return self.keys.desc.nbytes + self.values.desc.nbytes


def cache_dtype(where: str, given: object) -> DType:
    """Return the element type of a cache; BadTensorDtype if there are no caches of it."""
    element = dtype_of(given)
    if element not in CACHED:
        raise BadTensorDtype(where, f"dtype {element}", allowed=names(CACHED))
    return element


def _move(held: Tensor, sequence: int, to: int, n: int, left: int, stream: Stream | None) -> None:
    """Move `left` positions of a sequence n places, to the position `to`, in the widest words that fit its bytes."""
    each = held.desc.nbytes // (held.shape[0] * held.shape[1])
    start = held.desc.byte_range[0] + (sequence * held.shape[1] + to) * each
    width, element = next((w, e) for w, e in _WIDTHS if each % w == 0 and start % w == 0)
    count = (n + left) * each // width
    run = Tensor(TensorDesc(element, (count,), None, start // width), held.buffer)
    moved: Callable[..., Any] = calls.call
    moved(
        find("copy_slice"),
        [run],
        out=run,
        stream=stream,
        x_offset=n * each // width,
        y_offset=0,
        count=left * each // width,
    )
