"""Test a forked child: it waits for no lock that a thread of the parent held, and has its own thread pool."""

import gc
import os
import signal
import threading

import numpy as np
import pytest

import isokern
from isokern.eager import calls

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def child(work):
    """Run `work` in a forked child for at most ten seconds, and return the child's wait status."""
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        try:
            os._exit(0 if work() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(pid, 0)[1]


def right(a, device) -> bool:
    """Return whether the product is right, or an asynchronous device refuses because of the fork."""
    try:
        return isokern.matmul(a, a, device=device).numpy()[0, 0] == 700
    except isokern.DeviceNotAvailable as error:
        return device.asynchronous and "fork" in str(error)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_can_call(device):
    a = np.ones((700, 700), np.float32)
    assert isokern.matmul(a, a, device=device).numpy()[0, 0] == 700
    held, done = threading.Event(), threading.Event()

    def hold():
        with calls._lock, device.memory._lock:
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        assert child(lambda: right(a, device)) == 0
    finally:
        done.set()
        thread.join()


def test_a_buffer_may_die_while_memory_is_counted(device):
    memory = device.memory
    buffer = memory.alloc(8)
    gc.collect()
    live = memory.live
    with memory._lock:
        del buffer
    assert memory.live == live - 8
