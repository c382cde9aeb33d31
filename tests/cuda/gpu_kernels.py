"""The kernels of gpu/*.cu, what they compute by NumPy, and mutants with the finding to which each must lead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent / "gpu"
EXAMPLES = Path(__file__).parents[2] / "examples" / "cuda"


@dataclass
class Mutant:
    """A change of a kernel's text; the rule that tells it, and a piece of the line where it is told ("": any)."""

    name: str
    old: str
    new: str
    rule: str
    line: str = ""
    options: list[str] = field(default_factory=list)  # replace those of the kernel


@dataclass
class Scene:
    """A kernel with its launch; `make` writes the arrays into the working folder and returns the expected one."""

    file: str
    options: list[str]
    arguments: list[str]
    result: str
    make: Callable[[np.random.Generator], np.ndarray]
    mutants: list[Mutant]

    def command(self, text: str, options: list[str] | None = None) -> list[str]:
        """Write the source with its header to the working folder; return the command's arguments."""
        options = options or self.options
        Path(f"{self.file}.cu").write_text(text, encoding="utf-8")
        Path("sums.cuh").write_text((HERE / "sums.cuh").read_text(encoding="utf-8"), encoding="utf-8")
        return [f"{self.file}.cu", *options, *self.arguments, "--expect", f"{self.result}=expected.npy"]

    @property
    def text(self) -> str:
        folder = EXAMPLES if self.file == "transpose" else HERE
        return (folder / f"{self.file}.cu").read_text(encoding="utf-8")


def floats(random, *shape):
    return random.standard_normal(shape).astype(np.float32)


def reduction(random):
    x = floats(random, 1000)
    np.save("x.npy", x)
    return np.pad(x, (0, 24)).reshape(4, 256).sum(1)


def transpose(random):
    x = floats(random, 70, 100)
    np.save("x.npy", x)
    return np.ascontiguousarray(x.T)


def gemm(random):
    a, b = floats(random, 40, 70), floats(random, 40, 80)
    np.save("a.npy", a)
    np.save("b.npy", b)
    return a.T @ b


def histogram(random):
    x = random.integers(0, 256, 3000).astype(np.uint8)
    np.save("x.npy", x)
    return np.bincount(x, minlength=256).astype(np.uint32)


def scan(random):
    x = random.integers(-9, 9, (3, 200)).astype(np.int32)
    np.save("x.npy", x)
    return x.cumsum(1).astype(np.int32)


def stencil(random):
    x = floats(random, 6, 9, 40)
    np.save("x.npy", x)
    p = np.pad(x, 1, mode="edge")
    mid = slice(1, -1)
    around = [p[mid, mid, :-2], p[mid, mid, 2:], p[mid, :-2, mid], p[mid, 2:, mid], p[:-2, mid, mid], p[2:, mid, mid]]
    return (sum(around) / 6).astype(np.float32)


def softmax(random):
    x = floats(random, 7, 100).astype(np.float16)
    np.save("x.npy", x)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True)).astype(np.float16)


def layer_norm(random):
    x, gain = floats(random, 2, 5000), floats(random, 5000)
    np.save("x.npy", x)
    np.save("g.npy", gain)
    return ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * gain).astype(np.float32)


def last_block(random):
    x = random.integers(-9, 9, 600).astype(np.float32)
    np.save("x.npy", x)
    return x.sum().reshape(1)


def prefix(random):
    x = random.integers(0, 100, 500).astype(np.int32)
    np.save("x.npy", x)
    return np.array([np.count_nonzero(x > 50)], np.int32)


SCENES = [
    Scene(
        "reduction",
        ["--grid", "4"],
        ["x.npy", "float32[4]", "1000"],
        "y",
        reduction,
        [
            Mutant("no barrier", "__syncthreads();", "", "race-shared", "sums[threadIdx.x"),
            Mutant("tail", "i < n ?", "i <= n ?", "global-bounds", "warp_sum(i"),
            Mutant("too many warps", "threadIdx.x < 8 ?", "threadIdx.x < 9 ?", "array-bounds", "const float total"),
            Mutant("one warp too few", "threadIdx.x / 32] = v", "threadIdx.x / 64] = v", "race-shared", "] = v"),
            Mutant("lanes missing", "if (threadIdx.x < 32) {", "if (threadIdx.x < 8) {", "lane-read", "__shfl_down"),
            Mutant("half a warp", "threadIdx.x < 32) {", "threadIdx.x < 16) {", "lane-read", "__shfl_down"),
            Mutant("mask", "0xffffffffu, v", "0x0000ffffu, v", "lane-outside-mask", "__shfl_down"),
            Mutant("width", "v, step);", "v, step, 24);", "shuffle-width", "__shfl_down"),
            Mutant("small array", "sums[8]", "sums[7]", "array-bounds", "] = v"),
            Mutant("unwritten", "threadIdx.x % 32 == 0", "threadIdx.x % 64 == 0", "uninitialised", "const float total"),
        ],
    ),
    Scene(
        "transpose",
        ["--kernel", "transpose<float>", "--grid", "4,3", "--block", "32,8"],
        ["x.npy", "float32[100,70]", "70", "cols=100"],
        "y",
        transpose,
        [
            Mutant("no barrier", "__syncthreads();", "", "race-shared", "tile["),
            Mutant("no padding", "TILE + 1", "TILE", "bank-conflict", "= tile["),
            Mutant("stride", "(c + j) * rows + r", "(c + j) * cols + r", "global-bounds", "y["),
            Mutant("tail", "r + j < rows", "r + j <= rows", "global-bounds", "= x["),
            Mutant("uncoalesced", "y[(c + j) * rows + r]", "y[r * cols + c + j]", "uncoalesced", "y["),
            Mutant("overrun", "tile[j][threadIdx.x]", "(&tile[j][0])[threadIdx.x + 33]", "shared-bounds", "+ 33"),
            Mutant("divergent", "__syncthreads();", "if (c < cols) __syncthreads();", "barrier-exited", "__syncthr"),
            Mutant("one block too few", "", "", "unwritten", options=["--kernel", "transpose<float>", "--grid", "3,3",
                                                                      "--block", "32,8"]),
        ],
    ),
    Scene(
        "gemm",
        ["--grid", "2,2", "--block", "16,16", "--shared", "8448"],
        ["a.npy", "b.npy", "float32[70,80]", "70", "80", "40"],
        "c",
        gemm,
        [
            Mutant("no first barrier", "  __syncthreads();\n        for (int d", "  for (int d", "race-shared"),
            Mutant("no last barrier", "        __syncthreads();\n    }", "    }", "race-shared", "left[d"),
            Mutant("no zeros", "sums[i][j] = 0;", ";", "uninitialised", "fmaf"),
            Mutant("shared too small", "", "", "shared-bounds", "right[d",
                   ["--grid", "2,2", "--block", "16,16", "--shared", "8400"]),
            Mutant("misaligned", "+ threadIdx.y * OWN);\n", "+ threadIdx.y);\n", "misaligned", "const float4 l"),
            Mutant("misaligned result", "c + r * n + first)", "c + r * n + first + 1)", "misaligned", "make_float4"),
            Mutant("tail", "r < m && first < n", "r <= m && first < n", "global-bounds", "make_float4"),
            Mutant("depth", "k0 + d < k ? b", "k0 + d <= k ? b", "global-bounds", "right[d"),
            Mutant("too many sums", "int i = 0; i < OWN; i++) {", "int i = 0; i <= OWN; i++) {", "array-bounds"),
        ],
    ),
    Scene(
        "histogram",
        ["--grid", "2", "--block", "96"],
        ["x.npy", "zeros:uint32[256]", "3000"],
        "counts",
        histogram,
        [
            Mutant("no first barrier", "own[i] = 0;\n    __syncthreads();", "own[i] = 0;", "race-shared", "own["),
            Mutant("no last barrier", "1);\n    __syncthreads();", "1);", "race-shared", "own["),
            Mutant("no atomic", "atomicAdd(&own[x[i]], 1)", "own[x[i]] += 1", "race-shared", "own[x[i]]"),
            Mutant("no atomic between blocks", "atomicAdd(&counts[i], own[i])", "counts[i] += own[i]", "race-global"),
            Mutant("not all zeros", "i < 256; i += blockDim.x)\n        own", "i < 255; i += blockDim.x)\n        own",
                   "uninitialised", "own["),
            Mutant("tail", "i < n;", "i <= n;", "global-bounds", "x[i]"),
        ],
    ),
    Scene(
        "scan",
        ["--grid", "3", "--block", "256", "--shared", "2048"],
        ["x.npy", "int32[3,200]", "200"],
        "y",
        scan,
        [
            Mutant("no first barrier", "0;\n    __syncthreads();", "0;", "race-shared"),
            Mutant("no barrier in the loop", "from = to;\n        __syncthreads();", "from = to;", "race-shared"),
            Mutant("one buffer", "size - from", "from", "race-shared", "buffers[to + i]"),
            Mutant("one element early", "i >= step ?", "i >= step - 1 ?", "shared-bounds", "buffers[from + i - step]"),
            Mutant("barrier in a branch", "        __syncthreads();", "        if (i >= step) __syncthreads();",
                   "barrier-exited", "__syncthreads"),
            Mutant("endless", "step *= 2", "step *= 1", "endless", options=["--grid", "3", "--block", "256",
                                                                          "--shared", "2048", "--time-limit", "2"]),
        ],
    ),
    Scene(
        "stencil",
        ["--grid", "2,3,2", "--block", "32,4,4"],
        ["x.npy", "float32[6,9,40]", "40", "9", "6"],
        "out",
        stencil,
        [
            Mutant("no barrier", "__syncthreads();", "", "race-shared", "cells["),
            Mutant("early return", "const int x =",
                   "if (blockIdx.z * 4 + threadIdx.z >= nz) return;\n    const int x =",
                   "barrier-exited", "__syncthreads"),
            Mutant("no clamp", "min(max(int(blockIdx.z) * 4 + k - 1, 0), nz - 1)", "int(blockIdx.z) * 4 + k - 1",
                   "global-bounds", "cells[k][j][i] ="),
            Mutant("rim", "threadIdx.x + 1, j", "threadIdx.x + 2, j", "array-bounds", "out["),
            Mutant("rows of 32", "j < 6; j += 4", "j < 5; j += 4", "uninitialised", "out["),
        ],
    ),
    Scene(
        "softmax",
        ["--grid", "2", "--block", "32,4"],
        ["x.npy", "float16[7,100]", "7", "100"],
        "y",
        softmax,
        [
            Mutant("tail", "row >= rows", "row > rows", "global-bounds", "in[i]"),
            Mutant("misaligned", "x + row * length)", "x + row * length + 1)", "misaligned", "in[i]"),
            Mutant("lanes leave", "float sum =", "if (lane >= 24) return;\n    float sum =", "lane-read", "sum, step"),
        ],
    ),
    Scene(
        "layer_norm",
        ["--grid", "2", "--block", "1024"],
        ["x.npy", "g.npy", "float32[2,5000]", "1250", "1e-5"],
        "y",
        layer_norm,
        [
            Mutant("no first barrier", "own;\n    __syncthreads();", "own;", "race-shared", "partial["),
            Mutant("no last barrier", "    }\n    __syncthreads();", "    }", "race-shared"),
            Mutant("tail", "i < quads; i += blockDim.x) {\n        const float4 v = __ldg",
                   "i <= quads + 1250; i += blockDim.x) {\n        const float4 v = __ldg", "global-bounds", "__ldg"),
        ],
    ),
    Scene(
        "last_block",
        ["--grid", "5", "--block", "128"],
        ["x.npy", "float32[5]", "float32[1]", "600"],
        "total",
        last_block,
        [
            Mutant("no fence", "__threadfence();", "", "race-global", "partial[b"),
            Mutant("no barrier in the tree", "step];\n        __syncthreads();", "step];", "race-shared", "own["),
            Mutant("no barrier for last", "  __syncthreads();\n    if (!last", "  if (!last", "race-shared"),
        ],
    ),
    Scene(
        "prefix",
        ["--grid", "4", "--block", "128"],
        ["x.npy", "int32[500]", "zeros:int32[1]", "500", "50"],
        "count",
        prefix,
        [
            Mutant("no last barrier", "    __syncthreads();\n    if (v", "    if (v", "race-shared", "begins["),
            Mutant("no atomic", "atomicAdd(count, all)", "(*count += all) - all", "race-global", "count"),
            Mutant("ballot in a branch", "const unsigned those = __ballot_sync(0xffffffffu, v > limit);",
                   "unsigned those = 0;\n    if (lane < 20) those = __ballot_sync(0xffffffffu, v > limit);",
                   "lane-missing", "__ballot_sync"),
        ],
    ),
]  # fmt: skip
