"""Test a host's own kernels between Isokern's on the CPU: C code on `buffer.address`, on streams named by handles."""

import ctypes
import shutil
import subprocess

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument, op_call
from isokern.ops import find

NEG, ADD = find("neg").kind_id, find("add").kind_id
TRIPLE = "void triple(float *x, long n) { for (long i = 0; i < n; i++) x[i] *= 3; }\n"


@pytest.fixture(scope="module")
def triple(tmp_path_factory):
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    folder = tmp_path_factory.mktemp("triple")
    (folder / "triple.c").write_text(TRIPLE)
    subprocess.run([compiler, "-shared", "-fPIC", folder / "triple.c", "-o", folder / "triple.so"], check=True)
    function = ctypes.CDLL(str(folder / "triple.so")).triple
    function.argtypes, function.restype = [ctypes.c_void_p, ctypes.c_long], None
    return function


def test_a_c_function_between_two_of_ours(cpu, triple):
    stream, a = cpu.stream(), np.arange(1000, dtype=np.float32)
    x, y = isokern.tensor(a, device=cpu), isokern.zeros((1000,), device=cpu)
    op_call(NEG, [x], [y], stream_handle=stream.handle)
    triple(y.buffer.address, 1000)
    op_call(ADD, [y, x], [y], stream_handle=stream.handle)
    stream.synchronize()
    assert np.array_equal(y.numpy(), -2 * a)


def test_memory_of_a_view_begins_at_the_offset_of_its_description(cpu, triple):
    a = np.arange(24, dtype=np.float32).reshape(4, 6)
    x = isokern.tensor(a, device=cpu)
    part = x[1:3]
    triple(part.buffer.address + part.desc.offset * part.dtype.itemsize, 12)
    a[1:3] *= 3
    assert np.array_equal(isokern.neg(x).numpy(), -a)


def test_what_the_device_calls_them(cpu):
    buffer, stream = cpu.memory.alloc(64), cpu.stream()
    assert buffer.native == buffer.address == buffer.view.ctypes.data
    assert stream.native == stream.handle
    buffer.close()
    with pytest.raises(InvalidArgument, match="native: the buffer is closed"):
        buffer.native  # noqa: B018  # the attribute access is the test


def test_a_stream_is_what_the_library_made(cpu):
    """`ik_stream_synchronize` of the library accepts the handle."""
    stream, library = cpu.stream(), cpu.library
    assert library.lib.ik_stream_synchronize(library.ffi.cast("void *", stream.handle)) == 0
