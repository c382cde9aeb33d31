"""Write docs/status.md, what docs/ledger.tsv proves for this tree: `python tools/status.py`.

For each proof of tools/conformance.py every operator, and for each environment of the full run every test file, is
proved for this very tree, stale, or was never proved. `--check` writes nothing, and exits with 1 if the page differs.
Digests are computed from files; the cases of a proof follow from its device, which is opened in a process with the
proof's settings. What is proved by a device that is missing cannot be told.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import install
import prove
from conformance import PROOFS, ROOT, Proof
from times import table

STATUS = ROOT / "docs" / "status.md"
TITLE = "# Status"
SHARE = re.compile(r"^\*\*(\d+\.\d) %\*\* of ([\d,]+) subjects (?:is|are) proved for this tree", re.M)
COLUMNS = ("proof or environment", "proved", "stale", "never", "tools", "machines", "latest day")
LONGEST = 340  # characters of a list of subjects
TOOLS = 3  # that a cell names
EXPLAINED = (
    "`python tools/status.py` makes this page from [the ledger](conformance.md#the-ledger-of-proofs), a file that the"
    " full run writes: `tox -p 2 -m full` runs what is not proved. A subject is an operator on a device, judged in one"
    " of the ways that `tools/conformance.py` lists, or a test file or a command of an environment."
)


@dataclass
class Row:
    """What is known of the subjects of a proof or an environment; `reason` says why nothing can be told."""

    name: str
    proved: list[str] = field(default_factory=list)
    stale: dict[str, list[str]] = field(default_factory=dict)  # by the day on which they were proved last
    never: list[str] = field(default_factory=list)
    tools: set[str] = field(default_factory=set)
    machines: set[str] = field(default_factory=set)
    latest: str = ""
    reason: str = ""

    @property
    def count(self) -> int:
        """How many subjects there are."""
        return len(self.proved) + sum(map(len, self.stale.values())) + len(self.never)

    def add(self, subject: str, proof: Any, latest: Any) -> None:
        """Add a subject with the entry that proves it, and else with its newest one."""
        entry = proof or latest
        if proof is not None:
            self.proved.append(subject)
        elif latest is not None:
            self.stale.setdefault(latest.day, []).append(subject)
        else:
            self.never.append(subject)
        if entry is not None:
            self.tools |= {entry.tools or "-"}
            self.machines |= {entry.machine or "-"}
            self.latest = max(self.latest, entry.day)

    @property
    def cells(self) -> list[Any]:
        """The row of the table."""
        if self.reason:
            return [self.name, "", "", "", f"cannot be told here: {self.reason}", "", ""]
        stale = sum(map(len, self.stale.values()))
        found = [summarize(self.tools), summarize(self.machines), self.latest]
        return [self.name, str(len(self.proved)), str(stale), str(len(self.never)), *found]

    def list_open(self) -> list[str]:
        """Return lines that name what is stale or was never proved."""
        days = [(f"stale, last proved on {day}", names) for day, names in sorted(self.stale.items())]
        groups = [*days, *([("never proved", self.never)] if self.never else [])]
        return [f"- **{self.name}**, {what}: {shorten(names)}" for what, names in groups]


def summarize(texts: Iterable[str]) -> str:
    """Return a few texts, and how many more there are."""
    found = sorted(texts)
    return "; ".join(found[:TOOLS]) + (f"; {len(found) - TOOLS} more" if len(found) > TOOLS else "")


def shorten(names: Sequence[str]) -> str:
    """Return names with commas up to a length, and how many more there are."""
    shown: list[str] = []
    for name in sorted(names):
        if shown and len(", ".join([*shown, name])) > LONGEST:
            return f"{', '.join(shown)} and {len(names) - len(shown):,} more"
        shown.append(f"`{name}`")
    return ", ".join(shown)


def judge_proof(name: str, root: Path) -> Row:
    """Return what is known of a proof, in this process, which has its settings."""
    from isokern.backend.discovery import device as find_device
    from isokern.conformance.ledger import Ledger
    from isokern.conformance.proofs import Proofs, find_tree
    from isokern.conformance.suite import Choice, select
    from isokern.ops import find
    from isokern.status import IsokernError

    proof, row = PROOFS[name], Row(name)
    try:
        device = find_device(proof.backend)
        operators = [find(operator) for operator in proof.operators] or None
        runtime = proof.runtime and not operators
        items = select(device, Choice(proof.quick, proof.small), operators, runtime=runtime)
        known = Ledger(root / prove.LEDGER)
        proofs = Proofs(device, known, find_tree(root), name, items, conditions=proof.conditions)
    except IsokernError as error:
        row.reason = " ".join(str(error).split())[:120]
        return row
    for subject in proofs.items:
        full = proofs.full_name(subject)
        row.add(subject, known.proof(full, proofs.state(subject)), known.latest(full))
    return row


def unpack_wheel(proof: Proof, to: str) -> str:
    """Unpack the package of a proof as it is built for it, without a sanitizer; return what was said if it fails."""
    flags = {name: value for name, value in proof.built.items() if "CFLAGS" not in name}
    given = {n: v for n, v in os.environ.items() if n not in install.FLAGS} | flags
    code = (
        "import sys, install; install.KEPT.mkdir(parents=True, exist_ok=True); print(install.wheel(install.ROOT /"
        " sys.argv[1]))"
    )
    words = [sys.executable, "-c", code, proof.wheel]
    done = subprocess.run(words, cwd=ROOT / "tools", env=given, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"{proof.wheel} cannot be built: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    with ZipFile(done.stdout.splitlines()[-1]) as wheel:
        wheel.extractall(to)
    return ""


def ask_for_proof(name: str, root: Path) -> Row:
    """Return what is known of a proof, from a process with its settings and packages."""
    with tempfile.TemporaryDirectory() as folder:
        fault = unpack_wheel(PROOFS[name], folder) if PROOFS[name].wheel else ""
        return Row(name, reason=fault[:120]) if fault else _ask_for_proof(name, root, folder)


def _ask_for_proof(name: str, root: Path, packages: str) -> Row:
    decided = {n for proof in PROOFS.values() for n in proof.settings}
    environment = {n: v for n, v in os.environ.items() if n not in decided} | PROOFS[name].listing
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [packages, os.environ.get("PYTHONPATH")]))
    command = [sys.executable, __file__, "--proof", name, "--root", str(root)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        return Row(name, reason=(done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1])
    fields = json.loads(done.stdout)
    return Row(**{**fields, "tools": set(fields["tools"]), "machines": set(fields["machines"])})


def judge_environments(root: Path) -> list[Row]:
    """Return what is known of each part of an environment of the full run that tools/prove.py runs."""
    tree = prove.Tree(root)
    known = prove.ledger_module.Ledger(root / prove.LEDGER)
    rows: dict[str, Row] = {}
    for environment in tree.environments:
        if "full" not in environment.labels:
            continue
        for command in prove.list_commands(environment):
            row = rows.setdefault(command.name, Row(command.name))
            try:
                for subject in tree.list_subjects(command):
                    state = tree.state(subject)
                    short = subject.name.removeprefix(f"{command.name}/")
                    row.add(short, known.proof(subject.name, state), known.latest(subject.name))
            except (prove.Refused, ImportError) as error:
                row.reason = str(error)
    return list(rows.values())


def page(rows: Sequence[Row]) -> str:
    """Return the page."""
    told = [row for row in rows if not row.reason]
    proved, count = sum(len(row.proved) for row in told), sum(row.count for row in told)
    share = proved * 1000 // count / 10 if count else 0.0  # 100.0 only if nothing is missing
    untold = [row.name for row in rows if row.reason]
    first = f"**{share:.1f} %** of {count:,} subjects are proved for this tree"
    first += f"; nothing can be told here of {', '.join(untold)}." if untold else "."
    open_ = [line for row in told for line in row.list_open()]
    parts = [TITLE, first, EXPLAINED, table(COLUMNS, [row.cells for row in rows])]
    parts += ["## What is not proved", "\n".join(open_)] if open_ else []
    return "\n\n".join(parts) + "\n"


def faults(text: str) -> list[str]:
    """Return in what a page contradicts itself: the share is that of the table."""
    found = []
    if not text.startswith(f"{TITLE}\n\n**"):
        found.append(f"it does not begin with {TITLE!r} and the share that is proved")
    said = SHARE.search(text)
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", text, re.M)]
    told = [[int(c) for c in row[1:4]] for row in cells[2:] if all(c.isdecimal() for c in row[1:4])]
    proved, count = sum(row[0] for row in told), sum(map(sum, told))
    if said is None or not cells or tuple(cells[0]) != COLUMNS:
        found.append("the share or the table is missing")
    elif (said[1], said[2]) != (f"{proved * 1000 // count / 10 if count else 0:.1f}", f"{count:,}"):
        found.append(f"it says {said[1]} % of {said[2]}, and the table has {proved:,} of {count:,}")
    return found


def judge(root: Path) -> list[Row]:
    """Return the rows of the page."""
    with ThreadPoolExecutor(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 2) as pool:
        proofs = pool.map(lambda name: ask_for_proof(name, root), PROOFS)
        environments = judge_environments(root)
        return [*proofs, *environments]


def main(arguments: Sequence[str] | None = None, root: Path = ROOT) -> int:
    """Write or check the page; return 1 if it differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit with 1 if the page differs")
    parser.add_argument("--proof", choices=PROOFS, help=argparse.SUPPRESS)
    parser.add_argument("--root", type=Path, default=root, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.proof:
        row = judge_proof(options.proof, options.root)
        print(json.dumps({**vars(row), "tools": sorted(row.tools), "machines": sorted(row.machines)}))
        return 0
    path = options.root / STATUS.relative_to(ROOT)
    text = page(judge(options.root))
    print(text.splitlines()[2].replace("**", ""))
    same = path.exists() and path.read_text(encoding="utf-8") == text
    if options.check:
        print("docs/status.md is up to date" if same else "docs/status.md differs; write it: tox -e status")
        return int(not same)
    path.write_text(text, encoding="utf-8")
    print(f"{'unchanged' if same else 'written'}: docs/status.md; commit it with docs/ledger.tsv")
    return 0


if __name__ == "__main__":
    sys.exit(main())
