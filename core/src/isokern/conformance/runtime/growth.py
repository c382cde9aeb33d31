"""How much a process grows while something is done many times."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from pathlib import Path

from .check import fail, lacks

STATM = Path("/proc/self/statm")
SLACK = 16 << 20  # bytes that a process may grow by for reasons of its own


def _resident() -> int:
    """Return the bytes of memory that the process occupies."""
    try:
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        lacks("this system does not tell how much memory a process occupies")


def count_handles() -> tuple[int, int]:
    """Return how many threads and how many open files the process has."""
    try:
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))
    except OSError:
        lacks("this system does not tell the threads and open files of a process")


def measure_growth(work: Callable[[int], object], *, warm: int, turns: int) -> int:
    """Return how many bytes the process grew by over `turns` calls of `work(turn)`, after `warm` ones."""
    for turn in range(warm):
        work(turn)
    gc.collect()
    before = _resident()
    for turn in range(turns):
        work(turn)
    gc.collect()
    return _resident() - before


def check_growth(grown: int, over: str) -> None:
    """Fail where a process grew by more bytes than it may for reasons of its own."""
    if grown > SLACK:
        fail(f"the process grew by {grown >> 20} MiB over {over}")
