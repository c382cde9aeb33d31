"""Interleaved timing: every call takes its turn in every round, so that a busy moment of the machine hits all of them alike."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping
from itertools import repeat
from statistics import median

Call = Callable[[], object]
BATCH = (
    200e-6  # seconds that one timed batch of short calls lasts at least: the clock and the loop are nothing beside it
)
ROUNDS = 5


def interleave(calls: Mapping[str, Call], seconds: float = 0.05, pause: float = 0.0) -> dict[str, float]:
    """Median seconds of each call, over rounds of one batch of each; about `seconds` a call, at least five rounds unless it is slow.

    Every batch begins with an untimed call, which brings caches and threads back from the call before. `pause` is slept
    before it: worker threads of another library that wait by spinning then sleep.
    """
    counts = {name: _count(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    spent = 0.0
    enabled = gc.isenabled()
    gc.disable()
    try:
        while spent < seconds * len(calls) or (_rounds(times) < ROUNDS and spent < 10 * seconds * len(calls)):
            for name, call in calls.items():
                if pause:
                    time.sleep(pause)
                taken, whole = _batch(call, counts[name])
                times[name].append(taken / counts[name])
                spent += whole
    finally:
        if enabled:
            gc.enable()
    return {name: median(found) for name, found in times.items()}


def _rounds(times: Mapping[str, list[float]]) -> int:
    return min((len(t) for t in times.values()), default=ROUNDS)


def _batch(call: Call, count: int) -> tuple[float, float]:
    """(seconds of `count` calls, seconds with the untimed one before them)."""
    begin = time.perf_counter()
    call()
    first = time.perf_counter()
    for _ in repeat(None, count):
        call()
    end = time.perf_counter()
    return end - first, end - begin


def _count(call: Call) -> int:
    """How many calls make a batch."""
    call()
    count = 1
    while True:
        taken, _ = _batch(call, count)
        if taken >= BATCH:
            return count
        count = max(2 * count, min(100_000, int(1.2 * BATCH * count / max(taken, 1e-9))))
