"""`isokern accuracy`: how exact a device's results are."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from ..arguments import writable_file
from ..status import InvalidArgument
from ._output import Json, complain, emit, note, quiet, table

FAILED = 1


def accuracy(
    device: Annotated[list[str], typer.Option("--device", help="A device, repeatable.")],
    op: Annotated[list[str] | None, typer.Option("--op", help="Only this operator, repeatable.")] = None,
    part: Annotated[
        str,
        typer.Option(
            "--slice", metavar="N/M", help="The part of all F32 numbers on which unary functions are measured."
        ),
    ] = "1/4096",
    cases: Annotated[bool, typer.Option("--cases/--no-cases", help="Also measure the quick cases.")] = True,
    against: Annotated[
        Path | None, typer.Option("--against", help="A table; exit with 1 if an error is larger than in it.")
    ] = None,
    write: Annotated[
        Path | None, typer.Option("--write", help="Write the table; it keeps the rows of other devices.")
    ] = None,
    merge: Annotated[
        bool,
        typer.Option("--merge", help="With --write: keep the table's error if it is larger, as on another CPU."),
    ] = False,
    reason: Annotated[
        str, typer.Option("--reason", help="Why errors grew that --write raises: a sentence for the table.")
    ] = "",
    json: Json = False,
) -> None:
    """Measure the errors of results in ULP, over the quick cases and over a sweep of numbers.

    A ULP is the distance to the next number of the dtype; a correctly rounded result is at most 0.5 off. The exact
    values are the declarations' references in float64; those of unary functions are computed with 40 digits for F64,
    and if float64 cancels. Exits with 1 if an error is larger than its declaration allows, or than in the table of
    --against.
    """
    from ..backend.discovery import device as find_device
    from ..conformance import accuracy as measuring
    from ..conformance.suite import Part
    from ..ops import all_operators, find
    from ..oracle.ulps import load_mpmath

    sweep = Part.parse("--slice", part)
    operators = [find(name) for name in dict.fromkeys(op)] if op else list(all_operators())
    rows: list[Any] = []
    load_mpmath()  # fails now if it is missing, and not after hours of measuring
    for option, given in (("--reason", reason), ("--merge", merge)):
        if given and not write:
            raise InvalidArgument(option, "without a table", hint="it is for the one that --write FILE names")
    if write:
        writable_file("--write", str(write))
    before = measuring.read_table("--write", write) if write and write.exists() else {}
    with quiet(json):
        known = measuring.read_table("--against", against) if against else {}
        for found in dict.fromkeys(find_device(name) for name in device):
            rows += measuring.measure_cases(found, operators) if cases else []
            rows += measuring.measure_sweep(found, operators, sweep)
        worse = measuring.find_worse(rows, known)
    if not rows:
        raise InvalidArgument(
            "accuracy",
            "nothing was measured: the devices compute none of the operators, or these are exact",
            hint="see `isokern ops`; --no-cases leaves functions of one number alone",
        )
    if json:
        emit({"rows": [asdict(r) for r in rows], "worse": worse})
    else:
        columns = ["operator", "dtype", "device", "source", "values", "largest", "mean", "at"]
        cells = [
            [r.operator, r.dtype, r.device, r.source, r.values, f"{r.largest:.3f}", f"{r.mean:.4f}", r.at] for r in rows
        ]
        table("errors in ULP", columns, cells, right=["values", "largest", "mean"])
    if write:
        _write(write, measuring.keep_larger(rows, before) if merge else rows, before, reason)
    for line in worse:
        complain(line)
    if worse:
        note("to accept a larger error, write the table again: --write FILE --reason 'why it is less exact'")
        raise typer.Exit(FAILED)


def _write(path: Path, rows: list[Any], before: dict[Any, Any], reason: str) -> None:
    """Write the table, which had the rows `before`; an error that grew needs a reason."""
    from ..conformance import accuracy as measuring

    without = measuring.keep_reasons(rows, before, reason)
    if without:
        raise InvalidArgument(
            "--write",
            f"{len(without)} errors are larger than in {path}: {without[0]}",
            hint="say why: --reason 'a sentence'",
        )
    measured = {row.key: row for row in rows}
    measuring.write_table(path, [*(row for key, row in before.items() if key not in measured), *rows])
