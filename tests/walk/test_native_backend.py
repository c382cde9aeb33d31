"""Follow docs/native_backend.md: build the files that it shows, and run its commands and its example."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest
from page import ROOT, block, run

EXAMPLE = Path("examples/native_backend")
PAGE = (ROOT / "docs" / "native_backend.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"^<!-- generated: code \w+ (examples/native_backend/\S+) -->$", PAGE, re.M)

pytestmark = [
    pytest.mark.full,  # makes an environment, and judges a whole device
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> tuple[Path, str]:
    """Copy core and the files that the page shows, run its commands; return the copy, and what they print."""
    copy = tmp_path_factory.mktemp("native_backend")
    shutil.copytree(ROOT / "core", copy / "core", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    for name in SHOWN:
        (copy / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, copy / name)
    run(f"{sys.executable} -m venv .venv", copy)
    return copy, run(block("sh", PAGE), copy)


def test_the_device_is_found_and_passes(judged):
    printed = judged[1]
    assert "mine:0" in printed
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", printed.splitlines()[-1])}
    assert counts.keys() == {"pass", "unsupported"} and counts["pass"] > 3000


def test_the_rest_is_lowered(judged):
    (judged[0] / "example.py").write_text(block("python", PAGE), encoding="utf-8")
    assert run(".venv/bin/python example.py", judged[0]) == "lowered\n"
