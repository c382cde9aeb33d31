"""Test files and texts of others with bytes changed at random: each is read, or refused with a typed error.

`tox -e fuzz-files` does the same for minutes, guided by which code of the readers an input reaches.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

pytest.importorskip("onnx")
pytest.importorskip("tokenizers")
pytest.importorskip("safetensors")
pytest.importorskip("llguidance")

from doors import DOORS

COUNT = 60


def change(content: bytes, draw: random.Random) -> bytes:
    """Return the bytes with a few of them changed, cut out, or written twice."""
    result = bytearray(content)
    for _ in range(draw.choice((1, 1, 2, 4))):
        at = draw.randrange(len(result) + 1)
        match draw.randrange(4):
            case 0:
                result[at : at + 1] = draw.randbytes(1)
            case 1:
                del result[at : at + draw.choice((1, 2, 8, 64))]
            case 2:
                result[at:at] = result[at : at + draw.choice((1, 4, 32))]
            case 3:
                result[at : at + 1] = draw.choice((b"\0", b"\xff", b"\xff" * 8, b"9" * 20, b"(", b"{", b"-"))
    return bytes(result)


@pytest.mark.parametrize("name", DOORS)
def test_changed_inputs_are_read_or_refused(name: str, tmp_path: Path) -> None:
    door, draw = DOORS[name], random.Random(name)
    seeds = door.seeds(tmp_path)
    for seed in seeds:
        door.enter(seed, tmp_path)
    refused = 0
    for n in range(COUNT):
        content = change(draw.choice(seeds), draw)
        try:
            door.enter(content, tmp_path)
        except door.errors:
            refused += 1
        except BaseException as error:
            raise AssertionError(f"input {n}: {type(error).__name__}: {error}; {content[:200]!r}") from error
    assert 0 < refused < COUNT
