"""Test faults planted in a kernel of the emulated GPU.

Each fault is reported with its line, or makes results wrong in some order of blocks and threads.
"""

import re
import shutil
from functools import partial

import numpy as np
import pytest
from planted import Planted

import isokern
from isokern.simt.source import KERNELS

KERNEL = """/* rms_norm of short dense rows without weights, to plant faults in. */
/* launch
 * refuse(when=w is not None or y.shape[1] > 64, reason="weights, or long rows")
 * rms_norm(groups=y.shape[0], local=64, length=y.shape[1])
 */
#include "simt.h"

static IK_INLINE ik_c at(const ik_c *values, int i) { return values[i]; }

IK_ENTRY(rms_norm)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_c, part, 64);
    IK_LOCAL_ARRAY(ik_c, scaled, 64);
    const int thread = threadIdx.x, length = (int)p.length;
    const ik_index here = (ik_index)blockIdx.x * length + thread;
    const ik_c v = thread < length ? x[here] : 0;
    part[thread] = v * v;
    __syncthreads(); /* squares are there */
    if (thread < 32)
        part[thread] += part[thread + 32];
    __syncthreads(); /* so are their sums by two */
    if (thread < 32) {
        ik_c sum = part[thread];
        for (int n = 16; n > 0; n /= 2)
            sum += __shfl_down_sync(0xffffffffu, sum, n, 32);
        if (thread == 0)
            part[0] = sum;
    }
    __syncthreads(); /* the sum is there */
    const ik_c sum = part[0];
    __syncthreads(); /* the sum was read */
    part[63 - thread] = v;
    __syncthreads(); /* values are there */
    scaled[63 - thread] = at(part, thread) / __fsqrt_rn(sum / length + p.attr_eps);
    __syncthreads(); /* results are there */
    if (thread < length)
        y[here] = at(scaled, thread);
}
"""
SEEDS = range(4)
X = np.random.default_rng(0).standard_normal((5, 41)).astype(np.float32)  # 820 bytes: no multiple of 8
RIGHT = X / np.sqrt(np.mean(X.astype(np.float64) ** 2, -1, keepdims=True) + 1e-6)
OTHER_BARRIER = rf"rms_norm\.c:{next(n for n, line in enumerate(KERNEL.splitlines(), 1) if 'squares' in line)}"
Fault = partial(Planted, "rms_norm.c", KERNEL)


def cases(faults):
    return pytest.mark.parametrize("fault", faults, ids=lambda f: f.name)


SILENT = [
    Fault("no barrier in the tree", "__syncthreads(); /* squares are there */", ""),
    Fault("no barrier before the sum is read", "__syncthreads(); /* the sum is there */", ""),
    Fault("no barrier before shared memory is used again", "__syncthreads(); /* the sum was read */", ""),
    Fault("no barrier before values are exchanged", "__syncthreads(); /* values are there */", ""),
    Fault("no barrier before results are exchanged", "__syncthreads(); /* results are there */", ""),
    Fault("shared memory that is not written", "part[thread] = v * v;", "if (thread < length) part[thread] = v * v;"),
    Fault("global memory that is not written", "part[thread] = v * v;", "part[thread] = v * v + 0 * y[blockIdx.x];"),
    Fault(
        "what another block wrote",
        "y[here] = at(scaled, thread);",
        "y[here] = at(scaled, thread) + (blockIdx.x ? y[here - length] : 0) * 1e-20f;",
    ),
]
STOPPED = [
    Fault(
        "threads that miss a barrier",
        "__syncthreads(); /* the sum is there */",
        "if (thread >= 3) return; __syncthreads();",
        "only 3 of 64 items of group 0 reach the barrier at {at}; the others have ended",
    ),
    Fault(
        "threads at different barriers",
        "part[thread] = v * v;",
        "part[thread] = v * v; if (thread == 7) __syncthreads();",
        f"items of group 0 wait at different barriers: item 0 at {OTHER_BARRIER}, item 7 at {{at}}",
    ),
    Fault(
        "threads that miss a shuffle for a barrier",
        "for (int n = 16; n > 0; n /= 2)",
        "for (int n = 16; n > (thread < 20 ? 0 : 1); n /= 2)",
        r"items of group 0 wait at different barriers: item 0 at rms_norm\.c:25, item 20 at rms_norm\.c:29",
    ),
    Fault(
        "threads that miss a shuffle and end",
        "sum += __shfl_down_sync(0xffffffffu, sum, n, 32);",
        "{ if (thread >= 20) return; sum += __shfl_down_sync(0xffffffffu, sum, n, 32); }",
        "only 20 of 32 items of group 0 reach the barrier at {at}; the others have ended",
    ),
    Fault(
        "a shuffle with a mask that is not the warp's",
        "sum += __shfl_down_sync(0xffffffffu, sum, n, 32);",
        "sum += __shfl_down_sync(0xffffu, sum, n, 32);",
        "the mask of the shuffle at {at} is not that of the 32 threads of the warp",
    ),
]
SANITIZED = [
    Fault(
        "a read past a tensor's end",
        "thread < length ? x[here]",
        "thread <= length ? x[here]",
        "(?s)heap-buffer-overflow.*READ of size 4.*{at}.* 0 bytes (to the right of|after) 820-byte region",
    ),
    Fault(
        "a write past a tensor's end",
        "y[here] = at(scaled, thread);",
        "y[here + 1] = at(scaled, thread);",
        "(?s)heap-buffer-overflow.*WRITE of size 4.*{at}.* 0 bytes (to the right of|after) 820-byte region",
    ),
    Fault(
        "a read before a tensor's begin",
        "thread < length ? x[here]",
        "thread < length ? x[here - 1]",
        "(?s)heap-buffer-overflow.*READ of size 4.*{at}.* 4 bytes (to the left of|before) 820-byte region",
    ),
    Fault(
        "a shared array past its end, by name",
        "part[thread] += part[thread + 32];",
        "part[thread] += part[thread + 33];",
        r"{at}:\d+: runtime error: index 64 out of bounds for type '(ik_c|float) \[64\]'",
    ),
    Fault(
        "a shared array past its end, by a pointer",
        "y[here] = at(scaled, thread);",
        "y[here] = at(scaled, thread + 24);",
        r"rms_norm\.c:8:\d+: runtime error: load of address \w+ with insufficient space",
    ),
    Fault(
        "a shared array before its begin, by a pointer",
        "scaled[63 - thread] = at(part, thread)",
        "scaled[63 - thread] = at(part, thread - 1)",
        "(?s)global-buffer-overflow.*READ of size 4.*{at}.* (to the left of|before) global variable 'part'",
    ),
    Fault(
        "a dim that no tensor has",
        "part[thread] = v * v;",
        "part[thread] = v * v + p.x.shape[8 + thread];",
        r"{at}:\d+: runtime error: index 8 out of bounds for type '(ik_index|int) \[8\]'",
    ),
    Fault(
        "a sum of integers that overflows",
        "part[thread] = v * v;",
        "part[thread] = v * v + (ik_c)(2147483647 + thread) * 0;",
        r"{at}:\d+: runtime error: signed integer overflow: (2147483647 \+ 1|1 \+ 2147483647)",
    ),
    Fault(
        "a shift by 32",
        "part[thread] = v * v;",
        "part[thread] = v * v + (1u << thread) * 0;",
        r"{at}:\d+: runtime error: shift exponent 32 is too large for 32-bit type",
    ),
    Fault(
        "a division by zero",
        "part[thread] = v * v;",
        "part[thread] = v * v + length / (length - 41) * 0;",
        r"{at}:\d+: runtime error: division by zero",
    ),
    Fault(
        "a pointer that is not aligned",
        "part[thread] = v * v;",
        "part[thread] = v * v + (*(const unsigned long long *)(x + here) == 1);",
        r"{at}:\d+: runtime error: load of misaligned address",
    ),
]
NONE = Fault("none", "part[thread] = v * v;", "part[thread] = v * v;")


def rms_norm(device):
    return isokern.rms_norm(isokern.tensor(X, device=device), eps=1e-6).numpy()


def is_right(y):
    return np.allclose(y, RIGHT, rtol=1e-5, atol=1e-6)


@pytest.fixture
def verdicts(opened):
    """Return a function that says for each seed whether the kernel of a folder is right."""
    return lambda folder: [is_right(rms_norm(opened(seed, folder))) for seed in SEEDS]


def test_the_kernel_without_a_fault_is_right(verdicts, tmp_path):
    assert verdicts(NONE.plant(tmp_path)) == [True] * len(SEEDS)


@pytest.mark.quick("no barrier in the tree", "global memory that is not written", "what another block wrote")
@cases(SILENT)
def test_a_fault_is_wrong_in_some_order(verdicts, tmp_path, fault):
    assert not all(verdicts(fault.plant(tmp_path)))


@pytest.mark.quick(
    "threads that miss a barrier",
    "threads at different barriers",
    "a shuffle with a mask that is not the warp's",
)
@cases(STOPPED)
def test_a_fault_is_told(opened, tmp_path, fault):
    device = opened(folder=fault.plant(tmp_path))
    with pytest.raises(isokern.InternalError, match=fault.expected):
        rms_norm(device)
    one = isokern.tensor([1.0], device=device)
    assert isokern.add(one, one).numpy() == [2.0]  # the next launch runs


@pytest.mark.quick("1-threads that miss a shuffle for a barrier")
@cases(STOPPED)
@pytest.mark.parametrize("seed", [1, 2])
def test_a_fault_is_told_in_any_order(opened, tmp_path, fault, seed):
    with pytest.raises(isokern.InternalError, match=r"rms_norm\.c:\d+"):
        rms_norm(opened(seed, fault.plant(tmp_path)))


GROUP = (KERNELS / "group.h").read_text(encoding="utf-8")
BARRIERS = [m.start() for m in re.finditer(r"IK_BARRIER\(\);", GROUP)]
ACCESSES = ("= scratch[id + left]", "scratch[id] = value")  # between two of those barriers
ROWS = np.random.default_rng(0).standard_normal((4, 1500)).astype(np.float32)


def softmax_by_blocks(opened, monkeypatch, folder, threads, group):
    """Return for each seed whether softmax is right, with that text for group.h and so many threads to a block."""
    folder.mkdir()
    for path in (*KERNELS.glob("*.h"), KERNELS / "softmax.c"):
        shutil.copy(path, folder)
    (folder / "group.h").write_text(group, encoding="utf-8")
    monkeypatch.setenv("ISOKERN_CUDA_SIM_THREADS", str(threads))
    e = np.exp(ROWS - ROWS.max(1, keepdims=True))
    right = e / e.sum(1, keepdims=True)
    results = [isokern.softmax(isokern.tensor(ROWS, device=opened(seed, folder))).numpy() for seed in (0, 1)]
    return [np.allclose(y, right, rtol=1e-4, atol=1e-7) for y in results]


def test_checks_tell_a_barrier_that_is_left_out_at_its_line(opened, monkeypatch, tmp_path):
    monkeypatch.setenv("ISOKERN_CUDA_SIM_CHECK", "1")
    assert softmax_by_blocks(opened, monkeypatch, tmp_path / "right", 256, GROUP) == [True, True]
    place = BARRIERS[5]  # between the steps of the maximum, which softmax only subtracts: the result is right
    without = GROUP[:place] + GROUP[place + len("IK_BARRIER();") :]
    line = GROUP.count("\n", 0, place) + 1
    load, store = (next(n for n in range(line, line + 9) if f"{x};" in GROUP.splitlines()[n - 1]) for x in ACCESSES)
    told = rf"race-shared in softmax.*\n +\S*group\.h:({load}|{store}): block"
    with pytest.raises(isokern.InternalError, match=told):
        softmax_by_blocks(opened, monkeypatch, tmp_path / "without", 256, without)


def test_blocks_of_256_show_a_barrier_that_blocks_of_64_do_not_need(opened, monkeypatch, tmp_path):
    """A tree over two warps has one step, in which no barrier between steps can be missed."""
    assert softmax_by_blocks(opened, monkeypatch, tmp_path / "right", 256, GROUP) == [True, True]
    place = BARRIERS[1]  # between the steps of the sum
    without = GROUP[:place] + GROUP[place + len("IK_BARRIER();") :]
    assert softmax_by_blocks(opened, monkeypatch, tmp_path / "few", 64, without) == [True, True]
    assert softmax_by_blocks(opened, monkeypatch, tmp_path / "many", 256, without) == [False, False]


def test_a_kernel_that_does_not_compile_names_its_line(opened, tmp_path):
    fault = Fault("", "part[thread] = v * v;", "part[thread] = v * w;", r"{at}:\d+: error: .w. was not declared")
    with pytest.raises(isokern.InternalError, match=fault.expected):
        rms_norm(opened(folder=fault.plant(tmp_path)))


def test_a_variant_that_fails_its_self_test_is_disabled(opened, tmp_path):
    device = opened(folder=STOPPED[1].plant(tmp_path), selftest=1)
    with pytest.warns(RuntimeWarning, match=r"variant planted of rms_norm is disabled for F32: .* different barriers"):
        assert is_right(rms_norm(device))


IN_A_PROCESS = """
import sys
from pathlib import Path
import numpy as np
import isokern
from isokern.simt import Folder
device = isokern.device("cuda_sim:0")
device.folders = (Folder("planted", 10, Path(sys.argv[1])), *device.folders)
X = np.random.default_rng(0).standard_normal((5, 41)).astype(np.float32)
y = isokern.rms_norm(isokern.tensor(X, device=device), eps=1e-6).numpy()
print(np.abs(y - X / np.sqrt(np.mean(X.astype(np.float64) ** 2, -1, keepdims=True) + 1e-6)).max() < 1e-5)
"""


@pytest.fixture
def sanitised(run, sanitizer):
    """Return a function that runs a folder's kernels in a sanitised process and returns (status, output)."""

    def start(folder, seed=0):
        settings = {"ISOKERN_CUDA_SIM_SEED": str(seed), "ISOKERN_SIMT_SELFTEST": "0"}
        return run(IN_A_PROCESS, folder, **sanitizer, **settings)

    return start


@pytest.mark.quick("1")
@pytest.mark.parametrize("seed", [0, 1])
def test_sanitizers_have_nothing_to_say_of_the_kernel(sanitised, tmp_path, seed):
    assert sanitised(NONE.plant(tmp_path), seed) == (0, "True\n")


@pytest.mark.quick(
    "a write past a tensor's end",
    "a shared array past its end, by name",
    "a shared array before its begin, by a pointer",
    "a shift by 32",
)
@cases(SANITIZED)
def test_sanitizers_tell_a_fault(sanitised, tmp_path, fault):
    status, text = sanitised(fault.plant(tmp_path))
    assert status != 0
    assert re.search(fault.expected, text), text


AFTER_ONE_THAT_STOPPED = """
import isokern
X = np.ones((5, 41), np.float32)
def attempt():
    try:
        isokern.rms_norm(isokern.tensor(X, device=device), eps=1e-6)
    except isokern.InternalError as error:
        print("different barriers" in str(error))
attempt()
attempt()
device.folders = device.folders[1:]
print(isokern.softmax(isokern.tensor(X, device=device)).numpy().sum())
"""


def test_sanitizers_forget_the_stacks_of_a_launch_that_stopped(run, sanitizer, tmp_path):
    code = IN_A_PROCESS[: IN_A_PROCESS.index("X =")] + AFTER_ONE_THAT_STOPPED
    status, text = run(code, STOPPED[1].plant(tmp_path), **sanitizer, ISOKERN_SIMT_SELFTEST="0")
    assert (status, text) == (0, "True\nTrue\n5.0\n")


DEVICES = "from isokern.cli.devices import rows; print([r['reason'] for r in rows() if r['backend'] == 'cuda_sim'])"


@pytest.mark.quick(
    "SEED-often-ISOKERN_CUDA_SIM_SEED=often; allowed: an integer from 0",
    "SANITIZE-1-ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(g++ -print-file-name=libasan.so)",
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++, which is told first")
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SEED", "often", "ISOKERN_CUDA_SIM_SEED=often; allowed: an integer from 0"),
        ("THREADS", "100", "ISOKERN_CUDA_SIM_THREADS=100; allowed: 32, 64, 128, 256, 512, 1024"),
        ("CHECK", "yes", "ISOKERN_CUDA_SIM_CHECK=yes; allowed: 0 or 1"),
        ("SANITIZE", "yes", "ISOKERN_CUDA_SIM_SANITIZE=yes; allowed: 0 or 1"),
        ("SANITIZE", "1", "ASAN_OPTIONS=detect_leaks=0 LD_PRELOAD=$(g++ -print-file-name=libasan.so)"),
    ],
)
def test_a_setting_that_cannot_be_is_told(run, name, value, said):
    status, text = run(DEVICES, **{f"ISOKERN_CUDA_SIM_{name}": value})
    assert status == 0 and said in text, text


def test_without_a_compiler_the_reason_is_told(run):
    status, text = run(DEVICES, PATH="")
    assert status == 0 and "install g++ 11 or newer" in text, text
