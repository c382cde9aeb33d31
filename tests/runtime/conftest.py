"""The device these tests run on: the default one; without any they are skipped with the reason, and with a broken one they fail."""

import pytest

import isokern


@pytest.fixture(scope="session")
def device():
    try:
        return isokern.device()
    except isokern.DeviceNotAvailable as error:
        broken = [f"{b.name}: {b.reason}\n{b.trace}" for b in isokern.backends() if b.status == "broken"]
        assert not broken, "\n".join(broken)
        pytest.skip(str(error))
