"""ONNX's own backend suite on a device, and the list of its tests that do not pass.

As a command, with the name of a device, it prints how its node tests ended, as JSON.
"""

from __future__ import annotations

import json
import re
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from isokern.status import IsokernError

LIST = Path(__file__).with_name("backend_exceptions.tsv")


@dataclass(frozen=True)
class Entry:
    """A line of the list: tests whose whole name matches, and what is true of them."""

    kind: str
    pattern: str
    sentence: str
    rtol: float | None = None
    atol: float | None = None

    def matches(self, name: str) -> bool:
        """Return whether a test, without its device, is one of these."""
        return re.fullmatch(self.pattern, name) is not None


def read_list() -> list[Entry]:
    """Return the lines of the list."""
    found = []
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        kind, pattern, *rest = line.split("\t")
        numbers = [float(v) for v in rest[:-1]]
        found.append(Entry(kind, pattern, rest[-1], *numbers))
    return found


@cache
def list_tests(device: str) -> dict[str, Any]:
    """Return the suite's tests on a device by name: nodes, simple models, PyTorch's old ones, and real networks."""
    from onnx.backend.test import BackendTest

    from isokern.onnx.backend import IsokernBackend

    class OnDevice(IsokernBackend):
        @classmethod
        def prepare(cls, model: Any, device: str = "CPU", **options: Any) -> Any:
            return super().prepare(model, name, **options)

        @classmethod
        def supports_device(cls, device: str) -> bool:
            return device == "CPU"  # as the suite calls the one that is asked for

    name = device
    kwargs = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of NumPy, while the suite computes what it expects
        names = [n for case in BackendTest(OnDevice, __name__).test_cases.values() for n in vars(case)]
        for entry in read_list():
            if entry.kind == "tolerance":
                wide = {"rtol": entry.rtol, "atol": entry.atol}
                kwargs |= {short(n): wide for n in names if entry.matches(short(n))}
        suite = BackendTest(OnDevice, __name__, kwargs).test_cases
    return {short(n): getattr(case, n) for case in suite.values() for n in sorted(vars(case)) if n.endswith("_cpu")}


def short(name: str) -> str:
    """Return a test's name without its device."""
    return re.sub("_(cpu|cuda)$", "", name)


def judge(name: str, test: Any) -> str | None:
    """Run a test; return what is wrong with its result or with the list, None where nothing is."""
    known = [e for e in read_list() if e.matches(name) and e.kind != "tolerance"]
    wanted = {"refused": IsokernError, "differs": AssertionError}[known[0].kind] if known else None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test(None)
    except (IsokernError, AssertionError) as error:
        if wanted is None or not isinstance(error, wanted):
            return f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return None
    return f"{name}: passes, and the list says that it does not: {known[0].sentence}" if known else None


@cache
def verdict(device: str, name: str) -> str | None:
    """Return what is wrong with a test on a device, which is run once."""
    return judge(name, list_tests(device)[name])


def count(device: str) -> dict[str, Any]:
    """Return how the node tests end on a device: counts, the sentences of those that do not pass, and what is wrong."""
    from importlib.metadata import version

    outcomes: Counter[str] = Counter()
    sentences: Counter[str] = Counter()
    wrong = []
    entries = [e for e in read_list() if e.kind != "tolerance"]
    for name, test in list_tests(device).items():
        if not test.__qualname__.endswith("run_node"):
            continue
        known, found = next((e for e in entries if e.matches(name)), None), verdict(device, name)
        if found is not None and ": NotImplementedOnDevice: " in found:
            outcomes["lacking"] += 1
        elif found is not None:
            outcomes["wrong"] += 1
            wrong.append(found)
        elif known is None:
            outcomes["passed"] += 1
        else:
            outcomes[known.kind] += 1
            sentences[known.sentence] += 1
    return {"onnx": version("onnx"), "outcomes": dict(outcomes), "sentences": dict(sentences), "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(count(sys.argv[1])))
