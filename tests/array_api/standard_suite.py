"""The standard's own suite, array-api-tests, on a device, and the list of its tests that do not pass."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import isokern.array_api as xp

LIST = Path(__file__).with_name("suite_exceptions.tsv")
FOLDER = "ARRAY_API_TESTS_FOLDER"


def read_list(device: str) -> dict[str, str]:
    """Return a device's list: the pattern of whole names of tests → why these do not pass."""
    rows = LIST.read_text(encoding="utf-8").splitlines()
    lines = [row.split("\t") for row in rows if not row.startswith("#")]
    return {pattern: sentence for where, pattern, sentence in lines if re.fullmatch(where, device)}


def find_suite() -> Path | None:
    """Return the checkout of array-api-tests, with its submodule, that the environment names, or None."""
    named = os.environ.get(FOLDER)
    folder = Path(named) if named else None
    return folder if folder is not None and (folder / "array-api" / "spec").is_dir() else None


def run_suite(suite: Path, device: str, desk: Path, examples: int) -> dict[str, str]:
    """Run a copy of the suite on a device; return each test's name → passed, failed or skipped."""
    shutil.copytree(suite, desk, ignore=shutil.ignore_patterns(".git", ".hypothesis", "__pycache__"))
    lacks = {"float64", "complex128"} - set(xp.__array_namespace_info__().dtypes(device=device))
    environment = {
        **os.environ,
        "ISOKERN_DEVICE": device,
        "ARRAY_API_TESTS_MODULE": "isokern.array_api",
        "ARRAY_API_TESTS_SKIP_DTYPES": ",".join(sorted(lacks)),
    }
    report = desk / "report.xml"
    options = ["-q", "-W", "ignore", "-p", "no:cacheprovider", "--disable-deadline", "--hypothesis-derandomize"]
    command = [sys.executable, "-m", "pytest", "array_api_tests", *options, f"--max-examples={examples}"]
    done = subprocess.run(
        [*command, f"--junitxml={report}"], cwd=desk, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode in (0, 1), done.stdout[-2000:] + done.stderr[-2000:]
    return read_report(report)


def read_report(report: Path) -> dict[str, str]:
    """Return the outcomes that pytest wrote."""
    outcomes = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.attrib['classname'].rpartition('.')[2]}::{case.attrib['name']}"
        kinds = {child.tag for child in case}
        outcomes[name] = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
    return outcomes


def compare(outcomes: dict[str, str], device: str) -> list[str]:
    """Return what differs from the list: tests that fail and are not in it, and lines of which no test fails.

    Tests of a pattern after `? ` may all pass, as what is drawn decides, but there must be some.
    """
    listed = read_list(device)
    failed = [name for name, outcome in outcomes.items() if outcome == "failed"]
    unknown = [name for name in failed if not any(re.fullmatch(p.removeprefix("? "), name) for p in listed)]
    idle = [
        pattern
        for pattern in listed
        if not any(
            re.fullmatch(pattern.removeprefix("? "), name)
            for name in (outcomes if pattern.startswith("? ") else failed)
        )
    ]
    return [f"{name} fails" for name in unknown] + [f"{p}: no such test fails" for p in idle]
