"""Test the pages of docs: what the architecture's page names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core/src/isokern"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"^```mermaid\n(.*?)^```$", ARCHITECTURE, re.S | re.M)
HOMES = [ROOT, CORE, *(p for p in CORE.iterdir() if p.is_dir()), ROOT / "plugins/cpu"]
HOMES += [*ROOT.glob("plugins/*/src/isokern_*"), ROOT / "plugins/cpu/src/isokern_cpu/kernels"]
PLACE = re.compile(r"([\w/]+\.(?:py|c)): ([\w.]+)")


def test_architecture_names_files_that_exist():
    named = set(re.findall(r"`([\w/]+(?:\.py|\.c|/))`", ARCHITECTURE))
    assert len(named) > 20
    made = {"generated/"}
    assert {n for n in named - made if not any((home / n).exists() for home in HOMES)} == set()
    rooms = {p.name if p.is_file() else f"{p.name}/" for p in CORE.iterdir()}
    unnamed = {"__init__.py", "__main__.py", "py.typed", "__pycache__/"}
    assert rooms - unnamed <= named, "rooms of core that the page does not name"


def defines(file: str, name: str) -> bool:
    """Return whether a file has a function, class or method (`Class.method`), in C an identifier at a line's start."""
    homes = (CORE, ROOT, *ROOT.glob("plugins/*/src"))
    path = next((home / file for home in homes if (home / file).is_file()), None)
    if path is None:
        return False
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".c":
        return re.search(rf"^(?:\w.*\b)?{name}\(|^\w+\({name}\)", text, re.M) is not None
    found: Any = ast.parse(text)
    for part in name.split("."):
        found = next((n for n in getattr(found, "body", []) if getattr(n, "name", None) == part), None)
    return found is not None


def test_architecture_names_what_the_files_define():
    assert [p for p in PLACE.findall(ARCHITECTURE) if not defines(*p)] == []
    assert not defines("backend/dispatch.py", "choosing")
    assert not defines("backend/dispatch.py", "choose.consider")
    assert not defines("isokern_cpu/kernels/softmax.c", "hardmax")


@pytest.mark.parametrize("picture", PICTURES, ids=range(len(PICTURES)))
def test_each_box_of_a_picture_names_its_place(picture):
    boxes = re.findall(r'\b\w+\["(.*)"\]', re.sub(r"^ *subgraph .*", "", picture, flags=re.M))
    assert len(boxes) > 4
    assert [b for b in boxes if not PLACE.search(b)] == []
