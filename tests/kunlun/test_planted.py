"""Test that a kernel's fault is told at its line, that its repaired twin is silent, and that nothing else dies of it.

The kernels are in planted.txt and fatal.txt.
"""

from __future__ import annotations

import re
from pathlib import Path

import many
import pytest
from many import HERE, Kernel, Outcome

PLANTED = many.planted(HERE / "planted.txt")
FATAL = many.sections(HERE / "fatal.txt")
KEXCEPTION = 714


def kernel(text: str) -> Kernel:
    before, _, body = text.rpartition("--\n")
    return Kernel(body, before)


@pytest.fixture(scope="module")
def outcomes(runtime: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Outcome]:
    """Run each kernel once, and return what became of it."""
    kernels = {(name, "planted"): kernel(faulty) for name, (faulty, _) in PLANTED.items()}
    kernels |= {(name, "repaired"): kernel(repaired) for name, (_, repaired) in PLANTED.items()}
    kernels |= {(name, "fatal"): kernel(text) for name, text in FATAL.items()}
    folder = tmp_path_factory.mktemp("planted")
    return dict(zip(kernels, many.run(runtime, folder, list(kernels.values())), strict=True))


@pytest.mark.parametrize("name", PLANTED)
def test_a_fault_is_told_at_its_line(outcomes: dict[tuple[str, str], Outcome], name: str) -> None:
    found = outcomes[name, "planted"]
    assert found.status == 0, found.text
    assert found.expected, "no line is marked"
    assert found.expected <= found.told, found.text
    # A store that would destroy other memory ends the kernel, too
    assert {rule for rule, _ in found.told} <= {rule for rule, _ in found.expected} | {"exception"}, found.text


@pytest.mark.parametrize("name", PLANTED)
def test_its_repaired_twin_is_silent(outcomes: dict[tuple[str, str], Outcome], name: str) -> None:
    found = outcomes[name, "repaired"]
    assert (found.status, found.code, found.told) == (0, 0, set()), found.text


@pytest.mark.parametrize("name", FATAL)
def test_only_the_kernel_dies_of_its_fault(outcomes: dict[tuple[str, str], Outcome], name: str) -> None:
    found = outcomes[name, "fatal"]
    assert (found.status, found.code) == (0, KEXCEPTION), found.text
    first = int(re.findall(r"^ *(\d+)", found.text)[0])
    assert found.told, found.text
    assert all(line >= first for _, line in found.told), found.text
