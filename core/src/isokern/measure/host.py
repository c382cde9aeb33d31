"""The limits of a device that computes in host memory and measures none itself.

They are NumPy's copy by threads, and its best product.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np

from ..backend import Device, Limit
from ..dtypes import DType

SMALLEST = 1 << 17  # bytes of work below which a second thread costs more than it gains
PRODUCT = 1024


def limits(device: Device, nbytes: int, element: DType) -> list[Limit]:
    """Return the device's own limits; else this host's, where the device computes in host memory; else none."""
    own = list(device.limits(nbytes, element))
    if own or not device.memory.wraps:
        return own
    compute = element.compute
    return [_copy(max(1, nbytes // 2)), *([_product(compute)] if compute.kind == "f" else [])]


def _copy(nbytes: int) -> Limit:
    threads = processors() if 2 * nbytes >= SMALLEST else 1
    of, to = (np.array_split(np.ones(nbytes, np.uint8), threads) for _ in range(2))

    def run() -> None:
        if threads == 1:
            np.copyto(to[0], of[0])
        else:
            for _ in _pool().map(np.copyto, to, of):
                pass

    return Limit("copy", 2.0 * nbytes, run)


def _product(compute: DType) -> Limit:
    a, b, y = (np.ones((PRODUCT, PRODUCT), compute.numpy) for _ in range(3))

    def run() -> None:
        np.matmul(a, b, out=y)

    return Limit("fma", 2.0 * PRODUCT**3, run)


def processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(processors())
