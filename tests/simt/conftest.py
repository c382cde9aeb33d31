"""The OpenCL device takes no binaries of programs: for them PoCL would compile each program once more."""

import pytest

import isokern


@pytest.fixture(scope="session", autouse=True)
def no_binaries() -> None:
    for device in isokern.devices():
        if device.name == "opencl:0":
            device.programs.binaries = False  # type: ignore[attr-defined]
