"""The devices that arrays are tested on.

Operators are proved on every device by the conformance suite; these tests are of Python code that calls them, and are
quick on the devices whose kernels were compiled before.
"""

import pytest

import isokern

DEVICES = [d.name for d in isokern.devices()]
COMPILED = ("opencl", "cuda")  # devices that compile each kernel, which takes most of a test's time


@pytest.fixture(params=[pytest.param(n, marks=pytest.mark.full) if n.startswith(COMPILED) else n for n in DEVICES])
def place(request):
    """Return each device; in quick runs those whose kernels are there."""
    return isokern.device(request.param)


@pytest.fixture(params=DEVICES)
def every_place(request):
    """Return each device, also in quick runs, for what depends on a device's memory or dtypes."""
    return isokern.device(request.param)
