"""What ONNX's backend suite says of each device, as docs/onnx_suite.json: written from a run, read by the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tables import table

ROOT = Path(__file__).resolve().parents[1]
KEPT = ROOT / "docs" / "onnx_suite.json"
OUTCOMES = {
    "passed": "pass",
    "refused": "refused, with a sentence in the list",
    "differs": "differ, with a sentence in the list",
    "lacking": "of a dtype that the device lacks",
    "wrong": "wrong",
}


def write(devices: Sequence[str]) -> None:
    """Run the suite on these devices, each in a process of its own, and write what they gave."""
    kept: dict[str, Any] = read() if KEPT.exists() else {}
    for device in devices:
        with tempfile.TemporaryDirectory() as home:
            words = [sys.executable, str(ROOT / "tests" / "onnx" / "suite.py"), device]
            done = subprocess.run(
                words, check=True, capture_output=True, text=True, env={**os.environ, "ONNX_HOME": home}
            )
        kept[device] = json.loads(done.stdout.splitlines()[-1])
        KEPT.write_text(dump(kept), encoding="utf-8")


def dump(kept: dict[str, Any]) -> str:
    """Return the text of docs/onnx_suite.json, a device a line."""
    return "{\n" + ",\n".join(f"{json.dumps(d)}: {json.dumps(kept[d])}" for d in sorted(kept)) + "\n}\n"


def read() -> dict[str, Any]:
    """Return what docs/onnx_suite.json has."""
    kept: dict[str, Any] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def tabulate() -> str:
    """Return a table with two rows for each device, and one with the sentences of what does not pass."""
    kept = read()
    rows = []
    for device, run in kept.items():
        for kind, counts in run["outcomes"].items():
            numbers = [sum(counts.values()), *(counts.get(name, 0) for name in OUTCOMES)]
            rows.append([device, run["onnx"], f"{kind} tests", *map(str, numbers)])
    sentences: dict[str, Counter[str]] = {}
    for device, run in kept.items():
        for sentence, count in run["sentences"].items():
            sentences.setdefault(sentence, Counter())[device] = count
    lines = [[sentence, *(str(counts[d]) for d in kept)] for sentence, counts in sorted(sentences.items())]
    parts = [
        table(["device", "onnx", "of these", "there are", *OUTCOMES.values()], rows),
        table(["why not", *kept], lines),
    ]
    return "\n\n".join(parts)
