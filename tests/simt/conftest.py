"""The OpenCL device is opened without binaries, for which PoCL would compile each program once more."""

import pytest

import isokern


@pytest.fixture(scope="session", autouse=True)
def settings() -> None:
    if any(backend.name == "opencl" for backend in isokern.backends()):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("ISOKERN_OPENCL_BINARIES", "0")
            isokern.devices()
