"""Test tools/mutations.py: which mutations it makes, that every run makes the same ones, and what it reports."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import mutations as tool
import pytest
from mutation_targets import CpuTarget

from isokern.backend import Device

ROOT = Path(__file__).resolve().parents[2]
DEVICES = ("cpu", "opencl", "cuda_sim", "kunlun_sim")
KERNEL = """/* A comment with a < b and 1 + 2 in it. */
#define PIECE 4
static void run(const job *j, int64_t n)
{
    double sum = 0; // n - 1
    for (int64_t i = 0; i < n; i++)
        sum += x[i * j->x.strides[0]] * 2.5f;
    if (n >= 8 && sum != sum)
        fail("a < b");
}
"""


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    path = tmp_path / "kernel.c"
    path.write_text(KERNEL)
    return path


def test_rules_change_code_and_nothing_else(kernel: Path) -> None:
    found = {m.id: m.text.strip() for m in tool.mutants(kernel)}
    assert found == {
        "kernel.c:5:constant": "double sum = 1; // n - 1",
        "kernel.c:5:narrow sum": "float sum = 0; // n - 1",
        "kernel.c:6:at most": "for (int64_t i = 0; i <= n; i++)",
        "kernel.c:6:constant": "for (int64_t i = 1; i < n; i++)",
        "kernel.c:6:loop begins late": "for (int64_t i = 1; i < n; i++)",
        "kernel.c:6:narrow index": "for (short i = 0; i < n; i++)",
        "kernel.c:6:loop ends early": "for (int64_t i = 0; i < (n) - 1; i++)",
        "kernel.c:7:floating constant": "sum += x[i * j->x.strides[0]] * (2.5f * 1.5f);",
        "kernel.c:7:product is a sum": "sum += x[i + j->x.strides[0]] * 2.5f;",
        "kernel.c:7:product is a sum:1": "sum += x[i * j->x.strides[0]] + 2.5f;",
        "kernel.c:7:replaced, not added": "sum = x[i * j->x.strides[0]] * 2.5f;",
        "kernel.c:7:stride is 1": "sum += x[i * 1] * 2.5f;",
        "kernel.c:8:NaN is a number": "if (n >= 8 && 0)",
        "kernel.c:8:always": "if (1)",
        "kernel.c:8:constant": "if (n >= 9 && sum != sum)",
        "kernel.c:8:equal": "if (n >= 8 && sum == sum)",
        "kernel.c:8:more": "if (n > 8 && sum != sum)",
        "kernel.c:8:never": "if (0)",
        "kernel.c:8:or for and": "if (n >= 8 || sum != sum)",
    }
    changed = tool.mutants(kernel)[0].source.splitlines()
    assert [a for a, b in zip(changed, KERNEL.splitlines(), strict=True) if a != b] == [changed[4]]


def test_a_line_is_made_one_that_no_compiler_takes(kernel: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    used, unused = (f"#define {name}(n) \\\n    (n + 1 \\\n    - 1)\n" for name in ("USED", "UNUSED"))
    kernel.write_text(f"{used}{unused}#if 0\nint a = 1;\n#endif\nint b = USED(1);\n")
    command = ["cc", "-fsyntax-only", "-x", "c", "-"]
    refused = {
        m.line: subprocess.run(command, input=m.refused_source.encode(), capture_output=True, check=False).returncode
        for m in tool.mutants(kernel)
    }
    assert refused == {2: 1, 3: 1, 5: 0, 6: 0, 8: 0, 10: 1}


def test_code_for_a_gpu_alone_makes_no_mutant() -> None:
    text = """#ifdef __CUDA_ARCH__
    gpu();
#if __CUDA_ARCH__ >= 800
    newer();
#else
    older();
#endif
    still();
#else
    host();
#endif
    both();
"""
    assert [line.strip() for _, line in tool.code_lines(text)] == ["host();", "both();"]


def test_every_rule_finds_a_place_in_the_kernels() -> None:
    files = {file for target in map(tool.kind_of, DEVICES) for file in target.files()}
    places = [m for file in files for m in tool.mutants(file)]
    assert {m.rule for m in places} == set(tool.RULES)
    assert len({m.id for m in places}) == len(places)


def test_the_same_mutants_are_picked_again_from_all_files() -> None:
    files = tool.kind_of("cpu").files()[::8]
    first, again, other = (tool.pick(files, 150, seed) for seed in (tool.SEED, tool.SEED, tool.SEED + 1))
    assert first == again != other
    assert len(first) == 150
    places = {file: tool.mutants(file) for file in files}
    assert {m.file for m in first} == {file for file, made in places.items() if made}
    rules = {m.rule for made in places.values() for m in made}
    assert {m.rule for m in tool.pick(files, 200, tool.SEED)} == rules
    assert tool.pick(files, 30, tool.SEED) == first[:30]


def test_equivalents_are_mutants_and_have_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for (name, line), why in tool.equivalents().items():
        file = ROOT / name.split(":", 1)[0]
        changes = {(mutant.key, mutant.shown): mutant.rule for mutant in tool.mutants(file)}
        assert (name, line) in changes, f"{name}: no mutant of this file reads {line!r}"
        dropped = changes[name, line] in tool.DROPPING
        assert ("/* was: " in line) == dropped, f"{name}: {line!r} may be many lines"
        assert len(why) > 20, name
    monkeypatch.setattr(tool, "EQUIVALENT", tmp_path / "listed.txt")
    tool.EQUIVALENT.write_text("kernel.c:always\n    if (1)\n")
    with pytest.raises(SystemExit, match="a sentence that says why"):
        tool.equivalents()


def test_the_report_counts_what_is_real() -> None:
    verdicts = [
        *["killed by quick cases"] * 6,
        "killed by the others",
        "survived",
        "survived",
        "same code",
        "does not compile",
    ]
    rows = [
        {"id": f"k.c:{n}:always", "verdict": v, "how": "fail-value x: y", "text": f"if (1) {n};"}
        for n, v in enumerate(verdicts)
    ]
    text = tool.report("cpu", rows, {("k.c:always", "if (1) 7;"): "It only changes how fast it is."})
    assert "| share that quick cases kill | 75.0% |" in text
    assert "| share that all cases kill | 87.5% |" in text
    assert "| It only changes how fast it is. | `k.c:7:always` `if (1) 7;` |" in text
    assert "| **survived** | `k.c:8:always` `if (1) 8;` |" in text


@pytest.mark.full
def test_a_kernel_that_calls_another_is_linked_with_it(cpu: Device, tmp_path: Path) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    target = CpuTarget(tmp_path / "cpu")
    file = target.kernels / "block_dots.h"
    assert target.stems(file) == ["matmul_id", "matmul_transposed"]  # which call functions of gemm
    source = file.read_text()
    assert target.build(file, source.replace("0.5f", "0.25f"))
    assert not target.build(file, source)
    called = target.work / "original" / "matmul_transposed.o"
    assert {o.stem for o in target._find_needed([called])} == {"gemm"}
    target.runtime = [tmp_path / "missing.o"]  # the linker's error is no verdict about a mutant
    with pytest.raises(SystemExit, match="the kernels of matmul_id, matmul_transposed do not link"):
        target.build(file, source.replace("0.5f", "0.25f"))


@pytest.mark.full
def test_a_mutant_is_built_and_judged(
    cpu: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(tool, "KEPT", tmp_path)
    monkeypatch.setattr(tool.kind_of("cpu"), "files", lambda: [tool.kind_of("cpu").kernels / "fill.c"])
    target = tool.kind_of("cpu")(tmp_path / "a:b")  # a path that cannot be part of PYTHONPATH
    with pytest.raises(SystemExit, match="not below"):
        tool.check_found(target)
    # the only mutation changes the stride of the value that fills the output
    arguments = ["--device", "cpu:0", "--count", "1000", "--only", "constant"]
    assert tool.main(arguments) == 0
    assert "1/1 killed by quick cases" in capsys.readouterr().out
    assert tool.main(arguments) == 0
    said = capsys.readouterr().out
    assert "1/1" not in said, "it is known already"
    assert "| share that quick cases kill | 100.0% |" in said


def test_the_section_of_a_device_is_written_in_place_of_an_earlier_one(tmp_path: Path) -> None:
    page = tmp_path / "mutations.md"
    page.write_text("# Mutants\n\nHow.\n")
    for device, text in (("cpu", "one"), ("opencl", "two"), ("cpu", "three"), ("opencl", "four")):
        tool.write_section(page, device, text)
    assert page.read_text() == "# Mutants\n\nHow.\n\n## cpu\n\nthree\n\n## opencl\n\nfour\n"
