"""What the tests of the suite share."""

from __future__ import annotations

import pytest

import isokern
from isokern.backend import Device


@pytest.fixture(scope="session")
def cpu() -> Device:
    """The CPU device; without it there is nothing to break."""
    try:
        return isokern.device("cpu")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
