"""Matrix products by cuBLAS, through CuPy's binding: a peer for our products, and the peak to compare them with."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from isokern.backend import Peer, Stream
from isokern.declare.operator import Operator
from isokern.dtypes import DType
from isokern.tensors import Tensor

from .cupy import current

# dtype → (cudaDataType, cublasComputeType_t, the C type of alpha and beta): library_types.h, cublas_api.h. Sums are in
# F32 for the 16-bit types, and F32 is never rounded to TF32 (CUBLAS_COMPUTE_32F)
TYPES = {
    "F32": (0, 68, ctypes.c_float),
    "F64": (1, 70, ctypes.c_double),
    "F16": (2, 68, ctypes.c_float),
    "BF16": (14, 68, ctypes.c_float),
}
DEFAULT_ALGORITHM = -1


@dataclass(frozen=True)
class MatMul:
    """y[m, n] = alpha · op(a)[m, k] · op(b)[k, n], all dense and row-major.

    `trans_a` says that a is stored as [k, m].
    """

    m: int
    n: int
    k: int
    trans_a: bool = False
    trans_b: bool = False
    alpha: float = 1.0


def knows(element: DType) -> bool:
    """Return whether there is a product of this dtype."""
    return element.name in TYPES


def product(p: MatMul, a: Tensor, b: Tensor, y: Tensor) -> Callable[[], None]:
    """Return a call of cublasGemmEx on CuPy's current stream; raise ImportError where CuPy finds no cuBLAS."""
    from cupy_backends.cuda.libs import cublas

    kind, compute, scalar = TYPES[y.dtype.name]
    alpha, beta = scalar(p.alpha), scalar(0)
    # cuBLAS is column-major, and reads a row-major matrix as its transpose: yᵀ = op(b)ᵀ op(a)ᵀ
    arguments = (
        *(_handle(y.device.name), int(p.trans_b), int(p.trans_a), p.n, p.m, p.k, ctypes.addressof(alpha)),
        *(_address(b), kind, p.k if p.trans_b else p.n, _address(a), kind, p.m if p.trans_a else p.k),
        *(ctypes.addressof(beta), _address(y), kind, p.n, compute, DEFAULT_ALGORITHM),
    )
    owned = (a, b, y, alpha, beta)

    def call(owned: Any = owned) -> None:
        cublas.gemmEx(*arguments)

    return call


def form(op: Operator, inputs: Sequence[Tensor], attrs: Mapping[str, Any]) -> MatMul | None:
    """Return the plain product that the operator is, or None."""
    if len(inputs) != 2 or not knows(inputs[0].dtype):
        return None
    a, b = inputs[0].shape, inputs[1].shape
    if op.name == "matmul" and len(a) == len(b) == 2:
        return MatMul(a[0], b[1], a[1])
    if op.name == "linear":
        return MatMul(prod(a[:-1]), b[0], a[-1], trans_b=True)
    if op.name == "gemm" and len(a) == len(b) == 2 and attrs["activation"] == "none":
        m, k = reversed(a) if attrs["trans_a"] else a
        return MatMul(m, b[0] if attrs["trans_b"] else b[1], k, attrs["trans_a"], attrs["trans_b"], attrs["alpha"])
    return None


class CuBlas(Peer):
    """cublasGemmEx on the tensors' addresses."""

    name = "cublas"

    def on(self, stream: Stream) -> Any:
        """Make the stream CuPy's current one."""
        return current(stream)

    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], np.ndarray[Any, Any]] | None:
        """Return a call where the operator is one product without an epilogue."""
        found = form(op, inputs, attrs)
        if found is None:
            return None
        a, b = inputs
        call = product(found, a, b, output)
        call()
        output.device.default_stream.synchronize()
        return call, output.numpy()


@cache
def _handle(device: str) -> Any:
    """Return a handle of our own, which lives as long as the process.

    CuPy may have set another rounding mode on its own handle.
    """
    from cupy_backends.cuda.libs import cublas

    return cublas.create()


def _address(tensor: Tensor) -> int:
    return tensor.buffer.address + tensor.desc.offset * tensor.dtype.itemsize
