"""Test that the checked mode tells the planted fault of random kernels, and is silent about correct ones."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import many
import pytest
from generated import generate

KEXCEPTION, TIMEOUT = 714, 715
UNIT = 100  # kernels of one compilation unit


@pytest.mark.parametrize("count", [50, pytest.param(10_000, marks=pytest.mark.full)])
def test_faults_of_random_kernels_are_told_and_nothing_else(runtime: Path, tmp_path: Path, count: int) -> None:
    missed, crashes, alarms = [], [], []

    def judge(first: int) -> None:
        seeds = range(first, min(first + UNIT, count))
        folder = tmp_path / str(first)
        folder.mkdir()
        for seed, found in zip(seeds, many.run(runtime, folder, [generate(s, s % 2 == 1) for s in seeds]), strict=True):
            text = f"seed {seed}\n{found.text}"
            if found.status != 0:
                crashes.append(text)
            elif seed % 2 == 0 and (found.code != 0 or found.told):
                alarms.append(text)
            elif seed % 2 == 1 and not found.told & found.expected:
                missed.append(text)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(judge, range(0, count, UNIT)))
    assert not crashes, "\n".join([f"{len(crashes)} crashes", *crashes[:5]])
    assert not alarms, "\n".join([f"{len(alarms)} false alarms", *alarms[:5]])
    assert len(missed) <= 1 + 0.03 * (count / 2), "\n".join([f"{len(missed)} faults not told", *missed[:5]])
