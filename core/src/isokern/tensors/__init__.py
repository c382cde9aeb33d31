"""Tensors; NumPy, DLPack and CUDA arrays in and out, without a copy where the memory allows."""

from .strided import (
    Tensor,
    as_tensor,
    empty,
    from_blocks,
    from_dlpack,
    from_numpy,
    numbers,
    tensor,
    zeros,
)

__all__ = ["Tensor", "as_tensor", "empty", "from_blocks", "from_dlpack", "from_numpy", "numbers", "tensor", "zeros"]
