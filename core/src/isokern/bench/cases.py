"""One measured case: a sample of an operator in one dtype on one device, with peers and the machine's limit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend import Device, Peer, Timer
from ..declare.operator import Operator, Sample
from ..declare.samples import describe
from ..dtypes import DType
from ..eager.create import create
from ..layout import TensorDesc
from ..measure.host import limits
from ..measure.sizes import bytes_moved, types_for
from ..measure.timing import Call, Clock, in_turn, interleave
from ..oracle.values import SHAPED, draw, generator
from ..runtime.lowered import LoweredKernel
from ..tensors import Tensor, empty, tensor, zeros
from .agreement import check
from .peers import NumPy

BLAS_REST = 0.03  # seconds after which OpenBLAS's waiting threads no longer spin
COLD = 4  # times the last-level cache: the memory used between two uses of an operand that has to come from memory
POISON = 0x5A  # in every byte of an output before a peer writes to it


@dataclass(frozen=True)
class Measurement:
    """The times of one case.

    `time_us` is the time of a call, `rate` is in `rate_unit`, `share_of_limit` is the rate's share of the limit
    measured in the same run (None where there is none), and `peers` are the peers' times in µs. `left_out` says why
    each peer that was not timed was not: the error that it raised, or that its result is another. A peer without such a
    call is in neither. `made_of` names the operators that ran where the device has no kernel for the call.
    """

    op: str
    device: str
    dtype: str
    case: str
    time_us: float
    rate: float
    rate_unit: str
    share_of_limit: float | None
    peers: dict[str, float]
    left_out: dict[str, str]
    made_of: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class PlacedCase:
    """The case on a device, in memory of its own; `call` enqueues it."""

    call: Callable[[], None]
    inputs: list[Tensor | None]
    outputs: list[Tensor]


PREPACKED, LOWERED = "prepacked", "lowered"  # keys beside the names of devices and libraries


def measure(
    device: Device,
    op: Operator,
    sample: Sample,
    element: DType,
    seconds: float = 0.05,
    against: Sequence[Device] = (),
    peers: Sequence[Peer] = (),
    clock: Clock = time.perf_counter,
    lowered: bool = False,
) -> Measurement:
    """Time the case, and the same on the devices `against`; NotImplementedOnDevice where a device refuses it.

    With `lowered`, a call that the device has a kernel for is timed beside the same made of other operators.

    The peers are those given, else the device's own, else NumPy. `clock` is the host's, as for `interleave`.

    On a device with a timer, large and huge samples run on several copies of the operands in turn, as many as keep them
    out of the device's last-level cache. Where the kernel has packed layouts for constants, the call with those
    prepacked is timed too.
    """
    descs, outs = describe(op, sample, types_for(op, element))
    values = [None if d is None else (d, _values(d, _domain(op, sample, i))) for i, d in enumerate(descs)]
    nbytes = bytes_moved(op, descs, outs)
    timer = device.timer(device.default_stream)
    copies = 1
    if timer is not None and sample.size in ("large", "huge"):
        copies = max(1, math.ceil(COLD * device.cache / max(1, nbytes)))
    places = [_place(device, op, sample, values, outs) for _ in range(copies)]

    contraction = op.family == "contraction" and op.flops is not None
    work = op.flops(descs, outs) if contraction and op.flops is not None else float(nbytes)
    kind = "fma" if contraction else "copy"
    found = [x for x in limits(device, copies * nbytes, element) if x.kind == kind]
    ways = {f"limit {i}": x.run for i, x in enumerate(found)}
    others = {d.name: _place(d, op, sample, values, outs).call for d in against}
    described = create(op, descs, outs, device=device, prepacked=op.constants, **sample.attrs)
    if described.packed_layouts:
        others[PREPACKED] = _place(device, op, sample, values, outs, op.constants).call
    if lowered and op.decompose is not None and not described.made_of:
        others[LOWERED] = _bind_lowered(places[0], op, sample)

    calls: dict[str, Call] = {"isokern": _time(device, in_turn([p.call for p in places]), timer)}
    timers = {} if timer is None else {"isokern": timer, **_timers(device, ways)}
    for name, d in {**{d.name: d for d in against}, PREPACKED: device, LOWERED: device}.items():
        if name in others:
            of_other = d.timer(d.default_stream)
            calls[name] = _time(d, others[name], of_other)
            timers |= {} if of_other is None else {name: of_other}
    with ExitStack() as stack, np.errstate(all="ignore"):
        own = device.peers()
        beside, left_out = _peers(peers or own or [NumPy()], op, sample, places, stack)
        calls |= beside
        timers |= _timers(device, beside) if own else {}
        pause = BLAS_REST if contraction and beside and timer is None else 0.0
        times = interleave(calls | ways, seconds, pause, timers, clock)
        device.synchronize()

    best = max((x.work / times[f"limit {i}"] for i, x in enumerate(found)), default=None)
    rate = work / times["isokern"]
    return Measurement(
        op.name,
        device.name,
        element.name,
        sample.text,
        1e6 * times["isokern"],
        rate / 1e9,
        "GFLOP/s" if contraction else "GB/s",
        None if best is None or not best else rate / best,
        {name: 1e6 * times[name] for name in (*others, *beside)},
        left_out,
        described.made_of,
    )


def _bind_lowered(place: PlacedCase, op: Operator, sample: Sample) -> Callable[[], None]:
    """Return the call of a placed case, made of other operators although the device has a kernel for it."""
    device = place.outputs[0].device
    inputs = [None if t is None else t.desc for t in place.inputs]
    kernel = LoweredKernel(device, op.resolve(inputs, [t.desc for t in place.outputs], sample.attrs))
    need = kernel.workspace
    space = device.memory.alloc(need.size, alignment=need.alignment, empty=True) if need.size else None
    handles = [None if t is None else t.buffer.handle for t in (*place.outputs, *place.inputs)]
    owned = (place, space)
    return kernel.bind(handles, None if space is None else space.handle, need.size, device.default_stream, owned)


def _place(
    device: Device,
    op: Operator,
    sample: Sample,
    values: Sequence[tuple[TensorDesc, np.ndarray[Any, Any]] | None],
    outs: Sequence[TensorDesc],
    prepacked: Sequence[str] = (),
) -> PlacedCase:
    inputs = [None if v is None else _tensor(*v, device) for v in values]
    made = zeros if op.inout else empty
    outputs = [made(d.shape, d.dtype, device=device) for d in outs]
    descs = [None if t is None else t.desc for t in inputs]
    descriptor = create(op, descs, [t.desc for t in outputs], device=device, prepacked=prepacked, **sample.attrs)
    order = [o.name for o in op.signature.inputs]
    for at in map(order.index, descriptor.packed_layouts):
        given = inputs[at]
        inputs[at] = None if given is None else descriptor.prepack(order[at], given)
    call = descriptor.bind(inputs, outputs, workspace=descriptor.alloc_workspace(), stream=device.default_stream)
    return PlacedCase(call, inputs, outputs)


def _time(device: Device, call: Call, timer: Timer | None) -> Call:
    """Return the call as its clock needs it: for the host's clock, one that returns when the work is done."""
    if timer is not None or not device.asynchronous:
        return call

    def run_and_wait() -> None:
        call()
        device.synchronize()

    return run_and_wait


def _timers(device: Device, names: Mapping[str, Call]) -> dict[str, Timer]:
    found = {name: device.timer(device.default_stream) for name in names}
    return {name: timer for name, timer in found.items() if timer is not None}


def _peers(
    peers: Sequence[Peer], op: Operator, sample: Sample, places: Sequence[PlacedCase], stack: ExitStack
) -> tuple[dict[str, Call], dict[str, str]]:
    """Return the calls of the peers that compute what Isokern does, on its memory, and why others are left out."""
    calls: dict[str, Call] = {}
    left_out: dict[str, str] = {}
    first, device = places[0], places[0].outputs[0].device
    if len(first.outputs) != 1:
        return calls, left_out
    first.call()
    wanted = first.outputs[0].numpy().copy()
    attrs = op.attrs.check(op.name, sample.attrs)
    for peer in peers:
        try:
            stack.enter_context(peer.on(device.default_stream))
            found = []
            for place in places:
                if not op.inout:
                    place.outputs[0].buffer.write(np.full(place.outputs[0].buffer.nbytes, POISON, np.uint8))
                made = peer.make(op, [t for t in place.inputs if t is not None], place.outputs[0], attrs)
                if made is None:
                    break
                check(made[1], wanted)
                found.append(made[0])
            if len(found) == len(places):
                calls[peer.name] = in_turn(found)
        except Exception as error:  # an error of another library does not stop the measurement
            left_out[peer.name] = f"{type(error).__name__}: {error}"
    return calls, left_out


def _domain(op: Operator, sample: Sample, position: int) -> str:
    names = op.operand_names(max(position + 1, len(op.signature.inputs)))
    name = names[position]
    return sample.values.get(name) or op.domains.get(name, "any")


def _values(desc: TensorDesc, domain: str) -> np.ndarray[Any, Any]:
    """Draw values of the domain, raw blocks for block types, the same in every run.

    A large tensor repeats a run of them, unless the domain is one of matrices or of their rows.
    """
    size = desc.shape if domain in SHAPED else (min(desc.numel, 1 << 16),)
    plain = draw(domain, desc.dtype, size, generator(domain))
    return np.resize(plain, desc.raw.shape if desc.dtype.block > 1 else desc.shape)


def _tensor(desc: TensorDesc, values: np.ndarray[Any, Any], device: Device) -> Tensor:
    if desc.dtype.block == 1:
        return tensor(values, device=device)
    blocks = empty(desc.shape, desc.dtype, device=device)
    blocks.raw.copy_from(values)
    return blocks
