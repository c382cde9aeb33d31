"""What must hold for whole processes: fork, exit with work in flight, and threads that are left behind."""

from __future__ import annotations

import os
import subprocess
import sys

from ...backend import Device
from .check import fail, lacks, runtime_check

LIMIT = 120  # seconds

PRELUDE = """
import os, sys, threading, gc
import numpy as np
import isokern
from isokern.conformance.runtime.work import Chain, make_long_chain
device = isokern.device({name!r})
"""
EXIT = """
chain = make_long_chain(device)
stream = device.stream()
with stream.capture() as recording:
    chain.enqueue(stream)
recording.replay(stream)
chain.enqueue(stream)
event = stream.record()
print("at the end")
"""
FIRST_USE = """
results = []
def use():
    chain = Chain(device, length=3)
    chain.enqueue(device.default_stream)
    results.append(chain.differs(chain.last.numpy()) or "right")
thread = threading.Thread(target=use)
thread.start()
thread.join()
use()
print(*results)
"""
FORK = """
chain = Chain(device, length=3)
chain.enqueue(device.default_stream)
device.synchronize()
sys.stdout.flush()
child = os.fork()
if child == 0:
    try:
        other = Chain(device, length=3)
        other.enqueue(device.default_stream)
        code = 0 if not other.differs(other.last.numpy()) else 3
    except isokern.IsokernError as error:
        code = 4 if str(error).strip() else 5
    os._exit(code)
_, status = os.waitpid(child, 0)
print("child", os.waitstatus_to_exitcode(status))
chain.clear()
chain.enqueue(device.default_stream)
print(chain.differs(chain.last.numpy()) or "right")
"""


def _run(device: Device, program: str) -> str:
    """Run a program in a process of its own, which finds the device by its name; return what it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    text = PRELUDE.format(name=device.name) + program
    try:
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, timeout=LIMIT, env=environment
        )
    except subprocess.TimeoutExpired:
        fail(f"the process did not end within {LIMIT} s")
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["nothing on its standard error"])[-1]
        fail(f"the process ended with {done.returncode}: {last}")
    if "Traceback" in done.stderr or "Exception ignored" in done.stderr:
        fail(f"the process ended with 0 and a traceback: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.strip()


@runtime_check()
def ends_with_pending_work(device: Device) -> None:
    """A process that ends with tensors, recordings and work in flight ends in order, and soon."""
    if not _run(device, EXIT).endswith("at the end"):
        fail("the process did not come to its end")


@runtime_check()
def begins_in_any_thread(device: Device) -> None:
    """A device may be used for the first time in a thread that is not the main one, and in another one afterwards."""
    if (said := _run(device, FIRST_USE).splitlines()[-1]) != "right right":
        fail(said)


@runtime_check()
def survives_a_fork(device: Device) -> None:
    """After a fork the parent goes on; the child computes, or is told by a typed error that it cannot."""
    if not hasattr(os, "fork"):
        lacks("this system has no fork")
    lines = _run(device, FORK).splitlines()
    child, parent = lines[-2], lines[-1]
    if child not in ("child 0", "child 4"):
        fail(f"the {child.replace('child', 'child ended with')}: neither right numbers nor a typed error")
    if parent != "right":
        fail(f"the parent, after its child: {parent}")
