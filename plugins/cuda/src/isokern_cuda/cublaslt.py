"""cuBLASLt by its C interface, as far as products need it.

Numbers and sizes are those of cublasLt.h, which are the same from CUDA 11 to 13.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import byref, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

from isokern.backend import BASE_ALIGNMENT, own_lock
from isokern.dtypes import BF16, F16, F32, F64

from .driver import CudaError, Matrix, Planned, Product, Products

WORKSPACE = 32 << 20  # bytes that an algorithm may ask for: NVIDIA's advice for sm_90, and more than for others
TYPES = {F32: 0, F64: 1, F16: 2, BF16: 14}  # values of cudaDataType_t
COMPUTE_32F, COMPUTE_64F = 68, 70  # products in F32 are not rounded to TF32
TRANSPOSE_A, TRANSPOSE_B, EPILOGUE, BIAS_POINTER = 3, 4, 7, 8  # of cublasLtMatmulDescAttributes_t
BATCH_COUNT, BATCH_OFFSET = 5, 6  # of cublasLtMatrixLayoutAttribute_t
MAX_WORKSPACE, REDUCTIONS = 1, 3  # of cublasLtMatmulPreferenceAttributes_t
ALIGNMENTS = {"a": 5, "b": 6, "c": 7, "y": 8}
IN_FULL = 3  # partial sums are added in place or in the compute type, never in that of y
EPILOGUES = {"none": 0, "relu": 2}
PLAIN, WITH_BIAS = 1, 4  # PLAIN stands alone: with a bias it would be another epilogue
MEMORY_FAILED, CUDA_MEMORY = 3, 2


class _Algorithm(ctypes.Structure):
    _fields_ = (("data", c_uint64 * 8),)


class _Found(ctypes.Structure):
    _fields_ = (
        ("algorithm", _Algorithm),
        ("workspace", c_size_t),
        ("state", c_int),
        ("waves", c_float),
        ("reserved", c_int * 4),
    )


class _Handle:
    """An object that a `…Create` function of the library created."""

    def __init__(self, library: CublasLt, kind: str, *arguments: Any) -> None:
        self.library, self.kind, self.raw = library, kind, c_void_p()
        library.ask(f"{kind}Create", byref(self.raw), *arguments)

    def set(self, attribute: int, value: Any) -> None:
        """Set one attribute."""
        self.library.ask(
            f"{self.kind}SetAttribute", self.raw, c_int(attribute), byref(value), c_size_t(ctypes.sizeof(value))
        )

    def __del__(self) -> None:
        if self.raw:
            self.library.end(self)


class CublasLt(Products):
    """The library on one device.

    `library` is libcublasLt, and `on_device` calls a function with the device as the thread's current one.
    """

    def __init__(self, library: Any, on_device: Callable[..., int]) -> None:
        self._library, self._on_device = library, on_device
        self._library.cublasLtGetStatusString.restype = ctypes.c_char_p
        self.handle = c_void_p()
        self.ask("Create", byref(self.handle))

    def ask(self, name: str, *arguments: Any) -> None:
        """Call a function, and raise its error status."""
        status = self._on_device(getattr(self._library, f"cublasLt{name}"), *arguments)
        if status:
            text = self._library.cublasLtGetStatusString(c_int(status)).decode()
            raise CudaError(CUDA_MEMORY if status == MEMORY_FAILED else -status, f"cublasLt{name}: {text}")

    def end(self, handle: _Handle) -> None:
        """Destroy the library's handle."""
        getattr(self._library, f"cublasLt{handle.kind}Destroy")(handle.raw)

    def plan(self, product: Product) -> Planned:
        """Return the product with the algorithm that the library's heuristic ranks first."""
        return _Product(self, product)


class _Product(Planned):
    """A product with its algorithm.

    The bias's address is part of the description: a lock covers setting it and the launch, which reads it.
    """

    def __init__(self, library: CublasLt, product: Product) -> None:
        self._library, number = library, TYPES[product.dtype]
        wide = product.dtype is F64
        scale = c_double if wide else c_float
        self._alpha, self._beta = scale(product.alpha), scale(product.beta)
        self._lock = own_lock(self, "_lock")
        compute = COMPUTE_64F if wide else COMPUTE_32F
        self._what = _Handle(library, "MatmulDesc", c_int(compute), c_int(TYPES[F64 if wide else F32]))
        self._what.set(TRANSPOSE_A, c_int32(product.a.transposed))
        self._what.set(TRANSPOSE_B, c_int32(product.b.transposed))
        self._biased = product.bias is not None
        self._what.set(EPILOGUE, c_uint32(EPILOGUES[product.activation] | (WITH_BIAS if self._biased else 0) or PLAIN))
        if self._biased:
            self._what.set(
                BIAS_POINTER, c_void_p(BASE_ALIGNMENT)
            )  # the heuristic needs a bias address; the launch sets the true one
        self._a, self._b, self._c, self._y = (
            self._layout(number, product.batch, m) for m in (product.a, product.b, product.c, product.y)
        )
        wish = _Handle(library, "MatmulPreference")
        wish.set(MAX_WORKSPACE, c_uint64(WORKSPACE))
        wish.set(REDUCTIONS, c_uint32(IN_FULL))
        offsets = {"a": product.a.offset, "b": product.b.offset, "c": product.c.offset, "y": product.y.offset}
        for name, attribute in ALIGNMENTS.items():
            least = offsets[name] | (product.bias or 0 if name == "y" else 0) | BASE_ALIGNMENT
            wish.set(attribute, c_uint32(least & -least))
        found, count = _Found(), c_int()
        layouts = (self._a.raw, self._b.raw, self._c.raw, self._y.raw)
        library.ask(
            "MatmulAlgoGetHeuristic", library.handle, self._what.raw, *layouts, wish.raw, c_int(1),
            byref(found), byref(count),
        )  # fmt: skip
        if not count.value or found.state:
            raise CudaError(-found.state, "cublasLtMatmulAlgoGetHeuristic: it knows no algorithm for this product")
        self._algorithm, self.workspace = found.algorithm, int(found.workspace)

    def _layout(self, number: int, batch: int, m: Matrix) -> _Handle:
        made = _Handle(
            self._library, "MatrixLayout", c_int(number), c_uint64(m.rows), c_uint64(m.cols), c_int64(m.lead)
        )
        if batch > 1:
            made.set(BATCH_COUNT, c_int32(batch))
            made.set(BATCH_OFFSET, c_int64(m.apart))
        return made

    def enqueue(self, addresses: tuple[int, int, int, int, int], workspace: int, stream: int) -> None:
        """Enqueue the product by cublasLtMatmul."""
        a, b, c, y, bias = map(c_void_p, addresses)
        with self._lock:
            if self._biased:
                self._what.set(BIAS_POINTER, bias)
            self._library.ask(
                "Matmul", self._library.handle, self._what.raw, byref(self._alpha), a, self._a.raw, b, self._b.raw,
                byref(self._beta), c, self._c.raw, y, self._y.raw, byref(self._algorithm),
                c_void_p(workspace), c_size_t(self.workspace), c_void_p(stream),
            )  # fmt: skip
