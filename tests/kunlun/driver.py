"""The runtime's C interface through ctypes, for tests that run in a process of their own (see conftest)."""

from __future__ import annotations

import ctypes
import importlib
import json
import os
import runpy
import select
import signal
import sys
from pathlib import Path
from typing import Any


class Attributes(ctypes.Structure):
    """XPUPointerAttributes."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("device", ctypes.c_int),
        ("device_pointer", ctypes.c_void_p),
        ("host_pointer", ctypes.c_void_p),
    )


class Xpu:
    """The library's functions by their names without `xpu_`, and helpers that assert success or return a code."""

    TO_HOST, TO_DEVICE, ON_DEVICE = 0, 1, 2
    MAIN, L3 = 0, 1
    INVALID_DEVICE, UNINIT, NODEVICE, INVALID, NOFUNC, SIMULATOR = 701, 702, 703, 707, 708, 711
    NOMEM, NOCPUMEM = 705, 706
    UNSUPPORTED, ABNORMAL, EXCEPTION, TIMEOUT, BUSY, EVENT_WAIT, REGISTERED = 712, 713, 714, 715, 716, 720, 816
    Attributes = Attributes

    def __init__(self, runtime: str, kernels: str) -> None:
        self.lib = ctypes.CDLL(runtime, ctypes.RTLD_GLOBAL)
        self.lib.xpu_strerror.restype = ctypes.c_char_p
        self.kernels = ctypes.CDLL(kernels) if kernels else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lib, f"xpu_{name}")

    def error(self, code: int) -> str:
        """Return the text of a status code."""
        return str(self.lib.xpu_strerror(code).decode())

    def ok(self, code: int) -> None:
        """Assert that a call succeeded."""
        assert code == 0, f"{code}: {self.error(code)}"

    def malloc_code(self, nbytes: int, kind: int = 0) -> int:
        """Return the code of xpu_malloc."""
        return int(self.lib.xpu_malloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_uint64(nbytes), kind))

    def malloc(self, nbytes: int, kind: int = 0) -> ctypes.c_void_p:
        """Allocate device memory."""
        pointer = ctypes.c_void_p()
        self.ok(self.lib.xpu_malloc(ctypes.byref(pointer), ctypes.c_uint64(nbytes), kind))
        return pointer

    def memcpy(self, to: Any, of: Any, nbytes: int, kind: int) -> int:
        """Return the code of xpu_memcpy."""
        return int(self.lib.xpu_memcpy(to, of, ctypes.c_uint64(nbytes), kind))

    def upload(self, data: bytes) -> ctypes.c_void_p:
        """Allocate device memory with these bytes."""
        pointer = self.malloc(len(data))
        self.ok(self.memcpy(pointer, data, len(data), self.TO_DEVICE))
        return pointer

    def download(self, pointer: ctypes.c_void_p, nbytes: int) -> bytes:
        """Return the content of device memory."""
        data = ctypes.create_string_buffer(nbytes)
        self.ok(self.memcpy(data, pointer, nbytes, self.TO_HOST))
        return data.raw

    def stream(self) -> ctypes.c_void_p:
        """Create a stream on the current device."""
        made = ctypes.c_void_p()
        self.ok(self.lib.xpu_stream_create(ctypes.byref(made)))
        return made

    def event(self) -> ctypes.c_void_p:
        """Create an event."""
        made = ctypes.c_void_p()
        self.ok(self.lib.xpu_event_create(ctypes.byref(made)))
        return made

    def launch(self, name: str, *arguments: Any, clusters: int = 1, cores: int = 1, stream: Any = None) -> int:
        """Launch one of the tests' kernels, and return the code."""
        return int(getattr(self.kernels, f"launch_{name}")(clusters, cores, stream, *arguments))


def run(path: str, name: str, arguments: dict[str, Any]) -> None:
    """Call function `name` of a test file with the runtime, in this process."""
    xpu = Xpu(os.environ["XPU_RUNTIME"], os.environ.get("XPU_KERNELS", ""))
    runpy.run_path(path)[name](xpu=xpu, **arguments)


def serve(limit: float) -> None:
    """Run the code in each line of standard input in a process of its own, as `python -c`, and print how this ended.

    The processes are forked: what takes most of the time until code begins is imported before, and no runtime is
    loaded. In such a process this function returns when the code is done, so that the process ends as all do.
    """
    for name in ("isokern_kunlun_sim.cli", "pytest"):
        importlib.import_module(name)
    for line in sys.stdin:
        given = json.loads(line)
        child = os.fork()
        if child == 0:
            os.environ.clear()
            os.environ |= given["environment"]
            os.chdir(given["folder"])
            opened = [os.open(os.devnull, os.O_RDONLY)]
            opened += [os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) for path in given["outputs"]]
            for number, file in enumerate(opened):
                os.dup2(file, number)
            sys.argv = ["-c", *given["arguments"]]
            exec(given["code"], {"__name__": "__main__"})
            return
        ended = select.select([os.pidfd_open(child)], [], [], limit)[0]
        if not ended:
            os.kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(json.dumps(status if ended else f"not done after {limit} s"), flush=True)


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    serve(float(sys.argv[1]))
