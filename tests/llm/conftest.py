"""Lets the tests import their shared modules as top-level modules."""

import sys
from pathlib import Path

import pytest

import isokern

# float64, the reference of whole models; small_model; and the writer of GGUF files
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[2] / "tools")]


@pytest.fixture(scope="module")
def device():
    try:
        return isokern.device()
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
