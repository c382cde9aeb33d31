"""Test the AMX kernels on a machine without AMX: compiled with amx.h, which emulates the instructions in plain C.

The conformance suite judges the results.
"""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from isokern.build import variant_table
from isokern.cabi.generate import generate

HERE = Path(__file__).parent
CPU = HERE.parents[1] / "plugins" / "cpu"
CC = os.environ.get("CC", "cc")
FEATURE = "amx_bf16"
LEVELS = f"""
#define ik_level_missing level_missing
#include "{CPU / "src/isokern_cpu/native/levels.c"}"
#undef ik_level_missing
const char *ik_level_missing(const char *level);
const char *ik_level_missing(const char *level) {{ \
return strcmp(level, "{FEATURE}") == 0 ? NULL : level_missing(level); }}
"""


@pytest.fixture(scope="module")
def setup():
    """Return the names of plugins/cpu/kernel_build.py; skip the test where the machine cannot run the result."""
    native = import_module("isokern_cpu._native")
    if native.lib.ik_level_missing(b"x86_v4") != native.ffi.NULL:
        pytest.skip("packing for AMX is AVX-512's, which this machine lacks")
    names = runpy.run_path(str(CPU / "kernel_build.py"))
    return {**names, "built": names["sources"]()}


@pytest.fixture(scope="module")
def build(setup, tmp_path_factory):
    """Return a function that builds the plug-in with emulated AMX and returns the folder to import it from.

    Headers in the folders of `changed` take precedence over those of the kernels.
    """
    common = tmp_path_factory.mktemp("amx")
    generate(common / "generated")
    kernels = {level: (CPU / path, flags) for level, _, path, flags in setup["built"] if path.stem == "gemm"}
    rows = [r for r in setup["built"] if r[2].stem == "gemm" and r[0] in ("x86_v4", FEATURE)]
    (common / "levels.c").write_text(LEVELS)
    before = Path.cwd()
    os.chdir(CPU)
    try:
        (common / "variants.c").write_text(variant_table(row[:3] for row in rows))
    finally:
        os.chdir(before)

    def compiled(source: Path, target: Path, *flags: str) -> str:
        folders = [CPU / setup["KERNELS"], CPU / setup["NATIVE"], common / "generated"]
        included = [f"-I{f}" for f in folders]
        subprocess.run(
            [CC, *setup["FLAGS"], "-fPIC", *flags, *included, "-c", str(source), "-o", str(target)], check=True
        )
        return str(target)

    native = [p for p in sorted((CPU / setup["NATIVE"]).glob("*.c")) if p.name != "levels.c"]
    generated = common / "generated"
    native += [*generated.glob("isokern_*.c"), generated / "host_device.c", common / "levels.c", common / "variants.c"]
    shared = [compiled(p, common / f"{p.stem}.o") for p in native]
    source, flags = kernels["x86_v4"]
    shared.append(compiled(source, common / "x86_v4.o", *flags, "-O1", "-DIK_LEVEL=x86_v4"))

    def build(folder: Path, *changed: str) -> Path:
        shutil.copytree(Path(find_spec("isokern_cpu").origin).parent, folder / "isokern_cpu")
        source, flags = kernels[FEATURE]
        flags = [*changed, *flags, "-include", str(HERE / "amx.h"), f"-DIK_LEVEL={FEATURE}"]
        kernel = compiled(source, folder / "gemm.o", *flags)
        library = folder / "isokern_cpu" / "libisokern_cpu.so"
        library.unlink()
        link = ["-shared", "-pthread", f"-Wl,-soname,{library.name}", "-o", str(library)]
        subprocess.run([CC, *shared, kernel, *link, "-lm"], check=True)
        return folder

    return build


def judged(folder: Path) -> dict:
    """Return what amx_cases.py prints for the plug-in in `folder`."""
    path = os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": path, "ISOKERN_NUM_THREADS": "3"}
    environment.pop("ISOKERN_CPU_LEVEL", None)
    done = subprocess.run(
        [sys.executable, str(HERE / "amx_cases.py")], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_results_are_those_of_the_instructions_as_the_manual_has_them(build, tmp_path):
    report = judged(build(tmp_path))
    assert report["wrong"] == []
    assert report["held"] == 0  # configurations that no thread released
    assert report["verdicts"]["derived"]["pass"] >= 10
    assert all(report["verdicts"][name]["pass"] >= 40 for name in ("drawn", "no numbers", "tiny"))


def changed(folder: Path, file: str, old: str, new: str) -> None:
    """Write a copy of a header or kernel with a fault."""
    text = (CPU / "src/isokern_cpu/kernels" / file).read_text()
    assert old in text
    (folder / Path(file).name).write_text(text.replace(old, new))


FAULTS = {
    "pairs in the wrong order": ("interleave(low, low + step", "interleave(low + step, low"),
    "a number beside the last of an odd k": ("interleave(low, zeros, n, to)", "interleave(low, low, n, to)"),
    "subnormal numbers left to the tiles": ("MIN_PRODUCT = -126 + 14", "MIN_PRODUCT = -3000"),
}


@pytest.mark.full
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_seen(build, tmp_path, fault):
    changed(tmp_path, "gemm_pairs.h", *FAULTS[fault])
    wrong = judged(build(tmp_path, f"-I{tmp_path}"))["wrong"]
    assert [line for line in wrong if "fail-value" in line]
