"""How much a process grows while something is done many times."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from ..environment import trim_heap
from .check import fail, lacks

STATM = Path("/proc/self/statm")
SLACK = 16 << 20  # bytes that a process may grow by for reasons of its own


def _resident() -> int:
    """Return the bytes of memory that the process occupies, without what is free in it."""
    gc.collect()
    trim_heap()
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        lacks("this system does not report how much memory a process occupies")


def count_handles() -> tuple[int, int]:
    """Return how many threads and how many open files the process has."""
    try:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    except OSError:
        lacks("this system does not report the threads and open files of a process")


def measure_growth(work: Callable[[int], object], *, warm: int, turns: int) -> int:
    """Return how many bytes the process grew by over so many calls of `work`, after `warm` ones.

    Freed memory that the process still has is given back before it is counted: a leak could be hidden in it.
    """
    for turn in range(warm):
        work(turn)
    before = _resident()
    for turn in range(turns):
        work(turn)
    return _resident() - before


def check_growth(grown: int, over: str) -> None:
    """Fail if a process grew by more bytes than it may for reasons of its own."""
    if grown > SLACK:
        fail(f"the process grew by {grown >> 20} MiB over {over}")
