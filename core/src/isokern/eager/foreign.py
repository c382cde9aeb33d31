"""PyTorch's tensors in eager calls: read in place, and returned by a call that was given one.

PyTorch is not imported here: unless another module imported it, there are no such tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtypes import BF16, F8E4M3FN, F8E5M2, DType
from ..status import BadTensorDtype, InvalidArgument
from ..tensors import Tensor, dlpack, from_dlpack

NARROW: dict[DType, str] = {BF16: "bfloat16", F8E4M3FN: "float8_e4m3fn", F8E5M2: "float8_e5m2"}
Foreign = dict[int, Any]  # tensors of PyTorch by the `id` of what stands for them


def take_foreign(where: str, given: Sequence[Any]) -> tuple[Sequence[Any], Foreign]:
    """Return values, or lists of them, with each tensor of PyTorch as an array or a tensor over its memory.

    InvalidArgument for one that requires gradients or has no memory, and BadTensorDtype for types that are not here.
    """
    torch = sys.modules.get("torch")
    kind = getattr(torch, "Tensor", None)
    if kind is None:
        return given, {}
    foreign: Foreign = {}

    def take(value: Any) -> Any:
        if isinstance(value, (list, tuple)) and any(isinstance(v, kind) for v in value):
            return [take(v) for v in value]
        if not isinstance(value, kind):
            return value
        taken = _over(where, value)
        foreign[id(taken)] = value
        return taken

    taken = [take(v) for v in given]
    foreign[0] = taken  # which keeps what the numbers stand for
    return (taken, foreign) if len(foreign) > 1 else (given, {})


def _over(where: str, value: Any) -> Any:
    if value.requires_grad:
        hint = "give x.detach(), or call x.requires_grad_(False)"
        raise InvalidArgument(where, "a tensor of PyTorch that requires gradients", allowed="one without", hint=hint)
    if value.is_complex() or value.is_sparse or value.is_quantized:
        given = f"a tensor of PyTorch with {value.dtype} and layout {value.layout}"
        raise BadTensorDtype(where, given, allowed="dense tensors of real numbers")
    if value.numel() and not _has_memory(value):
        given = f"a {type(value).__name__} of PyTorch on device {value.device} that has no memory"
        raise InvalidArgument(where, given, allowed="a tensor with elements", hint="create it on a device, such as cpu")
    plain = value.resolve_neg() if value.is_neg() else value
    return dlpack.to_numpy(plain) if plain.is_cpu else from_dlpack(plain)


def _has_memory(value: Any) -> bool:
    """Return False for tensors of the device `meta`, and for those that PyTorch traces with."""
    try:
        return bool(value.data_ptr())
    except RuntimeError:
        return False


def give_foreign(foreign: Foreign, result: Any) -> Any:
    """Return results as tensors of PyTorch on the device of the first that was given; all as they are without one."""
    if not foreign:
        return result
    if isinstance(result, (list, tuple)):
        return type(result)(give_foreign(foreign, y) for y in result)
    if id(result) in foreign or not isinstance(result, Tensor):
        return foreign.get(id(result), result)
    torch: Any = sys.modules["torch"]
    like = next(t for n, t in foreign.items() if n)
    if not like.is_cpu and result.device.dlpack_device is not None:
        return torch.from_dlpack(result)
    array = result.numpy() if result.buffer.view is not None else np.array(result.numpy())
    if result.dtype in NARROW:  # types that NumPy's exchange with PyTorch lacks
        bits = array.view(f"i{result.dtype.itemsize}" if result.dtype.itemsize > 1 else "u1")
        return torch.from_numpy(bits).view(getattr(torch, NARROW[result.dtype])).to(like.device)
    return torch.from_numpy(array).to(like.device)
