"""Fixtures shared by the tests of the conformance suite."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import isokern
from isokern.backend import Device

sys.path.insert(0, str(Path(__file__).parent))  # import saboteurs as a top-level module, as an entry point does


@pytest.fixture(scope="session")
def cpu() -> Device:
    """Return the CPU device; skip the test without it, since the saboteurs break its kernels."""
    try:
        return isokern.device("cpu")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
