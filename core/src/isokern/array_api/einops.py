"""The backend of einops for tensors; einops finds it once this module is imported.

    import einops
    import isokern.array_api.einops

    einops.rearrange(x, "b (h w) -> b h w", h=4)

`isokern.array_api` computes what einops asks for, and `isokern.einsum` its products.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import einops._backends

from .. import array_api as xp
from ..eager.conveniences import einsum
from ..tensors import Tensor

__all__ = ["TensorBackend"]
_base: Any = einops._backends.AbstractBackend  # whose own types are not known where a type checker runs


class TensorBackend(_base):  # type: ignore[misc]
    """What einops asks of arrays: shapes, reductions and products of tensors, on their devices."""

    framework_name = "isokern"

    def is_appropriate_type(self, tensor: Any) -> bool:
        """Return whether something is a tensor of this library."""
        return isinstance(tensor, Tensor)

    def from_numpy(self, x: Any) -> Tensor:
        """Return a tensor of an array."""
        return xp.asarray(x)

    def to_numpy(self, x: Tensor) -> Any:
        """Return an array of a tensor's elements."""
        return x.numpy()

    def arange(self, start: int, stop: int) -> Tensor:
        """Return the integers from `start` up to `stop`."""
        return xp.arange(start, stop)

    def reshape(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """Return the elements in other dims."""
        return xp.reshape(x, tuple(shape))

    def transpose(self, x: Tensor, axes: Sequence[int]) -> Tensor:
        """Return the axes in another order."""
        return xp.permute_dims(x, tuple(axes))

    def reduce(self, x: Tensor, operation: str, axes: Sequence[int]) -> Tensor:
        """Return the min, max, sum, mean, prod, any or all over axes."""
        found: Tensor = getattr(xp, operation)(x, axis=tuple(axes))
        return found

    def stack_on_zeroth_dimension(self, tensors: list[Tensor]) -> Tensor:
        """Return tensors of one shape joined along a new first axis."""
        return xp.stack(tensors)

    def add_axis(self, x: Tensor, new_position: int) -> Tensor:
        """Return x with an axis of one element."""
        return xp.expand_dims(x, axis=new_position)

    def add_axes(self, x: Tensor, n_axes: int, pos2len: Mapping[int, int]) -> Tensor:
        """Return x repeated along new axes, at these places and of these lengths among `n_axes`."""
        for place in sorted(pos2len):
            x = xp.expand_dims(x, axis=place)
        return xp.broadcast_to(x, tuple(pos2len.get(n, d) for n, d in enumerate(x.shape)))

    def tile(self, x: Tensor, repeats: Sequence[int]) -> Tensor:
        """Return x repeated so many times along each axis."""
        return xp.tile(x, tuple(repeats))

    def concat(self, tensors: Sequence[Tensor], axis: int) -> Tensor:
        """Return tensors joined along an axis."""
        return xp.concat(list(tensors), axis=axis)

    def is_float_type(self, x: Tensor) -> bool:
        """Return whether the elements are floats, of which there is a mean."""
        return x.dtype.kind == "f"

    def einsum(self, pattern: str, *xs: Tensor) -> Tensor:
        """Return the sum of products that an equation of letters names."""
        return einsum(pattern, *xs)
