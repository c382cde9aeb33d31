"""What the tests of the suite share."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import isokern
from isokern.backend import Device

sys.path.insert(0, str(Path(__file__).parent))  # saboteurs under its own name, as an entry point loads it


@pytest.fixture(scope="session")
def cpu() -> Device:
    """The CPU device; without it there is nothing to break."""
    try:
        return isokern.device("cpu")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
