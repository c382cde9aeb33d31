"""Test what published kernels and their hosts rely on, in small ones of our own: what is told, and what is not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from isokern_kunlun_sim.compiling import compiler
from isokern_kunlun_sim.rewriting import KernelName, kernels

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
HEAD = '#include "xpu/kernel/xtdk.h"\n#include "xpu/kernel/xtdk_simd.h"\n#include "xpu/kernel/xtdk_atomic_sm_xpu3.h"\n#include "xpu/runtime.h"\n'

SYNCHRONOUS_AFTER_ASYNCHRONOUS = """
__global__ void k(const int *x, int *y)
{
    int a, b;
    GM2LM_ASYNC(x + core_id(), &a, 4);
    GM2LM(x + 64 + core_id(), &b, 4);
    int sum = a + b;
    mfence_lm();
    LM2GM(&sum, y + core_id(), 4);
}
"""
FENCE_OF_THE_SOURCE = """
__global__ void k(int *y)
{
    int mine = core_id();
    mfence_lm();
    LM2GM_ASYNC(&mine, y + core_id(), 4);
    mfence_lm();
}
"""
GROUPS_OF_ONE = """
__global__ void k(float *y)
{
    __group_shared__ float mine[16];
    for (int i = 0; i < 16; i++)
        mine[i] = core_id() + i;
    mfence();
    GSM2GM(mine, y + core_id() * 16, 64);
}
"""
BARRIER_OF_THE_REST = """
__global__ void k(int *y)
{
    __shared__ int s[64];
    s[core_id()] = 1;
    mfence_sm();
    sync_cluster();
    if (core_id() != 0)
        return;
    sync_cluster();
    int sum = 0;
    for (int i = 0; i < core_num(); i++)
        sum += s[i];
    mfence_lm();
    LM2GM(&sum, y, 4);
}
"""
ALL_SHARED_MEMORY = """
__global__ void k(int *y)
{
    __shared__ int a[16384], b[16384], c[16384], d[16384];
    a[core_id()] = b[core_id()] = c[core_id()] = d[core_id()] = core_id();
    mfence_sm();
    int sum = a[core_id()] + b[core_id()] + c[core_id()] + d[core_id()];
    LOCK
    mfence_lm();
    LM2GM(&sum, y + core_id(), 4);
}
"""
FORGOTTEN_TAIL = """
__global__ void k(float *y)
{
    float one = 1;
    mfence_lm();
    if (core_id() < N)
        LM2GM(&one, y + core_id(), 4);
}
"""
GARBAGE = """
__global__ void k(float *y)
{
    __local__ __simd__ float b[32];
    float32x16_t v;
    vstore_lm_float32x16(b + 16, svadd_float32x16(1.0f, v));
    for (int i = 0; i < 16; i++)
        b[i] = 1;
    mfence_lm();
    if (core_id() == 0)
        LM2GM(b + FIRST, y, 64);
}
"""
INSTANTIATED = """
template <class T> __global__ void scale(T *y, int n)
{
    T x;
    GM2LM(y + core_id(), &x, sizeof x);
    x = x * n;
    mfence_lm();
    LM2GM(&x, y + core_id(), sizeof x);
}
template __global__ void scale(float *, int);
template __global__ void scale<int>(int *, int);
"""


def run(
    folder: Path, text: str, *arguments: str, clusters: int = 1, cores: int = 64, **options: str
) -> tuple[int, str]:
    """Run a kernel on the emulator; return the exit status and all that was printed."""
    (folder / "k.xpu").write_text(HEAD + text)
    given = [f"--{name}={value}" for name, value in options.items()]
    program = "from isokern_kunlun_sim.cli import app; app()"
    command = [sys.executable, "-c", program, "run", f"--clusters={clusters}", f"--cores={cores}"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache"), "XPUSIM_DEVICE_MODEL": "KUNLUN3"}
    environment.pop("ISOKERN_CACHE", None)
    done = subprocess.run(
        [*command, *given, "k.xpu", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_synchronous_copy_completes_earlier_ones(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(128, dtype=np.int32))
    status, printed = run(tmp_path, SYNCHRONOUS_AFTER_ASYNCHRONOUS, "x.npy", "int32[64]:y.npy")
    assert status == 0 and "copy-drained" in printed and "error" not in printed, printed
    assert (np.load(tmp_path / "y.npy") == np.arange(64) * 2 + 64).all()


def test_a_fence_of_the_source_is_a_fence(tmp_path: Path) -> None:
    status, printed = run(tmp_path, FENCE_OF_THE_SOURCE, "int32[64]:y.npy")
    assert status == 0 and "findings: none" in printed, printed


def test_each_of_sixteen_cores_is_a_group(tmp_path: Path) -> None:
    status, printed = run(tmp_path, GROUPS_OF_ONE, "float32[256]:y.npy", cores=16)
    assert status == 0 and "findings: none" in printed, printed
    assert (np.load(tmp_path / "y.npy").reshape(16, 16) == np.add.outer(np.arange(16), np.arange(16))).all()
    status, printed = run(tmp_path, GROUPS_OF_ONE, "float32[1024]:y.npy")
    assert status == 1 and "race-sm" in printed, "with 64 cores four share one"


def test_cores_that_ended_hold_up_no_barrier(tmp_path: Path) -> None:
    status, printed = run(tmp_path, BARRIER_OF_THE_REST, "int32[1]:y.npy")
    assert status == 0 and "note: barrier-exited" in printed and "error" not in printed, printed
    assert np.load(tmp_path / "y.npy").tolist() == [64]


def test_a_lock_takes_its_part_of_shared_memory(tmp_path: Path) -> None:
    status, printed = run(tmp_path, ALL_SHARED_MEMORY.replace("LOCK", ""), "int32[64]:y.npy")
    assert status == 0 and "findings: none" in printed, printed
    locked = ALL_SHARED_MEMORY.replace("LOCK", "ticket_lock_mix(); ticket_unlock_mix();")
    status, printed = run(tmp_path, locked, "int32[64]:y.npy")
    assert status == 1 and "sm-overflow" in printed, printed


@pytest.mark.parametrize("written", [60, 64])
def test_a_result_that_no_core_wrote_is_told(tmp_path: Path, written: int) -> None:
    status, printed = run(tmp_path, FORGOTTEN_TAIL.replace("N)", f"{written})"), "float32[64]:y.npy")
    assert status == 0, printed
    assert ("note: unwritten" in printed) == (written < 64), printed
    assert written == 64 or "16 bytes that nobody wrote, the first at offset 240 of y.npy" in printed, printed


@pytest.mark.parametrize(("first", "rule"), [(16, "uninitialised-copy"), (12, "uninitialised-rounding")])
def test_garbage_is_rounding_only_if_it_is_less_than_a_copy(tmp_path: Path, first: int, rule: str) -> None:
    status, printed = run(tmp_path, GARBAGE.replace("FIRST", str(first)), "float32[16]:y.npy")
    assert (status == 1) == (first == 16) and rule in printed, printed


def test_an_explicit_instantiation_is_the_same_kernel(tmp_path: Path) -> None:
    assert kernels(INSTANTIATED) == [KernelName("scale", True)]
    np.save(tmp_path / "x.npy", np.arange(64, dtype=np.float32))
    status, printed = run(tmp_path, INSTANTIATED, "x.npy:y.npy", "3", kernel="scale<float>")
    assert status == 0, printed
    assert (np.load(tmp_path / "y.npy") == 3 * np.arange(64)).all()


def test_a_host_in_several_files(tmp_path: Path) -> None:
    text = "int helper(int);\n__global__ void k(int *y) { y[0] = 1; }\nint main(int n, char **) { return helper(n); }\n"
    status, printed = run(tmp_path, text)
    assert status == 1 and "Traceback" not in printed
    assert "no file of the program has helper(int): name the file that has it, --with FILE" in printed
    (tmp_path / "helper.cpp").write_text("int helper(int n) { return n - 1; }\n")
    status, printed = run(tmp_path, text, **{"with": "helper.cpp"})
    assert status == 0, printed


def test_a_vector_that_is_freed_under_a_copy_is_told(tmp_path: Path) -> None:
    """Its destructor was the one that libxpurt had exported, which the checked mode does not see."""
    text = """#include <vector>
    __global__ void k(int *y) { if (core_id() == 0) y[0] = 1; }
    int main()
    {
        void *y;
        XPUStream s;
        xpu_stream_create(&s);
        xpu_malloc(&y, 2000);
        {
            std::vector<int> p(500, 3);
            xpu_memcpy_async(y, p.data(), 2000, XPU_HOST_TO_DEVICE, s);
        }
        return xpu_wait(s);
    }
    """
    status, printed = run(tmp_path, text, seed="0")
    assert "free-in-flight" in printed, (status, printed)
