"""What many threads may do at once, and what a device may leave behind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ... import tensors
from ...backend import Device
from ...call.descriptor import Descriptor
from ...layout import TensorDesc
from ...ops import find
from .check import fail, runtime_check
from .growth import measure_growth
from .work import UNARY, Chain, choose_unary

THREADS, TURNS = 8, 40
CREATES = {True: 500, False: 10_000}
SLACK = 16 << 20  # bytes that a process may grow by for reasons of its own


@runtime_check()
def shares_a_descriptor(device: Device) -> None:
    """One descriptor computes in eight threads at once, each with tensors and a stream of its own."""
    name = choose_unary(device)
    descriptor = Descriptor.of(find(name), [TensorDesc("F32", (1000,))], device=device)
    start = threading.Barrier(THREADS)

    def compute(number: int) -> str:
        stream = device.stream()
        y = tensors.zeros((1000,), device=device)
        start.wait()
        for turn in range(TURNS):
            content = np.full(1000, -(number * 100 + turn), np.float32)
            x = tensors.tensor(content, device=device)
            descriptor.calculate(x, y, workspace="auto", stream=stream)
            if (y.numpy() != UNARY[name](content)).any():
                return f"thread {number}, turn {turn}: other numbers than its own"
        return ""

    with ThreadPoolExecutor(THREADS) as pool:
        for wrong in pool.map(compute, range(THREADS)):
            if wrong:
                fail(wrong)


@runtime_check()
def shares_a_stream(device: Device) -> None:
    """Eight threads may enqueue on one stream at once."""
    stream = device.stream()
    start = threading.Barrier(THREADS)

    def compute(number: int) -> str:
        chain = Chain(device, 512, length=10)
        start.wait()
        for _ in range(5):
            chain.clear()
            chain.enqueue(stream)
            if wrong := chain.differs(chain.last.numpy()):
                return f"thread {number}: {wrong}"
        return ""

    with ThreadPoolExecutor(THREADS) as pool:
        for wrong in pool.map(compute, range(THREADS)):
            if wrong:
                fail(wrong)


@runtime_check()
def allocates_in_threads(device: Device) -> None:
    """Eight threads allocate, write, read and free at once, and the counts end where they began."""
    before = (device.memory.live, device.memory.allocations)

    def churn(number: int) -> str:
        for turn in range(TURNS):
            content = np.full(100 + 37 * turn, number * 30 + 1, np.uint8)
            buffer = device.memory.alloc(content.size)
            if buffer.read().any():
                return f"thread {number}: a new buffer is not zero"
            buffer.write(content)
            if (buffer.read() != content).any():
                return f"thread {number}: a buffer holds what another thread wrote"
            buffer.close()
        return ""

    with ThreadPoolExecutor(THREADS) as pool:
        for wrong in pool.map(churn, range(THREADS)):
            if wrong:
                fail(wrong)
    if (device.memory.live, device.memory.allocations) != before:
        fail(f"live is {device.memory.live - before[0]} bytes off its start after everything was freed")


def _grow_by_creates(device: Device, turns: int) -> int:
    operator = find(choose_unary(device))

    def create(turn: int) -> None:
        Descriptor.of(operator, [TensorDesc("F32", (turn % 7 + 1, 8))], device=device)

    return measure_growth(create, warm=100, turns=turns)


@runtime_check()
def creates_without_growth(device: Device) -> None:
    """The process does not grow with the number of descriptors that were created and dropped."""
    grown = _grow_by_creates(device, CREATES[True])
    if grown > SLACK:
        fail(f"the process grew by {grown >> 20} MiB over {CREATES[True]} creates")


@runtime_check(quick=False)
def creates_ten_thousand_without_growth(device: Device) -> None:
    """Ten thousand descriptors that were created and dropped leave the process as large as it was."""
    grown = _grow_by_creates(device, CREATES[False])
    if grown > SLACK:
        fail(f"the process grew by {grown >> 20} MiB over {CREATES[False]} creates")


@runtime_check()
def leaves_the_caller_its_environment(device: Device) -> None:
    """Calls leave NumPy's error handling, the rounding mode and subnormal numbers of the calling thread alone."""
    with np.errstate(all="ignore", over="warn"):
        chain = Chain(device, 1000, length=3)
        chain.enqueue(device.default_stream)
        device.synchronize()
        state = np.geterr()
        if (state["over"], state["divide"]) != ("warn", "ignore"):
            fail(f"NumPy's error handling became {state}")
        tiny = np.full(64, 1e-40, np.float32)
        if ((tiny + tiny) == 0).any() or ((tiny * np.float32(0.5)) == 0).any():
            fail("subnormal numbers of the caller are flushed to zero")
        third, half = np.float32(1) / np.full(8, 3, np.float32), np.full(8, 2**-24, np.float32)
        if (third != np.float32(0.33333334)).any() or ((np.float32(1) + half) != 1).any():
            fail("the caller's rounding mode is no longer to nearest")
