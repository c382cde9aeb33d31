"""What capturing saves, measured on a list of 100 operators on small tensors.

The list is called one by one, replayed, and compared with the sum of its kernels' times.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend import Buffer, Device, Stream, Timer
from ..call.descriptor import Descriptor
from ..eager.create import create
from ..measure.timing import interleave
from ..status import NotImplementedOnDevice
from ..tensors import Tensor, empty, tensor
from .cases import Measurement

LIST = 100
SHAPE = (4, 256)
# The operators that the list repeats in turn, each with the number of tensors of SHAPE that it takes
OPERATORS = {
    "add": 2, "relu": 1, "mul": 2, "softmax": 1, "sub": 2, "gelu": 1, "rms_norm": 1, "silu_mul": 2, "layer_norm": 1,
    "reduce_mean": 1,
}  # fmt: skip
CALCULATE, BOUND = "100 operators, calculate", "100 operators, bound()"
REPLAY, REPLAY_DEVICE = "100 operators, replay", "100 operators, replay, by the device's clock"
KERNELS = "100 operators, their kernels' times, each in a row of itself"


@dataclass(frozen=True, eq=False)
class ListedCall:
    """One operator of the list."""

    descriptor: Descriptor
    inputs: list[Tensor]
    output: Tensor
    workspace: Buffer | None

    def calculate(self, stream: Stream) -> None:
        """Make the call as a host does that keeps the descriptor."""
        self.descriptor.calculate(self.inputs, [self.output], workspace=self.workspace, stream=stream)

    def bind(self, stream: Stream) -> Callable[[], None]:
        """Return the call with all its arguments fixed."""
        return self.descriptor.bind(self.inputs, [self.output], workspace=self.workspace, stream=stream)


def measure_list(device: Device, seconds: float = 0.2) -> list[Measurement]:
    """Measure each way of running the list; empty for a device without a timer.

    `time_us` is that of the whole list. By the host's clock a list ends when its work is done. A kernel's own time is
    measured over a captured list of 100 of it, by the device's clock: between two events, a single kernel's time would
    include the latency of the events.
    """
    stream = device.default_stream
    timer = device.timer(stream)
    kinds = _make_calls(device)
    if timer is None or not kinds:
        return []
    calls = [kinds[i % len(kinds)] for i in range(LIST)]
    bound = [call.bind(stream) for call in calls]
    whole = _capture(calls, stream)

    def by_calculate() -> None:
        for call in calls:
            call.calculate(stream)
        device.synchronize()

    def by_bound() -> None:
        for call in bound:
            call()
        device.synchronize()

    def by_replay() -> None:
        whole()
        device.synchronize()

    ways: dict[str, Callable[[], object]] = {CALCULATE: by_calculate, BOUND: by_bound, REPLAY: by_replay}
    alone = {f"kernel {i}": _capture([call] * LIST, stream) for i, call in enumerate(kinds)}
    timers: dict[str, Timer] = {REPLAY_DEVICE: timer}
    for name in alone:
        own = device.timer(stream)
        assert own is not None
        timers[name] = own
    times = interleave({**ways, REPLAY_DEVICE: whole, **alone}, seconds, timers=timers)
    device.synchronize()
    times[KERNELS] = sum(times[f"kernel {i % len(kinds)}"] / LIST for i in range(LIST))
    return [
        Measurement(
            "list", device.name, "F32", way, 1e6 * times[way], LIST * 1e-6 / times[way], "Mcall/s", None, {}, {}
        )
        for way in (CALCULATE, BOUND, REPLAY, REPLAY_DEVICE, KERNELS)
    ]


def _make_calls(device: Device) -> list[ListedCall]:
    """Return one call of each operator that the device has."""
    found = []
    values = np.random.default_rng(0).standard_normal(SHAPE).astype(np.float32)
    for name, count in OPERATORS.items():
        inputs = [tensor(values, device=device) for _ in range(count)]
        attrs: dict[str, Any] = {"axes": (-1,)} if name == "reduce_mean" else {}
        try:
            descriptor = create(name, [t.desc for t in inputs], device=device, **attrs)
        except NotImplementedOnDevice:
            continue
        target = descriptor.outputs[0]
        output = empty(target.shape, target.dtype, device=device)
        found.append(ListedCall(descriptor, inputs, output, descriptor.alloc_workspace()))
    return found


def _capture(calls: list[ListedCall], stream: Stream) -> Callable[[], None]:
    with stream.capture() as recording:
        for call in calls:
            call.calculate(stream)
    return lambda: recording.replay(stream)
