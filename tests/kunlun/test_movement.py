"""Test the kernels that move elements.

Covered are transpositions through shared memory, rows, overlap within one buffer, and the first index out of range.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from needs import kunlun

import isokern
from isokern.backend import Device
from isokern.ops.cast import convert
from isokern.status import InsufficientWorkspace, InvalidArgument
from isokern.tensors import Tensor

DTYPES = ["U8", "I16", "F32", "I64", "F64"]


@pytest.fixture(scope="module")
def device() -> Device:
    return kunlun()


def numbered(shape: tuple[int, ...], dtype: str, device: Device) -> Tensor:
    values = np.arange(int(np.prod(shape))) * 31 % 251
    return isokern.tensor(values.reshape(shape), dtype, device=device)


def rearranged(x: Tensor, y: Tensor) -> isokern.Descriptor:
    """Copy x to y and check the result; return the descriptor."""
    d = isokern.create("rearrange", [x.desc], [y.desc], device=x.device)
    d.calculate(x, y, workspace="auto")
    assert (y.numpy() == x.numpy()).all()
    return d


def test_f64_is_moved_by_its_bits(device: Device) -> None:
    values = np.array([np.nan, -0.0, np.inf, 5e-324, 0.1, -1e300])
    values[0] = np.array([0x7FF8_0000_0000_1234], np.uint64).view(np.float64)[0]
    x = isokern.tensor(values, device=device)
    order = [5, 4, 3, 2, 1, 0]
    for made in (isokern.gather(x, order), isokern.copy(x[::-1]), isokern.scatter(x, order, x)):
        assert (made.numpy().view(np.uint64) == values[::-1].view(np.uint64)).all()
    with pytest.raises(isokern.NotImplementedOnDevice, match="only moved"):
        isokern.scatter(x, [0], x[:1], reduction="add")


def test_f64_is_refused_and_takes_no_other_cast_with_it(device: Device) -> None:
    assert len(device.supports("cast")) == 14 * 14
    assert device.supports("cast", S="F32", T="I8")
    assert not device.supports("cast", S="F32", T="F64")


def test_a_workspace_in_the_l3_is_allocated_there(device: Device) -> None:
    x = numbered((5, 7), "F32", device)
    y = isokern.zeros((7, 5), device=device)
    d = isokern.create("rearrange", [x.T.desc], [y.desc], device=device)
    space = d.alloc_workspace()
    assert space is not None
    assert (space.kind, space.nbytes) == ("l3", d.workspace_size)
    d.calculate(x.T, y, workspace=space)
    assert (y.numpy() == x.numpy().T).all()
    for words in ("no workspace is given", "the workspace is default memory"):
        given = device.memory.alloc(d.workspace_size) if "default" in words else None
        with pytest.raises(InsufficientWorkspace, match=rf"{words}.*of l3 memory.*descriptor\.alloc_workspace\(\)"):
            d.calculate(x.T, y, workspace=given)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(300, 257), (2, 3001), (3001, 2), (33, 40), (129, 1), (9, 2050), (1100, 1030)])
def test_transpositions(device: Device, dtype: str, shape: tuple[int, int]) -> None:
    x = numbered(shape, dtype, device)
    y = isokern.zeros(shape[::-1], dtype, device=device)
    rearranged(x.T, y)
    rearranged(y, isokern.zeros(shape, dtype, device=device).T)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_permutations_of_parts_of_tensors(device: Device, order: tuple[int, ...]) -> None:
    x = numbered((12, 71, 40), "F32", device)[1:-1, 2:, 3:38].permute(*order)
    whole = isokern.tensor(np.full([n + 5 for n in x.shape], -1), "F32", device=device)
    rearranged(x, whole[tuple(slice(2, 2 + n) for n in x.shape)])
    assert (whole.numpy() == -1).sum() == whole.numpy().size - x.numpy().size


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rows", "row"), [(1, 70_001), (3, 4096), (40, 64), (700, 16), (50, 513), (1000, 3)])
def test_rows(device: Device, dtype: str, rows: int, row: int) -> None:
    dense, wide = numbered((rows, row), dtype, device), isokern.zeros((rows, row + 3), dtype, device=device)
    rearranged(dense, wide[:, 1:-2])
    rearranged(wide[:, 1:-2], isokern.zeros((rows, row), dtype, device=device))
    rearranged(wide[::-1, 3:], wide.__class__(wide[:, 3:].desc, isokern.zeros(wide.shape, dtype, device=device).buffer))
    rearranged(dense[:, ::-1], isokern.zeros((rows, row), dtype, device=device))
    rearranged(dense[:, :1].broadcast_to(rows, row), isokern.zeros((rows, row), dtype, device=device))


def test_the_workspace_of_rearrange_is_the_table_of_shape_and_strides(device: Device) -> None:
    x = numbered((6, 7, 8), "F16", device)
    d = rearranged(x.permute(2, 0, 1), isokern.zeros((8, 6, 7), "F16", device=device))
    dims = d.plan.table[0].ndim  # type: ignore[union-attr]
    assert dims == 2  # 6 and 7 are merged on both sides
    assert (d.workspace.size, d.workspace.kind) == (24 * dims, "l3")


@pytest.mark.parametrize(("size", "count"), [(40, 12), (9000, 2900), (210_000, 200_001)])
@pytest.mark.parametrize(("x_step", "y_step"), list(product([1, 2, -1, -3, 3], repeat=2)))
def test_copy_slice_within_a_buffer(device: Device, size: int, count: int, x_step: int, y_step: int) -> None:
    if count * max(abs(x_step), abs(y_step)) > size:
        count = size // max(abs(x_step), abs(y_step))
    random = np.random.default_rng([count, x_step + 9, y_step + 9])
    d: dict[tuple[int, int], isokern.Descriptor] = {}
    for _ in range(6 if size < 10_000 else 2):
        values = np.arange(size)
        buffer = isokern.tensor(values, "I32", device=device)
        x_low, y_low = (random.integers(0, size - (count - 1) * abs(s)) for s in (x_step, y_step))
        x, y = (buffer[low : low + (count - 1) * abs(s) + 1][::s] for low, s in ((x_low, x_step), (y_low, y_step)))
        expected = values.copy()
        expected[y_low : y_low + (count - 1) * abs(y_step) + 1][::y_step] = values[
            x_low : x_low + (count - 1) * abs(x_step) + 1
        ][::x_step]
        d[x_low, y_low] = isokern.create("copy_slice", [x.desc], [y.desc], device=device, count=count)
        d[x_low, y_low].calculate(x, y)
        assert (buffer.numpy() == expected).all(), (x_low, y_low)


@pytest.mark.parametrize("dtype", ["I32", "I64"])
@pytest.mark.parametrize("shape", [(64, 3), (5000,), (70, 70)])
def test_the_first_bad_index_is_the_error(device: Device, dtype: str, shape: tuple[int, ...]) -> None:
    table, size = numbered((9, 4), "F32", device), int(np.prod(shape))
    index = np.arange(size) % 18 - 9
    bad = {size - 1: 9, size // 2: -10, size // 2 + 3: 1000, size - 7: -(2**31)}
    for at, value in bad.items():
        index[at] = value
    indices = isokern.tensor(index.reshape(shape), dtype, device=device)
    y = isokern.zeros((*shape, 4), device=device)
    d = isokern.create("gather", [table.desc, indices.desc], [y.desc], device=device)
    for _ in range(2):
        d.calculate([table, indices], y)
        with pytest.raises(InvalidArgument, match=rf"indices\[{size // 2}\] is -10"):
            device.synchronize()
        known = ~np.isin(np.arange(size), list(bad))
        expected = np.where(known[:, None], table.numpy()[np.where(known, index, 0)], 0)
        assert (y.numpy().reshape(-1, 4) == expected).all()
    device.synchronize()


def test_of_two_calls_the_first_is_the_error(device: Device) -> None:
    table, y = numbered((3,), "F32", device), isokern.zeros((2,), device=device)
    wrong = [isokern.tensor([0, value], "I64", device=device) for value in (7, 8)]
    d = isokern.create("gather", [table.desc, wrong[0].desc], [y.desc], device=device)
    for indices in wrong:
        d.calculate([table, indices], y)
    with pytest.raises(InvalidArgument, match="is 7"):
        device.synchronize()


@pytest.mark.parametrize("source", ["I64", "U64", "I32", "U32"])
@pytest.mark.parametrize("target", ["F16", "BF16", "F32"])
def test_large_integers_round_once(device: Device, source: str, target: str) -> None:
    random = np.random.default_rng(1)
    top = {"I64": 63, "U64": 64, "I32": 31, "U32": 32}[source]
    bits = random.integers(1, top, 4000)
    near = (
        (1 << bits.astype(object))
        + random.choice([0, 1, -1], 4000)
        + (1 << np.maximum(bits - random.choice([8, 9, 11, 12], 4000), 0).astype(object))
    )
    values = np.minimum(near, (1 << top) - 1) * (random.choice([-1, 1], 4000) if source[0] == "I" else 1)
    x = isokern.tensor(values.astype(source.replace("I", "int").replace("U", "uint")), source, device=device)
    y = isokern.empty(x.shape, target, device=device)
    isokern.create("cast", [x.desc], [y.desc], device=device).calculate(x, y)
    expected = convert(x.numpy(), y.dtype.numpy)
    assert (y.numpy().view(np.uint8) == expected.view(np.uint8)).all()
