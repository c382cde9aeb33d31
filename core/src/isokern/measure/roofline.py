"""What a machine could do at best for given bytes and operations, from limits measured on it: a roofline.

Source: Williams, Waterman, Patterson: Roofline, an insightful visual performance model (2009). Limits are measured as
for `isokern bench`: multiply-adds, and a copy of as many bytes, rounded up to a power of two, so that few are measured.
They are kept for the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..backend import Device
from ..declare.operator import Operator
from ..dtypes import F32, DType
from ..layout import TensorDesc
from .host import limits
from .sizes import bytes_moved
from .timing import interleave

SMALLEST = 1 << 12  # bytes of the smallest copy that is measured: a smaller one would time the call, not the memory
SECONDS = 0.01  # for each way to reach a limit
_rates: dict[tuple[Device, str, int, DType], float | None] = {}


def seconds_at_best(
    device: Device, op: Operator, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]
) -> float | None:
    """Return the least time that the device's limits allow a call; None where no limit is known.

    It is the time for its bytes or for its operations, whichever is longer.
    """
    nbytes = bytes_moved(op, inputs, outputs)
    element = next((d.dtype for d in (*outputs, *inputs) if d is not None and d.dtype.kind == "f"), F32)
    flops = op.flops(inputs, outputs) if op.flops is not None else 0.0
    copying = rate(device, "copy", nbytes, element)
    counting = rate(device, "fma", nbytes, element) if flops else None
    ways = [nbytes / copying] if copying else []
    ways += [flops / counting] if counting else []
    return max(ways, default=None)


def rate(device: Device, kind: str, nbytes: int, element: DType) -> float | None:
    """Return the rate of a limit of the device; None where the device measures none.

    It is in bytes a second for a copy that moves about as many bytes ("copy"), or operations a second ("fma").
    """
    size = max(SMALLEST, 1 << (max(1, nbytes) - 1).bit_length()) if kind == "copy" else SMALLEST
    key = (device, kind, size, element.compute)
    if key not in _rates:
        ways = {str(n): x for n, x in enumerate(limits(device, size, element)) if x.kind == kind}
        stream = device.default_stream
        timers = {name: t for name in ways if (t := device.timer(stream)) is not None}
        times = interleave({name: x.run for name, x in ways.items()}, SECONDS, timers=timers) if ways else {}
        _rates[key] = max((x.work / times[name] for name, x in ways.items()), default=None)
    return _rates[key]
