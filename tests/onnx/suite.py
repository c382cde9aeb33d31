"""ONNX's own backend suite on a device, and the list of its tests that do not pass.

As a command, with the name of a device, it prints how the tests ended, as JSON.
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

import isokern
from isokern.backend.capabilities import support
from isokern.ops import find
from isokern.status import IsokernError, NotImplementedOnDevice

# Networks of 20 billion operations or with layers of 100 million parameters take an emulated GPU many minutes each
SLOW = {"cuda_sim": ("test_vgg19", "test_zfnet512")}
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
    found = {short(n): getattr(case, n) for case in suite.values() for n in sorted(vars(case)) if n.endswith("_cpu")}
    return {n: test for n, test in found.items() if n not in SLOW.get(device.partition(":")[0], ())}


def short(name: str) -> str:
    """Return a test's name without its device."""
    return re.sub("_(cpu|cuda)$", "", name)


@cache
def lacking(device: str) -> set[str]:
    """Return the names of the dtypes that a device has no arithmetic for: it casts nothing to them or from them."""
    choices = support(isokern.device(device), find("cast"))
    taken = {str(dtype) for choice, refused in choices.items() if refused is None for dtype in choice}
    return {str(dtype) for choice in choices for dtype in choice} - taken


def is_lack(error: Exception, lacks: set[str]) -> bool:
    """Return whether an error is that of a missing kernel, and each of its reasons names one of these dtypes."""
    return isinstance(error, NotImplementedOnDevice) and all(
        lacks.intersection(re.findall(r"\w+", reason)) for reason in error.problem.split("; ")
    )


def judge(name: str, test: Any, lacks: set[str]) -> tuple[str, str]:
    """Run a test; return how it ended (passed, refused, differs, lacking or wrong), and why it did not pass."""
    known = next((e for e in read_list() if e.matches(name) and e.kind != "tolerance"), None)
    wanted = {"refused": IsokernError, "differs": AssertionError}[known.kind] if known else ()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            test(None)
    except (IsokernError, AssertionError) as error:
        if known is not None and isinstance(error, wanted):
            return known.kind, known.sentence
        why = " ".join(str(error).split())
        return ("lacking", why) if is_lack(error, lacks) else ("wrong", f"{name}: {type(error).__name__}: {why[:300]}")
    if known is not None:
        return "wrong", f"{name}: passes, and the list says that it does not: {known.sentence}"
    return "passed", ""


@cache
def verdict(device: str, name: str) -> tuple[str, str]:
    """Return how a test ends on a device, on which it is run once, and why it does not pass."""
    return judge(name, list_tests(device)[name], lacking(device))


def is_node(test: Any) -> bool:
    """Return whether a test of the suite is of one node, not of a model."""
    return bool(test.__qualname__.endswith("run_node"))


def count(device: str) -> dict[str, Any]:
    """Return how the tests end on a device: counts, the sentences of those that do not pass, and what is wrong."""
    from importlib.metadata import version

    counts: dict[str, Counter[str]] = {"node": Counter(), "model": Counter()}
    sentences: Counter[str] = Counter()
    wrong = []
    for name, test in list_tests(device).items():
        outcome, why = verdict(device, name)
        counts["node" if is_node(test) else "model"][outcome] += 1
        if outcome == "wrong":
            wrong.append(why)
        elif outcome in ("refused", "differs"):
            sentences[why] += 1
    outcomes = {kind: dict(found) for kind, found in counts.items()}
    return {"onnx": version("onnx"), "outcomes": outcomes, "sentences": dict(sentences), "wrong": wrong}


if __name__ == "__main__":
    print(json.dumps(count(sys.argv[1])))
