"""Test quantising to block types on the host: bytes of the `gguf` package, and errors next to ggml's search."""

import zlib

import numpy as np
import pytest

from isokern import BadTensorDtype, blocks
from isokern.blocks.encoders import ENCODED, RANGES, RULES
from isokern.blocks.layouts import LAYOUTS, evaluate, read_scale
from isokern.blocks.packing import pack
from isokern.dtypes import STORED_BLOCKS, dtype

EACH = pytest.mark.parametrize("name", ENCODED)
# crc32 of the blocks of `drawn`, by the package
DIGESTS = {
    "Q5_0": 0x188D5273,
    "Q5_1": 0xAFE514DB,
    "TQ1_0": 0xE1483973,
    "TQ2_0": 0x36712019,
    "MXFP4": 0x7C4942EC,
}
# Mean squared errors of each of the three parts of `drawn`, by ggml_quantize_chunk of ggml 0.13.1 without weights
ERRORS = {
    "Q2_K": (0.090341, 0.37306, 0.0062475),
    "Q3_K": (0.023356, 0.10781, 0.0040344),
    "Q4_K": (0.0051747, 0.026127, 0.00028443),
    "Q5_K": (0.0013092, 0.0067597, 6.9758e-05),
    "Q6_K": (0.00032093, 0.0021064, 5.7459e-05),
    "IQ4_NL": (0.0057639, 0.03252, 0.0012398),
    "IQ4_XS": (0.0058463, 0.033397, 0.0012606),
}


def drawn():
    """Return rows of normal numbers, of some with larger ones among them, and of numbers of one sign."""
    rng = np.random.default_rng(43)
    parts = rng.standard_normal((12, 1024)), rng.standard_t(3, (12, 1024)), rng.uniform(0, 1, (12, 1024))
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("name", DIGESTS)
def test_bytes_are_those_of_the_package(name):
    assert zlib.crc32(blocks.quantize(drawn(), dtype(name)).tobytes()) == DIGESTS[name]


@pytest.mark.parametrize("name", DIGESTS)
@pytest.mark.full
def test_bytes_are_those_of_the_package_itself(name):
    gguf, rng = pytest.importorskip("gguf"), np.random.default_rng(47)
    for x in (
        drawn(),
        drawn() * 1e-4,
        rng.integers(-9, 9, (8, 512)).astype(np.float32),
        np.zeros((2, 512), np.float32),
    ):
        wanted = gguf.quants.quantize(x, gguf.GGMLQuantizationType[name])
        np.testing.assert_array_equal(blocks.quantize(x, dtype(name)), wanted)


def test_sums_of_q8_k():
    x = drawn()
    raw = blocks.quantize(x, dtype("Q8_K")).reshape(-1, 292)
    quants = raw[:, 4:260].view(np.int8)
    np.testing.assert_array_equal(raw[:, 260:].view(np.int16), quants.reshape(-1, 16, 16).sum(-1))
    values = blocks.dequantize(raw, dtype("Q8_K"))
    largest = np.max(np.abs(x.reshape(-1, 256)), -1)
    assert np.all(np.max(np.abs(values - x.reshape(-1, 256)), -1) <= largest / 127 / 2 * 1.0001)
    at = np.argmax(np.abs(x.reshape(-1, 256)), -1)
    assert set(np.take_along_axis(quants, at[:, None], -1).reshape(-1)) == {-127}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_are_at_most_those_of_the_reference_search(name):
    x, element = drawn(), dtype(name)
    values = blocks.dequantize(blocks.quantize(x, element), element)
    errors = ((values - x).astype(np.float64) ** 2).reshape(3, -1).mean(1)
    assert np.all(errors <= ERRORS[name]) and np.all(errors > 0.5 * np.array(ERRORS[name]))


@EACH
def test_elements_that_a_block_holds_are_kept(name):
    element = dtype(name)
    for value in (0.0, 0.5, -0.5):
        x = np.full((2, 512), value, np.float32)
        values = blocks.dequantize(blocks.quantize(x, element), element)
        np.testing.assert_allclose(values, x, rtol=4e-4)  # a scale that is a fraction of the value is rounded to F16
    assert blocks.quantize(np.zeros((3, 0), np.float32), element).shape == (3, 0)
    assert blocks.quantize(np.zeros((0, 512), np.float64), element).shape == (0, element.nbytes(512))


@pytest.mark.parametrize("name", [n for n in ENCODED if n != "MXFP4"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_in_the_scale(name, value):
    element, x = dtype(name), drawn()[:2, :512].copy()
    x[0, 3], wanted = value, blocks.dequantize(blocks.quantize(x, element), element)
    changed = blocks.dequantize(blocks.quantize(x, element), element)
    assert not np.isfinite(changed[0, : element.block]).any()
    np.testing.assert_array_equal(changed[:, element.block :], wanted[:, element.block :])
    if np.isnan(value):
        assert np.isnan(changed[0, : element.block]).all()


@pytest.mark.parametrize("name", RANGES)
def test_what_is_too_large_is_infinite(name):
    element, x = dtype(name), np.ones((2, 512), np.float32)
    x[1] = 1e30
    with np.errstate(invalid="ignore"):
        values = blocks.dequantize(blocks.quantize(x, element), element)
    assert np.isfinite(values[0]).all() and not np.isfinite(values[1]).any()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_the_power_of_mxfp4(value):
    x = drawn()[:2, :512].copy()
    wanted = blocks.quantize(x, dtype("MXFP4")).reshape(2, 16, 17)
    x[0, 3] = value
    got = blocks.quantize(x, dtype("MXFP4")).reshape(2, 16, 17)
    assert list(got[0, 0]) == [255, *16 * [0]]
    np.testing.assert_array_equal(got.reshape(-1, 17)[1:], wanted.reshape(-1, 17)[1:])


@pytest.mark.parametrize("element", [d for d in STORED_BLOCKS if d.name not in ENCODED], ids=str)
def test_types_with_codebooks_are_refused(element):
    assert LAYOUTS[element.name].codebook is not None
    with pytest.raises(BadTensorDtype, match=rf"{element} is only decoded; allowed: Q4_0, Q4_1, Q8_0, Q5_0"):
        blocks.quantize(np.zeros((1, 256), np.float32), element)


@pytest.mark.parametrize("name", [n for n in ENCODED if n != "TQ1_0"])  # trits are no bits
def test_packing_is_the_inverse_of_the_layout(name):
    element, layout = dtype(name), LAYOUTS[name]
    raw = np.random.default_rng(53).integers(0, 256, (40, element.itemsize), np.uint8)
    if name == "Q8_K":
        raw[:, 260:] = 0
    d = raw[:, layout.d] if layout.stored == "power" else read_scale(raw, layout)
    if layout.m is not None:
        d = np.stack([d, raw[:, layout.m : layout.m + 2].copy().view(np.float16)[:, 0]], -1)
    quants = layout.quant if layout.table is None else layout.code
    parts = {"quants": quants, "scales": layout.scale, "minima": layout.minimum}
    given = {
        part: evaluate(text, raw, element).reshape(40, -1)
        for part, text in parts.items()
        if part == "quants" or "B[" in text
    }
    runs = {part: array if part == "quants" else array[:, ::16] for part, array in given.items()}
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(pack(element, d, **runs), raw)


def test_each_type_has_a_rule_or_a_search():
    assert not set(RULES) & set(RANGES)
    assert {d.name for d in STORED_BLOCKS} == set(ENCODED) | {
        name for name, layout in LAYOUTS.items() if layout.codebook
    }
