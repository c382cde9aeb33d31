"""What many threads may do at once, and what a device may leave behind."""

from __future__ import annotations

import gc
import time

import numpy as np

from ... import tensors
from ...backend import Device
from ...call.descriptor import Descriptor
from ...layout import TensorDesc
from ...ops import find
from ..environment import guard_environment
from .check import fail, runtime_check
from .growth import check_growth, count_handles, measure_growth
from .work import THREADS, UNARY, Chain, choose_unary, run_in_threads

TURNS = 40
FEW_CREATES, CREATES = 500, 10_000
USES, SETTLING = 24, 4.0  # seconds until threads must have ended


@runtime_check()
def shares_a_descriptor(device: Device) -> None:
    """One descriptor computes in eight threads at once, each with tensors and a stream of its own."""
    name = choose_unary(device)
    descriptor = Descriptor.of(find(name), [TensorDesc("F32", (1000,))], device=device)

    def compute(number: int) -> str:
        stream = device.stream()
        y = tensors.zeros((1000,), device=device)
        for turn in range(TURNS):
            content = np.full(1000, -(number * 100 + turn), np.float32)
            x = tensors.tensor(content, device=device)
            descriptor.calculate(x, y, workspace="auto", stream=stream)
            if (y.numpy() != UNARY[name](content)).any():
                return f"thread {number}, turn {turn}: other numbers than its own"
        return ""

    run_in_threads(compute)


@runtime_check()
def shares_a_stream(device: Device) -> None:
    """Eight threads may enqueue on one stream at once."""
    stream = device.stream()
    chains = [Chain(device, 512, length=10) for _ in range(THREADS)]

    def compute(number: int) -> str:
        chain = chains[number]
        for _ in range(5):
            chain.clear()
            chain.enqueue(stream)
            if wrong := chain.differs(chain.last.numpy()):
                return f"thread {number}: {wrong}"
        return ""

    run_in_threads(compute)


@runtime_check()
def allocates_in_threads(device: Device) -> None:
    """Eight threads allocate, write, read and free at once, and the counts end as they began."""
    before = (device.memory.live, device.memory.allocations)

    def churn(number: int) -> str:
        for turn in range(5 * TURNS):  # short ones, of which few meet
            content = np.full(100 + 37 * (turn % TURNS), number * 30 + 1, np.uint8)
            buffer = device.memory.alloc(content.size)
            if buffer.read().any():
                return f"thread {number}: a new buffer is not zero"
            buffer.write(content)
            if (buffer.read() != content).any():
                return f"thread {number}: a buffer holds what another thread wrote"
            buffer.close()
        return ""

    run_in_threads(churn)
    if (device.memory.live, device.memory.allocations) != before:
        fail(f"live is {device.memory.live - before[0]} bytes off its start after everything was freed")


def _check_creates(device: Device, turns: int) -> None:
    operator = find(choose_unary(device))

    def create(turn: int) -> None:
        Descriptor.of(operator, [TensorDesc("F32", (turn % 7 + 1, 8))], device=device)

    check_growth(measure_growth(create, warm=100, turns=turns), f"{turns} creates")


@runtime_check()
def creates_without_growth(device: Device) -> None:
    """The process does not grow with the number of descriptors that were created and dropped."""
    _check_creates(device, FEW_CREATES)


@runtime_check(quick=False)
def creates_ten_thousand_without_growth(device: Device) -> None:
    """Ten thousand descriptors that were created and dropped leave the process as large as it was."""
    _check_creates(device, CREATES)


@runtime_check()
def leaves_the_caller_its_environment(device: Device) -> None:
    """A thread's work on a device does not change NumPy's error handling, its rounding mode and subnormal numbers."""
    stream = device.stream()
    with np.errstate(all="ignore", over="warn"):
        with guard_environment("create and allocations"):
            chain = Chain(device, 1000, length=3)
        with guard_environment("calls"):
            chain.enqueue(device.default_stream)
            device.synchronize()
        with guard_environment("a bound call"):
            chain.descriptor.bind(chain.tensors[0], chain.last, workspace=chain.workspace, stream=stream)()
        with guard_environment("a capture and a replay"):
            with stream.capture() as recording:
                chain.enqueue(stream)
            recording.replay(stream)
        with guard_environment("an event"):
            stream.record().synchronize()
        with guard_environment("a read and a write"):
            chain.last.buffer.write(chain.tensors[0].buffer.read())


@runtime_check()
def gives_back_threads_and_files(device: Device) -> None:
    """Streams, events, recordings and buffers that are dropped leave no thread and no open file behind."""

    def use() -> None:
        chain, stream = Chain(device, 64, length=2), device.stream()
        with stream.capture() as recording:
            chain.enqueue(stream)
        recording.replay(stream)
        stream.record().synchronize()
        stream.synchronize()

    for _ in range(4):
        use()
    gc.collect()
    before = count_handles()
    for _ in range(USES):
        use()
    gc.collect()
    end = time.monotonic() + SETTLING
    while any(now - then > USES // 2 for now, then in zip(count_handles(), before, strict=True)):
        if time.monotonic() > end:
            threads, files = (now - then for now, then in zip(count_handles(), before, strict=True))
            fail(f"after {USES} uses there are {threads} threads and {files} open files more than before")
        time.sleep(0.02)
