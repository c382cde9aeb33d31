"""The CPU backend of Isokern: C kernels built for several instruction-set levels; the best is chosen at run time."""

from __future__ import annotations

from pathlib import Path

from isokern.backend import Register, hookimpl
from isokern.backend.native import NativeLibrary

from .devices import open_device
from .settings import BUILT, CFLAGS, LEVEL, THREADS

CLAIMS = Path(__file__).with_name("claims.txt")
EDITABLE = Path(__file__).with_name("editable.json")  # the settings of an editable install; no wheel has this file


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the CPU backend and its settings."""
    if EDITABLE.exists():
        from ._editable import rebuild

        rebuild(EDITABLE)
    import isokern_cpu._calls as calls

    from ._native import ffi, lib

    library = NativeLibrary(ffi, lib, calls)
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
        lambda: [open_device(library)],
        hook_version=1,
        fingerprints=library.fingerprints,
        libraries=lambda: [get_library()],
        claims=CLAIMS,
    )


def get_library() -> str:
    """Return the path of the shared library with the C verbs of isokern.h, for hosts without Python."""
    return str(Path(__file__).parent / "libisokern_cpu.so")
