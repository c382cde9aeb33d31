"""How each version of ONNX's operators is read, as docs/onnx_versions.tsv: written from a run, read by the page."""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby
from pathlib import Path

from tables import Row, read_rows, table

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "onnx_versions.tsv"
COLUMNS = ("operator", "version", "compared with", "refused")


def write(device: str) -> None:
    """Draw nodes of every operator and version on a device, and write how they ended."""
    words = [sys.executable, str(ROOT / "tests" / "onnx" / "versions.py"), device]
    done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True)
    KEPT.write_text("\t".join(COLUMNS) + "\n" + done.stdout, encoding="utf-8")


def read() -> list[Row]:
    """Return the lines of docs/onnx_versions.tsv."""
    return read_rows(KEPT)


def tabulate() -> str:
    """Return a table with a row for each operator and the versions that are read alike."""
    rows = []
    for name, lines in groupby(read(), key=lambda row: row["operator"]):
        for ends, alike in groupby(lines, key=lambda row: (row["compared with"], row["refused"])):
            rows.append([name, ", ".join(row["version"] for row in alike), *ends])
    return table(["operator", "versions", *COLUMNS[2:]], rows)
