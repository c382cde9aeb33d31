"""Test the pages of docs: their examples run and print what they show, and what the architecture names exists."""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from page import check_console, commands, shows

ROOT = Path(__file__).parents[2]
CORE = ROOT / "core/src/isokern"
ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
PICTURES = re.findall(r"^```mermaid\n(.*?)^```$", ARCHITECTURE, re.S | re.M)
HOMES = [ROOT, CORE, *(p for p in CORE.iterdir() if p.is_dir()), ROOT / "plugins/cpu"]
HOMES += [*ROOT.glob("plugins/*/src/isokern_*"), ROOT / "plugins/cpu/src/isokern_cpu/kernels"]
PAGES = {p.name: p.read_text(encoding="utf-8") for p in sorted((ROOT / "docs").glob("*.md"))}
ELSEWHERE = {  # pages with no example to run here, and why
    "accuracy.md": "a table made from docs/accuracy.tsv",
    "adding_a_dtype.md": "tests/walk follows it",
    "adding_an_operator.md": "sections of CONTRIBUTING, which tests/walk follows",
    "bring_up.md": "tests/walk follows it",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md, which tests/walk follows",
    "cpu.md": "test_cpu_page.py builds its example",
    "getting_started.md": "README.md, whose blocks test_readme.py runs",
    "glossary.md": "a table of words",
    "matrix.md": "a table made from docs/support.json",
    "mutations.md": "written by tools/mutations.py, which test_mutations.py tests",
    "native_backend.md": "tests/walk follows it",
    "simt_kernels.md": "the rules of the portable kernels, which tests/simt checks",
    "source_documents.md": "each row has a proof that runs",
    "status.md": "written by tools/status.py",
}
# The device of a page's examples, and the module without which there is none
DEVICES = {
    "array_api.md": ("opencl:0", "sklearn"),
    "cuda.md": ("cuda_sim:0", "isokern_cuda"),
    "cuda_check.md": ("cuda_sim:0", "isokern_cuda"),
    "index.md": ("cpu:0", "isokern_kunlun_sim"),  # its last door is the emulated XPU
    "kunlun.md": ("kunlun_sim:0", "isokern_kunlun_sim"),
    "kunlun_language.md": ("kunlun_sim:0", "isokern_kunlun_sim"),
    "language_models.md": ("cpu:0", "tokenizers"),
    "onnx.md": ("cpu:0", "onnx"),
    "opencl.md": ("opencl:0", "isokern_opencl"),
    "torch.md": ("cpu:0", "torch"),
}
WARNINGS = {"torch.md": "ignore"}  # PyTorch warns of what it calls itself
EXAMPLE_FILE = re.compile(r"^<!-- generated: code \w+ (?:examples|core/src/isokern/scaffold)/", re.M)
PLACE = re.compile(r"([\w/]+\.(?:py|c)): ([\w.]+)")


def test_architecture_names_files_that_exist():
    named = set(re.findall(r"`([\w/]+(?:\.py|\.c|/))`", ARCHITECTURE))
    assert len(named) > 20
    made = {"generated/"}
    assert {n for n in named - made if not any((home / n).exists() for home in HOMES)} == set()
    rooms = {p.name if p.is_file() else f"{p.name}/" for p in CORE.iterdir()}
    unnamed = {"__init__.py", "__main__.py", "py.typed", "__pycache__/"}
    assert rooms - unnamed <= named, "rooms of core that the page does not name"


def defines(file: str, name: str) -> bool:
    """Return whether a file has a function, class or method (`Class.method`), in C an identifier at a line's start."""
    homes = (CORE, ROOT, *ROOT.glob("plugins/*/src"))
    path = next((home / file for home in homes if (home / file).is_file()), None)
    if path is None:
        return False
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".c":
        return re.search(rf"^(?:\w.*\b)?{name}\(|^\w+\({name}\)", text, re.M) is not None
    found: Any = ast.parse(text)
    for part in name.split("."):
        found = next((n for n in getattr(found, "body", []) if getattr(n, "name", None) == part), None)
    return found is not None


def test_architecture_names_what_the_files_define():
    assert [p for p in PLACE.findall(ARCHITECTURE) if not defines(*p)] == []
    assert not defines("backend/dispatch.py", "choosing")
    assert not defines("backend/dispatch.py", "choose.consider")
    assert not defines("isokern_cpu/kernels/softmax.c", "hardmax")


@pytest.mark.parametrize("picture", PICTURES, ids=range(len(PICTURES)))
def test_each_box_of_a_picture_names_its_place(picture):
    boxes = re.findall(r'\b\w+\["(.*)"\]', re.sub(r"^ *subgraph .*", "", picture, flags=re.M))
    assert len(boxes) > 4
    assert [b for b in boxes if not PLACE.search(b)] == []


def blocks(page: str, *languages: str) -> list[tuple[str, str]]:
    """Return (language, text) of a page's code blocks."""
    return re.findall(rf"^```({'|'.join(languages)})\n(.*?)^```$", PAGES[page], re.S | re.M)


@pytest.fixture
def desk(tmp_path, request):
    """Return an empty folder that has the examples; it is below the checkout for a page that proves something there."""
    folder = tmp_path
    if "--ledger" in PAGES[request.node.callspec.params["page"]]:
        folder = Path(request.config.cache.mkdir("desk"))
        shutil.rmtree(folder)
        folder.mkdir()
    (folder / "examples").symlink_to(ROOT / "examples")
    return folder


def environment_of(page: str) -> dict[str, str]:
    """Return the environment of a page's examples; skip the test where their device is not installed."""
    device, module = DEVICES.get(page, ("cpu:0", "isokern_cpu"))
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "ISOKERN_DEVICE": device}


def test_every_page_has_an_example():
    without = {p for p, text in PAGES.items() if not blocks(p, "python", "console") and not EXAMPLE_FILE.search(text)}
    assert without - set(ELSEWHERE) == set()
    assert set(ELSEWHERE) <= set(PAGES)


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python") and p not in ELSEWHERE])
def test_python_of_a_page_runs(page, desk):
    (desk / "page.py").write_text("\n".join(text for _, text in blocks(page, "python")), encoding="utf-8")
    command = [sys.executable, "-W", WARNINGS.get(page, "error"), "page.py"]
    done = subprocess.run(command, cwd=desk, env=environment_of(page), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


# Others than those of the commands isokern-gpu, isokern-xpu and `isokern check`, which have tests of their own
QUICK = ("adding_a_backend.md", "index.md", "kunlun.md", "other_names.md", "primitives.md", "settings.md")


@pytest.mark.quick(*QUICK)
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "console") and p not in {*ELSEWHERE, "debugging.md"}])
def test_commands_of_a_page_print_what_it_shows(page, desk):
    check_console([c for _, text in blocks(page, "console") for c in commands(text)], desk, environment_of(page))


def test_what_a_page_shows_is_compared():
    assert shows("a\n…\nd 1…3\n", "a\nb\nc\nd 123 \n\n")
    assert not shows("a\n…\nd 1…3\n", "a\nb\nc\nd 124\n")
    assert not shows("a\n", "a\nb\n")
    assert commands("$ x \\\n  y\n$ z\n1\n2\n") == [("x \\\n  y", ""), ("z", "1\n2\n")]


@pytest.mark.parametrize(
    ("command", "shown", "right"),
    [
        ("echo acme:0: 3 pass", "acme:0: … pass…\n", True),
        ("echo acme:0: 3 pass, 18 fail-value; (exit 1)", "acme:0: … pass…\n", False),
        ("echo acme:0: 3 pass, 18 fail-value; (exit 1)", "acme:0: … pass, … fail-value\n", True),
        ("echo acme:0: no device; (exit 2)", "acme:0: no device\n", True),
        ("echo acme:0: no device; (exit 2)", "", False),
        ("echo acme:0: 3 pass", "acme:0: 4 pass\n", False),
    ],
)
def test_a_command_that_fails_is_no_pass(command, shown, right, tmp_path):
    with contextlib.nullcontext() if right else pytest.raises(AssertionError):
        check_console([(command, shown)], tmp_path, dict(os.environ))


@pytest.mark.full  # builds the plug-in three times
def test_debugging_finds_the_planted_fault(tmp_path):
    """The page's commands print what it shows where the left side of its last block is planted, and then the right."""
    compiler = shutil.which("gcc")
    if compiler is None or "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("the page is about gcc, and a machine with x86_v3")
    kernels = tmp_path / "plugins/cpu/src/isokern_cpu/kernels"
    ignored = shutil.ignore_patterns("*.egg-info", "build", "generated", "__pycache__", "*.so", "editable.json")
    shutil.copytree(ROOT / "core", tmp_path / "core", ignore=ignored)
    shutil.copytree(ROOT / "plugins/cpu", tmp_path / "plugins/cpu", ignore=ignored)
    for kernel in kernels.glob("*.c"):  # the others would take minutes
        if kernel.stem not in ("layer_norm", "rms_norm", "softmax"):
            kernel.unlink()
    header, page = kernels / "row_reduction.h", blocks("debugging.md", "console", "diff")
    right, ((before, diff), (language, _)) = header.read_text(encoding="utf-8"), page[-2:]
    assert (before, language) == ("diff", "console")
    old, new = ("".join(row[1:] + "\n" for row in diff.splitlines() if row[0] in f" {side}") for side in "-+")
    assert right.count(new) == 1
    header.write_text(right.replace(new, old), encoding="utf-8")
    subprocess.run([sys.executable, "-m", "venv", tmp_path / "venv"], check=True)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "ISOKERN_", "VIRTUAL_ENV"))}
    path = os.pathsep.join([str(tmp_path / "venv" / "bin"), os.environ["PATH"]])
    environment = {**inherited, "PATH": path, "CC": compiler, "ISOKERN_CACHE": str(tmp_path / "cache")}
    check_console([c for _, text in page[:-2] for c in commands(text)], tmp_path, environment)
    header.write_text(right, encoding="utf-8")
    check_console(commands(page[-1][1]), tmp_path, environment)
