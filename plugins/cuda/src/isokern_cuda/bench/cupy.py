"""CuPy beside an operator: NumPy's functions for arrays of the GPU, so core's table for NumPy is its own."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from isokern.backend import Peer, Stream
from isokern.bench.peers import array_call
from isokern.declare.operator import Operator
from isokern.tensors import Tensor


@contextmanager
def current(stream: Stream) -> Iterator[None]:
    """Inside it CuPy, and what it calls, enqueues on `stream`."""
    import cupy

    place = stream.device.dlpack_device
    assert place is not None
    with warnings.catch_warnings():
        # Deprecated for Stream.from_external, which ends a stream that is not its own in some versions of CuPy 14
        warnings.simplefilter("ignore", DeprecationWarning)
        ours = cupy.cuda.ExternalStream(stream.handle, place[1])
    with cupy.cuda.Device(place[1]), ours:
        yield


class CuPy(Peer):
    """CuPy's calls, on arrays that share the tensors' memory by DLPack."""

    name = "cupy"

    def on(self, stream: Stream) -> Any:
        """As CuPy's current stream."""
        return current(stream)

    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], np.ndarray[Any, Any]] | None:
        """By `array_call`, into `output`. CUPY_TF32, by which CuPy would round F32 products, is off by default."""
        import cupy

        made = array_call(cupy, op, [cupy.from_dlpack(t) for t in inputs], cupy.from_dlpack(output), attrs)
        return made and (made[0], cupy.asnumpy(made[1]))
