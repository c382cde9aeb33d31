"""The known-answer test of a kernel variant.

On a variant's first use for an operator and dtypes, it computes a sample, which is compared with the operator's
reference. A variant that a driver miscompiles is disabled, with a warning, and dispatch goes on to the next one.

The verdict is kept in the disk cache of the backend's programs, by driver and by all that the kernels of the sample are
compiled from.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import settings
from ..backend import Buffer, Declined
from ..cabi.plan import Plan
from ..declare.operator import Resolved, Sample
from ..declare.samples import describe, fits
from ..disk_cache import DiskCache
from ..dtypes import DType, wider
from ..layout import TensorDesc
from ..process.forks import own_lock
from ..status import DeviceNotAvailable, InternalError, InvalidArgument, IsokernError, OutOfMemory
from . import source
from .kernel import Launcher, SimtKernel
from .launch_block import launches
from .traits import Folder

SETTING = "ISOKERN_SIMT_SELFTEST"
PASSED = b"passed"
UNTRIED = b"no sample is taken"
POISON = 0xA5
ENOUGH = 512
Chosen = tuple[Sample, dict[str, DType], Resolved]
_suspended = 0


@contextmanager
def suspend() -> Iterator[None]:
    """Suspend self-tests: code that judges kernels by other means has to see what a self-test would hide."""
    global _suspended
    _suspended += 1
    try:
        yield
    finally:
        _suspended -= 1


def is_enabled() -> bool:
    """Return the setting ISOKERN_SIMT_SELFTEST, checked; False while self-tests are suspended."""
    asked = settings.get(SETTING) or "1"
    if asked not in ("0", "1"):
        raise InvalidArgument("environment", f"{SETTING}={asked}", allowed="0 or 1")
    return asked == "1" and not _suspended


class SelfTests:
    """The verdicts of one device.

    `ran` counts the tests of this process, `wrong` holds the faults they found.
    """

    def __init__(self, device: Launcher, driver: str, disk_cache: DiskCache | None) -> None:
        self.device, self.driver, self.disk_cache = device, driver, disk_cache
        self.ran = 0
        self.wrong: dict[tuple[str, str, tuple[str, ...]], str] = {}
        self._passed: set[tuple[str, str, tuple[str, ...]]] = set()
        self.lock = own_lock(self, "lock")

    def known_fault(self, folder: Folder, plan: Plan) -> str | None:
        """Return why the variant is disabled for the operator and dtypes of a plan, as far as is known.

        Nothing is run.
        """
        if not is_enabled():
            return None
        key = _key(folder, plan)
        if key not in self.wrong and key not in self._passed and self.disk_cache is not None:
            kept = self.disk_cache.get(self._name(folder, plan))
            if kept is not None:
                self._remember(key, kept)
        return self.wrong.get(key)

    def check(self, folder: Folder, plan: Plan) -> None:
        """Run the test unless it was run before; raise `Declined` where the variant is wrong."""
        if not is_enabled():
            return
        key = _key(folder, plan)
        if key in self._passed:  # without the lock, so it does not wait for other threads' tests
            return
        with self.lock:
            if self.known_fault(folder, plan) is None and key not in self._passed:
                sample = self._sample(folder, plan)
                try:
                    verdict = UNTRIED if sample is None else self._run(folder, plan, sample)
                except InternalError as error:  # not built: another process may try again
                    if folder is self.device.folders[-1]:
                        raise
                    self._remember(key, f"self-test: {error}".encode())
                else:
                    if self.disk_cache is not None:
                        self.disk_cache.put(self._name(folder, plan), verdict)
                    self._remember(key, verdict)
            wrong = self.wrong.get(key)
        if wrong is not None:
            raise Declined(wrong)

    def _remember(self, key: tuple[str, str, tuple[str, ...]], verdict: bytes) -> None:
        if verdict in (PASSED, UNTRIED):
            self._passed.add(key)
            return
        self.wrong[key] = verdict.decode(errors="replace")
        operator, variant, dtypes = key
        warnings.warn(
            f"{self.device.name}: variant {variant} of {operator} is disabled for {', '.join(dtypes)}:"
            f" {self.wrong[key]}",
            RuntimeWarning,
            stacklevel=2,
        )

    def _sample(self, folder: Folder, plan: Plan) -> Chosen | None:
        """Return the first small sample of ENOUGH elements that the variant takes in these dtypes, or the largest."""
        operator, types = plan.operator, _types(plan)
        path, best, most = folder.path / f"{operator.stem}.c", None, 0
        for sample in operator.samples():
            if sample.size != "small" or (operator.signature.mixed and not fits(operator, sample, types)):
                continue
            try:
                inputs, outputs = describe(operator, sample, types)
                resolved = operator.resolve(inputs, outputs, sample.attrs)
            except IsokernError:
                continue  # a sample of other dtypes
            elements = sum(d.numel for d in (*resolved.outputs, *resolved.inputs) if d is not None)
            if elements <= most or any(d.numel == 0 for d in resolved.outputs):
                continue
            tried = Plan(resolved)
            if launches(path).choose(tried, self.device.traits).refusal is None:
                best, most = (sample, types, resolved), elements
                if elements >= ENOUGH:
                    break
        return best

    def _name(self, folder: Folder, plan: Plan) -> str:
        """Return a key of all that the verdict depends on.

        It uses the texts that programs are built from: building the programs of a sample takes longer than a first
        call.
        """
        operator, traits = plan.operator, self.device.traits
        made_of = source.fingerprint(self.device.prelude, folder.path / f"{operator.stem}.c")
        expressions = [str(operator.scalar_expr), str(operator.expression)]
        device = [
            self.driver,
            traits.kind,
            *map(str, (traits.group, traits.items, traits.units)),
            *sorted(traits.features),
        ]
        return hashlib.sha256(
            "\0".join([*device, made_of, *expressions, *map(str, _key(folder, plan))]).encode()
        ).hexdigest()

    def _run(self, folder: Folder, plan: Plan, chosen: Chosen) -> bytes:
        """Return the verdict: PASSED, or what was wrong."""
        from ..oracle.cases import Case
        from ..oracle.expected import Problems, judge

        self.ran += 1
        sample, types, resolved = chosen
        case = Case(plan.operator, tuple(types.values()), sample)
        conditions = self.device.conditions
        problem = Problems(subnormal="flushes_denormals" not in conditions).of(case)
        try:
            results = self._compute(folder, resolved, [*problem.before, *problem.inputs])
        except (OutOfMemory, InternalError, DeviceNotAvailable, Declined):
            raise
        except IsokernError as error:
            return f"self-test {case.id}: {error}".encode()
        for i, (got, operand) in enumerate(zip(results, plan.operator.signature.outputs, strict=True)):
            judged = judge(got, problem, i, strict_nan=False, flushes="flushes_denormals" in conditions)
            if judged.wrong:
                return f"self-test {case.id}: {operand.name}: {judged.wrong}".encode()
        return PASSED

    def _compute(self, folder: Folder, resolved: Resolved, contents: list[Any]) -> list[Any]:
        """Compute the outputs with a kernel, memory and a stream of the test's own.

        So neither the caller's memory accounting nor its pending errors are affected.
        """
        device = self.device
        operator = resolved.operator
        kernel = SimtKernel(device, folder.path / f"{operator.stem}.c", Plan(resolved))
        buffers: list[Buffer | None] = []
        for i, (desc, content) in enumerate(zip((*resolved.outputs, *resolved.inputs), contents, strict=False)):
            if desc is None:
                buffers.append(None)
                continue
            buffer = device.memory.allocate_buffer(desc.nbytes, desc.dtype, device.memory.kinds[0], 64, True)
            raw = np.full(desc.nbytes, POISON, np.uint8)
            if i >= len(resolved.outputs) or operator.inout:
                raw[...] = np.ascontiguousarray(content).reshape(-1).view(np.uint8)
            buffer.write_bytes(0, raw)
            buffers.append(buffer)
        space = kernel.workspace.size
        scratch = (
            device.memory.allocate_buffer(space, resolved.outputs[0].dtype, device.memory.kinds[0], 64, True)
            if space
            else None
        )
        stream = device.stream()
        handles = [None if b is None else b.handle for b in buffers]
        kernel.launch(handles, None if scratch is None else scratch.handle, space, stream)
        stream.synchronize()
        return [
            _array(b.read_bytes(0, d.nbytes), d)
            for b, d in zip(buffers, resolved.outputs, strict=False)
            if b is not None
        ]


def _array(raw: np.ndarray[Any, np.dtype[np.uint8]], desc: TensorDesc) -> np.ndarray[Any, Any]:
    """Return the bytes of a dense tensor as its elements; blocks stay bytes."""
    if desc.dtype.block > 1:
        return raw.reshape(desc.raw.shape)
    return raw.view(np.dtype(desc.dtype.numpy)).reshape(desc.shape)


def _types(plan: Plan) -> dict[str, DType]:
    """Return type variable → dtype of a plan; a variable that no tensor determines gets the first allowed dtype."""
    operator = plan.operator
    signature = operator.signature
    operands = [*signature.outputs]
    for operand in signature.inputs:
        operands += [operand] * (
            len(plan.table) - len(signature.outputs) - len(signature.inputs) + 1 if operand.variadic else 1
        )
    told: dict[str, DType] = {}
    for operand, desc in zip(operands, plan.table, strict=False):
        if desc is not None:
            mixed = operand.mixed and operand.type in told
            told[operand.type] = wider(told[operand.type], desc.dtype) if mixed else desc.dtype
    return {name: told.get(name, allowed[0]) for name, allowed in signature.types.items()}


def _key(folder: Folder, plan: Plan) -> tuple[str, str, tuple[str, ...]]:
    return plan.operator.name, folder.name, tuple(d.name for d in _types(plan).values())
