"""Hooks and fixtures for all tests.

Of a test marked `quick` README's command runs the cases that the mark names. Each test reports the time it took, for
`tox -e times`. The `stranger` fixture runs code as a user who has no entry in the user database. A test is skipped,
with the reason, where the device that it asks for is missing, and fails where one is broken.
"""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

import isokern


def _find_device(name=None):
    try:
        return isokern.device(name)
    except isokern.DeviceNotAvailable as error:
        broken = [f"{b.name}: {b.reason}\n{b.trace}" for b in isokern.backends() if b.status == "broken"]
        assert not broken, "\n".join(broken)
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def device():
    """Return the default device."""
    return _find_device()


@pytest.fixture(scope="session")
def cpu():
    """Return the CPU."""
    return _find_device("cpu")


@pytest.fixture(scope="session")
def devices():
    """Return all devices."""
    return isokern.devices() or pytest.skip("no device is available")


COMPILED = ("opencl", "cuda")  # devices that compile each kernel when it is first called


@pytest.fixture(params=["built", pytest.param("compiled", marks=pytest.mark.full)])
def device_group(request, devices):
    """Return the devices whose kernels were built before; in full runs then also those that compile each kernel.

    It is for tests of what is above the kernels, in which compiling them takes most of the time.
    """
    compiled = request.param == "compiled"
    found = [d for d in devices if d.name.startswith(COMPILED) == compiled]
    return found or pytest.skip(f"no device with {request.param} kernels is available")


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Return a cache folder that all tests share, so that everything is built once."""
    return tmp_path_factory.mktemp("cache")


@pytest.hookimpl(tryfirst=True)  # before pytest judges `full`
def pytest_collection_modifyitems(config, items):
    """Mark `full` the cases that a test's `quick` does not name; a name that is no case of it is an error."""
    named, found = {}, {}
    for item in items:
        if (marker := item.get_closest_marker("quick")) is not None:
            function = item.nodeid.partition("[")[0]
            named[function] = set(marker.args)
            found.setdefault(function, set()).add(item.callspec.id)
            if item.callspec.id not in marker.args:
                item.add_marker("full")
    if not any("::" in argument for argument in config.args):
        for function, names in named.items():
            if unknown := names - found[function]:
                given = f"{function} has no case {', '.join(sorted(unknown))}; allowed: {', '.join(found[function])}"
                raise pytest.UsageError(given)


def pytest_collection_finish():
    """Leave the modules and the thousands of tests out of later collections, which many tests ask for."""
    gc.collect()
    gc.freeze()


def _processor_seconds() -> float:
    """Return the processor time of this process and of its children that have ended."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    """Append one line per test to the folder in which toxfile.py collects the times of environments."""
    wall, processor = time.perf_counter(), _processor_seconds()
    result = yield
    if "TOX_WORK_DIR" in os.environ:
        row = [item.nodeid, round(time.perf_counter() - wall, 4), round(_processor_seconds() - processor, 4)]
        folder = Path(os.environ["TOX_WORK_DIR"], "times")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / f"{os.environ['TOX_ENV_NAME']}.tests").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
    return result


@pytest.fixture
def run():
    """Return a function that runs Python code in a new process and returns (status, output)."""

    def start(code, *arguments, **environment):
        command = [sys.executable, "-c", code, *map(str, arguments)]
        given = {**os.environ, **environment}
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=300)
        return done.returncode, done.stdout + done.stderr

    return start


class Stranger:
    """A user without a home or an entry in the user database; `folder` is both working folder and temporary folder."""

    user = 54321

    def __init__(self, folder, way):
        self.folder, self._way = folder, way

    def __call__(self, code, **environment):
        """Run Python code and return (status, output); of the caller's variables only PATH is inherited."""
        given = {"PATH": os.environ["PATH"], "TMPDIR": str(self.folder), **environment}
        command = [*self._way, sys.executable, "-c", code]
        done = subprocess.run(
            command, env=given, cwd=self.folder, capture_output=True, text=True, check=False, timeout=300
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def stranger():
    """Return a function that runs Python as another user; skip the test unless root runs it."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("only root can become another user, by setpriv")
    folder = Path(tempfile.mkdtemp(prefix="stranger-"))  # not below pytest's own folder, which others cannot enter
    os.chown(folder, Stranger.user, Stranger.user)
    way = ["setpriv", f"--reuid={Stranger.user}", f"--regid={Stranger.user}", "--clear-groups"]
    # The second attempt lets the user read every file: the Python installation may be in root's home
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
