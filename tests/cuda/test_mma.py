"""Test tensor cores and asynchronous copies of the emulated GPU: known matrices, and faults in a kernel of one warp."""

from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from planted import Planted

import isokern

MMA = Path(__file__).parents[2] / "plugins/cuda/src/isokern_cuda/kernels/cuda/mma.h"
KERNEL = """/* y[16, 8] = a[16, k] b[k, 8], k at most 16, lines of a and b at multiples of 16 bytes: a warp. */
/* launch
 * tensors(y, a, b)
 * gemm(groups=1, local=32)
 */
#include "simt.h"
#include "mma.h"

struct alignas(16) chunk {
    ik_u16 v[8];
};

IK_ENTRY(gemm)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(chunk, left, 32);
    IK_LOCAL_ARRAY(chunk, right, 32);
    const int lane = threadIdx.x, k = (int)p.a.shape[2];
    const int there = k - lane / 16 * 8;
    IK_COPY_ASYNC(left + lane % 16 * 2 + lane / 16, a + p.a.offset + lane % 16 * p.a.strides[1] + lane / 16 * 8, \
2 * (there < 8 ? there : 8));
    IK_COMMIT_COPIES();
    IK_COPY_ASYNC(right + lane, b + p.b.offset + (lane < k ? lane * p.b.strides[1] : 0), lane < k ? 16 : 0);
    IK_COMMIT_COPIES();
    IK_WAIT_COPIES(0);
    __syncthreads();
    unsigned rows[4], columns[4];
    IK_LOAD_MATRICES(rows, left + lane % 16 * 2 + lane / 16);
    IK_LOAD_TRANSPOSED(columns, right + lane);
    float sums[4] = {0, 0, 0, 0};
    IK_PASTE(IK_MMA_, IK_TYPE_y)(sums, rows, columns[0], columns[1]);
    IK_PASTE(IK_MMA_, IK_TYPE_y)(sums, rows, columns[2], columns[3]); /* zeros */
    for (int i = 0; i < 4; i++)
        IK_STORE(y, (lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2, sums[i]);
}
"""
SEEDS = range(4)


Fault = partial(Planted, "gemm.c", KERNEL, headers=(MMA,))
NONE = Fault("none", "IK_WAIT_COPIES(0);", "IK_WAIT_COPIES(0);")
LOAD = "IK_LOAD_MATRICES(rows, left + lane % 16 * 2 + lane / 16);"
PRODUCT = "IK_PASTE(IK_MMA_, IK_TYPE_y)(sums, rows, columns[0], columns[1]);"
COPY = "IK_COPY_ASYNC(right + lane, b + p.b.offset + (lane < k ? lane * p.b.strides[1] : 0), lane < k ? 16 : 0);"
SILENT = [
    Fault("no wait for copies", "IK_WAIT_COPIES(0);", ""),
    Fault("a wait that leaves a group", "IK_WAIT_COPIES(0);", "IK_WAIT_COPIES(1);"),
    Fault("a copy that is in no group", "IK_COMMIT_COPIES();\n    IK_WAIT_COPIES(0);", "IK_WAIT_COPIES(0);"),
    Fault("bytes beyond the matrix", "2 * (there < 8 ? there : 8)", "16"),
    Fault("parts of a fragment exchanged", "columns[0], columns[1]", "columns[1], columns[0]"),
    Fault("another fragment's parts", "columns[0], columns[1]", "columns[0], columns[2]"),
    Fault("a right matrix as a left one", "IK_LOAD_TRANSPOSED(columns", "IK_LOAD_MATRICES(columns"),
    Fault("rows of the wrong matrix", LOAD, "IK_LOAD_MATRICES(rows, left + lane % 16 + lane / 16 * 16);"),
]
STOPPED = [
    Fault(
        "a thread that takes no part and ends",
        PRODUCT,
        f"if (lane == 3) return; {PRODUCT}",
        "only 31 of 32 items of group 0 reach the barrier at {at}; the others have ended",
    ),
    Fault(
        "a thread that takes no part and goes on",
        PRODUCT,
        f"if (lane != 3) {PRODUCT}",
        r"items of group 0 wait at different barriers: item 0 at {at}, item 3 at gemm\.c:\d+",
    ),
    Fault(
        "a thread that does not load",
        LOAD,
        f"if (lane != 3) {LOAD}",
        r"items of group 0 wait at different barriers: item 0 at {at}, item 3 at gemm\.c:\d+",
    ),
    Fault(
        "a warp that is not whole", "local=32", "local=16", r"a warp of 16 threads is at gemm\.c:\d+, which takes 32"
    ),
    Fault(
        "a row of global memory", LOAD, "IK_LOAD_MATRICES(rows, a);", "named at {at} is not 16 bytes of shared memory"
    ),
    Fault(
        "a row between chunks",
        LOAD,
        "IK_LOAD_MATRICES(rows, (char *)left + 4);",
        "named at {at} is not 16 bytes of shared memory that begin at a multiple of 16",
    ),
    Fault(
        "a row beyond shared memory",
        LOAD,
        "IK_LOAD_MATRICES(rows, left + 64 + lane);",
        "named at {at} is not 16 bytes of shared memory",
    ),
    Fault(
        "a copy to global memory",
        COPY,
        "IK_COPY_ASYNC(y, b, 16);",
        "named at {at} is not 16 bytes of shared memory",
    ),
    Fault(
        "a copy that begins between chunks",
        COPY,
        "IK_COPY_ASYNC(right + lane, b + 1, 16);",
        "the copy at {at} is not one of at most 16 bytes that begin at a multiple of 16",
    ),
    Fault(
        "a copy that is too long",
        COPY,
        "IK_COPY_ASYNC(right + lane, b, 32);",
        "the copy at {at} is not one of at most 16 bytes that begin at a multiple of 16",
    ),
]


def padded(x, dtype, device):
    """Return the tensor x in rows of 16 elements, padded with NaN."""
    whole = np.full((x.shape[0], 16), np.nan, np.float32)
    whole[:, : x.shape[1]] = x
    return isokern.tensor(whole, dtype, device=device)[:, : x.shape[1]]


def product(device, a, b, dtype="F16"):
    left, right = padded(a, dtype, device), padded(b, dtype, device)
    return isokern.matmul(left, right).numpy().astype(np.float32)


A = np.random.default_rng(0).integers(-9, 10, (16, 16))
B = np.random.default_rng(1).integers(-9, 10, (16, 8))


@pytest.fixture
def is_right(opened):
    """Return a function that says for each seed whether a folder's kernel multiplies correctly with k = 13."""
    return lambda folder: [
        np.array_equal(product(opened(seed, folder), A[:, :13], B[:13]), A[:, :13] @ B[:13]) for seed in SEEDS
    ]


@pytest.mark.quick("F16-13-1", "BF16-16-0")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("k", [16, 13, 9])
@pytest.mark.parametrize("dtype", ["F16", "BF16"])
def test_known_matrices(opened, tmp_path, dtype, k, seed):
    y = product(opened(seed, NONE.plant(tmp_path)), A[:, :k], B[:k], dtype)
    exact = (A[:, :k] @ B[:k]).astype({"F16": np.float16, "BF16": ml_dtypes.bfloat16}[dtype])
    assert np.array_equal(y, exact.astype(np.float32))


def test_each_place_of_the_fragments(opened, tmp_path):
    device = opened(folder=NONE.plant(tmp_path))
    for k in range(16):
        a, b = np.zeros((16, 16)), np.zeros((16, 8))
        a[:, k], b[k] = np.arange(1, 17), np.arange(1, 9)
        assert np.array_equal(product(device, a, b), np.outer(a[:, k], b[k]))


def test_products_are_rounded_to_f32_in_their_order(opened, tmp_path):
    a, b = np.zeros((16, 16)), np.ones((16, 8))
    a[0, :3], a[1, :3] = (2.0**24, 1, -(2.0**24)), (2.0**24, -(2.0**24), 1)
    y = product(opened(folder=NONE.plant(tmp_path)), a, b, "BF16")
    assert y[0, 0] == 0 and y[1, 0] == 1


def test_the_kernel_without_a_fault_is_right(is_right, tmp_path):
    assert is_right(NONE.plant(tmp_path)) == [True] * len(SEEDS)


@pytest.mark.quick("no wait for copies", "parts of a fragment exchanged")
@pytest.mark.parametrize("fault", SILENT, ids=lambda f: f.name)
def test_a_fault_is_wrong_in_some_order(is_right, tmp_path, fault):
    assert not all(is_right(fault.plant(tmp_path)))


@pytest.mark.quick(
    "a thread that takes no part and ends",
    "a warp that is not whole",
    "a row between chunks",
    "a copy that is too long",
)
@pytest.mark.parametrize("fault", STOPPED, ids=lambda f: f.name)
def test_a_fault_is_told(opened, tmp_path, fault):
    with pytest.raises(isokern.InternalError, match=fault.expected):
        product(opened(folder=fault.plant(tmp_path)), A, B)


def test_copies_of_a_block_are_not_those_of_the_next(opened, tmp_path):
    """Copies that the first of two blocks leaves pending do not count when the second waits for its own."""
    begins = "    IK_WAIT_COPIES(0);\n    __syncthreads();"
    fault = Fault("", begins, "    if (blockIdx.x == 0) return;\n    IK_WAIT_COPIES(1);\n    __syncthreads();")
    folder = fault.plant(tmp_path)
    kernel = folder / "gemm.c"
    kernel.write_text(kernel.read_text().replace("groups=1", "groups=2"))
    assert np.isnan(product(opened(folder=folder), A, B)).all()
