"""What a call costs from Python: one-element `add` bound, by `calculate`, eagerly, and replayed, with NumPy's call beside them."""

from __future__ import annotations

from itertools import cycle

import numpy as np

from ..backend import Device
from ..descriptor import create
from ..functional import functions
from ..layout import TensorDesc
from ..tensors import tensor
from .cases import Measurement
from .timing import interleave

RECORDED = 100
DIFFERENT = 64


def measure_calls(device: Device, seconds: float = 0.2) -> list[Measurement]:
    """One measurement a way of calling; `rate` is in millions of calls a second, and the peers are NumPy's calls.

    `replay` is the whole time of a recorded list of 100 adds divided by 100, the kernels' own time included.
    """
    a, b, o = (np.ones(1, np.float32) for _ in range(3))
    desc = TensorDesc("F32", (1,))
    add = create("add", [desc, desc], device=device)
    sets = cycle(
        [([tensor(a, device=device), tensor(b, device=device)], [tensor(o, device=device)]) for _ in range(DIFFERENT)]
    )
    inputs, outputs = next(sets)
    x, y, z = inputs[0], inputs[1], outputs[0]
    stream = device.stream()
    with stream.capture() as recording:
        for _ in range(RECORDED):
            add.calculate(inputs, outputs, stream=stream)
    eager = functions()["add"]

    def calculate() -> None:
        tensors = next(sets)
        add.calculate(tensors[0], tensors[1])

    def numpy_add() -> None:
        np.add(a, b, out=o)

    bound = add.bind(inputs, outputs)

    # the bare ways are timed as a host writes them, inside a function of one call
    def call_bound() -> None:
        bound()

    times = interleave(
        {
            "bound()": call_bound,
            "calculate, other tensors each time": calculate,
            "replay, per operator of 100": recording.replay,
            "eager isokern.add(a, b, out=o)": lambda: eager(x, y, out=z),
            "np.add(a, b, out=o)": numpy_add,
        },
        seconds,
    )
    device.synchronize()
    times["replay, per operator of 100"] /= RECORDED
    peer = {"np.add(a, b, out=o)": 1e6 * times.pop("np.add(a, b, out=o)")}
    return [
        Measurement("add", device.name, "F32", name, 1e6 * t, 1e-6 / t, "Mcall/s", None, peer)
        for name, t in times.items()
    ]
