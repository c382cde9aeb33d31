"""A device of queues: its streams work while the host goes on, and what they use is kept until they are done."""

from __future__ import annotations

import atexit
import contextlib
import weakref
from abc import abstractmethod
from collections.abc import Collection
from typing import Any

from ..backend import Stream
from ..process.forks import own_lock, tell_in_child
from .deferred_release import DeferredRelease
from .device import SimtDevice


class QueuedDevice(SimtDevice):
    """A SIMT device whose streams are queues of its API; `deferred` keeps memory that work in flight may use.

    Its streams have a `key` (see `DeferredRelease`), `foreign`, which is true of those that the host made, and
    `finish`, which waits and ignores errors that the work found in its data.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.deferred = DeferredRelease()
        self._foreign: dict[int, Any] = {}  # the host's streams; kept, so that their work is waited for
        self._lock = own_lock(self, "_lock")
        super().__init__(*arguments, **options)
        tell_in_child(self, "detach")
        atexit.register(_finish_at_exit, weakref.ref(self))

    def stream_of(self, handle: Any, libraries: Collection[str] = ()) -> Stream:
        """Return the stream that has the handle, ours or the host's; 0 is the thread's current one."""
        found: Any = super().stream_of(handle, libraries)
        if found.foreign:
            with self._lock:
                self._foreign[found.handle] = found  # its work may have been waited for since it was found first
        return found  # type: ignore[no-any-return]  # a Stream; `foreign` is what the subclasses' streams have

    def adopt_stream(self, handle: int) -> Stream:
        """Return a stream over one that the host made."""
        with self._lock:
            found = self._by_handle.get(handle)  # another thread may have added it meanwhile
            return self._adopt(handle) if found is None else found

    @abstractmethod
    def _adopt(self, handle: int) -> Stream:
        """Return a new stream over the host's that has the handle."""

    def synchronize(self) -> None:
        """Wait for every stream; the first error is raised after all have been waited for."""
        first: Exception | None = None
        for stream in self.live_streams():
            try:
                stream.synchronize()
            except Exception as error:  # the other streams are waited for nevertheless
                first = first or error
        with self._lock:  # the host may destroy its streams now, and a destroyed stream cannot be waited for
            self._foreign = {h: s for h, s in self._foreign.items() if s.key in self.deferred.pending}
        if first is not None:
            raise first

    def finish(self) -> None:
        """Wait for every stream, so that retired objects can be released."""
        for stream in self.live_streams():
            stream.finish()

    def detach(self) -> None:
        """Leave the work of the parent behind, in a forked child."""
        self.deferred.renew()


def _finish_at_exit(known: weakref.ref[QueuedDevice]) -> None:
    """Wait for work in flight at exit: it uses memory that the interpreter is about to free."""
    device = known()
    for stream in () if device is None else device.live_streams():
        with contextlib.suppress(Exception):  # a lost device, a forked child
            stream.finish()
