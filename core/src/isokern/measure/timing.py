"""Interleaved timing: each round times every call, so that a busy moment of the machine affects them all alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import cycle, repeat
from statistics import median
from types import MappingProxyType

from ..backend import Timer

Call = Callable[[], object]
Clock = Callable[[], float]
BATCH = 200e-6  # seconds that a timed batch of short calls lasts at least: clock and loop are negligible then
DEVICE_BATCH = 2e-3  # the same by a device's own clock, whose marks may lie some microseconds apart from the work
ROUNDS = 5
NO_TIMERS: Mapping[str, Timer] = MappingProxyType({})


def interleave(
    calls: Mapping[str, Call],
    seconds: float = 0.05,
    pause: float = 0.0,
    timers: Mapping[str, Timer] = NO_TIMERS,
    clock: Clock = time.perf_counter,
) -> dict[str, float]:
    """Return the median seconds of each call, over rounds of one batch of each.

    A call gets about `seconds`, and at least five rounds unless it is slow. Every batch begins with an untimed call,
    which brings caches and threads back from the call before. `pause` is slept before the batch, so that worker threads
    of another library that wait by spinning go to sleep. `clock` times calls that have no timer: on one core, which
    other processes use too, `time.process_time` leaves out what those take.

    A call that has a timer only enqueues: its batch lies between two marks in the device's work, and the host waits
    once a round, or before a call that has none. Where the host enqueues more slowly than the device works, the time is
    the host's.
    """
    counts = {name: _count(call, timers.get(name), clock) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent = 0.0
    enabled = gc.isenabled()
    gc.disable()
    try:
        while spent < seconds * len(calls) or (_rounds(times) < ROUNDS and spent < 10 * seconds * len(calls)):
            enqueued: list[str] = []
            for name, call in calls.items():
                timer = timers.get(name)
                if timer is not None:
                    _enqueue(call, counts[name], timer)
                    enqueued.append(name)
                    continue
                spent += _collect(enqueued, timers, counts, times)
                if pause:
                    time.sleep(pause)
                taken, whole = _batch(call, counts[name], clock)
                times[name].append(taken / counts[name])
                spent += whole
            spent += _collect(enqueued, timers, counts, times)
    finally:
        if enabled:
            gc.enable()
    return {name: median(found) for name, found in times.items()}


def in_turn(calls: Sequence[Call]) -> Call:
    """Return one call that makes the next of several each time.

    The calls do the same work on other memory, so that no operand is in a cache.
    """
    if len(calls) == 1:
        return calls[0]
    following = cycle(calls).__next__
    return lambda: following()()


def _rounds(times: Mapping[str, list[float]]) -> int:
    return min((len(t) for t in times.values()), default=ROUNDS)


def _enqueue(call: Call, count: int, timer: Timer) -> None:
    """Enqueue a batch between two marks; the untimed call before it gives the host a lead."""
    call()
    timer.start()
    for _ in repeat(None, count):
        call()
    timer.stop()


def _collect(
    enqueued: list[str], timers: Mapping[str, Timer], counts: Mapping[str, int], times: Mapping[str, list[float]]
) -> float:
    """Wait for what is enqueued and note its times; return the seconds it took, untimed calls included."""
    spent = 0.0
    for name in enqueued:
        each = timers[name].seconds() / counts[name]
        times[name].append(each)
        spent += each * (counts[name] + 1)
    enqueued.clear()
    return spent


def _batch(call: Call, count: int, clock: Clock) -> tuple[float, float]:
    """Return (seconds of `count` calls, seconds with the untimed one before them)."""
    begin = clock()
    call()
    first = clock()
    for _ in repeat(None, count):
        call()
    end = clock()
    return end - first, end - begin


def _count(call: Call, timer: Timer | None, clock: Clock) -> int:
    """Return how many calls make a batch."""
    call()
    count, least = 1, BATCH if timer is None else DEVICE_BATCH
    while True:
        if timer is None:
            taken, _ = _batch(call, count, clock)
        else:
            _enqueue(call, count, timer)
            taken = timer.seconds()
        if taken >= least:
            return count
        count = max(2 * count, min(100_000, int(1.2 * least * count / max(taken, 1e-9))))
