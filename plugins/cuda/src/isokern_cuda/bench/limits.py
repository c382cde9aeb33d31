"""The best that a GPU can do: the bandwidth of its copies, and cuBLAS's product."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np

from isokern.backend import Limit
from isokern.dtypes import F32, DType
from isokern.eager.create import create
from isokern.tensors import tensor, zeros

from .cublas import MatMul, knows, product
from .cupy import current

if TYPE_CHECKING:
    from ..place import CudaPlace

SIDE = 8192  # of the square product: at least two waves of tiles on any GPU, and close to the peak rate


def limits(device: CudaPlace, nbytes: int, element: DType) -> list[Limit]:
    """Return the limits: a copy by the driver, a copy by our kernel, and a product of `element`s where cuBLAS has it.

    All run on the default stream.
    """
    stream, count = device.default_stream, max(1, nbytes // 8)
    x, y = (zeros((count,), F32, device=device) for _ in range(2))
    moved = 2.0 * x.desc.nbytes
    by_kernel = create("copy", [x.desc], [y.desc], device=device).bind(x, y, stream=stream)
    found = [Limit("copy", moved, partial(stream.copy_by_engine, y, x)), Limit("copy", moved, by_kernel)]
    return found + ([_product(device, element)] if knows(element) and _has_cublas() else [])


def _product(device: CudaPlace, element: DType) -> Limit:
    stream = device.default_stream

    @cache
    def make() -> Callable[[], None]:
        # Not zeros: the power that multipliers draw, and so the clock, depends on the values
        values = np.random.default_rng(0).standard_normal(1 << 16).astype(element.numpy)
        a = tensor(np.resize(values, (SIDE, SIDE)), device=device)
        return product(MatMul(SIDE, SIDE, SIDE), a, a, zeros((SIDE, SIDE), element, device=device))

    def run() -> None:
        with current(stream):
            make()()

    return Limit("fma", 2.0 * SIDE**3, run)


def _has_cublas() -> bool:
    try:
        from cupy_backends.cuda.libs import cublas  # noqa: F401
    except ImportError:
        return False
    return True
