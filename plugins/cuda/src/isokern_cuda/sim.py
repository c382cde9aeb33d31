"""CUDA emulated on this machine's processor.

The kernels' own sources are compiled by g++ with `host/cuda_host.h`, and the threads of a block are fibers. It is for
checking kernels and the host's side of the backend, not for speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import math
import os
import shutil
import subprocess
import tempfile
import threading
import time
import weakref
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

from isokern.backend import BASE_ALIGNMENT, own_lock
from isokern.cabi.generate import EMULATION, STATIC
from isokern.disk_cache import user_cache
from isokern.simt import Traits
from isokern.simt.source import ABI, expand

from .driver import Arguments, BuildFailed, CudaError, Driver, Wrong

HOST = Path(__file__).parent / "host"
FLAGS = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
# The libraries that a program needs come with host.cpp: to search for them here takes the linker most of its time
PROGRAM = ["-nostdlib"]
PLAN = '#line 1 "plan"'  # most sources have the same text before this line
SCALAR = ("isokern_half.h", "isokern_int.h", "isokern_math.h")
SANITIZED = [
    "-g1",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fsanitize-sections=cuda_shared",
]
POISON = 0xFF  # memory that was never written reads as NaN
INVALID, MEMORY, HANDLE, STATE, UNSUPPORTED, INVALIDATED, WRONG_THREAD = 1, 2, 400, 401, 900, 901, 908
Launched = tuple[Any, int, int, Arguments]


class SimDriver(Driver):
    """An emulated driver that does work when it is launched.

    What CUDA forbids fails here too: unknown handles, and all but launches while a stream captures.
    """

    name = "emulated"
    forks = True
    dlpack_device = (12, 0)  # kDLExtDev: no other library mistakes it for a GPU's
    limit = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    cache = 0

    def __init__(self, compiler: str, seed: int, sanitize: bool = False, threads: int = 64) -> None:
        self.seed, self.sanitize = seed, sanitize
        features = frozenset({"mma_f16", "mma_bf16"})
        self.traits = Traits(kind="gpu", group=threads, items=threads, units=4, features=features)
        flags = [*FLAGS, *SANITIZED] if sanitize else FLAGS
        self.command = [compiler, *flags, f"-I{EMULATION}", f"-I{STATIC}", f"-I{HOST}"]
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        header = (HOST / "cuda_host.h").read_text()
        self.identity = "\0".join([version, *self.command[1:], header])
        self.properties = {
            "emulated": True,
            "compiler": version.splitlines()[0],
            "threads of a block": self.traits.group,
            "seed": seed,
            "sanitized": sanitize,
        }
        self._libc = ctypes.CDLL(None)
        self._libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
        self._libc.free.argtypes = [ctypes.c_void_p]
        self._memory: dict[int, int] = {}  # address → bytes
        self._captures: dict[int, list[Launched] | None] = {}
        self._capturing: dict[int, int] = {}  # stream → the thread that began its capture
        self._invalid: set[int] = set()
        self._graphs: dict[int, list[Launched]] = {}
        self._events: dict[int, float] = {}  # when the event was recorded; NaN where no time was asked for
        self._captures[self.legacy] = None
        self._next = 2  # 2 is the handle of the per-thread stream
        self._lock = own_lock(self, "_lock")
        self._headers: Path | None = None
        self._store = user_cache("cuda")
        self._runtime = self._library(self._host(), ctypes.RTLD_GLOBAL)

    def _host(self) -> bytes:
        """Return the library that kernels call, from an earlier process where one built it."""
        source = (HOST / "host.cpp").read_text()
        headers = [*sorted(EMULATION.glob("*.h")), STATIC / "isokern_environment.h"]
        parts = [self.identity, source, *(h.read_text() for h in headers)]
        key = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        binary = self._store.get(key)
        if binary is None:
            binary = self._compile(source)
            self._store.put(key, binary)
        return binary

    def _library(self, binary: bytes, mode: int) -> ctypes.CDLL:
        """Return the library of these bytes.

        Its file is deleted as soon as it is loaded, except where a sanitizer reads the source lines from it.
        """
        if not self.sanitize:
            with tempfile.NamedTemporaryFile(suffix=".so") as file:
                file.write(binary)
                file.flush()
                return ctypes.CDLL(file.name, mode)
        name = f"{hashlib.sha256(binary).hexdigest()}.so"
        return ctypes.CDLL(str(self._store.place({name: binary}) / name), mode)

    def _compile(self, source: str | Path, *options: str) -> bytes:
        """Return g++'s output for a program, or for a header file."""
        environment = {
            k: v for k, v in os.environ.items() if k != "LD_PRELOAD"
        }  # the sanitizer is not for the compiler itself
        with tempfile.TemporaryDirectory() as made:
            given = ["-x", "c++", "-"] if isinstance(source, str) else ["-x", "c++-header", str(source)]
            command = [*self.command, *options, *given, "-o", f"{made}/library.so"]
            text = source if isinstance(source, str) else None
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=environment)
            if done.returncode:
                raise BuildFailed(done.stderr)
            return Path(made, "library.so").read_bytes()

    def build(self, source: str, entry: str) -> bytes:
        """Build a library in which cuda_host_launch runs the kernel."""
        text = f'#include "cuda_host.h"\n{source}\nCUDA_HOST_LAUNCH({entry})\n'
        if self.sanitize:
            return self._compile(text)
        begin, mark, _ = source.partition(PLAN)
        if mark and (header := self._parse(begin)) is not None:
            # Where the header is to blame, the compilation below succeeds; else it reports the error
            with suppress(BuildFailed):
                return self._compile(text, *PROGRAM, "-include", header)
        return self._compile(text, *PROGRAM)

    def _parse(self, begin: str) -> str | None:
        """Return a header that can be precompiled, or None where that fails.

        It has what a source begins with, and the scalar functions that nearly all kernel files include after it:
        parsing them takes longer than the rest of a source.

        The compiler gets a copy that belongs to this process: nobody else can change what was found intact in the disk
        cache.
        """
        text = "\n".join(['#include "cuda_host.h"', begin, *(expand(ABI / name) for name in SCALAR), ""])
        key = hashlib.sha256(f"{self.identity}\0{text}".encode()).hexdigest()
        with self._lock:
            if self._headers is None or not self._headers.is_dir():  # a forked child deletes it when it ends
                self._headers = Path(tempfile.mkdtemp())
                weakref.finalize(self, shutil.rmtree, self._headers, ignore_errors=True)
            header = self._headers / f"{key[:16]}.h"
            made = header.with_suffix(".h.gch")
            if not header.exists():
                header.write_text(text)
                binary = self._store.get(key)
                if binary is None:
                    with suppress(BuildFailed):
                        binary = self._compile(header)
                        self._store.put(key, binary)
                if binary is not None:
                    made.write_bytes(binary)
        return str(header) if made.exists() else None

    def load(self, binary: bytes, entry: str) -> tuple[Any, int]:
        """Return the library's cuda_host_launch."""
        try:
            function = self._library(binary, ctypes.RTLD_LOCAL).cuda_host_launch
        except (OSError, AttributeError) as error:
            raise CudaError(200, f"CUDA_ERROR_INVALID_IMAGE: {error}") from None
        function.restype = ctypes.c_char_p
        function.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_uint64]
        return function, self.traits.group

    def launch(self, kernel: Any, blocks: int, threads: int, arguments: Arguments, stream: int) -> None:
        """Run the kernel at once, or add it to the graph that the stream captures."""
        with self._lock:
            made = self._capture_of(stream)
            if made is not None:
                made.append((kernel, blocks, threads, arguments))
                return
            self._run(kernel, blocks, threads, arguments)

    def _run(self, kernel: Any, blocks: int, threads: int, arguments: Arguments) -> None:
        """Run what `load` returned, or a copy."""
        wrong = kernel(arguments.address, blocks, threads, self.seed)
        if wrong:
            raise Wrong(wrong.decode())

    def _capture_of(self, stream: int) -> list[Launched] | None:
        if stream not in self._captures:
            raise CudaError(HANDLE, f"cudaErrorInvalidResourceHandle: no stream {stream}")
        return self._captures[stream]

    def _outside_captures(self, what: str) -> None:
        """Raise an error where this thread captures.

        Captures are begun in CUDA's mode "thread local": they forbid calls that wait or allocate to this thread, and to
        no other.
        """
        thread = threading.get_ident()
        if capturing := [stream for stream, of in self._capturing.items() if of == thread]:
            self._invalid.update(capturing)
            raise CudaError(UNSUPPORTED, f"cudaErrorStreamCaptureUnsupported: {what} while a stream captures")

    def alloc(self, nbytes: int, pinned: bool = False) -> int:
        """Return host memory filled with poison.

        It has not a byte more than asked for, so that a sanitizer sees the end.
        """
        with self._lock:
            self._outside_captures("an allocation")
            made = ctypes.c_void_p()
            if self._libc.posix_memalign(ctypes.byref(made), BASE_ALIGNMENT, nbytes) or made.value is None:
                raise CudaError(MEMORY, f"cudaErrorMemoryAllocation: {nbytes} bytes")
            ctypes.memset(made.value, POISON, nbytes)
            self._memory[made.value] = nbytes
            return made.value

    def free(self, address: int, pinned: bool = False) -> None:
        """Free the memory."""
        with self._lock:
            if address not in self._memory:
                raise CudaError(INVALID, f"cudaErrorInvalidValue: nothing was allocated at {address:#x}")
            del self._memory[address]
            self._libc.free(address)

    def copy(self, to: int, of: int, nbytes: int) -> None:
        """Copy at once."""
        with self._lock:
            self._outside_captures("a copy")
        ctypes.memmove(to, of, nbytes)

    def enqueue_copy(self, to: int, of: int, nbytes: int, stream: int) -> None:
        """Copy as a kernel that copies would."""

        def kernel(*_: Any) -> None:
            ctypes.memmove(to, of, nbytes)

        self.launch(kernel, 1, 1, Arguments([], b""), stream)

    def zero(self, address: int, nbytes: int) -> None:
        """Fill with zeros at once."""
        with self._lock:
            self._outside_captures("a fill that is waited for")
        ctypes.memset(address, 0, nbytes)

    def _number(self) -> int:
        self._next += 1
        return self._next

    def stream(self) -> int:
        """Return a new number as the handle."""
        with self._lock:
            stream = self._number()
            self._captures[stream] = None
            return stream

    def check_stream(self, stream: int) -> None:
        """Raise an error unless `stream` returned the handle."""
        self._capture_of(stream)

    def current(self, libraries: Collection[str]) -> int:
        """Return 0: no other library uses this driver."""
        return 0

    def end_stream(self, stream: int) -> None:
        """Forget the stream's number."""
        with self._lock:
            self._capture_of(stream)
            del self._captures[stream]
            self._capturing.pop(stream, None)

    def synchronize(self, stream: int) -> None:
        """Return at once: nothing is pending."""
        with self._lock:
            self._capture_of(stream)
            self._outside_captures("a wait")

    def record(self, stream: int, timed: bool = False) -> int:
        """Return an event that has passed, with a time by the host's clock."""
        with self._lock:
            self._capture_of(stream)
            event = self._number()
            self._events[event] = time.perf_counter() if timed else math.nan
            return event

    def seconds_between(self, begin: int, end: int) -> float:
        """Return the difference of two clock readings."""
        self._check_event(begin)
        self._check_event(end)
        seconds = self._events[end] - self._events[begin]
        if math.isnan(seconds):
            raise CudaError(HANDLE, "cudaErrorInvalidResourceHandle: an event was recorded without its time")
        return seconds

    def end_event(self, event: int) -> None:
        """Forget the event's number."""
        self._check_event(event)
        self._events.pop(event, None)

    def _check_event(self, event: int) -> None:
        if event not in self._events:
            raise CudaError(HANDLE, f"cudaErrorInvalidResourceHandle: no event {event}")

    def wait(self, stream: int, event: int) -> None:
        """Return at once: there is nothing to wait for."""
        self._capture_of(stream)
        self._check_event(event)

    def has_passed(self, event: int) -> bool:
        """Return True: every event has passed."""
        self._check_event(event)
        return True

    def synchronize_event(self, event: int) -> None:
        """Return at once: there is nothing to wait for."""
        self._check_event(event)

    def begin_capture(self, stream: int) -> None:
        """Add launches on the stream to a list from now on."""
        with self._lock:
            if self._capture_of(stream) is not None:
                raise CudaError(UNSUPPORTED, f"cudaErrorStreamCaptureUnsupported: stream {stream} captures already")
            self._captures[stream], self._capturing[stream] = [], threading.get_ident()

    def captures(self, stream: int) -> bool:
        """Return whether the stream captures."""
        with self._lock:
            return self._capture_of(stream) is not None

    def end_capture(self, stream: int) -> int:
        """Return the list."""
        with self._lock:
            made = self._capture_of(stream)
            if made is None:
                raise CudaError(STATE, f"cudaErrorIllegalState: stream {stream} captures nothing")
            if self._capturing[stream] != threading.get_ident():
                raise CudaError(WRONG_THREAD, f"cudaErrorStreamCaptureWrongThread: stream {stream}")
            self._captures[stream] = None
            del self._capturing[stream]
            if stream in self._invalid:
                self._invalid.remove(stream)
                raise CudaError(INVALIDATED, f"cudaErrorStreamCaptureInvalidated: stream {stream}")
            graph = self._number()
            self._graphs[graph] = made
            return graph

    def replay(self, graph: int, stream: int) -> None:
        """Run the list."""
        for kernel, blocks, threads, arguments in self._graph_of(graph):
            self.launch(kernel, blocks, threads, arguments, stream)

    def end_graph(self, graph: int) -> None:
        """Forget the graph's number."""
        self._graph_of(graph)
        del self._graphs[graph]

    def _graph_of(self, graph: int) -> list[Launched]:
        if graph not in self._graphs:
            raise CudaError(HANDLE, f"cudaErrorInvalidResourceHandle: no graph {graph}")
        return self._graphs[graph]
