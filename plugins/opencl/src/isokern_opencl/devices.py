"""One OpenCL device: how kernels are built and launched on it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyopencl as cl

from isokern import settings
from isokern.backend import Stream, Unavailable, own_lock
from isokern.simt import Folder, GroupTooLarge, Launch, Traits
from isokern.status import InvalidArgument

from .command_buffers import command_buffers
from .errors import fork_error, typed_error
from .memory import ClHostMemory, ClMemory, computes_in_host_memory
from .place import ClPlace
from .pocl import WITHOUT_HEADER, is_pocl, lacks_clwb
from .programs import ClPrograms
from .settings import BINARIES, GROUP
from .streams import ClRecording, ClStream, Recorded, queue_at

HERE = Path(__file__).parent
KINDS = ((cl.device_type.GPU, "gpu"), (cl.device_type.CPU, "cpu"), (cl.device_type.ACCELERATOR, "accelerator"))
ITEMS = 256
LOCAL = 32 << 10  # bytes that the portable kernels may use (OpenCL's minimum except for embedded profiles)


def asked_group() -> int | None:
    """Return the setting ISOKERN_OPENCL_GROUP, checked."""
    asked = settings.get(GROUP)
    if not asked:
        return None
    if not asked.isdecimal() or int(asked) < 1 or int(asked) & (int(asked) - 1):
        raise InvalidArgument("environment", f"{GROUP}={asked}", allowed="a power of two, such as 64")
    return int(asked)


def asks_binaries() -> bool:
    """Return the setting ISOKERN_OPENCL_BINARIES, checked."""
    asked = settings.get(BINARIES) or "1"
    if asked not in ("0", "1"):
        raise InvalidArgument("environment", f"{BINARIES}={asked}", allowed="0 or 1")
    return asked == "1"


def traits_of(device: cl.Device) -> Traits:
    """Return what launch blocks may know; raise `Unavailable` where the device cannot run our kernels."""
    version = tuple(int(n) for n in device.version.split()[1].split(".")[:2])
    for wrong, reason in (
        (not device.available, "the driver says that it is not available"),
        (not device.compiler_available, "the driver has no compiler"),
        (version < (1, 2), f"it is of OpenCL {version[0]}.{version[1]}; 1.2 is needed"),
        (not device.endian_little, "it is big-endian"),
        (device.local_mem_size < LOCAL, f"it has {device.local_mem_size} bytes of local memory; {LOCAL} are needed"),
    ):
        if wrong:
            raise Unavailable(reason)
    kind = next((name for bit, name in KINDS if device.type & bit), "accelerator")
    limit = max(1, min(device.max_work_group_size, device.max_work_item_sizes[0]))
    most = asked_group() or (1 if kind == "cpu" else 256)
    return Traits(
        kind=kind,
        group=_power(min(most, limit)),
        items=_power(min(ITEMS, limit)),
        units=device.max_compute_units,
        fp64="cl_khr_fp64" in device.extensions,
        features=frozenset(device.extensions.split()),
    )


def _power(n: int) -> int:
    """Return the largest power of two up to n."""
    return 1 << (n.bit_length() - 1)


_creating = own_lock(sys.modules[__name__], "_creating")


def _create_kernel(program: cl.Program, entry: str) -> cl.Kernel:
    """Return a new kernel object; pyopencl generates code for it, and warns if two threads do so at once."""
    with _creating:
        return cl.Kernel(program, entry)


class Function:
    """An entry of a program, and its kernel objects.

    Arguments are the state of a kernel object, so a call takes an object for itself and gives it back when its work is
    enqueued.
    """

    __slots__ = ("entry", "free", "program", "record", "record_at")

    def __init__(self, program: cl.Program, launch: Launch) -> None:
        self.program, self.entry, self.record = program, launch.entry, launch.record
        self.record_at = len(launch.tensors) + launch.workspace + launch.reports
        self.free: list[cl.Kernel] = []

    def take(self) -> cl.Kernel:
        """Return a kernel object whose record is set."""
        try:
            return self.free.pop()
        except IndexError:
            kernel = _create_kernel(self.program, self.entry)
            kernel.set_arg(self.record_at, self.record)
            return kernel


class ClDevice(ClPlace):
    """One OpenCL device."""

    memory: ClMemory | ClHostMemory

    def __init__(
        self, name: str, alias: str, context: cl.Context, device: cl.Device, processor: str | None = None
    ) -> None:
        self.name = name
        self.context, self.cl_device = context, device
        traits = traits_of(device)
        self.transfers = cl.CommandQueue(context, device)
        newer = device.opencl_c_version.split()[2] >= "3.0"
        dots = newer and "cl_khr_integer_dot_product" in traits.features
        shuffles = newer and traits.group > 1 and "cl_khr_subgroup_shuffle_relative" in traits.features
        options = ["-cl-std=CL3.0" if dots or shuffles else "-cl-std=CL1.2"]
        if shuffles:
            options.append("-DIK_SUBGROUPS")
        if dots:
            options.append("-DIK_INTEGER_DOT")
        if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        if lacks_clwb(device):
            options.append("-DIK_TARGET_CLWB")
        if is_pocl(device):
            options += ["-DIK_POCL", WITHOUT_HEADER]
        self.programs = ClPrograms(name, context, device, options, processor or "", asks_binaries())
        self.command_buffers = command_buffers(device)
        conditions = {}
        if not device.single_fp_config & cl.device_fp_config.DENORM:
            conditions["flushes_denormals"] = "the device does not have subnormal F32"
        in_place = computes_in_host_memory(context, device)
        properties = {
            "platform": device.platform.name.strip(),
            "device": device.name.strip(),
            "version": device.version.strip(),
            "driver": device.driver_version,
            "kind": traits.kind,
            "units": traits.units,
            "memory": "the host's, in place" if in_place else "its own",
            "also": alias,
            "emulated": device.platform.name == "Oclgrind",
        }
        if not traits.fp64:
            properties["F64"] = "no: the device lacks cl_khr_fp64"
        if processor:
            properties["processor"] = f"compiled for {processor}: the driver's compiler does not know this one"
        folders = [Folder(traits.kind, 10, HERE / "kernels" / traits.kind)]
        if dots:
            folders.append(Folder("integer_dot", 20, HERE / "kernels" / "integer_dot"))
        memory = (ClHostMemory if in_place else ClMemory)(context, device)
        super().__init__(
            name,
            properties,
            memory,
            conditions,
            traits,
            HERE / "prelude.h",
            folders,
            (alias,),
            driver=self.programs.driver,
            disk_cache=self.programs.disk_cache,
        )

    @property
    def toolchain(self) -> str:
        """The platform and its driver, which compiles the kernels."""
        return f"{self.properties['platform']} {self.properties['driver']}"

    def stream(self) -> ClStream:
        """Return a new stream."""
        return ClStream(self)

    def _adopt(self, handle: int) -> ClStream:
        """Return a stream over a queue of the host's, in order, of this device and context, at the address `handle`."""
        if self.context is None:
            raise fork_error("stream", self.name)
        return ClStream(self, queue_at(handle, self))

    def detach(self) -> None:
        """Detach a forked child from the driver.

        The driver's threads and locks do not exist in a forked process: whatever would use them finds no queue there,
        and says so.
        """
        super().detach()
        self.context = self.transfers = self.memory.context = None
        for stream in self.live_streams():
            stream.queue = None

    def same_memory(self, a: Any, b: Any) -> bool:
        """Return whether two handles share memory."""
        return bool(a.start < b.end and b.start < a.end)

    def compile(self, launch: Launch) -> Function:
        """Return the entry, ready to be called."""
        if self.context is None:
            raise fork_error("compile", self.name)
        try:
            function = Function(self.programs.get(launch), launch)
            kernel = function.take()
            most = self._group_limit(kernel)
        except cl.Error as error:
            raise typed_error("compile", self.name, error) from None
        if most < launch.local:
            raise GroupTooLarge(launch.entry, launch.local, _power(max(1, most)))
        function.free.append(kernel)
        return function

    def _group_limit(self, kernel: cl.Kernel) -> int:
        """Return how many items per work-group the device can give this kernel."""
        return int(kernel.get_work_group_info(cl.kernel_work_group_info.WORK_GROUP_SIZE, self.cl_device))

    def _arguments(self, launch: Launch, handles: Sequence[Any], workspace: Any, stream: ClStream) -> list[Any]:
        given = [handles[i] for i in launch.tensors]
        if launch.workspace:
            given.append(workspace)
        if launch.reports:
            given.append(stream.error)
        return given

    def enqueue(
        self, launch: Launch, function: Function, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> None:
        """Run an entry, or record it."""
        assert isinstance(stream, ClStream)
        if stream.recording is not None:
            self.bind_launch(launch, function, handles, workspace, stream)()
            return
        try:
            kernel = function.take()
            at = 0
            for i in launch.tensors:
                kernel.set_arg(at, handles[i])
                at += 1
            if launch.workspace:
                kernel.set_arg(at, workspace)
                at += 1
            if launch.reports:
                kernel.set_arg(at, stream.error)
                stream.may_fail = True
        except (cl.Error, TypeError) as error:
            raise typed_error("calculate", self.name, error) from None
        self._run(stream, kernel, (launch.groups * launch.local,), (launch.local,))
        function.free.append(kernel)

    def _run(self, stream: ClStream, kernel: cl.Kernel, size: tuple[int], local: tuple[int]) -> None:
        try:
            cl.enqueue_nd_range_kernel(stream.queue, kernel, size, local)
        except (cl.Error, TypeError) as error:
            raise typed_error("calculate", self.name, error) from None
        self.deferred.pending.add(stream.key)  # only now: until here the caller holds the memory

    def bind_launch(
        self, launch: Launch, function: Function, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> Callable[[], None]:
        """Return a closure over a kernel object whose arguments are set."""
        assert isinstance(stream, ClStream)
        given = self._arguments(launch, handles, workspace, stream)
        try:
            kernel = _create_kernel(function.program, function.entry)
            kernel.set_args(*given, launch.record)
        except (cl.Error, TypeError) as error:
            raise typed_error("bind", self.name, error) from None
        size, local = (launch.groups * launch.local,), (launch.local,)
        pending, key, run, reports = self.deferred.pending, stream.key, cl.enqueue_nd_range_kernel, launch.reports
        kept = (given, workspace)

        def on(target: ClStream, kept: Any = kept) -> None:
            own = kernel
            if reports and target is not stream:
                own = _create_kernel(function.program, function.entry)
                own.set_args(*given[:-1], target.error, launch.record)
            target.may_fail |= reports
            self._run(target, own, size, local)

        def call(kept: Any = kept) -> None:
            recording = stream.recording
            if recording is not None:
                assert isinstance(recording, ClRecording)
                recording.add(Recorded(kernel, size, local, stream if reports else None, on))
                return
            if reports:
                stream.may_fail = True
            try:
                run(stream.queue, kernel, size, local)
            except (cl.Error, TypeError) as error:
                raise typed_error("calculate", self.name, error) from None
            pending.add(key)

        return call
