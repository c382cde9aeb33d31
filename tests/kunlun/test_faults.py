"""Test kernels that fail: the documented code, the cause and the place, and a host process that goes on."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest

# number of a fault in the kernel `fault`: its exception, words of the message
FAULTS = {
    0: (4, "nothing is at address 0x8"),
    1: (4, "the address is none"),
    2: (3, "division by zero"),
    3: (1, "undefined instruction"),
    4: (4, "stack"),
    5: (30, "aborted"),
    6: (4, "nothing is at address 0x40"),
    7: (4, "nothing is at address 0x10"),
    8: (7, "a copy of no bytes"),
    9: (4, "stack"),
    10: (30, "aborted"),
    11: (30, "called exit"),
    12: (30, "called exit"),
}


def line_of(xpu: Any, text: str) -> int:
    """Return the number of the line with `text` in the kernels' source."""
    source = xpu.kernels._name.replace(".so", ".xpu")
    with open(source) as lines:
        return next(i for i, line in enumerate(lines, 1) if text in line)


@pytest.mark.alone
@pytest.mark.parametrize("which", FAULTS)
def test_a_fault_is_a_kernel_exception_and_stays(xpu: Any, which: int) -> None:
    exception, words = FAULTS[which]
    out = xpu.upload(bytes(4096))
    xpu.ok(xpu.launch("fault", which, out, clusters=3, cores=64))
    assert xpu.wait(None) == xpu.EXCEPTION
    text = xpu.error(xpu.EXCEPTION)
    assert f"kernel fault, exception {exception}, cluster 0, core 0: " in text
    assert words in text
    if which in (0, 1, 2, 3, 6, 7, 8, 11, 12):
        assert f"kernels.xpu:{line_of(xpu, f'case {which}:')})" in text
    # the error is sticky: launches are refused and say why; memory can still be read
    assert xpu.launch("nothing") == xpu.ABNORMAL
    assert words in xpu.error(xpu.ABNORMAL)
    assert xpu.wait(None) == xpu.EXCEPTION
    assert xpu.download(out, 4) == bytes(4)


@pytest.mark.alone
def test_a_fault_on_one_stream_is_told_there_and_stops_the_others(xpu: Any) -> None:
    bad, good = xpu.stream(), xpu.stream()
    xpu.ok(xpu.launch("fault", 0, None, stream=bad))
    assert xpu.wait(bad) == xpu.EXCEPTION
    assert xpu.wait(good) == 0
    assert xpu.launch("nothing", stream=good) == xpu.ABNORMAL


@pytest.mark.alone(ISOKERN_XPU_DEVICES=2)
def test_another_device_goes_on(xpu: Any) -> None:
    xpu.ok(xpu.launch("fault", 0, None))
    assert xpu.wait(None) == xpu.EXCEPTION
    xpu.ok(xpu.set_device(1))
    word = xpu.upload(bytes(4))
    xpu.ok(xpu.launch("add_slowly", word, 3))
    xpu.ok(xpu.wait(None))
    assert xpu.download(word, 4) == b"\3\0\0\0"


@pytest.mark.alone(ISOKERN_XPU_TIMEOUT_MS=200)
@pytest.mark.parametrize("kernel", ["spin", "spin_in_barriers", "spin_printing", "doze"])
def test_a_kernel_without_end_is_ended(xpu: Any, kernel: str) -> None:
    word = xpu.upload(bytes(4))
    arguments = (word, 1) if kernel == "spin" else ()
    xpu.ok(xpu.launch(kernel, *arguments, clusters=4, cores=64))
    assert xpu.wait(None) == xpu.TIMEOUT
    assert f"kernel {kernel}, exception 28, cluster " in xpu.error(xpu.TIMEOUT)
    assert "the kernel does not end within 200 ms" in xpu.error(xpu.TIMEOUT)
    assert xpu.launch("nothing") == xpu.ABNORMAL


@pytest.mark.alone(ISOKERN_XPU_TIMEOUT_MS=200)
@pytest.mark.parametrize("what", ["an atomic", "a lock", "global memory"])
def test_a_spin_without_end_is_ended_with_its_line(xpu: Any, what: str) -> None:
    name = {"an atomic": "atomics", "a lock": "a_lock", "global memory": "global"}[what]
    arguments = (xpu.upload(bytes(4)), 7) if what == "global memory" else (7,)
    xpu.ok(xpu.launch(f"spin_on_{name}", *arguments, clusters=64 if what == "global memory" else 1, cores=4))
    assert xpu.wait(None) == xpu.TIMEOUT
    text = xpu.error(xpu.TIMEOUT)
    line = line_of(xpu, f"// spins on {what}")
    assert int(text.rsplit("kernels.xpu:", 1)[1].split(")")[0]) in range(line, line + (5 if what == "a lock" else 1))
    assert ("a barrier over clusters is not modelled" in text) == (what == "global memory")


@pytest.mark.alone
@pytest.mark.parametrize("name", ["spin_on_atomics", "spin_on_a_lock"])
def test_a_core_that_spins_lets_the_others_go_on(xpu: Any, name: str) -> None:
    xpu.ok(xpu.launch(name, 1, cores=64))
    xpu.ok(xpu.wait(None))


@pytest.mark.alone(ISOKERN_XPU_TIMEOUT_MS=300, ISOKERN_XPU_DEVICES=3)
def test_several_kernels_without_end_are_ended_together(xpu: Any) -> None:
    streams = []
    for device in range(3):
        xpu.ok(xpu.set_device(device))
        word = xpu.upload(bytes(4))
        for _ in range(2):
            streams.append(xpu.stream())
            xpu.ok(xpu.launch("spin", word, 1, clusters=12, cores=64, stream=streams[-1]))
    for stream in streams:
        assert xpu.wait(stream) == xpu.TIMEOUT
    for device in range(3):
        xpu.ok(xpu.set_device(device))
        assert xpu.launch("nothing") == xpu.ABNORMAL


@pytest.mark.alone(ISOKERN_XPU_TIMEOUT_MS=60000)
def test_deadlock_names_who_waits_where(xpu: Any) -> None:
    xpu.ok(xpu.launch("diverge", clusters=2, cores=32))  # with 16 cores, each is a group
    assert xpu.wait(None) == xpu.TIMEOUT
    text = xpu.error(xpu.TIMEOUT)
    assert "exception 28" in text
    others, two = line_of(xpu, "// the others"), line_of(xpu, "// two of four")
    assert "cores 0-1 wait at " in text
    assert "cores 2-4, 6-31 wait at " in text
    assert f"kernels.xpu:{others} for all cores of the cluster" in text
    assert f"kernels.xpu:{two} for the groups of four in mask 0x1" in text
    assert "the others have ended" in text


@pytest.mark.alone(ISOKERN_XPU_DEVICES=40)
def test_lanes_are_used_again_after_faults(xpu: Any) -> None:
    for device in range(0, 40, 2):
        xpu.ok(xpu.set_device(device))
        xpu.ok(xpu.launch("fault", device // 2 % 13, xpu.upload(bytes(4096)), clusters=3, cores=64))
        assert xpu.wait(None) == xpu.EXCEPTION
        xpu.ok(xpu.set_device(device + 1))
        out = xpu.malloc(3 * 64 * 4)
        xpu.ok(xpu.launch("rotate", out, clusters=3, cores=64))
        xpu.ok(xpu.wait(None))
        values = list((ctypes.c_int * 192).from_buffer_copy(xpu.download(out, 768)))
        assert values == [(i + 1) % 64 for i in range(64)] * 3


@pytest.mark.alone
def test_a_segmentation_fault_of_the_host_stays_one(xpu: Any) -> None:
    import os
    import signal
    import subprocess
    import sys

    xpu.ok(xpu.launch("nothing"))
    xpu.ok(xpu.wait(None))
    child = (
        "import ctypes, faulthandler, os, sys\n"
        "late = sys.argv[1] == 'late'\n"
        "if not late: faulthandler.enable()\n"
        "x = ctypes.CDLL(os.environ['XPU_RUNTIME'], ctypes.RTLD_GLOBAL)\n"
        "k = ctypes.CDLL(os.environ['XPU_KERNELS'])\n"
        "assert k.launch_nothing(1, 1, None) == 0 and x.xpu_wait(None) == 0\n"
        "if late: faulthandler.enable()\n"
        "assert k.launch_nothing(1, 1, None) == 0 and x.xpu_wait(None) == 0\n"
        "ctypes.string_at(8)\n"
    )
    for when in ("early", "late"):
        done = subprocess.run(
            [sys.executable, "-c", child, when], capture_output=True, text=True, check=False, env=os.environ
        )
        assert done.returncode == -signal.SIGSEGV
        assert done.stderr.count("Fatal Python error: Segmentation fault") == 1


@pytest.mark.alone
def test_host_code_beside_a_kernel_may_exit(xpu: Any) -> None:
    import os

    child = os.fork()
    if child == 0:
        xpu.kernels.end_process(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
