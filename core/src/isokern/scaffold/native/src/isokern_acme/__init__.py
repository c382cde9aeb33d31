"""A backend for the Acme with kernels in C, on a device that computes in the host's memory."""

from __future__ import annotations

from pathlib import Path

from isokern.backend import HostMemory, Register, hookimpl
from isokern.backend.native import NativeDevice, NativeLibrary

CLAIMS = Path(__file__).with_name("claims.txt")
BUILD = Path(__file__).with_name("native_build.json")  # only where the installation is editable


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the backend, whose one device has the kernels of the library."""
    if BUILD.exists():
        from isokern.build import rebuild

        rebuild(BUILD)
    from ._native import ffi, lib

    library = NativeLibrary(ffi, lib)
    register.backend(
        "acme",
        lambda: [NativeDevice("acme:0", {"chip": "Acme"}, HostMemory(), library)],
        hook_version=1,
        fingerprints=library.fingerprints,
        claims=CLAIMS,
    )
