"""`isokern check`: the conformance suite on one or more devices, with a matrix of operators and dtypes at the end."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..status import InvalidArgument
from ._output import Json, complain, console, emit, note, quiet, table

if TYPE_CHECKING:
    from ..backend import Device
    from ..conformance.checkout import Checkout
    from ..conformance.items import Item
    from ..conformance.suite import Choice, Report
    from ..oracle.cases import Case
    from ..oracle.verdicts import Outcome

FAILED, NO_CASE = 1, 4
LONGEST_PATIENCE = 1_000_000  # seconds; no timer counts more than some years
SHOWN = 40  # kinds of failures, or reasons of refusals, that are printed one by one


class Aspect(str, Enum):
    """What is judged."""

    KERNELS = "kernels"
    RUNTIME = "runtime"
    ALL = "all"


class _Enough(Exception):
    """Raised to stop: there are as many failures as are wanted, or the time is over."""


def check(
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "-d", help="Device to judge, repeatable; all available ones by default."),
    ] = None,
    op: Annotated[list[str] | None, typer.Option("--op", help="Only this operator, repeatable.")] = None,
    part: Annotated[
        Aspect | None,
        typer.Option(
            "--part",
            help="The operators' results, or memory, streams, capture, workspaces, claims and threads; without it all,"
            " or the operators' alone where operators or a slice are asked for.",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A representative part: every operator and dtype.")] = False,
    turn: Annotated[
        str | None,
        typer.Option(
            "--turn",
            metavar="N/M",
            help="With --quick: every kernel in F32 (or its first dtypes), and other dtypes, and operators that have no"
            " kernel of their own, in the N-th of M turns.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="REF",
            help="Also all cases of the operators whose declaration or kernels differ from this commit; in a checkout.",
        ),
    ] = None,
    slice_: Annotated[
        str | None,
        typer.Option("--slice", metavar="N/M", help="Also the N-th of M parts of all cases, by operator and dtypes."),
    ] = None,
    small: Annotated[
        bool,
        typer.Option(
            "--small", help="Without large tensors, which give many threads work: for simulators of every access."
        ),
    ] = False,
    require: Annotated[
        str | None,
        typer.Option(
            "--require",
            metavar="FILE",
            help="(operator, dtype) pairs that must run, one a line; `all` for every declared one.",
        ),
    ] = None,
    claimed: Annotated[
        bool,
        typer.Option(
            "--claimed", help="What the backend claims must run, with its own kernels: the pairs of its list, else all."
        ),
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option(
            "--case", help="Only the case of this id, or those that match it as a pattern with *; repeatable."
        ),
    ] = None,
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", min=0, help="Worker processes; 0: one a processor, at most 4.")
    ] = 0,
    isolation: Annotated[
        bool, typer.Option("--isolation/--no-isolation", help="Run cases in workers, so that a crash costs one case.")
    ] = True,
    patience: Annotated[
        float,
        typer.Option(
            min=1, max=LONGEST_PATIENCE, help="Seconds that a case may take before its worker counts as hung."
        ),
    ] = 300,
    first: Annotated[bool, typer.Option("-x", "--first", help="End at the first failure.")] = False,
    max_fail: Annotated[int | None, typer.Option(min=1, metavar="N", help="End at the N-th failure.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=1, metavar="SECONDS", help="End with the first case after this time; what was not run is told."
        ),
    ] = None,
    shard: Annotated[
        str | None, typer.Option(metavar="N/M", help="Only the N-th of M parts of the chosen cases: for M machines.")
    ] = None,
    expected_failures: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Case ids or patterns known to fail, a line each: PATTERN # why. If one passes, the check fails.",
        ),
    ] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Write the outcomes to a .jsonl, .xml (JUnit), .md or .html; repeatable."),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="What `isokern bench --json` printed: a column of the .html report."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print the ids of the cases and run none.")] = False,
    json: Json = False,
) -> None:
    """Judge devices: their kernels by the declarations of the operators, and their runtime.

    Exits with 0 when cases ran and none failed, 1 for a failure, 3 for no such device, 4 when no case ran. --quick,
    --since and --slice add up; without any of them all cases run. --small leaves some of the chosen cases out.
    """
    from ..backend.discovery import device as find_device, devices
    from ..conformance.checkout import Checkout
    from ..conformance.expected_failures import ExpectedFailures
    from ..conformance.report_files import check_target, read_measurements, write_report
    from ..conformance.runtime.processes import ENDS
    from ..conformance.suite import Choice, Part, Report, Required, claimed_pairs, group_number, required_pairs, run
    from ..ops import find

    with quiet(json):
        judged = [find_device(name) for name in dict.fromkeys(device)] if device else devices()
        operators = [find(name) for name in dict.fromkeys(op)] if op else None
        needed = {d.name: required_pairs(require, d) if require else Required() for d in judged}
        claims = {d.name: claimed_pairs(d) if claimed else Required() for d in judged}
        for path in report or []:
            check_target(path)
        if times and not any(path.endswith(".html") for path in report or []):
            raise InvalidArgument("--times", "without a page of HTML", hint="add the page: --report FILE.html")
        measurements = read_measurements(times) if times else []
        known = ExpectedFailures.read(expected_failures).reasons if expected_failures else {}
        if turn is not None and not quick:
            raise InvalidArgument(
                "--turn", f"{turn!r} without --quick", hint="--turn chooses among quick cases: add --quick"
            )
        choice = Choice(
            quick,
            None if turn is None else Part.parse("--turn", turn),
            None if slice_ is None else Part.parse("--slice", slice_),
            small=small,
        )
        checkout = None if since is None else Checkout(since)
        kernels = part is not Aspect.RUNTIME
        runtime = not (operators or slice_) if part is None else part is not Aspect.KERNELS
        work = [
            (d, _choose(d, operators, _find_touched(d, checkout, choice), case or [], kernels, runtime)) for d in judged
        ]
    if shard is not None:
        part_of = Part.parse("--shard", shard)
        work = [(d, [c for c in cases if part_of.has(group_number(c))]) for d, cases in work]
    if list_:
        _list(work, json)
        return
    wanted = 1 if first else max_fail
    end = None if budget is None else time.monotonic() + budget
    workers = jobs or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    reports: list[Report] = []

    def is_enough() -> bool:
        """Return whether the failures of all devices are as many as are wanted, or the time is over."""
        full = wanted is not None and sum(len(r.failures) for r in reports) >= wanted
        return full or (end is not None and time.monotonic() > end)

    with quiet(json), _progress(json) as bar:
        for d, cases in work:
            found = Report(d.name, needed[d.name] | claims[d.name], expected=ExpectedFailures(known))
            task = bar.add_task(d.name, total=len(cases))

            def report_progress(c: Item, outcome: Outcome, found: Report = found, task: Any = task) -> None:
                found.add(c, outcome)
                bar.advance(task)
                bar.update(task, description=f"{found.device}, {len(found.failures)} failed")
                if is_enough():
                    raise _Enough

            reports.append(found)
            with suppress(_Enough):
                run(
                    d,
                    cases,
                    report_progress,
                    jobs=min(workers, max(1, len(cases) // 50)),
                    isolated=isolation,
                    patience=patience,
                )
            if left := len(cases) - len(found.outcomes):
                note(f"{d.name}: {left} of {len(cases)} cases were not run")
            if is_enough():
                break
        for d, cases in work[len(reports) :]:
            note(f"{d.name}: none of {len(cases)} cases was run")
    if json:
        emit(document(reports))
    else:
        _print(reports)
    for path in report or []:
        write_report(path, reports, measurements)
    code = FAILED if any(r.failures or r.expected.stale for r in reports) else 0
    if not code and not any(r.ran for r in reports):
        reasons = [*dict.fromkeys(why for r in reports for why in r.refusals.values())][:SHOWN]
        refused = f"every one is unsupported: {'; '.join(reasons) or 'see `isokern why`'}"
        none = "no device is available, or no case was chosen"
        complain(f"no case ran: {refused if any(r.count for r in reports) else none}")
        code = NO_CASE
    if any(o.id == ENDS for r in reports for o in r.failures):
        note("this process has such a device open, too: it ends without the threads and functions at exit")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if code:
        raise typer.Exit(code)


def _find_touched(device: Device, checkout: Checkout | None, choice: Choice) -> Choice:
    """Return the choice with the operators that differ on a device; notes which, and because of which files."""
    import dataclasses

    from ..conformance.changed import find_touched
    from ..ops import all_operators

    if checkout is None:
        return choice
    found = find_touched(device, checkout)
    by_file: dict[str, list[str]] = {}
    for name, path in found.items():
        by_file.setdefault(path, []).append(name)
    every = len(all_operators())
    said = (
        f"{'every operator' if len(names) == every else ', '.join(names)} ({path})" for path, names in by_file.items()
    )
    note(f"{device.name}: all cases of what differs from {checkout.ref}: {'; '.join(said) or 'nothing does'}")
    return dataclasses.replace(choice, operators=frozenset(found))


def _choose(
    device: Device,
    operators: Sequence[Any] | None,
    choice: Choice,
    patterns: Sequence[str],
    kernels: bool,
    runtime: bool,
) -> list[Item]:
    """Return the cases to run; a pattern that matches none is an error with the nearest ids."""
    import difflib
    import fnmatch

    from ..conformance.derive import device_cases
    from ..conformance.runtime.every import runtime_checks
    from ..ops import all_operators

    if patterns and operators is None:  # those that the first parts of the patterns name; all for a part such as *x=3x5
        named = {
            n: [o for o in all_operators() if fnmatch.fnmatchcase(o.name, n)]
            for n in {p.split("/")[0] for p in patterns}
        }
        if all(found or not set(n) & set("*?[") for n, found in named.items()):
            operators = list(dict.fromkeys(o for found in named.values() for o in found))
    cases: list[Case] = device_cases(device, operators) if kernels else []
    checks = runtime_checks() if runtime else []
    if not patterns:
        return [*(c for c in checks if c.quick or not choice.quick), *choice.of(cases)]
    every: list[Item] = [*checks, *cases]
    chosen = {c.id: c for p in patterns for c in every if c.id == p or fnmatch.fnmatchcase(c.id, p)}
    for p in patterns:
        if not any(i == p or fnmatch.fnmatchcase(i, p) for i in chosen):
            near = difflib.get_close_matches(p, [c.id for c in every] or [o.name for o in all_operators()], 3, 0.4)
            raise InvalidArgument(
                "check", f"no case of {device.name} is {p!r}", allowed="; ".join(near) or "see `isokern check --list`"
            )
    return list(chosen.values())


def _list(work: Sequence[tuple[Device, list[Item]]], json: bool) -> None:
    if json:
        emit({d.name: [c.id for c in cases] for d, cases in work})
        return
    for _, cases in work:
        for c in cases:
            typer.echo(c.id)


def _progress(json: bool) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    from rich.console import Console

    shown = sys.stderr.isatty() and not json
    return Progress(*columns, console=Console(stderr=True), disable=not shown, transient=True)


def document(reports: Sequence[Report]) -> dict[str, Any]:
    """Return the JSON form: `summary`, `failures`, the worst errors, and the pairs taken in part, or lowered."""
    from ..conformance.suite import summary

    failures = [
        {
            "id": o.id,
            "device": o.device,
            "verdict": o.verdict.value,
            "detail": o.detail,
            "repro": o.repro,
            "trace": o.trace,
        }
        for r in reports
        for o in r.failures
    ]
    worst = {
        r.device: {t: {"id": o.id, "error": o.error, "share": o.share} for t, o in sorted(r.worst.items())}
        for r in reports
    }
    partial = {
        r.device: [{"operator": p[0], "dtype": p[1], "reason": why} for p, why in r.partial.items()] for r in reports
    }
    lowered = {
        r.device: [{"operator": p[0], "dtype": p[1], "made_of": text} for p, text in r.lowered.items()] for r in reports
    }
    return {"summary": summary(reports), "failures": failures, "worst": worst, "partial": partial, "lowered": lowered}


def _print(reports: Sequence[Report]) -> None:
    from ..conformance.report_files import group_failures

    out = console()
    traced: set[str] = set()  # a traceback is printed once
    for report in reports:
        if report.cells:
            _matrix(report)
        for dtype, o in sorted(report.worst.items(), key=lambda item: -item[1].share):
            out.print(Text(f"worst {dtype}: off by {o.error:.3g}, {o.share:.2f} of its bound: {o.id}"), soft_wrap=True)
        if report.lowered:
            out.print(report.say_lowered(), soft_wrap=True)
        for pair, why in report.partial.items():
            out.print(Text(f"taken in part: {' '.join(pair)}: {why}", style="yellow"), soft_wrap=True)
        groups = group_failures(report)
        for (operator, cause), outcomes in groups[:SHOWN]:
            o = outcomes[0]
            out.print(Text(f"{o.verdict.value}: {o.detail}", style="red"), soft_wrap=True)
            out.print(Text(f"    {o.repro}"), soft_wrap=True)
            if len(outcomes) > 1:
                more = f"    {len(outcomes) - 1} more of {operator} with {cause}; the one above has the fewest elements"
                out.print(Text(more), soft_wrap=True)
            if o.trace and o.detail not in traced:
                traced.add(o.detail)
                out.print(Text("".join(f"    {line}\n" for line in o.trace.splitlines()), style="dim"), soft_wrap=True)
        if len(groups) > SHOWN:
            note(f"{len(groups) - SHOWN} more kinds of failures: --json lists all")
        for pattern, why in report.expected.stale.items():
            out.print(Text(f"expected to fail, and passes: {pattern}: {why}", style="red"), soft_wrap=True)
        if failed := report.expected.failed.total():
            out.print(Text(f"failed as expected: {failed}"), soft_wrap=True)
        counts = ", ".join(f"{n} {v.value}" for v, n in report.count.items())
        out.print(Text(f"{report.device}: {counts or 'no case'}", style="bold"), soft_wrap=True)


_STYLES = {"failed": "red", "refused": "yellow", "lowered": "cyan", "passed": "green"}


def _matrix(report: Report) -> None:
    """Print operators × first dtypes."""
    columns, found = report.tabulate()
    rows = [[operator, *(Text(text, _STYLES.get(kind, "")) for text, kind in cells)] for operator, cells in found]
    table(
        f"{report.device}: cases passed by operator and dtype (~ made of others, ✗ failed, - refused)",
        ["operator", *columns],
        rows,
        right=columns,
    )
