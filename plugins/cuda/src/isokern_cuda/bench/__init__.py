"""What `isokern bench` times beside the kernels of a GPU. Nothing of it is imported before a bench asks."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

from isokern.backend import Peer

if TYPE_CHECKING:
    from ..place import CudaPlace


def peers(device: CudaPlace) -> list[Peer]:
    """PyTorch, CuPy and cuBLAS, as far as they are installed; of the emulation NumPy, on its memory."""
    if device.properties["emulated"]:
        from .emulated import EmulatedNumPy

        return [EmulatedNumPy()]
    from .cublas import CuBlas
    from .cupy import CuPy
    from .torch import Torch

    found: list[Peer] = [Torch()] if importlib.util.find_spec("torch") is not None else []
    return [*found, CuPy(), CuBlas()]
