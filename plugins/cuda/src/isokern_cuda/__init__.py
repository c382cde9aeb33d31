"""The CUDA backend of Isokern.

It runs the portable SIMT kernels and kernels of its own on NVIDIA GPUs (`cuda`), and on an emulated one (`cuda_sim`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from isokern.backend import Device, Register, hookimpl

from .settings import CHECK, SANITIZE, SEED, THREADS

if TYPE_CHECKING:
    from .driver import Driver

CLAIMS = Path(__file__).with_name("claims.txt")


@hookimpl
def isokern_register_backends(register: Register) -> None:
    """Register the CUDA backends."""
    register.setting(SEED, "0: emulated blocks and threads run in order; another number: in an order of its own")
    register.setting(
        SANITIZE, "1: emulated kernels run under AddressSanitizer and UBSan, which end the process at the first fault"
    )
    register.setting(
        THREADS, "the most threads of an emulated block: 32 to 1024, a power of two; 64 by default, 256 on a GPU"
    )
    register.setting(CHECK, "1: every access of an emulated kernel is watched, as `isokern-gpu check` does; slow")
    register.backend("cuda", _open_cuda, hook_version=1, claims=CLAIMS)
    register.backend("cuda_sim", _open_sim, hook_version=1, emulated=True, claims=CLAIMS)


def _open_cuda() -> list[Device]:
    from .gpu import drivers

    return _devices("cuda", drivers())


def _open_sim() -> list[Device]:
    from .emulated import driver

    return _devices("cuda_sim", [driver()])


def _devices(backend: str, found: list[Driver]) -> list[Device]:
    from .devices import CudaDevice

    return [CudaDevice(f"{backend}:{i}", one) for i, one in enumerate(found)]
