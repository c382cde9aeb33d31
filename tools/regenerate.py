"""Make or check the files that are committed and derived: `python tools/regenerate.py [--check] [NAME …]`.

Some are computed from the tree in seconds: without a name, all of these are made, but for the budgets of sizes. Others
are measurements, which take minutes to hours, and are made only when they are named. With `--check` nothing is written:
a computed file is compared with what it would be, a measurement with the operators, devices and files of the tree, and
without a name all are checked.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.append(str(ROOT / "docs"))

import measured  # noqa: E402
import operator_files  # noqa: E402
import phrases  # noqa: E402
import sizes  # noqa: E402
import statements  # noqa: E402


class NotMade(Exception):
    """A file cannot be made; the message says why."""


@dataclass(frozen=True)
class Computed:
    """A file that is computed from the tree.

    `find_faults` takes the committed text and the computed one. `is_decision`: the file is made only when it is named.
    `refuse` takes the same, and returns why the computed text must not replace the committed one.
    """

    path: str
    source: str
    make: Callable[[], str]
    find_faults: Callable[[str, str], list[str]]
    is_decision: bool = False
    refuse: Callable[[str, str], list[str]] = lambda committed, computed: []


@dataclass(frozen=True)
class Measured:
    """A file of measurements: the commands that make it, and how it is checked without them."""

    path: str
    source: str
    commands: Sequence[Sequence[str]]
    check: Callable[[Path], list[str]]


@cache
def run_tool(*words: str) -> str:
    """Return what one of the tools prints."""
    command = [sys.executable, str(ROOT / "tools" / words[0]), *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=False)
    if done.returncode:
        raise NotMade((done.stderr.strip() or f"{words[0]} ends with {done.returncode}").splitlines()[-1])
    return done.stdout


def find_difference(committed: str, computed: str) -> list[str]:
    """Return the first line that differs."""
    if committed == computed:
        return []
    before, now = committed.splitlines(), computed.splitlines()
    number = next((n for n, (b, c) in enumerate(zip(before, now, strict=False)) if b != c), min(len(before), len(now)))
    shown = [lines[number] if number < len(lines) else "nothing" for lines in (before, now)]
    return [f"line {number + 1} is {shown[0]!r}; computed: {shown[1]!r}"]


def find_wrong_lines(committed: str, computed: str) -> list[str]:
    """Return the lines that are not computed; a line may be missing, so that a new operator edits nothing else."""
    known = {*computed.splitlines()}
    wrong = [line for line in committed.splitlines() if line not in known]
    return [f"{len(wrong)} lines are not of this tree, first {wrong[0]!r}"] if wrong else []


def find_excess(committed: str, computed: str) -> list[str]:
    """Return the folders that have more lines than their budget."""
    try:
        return sizes.find_excess(sizes.count_lines(ROOT), sizes.read_budget(committed))
    except ValueError as error:
        return [str(error)]


def find_phrases(committed: str, computed: str) -> list[str]:
    """Return the folders whose counts of retired phrases are not those of the file, with the places of too many."""
    try:
        return phrases.find_changes(phrases.find_all(ROOT), phrases.read_counts(committed))
    except ValueError as error:
        return [str(error)]


COMPUTED = {
    "index": Computed(
        "core/src/isokern/ops/index.tsv",
        "the modules of isokern.ops: which of them declares which operator",
        lambda: run_tool("operator_files.py", "index"),
        find_wrong_lines,
    ),
    "records": Computed(
        "tests/core/golden/records.txt",
        "the declarations: how the attributes of each operator are laid out",
        lambda: run_tool("operator_files.py", "records"),
        find_wrong_lines,
        refuse=operator_files.find_changed_layouts,
    ),
    "peer_names": Computed(
        "core/src/isokern/ops/peer_names.tsv",
        "the tables of nodes of isokern.onnx and isokern.torch, and tools/peer_names_by_hand.tsv",
        lambda: run_tool("peer_names.py"),
        find_difference,
    ),
    "source_documents": Computed(
        "docs/source_documents.md",
        "docs/source_documents.tsv",
        statements.write_page,
        find_difference,
    ),
    "sizes": Computed(
        "tests/packaging/size_budget.tsv",
        f"the lines of core's folders and of the plug-ins, and {sizes.SLACK} % more",
        lambda: sizes.write_budget(sizes.count_lines(ROOT)),
        find_excess,
        is_decision=True,
    ),
    "phrases": Computed(
        "tests/packaging/phrases.tsv",
        "the phrases that tools/phrases.py retires, in the prose of each folder; a count may only fall",
        lambda: phrases.write_counts(phrases.find_all(ROOT)),
        find_phrases,
        refuse=phrases.find_rises,
    ),
}

PYTHON = sys.executable
DEVICES = [word for backend in measured.BACKENDS for word in ("--device", backend)]
MEASURED = {
    "accuracy": Measured(
        "docs/accuracy.tsv",
        "the errors of every device over the quick cases and a sweep of numbers",
        [[PYTHON, "-m", "isokern", "accuracy", *DEVICES, "--write", "docs/accuracy.tsv", "--merge"]],
        measured.check_accuracy,
    ),
    "c_reach": Measured(
        "docs/c_reach.tsv",
        "what ik_op_create answers for every operator on the CPU and the emulated XPU",
        [[PYTHON, "tools/c_reach.py", "cpu:0", "kunlun_sim:0"]],
        measured.check_c_reach,
    ),
    "support": Measured(
        "docs/support.json",
        "the reports that the conformance environments of the full run leave in .tox",
        [[PYTHON, "docs/generate.py", "support", *measured.BACKENDS]],
        measured.check_support,
    ),
    "onnx_suite": Measured(
        "docs/onnx_suite.json",
        "a run of ONNX's backend suite on every device",
        [[PYTHON, "docs/generate.py", "onnx_suite", *(f"{backend}:0" for backend in measured.BACKENDS)]],
        measured.check_onnx_suite,
    ),
    "onnx_versions": Measured(
        "docs/onnx_versions.tsv",
        "drawn nodes of every operator and version of ONNX, beside ONNX Runtime and onnx.reference",
        [[PYTHON, "docs/generate.py", "onnx_versions", "cpu:0"]],
        measured.check_onnx_versions,
    ),
    "speed": Measured(
        "docs/speed.tsv",
        "the time of each operator on one core of the CPU, next to NumPy and ONNX Runtime",
        [["taskset", "-c", "0", PYTHON, "tools/speed.py"]],
        measured.check_speed,
    ),
    "mutations": Measured(
        "docs/mutations.md",
        "the verdicts of the conformance cases on changed kernels of every backend",
        [
            [*f"{PYTHON} tools/mutations.py --device {backend} --count 80 --trust --page docs/mutations.md".split()]
            for backend in measured.KINDS
        ],
        measured.check_mutations,
    ),
    "status": Measured(
        "docs/status.md",
        "what docs/ledger.tsv, which the full run writes, proves for this tree",
        [[PYTHON, "tools/status.py"]],
        measured.check_status,
    ),
}
FILES: dict[str, Computed | Measured] = {**COMPUTED, **MEASURED}


def make(name: str, root: Path) -> list[str]:
    """Write a file; return why it cannot be made."""
    file = FILES[name]
    if isinstance(file, Measured):
        ends = [subprocess.run(command, cwd=ROOT, check=False).returncode for command in file.commands]
        return [f"`{' '.join(c)}` ends with {end}" for c, end in zip(file.commands, ends, strict=True) if end]
    path = root / file.path
    try:
        text = file.make()
    except NotMade as error:
        return [str(error)]
    before = path.read_text(encoding="utf-8") if path.exists() else ""
    refused = file.refuse(before, text)
    if not refused and text != before:
        path.write_text(text, encoding="utf-8")
        print(f"{file.path} is written")
    return refused


def check(name: str, root: Path) -> list[str]:
    """Return what is wrong with a file as it is."""
    file = FILES[name]
    path = root / file.path
    if not path.exists():
        return ["it does not exist"]
    if isinstance(file, Measured):
        return file.check(path)
    try:
        return file.find_faults(path.read_text(encoding="utf-8"), file.make())
    except NotMade as error:
        return [str(error)]


def describe() -> str:
    """Return the table of the files, for --help."""
    kinds = {"computed from the tree": COMPUTED, "measured": MEASURED}
    lines = []
    for kind, files in kinds.items():
        lines += [f"{kind}:", *(f"  {name:17} {file.path}: {file.source}" for name, file in files.items())]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Make or check files, those of the tree `root`; return 1 if one differs or cannot be made."""
    parser = argparse.ArgumentParser(
        description=__doc__, epilog=describe(), formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if a file is out of date")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of: {', '.join(FILES)}")
    options = parser.parse_args(arguments)
    if unknown := {*options.names} - {*FILES}:
        parser.error(f"{', '.join(sorted(unknown))}: allowed: {', '.join(FILES)}")
    computed = [name for name, file in COMPUTED.items() if not file.is_decision]
    names = options.names or ([*FILES] if options.check else computed)
    failed = False
    for name in names:
        for fault in (check if options.check else make)(name, root):
            failed = True
            hint = f"; run `python tools/regenerate.py {name}`" if options.check else ""
            print(f"{FILES[name].path}: {fault}{hint}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
