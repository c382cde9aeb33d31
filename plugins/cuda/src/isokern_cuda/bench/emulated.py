"""NumPy as a peer on the emulated GPU's memory, which is the host's.

So the code that deals with peers can run without a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from isokern.backend import Peer, array_at
from isokern.bench.peers import array_call
from isokern.declare.operator import Operator
from isokern.tensors import Tensor

Array = np.ndarray[Any, Any]


class EmulatedNumPy(Peer):
    """NumPy's calls, on arrays over the device's addresses."""

    name = "numpy"

    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], Array] | None:
        """Return a call by core's table for NumPy."""
        made = array_call(np, op, [_array(t) for t in inputs], _array(output), attrs)
        return made and (made[0], made[1].copy())


def _array(tensor: Tensor) -> Array:
    """Return a dense tensor's memory itself as an array."""
    assert tensor.dtype.numpy is not None
    address = tensor.buffer.address + tensor.desc.offset * tensor.dtype.itemsize
    raw = array_at(address, (tensor.desc.nbytes,), owner=tensor)
    return raw.view(np.dtype(tensor.dtype.numpy)).reshape(tensor.shape)
