"""One measured case: a sample of an operator in one dtype on one device, beside NumPy and the machine's limit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend import Device
from ..buffer import Buffer
from ..conformance.cases import sample_text
from ..conformance.values import draw, generator
from ..descriptor import create
from ..dtypes import DType
from ..layout import TensorDesc
from ..ops import Operator, Sample
from ..support import describe, principal
from ..tensors import Tensor, empty, tensor
from .host import limits
from .peers import numpy_call
from .timing import interleave

SIZES = ("small", "medium", "large")
BLAS_REST = 0.03  # seconds after which OpenBLAS's waiting threads no longer spin


@dataclass(frozen=True)
class Measurement:
    """`time_us` a call; `rate` in `rate_unit`; its share of the limit measured beside it (None where there is none); peers' time_us."""

    op: str
    device: str
    dtype: str
    case: str
    time_us: float
    rate: float
    rate_unit: str
    share_of_limit: float | None
    peers: dict[str, float]


def samples(op: Operator, size: str) -> list[Sample]:
    """The samples of that size that are worth timing: of the small ones, which are mostly corner cases, the largest."""
    found = [s for s in op.samples() if s.size == size]
    if size != "small" or not found:
        return found
    types = {name: allowed[0] for name, allowed in op.signature.types.items()}
    return [max(found, key=lambda s: sum(d.nbytes for d in _present(*describe(op, s, types))))]


def types_for(op: Operator, element: DType) -> dict[str, DType]:
    """`element` for the principal type variable; every other one takes the first of its dtypes that is another."""
    name, _ = principal(op)
    others = {
        n: next((d for d in allowed if d is not element), allowed[0]) for n, allowed in op.signature.types.items()
    }
    return {**others, name: element}


def measure(
    device: Device,
    op: Operator,
    sample: Sample,
    element: DType,
    seconds: float = 0.05,
    against: Sequence[Device] = (),
) -> Measurement:
    """Time the case, and the same on the devices `against`. Raises NotImplementedOnDevice where a device refuses it."""
    descs, outs = describe(op, sample, types_for(op, element))
    arrays = [None if d is None else _values(d, _domain(op, sample, i)) for i, d in enumerate(descs)]
    ours, *others = [_call(d, op, sample, arrays, outs) for d in (device, *against)]
    numpy_out = np.zeros(outs[0].shape, outs[0].dtype.numpy)
    given = [a for a in arrays if a is not None]
    peer = numpy_call(op, given, numpy_out, op.attrs.check(op.name, sample.attrs)) if len(outs) == 1 else None

    contraction = op.family == "contraction" and op.flops is not None
    work = op.flops(descs, outs) if contraction and op.flops is not None else float(moved(op, descs, outs))
    kind = "fma" if contraction else "copy"
    found = [x for x in limits(device, int(moved(op, descs, outs)), element.compute) if x.kind == kind]
    calls: dict[str, Callable[[], object]] = {"isokern": ours}
    rivals: dict[str, Callable[[], object]] = {d.name: call for d, call in zip(against, others, strict=True)}
    rivals |= {} if peer is None else {"numpy": peer}
    calls |= rivals
    calls |= {f"limit {i}": x.run for i, x in enumerate(found)}
    with np.errstate(all="ignore"):
        times = interleave(calls, seconds, BLAS_REST if contraction and peer is not None else 0.0)

    best = max((x.work / times[f"limit {i}"] for i, x in enumerate(found)), default=None)
    rate = work / times["isokern"]
    return Measurement(
        op.name,
        device.name,
        element.name,
        sample_text(sample),
        1e6 * times["isokern"],
        rate / 1e9,
        "GFLOP/s" if contraction else "GB/s",
        None if best is None or not best else rate / best,
        {name: 1e6 * times[name] for name in rivals},
    )


def moved(op: Operator, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> int:
    """Bytes that a call has to read and write: all operands, but of what is moved about no more than arrives."""
    written = sum(d.nbytes for d in outputs)
    read = [d.nbytes for d in inputs if d is not None]
    return written + sum(min(n, written) if op.family == "movement" else n for n in read)


def _call(
    device: Device,
    op: Operator,
    sample: Sample,
    arrays: Sequence[np.ndarray[Any, Any] | None],
    outs: Sequence[TensorDesc],
) -> Callable[[], None]:
    """The case on a device, on memory of its own; it returns when the work is done."""
    inputs: list[Tensor | None] = [None if a is None else tensor(a, device=device) for a in arrays]
    outputs = [empty(d.shape, d.dtype, device=device) for d in outs]
    descs = [None if t is None else t.desc for t in inputs]
    descriptor = create(op, descs, [t.desc for t in outputs], device=device, **sample.attrs)
    need = descriptor.workspace
    workspace: Buffer | None = None
    if need.size:
        workspace = device.memory.alloc(need.size, kind=need.kind, alignment=need.alignment, empty=True)
    call = descriptor.bind(inputs, outputs, workspace=workspace)
    if not device.asynchronous:
        return call

    def waited() -> None:
        call()
        device.synchronize()

    return waited


def _present(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> list[TensorDesc]:
    return [d for d in (*inputs, *outputs) if d is not None]


def _domain(op: Operator, sample: Sample, position: int) -> str:
    operands = op.signature.inputs
    name = operands[position].name if position < len(operands) and not operands[0].variadic else operands[0].name
    return sample.values.get(name) or op.domains.get(name, "any")


def _values(desc: TensorDesc, domain: str) -> np.ndarray[Any, Any]:
    """Plain values of the domain, the same in every run; a large tensor repeats a run of them."""
    plain = draw(domain, desc.dtype, (min(desc.numel, 1 << 16),), generator(domain))
    return np.resize(plain, desc.shape)
