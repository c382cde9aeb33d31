"""What prepacked constants must be: made once, counted, after earlier work, shared, independent of their source."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np

from ... import tensors
from ...backend import Device, Stream
from ...call.descriptor import Descriptor
from ...declare.operator import Operator
from ...declare.samples import assignments, describe
from ...dtypes import F32
from ...layout import TensorDesc
from ...ops import all_operators, find
from ...oracle.cases import Case, samples
from ...oracle.expected import Problems
from ...status import NotImplementedOnDevice
from ...tensors import Tensor
from .check import fail, lacks, runtime_check
from .work import Floats, make_long_chain, run_in_threads

NEAR = 1e-3  # relative; a packed kernel may add in another order

# Calls that may be given the same constant: the operator, its attributes, and the dims of the other input
SHARING: dict[tuple[int, ...], list[tuple[str, dict[str, Any], tuple[int, ...]]]] = {
    (64, 64): [
        ("matmul", {}, (5, 64)),
        ("linear", {}, (5, 64)),
        ("gemm", {}, (5, 64)),
        ("gemm", {"trans_b": True}, (5, 64)),
        ("matmul_transposed", {}, (5, 64)),
        ("linear_mixed", {}, (5, 64)),
    ],
    (100, 8, 3, 3): [("conv2d", {"groups": groups}, (1, 8 * groups, 9, 9)) for groups in (1, 2, 4)],
}


class ConstantCall:
    """A call of one output in F32, one of whose inputs, `name`, the device takes prepacked."""

    def __init__(
        self, device: Device, descriptor: Descriptor, name: str, plain: Descriptor, arrays: list[Floats]
    ) -> None:
        self.device, self.descriptor, self.name, self.plain = device, descriptor, name, plain
        self.at = [o.name for o in descriptor.operator.signature.inputs].index(name)
        self.constant = arrays[self.at]
        self.inputs: list[Tensor] = [tensors.tensor(a, device=device) for a in arrays]

    def compute(self, descriptor: Descriptor, constant: Tensor, stream: Stream) -> Floats:
        """Make the call and return its result."""
        out = tensors.zeros(descriptor.outputs[0].shape, device=self.device)
        given = [constant if i == self.at else t for i, t in enumerate(self.inputs)]
        descriptor.calculate(given, out, workspace="auto", stream=stream)
        result: Floats = out.numpy()
        return result

    def differs(self, packed: Tensor, stream: Stream, factor: float = 1) -> str:
        """Describe how a call with a prepacked constant differs from one with `factor` times the plain constant."""
        source = tensors.tensor(self.constant * np.float32(factor), device=self.device)
        wanted, got = self.compute(self.plain, source, stream), self.compute(self.descriptor, packed, stream)
        near = np.abs(got - wanted) <= NEAR * np.maximum(np.abs(wanted).max(initial=1), 1)
        return "" if near.all() else f"{self.descriptor.operator.name}: {int((~near).sum())} of {near.size} are wrong"


def _find_call(device: Device) -> ConstantCall:
    return next(_find_calls(device), None) or lacks("no kernel of the device has a packed layout for a constant in F32")


def _find_calls(device: Device) -> Iterator[ConstantCall]:
    for operator in all_operators():
        types = next((t for t in assignments(operator) if set(t.values()) == {F32}), None)
        if operator.constants and types is not None and len(operator.signature.outputs) == 1:
            for sample in (*samples(operator, "small", types), *samples(operator, "wide", types)):
                inputs, _ = describe(operator, sample, types)
                if any(d is None or not d.numel or d.dtype is not F32 for d in inputs):
                    continue
                with suppress(NotImplementedOnDevice):
                    yield from _describe_call(device, operator, Case(operator, tuple(types.values()), sample), inputs)


def _describe_call(
    device: Device, operator: Operator, case: Case, inputs: list[TensorDesc | None]
) -> Iterator[ConstantCall]:
    attrs = case.sample.attrs
    descriptor = Descriptor.of(operator, inputs, device=device, prepacked=operator.constants, **attrs)
    for name in list(descriptor.packed_layouts)[:1]:
        own = Descriptor.of(operator, inputs, device=device, prepacked=[name], **attrs)
        plain = Descriptor.of(operator, inputs, device=device, **attrs)
        arrays = [a for a in Problems().of(case).inputs if a is not None]
        yield ConstantCall(device, own, name, plain, arrays)


@runtime_check()
def prepacks_once(device: Device) -> None:
    """A constant is packed once while it is in use, counted, independent of its source, and freed when dropped."""
    call, cache = _find_call(device), device.prepack_cache
    source = tensors.tensor(call.constant, device=device)
    call.differs(
        call.descriptor.prepack(call.name, source), device.default_stream
    )  # allocates what calls on this stream share
    gc.collect()
    device.synchronize()
    before, live = (cache.packed, cache.nbytes), device.memory.live
    packed = call.descriptor.prepack(call.name, source)
    again = call.descriptor.prepack(call.name, source)
    if again is not packed or cache.packed != before[0] + 1:
        fail(f"a constant was packed {cache.packed - before[0]} times for two requests")
    if cache.nbytes <= before[1]:
        fail("a prepacked constant in use counts no bytes")
    source.copy_from(np.full(source.shape, 9e9, np.float32))
    if wrong := call.differs(packed, device.default_stream):
        fail(f"after its source was overwritten, {wrong}")
    del packed, again
    gc.collect()
    device.synchronize()
    if cache.nbytes != before[1] or device.memory.live > live:
        fail(f"{cache.nbytes - before[1]} bytes of prepacked constants are left after they were dropped")


@runtime_check()
def prepacks_after_earlier_work(device: Device) -> None:
    """The content that is prepacked is the source's after the work that was enqueued before on the stream."""
    call = _find_call(device)
    if not device.supports("neg", T="F32"):
        lacks("the device has no neg in F32")
    chain, stream = make_long_chain(device), device.stream()
    negative = tensors.tensor(-call.constant, device=device)
    negate = Descriptor.of(find("neg"), [negative.desc], device=device)
    source = tensors.zeros(call.constant.shape, device=device)
    workspace = negate.alloc_workspace()
    for _ in range(3):
        source.copy_from(np.zeros(call.constant.shape, np.float32))
        chain.enqueue(stream)
        negate.calculate(negative, source, workspace=workspace, stream=stream)
        packed = call.descriptor.prepack(call.name, source, stream=stream)
        if wrong := call.differs(packed, stream):
            fail(f"prepacked behind the work that makes the constant: {wrong}")
        del packed


@runtime_check()
def shares_by_layout(device: Device) -> None:
    """Where calls name the same layout of a constant, each computes with what any of them has packed."""
    found = False
    for shape, calls in SHARING.items():
        random = np.random.default_rng(7)
        constant = random.standard_normal(shape, np.float32)
        source, kept = tensors.tensor(constant, device=device), list[Tensor]()
        for name, attrs, other in calls:
            operator = find(name)
            inputs = [TensorDesc(F32, other), source.desc]
            with suppress(NotImplementedOnDevice):
                plain = Descriptor.of(operator, inputs, device=device, **attrs)
                own = Descriptor.of(operator, inputs, device=device, prepacked=operator.constants, **attrs)
                for packs in own.packed_layouts:
                    arrays = [random.standard_normal(other, np.float32), constant]
                    kept.append(own.prepack(packs, source))
                    call = ConstantCall(device, own, packs, plain, arrays)
                    if wrong := call.differs(kept[-1], device.default_stream):
                        fail(f"{wrong} with {attrs or 'no attributes'}, by what may be packed for another call")
                    found = True
    if not found:
        lacks("no kernel of the device has a packed layout for a constant in F32")


@runtime_check()
def prepacks_in_threads(device: Device) -> None:
    """Eight threads prepack constants of their own at once and compute with them."""
    call = _find_call(device)

    def compute(number: int) -> str:
        stream = device.stream()
        for turn in range(6):
            factor = number + 1 + turn / 8
            source = tensors.tensor(call.constant * np.float32(factor), device=device)
            packed = call.descriptor.prepack(call.name, source, stream=stream)
            if wrong := call.differs(packed, stream, factor):
                return f"thread {number}, turn {turn}: {wrong}"
        return ""

    run_in_threads(compute)
