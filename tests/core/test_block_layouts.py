"""Test the layouts of block types: values worked out by hand, and digests of those of the `gguf` package."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from isokern import blocks
from isokern.blocks.layouts import LAYOUTS, RUN, codebook, dequantize_layout, evaluate, read_scale, write_scale
from isokern.cabi.block_layouts import layout_header
from isokern.dtypes import STORED_BLOCKS, dtype
from isokern.oracle.values import draw

EACH = pytest.mark.parametrize("element", STORED_BLOCKS, ids=str)
# crc32 of the elements of `drawn`, by the package's dequantizers
DIGESTS = {
    "Q6_K": 0x37B55452,
    "Q4_K": 0xB47B3390,
    "Q5_K": 0xF9C721CC,
    "Q2_K": 0xD24690E5,
    "Q3_K": 0xCD8E1010,
    "Q5_0": 0xC7FC9753,
    "Q5_1": 0xB6D6CD69,
    "IQ4_NL": 0xA3B7DAC7,
    "IQ4_XS": 0x2BA6C65B,
    "MXFP4": 0x18D4C6FF,
    "TQ2_0": 0x91381EB7,
    "TQ1_0": 0x250C7149,
    "IQ2_XXS": 0x33540093,
    "IQ2_XS": 0xD2F10C6F,
    "IQ2_S": 0x833FB222,
    "IQ3_XXS": 0x85495933,
    "IQ3_S": 0x9F4D69D1,
    "IQ1_S": 0x55669CB7,
    "IQ1_M": 0x02044A92,
}
# The package has no dequantizer of Q8_K, which no file has: a block of it is tested by hand below
OF_PACKAGE = pytest.mark.parametrize("element", [d for d in STORED_BLOCKS if d.name != "Q8_K"], ids=str)


def drawn(element):
    """Return blocks of any quants, with scales that are numbers."""
    return draw("any", element, (5, 1024), np.random.default_rng(29))


def test_each_type_has_a_layout():
    assert list(LAYOUTS) == [d.name for d in STORED_BLOCKS]


@OF_PACKAGE
def test_elements_are_those_of_the_package(element):
    values = blocks.dequantize(drawn(element), element)
    assert zlib.crc32(values.astype("<f4").tobytes()) == DIGESTS[element.name]


@OF_PACKAGE
@pytest.mark.full
def test_elements_are_those_of_the_package_itself(element):
    gguf = pytest.importorskip("gguf")
    type_ = gguf.GGMLQuantizationType[element.name]
    assert gguf.GGML_QUANT_SIZES[type_] == (element.block, element.itemsize)
    raw = np.random.default_rng(31).integers(0, 256, (64, 4 * element.itemsize), np.uint8)
    for given in (drawn(element), raw):  # any bytes at all, too
        with np.errstate(all="ignore"):
            wanted = gguf.quants.dequantize(given, type_)
        got = blocks.dequantize(given, element)
        assert np.all((got.view(np.uint32) == wanted.view(np.uint32)) | (np.isnan(got) & np.isnan(wanted)))


@pytest.mark.full
def test_types_that_are_encoded_are_those_of_the_package():
    gguf = pytest.importorskip("gguf")
    raw = np.random.default_rng(37).integers(0, 256, (8, 340), np.uint8)
    x = np.random.default_rng(38).standard_normal((8, 320)).astype(np.float32)
    for name in ("Q4_0", "Q4_1", "Q8_0"):
        element, type_ = dtype(name), gguf.GGMLQuantizationType[name]
        given = raw[:, : 320 // 32 * element.itemsize]
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(blocks.dequantize(given, element), gguf.quants.dequantize(given, type_))
        np.testing.assert_array_equal(blocks.quantize(x, element), gguf.quants.quantize(x, type_))


@EACH
def test_quants_are_bytes_from_the_least_one_on(element, monkeypatch):
    """A kernel keeps them in unsigned bytes; and an offset and minima do not come together."""
    layout = LAYOUTS[element.name]
    raw = np.random.default_rng(41).integers(0, 256, (400, element.itemsize), np.uint8)
    assert blocks.dequantize(raw, element).shape == (400, element.block)
    one = 128 if layout.stored == "power" else 1 / layout.unit
    write_scale(raw, layout, np.full(400, one))
    assert np.all(read_scale(raw, layout) * layout.unit == 1)
    monkeypatch.setitem(LAYOUTS, element.name, replace(layout, scale="1", m=None))
    quants = dequantize_layout(raw, element)
    assert quants.min() == layout.lowest and quants.max() <= layout.lowest + 255
    assert np.array_equal(quants, np.round(quants))
    assert layout.m is None or layout.lowest == 0
    assert bool(layout.values) == (layout.codebook is not None)
    assert not layout.values or tuple(np.unique(quants)) == layout.values
    assert layout.values == tuple(-v for v in reversed(layout.values)) and len(layout.values) <= 16


def test_a_block_of_q8_k_by_hand():
    raw = np.zeros((1, 292), np.uint8)
    raw[0, :4] = np.frombuffer(np.float32(1e-9).tobytes(), np.uint8)  # an F32, less than any F16
    raw[0, 4 + 37], raw[0, 4 + 200], raw[0, 4 + 255] = 0x80, 0x7F, 0xFF
    raw[0, 260:] = 0x55  # the sums of runs, which are not read
    values = blocks.dequantize(raw, dtype("Q8_K"))[0]
    found = {37: -128, 200: 127, 255: -1}
    assert {int(i): float(values[i]) for i in np.flatnonzero(values)} == {
        i: float(np.float32(1e-9) * np.float32(q)) for i, q in found.items()
    }


@pytest.mark.parametrize(
    ("name", "entries"),
    [("IQ2_XXS", 256), ("IQ2_XS", 512), ("IQ2_S", 1024), ("IQ3_XXS", 256), ("IQ3_S", 512), ("IQ1_S", 2048)],
)
def test_codebooks_have_an_entry_for_each_index(name, entries):
    words = codebook(name)
    assert len(words) == len(set(words)) == entries
    assert max(words) < 1 << 16
    assert name.startswith("IQ3") or max(w >> at & 3 for w in words for at in range(0, 16, 2)) == 2


@pytest.mark.parametrize("element", [d for d in STORED_BLOCKS if LAYOUTS[d.name].bits], ids=str)
def test_codes_have_the_bits_that_are_declared(element):
    layout = LAYOUTS[element.name]
    raw = np.random.default_rng(43).integers(0, 256, (400, element.itemsize), np.uint8)
    raw[0] = 255
    codes = evaluate(layout.code, raw, element)
    assert codes.min() == 0 and codes.max() == (2 if element.name == "TQ1_0" else 2**layout.bits - 1)
    assert layout.table is not None or np.array_equal(evaluate(layout.quant, raw, element), codes + layout.lowest)


@pytest.mark.parametrize(
    "element", [d for d in STORED_BLOCKS if LAYOUTS[d.name].bits or LAYOUTS[d.name].values], ids=str
)
def test_scales_have_the_runs_and_bits_that_are_declared(element):
    layout, runs = LAYOUTS[element.name], element.block // RUN
    raw = np.random.default_rng(43).integers(0, 256, (400, element.itemsize), np.uint8)
    raw[0] = 255
    assert layout.run in (RUN, 2 * RUN)
    for numbers in (layout.scale, layout.minimum):
        each = np.broadcast_to(evaluate(numbers, raw, element), (400, runs, RUN))
        assert np.array_equal(each[:, ::2], each[:, 1::2]) or layout.run == RUN
        assert np.array_equal(each, each[..., :1].repeat(RUN, -1)) and -128 <= each.min() <= each.max() < 128
        assert layout.scale_bits == 8 or 0 <= each.min() <= each.max() < 2**layout.scale_bits == 16


def test_a_block_of_q6_k_by_hand():
    raw = np.zeros((1, 210), np.uint8)
    raw[0, 208:] = np.frombuffer(np.float16(0.5).tobytes(), np.uint8)
    raw[0, 192 + 9] = 0xFE  # the scale of elements 144 to 159: -2
    raw[0, 64 + 16 + 3] = 0x07  # the low four bits of element 128 + 16 + 3
    raw[0, 128 + 32 + 16 + 3] = 0x02  # its high two bits
    values = blocks.dequantize(raw, dtype("Q6_K"))[0]
    assert values[147] == 0.5 * -2 * (7 + 32 - 32)
    assert (
        set(np.delete(values[144:160], 3)) == {0.5 * -2 * -32} and not np.any(values[:144]) and not np.any(values[160:])
    )


def test_a_block_of_q4_k_by_hand():
    raw = np.zeros((1, 144), np.uint8)
    raw[0, :2], raw[0, 2:4] = (np.frombuffer(np.float16(v).tobytes(), np.uint8) for v in (0.25, 2))
    raw[0, 4 + 1] = 41 | 2 << 6  # the scale of elements 32 to 63, and the high bits of that of 160 to 191
    raw[0, 4 + 5] = 9 | 3 << 6  # the minimum of the first, and the high bits of that of the second
    raw[0, 4 + 9] = 0x85  # the low bits of both of the second: 5 and 8
    raw[0, 16 + 7] = 0xC0  # element 32 + 7
    values = blocks.dequantize(raw, dtype("Q4_K"))[0]
    assert values[39] == 0.25 * 41 * 12 - 2 * 9 and values[38] == -2 * 9
    assert values[160] == -2 * (8 | 3 << 4)


def test_the_header_has_each_type():
    header = layout_header()
    assert RUN == 16 and all(f"ik_of_{d}(" in header and f"ik_load_{d}(" in header for d in STORED_BLOCKS)
