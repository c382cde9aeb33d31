"""The cost of a call from Python: one-element `add` bound, by `calculate`, eagerly and replayed, beside NumPy's."""

from __future__ import annotations

import numpy as np

from ..backend import Device
from ..eager.create import create
from ..eager.functions import function
from ..layout import TensorDesc
from ..measure.timing import interleave
from ..tensors import tensor
from .cases import Measurement

RECORDED = 100
DIFFERENT = 64
BOUND, CALCULATE, REPLAY = "bound()", "calculate, other tensors each time", f"replay, per operator of {RECORDED}"
EAGER, NUMPY = "eager isokern.add(a, b, out=o)", "np.add(a, b, out=o)"


def measure_calls(device: Device, seconds: float = 0.2) -> list[Measurement]:
    """Measure each way of calling; `rate` is in millions of calls a second, and the peers are NumPy's calls.

    `replay` is the whole time of a recorded list of 100 adds divided by 100, the kernels' own time included.
    """
    a, b, o = (np.ones(1, np.float32) for _ in range(3))
    desc = TensorDesc("F32", (1,))
    add = create("add", [desc, desc], device=device)
    sets = [
        ([tensor(a, device=device), tensor(b, device=device)], [tensor(o, device=device)]) for _ in range(DIFFERENT)
    ]
    inputs, outputs = sets[0]
    x, y, z = inputs[0], inputs[1], outputs[0]
    stream = device.stream()
    with stream.capture() as recording:
        for _ in range(RECORDED):
            add.calculate(inputs, outputs, stream=stream)
    bound, eager = add.bind(inputs, outputs), function("add")

    # Each way is a loop as a host would write it, so that no wrapper is timed with it. A device that only enqueues is
    # waited for at the end of the loop
    finish = device.synchronize if device.asynchronous else _nothing

    def by_bound() -> None:
        for _ in sets:
            bound()
        finish()

    def by_calculate() -> None:
        for given, target in sets:
            add.calculate(given, target)
        finish()

    def by_replay() -> None:
        recording.replay()
        finish()

    def by_eager() -> None:
        for _ in sets:
            eager(x, y, out=z)
        finish()

    def by_numpy() -> None:
        for _ in sets:
            np.add(a, b, out=o)

    ways = {BOUND: by_bound, CALCULATE: by_calculate, REPLAY: by_replay, EAGER: by_eager, NUMPY: by_numpy}
    times = interleave(ways, seconds)
    each = {name: t / (RECORDED if name == REPLAY else DIFFERENT) for name, t in times.items()}
    peer = {NUMPY: 1e6 * each.pop(NUMPY)}
    return [
        Measurement("add", device.name, "F32", name, 1e6 * t, 1e-6 / t, "Mcall/s", None, peer, {})
        for name, t in each.items()
    ]


def _nothing() -> None:
    """Do nothing: the calls of a device that is not asynchronous return when their work is done."""
