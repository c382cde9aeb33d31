"""Test that the collector of garbage is held, and is afterwards as it was."""

import gc
import subprocess
import sys

import pytest

from isokern.process.garbage import hold_collections


@pytest.fixture(autouse=True)
def nothing_is_frozen():
    """Undo what tests/conftest.py froze, since that is what these tests are about."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.parametrize("was", [True, False])
def test_no_collection_within_and_as_before_afterwards(was):
    try:
        (gc.enable if was else gc.disable)()
        with hold_collections():
            assert not gc.isenabled()
            with hold_collections():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() == was
        with pytest.raises(ValueError, match="mine"):
            fail()
        assert gc.isenabled() == was
    finally:
        gc.enable()


@hold_collections()
def fail():
    assert not gc.isenabled()
    raise ValueError("mine")


def is_old(given):
    return any(other is given for other in gc.get_objects(generation=2))


def frozen_at_start():
    """Return how many objects Python itself keeps from all collections: none, but in Python 3.12."""
    count = subprocess.run([sys.executable, "-c", "import gc; print(gc.get_freeze_count())"], capture_output=True)
    return int(count.stdout)


@pytest.mark.skipif(frozen_at_start() > 0, reason="this Python keeps objects from all collections, and they stay so")
def test_what_stays_counts_as_old():
    def make(**how):
        with hold_collections(**how):
            return [[]]

    assert not is_old(make())
    assert is_old(make(staying=True))
    with hold_collections():
        assert not is_old(make(staying=True))  # the other block may make garbage
    assert gc.get_freeze_count() == 0


def test_what_somebody_froze_stays_frozen():
    gc.freeze()
    try:
        with hold_collections(staying=True):
            pass
        assert gc.get_freeze_count() > 0
    finally:
        gc.unfreeze()
