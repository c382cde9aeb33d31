"""Follow docs/adding_a_dtype.md word for word: make its edits in a copy of the tree, and run its commands."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import isokern

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/adding_a_dtype.md").read_text(encoding="utf-8")
EDIT = re.compile(
    r"[Ii]n `(?P<path>\S+)`,\s+below\s+the\s+line\s+that\s+begins\s+with\s+`(?P<anchor>[^`]+)`:\n\n"
    r"```\w+\n(?P<below>.*?)^```$"
    r"|for `(?P<old>[^`]+)`,\s+write\n\n```\w+\n(?P<new>.*?)\n```$",
    re.S | re.M,
)
REASON = re.search(r"^```text\n(F8E4M3: .*)\n```$", PAGE, re.M).group(1)


def copy_edited(folder: Path, names: list[str]) -> set[str]:
    """Copy these files to `folder` and make the page's edits; return the names of the edited files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    edited: list[str] = []
    for edit in EDIT.finditer(PAGE):
        edited.append(edit["path"] or edited[-1])
        file = folder / edited[-1]
        text = file.read_text(encoding="utf-8")
        if edit["old"]:
            old, new = edit["old"], edit["new"]
        else:
            (old,) = re.findall(rf"^{re.escape(edit['anchor'])}.*\n", text, re.M)
            new = old + edit["below"]
        assert text.count(old) == 1, f"{edited[-1]}: {old!r} stands there {text.count(old)} times"
        file.write_text(text.replace(old, new), encoding="utf-8")
    return set(edited)


def run(command: list[str], folder: Path, **variables: str) -> str:
    """Return the output of a command, which must succeed."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(command, cwd=folder, env=inherited | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"$ {command}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


pytest.importorskip("ml_dtypes", minversion="0.5")


@pytest.fixture(scope="module")
def listed() -> list[str]:
    done = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        pytest.skip("this tree is not under git: there is no list of its files")
    return [name for name in done.stdout.splitlines() if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def core(tmp_path_factory, listed) -> Path:
    """Return a copy of core, and of the other files that the page edits, with its edits."""
    folder = tmp_path_factory.mktemp("dtype")
    others = ("CHANGELOG.md",)
    edited = copy_edited(folder, [name for name in listed if name.startswith("core/") or name in others])
    assert len(edited) == 4
    assert "It edits four files." in PAGE
    return folder


CASES = """
from isokern.conformance.derive import operator_cases
from isokern.dtypes import ALL
from isokern.ops import all_operators
for o in all_operators():
    for types in o.signature.types.values():
        if len(o.signature.types) == 1 and types == tuple(d for d in ALL if d in types):
            print(*(case.id for case in operator_cases(o)), sep="\\n")
"""


def test_cases_of_other_types_stay_what_they_are(core):
    before, after = (
        run([sys.executable, "-c", CASES], core, PYTHONPATH=str(path / "core/src")).splitlines()
        for path in (ROOT, core)
    )
    operators = {case.partition("/")[0] for case in after}
    assert len(operators) > 80
    of_others = [case for case in after if not re.search(r"\bF8E4M3\b", case)]
    assert of_others == [case for case in before if case.partition("/")[0] in operators]
    assert len(after) - len(of_others) > 1000


TENSORS = """
import isokern, ml_dtypes, numpy as np
values = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3)
assert isokern.dtype(values.dtype) is isokern.dtype("f8e4m3")
given = isokern.from_numpy(values, device="cpu:0")
for taken in (given, isokern.from_dlpack(given)):
    assert taken.dtype is isokern.dtype("F8E4M3")
    assert taken.numpy().tobytes() == values.tobytes()
"""


def test_tensors_come_from_numpy_and_go_there(core):
    run([sys.executable, "-c", TENSORS], core, PYTHONPATH=str(core / "core/src"))


REFUSED = """
import isokern, sys
try:
    isokern.create("cast", [isokern.TensorDesc("F32", (4,))], dtypes={"T": "F8E4M3"}, device=sys.argv[1])
except isokern.NotImplementedOnDevice as error:
    print(error)
"""


@pytest.mark.parametrize("backend", ["opencl", "cuda_sim"])
def test_devices_without_its_conversions_refuse_it(core, backend):
    found = [d.name for d in isokern.devices() if d.name.startswith(f"{backend}:")]
    if not found:
        pytest.skip(f"no device of {backend}")
    assert REASON in run([sys.executable, "-c", REFUSED, found[0]], core, PYTHONPATH=str(core / "core/src"))


CONVERSIONS = """
#include <stdio.h>
#include "isokern_half.h"
int main(void)
{
    for (int h = 0; h < 256; h++) {
        const float x = ik_f8e4m3_to_f32((uint8_t)h);
        fwrite(&x, sizeof x, 1, stdout);
    }
    float x;
    while (fread(&x, sizeof x, 1, stdin) == 1)
        putchar(ik_f32_to_f8e4m3(x));
}
"""


def test_a_value_is_converted_as_ml_dtypes_does(core, tmp_path):
    compiler = shutil.which(os.environ.get("CC", "cc"))
    if compiler is None:
        pytest.skip("no C compiler")
    (tmp_path / "conversions.c").write_text(CONVERSIONS)
    include = core / "core/src/isokern/cabi/include"
    run([compiler, "-std=c11", f"-I{include}", "conversions.c", "-o", "conversions"], tmp_path)
    every = np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e4m3)
    finite = np.unique(every[np.isfinite(every.astype(np.float32))].astype(np.float32))
    steps = np.concatenate([finite, (finite[1:] + finite[:-1]) / 2, [248, -248, np.inf, -np.inf, np.nan]])
    steps = steps.astype(np.float32)
    given = np.concatenate([steps, np.nextafter(steps, np.float32(2)), np.nextafter(steps, np.float32(-2))])
    done = subprocess.run([tmp_path / "conversions"], input=given.tobytes(), capture_output=True, check=True)
    wide, narrow = done.stdout[:1024], done.stdout[1024:]
    np.testing.assert_array_equal(np.frombuffer(wide, np.float32), every.astype(np.float32))
    np.testing.assert_array_equal(np.frombuffer(narrow, np.uint8), given.astype(every.dtype).view(np.uint8))


@pytest.mark.full  # builds the CPU plug-in
def test_the_cpu_computes_with_it(tmp_path, listed):
    copy_edited(tmp_path, listed)
    run([sys.executable, "-m", "venv", ".venv"], tmp_path)
    install, why, *checks = re.search(r"^```sh\n(.*?)^```$", PAGE, re.S | re.M).group(1).splitlines()
    run(["bash", "-euc", install], tmp_path, ISOKERN_CPU_CFLAGS="-O0")  # to compile takes the time
    assert "no variant takes this call" not in run(["bash", "-euc", why], tmp_path)
    for check, cases in zip(checks, (800, 100), strict=True):
        judged = run(["bash", "-euc", check], tmp_path).splitlines()[-1]  # exit status 0: none failed
        assert int(re.search(r"(\d+) pass", judged).group(1)) > cases
        assert "fail" not in judged
