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
NAMES = ("kernel/xtdk", "kernel/xtdk_simd", "kernel/xtdk_atomic_sm_xpu3", "runtime")
HEAD = "".join(f'#include "xpu/{name}.h"\n' for name in NAMES)

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


LARGEST = """
__global__ void largest(const float *v, float *out)
{
    float in[64], best[3];
    int id[3] = { -1, -1, -1 };
    GM2LM(v, in, sizeof(in));
    for (int i = 0; i < N; i++)
        if (id[2] == -1 || in[i] > best[2]) {
            id[2] = i;
            best[2] = in[i];
            for (int k = 1; k >= 0; k--)
                if (id[k] == -1 || best[k + 1] > best[k]) {
                    int was = id[k];
                    float had = best[k];
                    id[k] = id[k + 1], best[k] = best[k + 1];
                    id[k + 1] = was, best[k + 1] = had;
                }
        }
    mfence_lm();
    LM2GM(best, out, sizeof(best));
}
"""
ENDS_WITH = """
__global__ void k(float *y)
{
    __shared__ float s[4];
    float x[4], z[4];
    z[0] = z[1] = z[2] = 1;
    GIVEN
    mfence();
}
"""
FRAME_OF_VECTORS = """
static __attribute__((noinline)) void twice(float *x, int n)
{
    for (int i = 0; i < n; i += 16)
        vstore_lm_float32x16(x + i, svmul_float32x16(2.0f, vload_lm_float32x16(x + i)));
    mfence_lm();
}
__global__ void k(float *y)
{
    __simd__ float a[SIZE], b[SIZE];
    for (int i = 0; i < SIZE; i++)
        a[i] = b[i] = i;
    mfence_lm();
    float32x16_t all[16];
    for (int i = 0; i < 16; i++)
        all[i] = vload_lm_float32x16(a + 16 * i);
    twice(a, SIZE);
    for (int i = 0; i < 16; i++)
        vstore_lm_float32x16(b + 16 * i, vvadd_float32x16(all[i], vload_lm_float32x16(a + 16 * i)));
    mfence_lm();
    LM2GM(b, y, 1024);
}
"""
WITHOUT_FENCES = """
__global__ void k(const float *x, float *y)
{
    __shared__ float s[64];
    __simd__ float a[16];
    GM2LM_ASYNC(x, a, 64);
    a[0] += 1;
    vstore_lm_float32x16(a, svadd_float32x16(1.0f, vload_lm_float32x16(a)));
    s[core_id()] = a[0];
    sync_cluster();
    a[1] = s[(core_id() + 1) % 64];
    LM2GM_ASYNC(a, y + 16 * core_id(), 64);
}
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


@pytest.mark.full
def test_a_fence_of_the_source_is_a_fence(tmp_path: Path) -> None:
    status, printed = run(tmp_path, FENCE_OF_THE_SOURCE, "int32[64]:y.npy")
    assert status == 0 and "findings: none" in printed, printed


@pytest.mark.full
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


@pytest.mark.full
def test_a_lock_takes_its_part_of_shared_memory(tmp_path: Path) -> None:
    status, printed = run(tmp_path, ALL_SHARED_MEMORY.replace("LOCK", ""), "int32[64]:y.npy")
    assert status == 0 and "findings: none" in printed, printed
    locked = ALL_SHARED_MEMORY.replace("LOCK", "ticket_lock_mix(); ticket_unlock_mix();")
    status, printed = run(tmp_path, locked, "int32[64]:y.npy")
    assert status == 1 and "sm-overflow" in printed, printed


@pytest.mark.quick("64")
@pytest.mark.parametrize("written", [60, 64])
def test_a_result_that_no_core_wrote_is_told(tmp_path: Path, written: int) -> None:
    status, printed = run(tmp_path, FORGOTTEN_TAIL.replace("N)", f"{written})"), "float32[64]:y.npy")
    assert status == 0, printed
    assert ("note: unwritten" in printed) == (written < 64), printed
    assert written == 64 or "16 bytes that nobody wrote, the first at offset 240 of y.npy" in printed, printed


@pytest.mark.quick("16-uninitialised-copy")
@pytest.mark.parametrize(("first", "rule"), [(16, "uninitialised-copy"), (12, "uninitialised-rounding")])
def test_garbage_is_rounding_only_if_it_is_less_than_a_copy(tmp_path: Path, first: int, rule: str) -> None:
    status, printed = run(tmp_path, GARBAGE.replace("FIRST", str(first)), "float32[16]:y.npy")
    assert (status == 1) == (first == 16) and rule in printed, printed


@pytest.mark.full
def test_an_explicit_instantiation_is_the_same_kernel(tmp_path: Path) -> None:
    assert kernels(INSTANTIATED) == [KernelName("scale", True)]
    np.save(tmp_path / "x.npy", np.arange(64, dtype=np.float32))
    status, printed = run(tmp_path, INSTANTIATED, "x.npy:y.npy", "3", kernel="scale<float>")
    assert status == 0, printed
    assert (np.load(tmp_path / "y.npy") == 3 * np.arange(64)).all()


@pytest.mark.full
def test_a_host_in_several_files(tmp_path: Path) -> None:
    text = "int helper(int);\n__global__ void k(int *y) { y[0] = 1; }\nint main(int n, char **) { return helper(n); }\n"
    status, printed = run(tmp_path, text)
    assert status == 1 and "Traceback" not in printed
    assert "no file of the program has helper(int): name the file that has it, --with FILE" in printed
    (tmp_path / "helper.cpp").write_text("int helper(int n) { return n - 1; }\n")
    status, printed = run(tmp_path, text, **{"with": "helper.cpp"})
    assert status == 0, printed


HOST = """#include <string>
#include <vector>
__global__ void k(int *y) { if (core_id() == 0) y[0] = 1; }
static XPUStream s;
static void *y;
static inline void bring(const void *from) { xpu_memcpy_async(y, from, 1600, XPU_HOST_TO_DEVICE, s); }
static inline void send()
{
    int own[400] = { 1 };
    bring(own);
}
int main()
{
    xpu_stream_create(&s);
    xpu_malloc(&y, 2000);
    {
        KEPT
        COPY
        EARLY
    }
    LATE
    return xpu_wait(s);
}
"""
# How a copy's bytes are declared, how the copy begins, and what is told if nothing waits before they end
GONE = {
    "vector": ("std::vector<int> p(400, 3);", "bring(p.data());", "free-in-flight"),
    "string": ("std::string p(1600, 'x');", "bring(p.data());", "free-in-flight"),
    "aligned": (
        "struct alignas(64) line { int x[400]; }; auto *p = new line();",
        "bring(p); delete p;",
        "free-in-flight",
    ),
    "array of a block": ("int p[400] = { 1, 2 };", "bring(p);", "host-changed-in-flight"),
    "structure of a block": ("struct all { int x[400]; }; all p = {};", "bring(&p);", "host-changed-in-flight"),
    "array of an inlined function": ("", "send();", "host-changed-in-flight"),
}


@pytest.mark.quick("string")
@pytest.mark.parametrize("name", GONE)
def test_memory_of_the_host_that_ends_under_a_copy_is_told(tmp_path: Path, name: str) -> None:
    """Destructors were those of other libraries, and blocks and inlined functions have no frame of their own."""
    kept, copy, rule = GONE[name]
    text = HOST.replace("KEPT", kept).replace("COPY", copy)
    status, printed = run(tmp_path, text.replace("EARLY", "").replace("LATE", ""), seed="0")
    assert rule in printed and status == 1, (status, printed)
    waits = copy.replace(";", "; xpu_wait(s);", 1)
    text = HOST.replace("KEPT", kept).replace("COPY", waits).replace("bring(own);", "bring(own); xpu_wait(s);")
    status, printed = run(tmp_path, text.replace("EARLY", "").replace("LATE", ""), seed="0")
    assert status == 0 and "findings: none" in printed, (status, printed)


def test_an_element_that_nobody_wrote_may_be_moved(tmp_path: Path) -> None:
    """An insertion into a list whose empty places are known by their ids."""
    np.save(tmp_path / "v.npy", ((np.arange(64) * 37) % 64).astype(np.float32))
    arguments = ("v.npy", "float32[3]:out.npy")
    status, printed = run(tmp_path, LARGEST.replace("N;", "64;"), *arguments, cores=1, seed="0")
    assert status == 0 and "note: uninitialised-move" in printed and "error" not in printed, printed
    assert np.load(tmp_path / "out.npy").tolist() == [63, 62, 61]
    status, printed = run(tmp_path, LARGEST.replace("N;", "2;"), *arguments, cores=1, seed="0")
    assert status == 1 and "uninitialised-copy" in printed, "the third was moved to its place, and nobody wrote it"


@pytest.mark.parametrize(
    ("given", "moved"),
    [
        ("z[3] = x[2]; mfence_lm(); LM2GM(z, y, 16);", True),
        ("const float v = s[1]; z[3] = v; mfence_lm(); LM2GM(z, y, 16);", True),
        ("y[0] = y[1] = y[2] = 1; y[3] = x[2];", True),
        ("z[3] = x[2]; mfence_lm(); LM2GM(z, y, 16); mfence_gm(); GM2LM(y, x, 16); LM2GM(x, y, 16);", True),
        ("z[3] = x[2]; z[3] = 2; mfence_lm(); LM2GM(z, y, 16);", False),
        ("mfence_lm(); LM2GM(z, y, 16);", False),
    ],
)
def test_an_element_at_the_end_was_moved_there_and_no_copy_rounded_up(tmp_path: Path, given: str, moved: bool) -> None:
    status, printed = run(tmp_path, ENDS_WITH.replace("GIVEN", given), "float32[4]:y.npy", cores=1, seed="0")
    assert (status == 1) == moved and ("error: uninitialised-copy" in printed) == moved, printed
    assert ("uninitialised-move" in printed) == ("x[2]" in given or "s[1]" in given), printed


@pytest.mark.quick("880-True", "896-False")
@pytest.mark.parametrize(("size", "fits"), [(768, True), (880, True), (896, False), (1024, False)])
def test_vectors_are_registers(tmp_path: Path, size: int, fits: bool) -> None:
    text = FRAME_OF_VECTORS.replace("SIZE", str(size))
    status, printed = run(tmp_path, text, "float32[256]:y.npy", cores=1, seed="0")
    assert (status == 0) == fits and ("lm-overflow" in printed) != fits, printed
    assert not fits or (np.load(tmp_path / "y.npy") == 3 * np.arange(256)).all()


@pytest.mark.full
def test_fences_may_be_the_compilers(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(16, dtype=np.float32))
    arguments = ("x.npy", "float32[1024]:y.npy")
    status, printed = run(tmp_path, WITHOUT_FENCES, *arguments, seed="0")
    assert status == 1 and {"copy-destination", "race-sm"} <= set(printed.replace(":", " ").split()), printed
    status, printed = run(tmp_path, WITHOUT_FENCES, *arguments, seed="0", **{"fix-mfence": "all"})
    assert status == 0 and "findings: none, with seed 0, with the fences of -fix-mfence=all" in printed, printed
    assert (np.load(tmp_path / "y.npy").reshape(64, 16)[:, :3] == [2, 2, 3]).all()
    status, printed = run(tmp_path, WITHOUT_FENCES, *arguments, **{"fix-mfence": "some"})
    assert status == 2 and "allowed: all, none" in printed, printed


REFUSED = {
    "a structure with a pointer to global memory": (
        "struct rows {\n    int n;\n    __global_ptr__ const float *x, *y;\n};\n"
        "__global__ void k(int *y) { y[0] = 1; }",
        "k.xpu:7: const float *x, *y: a structure must not have a pointer to global memory",
    ),
    "an aligned structure with a pointer to global memory": (
        "struct alignas(32) rows {\n    __global_ptr__ const float *x;\n};\n__global__ void k(int *y) { y[0] = 1; }",
        "k.xpu:6: const float *x: a structure must not have a pointer to global memory",
    ),
    "a pointer to a function": (
        "static float f(float x) { return x; }\n"
        "__global__ void k(int *y)\n{\n    float (*g)(float) = f;\n    y[0] = (int)g(1);\n}",
        "k.xpu:8: k: a kernel must not use pointers to functions",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_manual_excludes_is_refused(tmp_path: Path, name: str) -> None:
    text, words = REFUSED[name]
    status, printed = run(tmp_path, text, "int32[1]:y.npy")
    assert status == 2 and words in printed, printed
