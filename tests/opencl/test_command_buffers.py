"""Test recorded lists as command buffers of the driver, on a device that has them."""

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument
from isokern.backend.discovery import devices
from isokern_opencl.command_buffers import functions_of


@pytest.fixture
def buffered(settings, monkeypatch):
    """Return a device with the extension, which is made to use it even where it would not gain."""
    own = [d for d in devices() if d.name.startswith("opencl")]
    found = next((d for d in own if functions_of(d.cl_device) is not None), None)
    if found is None:
        pytest.skip("no device here has cl_khr_command_buffer; Intel's runtime has it (tox -e opencl-intel)")
    monkeypatch.setattr(found, "command_buffers", functions_of(found.cl_device))
    return found


def test_a_command_buffer_is_a_recorded_list(buffered):
    x = isokern.tensor(np.arange(8, dtype=np.float32), device=buffered)
    y = isokern.zeros((8,), device=buffered)
    add = isokern.create("add", [x.desc, x.desc], device=buffered)
    with buffered.default_stream.capture() as recording:
        for _ in range(100):
            add.calculate([y, x], y)
    assert recording.whole is not None
    assert not y.numpy().any()
    for turn in range(1, 4):
        recording.replay()
        recording.replay()  # while the first may still run
        assert (y.numpy() == 200 * turn * np.arange(8)).all()
    x.copy_from(np.zeros(8, np.float32))
    recording.replay(buffered.stream())
    assert (y.numpy() == 600 * np.arange(8)).all()


def test_an_error_of_the_data_is_raised(buffered):
    x, index = isokern.tensor(np.ones((5, 2), np.float32), device=buffered), isokern.tensor([7], device=buffered)
    y = isokern.zeros((1, 2), device=buffered)
    gather = isokern.create("gather", [x.desc, index.desc], device=buffered)
    with buffered.default_stream.capture() as recording:
        gather.calculate([x, index], y)
        gather.calculate([x, index], y)
    assert recording.whole is not None
    recording.replay()
    with pytest.raises(InvalidArgument, match="gather"):
        buffered.synchronize()
    buffered.synchronize()
