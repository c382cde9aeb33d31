"""Test the template `simt`: a second prelude for the portable kernels, installed from its sources.

The conformance suite passes on it, and the faults that it promises to catch are caught.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import isokern
from isokern.backend.discovery import Register
from isokern.ops import all_operators
from isokern.simt import Folder
from isokern.simt.source import KERNELS

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "core/src/isokern/scaffold/simt"
GUIDE = (ROOT / "docs" / "simt.md").read_text(encoding="utf-8")
STEMS = sorted(p.stem for p in KERNELS.glob("*.c"))
SOME = ["concat", "matmul_id", "reduce", "scatter"]  # moves, computes products, reduces rows, and finds its elements
SEEDS = range(4)

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Install the example by pip; return the folder."""
    folder = tmp_path_factory.mktemp("simt")
    shutil.copytree(EXAMPLE, folder / "sources", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run(
        [*command, "--target", folder / "site", folder / "sources"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture
def command(installed, cache):
    """Return a function that runs `python -m isokern` with the example as the only plug-in."""

    def run(*arguments, **environment):
        path = os.pathsep.join([str(installed), *filter(None, sys.path)])
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("ISOKERN_")}
        given = {"ISOKERN_PLUGINS": "acme", "ISOKERN_CACHE": str(cache), "PYTHONPATH": path, **environment}
        return subprocess.run(
            [sys.executable, "-m", "isokern", *arguments],
            env={**inherited, **given},
            capture_output=True,
            text=True,
            check=False,
        )

    return run


@pytest.fixture
def opened(installed, cache, monkeypatch):
    """Return a function that makes a device in this process.

    It runs work-items in an order drawn from `seed`, lets the kernels of `folder` take precedence, and runs no
    self-tests by default.
    """
    monkeypatch.setenv("ISOKERN_CACHE", str(cache))
    monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", "0")  # a self-test would disable a wrong kernel
    monkeypatch.syspath_prepend(str(installed))
    # Every template is a package of this name, and another test may have imported another one
    for name in [m for m in sys.modules if m.partition(".")[0] == "isokern_acme"]:
        monkeypatch.delitem(sys.modules, name)

    def make(seed=0, folder=None, selftest=0):
        monkeypatch.setenv("ISOKERN_ACME_SEED", str(seed))
        monkeypatch.setenv("ISOKERN_SIMT_SELFTEST", str(selftest))
        register = Register("acme", "")
        importlib.import_module("isokern_acme").isokern_register_backends(register)
        (backend,) = register.backends
        assert backend.status == "available", backend.trace
        (device,) = backend.devices
        if folder is not None:
            device.folders = (Folder("planted", 10, folder), *device.folders)
        return device

    return make


KERNEL = """/* rms_norm of dense rows without weights, to plant mistakes in. */
/* launch
 * refuse(when=w is not None, reason="weights")
 * rms_norm(groups=y.shape[0], local=64, length=y.shape[1])
 */
#include "simt.h"
#include "isokern_math.h"

IK_ENTRY(rms_norm)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_c, part, IK_GROUP);
    const ik_index first = IK_GROUP_ID * p.length;
    ik_c sum = 0;
    for (ik_index i = IK_LOCAL_ID; i < p.length; i += IK_GROUP)
        sum += IK_LOAD(x, first + i) * IK_LOAD(x, first + i);
    part[IK_LOCAL_ID] = sum;
    for (int n = IK_GROUP / 2; n > 0; n /= 2) {
        IK_BARRIER();
        if (IK_LOCAL_ID < n)
            part[IK_LOCAL_ID] += part[IK_LOCAL_ID + n];
    }
    IK_BARRIER();
    sum = part[0];
    for (ik_index i = IK_LOCAL_ID; i < p.length; i += IK_GROUP)
        IK_STORE(y, first + i, IK_LOAD(x, first + i) / IK_SQRT_F32(sum / p.length + p.attr_eps));
}
"""
STEP, FINAL = (n for n, line in enumerate(KERNEL.splitlines(), 1) if "IK_BARRIER" in line)
SUM = next(n for n, line in enumerate(KERNEL.splitlines(), 1) if "sum = 0" in line)
X = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32)
RIGHT = X / np.sqrt(np.mean(X.astype(np.float64) ** 2, -1, keepdims=True) + 1e-6)


def planted(folder: Path, old: str, new: str) -> Path:
    """Write an edited copy of the kernel above to a folder, and return the folder."""
    assert KERNEL.count(old) == 1
    folder.mkdir(exist_ok=True)
    (folder / "rms_norm.c").write_text(KERNEL.replace(old, new), encoding="utf-8")
    return folder


def rms_norm(device):
    return isokern.rms_norm(isokern.tensor(X, device=device), eps=1e-6).numpy()


def is_right(y):
    return np.allclose(y, RIGHT, rtol=1e-5, atol=1e-6)


def judged(command, stems, *choice):
    """Return the number of cases that pass: of one operator per stem, and of `add` and `pow`.

    These must be all, but for those of which the backend does not claim that it has kernels.
    """
    ops = {op.stem: op.name for op in all_operators() if op.stem in stems}
    assert sorted(ops) == sorted(stems)
    names = {**ops, **({"elementwise": "add", "more": "pow"} if "elementwise" in ops else {})}.values()
    done = command(
        "check", "--device", "acme:0", "--claimed", *choice, "--json", *(w for name in names for w in ("--op", name))
    )
    report = json.loads(done.stdout)
    assert report["failures"] == []
    counts = report["summary"]["acme:0"]
    assert counts == {**dict.fromkeys(counts, 0), "pass": counts["pass"], "lowered": counts["lowered"]}
    return counts["pass"]


def test_some_stems_conform(command):
    assert judged(command, SOME, "--quick", "--case", "*/F32/*") > 10 * len(SOME)


@pytest.mark.full
def test_every_stem_conforms_in_every_dtype(command):
    assert judged(command, STEMS, "--quick") > 30 * len(STEMS)


@pytest.mark.parametrize(
    ("seed", "choice"),
    [(1, ("--case", "layer_norm/F32/*")), *(pytest.param(seed, (), marks=pytest.mark.full) for seed in (1, 2))],
    ids=["F32", "1", "2"],
)
def test_the_order_of_items_changes_no_verdict(command, seed, choice):
    check = ("check", "--device", "acme:0", "--op", "layer_norm", "--quick", *choice)
    done = command(*check, ISOKERN_ACME_SEED=str(seed))
    assert done.returncode == 0, done.stdout


def test_a_barrier_that_some_items_miss_is_told(opened, tmp_path):
    folder = planted(
        tmp_path, "    IK_BARRIER();\n    sum", "    if (IK_LOCAL_ID >= 3) return;\n    IK_BARRIER();\n    sum"
    )
    told = (
        rf"rms_norm: only 3 of 64 items of group 0 reach the barrier at rms_norm\.c:{FINAL + 1}; the others have ended"
    )
    with pytest.raises(isokern.InternalError, match=told):
        rms_norm(opened(folder=folder))


def test_items_at_different_barriers_are_told(opened, tmp_path):
    folder = planted(tmp_path, "    ik_c sum = 0;", "    ik_c sum = 0; if (IK_LOCAL_ID == 7) IK_BARRIER();")
    told = rf"different barriers: item 0 at rms_norm\.c:{STEP}, item 7 at rms_norm\.c:{SUM}"
    device = opened(folder=folder)
    with pytest.raises(isokern.InternalError, match=told):
        rms_norm(device)
    one = isokern.tensor([1.0], device=device)
    assert isokern.add(one, one).numpy() == [2.0]  # the next launch runs


def test_items_that_wait_for_each_other_are_told(opened, tmp_path):
    folder = planted(tmp_path, "    ik_c sum = 0;", "    ik_c sum = IK_LOCAL_ID < 3 ? IK_SHUFFLE_DOWN(ik_c(0), 1) : 0;")
    told = rf"different barriers: item 0 at rms_norm\.c:{SUM}, item 3 at rms_norm\.c:{STEP}"
    with pytest.raises(isokern.InternalError, match=told):
        rms_norm(opened(folder=folder))


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("IK_BARRIER();\n        if", "if"),
        ("IK_BARRIER();\n    sum", "sum"),
        ("part[IK_LOCAL_ID] = sum;", "if (sum != 0) part[IK_LOCAL_ID] = sum;"),
    ],
    ids=["no barrier in the tree", "no barrier before the sum is read", "local memory unwritten"],
)
def test_a_kernel_that_forgets_is_wrong_in_some_order(opened, tmp_path, line, instead):
    right, wrong = planted(tmp_path / "right", line, line), planted(tmp_path / "wrong", line, instead)
    assert [is_right(rms_norm(opened(seed, right))) for seed in SEEDS] == [True] * len(SEEDS)
    assert not all(is_right(rms_norm(opened(seed, wrong))) for seed in SEEDS)


def test_a_kernel_that_does_not_compile_names_its_line(opened, tmp_path):
    folder = planted(tmp_path, "ik_c sum = 0;", "ik_c sum = nought;")
    with pytest.raises(isokern.InternalError, match=rf"rms_norm\.c:{SUM}:\d+: error: .nought. was not declared"):
        rms_norm(opened(folder=folder))


def test_a_variant_that_fails_its_self_test_is_disabled(opened, tmp_path):
    folder = planted(tmp_path, "    ik_c sum = 0;", "    ik_c sum = 0; if (IK_LOCAL_ID == 7) IK_BARRIER();")
    device = opened(folder=folder, selftest=1)
    with pytest.warns(
        RuntimeWarning, match=r"variant planted of rms_norm is disabled for F32: .* wait at different barriers"
    ):
        assert is_right(rms_norm(device))
    assert is_right(rms_norm(device))


def test_a_recording_sees_new_contents(opened):
    device = opened()
    x, y = isokern.tensor(X, device=device), isokern.empty(X.shape, device=device)
    negate = isokern.create("neg", [x.desc], device=device).bind([x], y)
    with device.default_stream.capture() as recording:
        negate()
    with device.default_stream.capture() as outer:
        recording.replay()
    assert not np.array_equal(y.numpy(), -X)
    x.copy_from(2 * X)
    outer.replay()
    assert np.array_equal(y.numpy(), -2 * X)


def test_a_library_is_built_once(opened, cache, monkeypatch):
    rms_norm(opened())
    before = sorted(cache.rglob("*.so"))
    device = opened()
    monkeypatch.setattr(device.programs, "command", ["/nowhere/g++"])
    assert is_right(rms_norm(device))
    assert sorted(cache.rglob("*.so")) == before


def test_a_library_that_is_not_what_was_built_is_built_again(opened, cache):
    """The content of each library is replaced by that of another one."""
    rms_norm(opened())
    libraries = sorted((cache / "isokern" / "acme").glob("*.so"))
    contents = [library.read_bytes() for library in libraries]
    for library, content in zip(libraries, contents[1:] + contents[:1], strict=True):
        library.unlink()  # the old file is still mapped into memory
        library.write_bytes(content)
    assert is_right(rms_norm(opened()))
    healed = [library.read_bytes() == content for library, content in zip(libraries, contents, strict=True)]
    assert healed.count(True) >= 2  # the kernel's library and the one that runs it


def test_without_a_compiler_the_reason_is_told(command):
    (row,) = json.loads(command("devices", "--json", PATH="").stdout)
    assert (row["status"], "install g++ 11 or newer" in row["reason"]) == ("unavailable", True)


def test_a_seed_is_a_number(command):
    (row,) = json.loads(command("devices", "--json", ISOKERN_ACME_SEED="often").stdout)
    reason = "environment: ISOKERN_ACME_SEED=often; allowed: an integer from 0"
    assert (row["status"], row["reason"]) == ("broken", reason)


@pytest.mark.parametrize(
    "prelude",
    [
        EXAMPLE / "isokern_acme" / "prelude.h",
        ROOT / "plugins/cuda/src/isokern_cuda/prelude.h",
        ROOT / "plugins/opencl/src/isokern_opencl/prelude.h",
    ],
    ids=lambda p: p.parent.name,
)
def test_a_prelude_defines_the_words_that_the_guide_wants_of_it(prelude):
    table = re.search(r"^\| word \| is \|\n(.*?)\n\n", GUIDE, re.S | re.M)[1]
    wanted = re.findall(r"`(IK_\w+)(?:\(.*?\))?`", "\n".join(row.split("|")[1] for row in table.splitlines()))
    assert len(wanted) == 15
    defined = re.findall(r"^#define (IK_\w+)", prelude.read_text(encoding="utf-8"), re.M)
    assert set(wanted) <= set(defined)
