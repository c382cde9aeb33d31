"""Test floats of 8 and 4 bits against ml_dtypes: the conversions in C, and the references that quantise to them."""

import os
import shutil
import subprocess
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import isokern
from isokern.dtypes import ACTIVATIONS, COMPUTED, FLOATS, FP8, NUMBERS, PLAIN, WEIGHTS
from isokern.layout import TensorDesc
from isokern.ops import find

INCLUDE = Path(isokern.__file__).parent / "cabi/include"
CONVERSIONS = """
#include <stdio.h>
#include "isokern_half.h"
int main(void)
{
    for (int h = 0; h < 256; h++) {
        const float x = ik_@_to_f32((uint8_t)h);
        fwrite(&x, sizeof x, 1, stdout);
    }
    float x;
    while (fread(&x, sizeof x, 1, stdin) == 1)
        putchar(ik_f32_to_@(x));
}
"""


def test_floats_that_are_only_stored_are_moved_and_not_computed_with():
    assert [d.name for d in FP8] == ["F8E4M3FN", "F8E5M2"]
    assert set(FP8) <= set(PLAIN) & set(WEIGHTS)
    assert not set(FP8) & {*COMPUTED, *NUMBERS, *FLOATS, *ACTIVATIONS}
    assert not any(set(FP8) & set(types) for types in find("add").signature.types.values())


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_every_f32_by_its_upper_bits_becomes_what_it_does_in_ml_dtypes(dtype, tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "conversions.c").write_text(CONVERSIONS.replace("@", dtype.name.lower()))
    build = [compiler, "-std=c11", f"-I{INCLUDE}", "conversions.c", "-o", "conversions"]
    subprocess.run(build, cwd=tmp_path, check=True)
    upper = np.arange(1 << 16, dtype=np.uint32)[:, None] << 16
    given = (upper | np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF], np.uint32)).reshape(-1).view(np.float32)
    done = subprocess.run([tmp_path / "conversions"], input=given.tobytes(), capture_output=True, check=True)
    wide, narrow = np.frombuffer(done.stdout[:1024], np.float32), np.frombuffer(done.stdout[1024:], np.uint8)
    every = np.arange(256, dtype=np.uint8).view(dtype.numpy)
    np.testing.assert_array_equal(wide, every.astype(np.float32))
    numbers = ~np.isnan(given)
    with np.errstate(invalid="ignore"):
        expected = given.astype(dtype.numpy)
    np.testing.assert_array_equal(narrow[numbers], expected.view(np.uint8)[numbers])
    assert np.isnan(narrow[~numbers].view(dtype.numpy)).all()
    back = subprocess.run([tmp_path / "conversions"], input=wide.tobytes(), capture_output=True, check=True)
    assert back.stdout[1024:] == every.tobytes(), "a number that is widened and narrowed keeps its bits, NaN too"


def numbers(shape, seed=0):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-40, 40, (*shape[:-1], 1)))).astype(np.float32)


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_mxfp8_has_the_scales_and_elements_of_ml_dtypes(dtype):
    x = numbers((50, 64))
    y, scales = find("quantize_mxfp8").reference(x, out=[TensorDesc(dtype, x.shape)])
    factors = np.repeat(scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), 32, -1)
    most = float(ml_dtypes.finfo(dtype.numpy).max)
    np.testing.assert_array_equal(np.clip(x / factors, -most, most).astype(dtype.numpy), y)
    largest = np.abs(x).reshape(50, 2, 32).max(-1)
    exponent = {"F8E4M3FN": 8, "F8E5M2": 15}[dtype.name]
    np.testing.assert_array_equal(scales, np.floor(np.log2(largest.astype(np.float64))) - exponent + 127)


def test_mxfp4_and_nvfp4_have_the_elements_of_ml_dtypes():
    x = numbers((50, 64), 1)
    y, scales = find("quantize_mxfp4").reference(x)
    factors = np.repeat(scales.view(ml_dtypes.float8_e8m0fnu).astype(np.float32), 32, -1)
    codes = np.clip(x / factors, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(y, codes[:, ::2] | codes[:, 1::2] << 4)
    np.testing.assert_array_equal(scales, np.floor(np.log2(np.abs(x).reshape(50, 2, 32).max(-1))) - 2 + 127)
    x, scale = numbers((50, 64), 2), np.float32(0.25)
    y, scales = find("quantize_nvfp4").reference(x, scale)
    assert scales.dtype == ml_dtypes.float8_e4m3fn
    steps = np.repeat(scales.astype(np.float32) * scale, 16, -1)
    with np.errstate(all="ignore"):
        quotient = np.where(steps > 0, x / steps, 0)
    codes = np.clip(quotient, -6, 6).astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    np.testing.assert_array_equal(y, codes[:, ::2] | codes[:, 1::2] << 4)


@pytest.mark.parametrize("name", ["F8E4M3FN", "F8E5M2"])
def test_every_element_of_a_tensor_goes_to_numpy_and_dlpack_and_back(name):
    dtype = isokern.dtype(name)
    values = np.arange(256, dtype=np.uint8).view(dtype.numpy).reshape(16, 16)
    given = isokern.from_numpy(values.T, device="cpu:0")
    for found in (given, isokern.from_dlpack(given)):
        assert found.dtype is dtype
        assert found.shape == (16, 16)
        assert found.numpy().tobytes() == values.T.tobytes()
