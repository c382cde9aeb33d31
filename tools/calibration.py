"""Measure how slow this machine is at the moment, by the processor seconds of a fixed piece of work.

Processor seconds of the same commands differ between machines, and on one machine with what else runs there: other
processes evict what caches hold, and the clock follows the load. The work is like that of compilers and tests, of
similar parts: bytecode, C code with branches, and memory that is larger than the first caches. It is repeated while the
commands run, because the machine before and after them may be an idle one.
"""

from __future__ import annotations

import random
import threading
import time
import zlib

REFERENCE = 0.1  # processor seconds of the work on a machine of slowness 1
INTERVAL = 10.0  # seconds between repetitions: they take one percent of a core

_random = random.Random(0)
_WORDS = [_random.randbytes(6).hex() for _ in range(70_000)]
_TEXT = "".join(_WORDS).encode()[:700_000]


def _work() -> None:
    total, table = 0, {}
    for i in range(200_000):
        total = (total * 31 + i) & 0xFFFFFFFF
        table[total & 1023] = str(i)
    zlib.compress(_TEXT, 6)
    lists = {word: [word] for word in _WORDS}
    sorted(lists, key=lambda word: word[3:])


def measure_slowness() -> float:
    """Return how many times as long as on the reference machine the work takes now."""
    before = time.thread_time()
    _work()
    return (time.thread_time() - before) / REFERENCE


class Calibration:
    """A thread that measures from `start` to `stop`: at the begin, every `INTERVAL` seconds, and at the end."""

    def __init__(self) -> None:
        self._slowness: list[float] = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._measure, daemon=True)

    def start(self) -> None:
        """Start, unless that has been done."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> list[float]:
        """Measure a last time, and return the slowness at each time; nothing if it was never started."""
        if self._thread.ident is not None:
            self._end.set()
            self._thread.join()
        return self._slowness

    def _measure(self) -> None:
        _work()  # what it allocates for the first time is not measured
        ended = False
        while not ended:
            self._slowness.append(measure_slowness())
            ended = self._end.wait(INTERVAL)
        self._slowness.append(measure_slowness())
