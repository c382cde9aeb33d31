"""Device: a place where kernels run, with memory, streams and kernel variants."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..declare.operator import Operator
from ..dtypes import DType
from ..ops import find
from ..status import InvalidArgument
from .capabilities import support
from .kernels import KernelVariant
from .limits import Limit, Peer, Timer
from .memory import Buffer, Memory, Place
from .prepack_cache import PrepackCache
from .streams import Stream, current_stream


class Unavailable(Exception):
    """Raised by a backend that cannot work on this machine; the text is the reason a user reads."""


@dataclass(eq=False)
class Device(Place):
    """A place where kernels run.

    `name` is `backend:index`, `properties` is what `isokern devices` shows, and `aliases` are other names of the
    device. A card states the bytes of its memory as `properties["memory_bytes"]`, so that `isokern check` can fill it.
    `conditions` are facts a case may depend on: {"flushes_denormals": "why"} and the like, empty for a device that
    follows IEEE 754.
    """

    name: str
    properties: Mapping[str, Any]
    memory: Memory
    conditions: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    cache: int = 0  # bytes of the last-level cache, where `isokern bench` must keep operands out of it

    prepack_cache: PrepackCache = field(init=False)

    @property
    def calls(self) -> Any:
        """The module in C by which eager calls that were made before are found and made; None for none."""
        return None

    def __post_init__(self) -> None:
        self.memory.attach(self)
        self.prepack_cache = PrepackCache()
        self._by_handle: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
        self.default_stream = self.stream()

    @property
    def digest(self) -> str:
        """A version of the code of its kernels; without it no packed constants are kept in files."""
        return ""

    @property
    def toolchain(self) -> str:
        """The compilers and drivers that make its kernels, with their versions: proofs in a ledger depend on them."""
        return ""

    @abstractmethod
    def stream(self) -> Stream:
        """Return a new stream."""

    def stream_of(self, handle: Any, libraries: Collection[str] = ()) -> Stream:
        """Return the stream that has the handle: one of Isokern's, or the host's own if the device takes such streams.

        0 is the thread's current stream: Isokern's, or that of `libraries`, whose memory a call is for.
        """
        if not isinstance(handle, int) or isinstance(handle, bool) or handle < 0:
            raise InvalidArgument(
                "stream",
                f"handle {handle!r} on {self.name}",
                allowed="an integer: the handle of a stream, or 0 for the thread's current one",
            )
        if handle == 0:
            return current_stream(self)
        found = self._by_handle.get(handle)
        return self.adopt_stream(handle) if found is None else found

    def live_streams(self) -> list[Any]:
        """Return the streams that are alive now; any thread may ask."""
        return [stream for known in self._by_handle.valuerefs() if (stream := known()) is not None]

    def adopt_stream(self, handle: int) -> Stream:
        """Return a stream over one that the host made by the device's own API; by default the device takes none."""
        raise InvalidArgument(
            "stream",
            f"handle {handle} on {self.name}, which is not that of a stream",
            allowed="Stream.handle of a stream of the device, or 0 for the thread's current one",
            hint="make one: device.stream()",
        )

    def supports(self, operator: str | Operator, **dtypes: Any) -> list[dict[str, DType]]:
        """Return the choices of dtypes for the operator's type variables that the device has a kernel for.

        `dtypes` fixes some of the variables, and only choices with these dtypes are returned: `device.supports("cast",
        S="F32", T="I8")` has that one choice, or is empty, which is false. The kernels are asked about the first sample
        with these dtypes; `isokern why` gives the reasons of a refusal.
        """
        op = operator if not isinstance(operator, str) else find(operator)
        taken = [choice for choice, refused in support(self, op, dtypes).items() if refused is None]
        return [dict(zip(op.signature.types, choice, strict=True)) for choice in taken]

    def hand_over(self, stream: int | None, buffer: Buffer) -> None:
        """Make all work so far visible to what `stream` of another library runs next.

        None is the library's default stream, -1 asks for no wait. From now on that stream may use the memory of
        `buffer`, even after every object here has dropped it.
        """
        if stream != -1:
            self.synchronize()

    @property
    def foreign_stream(self) -> int | None:
        """The thread's current stream, as DLPack passes it to producers."""
        return None

    @abstractmethod
    def variants(self, stem: str) -> Sequence[KernelVariant]:
        """Return the variants of a stem, in any order; empty if the device has none."""

    def limits(self, nbytes: int, element: DType) -> Sequence[Limit]:
        """Return ways to measure this device's peak rates; empty if it offers none.

        They are a copy that reads and writes `nbytes` bytes in all, and products of `element`s.
        """
        return ()

    def timer(self, stream: Stream) -> Timer | None:
        """Return the device's own clock along `stream`; None if the host's clock around a call is as good."""
        return None

    def peers(self) -> Sequence[Peer]:
        """Return libraries that compute in this device's memory; if none, `isokern bench` times NumPy on the host."""
        return ()

    def synchronize(self) -> None:
        """Wait for everything enqueued on any stream of the device, and raise the typed error of whatever failed in it.

        Reads and writes of buffers rely on it. By default it serves devices whose streams all run in the caller's
        thread.
        """
        self.default_stream.synchronize()

    def __repr__(self) -> str:
        return f"<device {self.name}>"
