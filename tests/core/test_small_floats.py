"""Test the floats of 8 bits against ml_dtypes: the conversions in C, and the exchange with NumPy."""

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import isokern
from isokern.dtypes import ACTIVATIONS, COMPUTED, FLOATS, FP8, NUMBERS, PLAIN, WEIGHTS
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


@pytest.mark.parametrize("name", ["F8E4M3FN", "F8E5M2"])
def test_every_element_of_a_tensor_goes_to_numpy_and_dlpack_and_back(name):
    dtype = isokern.dtype(name)
    values = np.arange(256, dtype=np.uint8).view(dtype.numpy).reshape(16, 16)
    given = isokern.from_numpy(values.T, device="cpu:0")
    for found in (given, isokern.from_dlpack(given)):
        assert found.dtype is dtype
        assert found.shape == (16, 16)
        assert found.numpy().tobytes() == values.T.tobytes()
