"""What work in flight still uses: kept while it may be, and no longer."""

import weakref

import pytest

from isokern.simt import InFlight


class Memory:
    pass


@pytest.fixture
def flight():
    return InFlight()


def retire(flight, nbytes=1):
    made = Memory()
    flight.retire(made, nbytes)
    return weakref.ref(made)


def test_what_is_retired_while_nothing_is_pending_goes_at_once(flight):
    assert retire(flight)() is None


def test_it_goes_when_the_work_before_it_was_waited_for(flight):
    flight.pending |= {"a", "b"}
    held = retire(flight)
    flight.waited("a", lambda: None)
    assert held() is not None
    later = retire(flight)
    flight.waited("b", lambda: None)
    assert (held(), later()) == (None, None)
    assert (flight.pending, flight.retired) == (set(), [])


def test_work_that_comes_later_holds_nobody_s_memory(flight):
    """The device is never idle here: whenever one stream was waited for, the other has work."""
    flight.pending.add("a")
    most = 0
    for _ in range(1000):
        for busy, other in (("a", "b"), ("b", "a")):
            retire(flight)
            flight.pending.add(other)
            flight.waited(busy, lambda: None)
            most = max(most, len(flight.retired))
    assert most <= 2


def test_what_comes_during_a_wait_is_not_waited_for(flight):
    flight.pending.add("a")
    before, during = retire(flight), []

    def wait():
        flight.pending.add("a")
        during.append(retire(flight))
        flight.release()
        assert before() is not None, "the wait goes on"

    flight.waited("a", wait)
    assert (before(), during[0]() is None) == (None, False)
    flight.waited("a", lambda: None)
    assert during[0]() is None


def test_a_wait_that_fails_has_waited(flight):
    flight.pending.add("a")
    held = retire(flight)
    with pytest.raises(RuntimeError):
        flight.waited("a", lambda: (_ for _ in ()).throw(RuntimeError))
    assert held() is None


def test_a_stream_that_ends_holds_nothing(flight):
    flight.pending |= {"a", "b"}
    held = retire(flight)
    flight.waited("a", lambda: None)
    flight.pending.discard("b")  # as the end of a stream does, when it has waited
    flight.waited("c", lambda: None)
    assert held() is None


def test_a_stream_that_nobody_waits_for_keeps_few_batches(flight):
    flight.pending.add("never waited for")
    held = []
    for _ in range(100):
        flight.pending.add("a")
        held.append(retire(flight, 1 << 10))
        flight.waited("a", lambda: None)
    assert len(flight._closed) < 10
    assert all(ref() is not None for ref in held)
    assert len(flight.retired) == 100
    assert not flight.full
    flight.retire(Memory(), 1 << 28)
    assert flight.full
    flight.waited("never waited for", lambda: None)
    assert not any(ref() is not None for ref in held)
    assert not flight.full
