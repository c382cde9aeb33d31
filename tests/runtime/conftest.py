"""The device these tests run on: the default one; without any they are skipped with the reason."""

import pytest

import isokern


@pytest.fixture(scope="session")
def device():
    try:
        return isokern.device()
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
