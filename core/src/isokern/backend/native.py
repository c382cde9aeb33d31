"""The Python side of a native backend: kernel variants, calls and recorded lists over the C verbs of isokern.h.

A plug-in passes its cffi `ffi` and `lib`, of a compiled extension or of `ffi.dlopen`; this module imports neither.
`lib` has what `isokern.cabi.cdef` declares: the verbs of isokern.h, and the tables and functions of isokern_native.h.
For `isokern bench` it may also have functions that measure the machine's own limits: `ik_measure_copy(to, from, bytes,
streaming)`, and `ik_measure_fma(dtype, rounds)`, which returns the number of operations done.
"""

from __future__ import annotations

import hashlib
import struct
import sys
import weakref
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from ..cabi.plan import Plan
from ..declare.operator import Operator
from ..dtypes import DType
from ..ops import by_kind, find
from ..status import InvalidArgument, OutOfMemory, Status, raise_for
from .device import Device
from .kernels import Kernel, KernelVariant, NativeStep, PackedLayout
from .limits import Limit
from .memory import Buffer, Memory, Workspace
from .streams import Event, Recording, Stream, check_stream, current_stream

CAPTURED = 64
PIECE = 1 << 20  # bytes that are written at once
FMA_ROUNDS = 2000  # tens of microseconds: long compared with a fork and join, short compared with an interruption


class NativeLibrary:
    """The verbs of one native library.

    `calls` is a module in C that repeats eager calls (see eager/quick.py), None if the
    plug-in has none.
    """

    def __init__(self, ffi: Any, lib: Any, calls: Any = None) -> None:
        self.ffi, self.lib, self.calls = ffi, lib, calls
        text = ffi.string
        self._variants: dict[str, list[tuple[int, str, int]]] = {}
        count = ffi.new("uint32_t *")
        rows = lib.ik_variant_list(count)
        for index in range(count[0]):
            row = rows[index]
            stem = text(row.stem).decode()
            self._variants.setdefault(stem, []).append((index, text(row.level).decode(), row.priority))

    @cached_property
    def digest(self) -> str:
        """The digest of the file that the library was loaded from; empty if that is unknown."""
        module = sys.modules.get(getattr(self.lib, "__name__", "").rpartition(".")[0])
        file = getattr(module, "__file__", None)
        return "" if file is None else hashlib.sha256(Path(file).read_bytes()).hexdigest()

    @cached_property
    def call_address(self) -> int:
        """The address of the verb by which kernels are launched."""
        return int(self.ffi.cast("uintptr_t", self.ffi.addressof(self.lib, "ik_call_packed")))

    @property
    def levels(self) -> list[str]:
        """The names of the variants that every stem has, worst first; the others are features that override a few."""
        ranked = {(priority, level) for rows in self._variants.values() for _, level, priority in rows}
        names = dict.fromkeys(level for _, level in sorted(ranked))
        return [n for n in names if all(n in {level for _, level, _ in rows} for rows in self._variants.values())]

    @cached_property
    def compiler(self) -> str:
        """The compiler that built the library, and its version."""
        return str(self.ffi.string(self.lib.ik_compiler()).decode())

    @cached_property
    def fingerprints(self) -> dict[str, int]:
        """The fingerprint of the attribute record that the library was compiled with, by operator."""
        count = self.ffi.new("uint32_t *")
        rows = self.lib.ik_operator_list(count)
        return {self.ffi.string(rows[i].name).decode(): rows[i].fingerprint for i in range(count[0])}

    def variants(self, stem: str, declined: Callable[[str], str | None], device: NativeDevice) -> list[KernelVariant]:
        """Return the variants of a stem for `device`.

        `declined(level)` gives the reason for which a whole level is refused, or None.
        """
        return [
            self._variant(stem, index, level, priority, declined, device)
            for index, level, priority in self._variants.get(stem, [])
        ]

    def _variant(
        self,
        stem: str,
        index: int,
        level: str,
        priority: int,
        declined: Callable[[str], str | None],
        device: NativeDevice,
    ) -> KernelVariant:
        def supported(plan: Plan) -> str | None:
            return declined(level) or self._other_record(plan.operator) or self.supported(plan, index)[0]

        return KernelVariant(
            stem, level, priority, supported, lambda plan: NativeKernel(self, plan, index, device), self._space(index)
        )

    def _other_record(self, operator: Operator) -> str | None:
        """Return the reason if the library reads a different attribute record from the one that this core writes.

        Registration goes by the index of operators, which can be out of date.
        """
        given = self.fingerprints.get(operator.name)
        if given is None or given == operator.attrs.fingerprint:
            return None
        return f"its kernel reads attribute record {given:#x}, this isokern writes {operator.attrs.fingerprint:#x}"

    def _space(self, index: int) -> str:
        """Return the kind of memory of a variant's workspace, "" if it needs none."""
        row, text = self.lib.ik_variant_list(self.ffi.new("uint32_t *"))[index], self.ffi.string
        return "" if row.workspace == self.ffi.NULL else text(row.workspace_kind).decode()

    def supported(self, plan: Plan, index: int) -> tuple[str | None, int]:
        """Return (why the variant does not take the plan, or None; its workspace bytes)."""
        ffi = self.ffi
        nbytes, reason = ffi.new("uint64_t *"), ffi.new("const char **")
        status = self.lib.ik_plan_supported(ffi.cast("const ik_plan *", plan.address), index, nbytes, reason)
        if status == Status.SUCCESS:
            return None, nbytes[0]
        if status == Status.NOT_IMPLEMENTED:
            return ffi.string(reason[0] if reason[0] != ffi.NULL else self.lib.ik_last_error()).decode(), 0
        raise_for(status, plan.operator.name, self.last_error())
        raise AssertionError("unreachable")

    def packed_layout(self, plan: Plan, position: int) -> PackedLayout | None:
        """Return the packed layout that the plan's variant prefers for a constant input, and note it in the plan.

        None means that the kernel takes the input as it is.
        """
        ffi = self.ffi
        nbytes, name = ffi.new("uint64_t *"), ffi.new("const char **")
        status = self.lib.ik_plan_packed_layout(ffi.cast("ik_plan *", plan.address), position, nbytes, name)
        if status:
            self.fail(status, plan.operator)
        return None if name[0] == ffi.NULL else PackedLayout(ffi.string(name[0]).decode(), nbytes[0])

    def last_error(self) -> str:
        """Return the message of this thread's last failed call."""
        text: str = self.ffi.string(self.lib.ik_last_error()).decode(errors="replace")
        return text

    def fail(self, status: int, operator: Operator | None = None) -> None:
        """Raise the typed error of a call, or of a `synchronize`, that failed.

        The text of a bad value that a kernel found begins with its operator's name.
        """
        text = self.last_error()
        named = text.partition(": ")[0]
        found = named if named in self.fingerprints else "synchronize"
        where = found if operator is None else operator.name
        if found == named and (error := find(named).read_value_error(text.removeprefix(f"{named}: "))):
            raise error
        raise_for(status, where, text.removeprefix(f"{where}: "))


class NativeKernel(Kernel):
    """A plan bound to a native variant."""

    def __init__(self, library: NativeLibrary, plan: Plan, index: int, device: NativeDevice) -> None:
        _, nbytes = library.supported(plan, index)
        plan.record.variant = index
        plan.record.workspace_bytes = nbytes
        self.library, self.plan = library, plan
        self.packed_layouts = {
            at: layout for at in plan.constants if (layout := library.packed_layout(plan, at)) is not None
        }
        nbytes = plan.record.workspace_bytes
        self.workspace = Workspace(nbytes, kind=library.ffi.string(library.lib.ik_workspace_kind(index)).decode())
        self._pointer = library.ffi.cast("const ik_plan *", plan.address)
        self._pack = struct.Struct(f"{max(1, len(plan.table))}Q").pack
        self._call = library.lib.ik_call_packed
        self._null = library.ffi.NULL
        self._absent = None in plan.table
        if device.asynchronous:
            weakref.finalize(self, device.retire, plan)

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Enqueue the call: one foreign call."""
        data = self._pack(*[h or 0 for h in handles]) if self._absent else self._pack(*handles)
        space = self._null if workspace is None else self.library.ffi.cast("void *", workspace)
        on = stream.pointer  # type: ignore[attr-defined]  # a NativeStream
        status = self._call(self._pointer, data, space, workspace_bytes, on)
        if status and status != CAPTURED:
            self.library.fail(status, self.plan.operator)

    def launcher(self) -> Callable[[Sequence[Any], Any, int, Stream], None]:
        """Return `launch` without what can be looked up before."""
        if self._absent:
            return self.launch
        pack, call, pointer, null, slow = self._pack, self._call, self._pointer, self._null, self.launch

        def launch(handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
            if workspace is not None:
                slow(handles, workspace, workspace_bytes, stream)
                return
            on = stream.pointer  # type: ignore[attr-defined]  # a NativeStream
            if status := call(pointer, pack(*handles), null, 0, on):
                self.library.fail(status, self.plan.operator)

        return launch

    def native_steps(self) -> list[NativeStep]:
        """Return the one call of the verb that `launch` makes."""
        return [(self.library.call_address, self.plan.address, tuple(range(len(self.plan.table))), self._fail)]

    def _fail(self, status: int) -> None:
        self.library.fail(status, self.plan.operator)

    def pack(self, position: int, source: Any, target: Any, stream: Stream) -> None:
        """Pack the input: one foreign call."""
        cast = self.library.ffi.cast
        to, of = cast("void *", target), cast("void *", source)
        on = stream.pointer  # type: ignore[attr-defined]  # a NativeStream
        status = self.library.lib.ik_plan_pack(self._pointer, position, of, to, on)
        if status:
            self.library.fail(status, self.plan.operator)

    def bind(
        self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream, owned: Any
    ) -> Callable[[], None]:
        """Return a closure over a call record that is filled in once."""
        ffi = self.library.ffi
        data = ffi.new("void *[]", [ffi.cast("void *", h or 0) for h in handles])
        space = ffi.NULL if workspace is None else ffi.cast("void *", workspace)
        on = stream.pointer  # type: ignore[attr-defined]  # a NativeStream
        record = ffi.new("ik_call *", [self._pointer, data, space, workspace_bytes, on])
        library, operator = self.library, self.plan.operator
        keep = (self, data, owned, stream)

        def check_status(status: int, keep: Any = keep) -> None:
            if status == CAPTURED:
                assert stream.recording is not None
                stream.recording.owned.append(keep)
            else:
                library.fail(status, operator)

        run = library.lib.ik_run_one

        def launch_bound() -> None:
            if status := run(record):
                check_status(status)

        return launch_bound


class NativeStream(Stream):
    """A stream of a native library; one whose calls return before their work is done overrides `record` and `wait`.

    `handle` is the address of the stream that `ik_stream_create` returned; `pointer` is the same address as a cffi
    object, which destroys the stream. `made` is a stream that the library created in another way; `ik_stream_destroy`
    destroys it too.
    """

    def __init__(self, device: NativeDevice, library: NativeLibrary, made: Any = None) -> None:
        ffi, lib = library.ffi, library.lib
        created = lib.ik_stream_create() if made is None else made
        if created == ffi.NULL:
            raise OutOfMemory("stream", library.last_error() or f"{device.name} has no room for one")
        super().__init__(device, int(ffi.cast("uintptr_t", created)))
        self.pointer = ffi.gc(created, lib.ik_stream_destroy)
        self.library, self.native_device = library, device

    def synchronize(self) -> None:
        """Wait for all enqueued work, and raise the typed error of whatever failed in it."""
        if status := self.library.lib.ik_stream_synchronize(self.pointer):
            self.library.fail(status)

    def record(self) -> Event:
        """Return an event that has already passed, since calls run in the caller's thread."""
        return Event()

    def begin_capture(self) -> Recording:
        """Have the library collect this thread's calls on the stream."""
        status = self.library.lib.ik_stream_begin_capture(self.pointer)
        raise_for(status, "capture", self.library.last_error())
        return NativeRecording(self)

    def end_capture(self, recording: Recording) -> None:
        """Take the list of calls from the library."""
        assert isinstance(recording, NativeRecording)
        recording.finish()


class NativeRecording(Recording):
    """A list of calls that one foreign call replays."""

    def __init__(self, stream: NativeStream) -> None:
        super().__init__()
        self._stream, self._library = stream, stream.library
        self._calls: Any = None
        self._count = 0

    def finish(self) -> None:
        """End the capture and take over the stream's list of calls."""
        ffi, lib = self._library.ffi, self._library.lib
        count = ffi.new("uint64_t *")
        calls = lib.ik_stream_end_capture(self._stream.pointer, count)
        if calls == ffi.NULL:
            self._library.fail(Status.INVALID_ARGUMENT)
        self._count = count[0]
        self._calls = ffi.gc(calls, lambda c, n=self._count: lib.ik_calls_free(c, n))
        device = self._stream.native_device
        if device.asynchronous:
            weakref.finalize(self, device.retire, (self._calls, self.owned))

    def __len__(self) -> int:
        return self._count

    def replay(self, stream: Stream | None = None) -> None:
        """Run the list on `stream`, by default the thread's current one.

        If the thread captures that stream, the list is added to the capture instead.
        """
        if self._calls is None:
            raise InvalidArgument("replay", "the list is still being captured", hint="replay it after the `with` block")
        device = self._stream.device
        target = current_stream(device) if stream is None else stream
        check_stream("replay", target, device)
        failed = self._library.ffi.new("int64_t *")
        on = target.pointer  # type: ignore[attr-defined]  # a NativeStream
        status = self._library.lib.ik_calls_replay(self._calls, self._count, on, failed)
        if status == CAPTURED:
            assert target.recording is not None
            target.recording.owned.append(self)
        elif status:
            self._library.fail(status, self._operator(failed[0]))

    def find(self, buffer: Buffer) -> list[Any] | None:
        """Return the places of a buffer's address among the calls' data."""
        if self._calls is None or not buffer.address:
            return None
        cast, found = self._library.ffi.cast, list[Any]()
        for i in range(self._count):
            call = self._calls[i]
            data, count = cast("uintptr_t *", call.data), call.plan.tensor_count
            found += [data + n for n in range(count) if data[n] == buffer.address]
        return found

    def redirect(self, places: Sequence[Any], address: int) -> None:
        """Write an address to each place."""
        for place in places:
            place[0] = address

    def _operator(self, index: int) -> Operator:
        assert self._calls is not None
        return by_kind(self._calls[index].plan.kind)


class NativeDevice(Device):
    """A device whose kernels are in a native library.

    Kernels run in the caller's thread, unless `asynchronous` is true: the subclass then defines `retire`, and
    `synchronize` for all streams. `declined(level)` gives the reason for which a whole level is refused, or None; the
    kernels are also asked. A device that computes in the host's memory, with the library of one:

        NativeDevice("acme:0", {}, HostMemory(), NativeLibrary(ffi, lib))
    """

    def __init__(
        self,
        name: str,
        properties: dict[str, Any],
        memory: Memory,
        library: NativeLibrary,
        declined: Callable[[str], str | None] = lambda level: None,
    ) -> None:
        self.library, self._declined = library, declined
        self._cache: dict[str, list[KernelVariant]] = {}
        super().__init__(name, properties, memory)

    @property
    def digest(self) -> str:
        """The digest of the library's file."""
        return self.library.digest

    @property
    def toolchain(self) -> str:
        """The compiler that built the library."""
        return self.library.compiler

    @property
    def calls(self) -> Any:
        """The module in C that makes repeated calls, if the library has one."""
        return self.library.calls

    def stream(self) -> NativeStream:
        """Return a new stream."""
        return NativeStream(self, self.library)

    def retire(self, owned: object) -> None:
        """Release the plan of a dropped kernel, or the list of a dropped recording, that enqueued work may still read.

        Called only if the device is asynchronous: it waits here, or keeps `owned` until it has waited. The call may
        come in any thread, during a garbage collection and at exit, so it takes no lock that the thread may hold.
        Errors that the device found are left for `synchronize` to raise.
        """
        raise NotImplementedError(f"{self.name} is asynchronous and does not define retire")

    def variants(self, stem: str) -> list[KernelVariant]:
        """Return the variants of a stem at every level."""
        if stem not in self._cache:
            self._cache[stem] = self.library.variants(stem, self._declined, self)
        return self._cache[stem]

    def limits(self, nbytes: int, element: DType) -> list[Limit]:
        """Return the limits that the library measures.

        They are a copy with and without streaming stores, and multiply-adds by all threads.
        """
        lib, cast, compute = self.library.lib, self.library.ffi.cast, element.compute
        found: list[Limit] = []
        if hasattr(lib, "ik_measure_copy"):
            half = max(1, nbytes // 2)
            source, target = self.memory.alloc(half), self.memory.alloc(half)
            # Untouched pages all map to the one page of zeros, and would be read from cache
            piece = np.ones(min(half, PIECE), np.uint8)
            for buffer in (source, target):
                for at in range(0, half, PIECE):
                    buffer.write(piece[: half - at], at)
            to, of = cast("void *", target.handle), cast("void *", source.handle)
            for streaming in (0, 1):
                run = partial(_copy, lib.ik_measure_copy, to, of, half, streaming, (source, target))
                found.append(Limit("copy", 2.0 * half, run))
        if hasattr(lib, "ik_measure_fma") and compute.kind == "f":
            work = lib.ik_measure_fma(compute.code, FMA_ROUNDS)
            found.append(Limit("fma", work, partial(lib.ik_measure_fma, compute.code, FMA_ROUNDS)))
        return found


def _copy(measure: Any, to: Any, of: Any, nbytes: int, streaming: int, owned: Any) -> None:
    """Run one copy; `owned` keeps the buffers alive."""
    measure(to, of, nbytes, streaming)
