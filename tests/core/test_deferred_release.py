"""Test that memory which work in flight uses is released neither too early nor later than necessary."""

import weakref

import pytest

from isokern.simt import DeferredRelease


class Memory:
    pass


@pytest.fixture
def deferred():
    return DeferredRelease()


def retire(deferred, nbytes=1):
    made = Memory()
    deferred.retire(made, nbytes)
    return weakref.ref(made)


def test_what_is_retired_while_nothing_is_pending_goes_at_once(deferred):
    assert retire(deferred)() is None


def test_it_goes_when_the_work_before_it_was_waited_for(deferred):
    deferred.pending |= {"a", "b"}
    held = retire(deferred)
    deferred.wait_for("a", lambda: None)
    assert held() is not None
    later = retire(deferred)
    deferred.wait_for("b", lambda: None)
    assert (held(), later()) == (None, None)
    assert (deferred.pending, deferred.retired) == (set(), [])


def test_work_that_comes_later_holds_nobody_s_memory(deferred):
    """Memory is released although the device is never idle: whenever one stream is waited for, the other has work."""
    deferred.pending.add("a")
    most = 0
    for _ in range(1000):
        for busy, other in (("a", "b"), ("b", "a")):
            retire(deferred)
            deferred.pending.add(other)
            deferred.wait_for(busy, lambda: None)
            most = max(most, len(deferred.retired))
    assert most <= 2


def test_what_comes_during_a_wait_is_not_waited_for(deferred):
    deferred.pending.add("a")
    before, during = retire(deferred), []

    def wait():
        deferred.pending.add("a")
        during.append(retire(deferred))
        deferred.release()
        assert before() is not None, "the wait goes on"

    deferred.wait_for("a", wait)
    assert (before(), during[0]() is None) == (None, False)
    deferred.wait_for("a", lambda: None)
    assert during[0]() is None


def test_a_wait_that_fails_has_waited(deferred):
    deferred.pending.add("a")
    held = retire(deferred)
    with pytest.raises(RuntimeError):
        deferred.wait_for("a", lambda: (_ for _ in ()).throw(RuntimeError))
    assert held() is None


def test_a_stream_that_ends_holds_nothing(deferred):
    deferred.pending |= {"a", "b"}
    held = retire(deferred)
    deferred.wait_for("a", lambda: None)
    deferred.pending.discard("b")  # as the end of a stream does after waiting
    deferred.wait_for("c", lambda: None)
    assert held() is None


def test_a_stream_that_nobody_waits_for_keeps_few_batches(deferred):
    deferred.pending.add("never waited for")
    held = []
    for _ in range(100):
        deferred.pending.add("a")
        held.append(retire(deferred, 1 << 10))
        deferred.wait_for("a", lambda: None)
    assert len(deferred._closed) < 10
    assert all(ref() is not None for ref in held)
    assert len(deferred.retired) == 100
    assert not deferred.full
    deferred.retire(Memory(), 1 << 28)
    assert deferred.full
    deferred.wait_for("never waited for", lambda: None)
    assert not any(ref() is not None for ref in held)
    assert not deferred.full
