"""Test docs/source_documents.tsv: each row's proof holds, and faults are found."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import source_documents as tool

ROOT = Path(__file__).resolve().parents[2]
RIGHT = {
    "document": "lowering",
    "statement": "F32 has 4 bytes",
    "verdict": "true",
    "here": "`isokern.F32`",
    "proof": "F32.itemsize == 4",
}


def test_every_row_holds() -> None:
    """All proofs run in one process, which opens only the CPU."""
    command = [sys.executable, "-W", "error", ROOT / "tools" / "source_documents.py"]
    environment = {**os.environ, "ISOKERN_DEVICE": "cpu"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_statement_is_there_twice() -> None:
    count = Counter((row["document"], row["statement"]) for row in tool.read_rows())
    assert [key for key, n in count.items() if n > 1] == []
    assert {document for document, _ in count} == set(tool.DOCUMENTS)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"proof": "tests/core/test_layout.py::test_that_nobody_wrote"}, "no such test"),
        ({"proof": "tests/core/test_nothing.py::test_refusals"}, "no such test"),
        ({"proof": "F32.itemsize == 8"}, "it is False"),
        ({"proof": "F32.itemsize"}, "it is 4"),
        ({"proof": "F33.itemsize == 4"}, "NameError"),
        ({"proof": "$ isokern ops sofmax"}, "exit 2"),
        ({"proof": "$ true"}, "no command of isokern"),
        ({"proof": ""}, "has a proof"),
        ({"verdict": "open: it is not there"}, "unless it is open"),
        ({"verdict": "different"}, "the last two with"),
        ({"verdict": "true: it is so"}, "the last two with"),
        ({"verdict": "perhaps"}, "allowed: true, different, open"),
        ({"document": "raising"}, "no document"),
        ({"statement": " "}, "empty field"),
        ({"here": None}, "empty field"),
    ],
)
def test_a_fault_is_told(change: dict[str, str], told: str) -> None:
    assert tool.find_fault(RIGHT) == ""
    assert told in tool.find_fault({**RIGHT, **change})
