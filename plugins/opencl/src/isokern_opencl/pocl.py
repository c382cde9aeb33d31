"""Workarounds that PoCL needs beyond the standard.

They are a name for a processor that its compiler does not know, built-in functions that inline, and programs that are
cheap to build.

PoCL asks LLVM for the name of the processor. An LLVM older than the processor may say "generic", which its own front
end then refuses: no program builds. PoCL keeps a pointer to the name in its device record, without a way to set it. So
where a trial build is refused for this very reason, and nowhere else, the pointer is replaced there: by one to the
oldest name that has the instructions this machine has, which is also the name that PoCL's library of built-in functions
was compiled for.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyopencl as cl

RECORD = 1024  # bytes of a device record: records of several devices are this far apart
# The instructions that a compiler selects by itself. It does not select those for protection keys or random numbers,
# which a virtual machine may hide
AVX512 = {
    "avx512f",
    "avx512bw",
    "avx512cd",
    "avx512dq",
    "avx512vl",
    "bmi1",
    "bmi2",
    "fma",
    "f16c",
    "movbe",
    "abm",
    "adx",
}
NAMES: tuple[tuple[str, set[str]], ...] = (
    ("cascadelake", AVX512 | {"avx512_vnni"}),
    ("skylake-avx512", AVX512),
    ("haswell", {"avx2", "bmi1", "bmi2", "fma", "f16c", "movbe", "abm"}),
    ("x86-64", set()),
)
# Processors with AVX-512 but without the cache line write-back that the library of built-in functions was compiled with
WITHOUT_CLWB = ("-cannonlake", "-icelake-client", "-rocketlake")

# Leaves out the declarations of all built-in functions; pocl.h has those that the kernels use
WITHOUT_HEADER = "-D_OPENCL_H_"


def is_pocl(device: cl.Device) -> bool:
    """Return whether the platform is PoCL."""
    return "Portable Computing Language" in device.platform.name


def name_processor(device: cl.Device) -> str | None:
    """Give a PoCL device that is called generic, and can therefore build nothing, a name that its compiler knows.

    Returns the name, or None where nothing was changed.
    """
    if not is_pocl(device) or not device.version.strip().endswith("-generic"):
        return None
    if not _is_refused(device):
        return None
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory, open("/proc/cpuinfo") as processors:
            # No match is None, whose TypeError is caught below
            flags = set(re.search(r"^flags\s*:(.*)$", processors.read(), re.M)[1].split())  # type: ignore[index]
            places = list(_places(memory, device.int_ptr))
    except (OSError, TypeError):  # not Linux, not permitted, or not x86
        return None
    if len(places) != 1:
        return None
    name = next(name for name, needed in NAMES if needed <= flags)
    duplicate = ctypes.CDLL(None).strdup  # PoCL may free the name
    duplicate.restype, duplicate.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    ctypes.c_void_p.from_address(places[0]).value = duplicate(name.encode())
    return name


def _is_refused(device: cl.Device) -> bool:
    """Return whether the compiler does not know the processor."""
    context = cl.Context([device])
    program = cl.Program(context, "kernel void trial(global int *x) { *x = 1; }")
    try:
        program.build(["-cl-std=CL1.2"], [device], cache_dir=False)
    except cl.Error as error:
        return "unknown target CPU" in log_of(error)
    return False


def log_of(error: Exception) -> str:
    """Return a compiler's log from pyopencl, and delete the copy of the source that pyopencl leaves behind."""
    text = str(error)
    for found in re.finditer(r"\(source saved as (.+?)\)", text):
        Path(found[1]).unlink(missing_ok=True)
        text = text.replace(found[0], "")
    return text.strip()


def _places(memory: Any, record: int) -> Iterator[int]:
    """Yield the addresses in the record of pointers to the word "generic".

    Memory is read through the kernel, which refuses invalid addresses.
    """
    for place in range(record, record + RECORD, 8):
        try:
            memory.seek(place)
            (pointer,) = struct.unpack("<Q", memory.read(8))
            memory.seek(pointer)
            if memory.read(8) == b"generic\0":
                yield place
        except (OSError, OverflowError, ValueError, struct.error):
            continue


def lacks_clwb(device: cl.Device) -> bool:
    """Return whether PoCL's target lacks cache line write-back, which its built-in functions were compiled with.

    LLVM then inlines none of the library's functions. A kernel that declares it may use that instruction (it does not)
    has them inlined again.
    """
    return is_pocl(device) and device.version.strip().endswith(WITHOUT_CLWB)
