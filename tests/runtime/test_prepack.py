"""Test prepacked constants: packed once, found again, counted and released, with equal results on every device."""

import gc
import pickle

import numpy as np
import pytest
from prepacked_sizes import growth_of

import isokern
from isokern import F16, BadTensorDtype, BadTensorShape, InvalidArgument, TensorDesc, blocks
from isokern.blocks.layouts import LAYOUTS, write_scale
from isokern.dtypes import BLOCKS, STORED_BLOCKS
from isokern.oracle.values import draw


def describe(w, m, device, prepacked=("w",), **attrs):
    _, k = w.shape
    return isokern.create(
        "matmul_transposed", [TensorDesc("F32", (m, k)), w.desc], device=device, prepacked=prepacked, **attrs
    )


def compute(descriptor, x, w):
    y = isokern.zeros(descriptor.outputs[0].shape, device=descriptor.device)
    descriptor.calculate([x, w], y, workspace="auto")
    return y.numpy()


@pytest.fixture
def weight(device):
    values = np.random.default_rng(5).standard_normal((37, 96), np.float32)
    return isokern.tensor(values, "Q4_0", device=device)


@pytest.fixture
def made(weight, device):
    """Return a descriptor whose kernel has its own layout of the weight."""
    descriptor = describe(weight, 3, device, lhs_quantization="q8_0")
    if not descriptor.packed_layouts:
        pytest.skip(f"{device.name} takes weights as they are")
    return descriptor


@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS, F16], ids=str)
@pytest.mark.parametrize("m", [1, 3, 13, 64])
def test_the_result_is_the_same_on_every_device(device, element, m):
    random = np.random.default_rng(m)
    k = 3 * max(element.block, 32)
    if element.block > 1:
        w = isokern.empty((37, k), element, device=device)
        w.raw.copy_from(draw("normal", element, (37, k), random))
    else:
        w = isokern.tensor(random.standard_normal((37, k), np.float32), element, device=device)
    x = isokern.tensor(random.standard_normal((m, k), np.float32), device=device)
    for quantization in ("float", "q8_0") if w.dtype.block > 1 else ("float",):
        plain = compute(describe(w, m, device, (), lhs_quantization=quantization), x, w)
        descriptor = describe(w, m, device, lhs_quantization=quantization)
        held = descriptor.prepack("w", w)
        assert (held is not w) == ("w" in descriptor.packed_layouts)
        np.testing.assert_allclose(compute(descriptor, x, held), plain, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_an_infinity_is_multiplied_as_without(device, element):
    """Codes and minima are multiplied apart, where an infinity would meet itself with the other sign."""
    raw = draw("normal", element, (37, 256), np.random.default_rng(9))
    w = isokern.empty((37, 256), element, device=device)
    w.raw.copy_from(raw)
    x = np.random.default_rng(10).standard_normal((3, 256)).astype(np.float32)
    x[0, 5], x[2, 99] = np.inf, -np.inf
    given = isokern.tensor(x, device=device)
    descriptor = describe(w, 3, device)
    with np.errstate(invalid="ignore"):
        wanted = (x.astype(np.float64) @ blocks.dequantize(raw, element).T).astype(np.float32)
    np.testing.assert_allclose(compute(descriptor, given, descriptor.prepack("w", w)), wanted, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_it_is_not_much_larger(device, element):
    w = isokern.empty((64, 1024), element, device=device)
    for quantization in ("float", "q8_0"):
        for layout in describe(w, 1, device, lhs_quantization=quantization).packed_layouts.values():
            assert layout.nbytes <= w.desc.nbytes * growth_of(element)


@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_every_type_that_files_have_is_packed_where_one_is(device, element):
    packed, usual = (
        describe(isokern.empty((64, 256), each, device=device), 1, device).packed_layouts for each in (element, "Q4_0")
    )
    assert bool(packed) == (bool(usual) and element.name != "Q8_K")  # of activations


@pytest.mark.parametrize("element", [d for d in STORED_BLOCKS if LAYOUTS[d.name].m is None], ids=str)
def test_each_element_is_that_of_its_block(device, element):
    """Rows with one element other than 0 pick elements of any blocks, with scales down to the least F16."""
    layout, n, k = LAYOUTS[element.name], 37, 2 * max(element.block, 128)
    random = np.random.default_rng(11)
    raw = random.integers(0, 256, (n, k // element.block, element.itemsize), np.uint8)
    if layout.stored == "power":
        raw[..., layout.d] = random.integers(0, 150, raw.shape[:-1])
    else:
        scales = random.standard_normal(raw.shape[:-1]).astype(np.float16)
        scales.flat[::3] = random.integers(1, 30, scales.flat[::3].shape) * 2.0**-24
        write_scale(raw, layout, scales)
    w = isokern.empty((n, k), element, device=device)
    w.raw.copy_from(raw.reshape(n, -1))
    wanted = blocks.dequantize(raw.reshape(n, -1), element).T
    for how, one in (("float", 1.0), ("q8_0", 127.0)):
        for rows in (np.arange(k), np.arange(3), np.array([k - 1])):
            x = isokern.tensor(np.float32(one) * np.eye(k, dtype=np.float32)[rows], device=device)
            descriptor = describe(w, len(rows), device, lhs_quantization=how)
            got = compute(descriptor, x, descriptor.prepack("w", w))
            np.testing.assert_allclose(got, wanted[rows].astype(np.float64) * one, rtol=0 if one == 1 else 2e-7)


@pytest.mark.parametrize("element", [*BLOCKS, *STORED_BLOCKS], ids=str)
def test_the_largest_sums_of_integers_fit(device, element):
    """All products of a row have one sign, and quants of x are as large as they become."""
    raw = draw("normal", element, (37, 512), np.random.default_rng(12))
    w = isokern.empty((37, 512), element, device=device)
    w.raw.copy_from(raw)
    plain = blocks.dequantize(raw, element).astype(np.float64)
    for sign in (1, -1):
        x = np.where(plain < 0, -127, 127) * sign
        descriptor = describe(w, 37, device, lhs_quantization="q8_0")
        got = compute(descriptor, isokern.tensor(x.astype(np.float32), device=device), descriptor.prepack("w", w))
        assert np.abs(got - x @ plain.T).max() <= 1e-6 * np.abs(x @ plain.T).max()


def test_it_is_made_once_and_found_again_by_other_descriptors(made, weight, device):
    gc.collect()  # free what other tests left now, not later
    packed, found, live = device.prepack_cache.packed, device.prepack_cache.found, device.memory.live
    held = made.prepack("w", weight)
    assert (device.prepack_cache.packed, device.prepack_cache.found) == (packed + 1, found)
    assert (
        device.prepack_cache.nbytes >= held.desc.nbytes == made.packed_layouts["w"].nbytes == device.memory.live - live
    )
    assert made.prepack("w", weight) is held
    assert describe(weight, 64, device, lhs_quantization="q8_0").prepack("w", weight) is held
    assert (device.prepack_cache.packed, device.prepack_cache.found) == (packed + 1, found + 2)
    del held
    gc.collect()
    assert device.memory.live == live
    assert made.prepack("w", weight).shape == (made.packed_layouts["w"].nbytes,)
    assert device.prepack_cache.packed == packed + 2


def test_a_part_of_a_weight_is_a_weight_of_its_own(made, weight, device):
    whole = made.prepack("w", weight)
    part = weight[5:21, 32:96]
    descriptor = describe(part, 2, device, lhs_quantization="q8_0")
    x = isokern.tensor(np.random.default_rng(0).standard_normal((2, 64), np.float32), device=device)
    held = descriptor.prepack("w", part)
    assert held is not whole
    plain = compute(describe(part, 2, device, (), lhs_quantization="q8_0"), x, part)
    np.testing.assert_allclose(compute(descriptor, x, held), plain, rtol=1e-4, atol=1e-3)
    with pytest.raises(BadTensorDtype, match=r"Q4_0 \[37, 96\] as .* allowed: .*Q4_0 \[16, 64\] as"):
        compute(descriptor, x, whole)


def test_memory_of_the_callers(made, weight, device):
    room = device.memory.alloc(made.packed_layouts["w"].nbytes)
    packed, kept = device.prepack_cache.packed, device.prepack_cache.nbytes
    held = made.prepack("w", weight, into=room)
    assert held.buffer is room
    assert (device.prepack_cache.packed, device.prepack_cache.nbytes) == (packed + 1, kept)
    x = isokern.tensor(np.ones((3, 96), np.float32), device=device)
    before = compute(made, x, held)
    weight.copy_from(2 * np.random.default_rng(6).standard_normal((37, 96), np.float32))
    np.testing.assert_array_equal(compute(made, x, held), before)
    assert made.prepack("w", weight, into=room).buffer is room
    plain = compute(describe(weight, 3, device, (), lhs_quantization="q8_0"), x, weight)
    np.testing.assert_allclose(compute(made, x, held), plain, rtol=1e-4, atol=1e-3)
    with pytest.raises(InvalidArgument, match=f"has {made.packed_layouts['w'].nbytes - 1} bytes"):
        made.prepack("w", weight, into=device.memory.alloc(made.packed_layouts["w"].nbytes - 1))
    with pytest.raises(InvalidArgument, match="into is a Tensor"):
        made.prepack("w", weight, into=held)
    room.close()
    with pytest.raises(InvalidArgument, match="into is closed"):
        made.prepack("w", weight, into=room)


def test_bound_captured_and_eager(made, weight, device):
    x = isokern.tensor(np.random.default_rng(1).standard_normal((3, 96), np.float32), device=device)
    held = made.prepack("w", weight)
    expected = compute(made, x, held)
    y = isokern.zeros((3, 37), device=device)
    space = made.alloc_workspace()
    made.bind([x, held], y, workspace=space)()
    np.testing.assert_array_equal(y.numpy(), expected)
    with device.default_stream.capture() as recording:
        made.calculate([x, held], y, workspace=space)
        with pytest.raises(InvalidArgument, match="capturing; prepack w before"):
            made.prepack("w", weight)
    y.copy_from(np.zeros((3, 37), np.float32))
    recording.replay()
    np.testing.assert_array_equal(y.numpy(), expected)
    np.testing.assert_array_equal(isokern.matmul_transposed(x, held, lhs_quantization="q8_0").numpy(), expected)
    # the layout serves rows of floats, too; no kernel has one of the transposed weight
    plain = isokern.matmul_transposed(x, weight).numpy()
    np.testing.assert_allclose(isokern.matmul_transposed(x, held).numpy(), plain, rtol=1e-4, atol=1e-3)
    with pytest.raises(BadTensorDtype, match=r"w has dtype Q4_0 \[37, 96\] as"):
        isokern.matmul_mixed(isokern.zeros((3, 37), device=device), held)


def test_what_is_wrong_is_said(made, weight, device):
    x = isokern.tensor(np.ones((3, 96), np.float32), device=device)
    held = made.prepack("w", weight)
    with pytest.raises(InvalidArgument, match=r"prepacked=.*of w"):
        isokern.create("matmul_transposed", [x.desc, weight.desc], device=device, prepacked=["x"])
    with pytest.raises(InvalidArgument, match="of no input"):
        isokern.create("relu", [x.desc], device=device, prepacked="x")
    plain = describe(weight, 3, device, (), lhs_quantization="q8_0")
    with pytest.raises(InvalidArgument, match=r"created to have prepacked.*prepacked=\['w'\]"):
        plain.prepack("w", weight)
    with pytest.raises(BadTensorDtype, match=r"w has dtype Q4_0; allowed: Q4_0 \[37, 96\] as"):
        compute(made, x, weight)
    with pytest.raises(BadTensorDtype, match=r"w has dtype Q4_0 \[37, 96\] as"):
        compute(plain, x, held)
    with pytest.raises(BadTensorShape, match="w has shape"):
        made.prepack("w", weight[:16])
    with pytest.raises(TypeError, match="stays in its process"):
        pickle.dumps(held)
    weight.buffer.close()
    with pytest.raises(InvalidArgument, match="closed"):
        made.prepack("w", weight)
