"""What workspaces must be: private to a call, exact, aligned, and the only memory that a call uses."""

from __future__ import annotations

import itertools
import time
from contextlib import suppress

import numpy as np

from ...backend import Device
from ...oracle.layouts import Array
from ...oracle.verdicts import Failure, Verdict
from ...tensors import Tensor
from .check import fail, runtime_check
from .growth import check_growth, measure_growth
from .work import (
    THREADS,
    Chain,
    ScratchCall,
    find_calls_of_zeroes,
    find_scratch_calls,
    operators_with_scratch,
    run_in_threads,
)

POISONS = (0x00, 0xFF, 0x5A)
FEW_CALLS, CALLS = 300, 100_000
CALLING = 200.0  # seconds
QUICK_CALL = 0.005  # seconds
MEETING = 1.0  # seconds in which calls of different threads have to meet


def _run(call: ScratchCall, outputs: list[Tensor], poison: int) -> tuple[list[Array], Array]:
    """Make the call with a workspace full of `poison`; return the results, and the workspace afterwards."""
    workspace = call.descriptor.alloc_workspace()
    assert workspace is not None
    workspace.write(np.full(workspace.nbytes, poison, np.uint8))
    call.descriptor.calculate(call.inputs, outputs, workspace=workspace)
    return [t.buffer.read() for t in outputs], workspace.read()


@runtime_check()
def claims_possible_workspaces(device: Device) -> None:
    """A workspace has a size, an alignment that is a power of two, and a kind of memory that the device has."""
    for call in find_scratch_calls(device):
        need, name = call.need, call.name
        if not isinstance(need.size, int) or need.size < 0:
            fail(f"{name} asks for {need.size!r} bytes", Verdict.FAIL_CLAIM)
        if need.alignment < 1 or need.alignment & (need.alignment - 1):
            fail(f"{name} asks for alignment {need.alignment}", Verdict.FAIL_CLAIM)
        if need.kind not in device.memory.kinds:
            fail(f"{name} asks for {need.kind!r} memory; the device has {device.memory.kinds}", Verdict.FAIL_CLAIM)


@runtime_check()
def uses_what_it_asks_for(device: Device) -> None:
    """Some call writes into the second half of its workspace: what is asked for is needed.

    Not every operator need do so: a kernel with a part for each thread uses those of the threads that find work.
    """
    asked = []
    for operator, types in operators_with_scratch(device):
        for call in find_calls_of_zeroes(device, operator, types):
            asked.append(f"{operator.name} {call.need.size}")
            tail = (call.need.size + 1) // 2
            if any((_run(call, call.make_outputs(), poison)[1][-tail:] != poison).any() for poison in POISONS):
                return
    fail(f"none of {len(asked)} calls does; they ask for bytes: {', '.join(asked)}", Verdict.FAIL_CLAIM)


@runtime_check()
def starts_from_any_workspace(device: Device) -> None:
    """The content of a workspace before a call does not matter."""
    for call in find_scratch_calls(device):
        outputs = call.make_outputs()
        results = [_run(call, outputs, poison)[0] for poison in POISONS]
        for again in results[1:]:
            if any((a != b).any() for a, b in zip(results[0], again, strict=True)):
                fail(f"{call.name} gives other bits with another workspace")


def _find_long_calls(device: Device) -> list[ScratchCall]:
    """Return calls that need a workspace, large ones if the device is fast: short calls seldom meet."""
    small = find_scratch_calls(device)
    outputs = small[0].make_outputs()
    _run(small[0], outputs, 0)
    shortest = QUICK_CALL
    for _ in range(5):  # another process may run during some of them
        start = time.perf_counter()
        _run(small[0], outputs, 0)
        shortest = min(shortest, time.perf_counter() - start)
    if shortest < QUICK_CALL:
        with suppress(Failure):  # no large one needs a workspace
            return find_scratch_calls(device, size="wide")
    return small


@runtime_check()
def keeps_calls_apart(device: Device) -> None:
    """Calls in eight threads on eight streams, with inputs of their own, give what each gives alone."""
    found = _find_long_calls(device)
    calls = [found[position % len(found)].scale_inputs(0.5 + position) for position in range(THREADS)]
    alone = [_run(call, call.make_outputs(), 0)[0] for call in calls]

    def repeat(position: int) -> str:
        call, wanted = calls[position], alone[position]
        stream = device.stream()
        outputs = call.make_outputs()
        end = time.monotonic() + MEETING
        for turn in itertools.count():
            if turn > 1 and time.monotonic() > end:
                break
            for t in outputs:
                t.buffer.write(np.full(t.buffer.nbytes, turn % 250 + 1, np.uint8))
            for _ in range(10):
                call.descriptor.calculate(call.inputs, outputs, workspace="auto", stream=stream)
            if any((t.buffer.read() != w).any() for t, w in zip(outputs, wanted, strict=True)):
                return f"{call.name}, turn {turn}: other bits than alone"
        return ""

    run_in_threads(repeat)


@runtime_check()
def allocates_nothing_in_a_call(device: Device) -> None:
    """A call takes no memory of the device but its workspace."""
    memory = device.memory
    for call in find_scratch_calls(device):
        outputs, workspace = call.make_outputs(), call.descriptor.alloc_workspace()
        call.descriptor.calculate(call.inputs, outputs, workspace=workspace)
        device.synchronize()
        memory.reset_peak()
        before = (memory.live, memory.allocations)
        for _ in range(10):
            call.descriptor.calculate(call.inputs, outputs, workspace=workspace)
        device.synchronize()
        if (memory.live, memory.allocations) != before or memory.peak > before[0]:
            taken, kept = memory.peak - before[0], memory.live - before[0]
            fail(f"{call.name}: ten calls took {taken} bytes, {kept} of them for good")


def _check_calls(device: Device, calls: int) -> None:
    """Fail if the process grows by so many calls, or by those that the time allows."""
    chain = Chain(device, 64, length=100)
    stream = device.default_stream
    end = time.monotonic() + CALLING
    made = 0

    def call(turn: int) -> None:
        nonlocal made
        if time.monotonic() < end:
            chain.enqueue(stream)
            stream.synchronize()
            made += 100

    grown = measure_growth(call, warm=1, turns=calls // 100)
    check_growth(grown, f"{made} calls")


@runtime_check()
def calls_without_growth(device: Device) -> None:
    """The process does not grow with the number of calls."""
    _check_calls(device, FEW_CALLS)


@runtime_check(quick=False)
def calls_a_hundred_thousand_times_without_growth(device: Device) -> None:
    """A hundred thousand calls, or those of 200 seconds, leave the process as large as it was."""
    _check_calls(device, CALLS)
