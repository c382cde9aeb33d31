"""Follow docs/native_backend.md: run its commands and its examples, and build the package in other ways.

That is done outside the checkout, in an environment that has the wheel of core and nothing of the checkout.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from page import ROOT, block, run

PAGE = (ROOT / "docs" / "native_backend.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.S | re.M)
PIP = "PIP_FIND_LINKS=wheels .venv/bin/pip"

pytestmark = [
    pytest.mark.full,  # makes an environment, builds packages, and judges a whole device
    pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler"),
]


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> tuple[Path, str]:
    """Run the page's commands next to a copy of core; return the folder, without core, and what they print."""
    folder = tmp_path_factory.mktemp("native_backend")
    shutil.copytree(ROOT / "core", folder / "core", ignore=shutil.ignore_patterns("build", "*.egg-info", "__pycache__"))
    run(f"{sys.executable} -m venv .venv", folder)
    printed = run(block("sh", PAGE), folder)
    shutil.rmtree(folder / "core")
    return folder, printed


def fail(command: str, folder: Path) -> str:
    """Return what a shell command prints, which must fail."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ISOKERN_", "VIRTUAL_ENV"))}
    done = subprocess.run(["bash", "-c", command], cwd=folder, env=inherited, capture_output=True, text=True)
    assert done.returncode != 0, done.stdout
    return done.stdout + done.stderr


def test_the_device_is_found_and_passes(judged):
    printed = judged[1]
    assert "mine:0" in printed
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (\w+)", printed.splitlines()[-1])}
    assert counts.keys() == {"pass", "unsupported", "lowered"}
    assert counts["pass"] > 20000
    assert counts["lowered"] > 2000


@pytest.mark.parametrize("example", EXAMPLES)
def test_an_example_prints_what_the_page_says(judged, example):
    (said,) = re.findall(rf"{re.escape(example)}```\n\nIt prints `(.*?)`", PAGE, re.S)
    (judged[0] / "example.py").write_text(example, encoding="utf-8")
    assert run(".venv/bin/python example.py", judged[0]) == f"{' '.join(said.split())}\n"


def test_the_packages_own_tests_pass(judged):
    tested = run(".venv/bin/pytest -q isokern-mine/tests/test_mine.py", judged[0])
    assert re.search(r"^\d passed", tested, re.M)


def test_an_sdist_builds_as_well(judged):
    run(f"{PIP} install -q build && PIP_FIND_LINKS=wheels .venv/bin/python -m build --sdist isokern-mine", judged[0])
    run(f"{PIP} wheel -q --no-deps -w from_sdist isokern-mine/dist/*.tar.gz", judged[0])
    (wheel,) = (judged[0] / "from_sdist").glob("*.whl")
    assert re.search(r"-cp310-abi3-|-cp\d+t-", wheel.name)


def test_two_plug_ins_compute_in_one_process(judged):
    run(f".venv/bin/isokern new-backend other --native && {PIP} install -q ./isokern-other", judged[0])
    script = """
import threading, numpy as np, isokern
x = np.arange(6, dtype=np.float32)
def work(device, done):
    given = isokern.tensor(x, device=device)
    for _ in range(100):
        assert (isokern.add(given, given).numpy() == 2 * x).all()
    done.append(device)
done = []
threads = [threading.Thread(target=work, args=(device, done)) for device in ("mine:0", "other:0") * 4]
for t in threads: t.start()
for t in threads: t.join()
print(len(done), isokern.create("add", [isokern.TensorDesc("F32", (6,))] * 2, device="other:0").variant)
"""
    (judged[0] / "both.py").write_text(script, encoding="utf-8")
    assert run(".venv/bin/python both.py", judged[0]) == "8 c\n"


def test_a_core_with_another_record_refuses_the_library(judged):
    """The installed core changes what topk's record has, in its declaration and in the index, as a later version."""
    (topk,) = (judged[0] / ".venv").glob("lib/python*/site-packages/isokern/ops/topk.py")
    index = topk.with_name("index.tsv")
    text, rows = topk.read_text(encoding="utf-8"), index.read_text(encoding="utf-8")
    changed = text.replace('attrs("TPK1", ', 'attrs("TPK1", integer("first", 0, "a new one"), ')
    assert changed != text
    try:
        topk.write_text(changed, encoding="utf-8")
        index.write_text(re.sub(r"^topk\t.*\n", "", rows, flags=re.M), encoding="utf-8")
        told = " ".join(run(".venv/bin/isokern devices --json", judged[0]).split())
    finally:
        topk.write_text(text, encoding="utf-8")
        index.write_text(rows, encoding="utf-8")
    assert re.search(
        r"operator topk: plug-in mine 0\.1\.0 was built with attribute record 0x\w+, this isokern [\d.]+ has 0x\w+:"
        " rebuild the plug-in",
        told,
    ), told


def test_without_a_compiler_one_sentence_says_so(judged):
    told = fail("CC=nocc PIP_FIND_LINKS=wheels .venv/bin/pip install ./isokern-mine", judged[0])
    assert told.count("no C compiler `nocc` is found: install one") == 1
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("file", "text", "wanted"),
    [
        ("sofmax.c", "IK_KERNEL(sofmax)", r"kernels/sofmax\.c: no operator has the stem 'sofmax'; allowed: softmax"),
        ("softmax.c", "IK_KERNEL(sofmax)", r"kernels/softmax\.c: IK_KERNEL\(sofmax\) in a file called softmax"),
        ("softmax.c", "int softmax__c(void)", r"kernels/softmax\.c defines no IK_KERNEL\(softmax\): a kernel begins"),
        (
            "softmax.c",
            "IK_SUPPORTED(softmax) { return softmax_of(plan); }\nIK_KERNEL(softmax)",
            r"softmax\.c:2:.*error",
        ),
        ("softmax.c", "int softmax__c(void);\nIK_KERNEL(softmax)", r"kernels/softmax\.c:3:.*note: in expansion of"),
    ],
)
def test_a_wrong_kernel_is_told_by_its_file(judged, file, text, wanted):
    kernel = judged[0] / "isokern-mine/src/isokern_mine/kernels" / file
    kernel.write_text(f'#include "isokern_native.h"\n{text}\n{{\n    IK_UNUSED;\n    return IK_SUCCESS;\n}}\n')
    try:
        run(f"{PIP} install -q 'isokern[build]'", judged[0])
        told = fail(".venv/bin/pip install --no-build-isolation --no-deps ./isokern-mine", judged[0])
    finally:
        kernel.unlink()
    assert re.search(wanted, told), told
