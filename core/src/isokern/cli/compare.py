"""`isokern compare`: what differs between two reports of `isokern check`."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from ..arguments import read_text
from ..status import InvalidArgument
from ._output import Json, console, emit

FAILED = 1
LESS_EXACT = 0.05  # as a part of the allowed error: a smaller difference between two runs says nothing


def compare(
    old: Annotated[str, typer.Argument(help="A report that `isokern check --report FILE.jsonl` wrote.")],
    new: Annotated[str, typer.Argument(help="A later report.")],
    json: Json = False,
) -> None:
    """Compare two reports: cases that fail now, that pass now, that are gone or new, and results that are less exact.

    Exits with 1 if a case fails that did not, or is refused that was computed.
    """
    document = find_differences(read_outcomes(old), read_outcomes(new))
    if json:
        emit(document)
    else:
        _show(document)
    if document["worse"]:
        raise typer.Exit(FAILED)


def read_outcomes(path: str) -> dict[str, dict[str, Any]]:
    """Return the outcomes of a report by case."""
    from json import loads

    allowed = "a report of check --report FILE.jsonl"
    lines = read_text("compare", path, allowed=allowed).split("\n")  # what a backend says may have other ends of lines
    try:
        return {f"{o['device']} {o['id']}": _read_outcome(o) for o in map(loads, filter(str.strip, lines))}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        wrong = f"{type(error).__name__}: {error}"
        raise InvalidArgument("compare", f"{path}: {wrong}", allowed=allowed) from None


def _read_outcome(found: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of an outcome that are compared: strings, and a number, whose infinity is a string."""
    return {"verdict": str(found["verdict"]), "detail": str(found["detail"]), "share": float(found["share"])}


def find_differences(old: dict[str, dict[str, Any]], new: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """Return the cases whose verdict or accuracy differs, and those that are in one report alone."""
    both = [case for case in new if case in old]
    ranks = {case: (_rank(old[case]), _rank(new[case])) for case in both}

    def say(case: str) -> dict[str, str]:
        was, is_ = old[case], new[case]
        return {"case": case, "old": was["verdict"], "new": is_["verdict"], "detail": is_["detail"]}

    return {
        "worse": [say(case) for case in both if ranks[case][1] > ranks[case][0]],
        "better": [say(case) for case in both if ranks[case][1] < ranks[case][0]],
        "less_exact": [
            {"case": case, "old": old[case]["share"], "new": new[case]["share"]}
            for case in both
            if ranks[case] == (0, 0) and new[case]["share"] > old[case]["share"] + LESS_EXACT
        ],
        "gone": [case for case in old if case not in new],
        "added": [case for case in new if case not in old],
    }


def _rank(outcome: dict[str, Any]) -> int:
    return {"pass": 0, "lowered": 1, "unsupported": 2}.get(outcome["verdict"], 3)


def _show(document: dict[str, list[Any]]) -> None:
    out = console()
    for name, style in (("worse", "red"), ("better", "green")):
        for case in document[name]:
            detail = f": {case['detail']}" if name == "worse" else ""
            out.print(Text(f"{case['case']}: {case['old']} -> {case['new']}{detail}", style=style), soft_wrap=True)
    for case in document["less_exact"]:
        out.print(
            Text(f"{case['case']}: {case['old']:.2f} -> {case['new']:.2f} of its bound", "yellow"), soft_wrap=True
        )
    counts = ", ".join(f"{len(found)} {name.replace('_', ' ')}" for name, found in document.items())
    out.print(Text(counts, style="bold"), soft_wrap=True)
