"""Test kernels that a host makes with pyopencl and enqueues between Isokern's, on a stream or on the host's queue."""

import gc

import numpy as np
import pyopencl as cl
import pytest

import isokern
from isokern import InvalidArgument, op_call
from isokern.ops import find

NEG, ADD = find("neg").kind_id, find("add").kind_id
TRIPLE = "__kernel void triple(__global float *x) { x[get_global_id(0)] *= 3; }"
OUT_OF_ORDER = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
A = np.arange(1 << 16, dtype=np.float32)


@pytest.fixture(scope="module")
def triple(device):
    """Return a function that enqueues y *= 3 on a queue, with the memory object that the API names."""
    kernel = cl.Kernel(cl.Program(device.context, TRIPLE).build(), "triple")

    def enqueue(queue, y):
        kernel(queue, y.shape, None, cl.MemoryObject.from_int_ptr(y.buffer.native))

    return enqueue


def between(device, handle, queue, triple):
    """Return (-x) * 3 + x, computed on the stream of that handle."""
    x, y = isokern.tensor(A, device=device), isokern.zeros(A.shape, device=device)
    op_call(NEG, [x], [y], stream_handle=handle)
    triple(queue, y)
    op_call(ADD, [y, x], [y], stream_handle=handle)
    return y


def test_on_a_stream_of_ours(device, triple):
    stream = device.stream()
    queue = cl.CommandQueue.from_int_ptr(stream.handle)
    for _ in range(5):
        assert np.array_equal(between(device, stream.handle, queue, triple).numpy(), -2 * A)


def test_on_a_queue_of_the_hosts(device, triple):
    queue = cl.CommandQueue(device.context, device.cl_device)
    for _ in range(5):
        assert np.array_equal(between(device, queue.int_ptr, queue, triple).numpy(), -2 * A)


def test_a_queue_of_the_hosts_is_kept_until_its_work_is_waited_for(device, triple):
    queue = cl.CommandQueue(device.context, device.cl_device)
    stream = device.stream_of(queue.int_ptr)
    assert device.stream_of(queue.int_ptr) is stream
    assert stream.handle == queue.int_ptr
    key = stream.key
    device.synchronize()  # no work on it is left to wait for, so it may be forgotten
    y = between(device, queue.int_ptr, queue, triple)
    del queue, stream
    gc.collect()
    assert key in [s.key for s in device.live_streams()]
    assert np.array_equal(y.numpy(), -2 * A)
    gc.collect()
    assert key not in [s.key for s in device.live_streams()]


def test_what_a_call_on_the_hosts_queue_finds_in_the_data_is_raised(device):
    queue = cl.CommandQueue(device.context, device.cl_device)
    x, index = isokern.tensor(A[:8], device=device), isokern.tensor(np.array([0, 9]), device=device)
    op_call(find("gather").kind_id, [x, index], [isokern.zeros((2,), device=device)], stream_handle=queue.int_ptr)
    with pytest.raises(InvalidArgument, match=r"gather.*9"):
        device.synchronize()


def test_memory_has_two_names(device):
    buffer = device.memory.alloc(64)
    assert buffer.native == buffer.handle.int_ptr
    assert buffer.address == buffer.view.ctypes.data
    buffer.close()
    with pytest.raises(InvalidArgument, match="native: the buffer is closed"):
        buffer.native  # noqa: B018  # the attribute access is the test


def refused(device, handle, told):
    with pytest.raises(InvalidArgument, match=f"{told}.*in-order cl_command_queue of the context and device"):
        device.stream_of(handle)


def test_a_queue_that_calls_cannot_go_through_is_refused(device):
    other = cl.Context([device.cl_device])
    theirs = cl.CommandQueue(other, device.cl_device)
    refused(device, theirs.int_ptr, "is a queue of another context")
    if device.cl_device.queue_properties & OUT_OF_ORDER:
        unordered = cl.CommandQueue(device.context, device.cl_device, properties=OUT_OF_ORDER)
        refused(device, unordered.int_ptr, "is a queue whose commands run in any order")


def test_an_integer_that_is_no_object_of_the_driver_is_refused(device):
    room = np.zeros(64, np.uint8)
    for handle in (8, 12345, room.ctypes.data, room.ctypes.data + 1, 2**47, 2**63, 2**64, 2**200):
        refused(device, handle, f"handle {handle}: no object of")


OWN = """
import numpy as np, pyopencl as cl, isokern
from isokern.ops import find
device = isokern.device("opencl:0")
assert not device.memory.wraps
queue = cl.CommandQueue.from_int_ptr(device.default_stream.handle)
program = cl.Program(device.context, "__kernel void triple(__global float *x) { x[get_global_id(0)] *= 3; }").build()
x = isokern.tensor(np.arange(8, dtype=np.float32), device=device)
assert x.buffer.native == x.buffer.handle.int_ptr != x.buffer.address
y = isokern.neg(x)
program.triple(queue, (8,), None, cl.MemoryObject.from_int_ptr(y.buffer.native))
assert isokern.add(y, x).numpy().tolist() == [-2.0 * n for n in range(8)]
"""


def test_on_a_device_with_memory_of_its_own(run):
    code = "from isokern_opencl import devices; devices.computes_in_host_memory = lambda *a: False\n"
    assert run(code + OWN) == (0, "")
