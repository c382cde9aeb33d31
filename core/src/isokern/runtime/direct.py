"""Runs without copies: calls read feeds, and write results, in place if these are in the host's memory.

The recorded calls of a context have addresses of its own inputs and results. For one run others take their places,
and then the context's own again. That is possible if the device's calls are done when a replay returns, and if its
recordings can be redirected (`Recording.find`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ..backend.streams import Places
from ..graph.ir import COMPUTED, Value
from ..rewriting.rewriter import is_plain
from .context import RunContext

Array = np.ndarray[Any, Any]


class _Ended(NamedTuple):
    """An input or a result: its arrays' dtype and dims, and the places of its address among the recorded calls."""

    value: Value
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    places: Places
    own: int


class Direct:
    """The inputs and the results of a context that calls can have elsewhere."""

    def __init__(self, context: RunContext) -> None:
        self.context, self.recording = context, context.capture()
        graph, plan = context.graph, context.memory_plan
        device = context.device
        able = not device.asynchronous and device.memory.parts and not plan.mutable
        constrained = any(op.constraints for op in graph.ops)
        outputs = graph.outputs if len(set(graph.outputs)) == len(graph.outputs) else []
        self.names = {v.name for v in graph.inputs}
        able &= not constrained
        alone = [v for v in graph.inputs if able and v not in graph.outputs]
        self.inputs = {v.name: e for v in alone if (e := self._end(v)) is not None}
        found = [self._end(v) for v in outputs] if able and all(v.role == COMPUTED for v in outputs) else []
        self.outputs: list[_Ended] | None = None
        written = [e for e in found if e is not None and e.places]
        if written and len(written) == len(graph.outputs):
            self.outputs = written

    def _end(self, value: Value) -> _Ended | None:
        buffer, spec = self.context.tensors[value].buffer, value.spec
        dtype = spec.dtype.numpy
        if dtype is None or not spec.numel or not is_plain(spec) or self.context.memory_plan.root[value] is not value:
            return None
        places = self.recording.find(buffer)
        return None if places is None else _Ended(value, dtype, spec.shape, places, buffer.address)

    def fits(self, given: Any, name: str) -> bool:
        """Return whether calls can read a feed in place."""
        end = self.inputs.get(name)
        return (
            end is not None
            and type(given) is np.ndarray
            and given.dtype == end.dtype
            and given.shape == end.shape
            and given.flags.c_contiguous
            and given.flags.aligned
        )

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Run on feeds that fit, and what the context's other inputs hold, and return the results."""
        moved, results = list[_Ended](), list[Array]()
        redirect = self.recording.redirect
        try:
            for name, array in feeds.items():
                end = self.inputs[name]
                moved.append(end)
                redirect(end.places, array.__array_interface__["data"][0])
            for end in self.outputs or ():
                moved.append(end)
                results.append(np.empty(end.shape, end.dtype))
                redirect(end.places, results[-1].__array_interface__["data"][0])
            self.recording.replay(self.context.stream)
            self.context.stream.synchronize()  # raises what calls found
        finally:
            for end in moved:
                redirect(end.places, end.own)
        if self.outputs is None:
            return [np.array(self.context.tensors[v].numpy()) for v in self.context.graph.outputs]
        return results
