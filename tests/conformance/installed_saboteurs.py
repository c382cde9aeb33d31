"""A plug-in of devices whose fault only another process, or a backend of several devices, shows.

The devices of the backend `sound` have none. Each is the device of `threaded_device.py` with one part replaced.
"""

from __future__ import annotations

import atexit
import fcntl
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

from threaded_device import Block, ThreadedDevice, ThreadedKernel, ThreadedMemory, ThreadedStream

from isokern import hookimpl
from isokern.backend import HOOK_VERSION

Open = Callable[[str], list[ThreadedDevice]]
INSTALLED: dict[str, tuple[Open, str]] = {}  # name → how its devices are opened, and the requirement that finds them


def plant(by: str) -> Callable[[Any], Any]:
    """Register a device class, or a function that opens devices, and the requirement that finds it."""

    def register(made: Any) -> Any:
        name = made.__name__.lower()
        opened = (lambda name: [made(f"{name}:0")]) if isinstance(made, type) else made
        INSTALLED[name] = opened, f"runtime/{by}"
        return made

    return register


# Processes


@plant("processes/ends_with_pending_work")
class NeverEnds(ThreadedDevice):
    """A thread of the device never ends, and the process waits for it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        threading.Thread(target=threading.Event().wait, name="vendor-watchdog").start()


@plant("processes/ends_with_pending_work")
class AbortsAtExit(ThreadedDevice):
    """The process dies when it ends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        atexit.register(os.abort)


@plant("processes/ends_with_pending_work")
class RaisesAtExit(ThreadedDevice):
    """The process ends with a traceback."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        atexit.register({}.popitem)


@plant("processes/opens_in_another_process")
class BelongsToAProcess(ThreadedDevice):
    """The device is open in one process at a time: the second to open it ends."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.lock = open(os.environ["SABOTEURS_LOCK"], "w")  # noqa: SIM115  # open as long as the device is
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            print("vendor: the device is busy", file=sys.stderr, flush=True)
            os._exit(7)


class _OwnKernel(ThreadedKernel):
    def launch(self, *args: Any) -> None:
        if self.device.__dict__.setdefault("owner", threading.get_ident()) == threading.get_ident():
            super().launch(*args)


@plant("processes/begins_in_any_thread")
class BelongsToAThread(ThreadedDevice):
    """Calls of any thread but the first are lost."""

    kernel = _OwnKernel


class _ForgetfulStream(ThreadedStream):
    def __init__(self, device: ThreadedDevice) -> None:
        super().__init__(device)
        self.worker.check_process = lambda: None


@plant("processes/survives_a_fork")
class ForgetsForks(ThreadedDevice):
    """In a forked process work is enqueued for a thread that is not there."""

    stream_type = _ForgetfulStream


class _DeadlockedStream(_ForgetfulStream):
    made_by = 0

    def enqueue(self, task: Any) -> None:
        self.made_by = self.made_by or os.getpid()
        while self.made_by != os.getpid():
            time.sleep(1)
        super().enqueue(task)


@plant("processes/survives_a_fork")
class DeadlocksAfterAFork(ThreadedDevice):
    """In a forked process a call waits for ever."""

    stream_type = _DeadlockedStream


# Several devices


@plant("claims/has_distinct_devices")
def twins_of_one_memory(name: str) -> list[ThreadedDevice]:
    """Open two devices with one memory."""
    memory = ThreadedMemory()

    class Twin(ThreadedDevice):
        memory_type = lambda self: memory  # noqa: E731  # each device asks for a memory

    return [Twin(f"{name}:0"), Twin(f"{name}:1")]


@plant("claims/refuses_memory_of_others")
def twins_that_take_all(name: str) -> list[ThreadedDevice]:
    """Open two devices with one memory, so that tensors of one pass for the other's."""
    return twins_of_one_memory(name)


class _OverlappingMemory(ThreadedMemory):
    """Memory of which both devices use the same addresses."""

    blocks: ClassVar[dict[tuple[int, int], Block]] = {}

    def make_block(self, nbytes: int, alignment: int) -> Block:
        if nbytes != 1000:
            return super().make_block(nbytes, alignment)
        return self.blocks.setdefault((nbytes, alignment), Block(nbytes, alignment))


class _Overlapping(ThreadedDevice):
    memory_type = _OverlappingMemory


@plant("claims/has_distinct_devices")
def twins_that_overlap(name: str) -> list[ThreadedDevice]:
    """Open two devices whose buffers are the same memory."""
    return [_Overlapping(f"{name}:0"), _Overlapping(f"{name}:1")]


@plant("claims/has_distinct_devices")
def twins_of_one_name(name: str) -> list[ThreadedDevice]:
    """Open two devices of which the second has the first one's name for an alias, and is listed first."""
    second = ThreadedDevice(f"{name}:1", aliases=(f"{name}:0",))
    return [second, ThreadedDevice(f"{name}:0")]


def open_sound(name: str) -> list[ThreadedDevice]:
    """Open two devices that have no fault; what they print when the process ends is none."""
    if "isokern.cli" not in sys.modules:  # whose stdout is one document
        atexit.register(print, "the driver is closed")
    return [ThreadedDevice(f"{name}:0"), ThreadedDevice(f"{name}:1")]


@hookimpl
def isokern_register_backends(register: Any) -> None:
    """Register every saboteur as a backend of its own."""
    for name, opened in {"sound": open_sound, **{n: o for n, (o, _) in INSTALLED.items()}}.items():
        register.backend(name, lambda name=name, opened=opened: opened(name), hook_version=HOOK_VERSION)
