"""Test kernels that a host launches with its own driver on `stream.handle`, between Isokern's, on the emulated GPU."""

import shutil
import struct

import numpy as np
import pytest

import isokern
from isokern import op_call
from isokern.ops import find

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
NEG, ADD = find("neg").kind_id, find("add").kind_id
TRIPLE = """
extern "C" __global__ void triple(float *x, int n)
{
    const int at = blockIdx.x * 64 + threadIdx.x;
    if (at < n)
        x[at] *= 3;
}
"""
A = np.arange(300, dtype=np.float32)


@pytest.fixture
def device(opened):
    return opened()


@pytest.fixture
def triple(device):
    from isokern_cuda.driver import Arguments

    kernel, most = device.driver.load(device.driver.build(TRIPLE, "triple"), "triple")
    assert most == 64

    def launch(x, stream):
        arguments = Arguments([x.buffer.native], struct.pack("i", x.shape[0]))
        device.driver.launch(kernel, -(-x.shape[0] // 64), 64, arguments, stream)

    return launch


@pytest.mark.parametrize("ours", [True, False])
def test_a_launch_between_two_operators(device, triple, ours):
    """The kernel is ordered correctly, on a stream of Isokern and on one that the host made."""
    stream = device.stream() if ours else None
    handle = device.driver.stream() if stream is None else stream.native
    x, y = isokern.tensor(A, device=device), isokern.zeros(A.shape, device=device)
    op_call(NEG, [x], [y], stream_handle=handle)
    triple(y, handle)
    op_call(ADD, [y, x], [y], stream_handle=handle)
    assert np.array_equal(y.numpy(), -2 * A)


def test_a_launch_is_captured_between_two_operators(device, triple):
    """The host captures the three launches into one graph."""
    driver, x, y = device.driver, isokern.tensor(A, device=device), isokern.zeros(A.shape, device=device)
    handle = driver.stream()
    driver.begin_capture(handle)
    op_call(NEG, [x], [y], stream_handle=handle)
    triple(y, handle)
    op_call(ADD, [y, x], [y], stream_handle=handle)
    graph = driver.end_capture(handle)
    assert not y.numpy().any()
    for factor in (1, 5):
        x.copy_from(factor * A)
        driver.replay(graph, handle)
        assert np.array_equal(y.numpy(), -2 * factor * A)


def test_memory_and_streams_are_called_as_cuda_does(device):
    for kind in device.memory.kinds:
        buffer = device.memory.alloc(64, kind=kind)
        assert buffer.native == buffer.address == int(buffer.handle)
    stream = device.stream()
    assert stream.native == stream.handle == stream.raw
