"""`isokern check`: the conformance suite on one or more devices, with a matrix of operators and dtypes at the end."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ..arguments import writable_file
from ..status import InvalidArgument
from ._output import Json, complain, console, emit, note, quiet, table

if TYPE_CHECKING:
    from ..backend import Device
    from ..conformance.items import Item
    from ..conformance.proofs import Proofs
    from ..conformance.suite import Choice, Report
    from ..oracle.verdicts import Outcome

FAILED, NO_CASE = 1, 4
LONGEST_PATIENCE = 1_000_000  # seconds; no timer counts more than some years
SHOWN = 40  # kinds of failures, or reasons of refusals, that are printed one by one


class Aspect(str, Enum):
    """The part of a device that is judged."""

    KERNELS = "kernels"
    RUNTIME = "runtime"
    ALL = "all"


class _Enough(Exception):
    """Raised to stop the run: --max-fail or --budget is reached."""


class _Ended(BaseException):
    """Raised by a signal that asks the process to end; its argument is the signal's number."""


def check(
    device: Annotated[
        list[str] | None,
        typer.Option("--device", "-d", help="A device to judge, repeatable; else all that are available."),
    ] = None,
    op: Annotated[list[str] | None, typer.Option("--op", help="Only this operator, repeatable.")] = None,
    part: Annotated[
        Aspect | None,
        typer.Option(
            "--part",
            help="kernels: the operators' results; runtime: memory, streams, capture, workspaces, claims and threads."
            " By default all, or kernels if operators are named.",
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only a representative part of the cases: every operator and dtype.")
    ] = False,
    small: Annotated[
        bool,
        typer.Option("--small", help="Leave out large tensors: for simulators and checkers of every memory access."),
    ] = False,
    require: Annotated[
        str | None,
        typer.Option(
            "--require",
            metavar="FILE",
            help="A file with the (operator, dtype) pairs that must run, one a line; or `all` that are declared.",
        ),
    ] = None,
    claimed: Annotated[
        bool,
        typer.Option(
            "--claimed",
            help="The pairs in the backend's claims.txt, or all without one, must run with its own kernels.",
        ),
    ] = False,
    case: Annotated[
        list[str] | None,
        typer.Option("--case", help="Only the case with this id, or cases that match a pattern with *; repeatable."),
    ] = None,
    jobs: Annotated[
        int, typer.Option("-j", "--jobs", min=0, help="Worker processes; 0: one a CPU core, at most 4.")
    ] = 0,
    isolation: Annotated[
        bool,
        typer.Option(
            "--isolation/--no-isolation", help="Run cases in worker processes, so that a crash costs only one case."
        ),
    ] = True,
    patience: Annotated[
        float,
        typer.Option(min=1, max=LONGEST_PATIENCE, help="Seconds after which a case counts as hung."),
    ] = 300,
    first: Annotated[bool, typer.Option("-x", "--first", help="Stop at the first failure.")] = False,
    max_fail: Annotated[int | None, typer.Option(min=1, metavar="N", help="Stop at the N-th failure.")] = None,
    budget: Annotated[
        float | None,
        typer.Option(
            min=1,
            metavar="SECONDS",
            help="Stop after the first case that ends later than this, and list what was not run.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="N/M", help="Only the N-th of M parts of the chosen cases, split by operator: for M machines."
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Skip operators that FILE proves for this checkout; add a proof of each that passes.",
        ),
    ] = None,
    proof: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The name of the new proofs in the ledger; else the name of the backend."),
    ] = None,
    findings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The file to which a checker writes its findings: if it has any, nothing is proved."
        ),
    ] = None,
    condition: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help="A further condition of the proofs, such as NAME=VALUE, repeatable; else the settings that are set.",
        ),
    ] = None,
    recheck: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=100,
            metavar="PERCENT",
            help="Also run a random part of the proved cases, to see that the proofs hold.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="The random seed of --recheck.")] = 0,
    expected_failures: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Cases that are known to fail, by id or pattern: PATTERN # why. If one passes, the check fails.",
        ),
    ] = None,
    report: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE", help="Write the outcomes to a .jsonl, .xml (JUnit), .md or .html file; repeatable."
        ),
    ] = None,
    times: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The output of `isokern bench --json`, as a column of the .html report."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Print the ids of the cases and run none.")] = False,
    json: Json = False,
) -> None:
    """Judge devices: their kernels by the declarations of the operators, and their runtime.

    Exits with 0 if cases ran and none failed, or if the ledger proves all of them, 1 for a failure, 3 for an unknown
    device, 4 if no case ran. Ctrl-C and SIGTERM stop it like --budget, with reports; it exits with 130 and 143.
    """
    from ..backend.discovery import device as find_device, devices
    from ..conformance.expected_failures import ExpectedFailures
    from ..conformance.report_files import check_target, read_measurements, write_report
    from ..conformance.runtime.processes import ENDS
    from ..conformance.suite import Choice, Part, Report, Required, claimed_pairs, required_pairs, run
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
        of_ledger = {"--proof": proof, "--findings": findings, "--recheck": recheck, "--condition": condition}
        for option, given in of_ledger.items():
            if given is not None and ledger is None:
                raise InvalidArgument(option, f"{given} without a ledger", hint="name one: --ledger FILE")
        choice = Choice(quick, small)
        kernels = part is not Aspect.RUNTIME
        runtime = not operators if part is None else part is not Aspect.KERNELS
        work = [(d, _choose(d, operators, choice, case or [], kernels, runtime)) for d in judged]
        if shard is not None:
            part_of = Part.parse("--shard", shard)
            work = [(d, [c for c in cases if part_of.has(c)]) for d, cases in work]
        proofs: dict[str, Proofs] = {}
        if ledger is not None:
            if case:
                raise InvalidArgument("--ledger", "with --case", hint="a proof is of all cases: leave one out")
            proofs = _open_ledger(ledger, work, proof, "-quick" * quick + "-small" * small, findings, condition)
            work = [(d, _select_unproved(proofs[d.name], recheck, seed)) for d, _ in work]
    if list_:
        _list(work, json)
        return
    wanted = 1 if first else max_fail
    end = None if budget is None else time.monotonic() + budget
    workers = jobs or min(4, len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    reports: list[Report] = []
    ended = 0  # by this signal

    def is_enough() -> bool:
        """Return whether the failures of all devices are as many as are wanted, or the time is over."""
        full = wanted is not None and sum(len(r.failures) for r in reports) >= wanted
        return full or ended > 0 or (end is not None and time.monotonic() > end)

    with quiet(json), _progress(json) as bar:
        for d, cases in work:
            found = Report(d.name, needed[d.name] | claims[d.name], expected=ExpectedFailures(known))
            proving = proofs.get(d.name)
            task = bar.add_task(d.name, total=len(cases))

            def report_progress(
                c: Item,
                outcome: Outcome,
                found: Report = found,
                task: Any = task,
                proving: Proofs | None = proving,
            ) -> None:
                counted = found.add(c, outcome)
                if proving is not None:
                    proving.add(c, counted)
                bar.advance(task)
                bar.update(task, description=f"{found.device}, {len(found.failures)} failed")
                if is_enough():
                    raise _Enough

            reports.append(found)
            try:
                with suppress(_Enough), _raising_signals():
                    run(
                        d,
                        cases,
                        report_progress,
                        jobs=min(workers, max(1, len(cases) // 50)),
                        isolated=isolation,
                        patience=patience,
                    )
            except _Ended as signalled:
                ended = signalled.args[0]
                note(f"ended by {signal.Signals(ended).name}")
            finally:
                if proving is not None:
                    proving.write()
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
    if any(p.has_findings for p in proofs.values()):
        complain(f"{findings}: a checker found something, so nothing that ran since is proved")
        code = FAILED
    if not code and not any(r.ran for r in reports) and not any(p.proved for p in proofs.values()):
        reasons = [*dict.fromkeys(why for r in reports for why in r.refusals.values())][:SHOWN]
        refused = f"every one is unsupported: {'; '.join(reasons) or 'see `isokern why`'}"
        none = "no device is available, or no case was chosen"
        complain(f"no case ran: {refused if any(r.count for r in reports) else none}")
        code = NO_CASE
    if any(o.id == ENDS for r in reports for o in r.failures):
        note("this process also has such a device open: it ends without the threads and functions at exit")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    if code or ended:
        raise typer.Exit(128 + ended if ended else code)


@contextmanager
def _raising_signals() -> Iterator[None]:
    """Have Ctrl-C and SIGTERM raise `_Ended` in a block of the main thread; one that comes again ends the process."""

    def end(number: int, _: object) -> None:
        for name in kept:
            signal.signal(name, signal.SIG_DFL)
        raise _Ended(number)

    kept = {n: signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        for name in kept:
            signal.signal(name, end)
    except ValueError:  # another thread, which gets no signals
        kept = {}
    try:
        yield
    finally:
        for name, handler in kept.items():
            if signal.getsignal(name) is end:
                signal.signal(name, handler)


def _open_ledger(
    path: Path,
    work: Sequence[tuple[Device, list[Item]]],
    name: str | None,
    part: str,
    findings: Path | None,
    conditions: Sequence[str] | None,
) -> dict[str, Proofs]:
    """Return the proofs of each device; print which lines of the file are ignored."""
    from ..conformance.ledger import Ledger
    from ..conformance.proofs import Proofs, find_tree

    writable_file("--ledger", str(path))
    known = Ledger(path)
    for complaint in known.complaints:
        note(complaint)
    tree = find_tree(Path.cwd())
    return {
        d.name: Proofs(d, known, tree, name or d.name.partition(":")[0] + part, cases, findings, conditions)
        for d, cases in work
    }


def _select_unproved(proofs: Proofs, recheck: float | None, seed: int) -> list[Item]:
    """Return the cases that the ledger does not prove, and a random part of those that it does."""
    note(proofs.describe())
    drawn = proofs.draw(recheck, seed) if recheck else []
    if drawn:
        note(f"{proofs.name}: {len(drawn)} proved cases run again: --recheck {recheck:g} --seed {seed}")
    return [*drawn, *proofs.stale()]


def _choose(
    device: Device,
    operators: Sequence[Any] | None,
    choice: Choice,
    patterns: Sequence[str],
    kernels: bool,
    runtime: bool,
) -> list[Item]:
    """Return the cases to choose from; a pattern that matches none is an error with the nearest ids."""
    import difflib
    import fnmatch

    from ..conformance.derive import device_cases
    from ..conformance.runtime.every import runtime_checks
    from ..conformance.suite import select
    from ..ops import all_operators

    if patterns and operators is None:  # those that the first parts of the patterns name; all for a part such as *x=3x5
        named = {
            n: [o for o in all_operators() if fnmatch.fnmatchcase(o.name, n)]
            for n in {p.split("/")[0] for p in patterns}
        }
        if all(found or not set(n) & set("*?[") for n, found in named.items()):
            operators = list(dict.fromkeys(o for found in named.values() for o in found))
    if not patterns:
        return select(device, choice, operators, kernels, runtime)
    cases = device_cases(device, operators) if kernels else []
    checks = runtime_checks() if runtime else []
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
    text = TextColumn("{task.description}", markup=False)
    columns = (text, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    shown = sys.stderr.isatty() and not json
    return Progress(*columns, console=console(stderr=True), disable=not shown, transient=True)


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
        f"{report.device}: cases passed by operator and dtype (~ decomposed, ✗ failed, - refused)",
        ["operator", *columns],
        rows,
        right=columns,
    )
