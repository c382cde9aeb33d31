"""The device these tests run on: the default one; without any they are skipped with the reason, and with a broken one they fail. The modules of these tests can be imported from
beside them."""

import sys
from pathlib import Path

import pytest

import isokern

sys.path.append(str(Path(__file__).parent))


@pytest.fixture(scope="session")
def device():
    try:
        return isokern.device()
    except isokern.DeviceNotAvailable as error:
        broken = [f"{b.name}: {b.reason}\n{b.trace}" for b in isokern.backends() if b.status == "broken"]
        assert not broken, "\n".join(broken)
        pytest.skip(str(error))
