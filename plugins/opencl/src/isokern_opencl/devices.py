"""The OpenCL devices of this machine, and how kernels are built and launched on one."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyopencl as cl

from isokern import settings
from isokern.backend import Device, Stream, Unavailable
from isokern.simt import Folder, Launch, SimtDevice, Traits

from . import DEVICES, GROUP
from .memory import ClMemory
from .pocl import name_processor
from .programs import Programs
from .streams import ClStream

HERE = Path(__file__).parent
SHORT = {
    "Portable Computing Language": "pocl",
    "Intel(R) OpenCL": "intel",
    "NVIDIA CUDA": "nvidia",
    "Oclgrind": "oclgrind",
}
KINDS = ((cl.device_type.GPU, "gpu"), (cl.device_type.CPU, "cpu"), (cl.device_type.ACCELERATOR, "accelerator"))


def short_name(platform: cl.Platform) -> str:
    """The word by which a platform is chosen."""
    name: str = platform.name
    return SHORT.get(name, name.split()[0].lower())


def open_devices() -> list[Device]:
    """Every device, or those that ISOKERN_OPENCL_DEVICES names, in its order."""
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise Unavailable(f"no OpenCL platform: {error}; pip install 'isokern-opencl[pocl]' brings one") from None
    found: dict[str, cl.Device] = {}
    for platform in platforms:
        try:
            every = platform.get_devices()
        except cl.Error:
            continue
        for i, device in enumerate(every):
            found[f"{short_name(platform)}:{i}"] = device
    found = dict(sorted(found.items(), key=lambda item: _rank(item[1])))
    asked = settings.get(DEVICES)
    if asked:
        chosen: dict[str, cl.Device] = {}
        for word in filter(None, (w.strip() for w in asked.split(","))):
            matched = {n: d for n, d in found.items() if word in (n, n.split(":")[0])}
            if not matched:
                raise Unavailable(
                    f"{DEVICES}={asked}: no device is called {word}; this machine has {', '.join(found) or 'none'}"
                )
            chosen |= matched
        found = chosen
    contexts: dict[int, cl.Context] = {}
    for device in found.values():
        name_processor(device)
    opened: list[Device] = []
    for i, (alias, device) in enumerate(found.items()):
        key = device.platform.int_ptr
        if key not in contexts:
            contexts[key] = cl.Context([d for d in found.values() if d.platform.int_ptr == key])
        opened.append(ClDevice(f"opencl:{i}", f"opencl:{alias}", contexts[key], device))
    return opened


def _rank(device: cl.Device) -> int:
    """Where a device stands among all: GPUs, accelerators, processors, and a simulator last."""
    if short_name(device.platform) == "oclgrind":
        return 3
    return 0 if device.type & cl.device_type.GPU else 2 if device.type & cl.device_type.CPU else 1


def traits_of(device: cl.Device) -> Traits:
    """What the launch blocks may know."""
    kind = next((name for bit, name in KINDS if device.type & bit), "accelerator")
    asked = settings.get(GROUP)
    most = int(asked) if asked else 1 if kind == "cpu" else 256
    limit = device.max_work_group_size
    group = 1
    while group * 2 <= min(most, limit):
        group *= 2
    items = min(256, 1 << (limit.bit_length() - 1))
    return Traits(
        kind=kind,
        group=group,
        items=items,
        units=device.max_compute_units,
        local_bytes=device.local_mem_size,
        fp64="cl_khr_fp64" in device.extensions,
        features=frozenset(device.extensions.split()),
    )


class ClDevice(SimtDevice):
    """One OpenCL device."""

    memory: ClMemory

    def __init__(self, name: str, alias: str, context: cl.Context, device: cl.Device) -> None:
        self.context, self.cl_device = context, device
        self.transfers = cl.CommandQueue(context, device)
        traits = traits_of(device)
        newer = device.opencl_c_version.split()[2] >= "3.0"
        dots = newer and "cl_khr_integer_dot_product" in traits.features
        shuffles = newer and traits.group > 1 and "cl_khr_subgroup_shuffle_relative" in traits.features
        options = ["-cl-std=CL3.0" if dots or shuffles else "-cl-std=CL1.2"]
        if shuffles:
            options.append("-DIK_SUBGROUPS")
        if device.single_fp_config & cl.device_fp_config.CORRECTLY_ROUNDED_DIVIDE_SQRT:
            options.append("-cl-fp32-correctly-rounded-divide-sqrt")
        self.programs = Programs(context, device, options)
        self._streams: weakref.WeakSet[ClStream] = weakref.WeakSet()
        self._lock = threading.Lock()
        conditions = {}
        if not device.single_fp_config & cl.device_fp_config.DENORM:
            conditions["flushes_denormals"] = "the device does not have subnormal F32"
        properties = {
            "platform": device.platform.name.strip(),
            "device": device.name.strip(),
            "version": device.version.strip(),
            "driver": device.driver_version,
            "kind": traits.kind,
            "units": traits.units,
            "also": alias,
            "emulated": short_name(device.platform) == "oclgrind",
        }
        folders = [Folder(traits.kind, 10, HERE / "kernels" / traits.kind)]
        if dots:
            folders.append(Folder("integer_dot", 20, HERE / "kernels" / "integer_dot"))
        super().__init__(name, properties, ClMemory(context), conditions, traits, HERE / "prelude.h", folders, (alias,))

    def stream(self) -> ClStream:
        """A new stream."""
        made = ClStream(self)
        with self._lock:
            self._streams.add(made)
        return made

    def synchronize(self) -> None:
        """Wait for every stream; the first error is raised when all have been waited for."""
        with self._lock:
            streams = list(self._streams)
        first: Exception | None = None
        for stream in streams:
            try:
                stream.synchronize()
            except Exception as error:  # the other streams are waited for all the same
                first = first or error
        if first is not None:
            raise first

    def compile(self, launch: Launch) -> cl.Program:
        """The program that holds the entry."""
        return self.programs.get(launch.source)

    def _kernel(
        self, launch: Launch, program: cl.Program, handles: Sequence[Any], workspace: Any, stream: ClStream
    ) -> cl.Kernel:
        """A kernel object with these arguments: they are its state, so each call has its own."""
        kernel = cl.Kernel(program, launch.entry)
        arguments = [handles[i] for i in launch.tensors]
        if launch.workspace:
            arguments.append(workspace)
        if launch.reports:
            arguments.append(stream.error)
        kernel.set_args(*arguments, launch.record)
        return kernel

    def enqueue(
        self, launch: Launch, function: cl.Program, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> None:
        """Run an entry, or record it."""
        self.bound(launch, function, handles, workspace, stream)()

    def bound(
        self, launch: Launch, function: cl.Program, handles: Sequence[Any], workspace: Any, stream: Stream
    ) -> Callable[[], None]:
        """A closure over a kernel object whose arguments are set."""
        assert isinstance(stream, ClStream)
        kernel = self._kernel(launch, function, handles, workspace, stream)
        size, local = (launch.groups * launch.local,), (launch.local,)
        queue, run, reports = stream.queue, cl.enqueue_nd_range_kernel, launch.reports
        kept = (handles, workspace)

        def on(target: ClStream) -> None:
            if reports:
                kernel.set_arg(len(launch.tensors) + launch.workspace, target.error)
                target.may_fail = True
            run(target.queue, kernel, size, local)

        def call(kept: Any = kept) -> None:
            if stream.recording is not None:
                stream.recording.calls.append(on)
            elif reports:
                on(stream)
            else:
                run(queue, kernel, size, local)

        return call
