"""Change kernels by rules and see whether the conformance cases notice: `python tools/mutations.py --device cpu`.

A mutant is one kernel file with one token changed: a constant, a bound, a stride, a guard, a comparison. Rules find the
places, and a fixed seed picks them, so a mutant's id, `file:line:rule`, is the same in every run on the same sources.
Each mutant is built apart from the installed plug-in and judged by `isokern check`: first by the quick cases, then by
all cases of its operators. The verdicts are written line by line to `.tox/mutations/<device>.jsonl`, and an interrupted
run continues there.

What all cases miss is tried once more by the quick cases under what checks kernels as they run: sanitizers, the checked
kernels of the emulated XPU, other orders of threads; and by the tests of the backend's kernels.

A change that leaves the object code as it was makes no mutant, nor does one in a line that this machine's device does
not compile. A mutant that no case can notice is listed in
tools/mutations_equivalent.txt with the reason. Every other one is killed by the quick cases, by the others, by a
check, or survives: then a case is missing.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mutation_targets import KINDS, ROOT, NotBuilt, PortableTarget, Target, check_found, kind_of

if TYPE_CHECKING:
    from isokern.declare.operator import Operator

KEPT = ROOT / ".tox" / "mutations"
EQUIVALENT = ROOT / "tools" / "mutations_equivalent.txt"
SEED, COUNT = 16, 100
PATIENCE = 20  # seconds that a case may take: a mutant may loop for ever
# Operators that judge a mutant first, and by all cases. They are spread over those of its kernels:
# elementwise operators share all code that is not generated.
MOST = 12
SHOWN = ("killed by quick cases", "killed by the others", "killed by checks", "survived", "equivalent")

# Name → pattern to find in a line without comments and strings, and its replacement
RULES: dict[str, tuple[str, str]] = {
    "loop ends early": (r"(; \w+ < )([^;]+)(; \w+(?:\+\+| \+=))", r"\1(\2) - 1\3"),
    "loop begins late": (r"(for \((?:int\w*|size_t|ik_index) \w+ = )0;", r"\g<1>1;"),
    "constant": (r"(?<![\w.])(\d+)(?![\w.\]])", "+1"),
    "floating constant": (r"(?<![\w.])\d+\.\d+(?:e[-+]?\d+)?f?(?!\w)", "*1.5"),
    "sum for difference": (r"(?<=[\w)\]]) - (?=[\w(])", " + "),
    "difference for sum": (r"(?<=[\w)\]]) \+ (?=[\w(])", " - "),
    "product is a sum": (r"(?<=[\w)\]]) \* (?=[\w(])", " + "),
    "stride is 1": (r"(?:\w+(?:->|\.))*strides\[[^\]]+\]", "1"),
    "never": (r"(?<=\bif )\([^()]*(?:\([^()]*\)[^()]*)*\)(?! *\\)", "(0)"),
    "always": (r"(?<=\bif )\([^()]*(?:\([^()]*\)[^()]*)*\)(?! *\\)", "(1)"),
    "and for or": (r" \|\| ", " && "),
    "or for and": (r" && ", " || "),
    "at most": (r"(?<=[\w)\]]) < (?=[\w(])", " <= "),
    "more": (r"(?<=[\w)\]]) >= (?=[\w(])", " > "),
    "or equal": (r"(?<=[\w)\]]) > (?=[\w(])", " >= "),
    "unequal": (r" == ", " != "),
    "equal": (r" != ", " == "),
    "narrow sum": (r"\bdouble(?= \w+ = )", "float"),
    "replaced, not added": (r" \+= ", " = "),
    "no barrier or fence": (r"\b(?:IK_BARRIER(?:_GLOBAL)?|mfence(?:_lm|_sm)?|sync_(?:cluster|group))\([^;]*\);", ";"),
    "narrow index": (r"\b(?:ik_index|int64_t)(?= \w+ = )", "short"),
    "NaN is a number": (r"\bisnan\(\w+\)|\b(\w+) != \1\b", "0"),
}

DROPPING = ("never", "always", "no barrier or fence")  # rules after which many lines of a file read alike


@dataclass(frozen=True)
class Mutant:
    """One change: the file, its line from 1, the rule, the index of the place on that line, and the changed line."""

    file: Path
    line: int
    rule: str
    place: int
    text: str

    @property
    def id(self) -> str:
        """The id, which is the same as long as the file is."""
        return f"{self.file.relative_to(ROOT)}:{self.line}:{self.rule}" + (f":{self.place}" if self.place else "")

    @property
    def key(self) -> str:
        """The id without the line number: how the list of equivalent mutants names it."""
        file, _, rule = self.id.split(":", 2)
        return f"{file}:{rule}"

    @property
    def shown(self) -> str:
        """The changed line; where the change leaves no trace of what was there, what was there, too."""
        now = self.text.strip()
        if self.rule not in DROPPING:
            return now
        was = self.file.read_text(encoding="utf-8").splitlines()[self.line - 1].strip()
        return f"{now}  /* was: {was} */"

    @property
    def source(self) -> str:
        """The text of the file with the change."""
        return self._source(self.text)

    @property
    def refused_source(self) -> str:
        """The text of the file with, in place of the line, what is an error wherever it is compiled."""
        return self._source("@\\\n" if self.text.endswith("\\\n") else "@\n")

    def _source(self, text: str) -> str:
        lines = self.file.read_text(encoding="utf-8").splitlines(keepends=True)
        lines[self.line - 1] = text
        return "".join(lines)


def code_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield (number from 1, line) of the lines of code, with blanks for comments and strings, so that columns stay.

    Lines that are compiled for a GPU only are left out, since no target here runs them.
    """
    blank = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"', re.S)
    bare = blank.sub(lambda m: re.sub(r"[^\n]", " ", m[0]), text)
    depth = 0  # of conditions inside a branch for a GPU, counting its own
    for number, line in enumerate(bare.splitlines(keepends=True), 1):
        word = line.lstrip()
        if word.startswith("#if") and (depth or "__CUDA_ARCH__" in word):
            depth += 1
        elif depth and (word.startswith("#endif") or (depth == 1 and word.startswith("#else"))):
            depth -= 1
        elif word.strip() and not word.startswith("#") and not depth:
            yield number, line


def replacement(rule: str, found: re.Match[str]) -> str:
    """Return the replacement of a match."""
    new = RULES[rule][1]
    if new == "+1":
        return str(int(found[0]) + 1)
    if new == "*1.5":
        return f"({found[0]} * 1.5{'f' if found[0].endswith('f') else ''})"
    return found.expand(new)


def mutants(file: Path) -> list[Mutant]:
    """Return every change that the rules make to a file."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    found = []
    for number, line in code_lines(text):
        for rule, (pattern, _) in RULES.items():
            for place, match in enumerate(re.finditer(pattern, line)):
                whole = lines[number - 1]
                changed = whole[: match.start()] + replacement(rule, match) + whole[match.end() :]
                if changed != whole:
                    found.append(Mutant(file, number, rule, place, changed))
    return found


def pick(files: Sequence[Path], count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants, spread as evenly as possible over the files, and within a file over the rules.

    A file's first mutant is of the rule that is the rarest over all files.
    """
    queues = []
    found = {file: made for file in files if (made := mutants(file))}
    common = Counter(mutant.rule for made in found.values() for mutant in made)
    for file, made in found.items():
        chance = random.Random(f"{seed} {file.name}")
        by_rule: dict[str, list[Mutant]] = {}
        for mutant in made:
            by_rule.setdefault(mutant.rule, []).append(mutant)
        for own in by_rule.values():
            chance.shuffle(own)
        rules = sorted(by_rule)
        chance.shuffle(rules)
        rarest = min(rules, key=lambda rule: common[rule])
        rules.sort(key=lambda rule: rule != rarest)
        depth = max(map(len, by_rule.values()), default=0)
        queues.append([by_rule[r][n] for n in range(depth) for r in rules if n < len(by_rule[r])])
    rounds = max(map(len, queues), default=0)
    return [queue[n] for n in range(rounds) for queue in queues if n < len(queue)][:count]


def equivalents() -> dict[tuple[str, str], str]:
    """Return (file:rule, changed line) → why no case can notice that mutant.

    The key has the line itself, so that edits elsewhere in the file do not matter.
    """
    text = "\n".join(row for row in EQUIVALENT.read_text(encoding="utf-8").splitlines() if not row.startswith("#"))
    found = {}
    for entry in filter(None, (block.strip() for block in text.split("\n\n"))):
        rows = [row.strip() for row in entry.splitlines()]
        if len(rows) < 3 or not rows[-1].endswith("."):
            raise SystemExit(
                f"{EQUIVALENT.name}: {rows[0]!r} needs the line afterwards and then a sentence that says why"
            )
        found[rows[0], rows[1]] = " ".join(rows[2:])
    return found


def reason(row: dict[str, str], reasons: dict[tuple[str, str], str]) -> str:
    """Return why a mutant that survived is equivalent, empty where no reason is listed."""
    file, _, rule = row["id"].split(":", 2)
    return reasons.get((f"{file}:{rule}", row["text"]), "")


def check(device: str, operators: Sequence[str], environment: dict[str, str], *options: str) -> str:
    """Return empty text where the cases pass, else a line about the first failure."""
    chosen = [word for name in operators for word in ("--op", name)]
    command = [
        sys.executable,
        "-m",
        "isokern",
        "check",
        "--device",
        device,
        *chosen,
        "--first",
        "-j",
        "1",
        "--patience",
        str(PATIENCE),
        "--json",
        "--claimed",  # a mutant may refuse what the kernel accepts
        *options,
    ]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    if done.returncode == 1:
        failure = json.loads(done.stdout)["failures"][0]
        return f"{failure['verdict']} {failure['id']}: {failure['detail']}"[:200]
    raise SystemExit(f"{' '.join(command)}\nends with {done.returncode}: {done.stderr[-500:]}")


def judge(device: str, target: Target, mutant: Mutant, operators: Sequence[str]) -> tuple[str, str]:
    """Return the verdict and its evidence: the first failure, or the compiler's message."""
    try:
        if not target.build(mutant.file, mutant.source):
            return "same code", ""
    except NotBuilt as error:
        return "does not compile", next((row for row in str(error).splitlines() if "error:" in row), "")[-120:]
    some = operators[:: -(-len(operators) // MOST)] if len(operators) > MOST else operators
    for chosen in (some, [name for name in operators if name not in some]):
        if chosen and (how := check(device, chosen, target.environment, "--quick")):
            return "killed by quick cases", how
    if not is_compiled(device, target, mutant, some):
        return "not compiled", ""
    if how := check(device, some, target.environment):
        return "killed by the others", how
    for name, environment in target.checks(mutant.file, mutant.source):
        if how := check(device, some, environment, "--quick"):
            return "killed by checks", f"{name}: {how}"
    if target.tests and (how := run_tests(target.tests, target.environment)):
        return "killed by checks", f"the backend's own tests: {how}"
    return "survived", ""


def run_tests(files: Sequence[str], environment: dict[str, str]) -> str:
    """Return empty text where tests pass under a mutant, else the first that fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-m", "", "--tb=no", "-rfE", *files]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    told = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.M)
    return told[1] if told else f"pytest ends with {done.returncode}"


def is_compiled(device: str, target: Target, mutant: Mutant, operators: Sequence[str]) -> bool:
    """Return whether the line is compiled at all: the device compiles kernels itself, and may leave it out."""
    if not isinstance(target, PortableTarget):
        return True  # else the object code would have been the same
    target.build(mutant.file, mutant.refused_source)
    environments = [target.environment, *(found for _, found in target.checks(mutant.file, mutant.refused_source))]
    compiled = any(check(device, operators, environment, "--quick") for environment in environments)
    target.build(mutant.file, mutant.source)
    return compiled


def answers(device: str) -> dict[str, dict[str, str]]:
    """Return the verdicts of earlier runs, by mutant."""
    path = KEPT / f"{device.replace(':', '-')}.jsonl"
    rows = [json.loads(row) for row in path.read_text().splitlines()] if path.exists() else []
    return {row["id"]: row for row in rows}


def digest(mutant: Mutant, operators: Sequence[Operator]) -> str:
    """Return a text that changes when the mutant does, or a case of an operator that it is in."""
    from isokern.conformance.derive import operator_cases

    cases = [f"{case.id} {case.quick}" for operator in operators for case in operator_cases(operator)]
    return hashlib.sha256("\n".join([mutant.source, *cases]).encode()).hexdigest()[:16]


def report(device: str, rows: Sequence[dict[str, str]], reasons: dict[tuple[str, str], str]) -> str:
    """Return the counts, the shares and every survivor, as Markdown."""
    count = Counter("equivalent" if r["verdict"] == "survived" and reason(r, reasons) else r["verdict"] for r in rows)
    quick, others, checked, survived = (
        count[v] for v in ("killed by quick cases", "killed by the others", "killed by checks", "survived")
    )
    real = quick + others + checked + survived
    lines = [f"| mutants of the kernels of `{device}` | |", "| --- | --- |"]
    lines += [f"| {verdict} | {n} |" for verdict, n in sorted(count.items())]
    lines += [
        f"| share that quick cases kill | {quick / max(real, 1):.1%} |",
        f"| share that all cases kill | {(quick + others) / max(real, 1):.1%} |",
        f"| share that all cases and checks kill | {(quick + others + checked) / max(real, 1):.1%} |",
    ]
    for row in rows:
        if row["verdict"] in ("killed by the others", "killed by checks"):
            lines.append(f"| only by {row['how'].split(':')[0]} | `{row['id']}` |")
        elif row["verdict"] == "survived":
            escaped = row["text"].replace("|", "\\|")  # in a cell of a table
            lines.append(f"| {reason(row, reasons) or '**survived**'} | `{row['id']}` `{escaped}` |")
    files: dict[str, Counter[str]] = {}
    for row in rows:
        of_file = files.setdefault(row["id"].split(":")[0].rpartition("/kernels/")[2], Counter())
        of_file["equivalent" if row["verdict"] == "survived" and reason(row, reasons) else row["verdict"]] += 1
    lines += ["", f"| file | {' | '.join(SHOWN)} |", "| --- " * (len(SHOWN) + 1) + "|"]
    lines += [f"| {file} | {' | '.join(str(n[v] or '') for v in SHOWN)} |" for file, n in sorted(files.items())]
    return "\n".join(lines)


def write_section(page: Path, device: str, text: str) -> None:
    """Write the report of a device below its heading, in place of an earlier one."""
    before, _, after = page.read_text(encoding="utf-8").partition(f"## {device}\n")
    rest = after.partition("\n## ")[2]
    parts = [before.rstrip(), "", f"## {device}", "", text, *(["", f"## {rest.rstrip()}"] if rest else [])]
    page.write_text("\n".join(parts) + "\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> int:
    """Judge the mutants that have no verdict, and print the table.

    Return 1 where one survives that is not listed as equivalent.
    """
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--device", default="cpu", help=", ".join(KINDS))
    parser.add_argument("--count", type=int, default=COUNT, help="mutants in all")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--list", action="store_true", help="print the mutants and judge none")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no other mutant after so long")
    parser.add_argument("--only", default="", help="only mutants whose id has this in it")
    parser.add_argument("--trust", action="store_true", help="do not judge those that are listed as equivalent")
    parser.add_argument("--page", type=Path, help="a page of Markdown whose section of the device is written")
    options = parser.parse_args(arguments)
    kind = kind_of(options.device)
    chosen = [m for m in pick(kind.files(), options.count, options.seed) if options.only in m.id]
    if options.list:
        for mutant in chosen:
            print(f"{mutant.id}  {mutant.shown}")
        return 0
    from isokern.ops import all_operators

    reasons = equivalents()
    KEPT.mkdir(parents=True, exist_ok=True)
    target, known, begin, rows = (
        kind(KEPT / options.device.replace(":", "-")),
        answers(options.device),
        time.monotonic(),
        [],
    )
    check_found(target)
    if target.tests and (failed := run_tests(target.tests, target.environment)):
        raise SystemExit(f"{failed} fails without a mutant")
    for number, mutant in enumerate(chosen, 1):
        stems = target.stems(mutant.file)
        operators = [o for o in all_operators() if o.stem in stems]
        version = digest(mutant, operators)
        row = known.get(mutant.id)
        unjudged = {"id": mutant.id, "version": version, "verdict": "survived", "how": "", "text": mutant.shown}
        if options.trust and reason(unjudged, reasons):
            row = unjudged
        elif row is None or row["version"] != version:
            if time.monotonic() - begin > 60 * options.minutes:
                continue
            started = time.monotonic()
            verdict, how = judge(options.device, target, mutant, [o.name for o in operators])
            row = {**unjudged, "verdict": verdict, "how": how}
            with (KEPT / f"{options.device.replace(':', '-')}.jsonl").open("a") as kept:
                kept.write(json.dumps(row) + "\n")
            print(
                f"{number}/{len(chosen)} {verdict}, {time.monotonic() - started:.0f} s: "
                f"{mutant.id}  {row['text']}  {how[:90]}",
                flush=True,
            )
        rows.append({**row, "text": mutant.shown})
    text = report(options.device, rows, reasons)
    if len(rows) < len(chosen):
        text += f"\n\n{len(chosen) - len(rows)} of {len(chosen)} mutants are not judged yet."
    print(text)
    if options.page:
        write_section(options.page, options.device, text)
    return int(any(r["verdict"] == "survived" and not reason(r, reasons) for r in rows))


if __name__ == "__main__":
    sys.exit(main())
