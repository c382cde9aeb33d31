"""The Python side of the backend: a device whose kernels are in the native library."""

from _isokern_mine import ffi, lib

from isokern.backend import HostMemory, Register, hookimpl
from isokern.backend.native import NativeDevice, NativeLibrary


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the backend, whose one device has the host's memory and no level that a machine may lack."""
    library = NativeLibrary(ffi, lib)
    register.backend(
        "mine",
        lambda: [NativeDevice("mine:0", {}, HostMemory(), library, lambda level: None)],
        hook_version=1,
        fingerprints=library.fingerprints,
    )
