"""What PoCL needs beyond the standard: the name of a processor that its compiler does not know.

PoCL asks LLVM what the processor is called. An LLVM older than the processor may say "generic", which its own front end then refuses: no
program builds. PoCL keeps the name in its device record, by pointer and without a way to set it, so it is replaced there: by
the oldest name that has the instructions this machine has, which is also the one that PoCL's library of built-in functions was compiled for.
"""

from __future__ import annotations

import ctypes
import re
import struct
from collections.abc import Iterator
from typing import Any

REACH = 2048  # bytes of the record that are searched
# The instructions that a compiler chooses by itself; those for protection keys or random numbers, which a virtual machine may hide, it does not
NAMES: tuple[tuple[str, set[str]], ...] = (
    (
        "skylake-avx512",
        {
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
        },
    ),
    ("haswell", {"avx2", "bmi1", "bmi2", "fma", "f16c", "movbe", "abm"}),
    ("x86-64", set()),
)
# Processors with AVX-512 and without cache line write-back, which the library of built-in functions was compiled with
WITHOUT_CLWB = ("-cannonlake", "-icelake-client", "-rocketlake")
_kept: dict[str, Any] = {}


def name_processor(device: Any) -> str | None:
    """Give a PoCL device that is called generic a name its compiler knows, and return it; None where there was nothing to do."""
    if "Portable Computing Language" not in device.platform.name or not device.version.endswith("-generic"):
        return None
    try:
        with open("/proc/self/mem", "rb", buffering=0) as memory, open("/proc/cpuinfo") as processors:
            flags = set(re.search(r"^flags\s*:(.*)$", processors.read(), re.M)[1].split())  # type: ignore[index]
            places = list(_places(memory, device.int_ptr))
    except (OSError, TypeError):
        return None
    if len({pointer for _, pointer in places}) != 1:
        return None
    name = next(name for name, needed in NAMES if needed <= flags)
    text = _kept.setdefault(name, ctypes.create_string_buffer(name.encode()))
    ctypes.c_uint64.from_address(places[0][0]).value = ctypes.addressof(text)
    return name


def _places(memory: Any, record: int) -> Iterator[tuple[int, int]]:
    """Addresses from the record on of pointers to the word "generic", and the pointers; read through the kernel, which refuses what is no address.

    The first is in the record; the heap behind it may hold a copy that was freed.
    """
    for place in range(record, record + REACH, 8):
        try:
            memory.seek(place)
            (pointer,) = struct.unpack("<Q", memory.read(8))
            memory.seek(pointer)
            if memory.read(8) == b"generic\0":
                yield place, pointer
        except (OSError, OverflowError, ValueError, struct.error):
            continue


def lacks_clwb(device: Any) -> bool:
    """Whether PoCL compiles kernels for a processor that has less than its library of built-in functions was compiled with.

    LLVM then inlines none of them. A kernel that says it may use the one instruction that differs (it does not) has them inlined again.
    """
    return "Portable Computing Language" in device.platform.name and device.version.strip().endswith(WITHOUT_CLWB)
