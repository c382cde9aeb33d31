"""Many cases and runtime checks on one device, in this process or in workers that may crash, and their report."""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from ..arguments import read_text
from ..backend import Device
from ..backend.discovery import backends
from ..declare.operator import Operator
from ..declare.samples import assignments
from ..dtypes import ALL
from ..ops import all_operators, find
from ..oracle.cases import Case, dtype_text
from ..oracle.verdicts import Outcome, Verdict
from ..status import InvalidArgument
from .derive import device_cases, rank_variants
from .expected_failures import ExpectedFailures
from .items import AnyItem, Item, judge_item
from .run import Runner
from .runtime.check import RuntimeCheck
from .runtime.every import runtime_checks

Pair = tuple[str, str]  # operator, and dtypes as in a case's id
NAMED = 12  # operators that a sentence lists
_PART = re.compile("([0-9]{1,12})/([0-9]{1,12})")


@dataclass(frozen=True)
class Required:
    """The pairs that a device must compute, and those among them that must not be decomposed."""

    run: frozenset[Pair] = frozenset()
    kernels: frozenset[Pair] = frozenset()

    def __or__(self, other: Required) -> Required:
        return Required(self.run | other.run, self.kernels | other.kernels)


def required_pairs(where: str, device: Device) -> Required:
    """Return what a device must compute: everything for `all`, or the pairs of a file.

    A file has one `operator dtype` a line, and `#` begins a comment. A dtype is that of a case's id (`F32`, `F32-I64`),
    or of the first type variable alone, or `*`; an operator may be `*`. A line that begins with `!` removes pairs:
    those in which its dtype has any part. An operator that is named needs kernels of its own. One that `all` or `*`
    stands for needs them if the device has some; it may be decomposed if the device has none. A line that
    begins with `~` names pairs of which some calls, or all, may be decomposed.
    """
    declared = [(op.name, dtype_text(types.values())) for op in all_operators() for types in assignments(op)]
    if where == "all":
        return Required(frozenset(declared), _own(device, declared))
    pairs: set[Pair] = set()
    named: set[Pair] = set()
    partial: set[Pair] = set()
    lines = read_text("--require", where, allowed="all, or a text file that can be read").splitlines()
    for number, line in enumerate(lines, 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        away, some = words[0] == "!", words[0] == "~"
        operator, dtype = words[away or some :] if len(words) == 2 + (away or some) else ("", "")
        operator = operator if operator in ("", "*") else find(operator).name
        of = [p for p in declared if operator in ("*", p[0])]
        parts = {p: p[1].split("-") for p in of}
        matching = {p for p in of if dtype in ("*", p[1], *(parts[p] if away else parts[p][:1]))}
        if not matching:
            allowed = "lines of an operator and one of its dtypes, ! in front to take them away, ~ for some calls"
            raise InvalidArgument("--require", f"{where}:{number}: {line.strip()!r}", allowed=allowed)
        if some:
            partial |= matching
            continue
        pairs = pairs - matching if away else pairs | matching
        named = named - matching if away else named | (matching if operator != "*" else set())
    return Required(frozenset(pairs), (frozenset(named) | _own(device, pairs)) - partial)


def _own(device: Device, pairs: Iterable[Pair]) -> frozenset[Pair]:
    """Return the pairs of those operators that the device has kernels of."""
    own = {op.name for op in all_operators() if rank_variants(device, op)}
    return frozenset(p for p in pairs if p[0] in own)


def claimed_pairs(device: Device) -> Required:
    """Return what the device's backend claims: what the file that it registered has, else everything."""
    registered = {b.name: b.claims for b in backends()}
    return required_pairs(str(registered.get(device.name.partition(":")[0]) or "all"), device)


@dataclass
class Report:
    """The outcomes of one device, counted.

    A refusal of what is `required` is a failed claim, and so is a decomposed call for which a kernel is claimed.
    """

    device: str
    required: Required = Required()
    count: Counter[Verdict] = field(default_factory=Counter)
    outcomes: list[Outcome] = field(default_factory=list)
    failures: list[Outcome] = field(default_factory=list)
    cells: dict[Pair, Counter[Verdict]] = field(default_factory=dict)
    refusals: dict[Pair, str] = field(default_factory=dict)
    lowered: dict[Pair, str] = field(default_factory=dict)  # how the first case of each is decomposed
    worst: dict[str, Outcome] = field(default_factory=dict)
    expected: ExpectedFailures = field(default_factory=lambda: ExpectedFailures({}))
    ran: int = 0  # cases that the device computed: refusals at create do not count

    def add(self, case: Item, outcome: Outcome) -> Outcome:
        """Count an outcome; return it as it was counted."""
        counted = self._count(case, outcome)
        self.outcomes.append(counted)
        return counted

    def _count(self, case: Item, outcome: Outcome) -> Outcome:
        judged = outcome.verdict is not Verdict.UNSUPPORTED
        if judged and self.expected.takes(outcome.id, outcome.verdict.failed):
            self.ran += 1
            return outcome
        if isinstance(case, RuntimeCheck):
            self.count[outcome.verdict] += 1
            self.ran += outcome.verdict is not Verdict.UNSUPPORTED
            self.failures += [outcome] * outcome.verdict.failed
            return outcome
        pair = (case.operator.name, case.dtype)
        kept = {Verdict.UNSUPPORTED: self.refusals, Verdict.LOWERED: self.lowered}.get(outcome.verdict)
        needed = self.required.run if kept is self.refusals else self.required.kernels
        # A kernel may have limits, such as the size of a state: at edges what it does is judged, and not whether
        if kept is not None and pair in needed and not case.variant and case.sample.size != "edge":
            found = "refused" if kept is self.refusals else "no kernel"
            outcome = dataclasses.replace(
                outcome, verdict=Verdict.FAIL_CLAIM, detail=f"required, and {found}: {outcome.detail}"
            )
        elif kept is not None and not case.variant:
            kept.setdefault(pair, outcome.detail)
        self.count[outcome.verdict] += 1
        self.ran += case.calls and outcome.verdict is not Verdict.UNSUPPORTED
        if outcome.verdict.failed:
            self.failures.append(outcome)
        if not case.variant or outcome.verdict.failed:
            self.cells.setdefault(pair, Counter())[outcome.verdict] += 1
        known = self.worst.get(case.types[0].name) if case.types else None
        if case.types and outcome.verdict.passed and outcome.error and (known is None or outcome.share > known.share):
            self.worst[case.types[0].name] = outcome
        return outcome

    def tabulate(self) -> tuple[list[str], list[tuple[str, list[tuple[str, str]]]]]:
        """Return first dtypes, and for each operator a cell of each: its text, and passed, failed, refused or empty."""
        sums: dict[tuple[str, str], Counter[Verdict]] = {}
        for (operator, dtype), count in self.cells.items():
            sums.setdefault((operator, dtype.split("-")[0]), Counter()).update(count)
        columns = [d.name for d in ALL if any(dtype == d.name for _, dtype in sums)]
        operators = sorted({o for o, _ in sums})
        return columns, [(o, [say_count(sums.get((o, d), Counter())) for d in columns]) for o in operators]

    def say_lowered(self) -> str:
        """Return as a sentence which operators are decomposed in some of their dtypes; the first few by name."""
        names = list(dict.fromkeys(operator for operator, _ in self.lowered))
        rest = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        return f"Decomposed: {', '.join(names[:NAMED])}{rest}."

    @property
    def partial(self) -> dict[Pair, str]:
        """Pairs that the device accepts in some cases and refuses in others, with the first reason."""
        return {p: why for p, why in self.refusals.items() if any(v is not Verdict.UNSUPPORTED for v in self.cells[p])}


def say_count(count: Counter[Verdict]) -> tuple[str, str]:
    """Return the text of a cell, and whether its cases passed, failed or are refused.

    The text is ✗ with how many failed, else how many passed, ~ with how many are lowered, and - if some are refused.
    """
    if failed := sum(n for v, n in count.items() if v.failed):
        return f"✗ {failed}", "failed"
    passed, lowered, refused = (count[v] for v in (Verdict.PASS, Verdict.LOWERED, Verdict.UNSUPPORTED))
    parts = (str(passed) if passed else "", f"~{lowered}" if lowered else "", "-" if refused else "")
    kind = "refused" if refused else "lowered" if lowered else "passed" if passed else ""
    return " ".join(filter(None, parts)), kind


Heard = Callable[[Item, Outcome], object]


PATIENCE = 300.0  # seconds


def run(
    device: Device,
    cases: Sequence[Item],
    heard: Heard,
    *,
    jobs: int = 1,
    isolated: bool = True,
    patience: float = PATIENCE,
) -> None:
    """Run cases and runtime checks, and pass each outcome to `heard`, in this thread.

    `isolated` runs them in `jobs` worker processes, which find the device by its name. A case that crashes its worker,
    or is silent for `patience` seconds, is fail-crash, and a new worker continues after it.
    """
    if not isolated:
        runner = Runner(device)
        for case in cases:
            heard(case, judge_item(runner, case))
        return
    from .worker import run_isolated

    run_isolated(device.name, cases, heard, jobs, patience)


def quick(cases: Iterable[AnyItem]) -> list[AnyItem]:
    """Return the representative part: a few cases of every operator and dtype."""
    return [c for c in cases if c.quick]


@dataclass(frozen=True)
class Part:
    """One of `count` parts, numbered from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, option: str, text: str) -> Part:
        """Parse `3/8`; raise InvalidArgument that names the option."""
        match = _PART.fullmatch(text)
        if match is not None and 1 <= int(match[1]) <= int(match[2]):
            return cls(int(match[1]), int(match[2]))
        raise InvalidArgument(option, repr(text), allowed="N/M, the N-th of M parts, with N from 1 to M: 3/8")

    def has(self, item: Item) -> bool:
        """Return whether a case falls into this part: all of one operator do, so that machines can share a ledger."""
        group = "runtime" if isinstance(item, RuntimeCheck) else item.operator.name
        return zlib.crc32(group.encode()) % self.count == self.number - 1


@dataclass(frozen=True)
class Choice:
    """A choice of cases: the representative part, or all; of these, perhaps only those with small tensors."""

    quick: bool = False
    small: bool = False

    def of(self, cases: Sequence[Case]) -> list[Case]:
        """Return the chosen cases, in their order."""
        chosen = quick(cases) if self.quick else list(cases)
        return [c for c in chosen if c.sample.size == "small"] if self.small else chosen


def select(
    device: Device,
    choice: Choice,
    operators: Sequence[Operator] | None = None,
    kernels: bool = True,
    runtime: bool = True,
) -> list[Item]:
    """Return the runtime checks and the cases of a device, of all operators or of some, that are chosen."""
    checks = runtime_checks() if runtime else []
    cases = device_cases(device, operators, choice.quick) if kernels else []
    return [*(c for c in checks if c.quick or not choice.quick), *choice.of(cases)]


def summary(reports: Sequence[Report]) -> Mapping[str, Mapping[str, int]]:
    """Return device → verdict → count."""
    return {r.device: {v.value: r.count.get(v, 0) for v in Verdict} for r in reports}
