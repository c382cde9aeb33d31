"""Test index arithmetic past 2^31: elements that far apart in one buffer, whose memory is mostly never touched."""

import mmap

import numpy as np
import pytest

import isokern
from isokern import TensorDesc

FAR = 2**31 + 5  # elements between rows: no 32-bit index or byte count reaches the second row
REACH = 2 * FAR + 64


@pytest.fixture(scope="module")
def space(device):
    """Reserve enough bytes for F16 elements at 2 * FAR; only the pages that a test writes are committed."""
    if not device.memory.wraps:
        pytest.skip(f"{device.name} does not wrap host memory")
    try:
        reserved = np.frombuffer(mmap.mmap(-1, 2 * REACH), np.uint8)
        isokern.from_numpy(reserved, device=device)
    except (OSError, isokern.OutOfMemory) as error:
        pytest.skip(f"{2 * REACH} bytes cannot be reserved: {error}")
    return reserved


@pytest.fixture
def x(space):
    elements = space.view(np.float16)
    for row in range(3):
        elements[row * FAR : row * FAR + 4] = np.arange(1, 5) + 10 * row
    return isokern.Tensor(TensorDesc("F16", (3, 4), (FAR, 1)), isokern.from_numpy(elements).buffer)


VALUES = np.array([[1, 2, 3, 4], [11, 12, 13, 14], [21, 22, 23, 24]], np.float16)


@pytest.mark.parametrize(
    ("compute", "expected"),
    [
        (lambda x: isokern.add(x, x), 2 * VALUES),
        (lambda x: isokern.copy(x), VALUES),
        (lambda x: isokern.transpose(x), VALUES.T),
        (lambda x: isokern.cast(x, dtype="F32"), VALUES.astype(np.float32)),
        (lambda x: isokern.reduce_sum(x, axes=0), VALUES.sum(0)),
        (lambda x: isokern.reduce_max(x, axes=1), VALUES.max(1)),
        (lambda x: isokern.argmax(x, axis=0), [2, 2, 2, 2]),
        (lambda x: isokern.gather(x, [2, 0]), VALUES[[2, 0]]),
        (lambda x: isokern.slice(x, starts=(2,), ends=(3,)), VALUES[2:]),
        (lambda x: isokern.concat([x, x], axis=1), np.concatenate([VALUES, VALUES], 1)),
        (lambda x: isokern.pad(x, low=(1, 0), high=(0, 0)), np.pad(VALUES, ((1, 0), (0, 0)))),
        (lambda x: isokern.flatten(x), VALUES.reshape(3, 4)),
        (lambda x: isokern.matmul(x, np.eye(4, dtype=np.float16)), VALUES),
        (lambda x: isokern.linear(np.ones((1, 4), np.float16), x), VALUES.sum(1)[None]),
        (lambda x: isokern.max_pool2d(x[None, None], kernel=(3, 1)), VALUES.max(0)[None, None, None]),
    ],
)
def test_inputs_beyond_32_bits(x, compute, expected):
    assert (compute(x).numpy() == expected).all()


def test_rows_beyond_32_bits(x):
    for op in ("softmax", "log_softmax", "rms_norm", "layer_norm"):
        function = getattr(isokern, op)
        assert (function(x).numpy() == function(VALUES).numpy()).all(), op


def test_outputs_beyond_32_bits(x, space):
    isokern.neg(VALUES, out=x)
    elements = space.view(np.float16)
    assert (elements[2 * FAR : 2 * FAR + 4] == -VALUES[2]).all()
    isokern.fill(value=5.0, out=x)
    assert (elements[2 * FAR : 2 * FAR + 4] == 5).all()
    assert not elements[2 * FAR + 4 : 2 * FAR + 64].any()


def test_copy_slice_beyond_32_bits(x, space):
    line = isokern.from_numpy(space.view(np.float16))
    isokern.copy_slice(line, x_offset=2 * FAR, y_offset=FAR + 8, count=4, out=line)
    assert (space.view(np.float16)[FAR + 8 : FAR + 12] == VALUES[2]).all()
    space.view(np.float16)[FAR + 8 : FAR + 12] = 0
