"""The OpenCL backend of Isokern.

It runs the portable SIMT kernels, and kernels of its own for classes of devices, on any OpenCL 1.2 device.
"""

from __future__ import annotations

from pathlib import Path

from isokern.backend import Device, Register, Unavailable, hookimpl

from .settings import BINARIES, DEVICES, GROUP

CLAIMS = Path(__file__).with_name("claims.txt")


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the OpenCL backend."""
    register.setting(
        DEVICES, "the OpenCL devices to use, in order, separated by commas: PLATFORM, or PLATFORM:INDEX (pocl, intel:0)"
    )
    register.setting(
        GROUP,
        "items of a work-group of kernels with barriers, a power of two; by default 1 on processors and 256 elsewhere",
    )
    register.setting(
        BINARIES,
        "0 takes no binaries from drivers: where a driver keeps what it built (PoCL), the first start is faster and"
        " later ones are slower",
    )
    register.backend("opencl", _open, hook_version=1, claims=CLAIMS)


def _open() -> list[Device]:
    from .caches import private_caches

    with private_caches():
        try:
            import pyopencl  # noqa: F401  # only whether it can be
        except ImportError as error:
            raise Unavailable(f"pyopencl cannot be imported ({error}): pip install 'isokern-opencl[pocl]'") from None
        from .platforms import open_devices

        return open_devices()
