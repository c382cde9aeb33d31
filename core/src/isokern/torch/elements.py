"""PyTorch's element types and ours, and PyTorch's tensors as arrays over the same memory."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from .. import dtypes
from ..dtypes import DType
from ..importing.operand import Array
from ..status import BadTensorDtype, InvalidArgument
from .library import library as torch

OURS: dict[Any, DType] = {
    torch.float32: dtypes.F32,
    torch.float16: dtypes.F16,
    torch.bfloat16: dtypes.BF16,
    torch.float64: dtypes.F64,
    torch.int8: dtypes.I8,
    torch.int16: dtypes.I16,
    torch.int32: dtypes.I32,
    torch.int64: dtypes.I64,
    torch.uint8: dtypes.U8,
    torch.uint16: dtypes.U16,
    torch.uint32: dtypes.U32,
    torch.uint64: dtypes.U64,
    torch.bool: dtypes.BOOL,
    torch.float8_e4m3fn: dtypes.F8E4M3FN,
    torch.float8_e5m2: dtypes.F8E5M2,
}
THEIRS = {ours: theirs for theirs, ours in OURS.items()}
# Types that PyTorch's own exchange with NumPy lacks: the one of as many bits that travels, and NumPy's
TRAVEL: dict[Any, tuple[Any, np.dtype[Any]]] = {
    torch.bfloat16: (torch.int16, np.dtype(ml_dtypes.bfloat16)),
    torch.float8_e4m3fn: (torch.uint8, np.dtype(ml_dtypes.float8_e4m3fn)),
    torch.float8_e5m2: (torch.uint8, np.dtype(ml_dtypes.float8_e5m2)),
}
ALLOWED = "real numbers of 8 to 64 bits, and torch.bool"


def our_dtype(where: str, theirs: Any) -> DType:
    """Return our dtype; BadTensorDtype where there is none, as for complex numbers."""
    if theirs not in OURS:
        raise BadTensorDtype(where, f"elements of type {theirs}", allowed=ALLOWED)
    return OURS[theirs]


def check_plain(where: str, tensor: Any) -> None:
    """Raise a typed error for a tensor that is not a dense one, with memory, of numbers that are here."""
    if tensor.device.type == "meta":
        hint = "create it on a device, such as cpu"
        raise InvalidArgument(
            where, "a tensor of device meta, without memory", allowed="tensors with memory", hint=hint
        )
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise InvalidArgument(
            where, f"a tensor of layout {tensor.layout}", allowed="dense tensors", hint="x.to_dense()"
        )
    our_dtype(where, tensor.dtype)


def to_array(where: str, tensor: Any) -> Array:
    """Return an array over the memory of a tensor of the host; what gradients it wants is not asked."""
    check_plain(where, tensor)
    plain = tensor.detach()
    if plain.is_neg():
        plain = plain.resolve_neg()
    if plain.dtype in TRAVEL:
        travels, kind = TRAVEL[plain.dtype]
        found: Array = plain.view(travels).numpy().view(kind)
    else:
        found = plain.numpy()
    return found


def write_array(target: Any, array: Array) -> None:
    """Write the elements of an array to a tensor of its shape and type."""
    if target.is_cpu:
        np.copyto(to_array("result", target), array)
    else:
        there = torch.empty(array.shape, dtype=target.dtype)
        write_array(there, array)
        target.copy_(there)
