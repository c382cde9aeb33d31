"""The libraries that `isokern bench` times in comparison with the kernels of a GPU.

Nothing of them is imported before a bench asks for it.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from isokern.backend import Peer

if TYPE_CHECKING:
    from ..place import CudaPlace


def peers(device: CudaPlace) -> list[Peer]:
    """Return PyTorch, CuPy and cuBLAS, as far as they are installed; for the emulation NumPy, on its memory."""
    if device.properties["emulated"]:
        from .emulated import EmulatedNumPy

        return [EmulatedNumPy()]
    from .cublas import CuBlas
    from .cupy import CuPy
    from .torch import Torch

    found: list[Peer] = [Torch()] if importlib.util.find_spec("torch") is not None else []
    return [*found, CuPy(), CuBlas()]
