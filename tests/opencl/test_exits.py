"""Test that a process ends as it should while daemon threads compute on a device."""

from __future__ import annotations

import subprocess
import sys

import pytest

from isokern_opencl.exits import _Waiting

PROGRAM = """
import threading, time
import numpy as np
import isokern
from isokern_opencl.exits import waiting
PLANT
a = np.ones((200, 200), np.float32)
isokern.matmul(a, a, device="opencl:0")
def compute():
    while True:
        isokern.matmul(a, a, device="opencl:0").numpy()
for _ in range(3):
    threading.Thread(target=compute, daemon=True).start()
time.sleep(0.3)
"""


def end(planted: str = "") -> int:
    program = PROGRAM.replace("PLANT", planted)
    return subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=120).returncode


@pytest.mark.parametrize("n", range(4))
def test_daemon_threads_do_not_abort_the_exit(n: int) -> None:
    assert end() == 0


@pytest.mark.full
@pytest.mark.skipif(sys.version_info >= (3, 14), reason="this Python lets such threads hang instead of unwinding them")
def test_without_the_gate_the_exit_aborts() -> None:
    assert -6 in [end("import atexit; atexit.unregister(waiting.close)") for _ in range(12)]


def test_calls_within_calls_are_counted() -> None:
    waiting = _Waiting()
    with waiting:
        with waiting:
            pass
        assert list(waiting.depths.values()) == [1]
        waiting.close()  # the thread that exits does not wait for itself
    assert waiting.depths == {}
    with waiting:
        pass
