"""Fixtures of the runtime tests, which run on the default device.

Without a device they are skipped with the reason, and with a broken one they fail. The tests' modules can be imported
as top-level modules.
"""

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
