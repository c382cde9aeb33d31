"""Faults that show among threads, in what a call leaves to its caller, and as growth."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from threaded_device import Block, ThreadedBuffer, ThreadedKernel, ThreadedMemory, ThreadedStream

from isokern.backend import Buffer, Stream

from .plant import KEPT, buffer, kernel, memory, stream


@memory("threads/allocates_in_threads")
class RacyPool(ThreadedMemory):
    """Freed blocks are kept in a list that no lock guards."""

    def allocate_buffer(self, nbytes: int, element: Any, kind: str, alignment: int, empty: bool) -> Buffer:
        if nbytes > 4096:
            return super().allocate_buffer(nbytes, element, kind, alignment, empty)
        pool = self.__dict__.setdefault("pool", [])
        whole = pool[-1] if pool else Block(4096, 4096)
        time.sleep(1e-5)
        with contextlib.suppress(ValueError):
            pool.remove(whole)
        block = Block(0, 1)
        block.bytes, block.address = whole.bytes[:nbytes], whole.address
        if not empty:
            block.bytes[...] = 0
        weakref.finalize(block, pool.append, whole).atexit = False
        return self.buffer(self, nbytes, element, kind, block.address, block)


class _OpenFile:
    """A file that is closed when nobody holds it."""

    def __init__(self) -> None:
        self.descriptor = os.open(os.devnull, os.O_RDONLY)

    def __del__(self) -> None:
        os.close(self.descriptor)


@buffer("threads/gives_back_threads_and_files")
class KeepsFiles(ThreadedBuffer):
    """Each buffer opens a file and does not close it."""

    def __init__(self, *args: Any, **facts: Any) -> None:
        super().__init__(*args, **facts)
        KEPT.append(_OpenFile())


@stream("threads/gives_back_threads_and_files")
class KeepsThreads(ThreadedStream):
    """A dropped stream's thread stays."""

    def __init__(self, device: Any) -> None:
        super().__init__(device)
        idle = threading.Thread(target=threading.Event().wait, args=(60,), daemon=True)
        idle.start()


@stream("threads/shares_a_stream")
class NotForThreads(ThreadedStream):
    """A call passes through a record of the stream, which no lock guards."""

    def enqueue(self, task: Callable[[], None]) -> None:
        self.__dict__["next"] = task
        time.sleep(0)
        super().enqueue(self.__dict__["next"])


@kernel("threads/creates_ten_thousand_without_growth")
class LeaksALittleAtCreate(ThreadedKernel):
    """Each kernel leaks four kilobytes of the host, which 500 creates do not show."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        KEPT.append(bytes(4096))


@kernel("threads/creates_without_growth")
class LeaksAtCreate(ThreadedKernel):
    """Each kernel leaks 256 KiB."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        if len(KEPT) < 2000:
            KEPT.append(np.full(1 << 15, 1.0))


@kernel("threads/shares_a_descriptor")
class SharesAResult(ThreadedKernel):
    """Calls of one descriptor pass through a record that they share."""

    def launch(self, handles: Any, workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        self.handles = handles
        super().launch(handles, workspace, workspace_bytes, stream)

    def compute(self, handles: Any, workspace: Any, nbytes: int) -> None:
        time.sleep(0)
        super().compute(self.handles, workspace, nbytes)


@kernel("threads/leaves_the_caller_its_environment")
class ChangesNumPy(ThreadedKernel):
    """A call changes NumPy's error handling."""

    def launch(self, *args: Any) -> None:
        super().launch(*args)
        np.seterr(all="ignore")


libm = ctypes.CDLL(None)


@kernel("threads/leaves_the_caller_its_environment")
class LeavesARounding(ThreadedKernel):
    """A call leaves the thread rounding upwards."""

    upward = 0x800 if platform.machine() == "x86_64" else 0x400000

    def launch(self, *args: Any) -> None:
        super().launch(*args)
        libm.fesetround(self.upward)


@kernel("threads/leaves_the_caller_its_environment")
class LeavesFlushing(ThreadedKernel):
    """A call leaves the thread flushing subnormal numbers to zero."""

    # Where `fenv_t` has the register that says so, and the bits: MXCSR or FPCR
    at, flush = (28, 0x8040) if platform.machine() == "x86_64" else (0, 1 << 24)

    def launch(self, *args: Any) -> None:
        super().launch(*args)
        environment = ctypes.create_string_buffer(256)
        libm.fegetenv(environment)
        register = ctypes.c_uint32.from_buffer(environment, self.at)
        register.value |= self.flush
        libm.fesetenv(environment)
