"""Test that whatever a plug-in's Python does wrong is named as its fault, with a traceback, and the rest goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from runtime_saboteurs import answer_with, build_with
from threaded_device import ThreadedDevice, ThreadedKernel, ThreadedMemory

from isokern.backend import Device, KernelVariant
from isokern.conformance.derive import device_cases
from isokern.conformance.run import Runner
from isokern.conformance.runtime.check import checks, judge_runtime
from isokern.conformance.runtime.every import runtime_checks
from isokern.ops import find
from isokern.oracle.verdicts import Outcome

DEVICES: dict[str, tuple[type[ThreadedDevice], str]] = {}  # name → the class, and what must be said of it


def fault(said: str) -> Callable[[type[ThreadedDevice]], type[ThreadedDevice]]:
    def register(cls: type[ThreadedDevice]) -> type[ThreadedDevice]:
        DEVICES[cls.__name__] = cls, said
        return cls

    return register


@fault("KeyError: 'elementwise'")
class VariantsRaise(ThreadedDevice):
    def variants(self, stem: str) -> list[KernelVariant]:
        raise KeyError(stem)


@fault("variants of faulty:0 returned None; allowed: a list of KernelVariant")
class VariantsAreNone(ThreadedDevice):
    def variants(self, stem: str) -> Any:
        return None


@fault("variants of faulty:0 returned [7]; allowed: a list of KernelVariant")
class VariantsAreNumbers(ThreadedDevice):
    def variants(self, stem: str) -> Any:
        return [7]


@fault(": supported raised KeyError: 'BF16'")
class SupportedRaises(ThreadedDevice):
    wrap = answer_with(lambda plan, said: {"F32": None}[plan.table[0].dtype.name])


@fault(": supported returned 7; allowed: None, or the reason as a text")
class SupportedIsANumber(ThreadedDevice):
    wrap = answer_with(lambda plan, said: 7)


@fault(": supported returned True; allowed: None, or the reason as a text")
class SupportedIsTrue(ThreadedDevice):
    wrap = answer_with(lambda plan, said: said is None)


@fault("KeyError: 'BF16'")
class BuildRaises(ThreadedDevice):
    wrap = build_with(lambda made, plan: {"F32": made.build}[plan.table[0].dtype.name](plan))


@fault(": build returned None; allowed: a Kernel")
class BuildIsNone(ThreadedDevice):
    wrap = build_with(lambda made, plan: None)


@fault("SystemExit: 3")
class BuildExits(ThreadedDevice):
    wrap = build_with(lambda made, plan: exit(3))


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class _RaisingKernel(ThreadedKernel):
    def launch(self, *args: Any) -> None:
        raise _UnprintableError


@fault("_UnprintableError, which cannot say more: its text raises RuntimeError")
class LaunchRaises(ThreadedDevice):
    kernel = _RaisingKernel


class _RaisingMemory(ThreadedMemory):
    def allocate_buffer(self, *args: Any) -> Any:
        raise RuntimeError("the vendor's allocator")


@fault("RuntimeError: the vendor's allocator")
class AllocationRaises(ThreadedDevice):
    memory_type = _RaisingMemory


class _NoMemory(ThreadedMemory):
    def allocate_buffer(self, *args: Any) -> Any:
        return None


@fault("AttributeError: 'NoneType' object has no attribute 'nbytes'")
class AllocationIsNone(ThreadedDevice):
    memory_type = _NoMemory


def outcomes(device: Device) -> list[Outcome]:
    cases = [c for c in device_cases(device, [find("neg")]) if c.types and c.types[0].name == "BF16"]
    runner = Runner(device)
    return [runner.run(c) for c in cases[:8]]


@pytest.mark.parametrize("name", DEVICES)
def test_a_fault_of_a_plug_in_is_named_with_its_traceback(cpu: Device, name: str) -> None:
    cls, said = DEVICES[name]
    failed = [o for o in outcomes(cls("faulty:0")) if o.verdict.failed]
    assert failed
    assert said in failed[0].detail
    assert "Traceback" in failed[0].trace


@pytest.mark.parametrize("name", DEVICES)
def test_no_requirement_on_the_runtime_raises(cpu: Device, name: str) -> None:
    runtime_checks()
    cls, _ = DEVICES[name]
    some = [c for id_, c in checks.items() if "/memory/" in id_ or "/claims/" in id_]
    assert any(judge_runtime(cls("faulty:0"), check).verdict.failed for check in some)


def test_a_requirement_shows_where_supported_raised(cpu: Device) -> None:
    runtime_checks()
    outcome = judge_runtime(SupportedRaises("faulty:0"), checks["runtime/claims/answers_for_every_operator"])
    assert "supported raised KeyError" in outcome.detail
    assert __file__ in outcome.trace
