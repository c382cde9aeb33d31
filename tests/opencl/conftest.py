"""Fixtures for PoCL, in this process as `device` and in other processes with their own settings.

Oclgrind serves where memory must not be the host's.
"""

import importlib.util
import os
import subprocess
import sys
from functools import partial

import pytest

import isokern


def lacking():
    """Return why PoCL is missing; another process asks, since tests open devices with their own settings."""
    if importlib.util.find_spec("isokern_opencl") is None:
        return "isokern-opencl is not installed"
    code = (
        "import isokern; print(*[b.reason for b in isokern.backends()"
        " if b.name == 'opencl' and b.status == 'unavailable'])"
    )
    environment = {**os.environ, "ISOKERN_OPENCL_DEVICES": "pocl"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()


LACKING = lacking()
collect_ignore_glob = ["test_*.py"] if LACKING else []


def pytest_terminal_summary(terminalreporter):
    """Say why all tests are left out, where they are."""
    if LACKING:
        terminalreporter.write_line(f"tests/opencl is left out: {LACKING}")


@pytest.fixture(scope="session", autouse=True)
def settings(cache):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ISOKERN_CACHE", str(cache))
        patch.setenv("ISOKERN_PLUGINS", "opencl")
        patch.setenv("PYOPENCL_NO_CACHE", "1")
        isokern.backends()  # declares the plug-in's settings
        yield


@pytest.fixture(scope="session")
def device(settings):
    """Return PoCL's device, without binaries, for which PoCL would compile each program once more."""
    found = isokern.device("opencl:pocl:0")
    found.programs.binaries = False
    return found


@pytest.fixture
def run(run):
    """Return a function that runs Python code in a new process, where PoCL runs kernels in the caller's thread.

    By default it asks for no binaries either.
    """
    return partial(run, ISOKERN_OPENCL_DEVICES="pocl", POCL_DEVICES="basic", ISOKERN_OPENCL_BINARIES="0")


@pytest.fixture
def devices(run):
    """Return a function that gives the output of `isokern devices` under some settings, on one line."""

    def ask(**environment):
        code = (
            "from isokern.cli.devices import rows;"
            " print([(r['device'], r['status'], r['reason'], r['properties']) for r in rows()])"
        )
        status, text = run(code, **environment)
        assert status == 0, text
        return text

    return ask
