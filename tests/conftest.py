"""For all tests: those marked `turns` take turns from commit to commit, and each reports the time it took for `tox -e times`; and what a user does
whom the list of users does not know."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import pytest


def _turn() -> int:
    """A number that goes on with every commit; 0 where git cannot count them."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    except (OSError, subprocess.CalledProcessError):
        return 0


@pytest.fixture(scope="session")
def turn():
    """The number that goes on with every commit, for a test whose cases take turns."""
    return _turn()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """Of a test marked `turns(n)` keep the first of its parameters and every n-th beside it, others at each commit.

    With `-m ""`, and where tests are called by their names, all are kept.
    """
    if config.getoption("markexpr") != "not full" or any("::" in argument for argument in config.args):
        return
    turn, kept, others, seen = _turn(), [], [], set()
    for item in items:
        marker, function = item.get_closest_marker("turns"), item.nodeid.partition("[")[0]
        if (
            marker is None
            or function not in seen
            or zlib.crc32(item.nodeid.encode()) % marker.args[0] == turn % marker.args[0]
        ):
            kept.append(item)
        else:
            others.append(item)
        seen.add(function)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = kept


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


class Stranger:
    """A user without a home and without an entry in the list of users; `folder` is theirs, and the temporary one."""

    user = 54321

    def __init__(self, folder, way):
        self.folder, self._way = folder, way

    def __call__(self, code, **environment):
        """Run Python; (status, output). No variable is inherited but what finds programs."""
        given = {"PATH": os.environ["PATH"], "TMPDIR": str(self.folder), **environment}
        command = [*self._way, sys.executable, "-c", code]
        done = subprocess.run(
            command, env=given, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def stranger():
    """Run Python as somebody else, which only root can."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv")
    folder = Path(tempfile.mkdtemp(prefix="stranger-"))  # not below pytest's own folder, where others may not go
    os.chown(folder, Stranger.user, Stranger.user)
    way = ["setpriv", f"--reuid={Stranger.user}", f"--regid={Stranger.user}", "--clear-groups"]
    # With the second they may read everything: a Python may lie in root's home
    for more in ([], ["--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search"]):
        made = Stranger(folder, [*way, *more])
        if (status := made("import isokern.disk_cache")[0]) == 0:
            break
    try:
        if status != 0:
            pytest.skip("another user cannot read this Python")
        yield made
    finally:
        shutil.rmtree(folder)
