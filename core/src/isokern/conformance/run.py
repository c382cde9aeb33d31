"""A case run through the public descriptor API alone: create → workspace_size → calculate.

The checks, in order:

- create: typed errors, and honest claims
- a workspace that is one byte too small is refused, and nothing is written
- results, with outputs and gaps poisoned and guards around every tensor and the workspace; inputs unchanged
- the same descriptor with other buffers gives the same bits, while the first buffers hold rubbish and another
  descriptor has been created; the first buffers stay untouched
- if the kernel has a packed layout for a constant input, a call with that input prepacked and its source overwritten

A call that the device has no kernel for is decomposed, if the policy ISOKERN_ON_MISSING allows it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from ..backend import ALIGNMENT, Buffer, Device, HostMemory, Workspace
from ..backend.dispatch import refusal, say_parts
from ..backend.register import describe, trace_of
from ..call.descriptor import Descriptor
from ..declare.samples import describe as describe_sample, first_sample
from ..dtypes import DType
from ..layout import TensorDesc
from ..oracle.cases import Case
from ..oracle.expected import Judged, Problem, Problems, can_broadcast, judge, keeps_bits
from ..oracle.layouts import FAR_GUARD, GUARD, Array, arrangements, elements, outside, place, windows
from ..oracle.verdicts import Failure, Outcome, Verdict
from ..status import InsufficientWorkspace, InvalidArgument, IsokernError, NotImplementedOnDevice
from ..tensors import Tensor
from .answers import check_claim, check_error
from .environment import guard_environment
from .fenced_memory import alloc_fenced
from .fenced_workspace import FencedWorkspace

# NaN in every float dtype; then an ordinary number, so that unwritten elements and misplaced reads give other results
POISONS = (0xFF, 0x5A)
RUBBISH = 0xC3

Placement = tuple[str, TensorDesc, int]  # label, description, bytes of its buffer
Observe = Callable[[Case, Array, Array, DType], object]


@dataclass(eq=False)
class PlacedTensor:
    """One tensor in memory; `raw` is the content of its whole buffer, guards included."""

    label: str
    tensor: Tensor
    raw: Array

    def find_changes(self, written: bool) -> str:
        """Describe writes to forbidden bytes: outside the elements of an output, anywhere in an input."""
        now = self.tensor.buffer.read()
        changed = now != self.raw
        if written:
            changed &= outside(self.tensor.desc, now.size)
        if not changed.any():
            return ""
        at = int(np.argmax(changed))
        low, high = self.tensor.desc.byte_range
        if at < low:
            where = f"byte {low - at} before its first element"
        elif at >= high:
            where = f"byte {at - high + 1} past its last element"
        else:
            where = f"byte {at - low} of its span" + (", in a gap" if written else "")
        return f"{int(changed.sum())} bytes of {self.label} were overwritten, the first {where}"


class Runner:
    """Runs cases on one device.

    `on_missing` is the policy for calls that no variant takes. `observe` gets each right result of an operator that
    rounds: case, result, expected result and dtype.
    """

    def __init__(self, device: Device, *, on_missing: str | None = None, observe: Observe | None = None) -> None:
        self.device, self.on_missing, self.observe = device, on_missing, observe
        self.made_of: tuple[str, ...] = ()  # the operators that the calls of the running case are decomposed into
        self.guard = GUARD if isinstance(device.memory, HostMemory) else FAR_GUARD
        self.problems = Problems(subnormal="flushes_denormals" not in device.conditions)

    def run(self, case: Case) -> Outcome:
        """Return the outcome of a case; nothing that a backend does raises."""
        from ..simt.selftest import suspend  # not at the top: devices without portable kernels do not need it

        self.made_of = ()
        try:
            attempt = {"error": self._error, "claim": self._claim}.get(case.values, self._call_case)
            with suspend():  # a self-test would hide a wrong kernel
                judged = attempt(case)
        except Failure as failure:
            detail = f"{say_parts(self.made_of)}: {failure.detail}" if self.made_of else failure.detail
            return judge_failure(case.id, self.device.name, failure, detail)
        except (Exception, SystemExit) as error:  # whatever a backend's code raises is its failure, not the suite's
            return blame(case.id, self.device.name, error)
        verdict, detail = (Verdict.LOWERED, say_parts(self.made_of)) if self.made_of else (Verdict.PASS, "")
        return Outcome(
            case.id,
            self.device.name,
            verdict,
            detail,
            judged.error,
            judged.share,
            ulps=judged.ulps,
            made_of=tuple(dict.fromkeys(self.made_of)),
        )

    def _error(self, case: Case) -> Judged:
        check_error(self.device, case)
        return Judged()

    def _claim(self, case: Case) -> Judged:
        """Check what the device claims to have kernels for; of what it refuses, the first sample may be lowered."""
        from ..runtime.lowered import decompose, find_fallback  # not at the top: see `_describe`

        try:
            check_claim(self.device, case)
        except Failure as failure:
            lowers = find_fallback(case.operator, self.on_missing) is not None
            if failure.verdict is not Verdict.UNSUPPORTED or not lowers:
                raise
            inputs, outputs = describe_sample(case.operator, case.sample, case.bound_types)
            resolved = case.operator.resolve(inputs, outputs, case.sample.attrs)
            try:
                self.made_of = tuple(op.kind for op in decompose(self.device, resolved).ops)
            except NotImplementedOnDevice as lacking:
                raise Failure(Verdict.UNSUPPORTED, f"{failure.detail}; lowered: {lacking.problem}") from None
        return Judged()

    def _describe(
        self,
        case: Case,
        inputs: Sequence[TensorDesc | None],
        outputs: Sequence[TensorDesc],
        prepacked: Sequence[str] = (),
    ) -> Descriptor:
        """Return the descriptor of a call, decomposed if the device has no kernel for it."""
        from ..runtime.lowered import find_fallback  # not at the top: cases with a kernel do not run through it

        descriptor = Descriptor.of(
            case.operator,
            inputs,
            outputs,
            device=self.device,
            variant=case.variant or None,
            prepacked=prepacked,
            fallback=find_fallback(case.operator, self.on_missing, case.variant or None),
            **case.sample.attrs,
        )
        if descriptor.made_of:
            self.made_of = descriptor.made_of
            _check_reasons(refusal(self.device, case.operator.stem, descriptor.considered[:-1]))
        return descriptor

    # Calls

    def _call_case(self, case: Case) -> Judged:
        try:
            problem = self.problems.of(case)
        except Exception as error:
            raise Failure(
                Verdict.FAIL_ERROR, f"the declaration has no result for it: {type(error).__name__}: {error}"
            ) from error
        placements = _placements(case, problem, self.guard)
        descriptor = self._create(case, placements)
        first = self._place(case, problem, placements, POISONS[0])
        self._refuse_less(descriptor, first)
        self._call(case, descriptor, first, POISONS[0])
        results = self._inspect(case, first)
        judged = self._judge(case, problem, results, placements)

        for placed in _each(first):
            placed.raw = np.full_like(placed.raw, RUBBISH)
            placed.tensor.buffer.write(placed.raw)
        other = self._another(case)
        second = self._place(case, problem, placements, POISONS[1])
        self._call(case, descriptor, second, POISONS[1])
        del other
        again = self._inspect(case, second)
        for a, b in zip(results, again, strict=True):
            differ = int((_bits(a) != _bits(b)).sum())
            if differ and "nondeterministic" in self.device.conditions:
                self._judge(case, problem, again, placements)
            elif differ:
                raise Failure(
                    Verdict.FAIL_VALUE,
                    f"a second call, with other buffers of the same content, gave other bits: {differ} of {a.size}"
                    " differ",
                )
        for placed in _each(first):
            if found := placed.find_changes(written=False):
                raise Failure(
                    Verdict.FAIL_MEMORY, f"a call with other buffers wrote to those of the call before it: {found}"
                )
        if case.operator.constants:
            judged = judged.join(self._call_prepacked(case, problem, placements))
        return judged

    def _call_prepacked(self, case: Case, problem: Problem, placements: Sequence[Placement | None]) -> Judged:
        """Run the case again with its constants prepacked, if the kernel has packed layouts for them."""
        descriptor = self._create(case, placements, case.operator.constants)
        if not descriptor.packed_layouts:
            return Judged()
        placed = self._place(case, problem, placements, POISONS[0])
        count = len(case.operator.signature.outputs)
        order = [o.name for o in case.operator.signature.inputs]
        for name, layout in descriptor.packed_layouts.items():
            at = count + order.index(name)
            given = placed[at]
            assert given is not None
            room = FencedWorkspace(self.device.memory, Workspace(layout.nbytes), POISONS[0], roomy=True)
            packed = descriptor.prepack(name, given.tensor, into=room.buffer)
            if overrun := room.count_overrun():
                raise Failure(
                    Verdict.FAIL_MEMORY, f"prepacking {name} overwrote {overrun} bytes outside its {layout.nbytes}"
                )
            if found := given.find_changes(written=False):
                raise Failure(Verdict.FAIL_MEMORY, f"prepacking it changed its source: {found}")
            given.tensor.buffer.write(np.full_like(given.raw, RUBBISH))
            placed[at] = PlacedTensor(name, packed, packed.buffer.read())
        self._call(case, descriptor, placed, POISONS[0])
        return self._judge(case, problem, self._inspect(case, placed), placements)

    def _create(self, case: Case, placements: Sequence[Placement | None], prepacked: Sequence[str] = ()) -> Descriptor:
        """Return the descriptor, created from temporary descriptions that no longer exist when it is used."""
        count = len(case.operator.signature.outputs)
        descs = [
            None if row is None else TensorDesc(row[1].dtype, row[1].shape, row[1].strides, row[1].offset)
            for row in placements
        ]
        outputs = [d for d in descs[:count] if d is not None]
        try:
            return self._describe(case, descs[count:], outputs, prepacked)
        except NotImplementedOnDevice as refused:
            _check_reasons(refused.hint)
            reasons = [r for r in refused.hint.split("; ") if not r.endswith("was asked for")]
            raise Failure(Verdict.UNSUPPORTED, "; ".join(reasons)) from None

    def _another(self, case: Case) -> Descriptor | None:
        """Return another descriptor of the operator; neither descriptor may affect the other.

        It is for dense tensors of the shapes of the first small sample, so that all cases of the same dtypes compile
        one. A call composed of others gets none: its kernels are those of its parts, which are judged with one each.
        """
        if self.made_of:
            return None
        sample = first_sample(case.operator, case.bound_types)
        given, wanted = describe_sample(case.operator, sample, case.bound_types)
        outputs = [TensorDesc(d.dtype, d.shape, None, 5 * d.dtype.block) for d in wanted]
        inputs = [None if d is None else TensorDesc(d.dtype, d.shape, None, 7 * d.dtype.block) for d in given]
        with suppress(NotImplementedOnDevice):
            return Descriptor.of(
                case.operator, inputs, outputs, device=self.device, variant=case.variant or None, **sample.attrs
            )
        return None

    def _place(
        self, case: Case, problem: Problem, placements: Sequence[Placement | None], poison: int
    ) -> list[PlacedTensor | None]:
        """Put every tensor into its own buffer with guards, or onto an input's buffer if the case is in place.

        Outputs are poisoned. The tensors of the second call are between fences if the device computes in host
        memory: a write beyond the guards, or a read after an exact input, ends the process in this case, and not in a
        later one whose memory it damaged. Memory of a device's own cannot be fenced so: there the guards reach further.
        """
        fenced = poison == POISONS[1] and isinstance(self.device.memory, HostMemory)
        contents = [*(b if case.operator.inout else None for b in problem.before), *problem.inputs]
        result: list[PlacedTensor | None] = []
        for row, content in zip(placements, contents, strict=True):
            if row is None:
                result.append(None)
                continue
            label, desc, nbytes = row
            home = result[0] if case.alias == label else None  # outputs come first
            array = alloc_fenced(nbytes) if fenced and home is None else None
            if home is not None:
                buffer = home.tensor.buffer
            elif array is not None:
                buffer = self.device.memory.wrap(array, desc.dtype)
            else:
                buffer = self.device.memory.alloc(nbytes, desc.dtype, empty=True)
                if buffer.address % ALIGNMENT:
                    where = f"memory.alloc gave address {buffer.address:#x}, which is not a multiple of {ALIGNMENT}"
                    raise Failure(Verdict.FAIL_MEMORY, f"{where}: the backend's allocate_buffer has to align")
            raw = np.full(nbytes, poison, np.uint8) if home is None else home.raw
            if content is not None:
                elements(raw, desc)[...] = content
            result.append(PlacedTensor(label, Tensor(desc, buffer), raw))
        for placed in _each(result):
            placed.tensor.buffer.write(placed.raw)
        return result

    def _call(self, case: Case, descriptor: Descriptor, placed: Sequence[PlacedTensor | None], poison: int) -> None:
        """Make one call with exactly the workspace that was asked for."""
        scratch = (
            FencedWorkspace(self.device.memory, descriptor.workspace, poison, poison == POISONS[1])
            if descriptor.workspace_size
            else None
        )
        wrong_index = case.values == "out_of_range"
        try:
            with guard_environment("a call"):
                _calculate(descriptor, placed, None if scratch is None else scratch.buffer)
                self.device.synchronize()
        except NotImplementedOnDevice as refused:
            raise Failure(Verdict.FAIL_CLAIM, f"accepted at create and refused at calculate: {refused}") from None
        except InvalidArgument as error:
            if not wrong_index:
                raise Failure(Verdict.FAIL_ERROR, f"InvalidArgument: {error}") from None
        else:
            if wrong_index:
                raise Failure(
                    Verdict.FAIL_ERROR,
                    "an index out of range raised no InvalidArgument, neither at calculate nor at synchronize",
                )
        if scratch is not None and (overrun := scratch.count_overrun()):
            raise Failure(
                Verdict.FAIL_MEMORY, f"{overrun} bytes outside the workspace of {scratch.size} bytes were overwritten"
            )

    def _refuse_less(self, descriptor: Descriptor, placed: Sequence[PlacedTensor | None]) -> None:
        """Check that a workspace one byte too small is InsufficientWorkspace, and that nothing is written."""
        need = descriptor.workspace
        if not need.size:
            return
        scratch = FencedWorkspace(
            self.device.memory, Workspace(need.size - 1, need.alignment, need.kind), POISONS[0], roomy=False
        )
        try:
            _calculate(descriptor, placed, scratch.buffer)
            self.device.synchronize()
        except InsufficientWorkspace:
            if found := next((f for p in _each(placed) if (f := p.find_changes(written=False))), ""):
                raise Failure(Verdict.FAIL_MEMORY, f"refused for its workspace, and yet {found}") from None
        else:
            raise Failure(
                Verdict.FAIL_ERROR, f"a workspace of {need.size - 1} bytes was taken, where {need.size} are needed"
            )

    def _inspect(self, case: Case, placed: Sequence[PlacedTensor | None]) -> list[Array]:
        """Return the content of the outputs, after checking that nothing else changed."""
        count = len(case.operator.signature.outputs)
        results = []
        for position, p in enumerate(placed):
            if p is None or (position >= count and p.label == case.alias):
                continue
            if found := p.find_changes(written=position < count):
                raise Failure(Verdict.FAIL_MEMORY, found)
            if position < count:
                results.append(elements(p.tensor.buffer.read(), p.tensor.desc).copy())
        return results

    def _judge(
        self, case: Case, problem: Problem, results: Sequence[Array], placements: Sequence[Placement | None]
    ) -> Judged:
        """Return the worst of all outputs, or raise the failure of the first that is wrong."""
        op = case.operator
        flushes = "flushes_denormals" in self.device.conditions
        worst = Judged()
        for i, (got, operand) in enumerate(zip(results, op.signature.outputs, strict=True)):
            judged = judge(got, problem, i, strict_nan=keeps_bits(op), flushes=flushes)
            if judged.wrong:
                where = _describe_element(problem, judged.at, results[i].shape, placements)
                raise Failure(
                    Verdict.FAIL_VALUE, f"{operand.name}: {judged.wrong}; {where}", judged.error, judged.share
                )
            if self.observe is not None and problem.intervals[i] is not None and problem.outputs[i].dtype.kind == "f":
                self.observe(case, got, problem.expected[i], problem.outputs[i].dtype)
            worst = worst.join(judged)
        return worst


def _describe_element(
    problem: Problem, at: tuple[int, ...], shape: Sequence[int], placements: Sequence[Placement | None]
) -> str:
    """Return the layout of every tensor, and the inputs that have an element at the index of a wrong result."""
    found = [f"{label} has strides {list(d.strides)}" for label, d, _ in (p for p in placements if p is not None)]
    for slot, array in zip(problem.slots, problem.inputs, strict=True):
        if array is not None and slot.dtype.block == 1 and can_broadcast(array.shape, shape):
            found.append(f"{slot.label} there is {np.broadcast_to(array, shape)[at]}")
    return ", ".join(found)


def blame(id_: str, device: str, error: BaseException) -> Outcome:
    """Return the outcome of a case in which the backend's Python raised an error, with its traceback."""
    text = describe(error)
    detail = f"{type(error).__name__}: {text}" if isinstance(error, IsokernError) else text
    return Outcome(id_, device, Verdict.FAIL_ERROR, detail, trace=trace_of(error))


def judge_failure(id_: str, device: str, failure: Failure, detail: str) -> Outcome:
    """Return the outcome of a case that failed, with where the backend's Python raised the error that it failed by."""
    trace = "" if failure.__cause__ is None else trace_of(failure.__cause__)
    return Outcome(id_, device, failure.verdict, detail, failure.error, failure.share, trace)


def _check_reasons(refused: str) -> None:
    """Check that each variant that does not take a call says why."""
    if not refused.strip() or re.search(r":\s*(;|$)", refused):
        raise Failure(Verdict.FAIL_CLAIM, f"refused without a reason: {refused}")


def _calculate(descriptor: Descriptor, placed: Sequence[PlacedTensor | None], workspace: Buffer | None) -> None:
    count = len(descriptor.outputs)
    outputs = [p.tensor for p in placed[:count] if p is not None]
    descriptor.calculate([None if p is None else p.tensor for p in placed[count:]], outputs, workspace=workspace)


def _each(placed: Sequence[PlacedTensor | None]) -> list[PlacedTensor]:
    return [p for p in placed if p is not None]


def _bits(array: Array) -> Array:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _placements(case: Case, problem: Problem, guard: int) -> list[Placement | None]:
    """Return the placement of each output, then of each input."""
    tensors = [
        (o.name, d.dtype, d.shape) for o, d in zip(case.operator.signature.outputs, problem.outputs, strict=True)
    ]
    tensors += [(s.label, s.dtype, s.shape) for s in problem.slots]  # type: ignore[misc]  # an absent one has no shape
    kinds = arrangements(case.layout, len(problem.outputs), len(problem.slots))
    if case.alias and case.operator.inout:
        return _one_run(tensors, case.layout, kinds[0], guard)
    return [
        None if shape is None else (label, *place(kind, dtype, shape, guard))
        for (label, dtype, shape), kind in zip(tensors, kinds, strict=True)
    ]


def _one_run(
    tensors: Sequence[tuple[str, DType, tuple[int, ...] | None]], layout: str, kind: str, guard: int
) -> list[Placement | None]:
    """Return the placements of an output that updates its old content and an input that overlaps it, in one run."""
    (out, dtype, m), (label, _, n) = tensors
    assert m is not None and n is not None
    x, y, length = windows(layout, n[0], m[0])
    run, nbytes = place(kind, dtype, (length,), guard)
    (step,) = run.strides
    return [
        (name, TensorDesc(dtype, (len(part),), (part.step * step,), run.offset + part.start * step), nbytes)
        for name, part in ((out, y), (label, x))
    ]
