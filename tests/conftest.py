"""What every test reports where tox runs it: the wall and the processor time it took, for `tox -e times`."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path

import pytest


def _processor_seconds() -> float:
    """Of this process, and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """A line a test, in the folder where toxfile.py leaves the times of environments."""
    wall, processor = time.perf_counter(), _processor_seconds()
    result = yield
    if "TOX_WORK_DIR" in os.environ:
        row = [item.nodeid, round(time.perf_counter() - wall, 4), round(_processor_seconds() - processor, 4)]
        folder = Path(os.environ["TOX_WORK_DIR"], "times")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{os.environ['TOX_ENV_NAME']}.tests").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
    return result
