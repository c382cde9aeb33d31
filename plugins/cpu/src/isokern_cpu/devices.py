"""The processor as a device: which levels of the library it supports, and what it says of itself."""

from __future__ import annotations

import platform
from typing import Any

from isokern import settings
from isokern.backend import Device, HostMemory, Unavailable
from isokern.backend.native import NativeDevice, NativeLibrary
from isokern.status import InvalidArgument

from .settings import BUILT, LEVEL, THREADS

MAX_THREADS = 256  # the limit of the pool in native/pool.c


def open_device(library: NativeLibrary) -> Device:
    """Return the processor as a device, with the kernels of the levels that it supports."""
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
        "processor": platform.machine(),  # `platform.processor` would start a process
        "threads": library.lib.ik_threads(),
        "levels": usable,
        "built": _describe_built(library),
        "emulated": False,
    }
    return NativeDevice(
        "cpu:0",
        properties,
        HostMemory(getattr(library.calls, "Heap", None)),
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
