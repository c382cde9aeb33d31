"""Test the host's F16 and BF16 conversions, which the emulated GPU uses, against NVIDIA's headers."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from isokern.simt.source import ABI

CODE = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "isokern_half.h"

static long wrong, compared;

static void check(const char *what, unsigned given, int alike, unsigned ours, unsigned theirs)
{
    compared++;
    if (!alike && wrong++ < 5)
        printf("%s of %x: %x, by NVIDIA %x\\n", what, given, ours, theirs);
}

static unsigned bits_of(float value)
{
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static void widened(unsigned short h)
{
    const float ours[] = {ik_f16_to_f32(h), ik_bf16_to_f32(h)};
    const float theirs[] = {__half2float(__ushort_as_half(h)), __bfloat162float(__ushort_as_bfloat16(h))};
    for (int i = 0; i < 2; i++)
        check(i ? "bf16 to f32" : "f16 to f32", h, isnan(theirs[i]) ? isnan(ours[i]) \
: bits_of(ours[i]) == bits_of(theirs[i]), bits_of(ours[i]),
            bits_of(theirs[i]));
}

static void narrowed(unsigned bits)
{
    float value;
    memcpy(&value, &bits, 4);
    const unsigned short ours[] = {ik_f32_to_f16(value), ik_f32_to_bf16(value)};
    const unsigned short theirs[] = {__half_as_ushort(__float2half_rn(value)), \
__bfloat16_as_ushort(__float2bfloat16_rn(value))};
    const int nan[] = {(ours[0] & 0x7fff) > 0x7c00, (ours[1] & 0x7fff) > 0x7f80};
    for (int i = 0; i < 2; i++)
        check(i ? "f32 to bf16" : "f32 to f16", bits, isnan(value) ? nan[i] : ours[i] == theirs[i], ours[i], theirs[i]);
}

int main()
{
    for (unsigned h = 0; h < 65536; h++) {
        widened((unsigned short)h);
        /* around each value, and around each half-way point to the next one */
        for (int near = -2; near <= 2; near++) {
            narrowed((h << 16) + (unsigned)near);
            narrowed((h << 16) + 0x8000u + (unsigned)near);
            narrowed(bits_of(ik_f16_to_f32((unsigned short)h)) + (unsigned)near);
            narrowed(bits_of(ik_f16_to_f32((unsigned short)h)) + 0x1000u + (unsigned)near);
        }
    }
    for (unsigned long bits = 0; bits < 1ul << 32; bits += 1009)
        narrowed((unsigned)bits);
    printf("%ld of %ld\\n", wrong, compared);
    return wrong != 0;
}
"""


@pytest.fixture(scope="module")
def headers():
    """Return the folder of cuda_fp16.h in NVIDIA's wheels."""
    found = sorted(Path(sysconfig.get_path("purelib")).glob("nvidia/*/include/cuda_fp16.h"))
    if not found or shutil.which("g++") is None:
        pytest.skip("no g++, or no wheels of nvidia-cuda-runtime, nvidia-cuda-crt and nvidia-cuda-cccl")
    return found[-1].parent


def compared(folder, headers, half=""):
    source = folder / "half.cpp"
    source.write_text(half or CODE)
    includes = [f"-I{d}" for d in (folder, ABI, headers, headers / "cccl")]
    subprocess.run(["g++", "-std=c++17", "-O2", *includes, str(source), "-o", str(folder / "half")], check=True)
    done = subprocess.run([str(folder / "half")], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout


def test_conversions_are_nvidias(tmp_path, headers):
    status, text = compared(tmp_path, headers)
    assert status == 0, text
    assert int(text.split()[-1]) > 10_000_000


def test_a_conversion_that_rounds_otherwise_is_seen(tmp_path, headers):
    plain = (ABI / "isokern_half.h").read_text()
    (tmp_path / "isokern_half.h").write_text(plain + "\n#define ik_f32_to_f16(x) (uint16_t)(ik_f32_to_f16(x) & ~1u)\n")
    status, text = compared(tmp_path, headers)
    assert status == 1
    assert "f32 to f16 of" in text
