"""Lets the tests import their shared modules as top-level modules."""

import sys
from pathlib import Path

import pytest

import isokern

sys.path.insert(0, str(Path(__file__).parent))  # float64, the reference of whole models, and small_model


@pytest.fixture(scope="module")
def device():
    try:
        return isokern.device()
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
