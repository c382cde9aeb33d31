"""Test whether a program can be captured: each rule that it breaks is reported, and nothing else."""

import sys

import numpy as np
import pytest

import isokern
from isokern import check_capturable


@pytest.fixture
def x(device):
    return isokern.tensor(np.arange(6, dtype=np.float32), device=device)


def test_a_program_of_calls_alone(device, x):
    y, z = isokern.zeros((6,), device=device), isokern.zeros((6,), device=device)

    def program():
        isokern.neg(x, out=y)
        isokern.add(x, y, out=z)

    program()  # allocates the workspace that eager calls keep
    found = check_capturable(program, device)
    assert found.capturable
    assert (found.reasons, found.calls, found.allocated) == ((), 2, 0)


def test_nothing_of_it_runs(device, x):
    y = isokern.zeros((6,), device=device)
    check_capturable(lambda: isokern.neg(x, out=y), device)
    assert (y.numpy() == 0).all()


def test_what_it_allocates_is_counted(device, x):
    found = check_capturable(lambda: isokern.neg(isokern.neg(x)), device)
    assert found.capturable
    assert found.allocated == 48


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (lambda x: x.numpy(), ""),
        (lambda x: x.buffer.read(), "read: reads memory on the host"),
        (lambda x: x.copy_from(np.ones(6, np.float32)), "write: writes memory on the host"),
        (lambda x: isokern.current_stream(x.device).synchronize(), "synchronize: waits"),
        (lambda x: x.device.synchronize(), "synchronize: waits"),
        (lambda x: isokern.current_stream(x.device).record(), "record: uses events"),
        (lambda x: x.buffer.map_for_cpu(), "map_for_cpu: maps memory"),
    ],
    ids=["numpy", "read", "write", "stream", "device", "event", "map"],
)
def test_what_a_recorded_list_cannot_do_is_told(device, x, program, says):
    def whole():
        isokern.neg(x, out=x)
        program(x)
        isokern.neg(x, out=x)

    found = check_capturable(whole, device)
    assert not found.capturable
    assert any(says in reason for reason in found.reasons)
    assert len(found.reasons) <= 2  # a reason per operation, not one for each of its steps
    assert found.calls == 2


def test_a_rule_that_is_broken_often_is_told_once(device, x):
    found = check_capturable(lambda: [x.buffer.read() for _ in range(3)], device)
    assert [r.endswith("(3 times)") for r in found.reasons] == [True]


def test_work_on_another_stream(device, x):
    y, other = isokern.zeros((6,), device=device), device.stream()
    call = isokern.create("neg", [x.desc], device=device)
    bound = call.bind([x], [y], stream=other)
    for program in (bound, lambda: call.calculate([x], [y], stream=other)):
        found = check_capturable(program, device)
        assert found.reasons == ("runs work on another stream",)
        assert found.calls == 0


def test_an_error_is_a_reason(device, x):
    found = check_capturable(lambda: isokern.add(x, isokern.zeros((5,), device=device)), device)
    assert not found.capturable
    assert "5" in found.reasons[0]


def test_errors_of_the_program_itself_are_raised(device):
    def program():
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        check_capturable(program, device)
    assert sys.getprofile() is None


def test_the_profiling_function_is_put_back(device, x):
    seen = []
    sys.setprofile(lambda *what: seen.append(what))
    mine = sys.getprofile()
    try:
        check_capturable(lambda: isokern.neg(x, out=x), device)
        assert sys.getprofile() is mine
    finally:
        sys.setprofile(None)


def test_a_function_of_the_programs_own_may_be_called_launch(device, x):
    def launch():
        x.buffer.read()

    assert check_capturable(launch, device).reasons == check_capturable(lambda: x.buffer.read(), device).reasons


def test_copies_and_lists_on_another_stream(device, x):
    y, other = isokern.zeros((6,), device=device), device.stream()
    with other.capture() as recording:
        isokern.create("neg", [x.desc], device=device).calculate([x], [y], stream=other)
    for program in (lambda: isokern.copy(x, out=y, stream=other), lambda: recording.replay(other)):
        assert check_capturable(program, device).reasons == ("runs work on another stream",)
    assert check_capturable(recording.replay, device).capturable


def test_a_profiler_that_cannot_be_put_back_is_refused(device, x, monkeypatch):
    monkeypatch.setattr(sys, "getprofile", object)
    with pytest.raises(isokern.InvalidArgument, match="profiler"):
        check_capturable(lambda: None, device)
