"""What a backend provides: devices with memory, streams and kernel variants. A backend is free in how it does each."""

from __future__ import annotations

import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType, TracebackType
from typing import TYPE_CHECKING, Any, ClassVar

from .abi.plan import Plan
from .dtypes import DType
from .status import InvalidArgument

if TYPE_CHECKING:
    import numpy as np

    from .buffer import Buffer, Memory
    from .ops import Operator
    from .prepared import Preparations
    from .tensors import Tensor

HOOK_VERSION = 1
ALIGNMENT = 64
BASE_ALIGNMENT = 256  # bytes that a base of device memory, from which offsets count, is a multiple of


class Unavailable(Exception):
    """Raised by a backend that cannot work on this machine; the text is the reason a user reads."""


class Declined(Exception):
    """Raised by a variant's `prepare` that cannot keep what `supported` said; dispatch goes on to the next one. The text is the reason."""


@dataclass(frozen=True)
class Workspace:
    """Scratch memory that a call needs: exact bytes, alignment of its address, and kind of memory."""

    size: int = 0
    alignment: int = ALIGNMENT
    kind: str = "default"


@dataclass(frozen=True)
class Form:
    """How a kernel would rather have a constant input: equal names are equal layouts of a tensor, whatever else the plan says."""

    name: str
    nbytes: int


class Kernel(ABC):
    """A plan bound to one variant, ready to launch from many threads.

    `forms` has what becomes of `plan.constants`: those by whose position it maps to a form are packed by `pack` before they are launched with.
    """

    workspace: Workspace
    forms: Mapping[int, Form] = MappingProxyType({})

    def pack(self, position: int, source: Any, target: Any, stream: Stream) -> None:
        """Bring a constant input from the handle `source`, laid out as the plan says, into its form at `target`; enqueued, or done."""
        raise NotImplementedError(f"{type(self).__name__} has no forms")

    @abstractmethod
    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Enqueue on `stream`. `handles` are buffer handles in the plan's order (None where absent), `workspace` a handle or None."""

    def bind(
        self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream, owned: Any
    ) -> Callable[[], None]:
        """A function that launches with exactly these arguments, as cheaply as the backend can.

        It keeps `owned` (the descriptor and tensors) alive, and adds it to a recording that the stream is making.
        """
        fixed = tuple(handles)

        def bound() -> None:
            if stream.recording is not None:
                stream.recording.owned.append(owned)
            self.launch(fixed, workspace, workspace_bytes, stream)

        return bound


@dataclass(frozen=True)
class KernelVariant:
    """One way to compute the operators of a stem.

    `supported` is cheap (rank, dtype, layout, attributes) and answers None or why not; what it accepts, `prepare` makes
    runnable, or, where only the attempt could tell (a compiler, a self-test), raises `Declined`. `workspace` is the
    kind of memory that its calls may need scratch memory of, "" where none does, None where the backend does not say.
    """

    stem: str
    name: str
    priority: int
    supported: Callable[[Plan], str | None]
    prepare: Callable[[Plan], Kernel]
    workspace: str | None = None


@dataclass(frozen=True)
class Limit:
    """One way to reach a limit of the machine: each `run()` moves `work` bytes (kind "copy") or does `work` operations ("fma").

    `isokern bench` times it beside the kernels; of several ways of one kind the fastest counts. A run returns when its work is done; on a
    device with a timer, when it is enqueued on the device's default stream.
    """

    kind: str
    work: float
    run: Callable[[], None]


class Timer(ABC):
    """A device's own clock along one stream: the host enqueues `start`, calls and `stop`, and waits only when it asks for `seconds`."""

    @abstractmethod
    def start(self) -> None:
        """Begin after all that is enqueued so far."""

    @abstractmethod
    def stop(self) -> None:
        """End after all that is enqueued so far."""

    @abstractmethod
    def seconds(self) -> float:
        """From `start` to `stop`, once the work up to `stop` is done; it is waited for."""


class Peer(ABC):
    """Another library that `isokern bench` times beside an operator, on tensors of the same device and without a copy of them.

    `name` is the key of its times. What a method raises leaves the peer out of the case, with the text as the reason.
    """

    name: str

    @abstractmethod
    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], np.ndarray[Any, Any]] | None:
        """The library's call for the work of `op`, and on the host what it computed when it was made once.

        `inputs` are the tensors that are given, in the signature's order, `attrs` all attributes. The call may leave its result in `output` or
        in memory of its own. None where the library has no such call, or not for these arguments.
        """

    def on(self, stream: Stream) -> AbstractContextManager[object]:
        """Inside it the library's calls enqueue on `stream`, where it enqueues at all."""
        return nullcontext()


class Event:
    """A point in a stream's work."""

    def synchronize(self) -> None:
        """Wait until the work before the event is done."""

    def query(self) -> bool:
        """Whether it is done."""
        return True


class Scratch:
    """Scratch memory for calls that run one after the other: a buffer for each kind of memory, which only grows.

    A buffer that a larger one replaces is freed when the work that uses it is done, as any buffer that is dropped.
    """

    def __init__(self) -> None:
        self._buffers: dict[str, Buffer] = {}

    def get(self, need: Workspace, memory: Memory) -> Buffer:
        """At least what is needed. The next call that gets memory here may get the same."""
        found = self._buffers.get(need.kind)
        if found is not None and found.nbytes >= need.size and found.address % need.alignment == 0:
            return found
        size = need.size if found is None else max(need.size, found.nbytes)
        alignment = max(need.alignment, BASE_ALIGNMENT)
        found = None
        self._buffers.pop(need.kind, None)  # so that there is room for the larger one
        made = self._buffers[need.kind] = memory.alloc(size, kind=need.kind, alignment=alignment, empty=True)
        return made


class Recording(ABC):
    """A captured list of calls. It owns the plans and buffers that it names; `scratch` is its calls' scratch memory."""

    def __init__(self) -> None:
        self.owned: list[Any] = []
        self.scratch = Scratch()

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def replay(self, stream: Stream | None = None) -> None:
        """Run the list again with what the same buffers hold now."""


class Stream(ABC):
    """Work in order; `with stream:` makes it the thread's current one for its device.

    `handle` is an integer, by which `Device.stream_of` finds the stream: the address of what the backend made for it,
    or where there is no such thing a number of its own.
    """

    def __init__(self, device: Device, handle: int | None = None) -> None:
        self.device, self.handle = device, id(self) if handle is None else handle
        self._of_thread = threading.local()
        device._by_handle[self.handle] = self

    @property
    def native(self) -> int:
        """What the device's own API calls the stream, for kernels of the host's own; valid as long as the stream is."""
        return self.handle

    @property
    def recording(self) -> Recording | None:
        """What this thread captures the stream into, if it does; the calls of other threads run meanwhile."""
        return self._of_thread.__dict__.get("recording")

    def scratch(self, need: Workspace) -> Buffer | None:
        """Scratch memory for a call that this thread makes on the stream now; None where the call needs none.

        It is shared by no other thread: the launches of two threads on one stream may alternate, and where calls run in
        the caller's thread they run at once. It goes with the stream, or with the thread. A recording has memory of its
        own.
        """
        if need.size == 0:
            return None
        of_thread = self._of_thread.__dict__
        recording: Recording | None = of_thread.get("recording")
        if recording is not None:
            return recording.scratch.get(need, self.device.memory)
        pool: Scratch | None = of_thread.get("scratch")
        if pool is None:
            pool = of_thread["scratch"] = Scratch()
        return pool.get(need, self.device.memory)

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all enqueued work, and raise the typed error of whatever failed in it."""

    @abstractmethod
    def record(self) -> Event:
        """An event after all that is enqueued so far."""

    def wait(self, event: Event) -> None:
        """Work enqueued from now on starts after `event`, of this device or of another; as it is here, the host waits for it."""
        if not isinstance(event, Event):
            raise InvalidArgument("wait", f"event is a {type(event).__name__}", allowed="an event: stream.record()")
        event.synchronize()

    def copy(self, target: Tensor, source: Tensor) -> None:
        """Enqueue a copy of `source` to `target`, of one shape and dtype, both in memory that the device reaches: its own, or pinned memory of
        the host. It is not done when this returns, unless the device does all work at once; it can be captured.
        """
        from .functional import call
        from .ops import find

        check_tensors("copy", target=target, source=source)
        call(find("copy"), [source], out=target, device=self.device, stream=self)

    @abstractmethod
    def _begin_capture(self) -> Recording: ...

    @abstractmethod
    def _end_capture(self, recording: Recording) -> None: ...

    @contextmanager
    def capture(self) -> Iterator[Recording]:
        """This thread's calls on the stream are recorded instead of run; `recording.replay()` runs them. Other threads may capture it, too."""
        if self.recording is not None:
            raise InvalidArgument(
                "capture",
                f"this thread captures the stream of {self.device.name} already",
                hint="end that capture first",
            )
        of_thread = self._of_thread.__dict__
        of_thread["recording"] = recording = self._begin_capture()
        try:
            yield recording
        finally:
            if self.recording is not recording:
                raise InvalidArgument(
                    "capture",
                    "the `with` block ends in another thread than it began in",
                    hint="leave it where it began",
                )
            del of_thread["recording"]
            self._end_capture(recording)

    def __enter__(self) -> Stream:
        _stack(self.device).append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _stack(self.device).pop()


_current = threading.local()


def _stack(device: Device) -> list[Stream]:
    stacks: dict[Device, list[Stream]] = _current.__dict__.setdefault("stacks", {})
    return stacks.setdefault(device, [])


def check_tensors(where: str, **given: Any) -> None:
    """InvalidArgument unless each argument is a tensor."""
    from .tensors import Tensor

    for name, value in given.items():
        if not isinstance(value, Tensor):
            raise InvalidArgument(where, f"{name} is a {type(value).__name__}", allowed="a tensor")


def check_stream(where: str, stream: Any, device: Device) -> None:
    """InvalidArgument unless `stream` is one of the device's."""
    if not isinstance(stream, Stream) or stream.device is not device:
        given = f"of {stream.device.name}" if isinstance(stream, Stream) else f"a {type(stream).__name__}"
        raise InvalidArgument(where, f"the stream is {given}", allowed=f"a stream of {device.name}")


def current_stream(device: Device) -> Stream:
    """The innermost `with stream:` of this thread, else the device's default stream."""
    stacks: dict[Device, list[Stream]] | None = _current.__dict__.get("stacks")
    if stacks:
        stack = stacks.get(device)
        if stack:
            return stack[-1]
    return device.default_stream


@dataclass(eq=False)
class Device(ABC):
    """A place where kernels run. `name` is `backend:index`; `properties` is what `isokern devices` shows; `aliases` are other names it goes by.

    `conditions` are facts a case may depend on: {"flushes_denormals": "why"} and the like, empty for a device that follows IEEE 754.
    """

    name: str
    properties: Mapping[str, Any]
    memory: Memory
    conditions: Mapping[str, str] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    asynchronous: ClassVar[bool] = False  # whether a call may return before its work is done
    dlpack_device: ClassVar[tuple[int, int] | None] = (
        None  # DLPack's (device type, index) of memory that is not the host's
    )
    cache: int = 0  # bytes of the last cache in front of its memory, where `isokern bench` must keep operands out of it

    prepared: Preparations = field(init=False)

    def __post_init__(self) -> None:
        from .prepared import Preparations

        self.memory.attach(self)
        self.prepared = Preparations()
        self._by_handle: weakref.WeakValueDictionary[int, Stream] = weakref.WeakValueDictionary()
        self.default_stream = self.stream()

    @abstractmethod
    def stream(self) -> Stream:
        """A new stream."""

    def stream_of(self, handle: Any, libraries: Collection[str] = ()) -> Stream:
        """The stream of a handle: `Stream.handle`, or that of a stream that the host made, where the device takes such.

        0 is the thread's current one: ours, or that of `libraries`, whose memory a call is for.
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

    def adopt_stream(self, handle: int) -> Stream:
        """The stream over one that the host made by the device's own API; as it is here, the device takes none."""
        raise InvalidArgument(
            "stream",
            f"handle {handle} on {self.name}, where no stream has it",
            allowed="Stream.handle of a stream of the device, or 0 for the thread's current one",
            hint="make one: device.stream()",
        )

    def supports(self, operator: str | Operator, **dtypes: Any) -> list[dict[str, DType]]:
        """The choices of dtypes for the operator's type variables that the device has a kernel for.

        `dtypes` names some of the variables, and only choices with these dtypes are told: `device.supports("cast",
        S="F32", T="I8")` has that one choice, or is empty, which is false. It is the first sample with these dtypes that the
        kernels are asked about; `isokern why` tells the reasons of a no.
        """
        from .ops import find
        from .support import support

        op = operator if not isinstance(operator, str) else find(operator)
        taken = [choice for choice, refused in support(self, op, dtypes).items() if refused is None]
        return [dict(zip(op.signature.types, choice, strict=True)) for choice in taken]

    def hand_over(self, stream: int | None, buffer: Buffer) -> None:
        """Let what `stream` of another library runs next see all work so far: None is the library's default stream, -1 asks for no wait.

        From now on that stream may use the memory of `buffer`, also when nobody here has it any more.
        """
        if stream != -1:
            self.synchronize()

    @property
    def foreign_stream(self) -> int | None:
        """The thread's current stream, as DLPack tells producers of it."""
        return None

    @abstractmethod
    def variants(self, stem: str) -> Sequence[KernelVariant]:
        """The variants of a stem, in any order; empty where the device has none."""

    def limits(self, nbytes: int, element: DType) -> Sequence[Limit]:
        """Ways to measure what this device can do at best: a copy that reads and writes `nbytes` bytes in all, products of `element`s.

        Empty where the device offers none.
        """
        return ()

    def timer(self, stream: Stream) -> Timer | None:
        """A clock of its own along `stream`; None where the host's clock around a call tells as much."""
        return None

    def peers(self) -> Sequence[Peer]:
        """Libraries that compute in this device's memory; where there is none, `isokern bench` times NumPy on the host."""
        return ()

    def synchronize(self) -> None:
        """Wait for everything enqueued on any stream of the device, and raise the typed error of whatever failed in it.

        Reads and writes of buffers rely on it. As it is here it serves devices whose streams all run in the caller's thread.
        """
        self.default_stream.synchronize()

    def __repr__(self) -> str:
        return f"<device {self.name}>"
