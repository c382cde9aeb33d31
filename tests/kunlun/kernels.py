"""Kernels of the tests' own: compiled for the emulator, and called on arrays through the runtime's C interface."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cffi import FFI

from isokern_kunlun_sim import EMULATOR
from isokern_kunlun_sim.compiling import compiler, kernel_object, library
from isokern_kunlun_sim.runtime import TO_DEVICE, TO_HOST, Runtime

# Each source ends in this: its kernels take the address of what is read and of what is written.
ENTRY = """
extern "C" int run(int kernel, const char *in, char *out, int clusters, int cores)
{
    auto chosen = kernels[kernel];
    const int status = chosen<<<clusters, cores>>>(in, out);
    return status != 0 ? status : xpu_wait(nullptr);
}
"""


def cxx() -> str:
    """The compiler; a test without one is skipped."""
    found = compiler()
    if found is None or not EMULATOR.exists():
        pytest.skip("the plug-in was built without a C++ compiler")
    return found


class Kernels:
    """The kernels of one source, in one mode."""

    def __init__(self, source: Path, mode: str) -> None:
        self.runtime = Runtime(EMULATOR)
        built = source.parent / f"{source.stem}_{mode}.so"
        library(cxx(), built, [kernel_object(cxx(), source, mode, source.parent / "objects", [])])
        self.ffi = FFI()
        self.ffi.cdef("int run(int kernel, const char *in, char *out, int clusters, int cores);")
        self.lib = self.ffi.dlopen(str(built))

    def memory(self, nbytes: int) -> Any:
        """Device memory."""
        pointer = self.runtime.ffi.new("void **")
        self.runtime.check(self.runtime.lib.xpu_malloc(pointer, nbytes, 0), "xpu_malloc")
        return pointer[0]

    def run(self, kernel: int, given: bytes, out: np.ndarray[Any, Any], clusters: int = 1, cores: int = 1) -> int:
        """Kernel number `kernel` on `given`; `out` goes there and comes back. The runtime's code."""
        rt = self.runtime
        a, b = self.memory(max(1, len(given))), self.memory(out.nbytes)
        try:
            rt.check(rt.lib.xpu_memcpy(a, rt.ffi.from_buffer(given), len(given), TO_DEVICE), "xpu_memcpy")
            rt.check(rt.lib.xpu_memcpy(b, rt.ffi.cast("void *", out.ctypes.data), out.nbytes, TO_DEVICE), "xpu_memcpy")
            address = [self.ffi.cast("char *", int(rt.ffi.cast("uintptr_t", p))) for p in (a, b)]
            code = int(self.lib.run(kernel, *address, clusters, cores))
            if code == 0:
                rt.check(
                    rt.lib.xpu_memcpy(rt.ffi.cast("void *", out.ctypes.data), b, out.nbytes, TO_HOST), "xpu_memcpy"
                )
            return code
        finally:
            rt.lib.xpu_free(a)
            rt.lib.xpu_free(b)


def in_child(test: Any) -> None:
    """Run `test` in a process of its own, whose device it may spoil; its assertion's text comes back."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        text = ""
        try:
            test()
        except BaseException as error:
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode()[:60000])
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as stream:
        text = stream.read()
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the process ended with {status}"
    assert text == ""
