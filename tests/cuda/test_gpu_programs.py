"""Test `isokern-gpu` with ordinary `.cu` files: programs with a host, and kernels beside a host that is left out."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from isokern_cuda.cli import app
from isokern_cuda.emulator.assembly import translate
from isokern_cuda.emulator.rewriting import Source, rewrite

HERE = Path(__file__).parent / "gpu" / "programs"
SAXPY = Path(__file__).parents[2] / "examples" / "cuda" / "saxpy.cu"
PROGRAMS = [SAXPY, *(HERE / f"{name}.cu" for name in ("launches", "groups", "intrinsics", "matrices", "products"))]
FINDING = re.compile(r"isokern-gpu: (?:error|note): (\S+)[^\n]*\n    (?:\S+?:(\d+): )?")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def gpu(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def found(done: Result, text: str) -> list[tuple[str, str]]:
    """Return the rules that were found, each with its line of the source."""
    lines = text.splitlines()
    return [(rule, lines[int(number) - 1] if number else "") for rule, number in FINDING.findall(done.stderr)]


@needs_compiler
@pytest.mark.parametrize(
    "program", [pytest.param(p, id=p.stem, marks=[] if p == SAXPY else pytest.mark.full) for p in PROGRAMS]
)
@pytest.mark.parametrize("mode", ["run", pytest.param("check", marks=pytest.mark.full)])
def test_a_correct_program_is_right_and_breaks_no_rule(mode: str, program: Path) -> None:
    done = gpu(mode, str(program))
    assert done.exit_code == 0, done.output
    assert ": error: " not in done.stderr
    assert "warning" not in done.stderr
    assert "wrong" not in done.stdout or "0 are wrong" in done.stdout
    assert done.stdout.count("\n") == 1  # also of a check with three seeds


# A change of saxpy.cu, the rule that tells it, and a piece of the line where it is told
FAULTS = [
    ("no barrier", "    __syncthreads(); // the part is complete\n", "", "race-shared", "part["),
    ("beyond the array", "if (i < n)\n        y[i] = a", "if (i <= n)\n        y[i] = a", "global-bounds", "a * x[i]"),
    ("never written", "CHECK(cudaMemcpyAsync(d_x, x.data(), n * sizeof(float), cudaMemcpyHostToDevice, stream));", ";",
     "uninitialised", "a * x[i]"),
    ("too long a copy", "d_x, x.data(), n *", "d_x, x.data(), 2 * n *", "host-call", "2 * n"),
    ("the wrong way", "n * sizeof(float), cudaMemcpyDeviceToHost", "n * sizeof(float), cudaMemcpyHostToDevice",
     "host-call", "y.data()"),
    ("half of the results", "(n + block.x - 1) / block.x", "n / block.x / 2", "unwritten", "cudaMemcpyDeviceToHost"),
    ("freed twice", "cudaFree(d_y)", "cudaFree(d_x)", "host-call", "cudaFree(d_x)"),
    ("the host reads", "CHECK(cudaGetLastError());", "x[0] = d_y[0];", "host-access", "d_y[0]"),
    ("a large block", "<<<grid, block, 0, stream>>>", "<<<grid, 2 * 1024, 0, stream>>>", "host-call", "2 * 1024"),
    ("a pointer of the host", "(d_y, 2.0f, d_x, n)", "(d_y, 2.0f, x.data(), n)", "wild-pointer", "a * x[i]"),
]  # fmt: skip


@needs_compiler
@pytest.mark.parametrize(
    ("old", "new", "rule", "line"),
    [pytest.param(*f[1:], id=f[0], marks=[] if f[0] == "no barrier" else pytest.mark.full) for f in FAULTS],
)
def test_a_fault_of_a_program_is_told_at_its_line(old: str, new: str, rule: str, line: str) -> None:
    text = SAXPY.read_text(encoding="utf-8")
    assert text.count(old) == 1
    text = text.replace(old, new)
    Path("saxpy.cu").write_text(text, encoding="utf-8")
    done = gpu("check", "saxpy.cu", "--seeds", "1", "--", "300")
    told = found(done, text)
    assert any(r == rule and line in where for r, where in told), done.output
    assert done.exit_code == 1


@needs_compiler
@pytest.mark.full
def test_a_copy_that_is_not_waited_for_is_told() -> None:
    text = (HERE / "matrices.cu").read_text(encoding="utf-8")
    wait = next(line for line in text.splitlines() if "the copies are there" in line)
    text = text.replace(wait, "")
    Path("matrices.cu").write_text(text, encoding="utf-8")
    done = gpu("check", "matrices.cu", "--seeds", "1")
    assert done.exit_code == 1
    assert any(rule == "uninitialised" and "LDMATRIX_X4(ra" in where for rule, where in found(done, text)), done.output


@needs_compiler
def test_kernels_beside_a_host_whose_headers_are_missing_can_be_launched() -> None:
    text = """\
#include <torch/extension.h>
#define KERNEL __global__ void
static inline __device__ float twice(float x) { return 2 * x; }
constexpr int two() { return 2; }
KERNEL scale(float *y, int n)
{
    if (int(threadIdx.x) < n)
        y[threadIdx.x] = twice(y[threadIdx.x]) + two();
}
torch::Tensor declared(torch::Tensor y);
torch::Tensor scaled(torch::Tensor y)
{
    scale<<<1, 32>>>(y.data_ptr<float>(), int(y.numel()));
    return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled", &scaled); }
"""
    Path("binding.cu").write_text(text, encoding="utf-8")
    np.save("y.npy", np.arange(8, dtype=np.float32))
    np.save("expected.npy", 2 * np.arange(8, dtype=np.float32) + 2)
    done = gpu("check", "binding.cu", "--block", "32", "y.npy", "8", "--expect", "y=expected.npy")
    assert done.exit_code == 0, done.output
    assert "left out, and the functions of the host: torch/extension.h" in done.stderr
    done = gpu("check", "binding.cu", "--block", "32", "y.npy", "9")
    assert found(done, text) == [("global-bounds", "        y[threadIdx.x] = twice(y[threadIdx.x]) + two();")]


@needs_compiler
def test_a_programs_status_and_arguments_are_its_own() -> None:
    Path("p.cu").write_text("#include <stdlib.h>\nint main(int n, char **given) { return atoi(given[n - 1]); }\n")
    for status in (0, 2, 7):
        assert gpu("run", "p.cu", str(status)).exit_code == status


LAUNCHES = [
    ("k<<<1, 2>>>(x);", '"k"', "k(cuda_a0)"),
    ("if (a > 3) k<<<g, b, 0, s>>>();", '"k"', "{ k(); }"),
    ("n::k<float, (3 > 2)><<<dim3(1, 2), b>>>(x, f<1, 2>(y));", '"n::k<float, (3 > 2)>"', "(cuda_a0, cuda_a1); }"),
    ("return table[i]<<<1, 2>>>(0, nullptr, {1, 2});", '"table[i]"', "table[i](0, nullptr, {1, 2}); }"),
    ("(*pointer)<<<1, 2>>>(a->b(1, 2));", '"(*pointer)"', "(*pointer)(cuda_a0); }"),
    ("kernel<<<1, 2>>>(std::forward<A>(a)...);", '"kernel"', "kernel(cuda_a0...); }"),
    ("::k<x<y<int>>><<<1, n >> 2>>>(p);", '"::k<x<y<int>>>"', "(cuda_a0); }"),
]


@pytest.mark.parametrize(("text", "name", "call"), LAUNCHES, ids=[launch[0] for launch in LAUNCHES])
def test_a_launch_becomes_a_call(text: str, name: str, call: str) -> None:
    made = rewrite(Source(f'# 1 "k.cu"\nvoid f() {{ {text} }}\n'), check=False, program=True)
    assert "<<<" not in made
    assert f"::cuda_emulator::launch({name}," in made
    assert call in made
    assert made.count("\n") == 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("k<<<1, 2;", "k.cu:1: <<< is not part"),
        ("x = <<<1>>>(2);", "k.cu:1: <<<"),
        ("k<<<1, 2>>>;", "k.cu:1: <<<"),
        ("static thread_local int x;", "k.cu:1: thread_local: the emulator keeps shared memory"),
    ],
)
def test_what_cannot_be_rewritten_is_refused_at_its_line(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        rewrite(Source(f'# 1 "k.cu"\nvoid f() {{ {text} }}\n'), check=False, program=True)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ('"" ::: "memory"', "do {} while (0)"),
        ('"mov.u32 %0, %%laneid;" : "=r"(x)', "mov_u32((x), ::cuda_emulator::ptx::special_laneid());"),
        ('"add.s32 %0, %1, 0x10;" : "=r"(a[i]) : "r"(n::b)', "add_s32((a[i]), (n::b), 0x10);"),
        ('"{.reg .pred p; @!p bar.sync 0;}" ::', "bool ptx_p = {}; if (!ptx_p) ::cuda_emulator::ptx::bar_sync(0);"),
        (
            '"ld.global.f32 %0, [%1 + 8];" : "=f"(x) : "l"(p)',
            "ld_global_f32((x), ::cuda_emulator::ptx::address((p), 8));",
        ),
        ('"cp.async.commit_group;"', "cp_async_commit_group();"),
    ],
)
def test_inline_ptx_becomes_calls(text: str, made: str) -> None:
    assert made in translate(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"mov.u32 %1, 3;" : "=r"(x)', "has 1 operands"),
        ('".reg .f16x2 t;"', ".f16x2"),
        ('"mov.u32 %0, a.b;" : "=r"(x)', "a.b"),
    ],
)
def test_ptx_that_is_not_emulated_is_told(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        translate(text)
