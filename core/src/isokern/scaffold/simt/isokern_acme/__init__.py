"""A backend for the Acme over the portable kernels: C++17 on this machine, built by g++ when they are first needed.

The items of a work-group are fibers, so barriers are real; groups run one after the other. It is for reading and for
checking kernels, not for speed.
"""

from __future__ import annotations

import ctypes
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isokern.backend import (
    Device,
    Event,
    HostMemory,
    RecordedCalls,
    Recording,
    Register,
    Stream,
    Unavailable,
    hookimpl,
    own_lock,
)
from isokern.ops import by_kind
from isokern.settings import get as get_setting
from isokern.simt import Launch, SimtDevice, Traits, list_include_folders, user_cache
from isokern.status import InternalError, InvalidArgument

HERE = Path(__file__).parent
CLAIMS = HERE / "claims.txt"
SEED = "ISOKERN_ACME_SEED"
FLAGS = ["-std=c++17", "-O1", "-shared", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the backend, whose device is created when it is first asked for.

    Where there is none, the function that creates it raises `Unavailable(reason)`.
    """
    register.setting(SEED, "0: work-groups and their items run in order; another number: in an order of its own")
    register.backend("acme", open_devices, hook_version=1, claims=CLAIMS)


def open_devices() -> list[Device]:
    """Return the one device, where there is a compiler."""
    compiler = shutil.which("g++")
    if compiler is None:
        raise Unavailable(
            "it compiles kernels when they are needed, and there is no g++ on the PATH: install g++ 11 or newer"
        )
    seed = get_setting(SEED) or "0"
    if not seed.isdecimal():
        raise InvalidArgument("environment", f"{SEED}={seed}", allowed="an integer from 0")
    return [AcmeDevice(Programs(compiler), int(seed))]


class Programs:
    """Libraries built once, cached in memory and on disk by all that they depend on."""

    def __init__(self, compiler: str) -> None:
        folders = list_include_folders()
        self.command = [compiler, *FLAGS, *(f"-I{folder}" for folder in folders), "-x", "c++", "-"]
        version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
        self.version, self._built_by = version.splitlines()[0], "\0".join([version, *self.command])
        self.disk_cache = user_cache("acme")
        self._loaded: dict[str, ctypes.CDLL] = {}
        self._lock = own_lock(self, "_lock")
        host = (HERE / "host.cpp").read_text()
        headers = "".join(h.read_text() for folder in folders for h in sorted(folder.glob("*.h")))
        # Its symbols are global: the kernels' libraries leave them undefined and find them here
        self.get(headers + host, lambda: host, ctypes.RTLD_GLOBAL)

    def get(self, content: str, source: Callable[[], str], mode: int = ctypes.RTLD_LOCAL) -> ctypes.CDLL:
        """Return the library of a source, built where necessary; equal `content` means an equal source."""
        key = hashlib.sha256(f"{self._built_by}\0{content}".encode()).hexdigest()
        with self._lock:
            if key not in self._loaded:
                name = f"{key}.so"
                kept = self.disk_cache.path(name) or self.disk_cache.place({name: self._build(source())}) / name
                self._loaded[key] = ctypes.CDLL(str(kept), mode)
            return self._loaded[key]

    def _build(self, source: str) -> bytes:
        with tempfile.TemporaryDirectory() as made:
            command = [*self.command, "-o", f"{made}/library.so"]
            done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
            if done.returncode:
                raise InternalError("compile", f"{self.command[0]} refuses a kernel:\n{done.stderr}")
            return Path(made, "library.so").read_bytes()


class AcmeDevice(SimtDevice):
    """This machine, as a device with work-groups."""

    asynchronous = False

    def __init__(self, programs: Programs, seed: int) -> None:
        self.programs, self.seed, self._lock = programs, seed, own_lock(self, "_lock")
        traits = Traits(kind="cpu", group=64, items=64)
        properties = {"compiler": programs.version, "group": traits.group, "seed": seed}
        super().__init__(
            "acme:0",
            properties,
            HostMemory(),
            conditions={},
            traits=traits,
            prelude=HERE / "prelude.h",
            driver=programs.version,
            disk_cache=programs.disk_cache,
        )

    def stream(self) -> Stream:
        """Return a new stream."""
        return AcmeStream(self)

    def same_memory(self, a: Any, b: Any) -> bool:
        """Return whether two buffers share memory: two may wrap one array, so handles are not compared."""
        return np.may_share_memory(a.owner, b.owner)

    def compile(self, launch: Launch) -> Any:
        """Return the function of prelude.h that runs the entry."""
        function = self.programs.get(launch.digest, lambda: launch.source).acme_launch
        function.restype, function.argtypes = ctypes.c_char_p, [ctypes.c_void_p, ctypes.c_int64, ctypes.c_uint64]
        return function

    def enqueue(self, launch: Launch, function: Any, handles: Sequence[Any], workspace: Any, stream: Stream) -> None:
        """Run the launch at once, or record it."""
        error = (ctypes.c_int64 * 3)()
        pointers = [handles[i] for i in launch.tensors]
        pointers += [workspace] * launch.workspace + [ctypes.addressof(error)] * launch.reports
        given = (ctypes.c_void_p * len(pointers))(*pointers)
        record = ctypes.create_string_buffer(launch.record, len(launch.record))
        each = [ctypes.addressof(given) + i * ctypes.sizeof(ctypes.c_void_p) for i in range(len(pointers))]
        values = (ctypes.c_void_p * (len(each) + 1))(*each, ctypes.addressof(record))

        def run(keep: Any = (given, record, handles, workspace)) -> None:
            with self._lock:
                wrong = function(values, launch.groups, self.seed)
                kind, at, value = error
                ctypes.memset(error, 0, ctypes.sizeof(error))
            if wrong:
                raise InternalError(launch.entry, wrong.decode())
            if kind:
                operator = by_kind(kind)
                raise InvalidArgument(operator.name, operator.device_error.format(at=at, value=value))

        assert isinstance(stream, AcmeStream)
        stream.take(run)


class AcmeStream(Stream):
    """A stream that does its work and raises its errors at once, so there is never anything to wait for."""

    recording: AcmeRecording | None

    def take(self, call: Callable[[], None]) -> None:
        """Make a call, or record it."""
        if self.recording is None:
            call()
        else:
            self.recording.add(call)

    def synchronize(self) -> None:
        """Return at once: nothing is pending."""

    def record(self) -> Event:
        """Return an event that has passed already."""
        return Event()

    def begin_capture(self) -> Recording:
        """Return a recording, to which launches are added."""
        return AcmeRecording(self.device)

    def end_capture(self, recording: Recording) -> None:
        """Close the recording."""
        assert isinstance(recording, AcmeRecording)
        recording.close()


class AcmeRecording(RecordedCalls[Callable[[], None]]):
    """The recorded calls, as functions."""

    def run(self, stream: Stream) -> None:
        """Make the calls again."""
        for call in self.calls:
            call()
