"""Test `isokern-gpu`: correct kernels are right and silent, each mutant is told by the right rule at its line."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from gpu_kernels import SCENES, Mutant, Scene
from typer.testing import CliRunner, Result

from isokern_cuda.cli import app

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
FINDING = re.compile(r"isokern-gpu: (?:error|note): (\S+) in [^\n]*\n    (?:(\S+?):(\d+): )?")
TOLERANCE = ["--rtol", "1e-3", "--atol", "1e-4"]
MUTANTS = [(scene, mutant) for scene in SCENES for mutant in scene.mutants]
QUICK = {
    ("transpose", "no padding"),
    ("reduction", "no barrier"),
    ("gemm", "misaligned"),
    ("scan", "one element early"),
}
QUICK |= {("prefix", "ballot in a branch"), ("last_block", "no fence"), ("gemm", "no zeros")}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gpu(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def lines_of(done: Result, name: str, text: str) -> list[tuple[str, str]]:
    """Return the rules that were found, each with the line of the source where."""
    source = text.splitlines()
    return [
        (rule, source[int(line) - 1] if path.endswith(f"{name}.cu") else path)
        for rule, path, line in FINDING.findall(done.stderr)
    ]


@pytest.mark.quick("reduction", "histogram")
@pytest.mark.parametrize("scene", SCENES, ids=lambda s: s.file)
def test_a_correct_kernel_is_right_and_silent(scene: Scene) -> None:
    np.save("expected.npy", scene.make(np.random.default_rng(0)))
    done = gpu("check", *scene.command(scene.text), *TOLERANCE)
    assert done.exit_code == 0, done.output
    assert "findings: none" in done.stdout
    assert f"{scene.result}: as expected" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("scene", "mutant"),
    [
        pytest.param(s, m, id=f"{s.file}-{m.name}", marks=[] if (s.file, m.name) in QUICK else [pytest.mark.full])
        for s, m in MUTANTS
    ],
)
def test_a_mutant_is_told_at_its_line_under_every_seed(scene: Scene, mutant: Mutant) -> None:
    assert mutant.old in scene.text
    text = scene.text.replace(mutant.old, mutant.new, 1) if mutant.old else scene.text
    np.save("expected.npy", scene.make(np.random.default_rng(0)))
    for seed in ("0", "1", "5"):
        done = gpu("check", *scene.command(text, mutant.options), *TOLERANCE, "--seed", seed, "--seeds", "1")
        found = lines_of(done, scene.file, text)
        assert any(rule == mutant.rule and mutant.line in line for rule, line in found), done.output
        if mutant.rule not in ("bank-conflict", "barrier-exited", "uncoalesced", "unwritten"):
            assert done.exit_code == 1


@pytest.mark.parametrize("mode", ["run", "check"])
def test_the_language_is_cudas(mode: str) -> None:
    shutil.copy(Path(__file__).parent / "gpu" / "language.cu", ".")
    arrays = ["float32[64,4]", "int32[8]", "uint32[8]", "float32[8]", "int64[8]"]
    done = gpu(mode, "language.cu", "--block", "64", *arrays, "1", "0.5", "-2.5")
    assert done.exit_code == 0, done.output
    assert "all of it, 64 threads\n" in done.stdout
    assert "uninit" not in done.stderr


FAULTS = """\
#include <stdio.h>
__device__ int deep(int n) { volatile char a[2000]; a[n % 9] = n; return n == 0 ? 0 : deep(n - 1) + a[n % 9]; }
__global__ void null_pointer(float *x) { x[threadIdx.x] = 1; }
__global__ void recursion(int *x) { x[0] = deep(1000000); }
__global__ void divide(int *x) { x[threadIdx.x] = 7 / (x[0] - 3); }
__global__ void wild(int *x) { ((int *)0x123456789000)[threadIdx.x] = 3; }
__global__ void far(int *x) { x[-2147483647 - 1 + threadIdx.x] = 3; }
__global__ void behind_shared(int *x) { __shared__ int s[9]; int *p = s; p[threadIdx.x + 8] = 1; x[0] = s[8]; }
__global__ void behind_all(int *x) { extern __shared__ int s[]; s[threadIdx.x + 10000000] = 1; }
__global__ void local_array(int *x) { int a[4]; for (int i = 0; i < x[0]; i++) a[i] = i; x[1] = a[3]; }
__global__ void local_value(int *x) { int a; if (x[0] > 3) a = 1; x[1] = a; }
__global__ void local_index(int *x) { int a[4] = {}; for (int i = 0; i <= x[0]; i++) a[i + 1] = i; x[1] = a[3]; }
__global__ void others_local(int *x) { __shared__ int *p; int a[2] = { 1 };
    if (threadIdx.x == 0) p = a; __syncthreads(); x[0] = *p; __syncthreads(); }
__global__ void unaligned(char *x) { *(double *)(x + 4) = 1.0; }
__global__ void condition(int *x) { assert(x[0] == 0); }
__global__ void trap(int *x) { __trap(); }
__global__ void overwritten(int *x) { x[0] = threadIdx.x; }
__global__ void two_barriers(int *x) { if (threadIdx.x < 32) __syncthreads();
    else
        __syncthreads(); }
__global__ void other_warp(int *x) { __shared__ int s[64]; s[threadIdx.x] = 1; __syncwarp();
    x[0] = s[threadIdx.x ^ 32]; }
__global__ void shuffle(int *x) { __shared__ int s[64]; s[threadIdx.x] = 1; __shfl_sync(~0u, 0, 0);
    x[0] = s[threadIdx.x ^ 1]; }
__global__ void lock(int *x) { for (bool done = false; !done;) if (atomicCAS(x, 3, 1) == 3) {
    x[1] += 1; atomicExch(x, 3); done = true; } }
__global__ void forever(int *x) { while (x[0] != 9) x[1]++; }
__global__ void later_block(volatile int *x) { if (blockIdx.x == 0) while (x[0] != 9) {} else x[0] = 9; }
"""
TOLD = {
    "null_pointer": "wild-pointer", "recursion": "crash", "divide": "division-by-zero", "wild": "wild-pointer",
    "far": "global-bounds", "behind_shared": "shared-bounds", "behind_all": "shared-bounds",
    "local_array": "uninitialised", "local_value": "uninitialised", "local_index": "array-bounds",
    "others_local": "local-private", "unaligned": "misaligned", "condition": "trap", "trap": "trap",
    "overwritten": "race-global", "two_barriers": "barrier-divergent", "other_warp": "race-shared",
    "shuffle": "race-shared", "lock": "race-global", "forever": "endless", "later_block": "endless",
}  # fmt: skip
# What hardware notices ends a launch without checks, too
NOTICED = ["null_pointer", "recursion", "divide", "wild", "far", "condition", "trap", "forever"]


def fault(mode: str, name: str) -> Result:
    """Run a kernel of FAULTS on one array that begins with a 3."""
    Path("faults.cu").write_text(FAULTS, encoding="utf-8")
    np.save("x.npy", np.full(16, 3, np.int8 if name == "unaligned" else np.int32))
    array = "null" if name == "null_pointer" else "x.npy"
    sizes = ["--grid", "2", "--block", "64", "--shared", "64", "--time-limit", "2"]
    return gpu(mode, "faults.cu", "--kernel", name, *sizes, array)


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[] if n in ("behind_all", "local_value") else pytest.mark.full) for n in TOLD],
)
def test_a_fault_is_told_and_never_ends_the_command(name: str) -> None:
    done = fault("check", name)
    assert done.exit_code == 1, done.output
    assert TOLD[name] in [rule for rule, _ in lines_of(done, "faults", FAULTS)], done.output
    begin = FAULTS[: FAULTS.index("deep(" if name == "recursion" else f" {name}(")].count("\n")
    lines = {int(line) for _, _, line in FINDING.findall(done.stderr) if line}
    assert lines & {begin + 1, begin + 2}, done.output


@pytest.mark.parametrize(
    "name", [n if n in ("recursion", "far") else pytest.param(n, marks=pytest.mark.full) for n in NOTICED]
)
def test_what_hardware_notices_is_told_without_checks(name: str) -> None:
    done = fault("run", name)
    assert done.exit_code == 1, done.output
    ((rule, _),) = lines_of(done, "faults", FAULTS)
    assert rule == TOLD[name]


def test_a_lock_with_fences_and_a_flag_between_warps_are_right() -> None:
    text = """\
__global__ void lock(int *l, int *x) {
    for (bool done = false; !done;)
        if (atomicCAS(l, 0, 1) == 0) {
            __threadfence();
            x[0] += 1;
            __threadfence();
            atomicExch(l, 0);
            done = true;
        }
    volatile int *flag = l + 1;
    if (threadIdx.x == 0)
        while (*flag == 0) {}
    else if (threadIdx.x == 40)
        *flag = 1;
}
"""
    Path("lock.cu").write_text(text, encoding="utf-8")
    np.save("expected.npy", np.array([192], np.int32))
    arguments = ["zeros:int32[2]", "zeros:int32[1]", "--expect", "x=expected.npy"]
    done = gpu("check", "lock.cu", "--grid", "3", "--block", "64", *arguments)
    assert done.exit_code == 0, done.output
    assert "findings: none" in done.stdout


def test_a_reduction_leaves_out_lanes_that_are_not_there() -> None:
    text = """\
__global__ void reduce(int *sum, int *most) {
    if (threadIdx.x >= 8)
        return;
    *sum = __reduce_add_sync(~0u, (int)threadIdx.x + 1);
    *most = __reduce_max_sync(~0u, (int)threadIdx.x - 20);
}
"""
    Path("reduce.cu").write_text(text, encoding="utf-8")
    np.save("sum.npy", np.array([36]))
    np.save("most.npy", np.array([-13]))
    arrays = ["int32[1]", "int32[1]", "--expect", "sum=sum.npy", "--expect", "most=most.npy"]
    for threads in ("16", "64"):
        done = gpu("check", "reduce.cu", "--block", threads, *arrays)
        assert done.exit_code == 0, done.output
        assert "findings: none" in done.stdout


def test_a_thread_gets_on_behind_activemask_while_others_wait_for_it() -> None:
    text = """\
__global__ void wait(volatile int *flag, unsigned *lanes) {
    if (threadIdx.x == 0)
        while (*flag == 0) {}
    else if (threadIdx.x >= 60) {
        *lanes = __activemask();
        *flag = 1;
    }
}
"""
    Path("wait.cu").write_text(text, encoding="utf-8")
    np.save("lanes.npy", np.array([0xF0000000]))
    arrays = ["zeros:int32[1]", "uint32[1]", "--expect", "lanes=lanes.npy"]
    done = gpu("check", "wait.cu", "--block", "64", "--time-limit", "20", *arrays)
    assert done.exit_code == 0, done.output
    assert "findings: none" in done.stdout


AXPY = """\
__global__ void axpy(int n, float a, const float *x, float *y)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        y[i] += a * x[i];
}
"""


@pytest.fixture
def axpy(folder: Path) -> Path:
    (folder / "axpy.cu").write_text(AXPY)
    np.save("x.npy", np.arange(100, dtype=np.float32))
    np.save("y.npy", np.ones(100, np.float32))
    np.save("double.npy", np.ones(100))
    np.save("other.npy", np.ones(100, np.float32))
    np.save("words.npy", np.array(["one"] * 100))
    np.save("row.npy", np.ones((1, 100), np.float32))
    return folder


def test_a_kernel_runs_on_arrays(axpy: Path) -> None:
    done = gpu("run", "axpy.cu", "100", "-2.0", "y=y.npy:out.npy", "x=x.npy", "--expect", "y=other.npy")
    assert done.exit_code == 1, done.output  # it is not the other array
    assert "axpy<<<(1,1,1), (256,1,1)>>>: 1 block of 256 threads" in done.stdout
    assert "out.npy: float32[100]" in done.stdout
    assert "y: 99 of 100 elements differ, first at [1]: -1.0 instead of 1.0" in done.stderr
    assert np.array_equal(np.load("out.npy"), 1 - 2 * np.arange(100, dtype=np.float32))
    done = gpu("check", "axpy.cu", "100", "1", "x.npy", "x")  # one array for two parameters
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["100", "2", "x.npy"], "y is missing"),
        (["100", "2", "x.npy", "y.npy", "3"], "argument 5 is too much"),
        (["100", "2", "x.npy", "z=y.npy"], "the kernel's n, a, x, y"),
        (["100", "2", "x.npy", "x=y.npy"], "given twice"),
        (["x.npy", "2", "x.npy", "y.npy"], "argument 1, x.npy; allowed: a whole number that int32 holds"),
        (["2.5", "2", "x.npy", "y.npy"], "argument 1, 2.5; allowed: a whole number"),
        (["5000000000", "2", "x.npy", "y.npy"], "argument 1, 5000000000; allowed: a whole number"),
        (["1", "x.npy", "x.npy", "y.npy"], "argument 2, x.npy; allowed: a number"),
        (["1", "2", "3", "y.npy"], "argument 3, 3; allowed: an array, or null"),
        (["1", "2", "double.npy", "y.npy"], "points to float32: convert the array"),
        (["1", "2", "gone.npy", "y.npy"], "gone.npy"),
        (["1", "2", "x.npy", "float33[4]"], "float33"),
        (["1", "2", "x.npy", "y.npy:nowhere/out.npy"], "in a folder that exists"),
        (["1", "2", "x.npy", "y.npy", "--block", "32,64"], "at most 1024 threads"),
        (["1", "2", "x.npy", "y.npy", "--block", "0"], "one to three sizes"),
        (["1", "2", "x.npy", "y.npy", "--grid", "1,2,3,4"], "one to three sizes"),
        (["1", "2", "x.npy", "y.npy", "--shared", "300000"], "at most 232448"),
        (["1", "2", "x.npy", "y.npy", "--kernel", "gone"], "--kernel gone; allowed: axpy"),
        (["1", "2", "x.npy", "y.npy", "--kernel", "a;b"], "allowed: a name"),
        (["1", "2", "x.npy", "y.npy", "--expect", "n=y.npy"], "with an array of x, y"),
        (["1", "2", "x.npy", "y.npy", "--expect", "y=words.npy"], "its elements are no numbers"),
        (["1", "2", "x.npy", "y.npy", "--expect", "y=axpy.cu"], "it is no .npy file of one array"),
        (["1", "2", "x.npy", "y.npy", "--expect", "y=row.npy"], "allowed: an array of the shape (100,)"),
        (["1", "2", "x.npy", "y.npy", "-I", "gone"], "-I gone: the folder does not exist"),
        (["1", "2", "x.npy", "y.npy", "-D", "1=2"], "-D 1=2; allowed: NAME or NAME=VALUE"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_told(axpy: Path, arguments: list[str], said: str) -> None:
    done = gpu("run", "axpy.cu", *arguments)
    assert done.exit_code == 2, done.output
    assert said in done.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("__global__ void k(int *x)\n{\n    x = y;\n}\n", "k.cu:3:9: error: ‘y’ was not declared"),
        ("__global__ void k(int *x) {}\nvoid host() { k<<<1, 1>>>; }\n", "k.cu:2: <<< is not part of a launch"),
        ('__global__ void k(int *x)\n{\n    asm("wgmma.fence;");\n}\n', "k.cu:3:"),
        ("__global__ void k(int *x) { extern __shared__ int a[4]; }\n", "k.cu:1: `extern __shared__` declares one"),
        ("int k;\n", "k.cu has no kernel"),
        ("__global__ void k(int *x) {}\n__global__ void l(int *x) {}\n", "k.cu has 2 kernels: k, l; add --kernel"),
        ("struct S { int a; };\n__global__ void k(S s) {}\n", "the kernel's parameter is a structure"),
    ],
)  # fmt: skip
def test_a_wrong_source_is_told(text: str, said: str) -> None:
    Path("k.cu").write_text(text, encoding="utf-8")
    done = gpu("check", "k.cu", "3")
    assert done.exit_code == 2, done.output
    assert said in done.stderr


def test_a_grid_that_is_too_large_to_shuffle_begins_in_order(folder: Path) -> None:
    Path("fill.cu").write_text("__global__ void fill(int *y) { *y = 1; }\n")
    grid = ["--grid", "2147483647,65535", "--block", "1", "--seed", "1", "--time-limit", "1"]
    done = gpu("run", "fill.cu", *grid, "int32[1]")
    assert done.exit_code == 1
    assert "endless in fill" in done.stderr


def test_integers_are_compared_exactly_and_no_number_is_rounded_to_an_integer(axpy: Path) -> None:
    np.save("wanted.npy", np.full(100, 1, np.int32))  # y is 1.5
    done = gpu("run", "axpy.cu", "100", "0.5", "other.npy", "y=y.npy", "--expect", "y=wanted.npy")
    assert "y: 100 of 100 elements differ, first at [0]: 1.5 instead of 1" in done.stderr
    Path("fill.cu").write_text("__global__ void fill(int *y) { *y = 1000001; }\n")
    np.save("wanted.npy", np.array([1000000]))
    done = gpu("run", "fill.cu", "--block", "1", "int32[1]", "--expect", "y=wanted.npy")
    assert "y: 1 of 1 elements differ, first at [0]: 1000001 instead of 1000000" in done.stderr


def test_without_a_compiler_the_error_says_what_to_install(axpy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    done = gpu("check", "axpy.cu", "100", "2", "x.npy", "y.npy")
    assert done.exit_code == 2
    assert "there is no C++ compiler; install g++" in done.stderr


def test_findings_are_written_as_json(axpy: Path) -> None:
    done = gpu("check", "axpy.cu", "101", "2", "x.npy", "y.npy", "--report", "found.jsonl")
    assert done.exit_code == 1
    (found,) = [json.loads(line) for line in Path("found.jsonl").read_text(encoding="utf-8").splitlines()]
    assert found["rule"] == "global-bounds"
    assert found["place"]["where"].endswith("axpy.cu:5")
    assert (found["place"]["block"], found["place"]["thread"]) == (0, 100)


def arrays_of_forms() -> dict[str, np.ndarray]:
    random = np.random.default_rng(1)
    return {
        "f": random.standard_normal(4096).astype(np.float32),
        "i": random.integers(-50, 50, 256).astype(np.int32),
        "b": random.integers(0, 255, 200).astype(np.uint8),
        "h": random.standard_normal(512).astype(np.float16),
        "p": random.integers(0, 9, 30).astype(np.int32),
        "row": np.array([0, 2, 3, 5, 9], np.int32),
        "col": np.array([0, 1, 2, 3, 0, 1, 2, 3, 1], np.int32),
    }


# Kernel, options, arguments, and which array must be what: its name, and a function of the arrays above
FORMS = [
    ("conv", "--grid 4", "f.npy float32[1000] 1000", "y",
     lambda a: np.convolve(a["f"][:1000], [0.1, 0.2, 0.4, 0.2, 0.1], "same")),
    ("bitonic", "", "i.npy", "x", lambda a: np.sort(a["i"])),
    ("aggregated", "", "i.npy zeros:int32[1] 256", "count", lambda a: np.array([(a["i"] > 0).sum()])),
    ("locals", "--block 64", "f.npy float32[64] 7", "", None),
    ("doubled", "--block 64", "f.npy float32[64] 5", "y", lambda a: a["f"][:320].reshape(5, 64).sum(0)[::-1]),
    ("structs", "--block 32", "p.npy int32[30] 10", "", None),
    ("bytes", "--shared 200 --block 96", "b.npy uint8[200] 200", "y", lambda a: a["b"][::-1]),
    ("warp_scan", "", "i.npy int32[256]", "y", lambda a: a["i"].cumsum()),
    ("halves", "", "h.npy float16[512] 256", "y", lambda a: (a["h"].astype(np.float32) ** 2 + 1).astype(np.float16)),
    ("warp_private", "--block 32,4", "f.npy float32[4]", "y", lambda a: a["f"][:128].reshape(4, 32).sum(1)),
    ("early_exit", "--grid 2", "float32[300] 300", "y", lambda a: np.arange(300, dtype=np.float32)),
    ("spmv", "--block 32", "row.npy col.npy f.npy f.npy float32[4] 4", "y",
     lambda a: np.add.reduceat(a["f"][:9] * a["f"][a["col"]], a["row"][:4])),
    ("max_cas", "", "f.npy zeros:int32[1] 256", "m", lambda a: a["f"][:256].max().reshape(1).view(np.int32)),
]  # fmt: skip


@pytest.mark.parametrize(
    "form", [pytest.param(f, id=f[0], marks=[] if f[0] == "locals" else pytest.mark.full) for f in FORMS]
)
def test_a_correct_kernel_of_another_form_breaks_no_rule(form: tuple) -> None:
    name, options, arguments, result, right = form
    shutil.copy(Path(__file__).parent / "gpu" / "forms.cu", ".")
    given = arrays_of_forms()
    for file, array in given.items():
        np.save(f"{file}.npy", array)
    command = ["forms.cu", "--kernel", name, *options.split(), *arguments.split()]
    if result:
        np.save("expected.npy", right(given))
        command += ["--expect", f"{result}=expected.npy", *TOLERANCE]
    done = gpu("check", *command)
    assert done.exit_code == 0, done.output
    assert ": error: " not in done.stderr
    assert "warning" not in done.stderr
