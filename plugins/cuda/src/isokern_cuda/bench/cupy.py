"""CuPy as a peer of an operator: it has NumPy's functions for arrays of the GPU, so it uses core's table for NumPy."""

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
    """Let CuPy, and what it calls, enqueue on `stream` inside a `with` block."""
    import cupy

    place = stream.device.dlpack_device
    assert place is not None
    with warnings.catch_warnings():
        # Deprecated in favour of Stream.from_external, which in some versions of CuPy 14 destroys a stream that it does
        # not own
        warnings.simplefilter("ignore", DeprecationWarning)
        ours = cupy.cuda.ExternalStream(stream.handle, place[1])
    with cupy.cuda.Device(place[1]), ours:
        yield


class CuPy(Peer):
    """CuPy's calls, on arrays that share the tensors' memory by DLPack."""

    name = "cupy"

    def on(self, stream: Stream) -> Any:
        """Make the stream CuPy's current one."""
        return current(stream)

    def make(
        self, op: Operator, inputs: Sequence[Tensor], output: Tensor, attrs: Mapping[str, Any]
    ) -> tuple[Callable[[], object], np.ndarray[Any, Any]] | None:
        """Return a call by `array_call`, into `output`.

        CUPY_TF32, by which CuPy would round F32 products, is off by default.
        """
        import cupy

        made = array_call(cupy, op, [cupy.from_dlpack(t) for t in inputs], cupy.from_dlpack(output), attrs)
        return made and (made[0], cupy.asnumpy(made[1]))
