"""Test TensorDesc: strides, ranges, views, and what it refuses."""

import pickle

import numpy as np
import pytest

from isokern import BF16, F32, Q4_0, BadTensorDtype, BadTensorShape, BadTensorStrides, TensorDesc
from isokern.layout import contiguous_strides


def test_contiguous_strides_are_row_major():
    assert contiguous_strides((2, 3, 4)) == (12, 4, 1)
    assert contiguous_strides((2, 0, 4)) == (4, 4, 1)
    assert contiguous_strides(()) == ()


def test_rank_0_has_one_element():
    desc = TensorDesc(F32, ())
    assert (desc.numel, desc.nbytes, desc.extent) == (1, 4, (0, 1))


def test_extent_counts_negative_strides():
    desc = TensorDesc(F32, (3, 2), (-4, 1), 8)
    assert desc.extent == (0, 10)
    assert desc.byte_range == (0, 40)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((F32, (1,) * 9), BadTensorShape),
        ((F32, (-1,)), BadTensorShape),
        ((F32, (2.5,)), BadTensorShape),
        ((F32, (2, 3), (1,)), BadTensorStrides),
        ((F32, (3,), (-1,), 1), BadTensorStrides),
        ((F32, (2**62, 2**62)), BadTensorShape),
        ((Q4_0, (3, 32), (2**62, 1)), BadTensorShape),  # fewer bytes than 2^63, but more elements
        (("F99", (3,)), BadTensorDtype),
        ((Q4_0, (33,)), BadTensorShape),
        ((Q4_0, (2, 32), (33, 1)), BadTensorStrides),
        ((Q4_0, (32,), (2,)), BadTensorStrides),
        ((Q4_0, ()), BadTensorShape),
    ],
)
def test_refusals(arguments, error):
    with pytest.raises(error):
        TensorDesc(*arguments)


def test_block_types_count_bytes_in_blocks():
    desc = TensorDesc(Q4_0, (3, 64))
    assert desc.nbytes == 3 * 2 * 18
    assert TensorDesc(Q4_0, (64,), None, 32).byte_range == (18, 54)


def test_immutable_equal_hashable_picklable():
    desc = TensorDesc(BF16, (2, 3), (3, 1), 4)
    assert desc == TensorDesc("BF16", [2, 3], [3, 1], 4)
    assert hash(desc) == hash(TensorDesc("BF16", [2, 3], [3, 1], 4))
    assert pickle.loads(pickle.dumps(desc)) == desc
    with pytest.raises(AttributeError):
        desc.offset = 0


@pytest.mark.parametrize(
    ("shape", "strides", "overlaps"),
    [
        ((3, 4), (4, 1), False),
        ((3, 4), (1, 3), False),
        ((3, 4), (0, 1), True),
        ((3, 4), (2, 1), True),
        ((2, 3), (3, 2), False),
        ((1, 5), (0, 1), False),
        ((0, 5), (0, 0), False),
        ((2, 2), (-4, 1), False),
    ],
)
def test_overlaps_itself(shape, strides, overlaps):
    desc = TensorDesc(F32, shape, strides, 8)
    assert desc.overlaps_itself is overlaps
    if desc.numel:
        offsets = {8 + int(np.dot(i, strides)) for i in np.ndindex(*shape)}
        assert (len(offsets) < desc.numel) is overlaps


@pytest.mark.parametrize("seed", range(40))
def test_reshape_agrees_with_numpy(seed):
    rng = np.random.default_rng(seed)
    array = np.arange(720).reshape(2, 3, 4, 5, 6)[:, :: rng.integers(1, 3)].transpose(rng.permutation(5))
    desc = TensorDesc("I64", array.shape, [s // 8 for s in array.strides])
    target = (array.size // 6, 6) if seed % 2 else (2, -1, 3)
    target = array.reshape(target).shape
    view = desc.reshape(target)
    same = array.reshape(target)
    assert (view is not None) == np.shares_memory(array, same)
    if view is not None:
        got = [s for s, d in zip(view.strides, target, strict=True) if d > 1]
        assert got == [s // 8 for s, d in zip(same.strides, target, strict=True) if d > 1]
