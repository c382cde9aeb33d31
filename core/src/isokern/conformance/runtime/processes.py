"""What must hold for whole processes: fork, exit with work in flight, and threads that are left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ...backend import Device
from ..exit_codes import describe_exit
from .check import fail, lacks, runtime_check

LIMIT = 120.0  # seconds until a program has come to its last line
END = 20.0  # seconds in which the process ends then, and in which a forked child does
LAST = "at the end"
# By these requirements the start and the end of the suite's own workers are judged, too
STARTS, ENDS = "runtime/processes/opens_in_another_process", "runtime/processes/ends_with_pending_work"

PRELUDE = """
import os, signal, sys, threading, time
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
"""
OPEN = """
chain = Chain(device, length=3)
chain.enqueue(device.default_stream)
print(chain.differs(chain.last.numpy()) or "right")
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
end = time.monotonic() + {end}
ended, status = os.waitpid(child, os.WNOHANG)
while not ended and time.monotonic() < end:
    time.sleep(0.01)
    ended, status = os.waitpid(child, os.WNOHANG)
if ended:
    print("child", os.waitstatus_to_exitcode(status))
else:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    print("child hung")
chain.clear()
chain.enqueue(device.default_stream)
print(chain.differs(chain.last.numpy()) or "right")
"""


def _run(device: Device, program: str) -> list[str]:
    """Run a program in a process of its own, which finds the device by its name; return the lines that it prints."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    text = f"{PRELUDE}{program}\nprint({LAST!r}, flush=True)".replace("{name!r}", repr(device.name))
    with tempfile.TemporaryDirectory() as folder:
        said, complained = Path(folder, "stdout"), Path(folder, "stderr")
        with said.open("w") as out, complained.open("w") as err:
            process = subprocess.Popen(
                [sys.executable, "-c", text], stdout=out, stderr=err, env=environment, start_new_session=True
            )
        try:
            limit, at_the_end = time.monotonic() + LIMIT, False
            while process.poll() is None:
                if not at_the_end and LAST in _read(said):
                    limit, at_the_end = time.monotonic() + END, True
                if time.monotonic() > limit:
                    what = f"did not end within {END:.0f} s of its last line" if at_the_end else "hung"
                    fail(f"the process {what}{_quote_last(_read(complained))}")
                time.sleep(0.02)
        finally:
            if process.poll() is None:
                with suppress(OSError, AttributeError):  # its children too; AttributeError: a system without groups
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.wait()
        lines, trouble = _read(said), _read(complained)
    if process.returncode:
        fail(f"the process ended with {describe_exit(process.returncode)}{_quote_last(trouble)}")
    if any("Traceback" in line or "Exception ignored" in line for line in trouble):
        fail(f"the process ended with 0 and a traceback{_quote_last(trouble)}")
    if LAST not in lines:
        fail(f"the process ended before its last line{_quote_last(trouble)}")
    return lines[: lines.index(LAST)]  # what a backend prints at exit comes behind it


def _read(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").strip().splitlines()


def _quote_last(lines: list[str]) -> str:
    return f"; the last line on its standard error: {lines[-1]}" if lines else "; it wrote nothing to standard error"


@runtime_check()
def ends_with_pending_work(device: Device) -> None:
    """A process that ends with tensors, recordings and work in flight ends in order, and soon."""
    _run(device, EXIT)


@runtime_check()
def opens_in_another_process(device: Device) -> None:
    """While one process has the device, another one opens it and computes."""
    if (said := _run(device, OPEN)[-1]) != "right":
        fail(said)


@runtime_check()
def begins_in_any_thread(device: Device) -> None:
    """A device may be used for the first time in a thread that is not the main one, and in another one afterwards."""
    if (said := _run(device, FIRST_USE)[-1]) != "right right":
        fail(said)


@runtime_check()
def survives_a_fork(device: Device) -> None:
    """After a fork the parent goes on; the child computes, or gets a typed error that says that it cannot."""
    if not hasattr(os, "fork"):
        lacks("this system has no fork")
    child, parent = _run(device, FORK.replace("{end}", str(END)))[-2:]
    if child not in ("child 0", "child 4"):
        how = f"hung for {END:.0f} s" if child == "child hung" else child.replace("child", "ended with")
        fail(f"the child {how}: neither right numbers nor a typed error")
    if parent != "right":
        fail(f"the parent, after its child: {parent}")
