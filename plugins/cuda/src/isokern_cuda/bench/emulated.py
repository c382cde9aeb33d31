"""NumPy on the memory of the emulated GPU, which is the host's: so that all that is done with a peer runs without a GPU."""

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
        """By core's table for NumPy."""
        made = array_call(np, op, [_array(t) for t in inputs], _array(output), attrs)
        return made and (made[0], made[1].copy())


def _array(tensor: Tensor) -> Array:
    """A dense tensor's memory itself."""
    assert tensor.dtype.numpy is not None
    address = tensor.buffer.address + tensor.desc.offset * tensor.dtype.itemsize
    raw = array_at(address, (tensor.desc.nbytes,), owner=tensor)
    return raw.view(np.dtype(tensor.dtype.numpy)).reshape(tensor.shape)
