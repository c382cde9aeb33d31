"""One GPU: how kernels are built and launched on it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

from isokern.backend import Buffer, KernelVariant, Limit, Peer, Stream, Timer, check_stream, current_stream
from isokern.disk_cache import user_cache
from isokern.dtypes import DType
from isokern.simt import Folder, GroupTooLarge, Launch
from isokern.status import InternalError, InvalidArgument, IsokernError

from . import products
from .driver import Arguments, CudaError, Driver, Wrong
from .errors import STICKY, device_lost, fork_error, typed_error
from .memory import CudaMemory, Held
from .place import CudaPlace
from .programs import CudaPrograms
from .streams import Call, CudaEvent, CudaStream, CudaTimer

HERE = Path(__file__).parent
PER_THREAD = 2  # cudaStreamPerThread
T = TypeVar("T")


class Function:
    """A kernel with its launch's size and record, and arguments that each thread writes again for each call."""

    __slots__ = ("_of_thread", "blocks", "kernel", "record", "threads")

    def __init__(self, kernel: Any, launch: Launch) -> None:
        self.kernel, self.blocks, self.threads, self.record = kernel, launch.groups, launch.local, launch.record
        self._of_thread = threading.local()

    def with_pointers(self, pointers: Sequence[int]) -> Arguments:
        """Return this thread's arguments, which its next call overwrites."""
        found: Arguments | None = self._of_thread.__dict__.get("arguments")
        if found is None:
            found = self._of_thread.arguments = Arguments(pointers, self.record)
        else:
            found.point(pointers)
        return found


class CudaDevice(CudaPlace):
    """A GPU behind a `Driver`."""

    memory: CudaMemory

    def __init__(self, name: str, driver: Driver) -> None:
        self.name, self.driver = name, driver
        self._refusal: Callable[[str], IsokernError] | None = None
        # Streams of other libraries that were handed memory, kept for good: they are waited for when it is dropped
        self._users: dict[int, CudaStream] = {}
        # Buffers apart from the tensors that graphs captured by other libraries write to
        self.graphs_of_others: list[Any] = []
        disk_cache = user_cache("cuda")
        self.programs = CudaPrograms(name, driver, disk_cache)
        super().__init__(
            name,
            driver.properties,
            CudaMemory(),
            {},
            driver.traits,
            HERE / "prelude.h",
            [Folder("cuda", 10, HERE / "kernels" / "cuda")],
            driver=driver.identity,
            disk_cache=disk_cache,
        )
        self.cache = driver.cache

    @property
    def toolchain(self) -> str:
        """The compiler that makes its programs, with the options that it is given."""
        return str(self.properties.get("compiler") or self.driver.identity.replace("\0", " "))

    def ask(self, where: str, question: Callable[..., T], *arguments: Any) -> T:
        """Return the driver's answer, or raise a typed error.

        After an error that leaves the process without CUDA the driver is not asked again.
        """
        if self._refusal is not None:
            raise self._refusal(where)
        try:
            return question(*arguments)
        except Wrong as error:
            raise InternalError(where, f"{self.name}: {error}") from None
        except CudaError as error:
            if error.code in STICKY:
                self._refusal = partial(device_lost, device=self.name, text=str(error))
            raise typed_error(where, self.name, error) from None

    def stream(self) -> CudaStream:
        """Return a new stream."""
        return CudaStream(self)

    def stream_of(self, handle: Any, libraries: Collection[str] = ()) -> CudaStream:
        """Return the stream of a cudaStream_t, ours or another library's.

        0 is the thread's current one: ours, or else that of other libraries.
        """
        found = super().stream_of(handle, libraries)
        if handle == 0 and found is self.default_stream and (theirs := self.driver.current(libraries)):
            found = super().stream_of(theirs)
        assert isinstance(found, CudaStream)
        return found

    def _adopt(self, handle: int) -> CudaStream:
        """Return a stream object for another library's stream."""
        if handle == PER_THREAD:
            raise InvalidArgument(
                "stream",
                "the per-thread default stream, which is another one in each thread",
                hint="make a stream, and name that",
            )
        if handle != self.driver.legacy:
            self.ask("stream", self.driver.check_stream, handle)
        return CudaStream(self, handle)

    def hand_over(self, stream: int | None, buffer: Buffer) -> None:
        """Make a stream of another library wait for ours, on the device; it may use the memory from now on.

        While the other library captures its stream, the host waits for those of ours that are not captured too.
        """
        target = self.driver.legacy if stream is None or stream == -1 else stream
        owner = buffer.handle.owner
        if isinstance(owner, Held) and target != PER_THREAD:
            user = self.stream_of(target)
            if user.foreign:  # our own streams are waited for anyway
                self._users[target] = user
                owner.users.add(user.key)
        if stream == -1:
            return
        busy = [s for s in self.live_streams() if s.key in self.deferred.pending and s.raw != target]
        captured = bool(busy) and self.ask("dlpack", self.driver.captures, target)
        for own in busy:
            if captured and not self.ask("dlpack", self.driver.captures, own.raw):
                self.ask("dlpack", self.driver.settle, own.raw)  # a graph cannot wait for work outside of it
            else:
                event = CudaEvent(own)  # a name, because the event ends with the object
                self.ask("dlpack", self.driver.wait, target, event.raw)

    @property
    def foreign_stream(self) -> int:
        """The thread's current stream."""
        ours = current_stream(self)
        assert isinstance(ours, CudaStream)
        return ours.raw

    @property
    def dlpack_device(self) -> tuple[int, int]:  # type: ignore[override]  # a constant of other devices
        """DLPack's (device type, index)."""
        return self.driver.dlpack_device

    def detach(self) -> None:
        """Detach a forked child from CUDA, which does not work there: whatever would use it says so."""
        super().detach()
        if not self.driver.forks:
            self._refusal = partial(fork_error, device=self.name)

    def variants(self, stem: str) -> list[KernelVariant]:
        """Return one variant for each folder that has the stem, and for matrix products the library's."""
        return [*self._products, *super().variants(stem)] if stem == "gemm" else super().variants(stem)

    @cached_property
    def _products(self) -> list[KernelVariant]:
        return products.variants(self)

    def timer(self, stream: Stream) -> Timer:
        """Return a timer of two timed events."""
        check_stream("timer", stream, self)
        assert isinstance(stream, CudaStream)
        return CudaTimer(stream)

    def limits(self, nbytes: int, element: DType) -> Sequence[Limit]:
        """Return the limits: copies by the driver and by our kernel, and cuBLAS's product where CuPy finds it.

        The emulation has none.
        """
        from .bench.limits import limits

        return () if self.properties["emulated"] else limits(self, nbytes, element)

    def peers(self) -> Sequence[Peer]:
        """Return PyTorch, CuPy and cuBLAS, as far as they are installed; for the emulation NumPy on its memory."""
        from .bench import peers

        return peers(self)

    def same_memory(self, a: Any, b: Any) -> bool:
        """Return whether the memory of two handles overlaps: two may belong to one allocation of another library."""
        x, y = a.owner, b.owner
        return bool(x.address < y.address + y.nbytes and y.address < x.address + x.nbytes)

    def compile(self, launch: Launch) -> Function:
        """Return the kernel, ready to be launched."""
        kernel, most = self.ask("compile", self.programs.get, launch)
        if most < launch.local:
            raise GroupTooLarge(launch.entry, launch.local, 1 << (max(1, most).bit_length() - 1))
        return Function(kernel, launch)

    @staticmethod
    def _pointers(launch: Launch, handles: Sequence[Any], workspace: Any, stream: CudaStream) -> list[int]:
        pointers = [handles[i] for i in launch.tensors]
        if launch.workspace:
            pointers.append(workspace)
        if launch.reports:
            pointers.append(stream.words.address)
        return pointers

    def _call(
        self, launch: Launch, function: Function, handles: Sequence[Any], workspace: Any, stream: CudaStream
    ) -> Call:
        arguments = Arguments(self._pointers(launch, handles, workspace, stream), function.record)
        enqueue = partial(self.driver.launch, function.kernel, function.blocks, function.threads, arguments)
        return Call(enqueue, stream if launch.reports else None, (handles, workspace), workspace)

    def enqueue(
        self, launch: Launch, function: Function, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> None:
        """Run the kernel on `stream`, or record it."""
        assert isinstance(stream, CudaStream)
        if stream.captures:
            stream.take(self._call(launch, function, handles, workspace, stream))
            return
        arguments = function.with_pointers(self._pointers(launch, handles, workspace, stream))
        if launch.reports:
            stream.reports.add(stream)
        self.ask(
            "calculate", self.driver.launch, function.kernel, function.blocks, function.threads, arguments, stream.raw
        )
        self.deferred.pending.add(stream.key)

    def bind_launch(
        self, launch: Launch, function: Function, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> Callable[[], None]:
        """Return a closure over arguments that are laid out already."""
        assert isinstance(stream, CudaStream)
        call = self._call(launch, function, handles, workspace, stream)
        return lambda: stream.take(call)
