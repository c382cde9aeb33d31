"""The CPU backend of Isokern: C kernels built for several instruction-set levels; the best is chosen at run time."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from isokern import settings
from isokern.backend import Device, HostMemory, Register, Unavailable, hookimpl
from isokern.backend.native import NativeDevice, NativeLibrary
from isokern.status import InvalidArgument

LEVEL = "ISOKERN_CPU_LEVEL"
THREADS = "ISOKERN_NUM_THREADS"
MAX_THREADS = 256  # the limit of the pool in native/pool.c
CFLAGS = "ISOKERN_CPU_CFLAGS"
BUILT = "ISOKERN_CPU_LEVELS"
EDITABLE = Path(__file__).with_name("editable.json")  # the settings of an editable install; no wheel has this file


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the CPU backend and its settings."""
    if EDITABLE.exists():
        from ._editable import rebuild

        rebuild(EDITABLE)
    from ._native import ffi, lib

    library = NativeLibrary(ffi, lib)
    register.setting(LEVEL, "use only the CPU kernels of this level (portable, x86_v3, x86_v4, …)")
    register.setting(
        THREADS, "threads of the CPU backend; else OMP_NUM_THREADS, else the processors this process may use"
    )
    register.setting(CFLAGS, "C flags added when the CPU backend is built; it does not read them when it runs")
    register.setting(
        BUILT,
        "levels built into the CPU backend: all, native (what the machine that builds runs best; so where it is not"
        " set) or names, separated by commas; it does not read them when it runs",
    )
    register.backend(
        "cpu",
        lambda: [_open(library)],
        hook_version=1,
        fingerprints=library.fingerprints,
        libraries=lambda: [get_library()],
    )


def get_library() -> str:
    """Return the path of the shared library with the C verbs of isokern.h, for hosts without Python."""
    return str(Path(__file__).parent / "libisokern_cpu.so")


def _open(library: NativeLibrary) -> Device:
    missing = {level: _missing(library, level) for level in library.levels}
    usable = [level for level, reason in missing.items() if reason is None]
    if not usable:
        raise Unavailable(
            "; ".join(f"{level} is built, but {reason}" for level, reason in missing.items())
            + f": install isokern-cpu from its sources on this machine, or with {BUILT}=portable"
        )
    forced = settings.get(LEVEL)
    if forced is not None and forced not in usable:
        lack = missing.get(forced) or f"no such level is built (see {BUILT})"
        raise InvalidArgument("environment", f"{LEVEL}={forced}: {lack}", allowed=", ".join(usable))
    threads = settings.get(THREADS)
    if threads is not None and not (threads.isdecimal() and 1 <= int(threads) <= MAX_THREADS):
        raise InvalidArgument("environment", f"{THREADS}={threads}", allowed=f"an integer from 1 to {MAX_THREADS}")
    properties: dict[str, Any] = {
        "processor": platform.processor() or platform.machine(),
        "threads": library.lib.ik_threads(),
        "levels": usable,
        "built": _describe_built(library),
        "emulated": False,
    }
    return NativeDevice(
        "cpu:0",
        properties,
        HostMemory(),
        library,
        lambda level: None if forced in (None, level) else f"{LEVEL}={forced}",
    )


def _describe_built(library: NativeLibrary) -> list[str]:
    """List every level and feature in the library, with what this machine lacks for it."""
    count = library.ffi.new("uint32_t *")
    rows = library.lib.ik_variant_list(count)
    found = {(rows[i].priority, library.ffi.string(rows[i].level).decode()) for i in range(count[0])}
    lacks = {name: _missing(library, name) for _, name in sorted(found)}
    return [name if reason is None else f"{name} ({reason})" for name, reason in lacks.items()]


def _missing(library: NativeLibrary, level: str) -> str | None:
    text = library.lib.ik_level_missing(level.encode())
    return None if text == library.ffi.NULL else library.ffi.string(text).decode()
