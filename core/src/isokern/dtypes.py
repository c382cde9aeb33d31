"""The element types of tensors: one row each, from which `cabi/element_types.py` generates C's."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np


@dataclass(frozen=True, eq=False)
class DType:
    """One element type.

    `code` is the stable number in the C interface, `itemsize` the bytes of one *block*, `block` the elements in it (1
    except for the quantized types), `kind` one of f (float), i (signed), u (unsigned), b (boolean), c (complex), q
    (block-quantized), `dlpack` DLPack's code of the type, -1 if it has none. A float's precision and range are those of
    `ml_dtypes.finfo(numpy)`. A `storage` type is moved, converted and read by products, but no operator computes in it:
    of block types, `blocks.layouts` declares how they are read, and `blocks.encoders` writes some of them on the host.
    A complex number is two floats side by side; no operator takes it, and `array_api` computes with its parts.
    """

    name: str
    code: int
    kind: str
    itemsize: int
    numpy: np.dtype[Any] | None
    dlpack: int = -1
    block: int = 1
    storage: bool = False

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return dtype, (self.name,)

    def nbytes(self, elements: int) -> int:
        """Return the bytes of `elements` consecutive elements (a whole number of blocks)."""
        return elements // self.block * self.itemsize

    @property
    def compute(self) -> DType:
        """The type in which kernels compute.

        F64 and U64 for themselves, F32 for other floats and block types, I64 for other integers and booleans, and that
        of its parts for a complex type.
        """
        if self.kind in "fqc":
            return F64 if self in (F64, C128) else F32
        return U64 if self is U64 else I64

    @property
    def is_foreign(self) -> bool:
        """Whether NumPy exchanges the type with other libraries only as unsigned integers, like BF16."""
        return self.numpy is not None and self.numpy.isbuiltin != 1

    def holds(self, array: np.ndarray[Any, Any]) -> bool:
        """Return whether an array has these elements; NumPy takes None, which blocks have, for float64."""
        return self.numpy is not None and array.dtype == self.numpy

    @property
    def alignment(self) -> int:
        """The number of bytes that divides an element's address: a part's, a block's (which is 1 or an F16's)."""
        if self.kind == "c":
            return self.itemsize // 2
        return self.itemsize if self.block == 1 else 2 - self.itemsize % 2

    @property
    def in_memory(self) -> str:
        """The C type of an element in memory: unsigned integers for floats narrower than F32, bytes for blocks."""
        if self.kind == "f" and self.compute is self:
            return "float" if self is F32 else "double"
        return f"{'' if self.kind == 'i' else 'u'}int{8 if self.block > 1 else 8 * self.itemsize}_t"


# In this order the types stand in every list, and the suite judges them: a new one goes to the end.
F32 = DType("F32", 2, "f", 4, np.dtype(np.float32), 2)
F16 = DType("F16", 3, "f", 2, np.dtype(np.float16), 2)
BF16 = DType("BF16", 4, "f", 2, np.dtype(ml_dtypes.bfloat16), 4)
F64 = DType("F64", 1, "f", 8, np.dtype(np.float64), 2)
I8 = DType("I8", 8, "i", 1, np.dtype(np.int8), 0)
I16 = DType("I16", 9, "i", 2, np.dtype(np.int16), 0)
I32 = DType("I32", 10, "i", 4, np.dtype(np.int32), 0)
I64 = DType("I64", 11, "i", 8, np.dtype(np.int64), 0)
U8 = DType("U8", 12, "u", 1, np.dtype(np.uint8), 1)
U16 = DType("U16", 13, "u", 2, np.dtype(np.uint16), 1)
U32 = DType("U32", 14, "u", 4, np.dtype(np.uint32), 1)
U64 = DType("U64", 15, "u", 8, np.dtype(np.uint64), 1)
BOOL = DType("BOOL", 16, "b", 1, np.dtype(np.bool_), 6)
Q4_0 = DType("Q4_0", 32, "q", 18, None, block=32)
Q4_1 = DType("Q4_1", 33, "q", 20, None, block=32)
Q8_0 = DType("Q8_0", 34, "q", 34, None, block=32)
F8E4M3FN = DType("F8E4M3FN", 6, "f", 1, np.dtype(ml_dtypes.float8_e4m3fn), 10, storage=True)
F8E5M2 = DType("F8E5M2", 7, "f", 1, np.dtype(ml_dtypes.float8_e5m2), 12, storage=True)
Q6_K = DType("Q6_K", 35, "q", 210, None, block=256, storage=True)
Q4_K = DType("Q4_K", 36, "q", 144, None, block=256, storage=True)
Q5_K = DType("Q5_K", 37, "q", 176, None, block=256, storage=True)
Q2_K = DType("Q2_K", 38, "q", 84, None, block=256, storage=True)
Q3_K = DType("Q3_K", 39, "q", 110, None, block=256, storage=True)
Q5_0 = DType("Q5_0", 40, "q", 22, None, block=32, storage=True)
Q5_1 = DType("Q5_1", 41, "q", 24, None, block=32, storage=True)
IQ4_NL = DType("IQ4_NL", 42, "q", 18, None, block=32, storage=True)
IQ4_XS = DType("IQ4_XS", 43, "q", 136, None, block=256, storage=True)
MXFP4 = DType("MXFP4", 44, "q", 17, None, block=32, storage=True)
TQ2_0 = DType("TQ2_0", 45, "q", 66, None, block=256, storage=True)
TQ1_0 = DType("TQ1_0", 46, "q", 54, None, block=256, storage=True)
Q8_K = DType("Q8_K", 47, "q", 292, None, block=256, storage=True)
IQ2_XXS = DType("IQ2_XXS", 48, "q", 66, None, block=256, storage=True)
IQ2_XS = DType("IQ2_XS", 49, "q", 74, None, block=256, storage=True)
IQ2_S = DType("IQ2_S", 50, "q", 82, None, block=256, storage=True)
IQ3_XXS = DType("IQ3_XXS", 51, "q", 98, None, block=256, storage=True)
IQ3_S = DType("IQ3_S", 52, "q", 110, None, block=256, storage=True)
IQ1_S = DType("IQ1_S", 53, "q", 50, None, block=256, storage=True)
IQ1_M = DType("IQ1_M", 54, "q", 56, None, block=256, storage=True)
C64 = DType("C64", 17, "c", 8, np.dtype(np.complex64), 5)
C128 = DType("C128", 18, "c", 16, np.dtype(np.complex128), 5)

ALL = tuple(d for d in globals().values() if isinstance(d, DType))
COMPLEX = tuple(d for d in ALL if d.kind == "c")
PLAIN = tuple(d for d in ALL if d.block == 1 and d not in COMPLEX)
FP8 = tuple(d for d in PLAIN if d.storage)  # floats of 8 bits
COMPUTED = tuple(d for d in PLAIN if not d.storage)
NUMBERS = tuple(d for d in COMPUTED if d is not BOOL)
FLOATS = tuple(d for d in NUMBERS if d.kind == "f")
INTEGERS = tuple(d for d in NUMBERS if d.kind in "iu")
SIGNED = tuple(d for d in INTEGERS if d.kind == "i")
UNSIGNED = tuple(d for d in INTEGERS if d.kind == "u")
ACTIVATIONS = tuple(d for d in FLOATS if d.compute is F32)
BLOCKS = tuple(d for d in ALL if d.block > 1 and not d.storage)
STORED_BLOCKS = tuple(d for d in ALL if d.block > 1 and d.storage)  # declared in blocks/layouts.py
QUANTIZED = (*BLOCKS, Q5_0, Q5_1, MXFP4, TQ2_0, TQ1_0, Q8_K)  # those that devices quantize to: each has one encoding
WEIGHTS = (*ACTIVATIONS, *BLOCKS, *FP8)
ALL_WEIGHTS = (*WEIGHTS, *STORED_BLOCKS)
INDICES = (I64, I32)  # positions, lengths and counters
TOKENS = (*INDICES, U8)  # rows of a table, and text by the byte

COMPUTE_TYPES = (I64, U64, F32, F64)  # from the narrowest on

_BY_NAME = {d.name: d for d in ALL}
_BY_CODE = {d.code: d for d in ALL}
_BY_NUMPY = {d.numpy: d for d in ALL if d.numpy is not None}


def dtype(given: object) -> DType:
    """Return the `DType` of a `DType`, its name in any case, its code, or anything that NumPy accepts as a dtype."""
    if isinstance(given, DType):
        return given
    if isinstance(given, str) and given.upper() in _BY_NAME:
        return _BY_NAME[given.upper()]
    if isinstance(given, int) and not isinstance(given, bool):
        if given in _BY_CODE:
            return _BY_CODE[given]
    else:
        try:
            as_numpy = np.dtype(given)  # type: ignore[call-overload]  # any object: NumPy itself judges it
        except TypeError:
            as_numpy = None
        if as_numpy is not None and as_numpy in _BY_NUMPY:
            return _BY_NUMPY[as_numpy]
    from .status import BadTensorDtype

    raise BadTensorDtype("dtype", f"{given!r} is not an element type", allowed=names(ALL))


def wider(a: DType, b: DType) -> DType:
    """Return the one of two dtypes whose compute type is wider, the first if both have the same.

    Floats are wider than integers, F64 wider than F32, and U64 wider than I64.
    """
    return b if COMPUTE_TYPES.index(b.compute) > COMPUTE_TYPES.index(a.compute) else a


def names(dtypes: Iterable[DType]) -> str:
    """Return the names of dtypes for messages: `F32, F16, …`."""
    return ", ".join(d.name for d in dtypes)
