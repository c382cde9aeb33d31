"""Test what a saboteur alone cannot show of the runner.

That is: a device's conditions, memory that is not the host's, checks that are missing in the core, and a call that
never ends.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import runtime_saboteurs
import saboteurs
from threaded_device import ThreadedDevice, ThreadedKernel

from isokern import F32, TensorDesc
from isokern.backend import Buffer, Device, HostMemory, Workspace
from isokern.call.descriptor import Descriptor
from isokern.conformance import run, worker
from isokern.conformance.derive import device_cases
from isokern.conformance.fenced_memory import alloc_fenced
from isokern.conformance.fenced_workspace import FENCE, FencedWorkspace
from isokern.conformance.run import Runner
from isokern.conformance.runtime.processes import ENDS, STARTS
from isokern.declare.operator import ErrorCase, Sample
from isokern.dtypes import DType
from isokern.ops import find
from isokern.oracle.cases import Case
from isokern.oracle.layouts import elements
from isokern.oracle.verdicts import Outcome, Verdict
from isokern.status import BadTensorShape, InvalidArgument


class Apart(HostMemory):
    """Host memory that claims not to be host memory, so that arrays are not wrapped."""

    wraps = False


def broken(saboteur: saboteurs.Saboteur, **conditions: str) -> saboteurs.BrokenDevice:
    device = saboteurs.BrokenDevice("broken:0", saboteur)
    device.conditions = conditions
    return device


def verdicts(device: Device, *operators: str, dtype: str = "") -> set[Verdict]:
    cases = [c for c in device_cases(device, [find(o) for o in operators]) if c.quick and dtype in ("", c.dtype)]
    runner = Runner(device)
    return {runner.run(c).verdict for c in cases}


def test_a_device_that_says_it_flushes_subnormals_may(cpu: Device) -> None:
    assert Verdict.FAIL_VALUE in verdicts(broken(saboteurs.FlushesSubnormals()), "add", "mul")
    assert verdicts(broken(saboteurs.FlushesSubnormals(), flushes_denormals="no unit for them"), "add", "mul") == {
        Verdict.PASS
    }
    assert Verdict.FAIL_VALUE in verdicts(broken(saboteurs.DropsNaN(), flushes_denormals="no unit for them"), "add")


def test_a_device_that_says_it_is_not_deterministic_may_differ_within_the_bound(cpu: Device) -> None:
    assert Verdict.FAIL_VALUE in verdicts(broken(saboteurs.Noise()), "exp", dtype="F32")
    assert verdicts(broken(saboteurs.Noise(), nondeterministic="atomics"), "exp", dtype="F32") == {Verdict.PASS}


def test_memory_that_cannot_be_wrapped_has_a_fence_behind_the_workspace(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saboteurs, "HostMemory", Apart)
    assert verdicts(broken(saboteurs.Saboteur()), "matmul", "add") == {Verdict.PASS}
    assert verdicts(broken(saboteurs.WorkspaceShort()), "matmul") >= {Verdict.FAIL_MEMORY}


class Shifted(HostMemory):
    """Host memory that is aligned to four bytes."""

    def allocate_buffer(self, nbytes: int, element: DType, kind: str, alignment: int, empty: bool) -> Buffer:
        whole = np.zeros(nbytes + 2 * 64, np.uint8)
        start = -whole.ctypes.data % 64 + 4
        return self.buffer(self, whole[start : start + nbytes], element, kind)


def test_memory_that_is_not_aligned_is_the_backends_fault_in_every_dtype(
    cpu: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saboteurs, "HostMemory", Shifted)
    runner = Runner(broken(saboteurs.Saboteur()))
    for dtype in ("I8", "F32", "F64"):
        case = next(c for c in device_cases(runner.device, [find("abs")]) if c.dtype == dtype and c.calls)
        outcome = runner.run(case)
        assert outcome.verdict is Verdict.FAIL_MEMORY
        assert outcome.detail.endswith("not a multiple of 64: the backend's allocate_buffer has to align")


def test_the_fences_of_a_workspace_show_each_byte(cpu: Device) -> None:
    scratch = FencedWorkspace(cpu.memory, Workspace(100, 64), 0x5A, roomy=False)
    assert scratch.buffer.nbytes == 100
    assert scratch.buffer.address % 64 == 0
    assert set(scratch.buffer.read()) == {0x5A}
    assert scratch.count_overrun() == 0
    assert scratch.whole is not None
    for at in (scratch.start - 1, scratch.start + 100):
        scratch.whole[at] = 0
        assert scratch.count_overrun() == 1
        scratch.whole[at] = FENCE


def test_one_byte_less_must_be_refused(cpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    device = broken(saboteurs.TakesAnyWorkspace())
    assert verdicts(device, "matmul") == {Verdict.PASS}  # the core refuses the call before the device sees it
    monkeypatch.setattr(Descriptor, "_check_workspace", lambda self, tensors, given: None)
    outcomes = [Runner(device).run(c) for c in device_cases(device, [find("matmul")]) if c.quick and c.calls]
    assert any(o.verdict is Verdict.FAIL_ERROR and "are needed" in o.detail for o in outcomes)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (ErrorCase({"a": (3,), "b": (3,)}, InvalidArgument), "accepted what InvalidArgument must refuse"),
        (ErrorCase({"a": (3,), "b": (4,)}, InvalidArgument), "BadTensorShape instead of InvalidArgument"),
    ],
)
def test_an_error_case_fails_where_nothing_or_something_else_is_raised(
    cpu: Device, given: ErrorCase, found: str
) -> None:
    if found.startswith("BadTensorShape"):
        assert not issubclass(BadTensorShape, InvalidArgument)
    outcome = Runner(cpu).run(Case(find("add"), (), Sample({}), values="error", error=given))
    assert outcome.verdict is Verdict.FAIL_ERROR
    assert found in outcome.detail


def test_a_declaration_that_has_no_result_is_told_apart(cpu: Device) -> None:
    lacking = dataclasses.replace(find("add"), reference=lambda a, b: a[:1])
    outcome = Runner(cpu).run(Case(lacking, (F32,), Sample({"a": (3,), "b": (3,)})))
    assert outcome.verdict is Verdict.FAIL_ERROR
    assert "declaration" in outcome.detail


def test_a_write_anywhere_is_placed(cpu: Device) -> None:
    desc = TensorDesc(F32, (3,), (2,), 4)
    for at, where in (
        (15, "byte 1 before its first element"),
        (36, "byte 1 past its last element"),
        (20, "byte 4 of its span, in a gap"),
    ):
        buffer = cpu.memory.alloc(64)
        raw = buffer.read()
        elements(raw, desc)[...] = 1
        buffer.write(raw)
        placed = run.PlacedTensor("y", run.Tensor(desc, buffer), raw)
        assert placed.find_changes(written=True) == ""
        raw = raw.copy()
        raw[at] ^= 1
        buffer.write(raw)
        assert where in placed.find_changes(written=True)


@pytest.fixture
def installed_saboteurs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let worker processes, which inherit the path, find the saboteurs."""
    info = tmp_path / "saboteurs-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: saboteurs\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[isokern]\nsaboteurs = saboteurs\n")
    monkeypatch.syspath_prepend(tmp_path)


def test_a_device_on_which_every_case_crashes_ends_early(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, installed_saboteurs: None
) -> None:
    monkeypatch.setattr(worker, "CRASHES", 2)
    device = broken(saboteurs.Saboteur())
    cases = [c for c in device_cases(device, [find("abs")]) if c.dtype == "I16" and "x=1025" in c.id and c.calls][:5]
    heard: list[Outcome] = []
    worker.run_isolated("crashes:0", cases, lambda case, outcome: heard.append(outcome), jobs=1, patience=60)
    assert [o.verdict for o in heard] == [Verdict.FAIL_CRASH] * 2
    assert heard[-1].detail.endswith(f"; 2 cases in a row did, so {len(cases) - 2} others were not run")


@pytest.mark.parametrize("name", ["writesfarbehind", "writesfarbefore"])
def test_a_write_far_outside_a_tensor_fails_the_case_that_makes_it(
    cpu: Device, installed_saboteurs: None, name: str
) -> None:
    device = broken(saboteurs.Saboteur())
    every = [c for c in device_cases(device, [find("abs")]) if c.calls]
    cases = [c for c in every if c.dtype == "I16" and "x=1025" in c.id][:1] + [c for c in every if c.dtype == "F32"][:3]
    crash, *others = hear(f"{name}:0", cases)
    assert (crash.id, crash.verdict) == (cases[0].id, Verdict.FAIL_CRASH)
    assert "SIGSEGV" in crash.detail
    assert {o.verdict for o in others} == {Verdict.PASS}


def test_a_read_behind_an_input_fails_where_nothing_lies_behind_it(cpu: Device, installed_saboteurs: None) -> None:
    device = broken(saboteurs.Saboteur())
    bare = [
        c for c in device_cases(device, [find("abs")]) if c.calls and c.layout == "bare" and "x=scalar" not in c.id
    ][:1]
    (crash,) = hear("readsbehind:0", bare)
    assert crash.verdict is Verdict.FAIL_CRASH
    assert "SIGSEGV" in crash.detail
    assert [o.verdict for o in hear("null:0", bare)] == [Verdict.PASS]


@pytest.mark.parametrize(
    ("kernel", "where"),
    [
        (runtime_saboteurs.WritesFarBeforeKernel, "byte 4096 before its first element"),
        (runtime_saboteurs.WritesFarBehindKernel, "byte 4097 past its last element"),
    ],
)
def test_a_write_far_outside_a_tensor_in_a_devices_own_memory_is_told(
    cpu: Device, kernel: type[ThreadedKernel], where: str
) -> None:
    sound = ThreadedDevice("sound:0")
    case = next(c for c in device_cases(sound, [find("add")]) if c.calls and c.dtype == "F32" and c.layout == "offset")
    assert Runner(sound).run(case).verdict is Verdict.PASS
    outcome = Runner(type("Far", (ThreadedDevice,), {"kernel": kernel})("far:0")).run(case)
    assert outcome.verdict is Verdict.FAIL_MEMORY
    assert outcome.detail == f"8 bytes of y were overwritten, the first {where}"


def test_memory_between_fences_is_whole(cpu: Device) -> None:
    for nbytes in (0, 12, 64, 4096, 4160, 1 << 16):
        array = alloc_fenced(nbytes)
        assert array is not None
        array[...] = 7
        assert array.size == nbytes
        assert int(array.sum()) == 7 * nbytes
        assert (array.ctypes.data + nbytes) % 4096 == 0


def test_a_case_that_hangs_costs_one_case(cpu: Device, installed_saboteurs: None) -> None:
    device = broken(saboteurs.Saboteur())
    cases = [c for c in device_cases(device, [find("abs")]) if c.dtype == "I16" and "4096" in c.id][:1]
    cases += [c for c in device_cases(device, [find("abs")]) if c.dtype == "F32" and c.quick][:3]
    heard: list[Outcome] = []
    worker.run_isolated("hangs:0", cases, lambda case, outcome: heard.append(outcome), jobs=1, patience=4)
    assert [o.verdict for o in heard] == [Verdict.FAIL_CRASH, *[Verdict.PASS] * 3]
    assert "hung" in heard[0].detail


def install(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Install a plug-in whose import runs `code`; worker processes, which inherit the path, find it."""
    info = folder / "late-0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 0\n")
    (info / "entry_points.txt").write_text("[isokern]\nlate = late\n")
    (folder / "late.py").write_text(code)
    monkeypatch.syspath_prepend(folder)


def hear(device: str, cases: list[Case], patience: float = 300) -> list[Outcome]:
    heard: list[Outcome] = []
    worker.run_isolated(device, cases, lambda case, outcome: heard.append(outcome), jobs=1, patience=patience)
    return heard


def test_a_worker_that_cannot_start_is_a_failure_of_its_own(cpu: Device) -> None:
    case = next(c for c in device_cases(cpu, [find("abs")]) if c.calls)
    (outcome,) = hear("nosuch:0", [case])
    assert (outcome.id, outcome.verdict) == (STARTS, Verdict.FAIL_CRASH)
    assert "ended with exit code 1; the last line that it printed: isokern.status.DeviceNotAvailable" in outcome.detail
    assert "1 cases were not run" in outcome.detail


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import atexit, os\natexit.register(os.abort)\n", "ended with signal SIGABRT"),
        pytest.param(
            "import threading\nthreading.Thread(target=threading.Event().wait).start()\n",
            "did not end within 3 s",
            id="a-thread",
        ),
    ],
)
def test_a_worker_that_does_not_end_in_order_behind_its_last_case_is_a_failure_of_its_own(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, how: str
) -> None:
    install(tmp_path, monkeypatch, code)
    monkeypatch.setattr(worker, "END", 3.0)
    case = next(c for c in device_cases(cpu, [find("abs")]) if c.calls)
    passed, end = hear("cpu:0", [case])
    assert passed.verdict is Verdict.PASS
    assert (end.id, end.verdict) == (ENDS, Verdict.FAIL_CRASH)
    assert how in end.detail


def test_patience_does_not_count_the_start_of_a_worker(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(tmp_path, monkeypatch, "import time\ntime.sleep(2.5)\n")
    case = next(c for c in device_cases(cpu, [find("abs")]) if c.calls)
    assert [o.verdict for o in hear("cpu:0", [case], patience=2)] == [Verdict.PASS]
