"""Test that the collector of garbage is held, and is afterwards as it was."""

import gc

import pytest

from isokern.garbage import hold_collections


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
