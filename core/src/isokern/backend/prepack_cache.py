"""Constant inputs in packed layouts: packed once for each device, kept while in use, and counted."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable
from typing import Any
from weakref import WeakKeyDictionary, WeakValueDictionary

from ..process.forks import own_lock
from .buffer_view import BufferView
from .memory import Buffer

lock = own_lock(sys.modules[__name__], "lock")


class PrepackCache:
    """The constants that were prepacked on a device.

    `packed` counts the tensors that were brought into a packed layout, `found` how often one that is in use was
    returned again. `nbytes` are the bytes of those that are in use, except those in memory of the caller's.
    """

    def __init__(self) -> None:
        self.packed = self.found = 0
        self._held: WeakKeyDictionary[Buffer, WeakValueDictionary[Hashable, Any]] = WeakKeyDictionary()

    @property
    def nbytes(self) -> int:
        """Bytes of the prepacked tensors that are in use."""
        with lock:
            return sum(view.buffer.nbytes for kept in self._held.values() for view in kept.values())

    def get(self, source: Buffer, key: Hashable, pack: Callable[[], BufferView]) -> Any:
        """Return the cached result of `pack` for `source` and this key while that is in use, else call it."""
        with lock:
            kept = self._held.setdefault(source, WeakValueDictionary())
            found = kept.get(key)
            if found is not None:
                self.found += 1
                return found
            made = kept[key] = self.pack(pack)
            return made

    def pack(self, pack: Callable[[], BufferView]) -> Any:
        """Return what `pack` makes, counted but not cached."""
        with lock:
            made = pack()
            self.packed += 1
            return made
