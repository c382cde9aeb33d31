"""Packed constants in files, where ISOKERN_KEEP_PREPACKED asks for it: found by content, and mapped into memory.

Processes that pack the same constants share the memory of such a file, and the system may take it back. The files are
in the folder `prepacked` of the user's disk cache, whose rules hold for them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import settings
from ..backend import Buffer, Device, PackedLayout
from ..disk_cache import DiskCache, user_cache
from ..dtypes import U8
from ..layout import TensorDesc
from ..status import InvalidArgument
from ..tensors import Tensor, from_numpy

SETTING = "ISOKERN_KEEP_PREPACKED"
LEAST = 1 << 16  # bytes that are worth a file


def keep_packed(source: Tensor, layout: PackedLayout, pack: Callable[[], Buffer]) -> Buffer:
    """Return the result of `pack` for a tensor: in memory of a file, if that is requested and possible.

    It is possible on devices that compute in the host's memory and whose kernels have a version (`digest`).
    """
    device = source.device
    worth = device.memory.wraps and source.desc.is_contiguous and layout.nbytes >= LEAST
    if not (_is_asked() and worth and device.digest):
        return pack()
    files, key = user_cache("prepacked"), _key(device, layout, source)
    found = _map(files, key, layout.nbytes, device)
    if found is None:
        found = pack()
        files.put(key, _bytes(found, 0, layout.nbytes).tobytes())
        found = _map(files, key, layout.nbytes, device) or found
    return found


def _is_asked() -> bool:
    asked = settings.get(SETTING) or "0"
    if asked not in ("0", "1"):
        raise InvalidArgument("environment", f"{SETTING}={asked}", allowed="0 or 1")
    return asked == "1"


def _key(device: Device, layout: PackedLayout, source: Tensor) -> str:
    """Return the name of a file: a digest of the kernels, the layout, and the tensor with its content."""
    told = hashlib.sha256(f"{device.digest} {layout.name} {layout.nbytes} {source.dtype} {source.shape}\0".encode())
    start, end = source.desc.byte_range
    told.update(_bytes(source.buffer, start, end - start).data)
    return told.hexdigest()


def _bytes(buffer: Buffer, start: int, nbytes: int) -> npt.NDArray[np.uint8]:
    made: Any = Tensor(TensorDesc(U8, (nbytes,), None, start), buffer).numpy()
    return np.ascontiguousarray(made)


def _map(files: DiskCache, key: str, nbytes: int, device: Device) -> Buffer | None:
    """Return a file's content as read-only memory of the device; None if it is missing or damaged."""
    path = files.path(key)
    if path is None:
        return None
    try:
        return from_numpy(np.memmap(path, np.uint8, "r", shape=(nbytes,)), device=device).buffer
    except (OSError, ValueError):  # the folder may have been cleared just now
        return None
