"""Test that checked vector functions propagate unwritten bytes by lane, and report results that depend on them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from needs import cxx

from isokern_kunlun_sim import compiling

INCLUDE = compiling.HERE / "include"

# The emulator's side: byte 5 and bytes 40 to 47 at `a` and byte 62 at `b` are unwritten; it prints each report
PROGRAM = """
#include <cstdio>
#include <cstdlib>
#include "xpu/kernel/cluster_simd.h"
alignas(64) static char a[128], b[64], o[128];
static constexpr uint64_t A = 1ull << 5 | 0xffull << 40, B = 1ull << 62;
__thread xpusim_core *xpusim_current;
extern "C" {
uint64_t xpusim_vector_load(const void *p, int bytes, int, xpusim_site)
{
    const char *at = (const char *)p;
    const uint64_t all = at >= a && at < a + 64 ? A >> (at - a) : at >= b && at < b + 64 ? B >> (at - b) : 0;
    return bytes == 64 ? all : all & ((1ull << bytes) - 1);
}
void xpusim_vector_store(void *to, int bytes, int, uint64_t unwritten, uint64_t enabled, xpusim_site)
{
    std::printf("store %d+%d %llx %llx\\n", int((char *)to - o), bytes, \
(unsigned long long)unwritten, (unsigned long long)enabled);
}
void xpusim_use(uint64_t unwritten, xpusim_site site) { \
std::printf("use %llx at line %d\\n", (unsigned long long)unwritten, site.line); }
void xpusim_raise(int, const char *, xpusim_site) { std::abort(); }
}
int main(int, char **argv)
{
    const float32x16_t fa = vload_lm_float32x16(a), fb = vload_sm_float32x16(b);
    const int32x16_t ia = vload_lm_int32x16(a);
    const uint32x16_t ua = vload_lm_uint32x16(a);
    const bfloat16x32_t ba = vload_lm_bfloat16x32(a), bb = vload_lm_bfloat16x32(b);
    const float16x32_t ha = vload_lm_float16x32(a);
    (void)fa, (void)fb, (void)ia, (void)ua, (void)ba, (void)bb, (void)ha;
    int row = 0;
    const int chosen = std::atoi(argv[1]);
#define ROW(...) if (row++ == chosen) { __VA_ARGS__; }
#line 1
@ROWS@
}
"""
STORE = "vstore_lm_{}(o, {})"
A, B = 1 << 5 | 0xFF << 40, 1 << 62
LANE4 = 0xF << 4 | 0xFF << 40  # the 4-byte lanes that contain bytes of A
LANE2 = 0x3 << 4 | 0xFF << 40
ALL = 2**64 - 1


def stored(mask: int, enabled: int = ALL) -> list[str]:
    return [f"store 0+64 {mask:x} {enabled:x}"]


def used(mask: int) -> list[str]:
    return [f"use {mask:x}"]


# statement, expected reports
ROWS: list[tuple[str, list[str]]] = [
    (STORE.format("float32x16", "fa"), stored(A)),
    (STORE.format("float32x16", "vvadd_float32x16(fa, fb)"), stored(LANE4 | 0xF << 60)),
    (STORE.format("float32x16", "svmul_float32x16_rz(2.0f, fa)"), stored(LANE4)),
    (STORE.format("float32x16", "vvmac_float32x16(fb, fb, fa)"), stored(LANE4 | 0xF << 60)),
    (STORE.format("float16x32", "vvmul_float16x32(ha, ha)"), stored(LANE2)),
    (STORE.format("int32x16", "vvmax_int32x16(ia, ia)"), stored(LANE4)),
    (STORE.format("int32x16", "vvand_int32x16(ia, ia)"), stored(A)),  # bit by bit
    (STORE.format("uint32x16", "svsll_uint32x16(3, ua)"), stored(LANE4)),
    # A lane that a mask leaves out is clean, or has the held operand's bytes
    (STORE.format("float32x16", "vvadd_float32x16_mz(fa, fa, 0x0400)"), stored(0xF << 40)),
    (STORE.format("float32x16", "vvadd_float32x16_mh(fa, fa, fb, 0x0002)"), stored(0xF << 4 | B)),
    (STORE.format("float32x16", "vload_lm_float32x16_mz(a, 0xfffd)"), stored(0xFF << 40)),
    (STORE.format("bfloat16x32", "vload_lm_bfloat16x32_mh(a, bb, 1 << 20)"), stored(0x3 << 40 | B)),
    ("vstore_lm_float32x16_mh(o, fa, 0x00ff)", stored(A, 0xFFFFFFFF)),
    ("vstore_lm_float32x16_mz(o, fa, 0x00ff)", stored(1 << 5)),
    (STORE.format("float32x16", "vset_zero()"), stored(0)),
    (STORE.format("float32x16", "float32x16_t()"), stored(ALL)),  # a register that was never loaded
    # Operations that move lanes move their unwritten bytes
    (STORE.format("float32x16", "vshuffle2_float32x16(fa)"), stored(1 << 1 | 0xFF << 40)),
    (STORE.format("float32x16", "vvmerge_l_float32x16(fa, fb)"), stored(1 << 9)),
    (STORE.format("float32x16", "vvmerge_h_float32x16(fb, fa)"), stored(0xF << 20 | 0xF << 28 | 1 << 58)),
    (STORE.format("float32x16", "vbf162float_l(ba)"), stored(0xF << 8)),
    (STORE.format("float32x16", "vbf162float_h(ba)"), stored(0xFFFF << 16)),
    (STORE.format("bfloat16x32", "vfloat2bf16_lh(fa, fb)"), stored(0x3 << 2 | 0xF << 20 | 0x3 << 62)),
    (STORE.format("bfloat16x32", "vfloat2bf16_h(fa, bb)"), stored(0x3 << 34 | 0xF << 52)),
    (STORE.format("int16x32", "xpusim::vector_cast<int16x32_t>(fa)"), stored(A)),
    (
        "float32x16_t x, y; vload2_lm_unordered((const bfloat16 *)a, x, y); vstore_lm_float32x16(o, x)",
        stored(0xFF << 40),
    ),
    ("float32x16_t x, y; vload2_lm_unordered((const bfloat16 *)a, x, y); vstore_lm_float32x16(o, y)", stored(LANE4)),
    ("vstore2_lm_unordered((bfloat16 *)o, fb, fa)", stored(0x33 << 40 | B)),
    (STORE.format("int32x16", "vgather_lm_int32x16_mz(a + 2, vset_zero_int(), 0x8001)"), stored(0x8 | 0x8 << 60)),
    # Results that depend on unwritten bytes
    ("vextract_float32x16(fa, 2)", used(1 << 5)),
    ("vextract_float32x16(fa, 1)", []),
    ("vrmax_float32x16(fa)", used(A)),
    ("vrmax_float32x16(vvadd_float32x16_mz(fa, fa, 1))", []),
    ("vpopcnt512(ia)", used(A)),
    ("vvlt_float32x16(fa, fb)", used(A | B)),
    ("vvlt_float32x16_mz(fa, fb, 0x0001)", []),
    ("svle_int32x16_mz(3, ia, 0x0402)", used(1 << 5 | 0xF << 40)),
    ("vscatter_lm_float32x16_mh(o, fa, vset_zero_int(), 2)", ["store 0+4 2 f"]),
    ("vscatter_lm_float32x16_mh(o, vset_one(), ia, 1)", ["store 0+4 0 f"]),
    ("vscatter_lm_float32x16_mh(o, vset_one(), ia, 2)", ["use 20", "store 0+4 0 f"]),
]


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("taint")
    lines = "\n".join(f"    ROW({code})" for code, _ in ROWS)
    (folder / "taint.cpp").write_text(PROGRAM.replace("@ROWS@", lines))
    flags = ["-std=c++17", "-O1", *compiling.NUMERICS, "-DXPUSIM_CHECKED", *compiling.WARNINGS, f"-I{INCLUDE}"]
    compiling.run([cxx(), *flags, folder / "taint.cpp", "-o", folder / "taint"])
    return folder / "taint"


@pytest.mark.parametrize("k", range(len(ROWS)), ids=[code for code, _ in ROWS])
def test_taint(program: Path, k: int) -> None:
    done = subprocess.run([program, str(k)], capture_output=True, text=True, check=True)
    want = [f"{line} at line {k + 1}" if line.startswith("use") else line for line in ROWS[k][1]]
    assert done.stdout.splitlines() == want
