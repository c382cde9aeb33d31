"""`isokern ops`: every operator, what it takes, and the choices of dtypes that each device has a kernel for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..abi.records import REQUIRED, Attr
from ._output import Json, emit, note, quiet, table

if TYPE_CHECKING:
    from ..dtypes import DType


def ops(
    family: Annotated[str | None, typer.Option("--family", help="Only operators of this family.")] = None,
    json: Json = False,
) -> None:
    """Every operator: signature, dtypes, attributes, and what each available device supports."""
    with quiet(json):
        found = rows(family)
    if json:
        emit(found)
    else:
        _list(found)
        note("why a device refuses: isokern why OP --device D")


def rows(family: str | None = None) -> list[dict[str, Any]]:
    """One object an operator, of all or of a family.

    `dtypes` are those that each type variable ranges over, `choices` how many choices of them the operator takes; a
    device's `dtypes` are the choices that it has a kernel for.
    """
    from ..ops import all_operators
    from ..plugins import devices
    from ..support import assignments

    available = devices()  # first: a plug-in may bring operators of its own
    found = []
    for op in all_operators():
        if family not in (None, op.family):
            continue
        found.append(
            {
                "name": op.name,
                "family": op.family,
                "signature": str(op.signature),
                "dtypes": {variable: [d.name for d in allowed] for variable, allowed in op.signature.types.items()},
                "choices": len(assignments(op)),
                "attrs": [_attribute(a) for a in op.attrs.attrs],
                "devices": {d.name: {"dtypes": _names(d.supports(op))} for d in available},
            }
        )
    return found


def _attribute(attr: Attr) -> dict[str, Any]:
    required = attr.default is REQUIRED
    default = None if required else attr.default
    return {
        "name": attr.name,
        "kind": attr.kind,
        "required": required,
        "default": default,
        "allowed": attr.allowed,
        "doc": attr.doc,
    }


def _names(choices: Sequence[Mapping[str, DType]]) -> list[dict[str, str]]:
    return [{variable: d.name for variable, d in choice.items()} for choice in choices]


# For people


def _list(found: Sequence[Mapping[str, Any]]) -> None:
    lines = []
    for row in found:
        taken = [f"{device}: {claims_text(row, device)}" for device in row["devices"]]
        attrs = ", ".join(a["name"] if a["required"] else f"{a['name']}={a['default']}" for a in row["attrs"])
        own = _by_variable([(v, names, None) for v, names in row["dtypes"].items()])
        lines.append([row["name"], row["family"], row["signature"], own, attrs, "\n".join(taken)])
    table(f"{len(lines)} operators", ["name", "family", "signature", "dtypes", "attributes", "devices"], lines)


def claims_text(row: Mapping[str, Any], device: str) -> str:
    """What a device takes of an operator: sets of dtypes for its type variables, each dtype with each of the others."""
    from ..support import products

    taken = row["devices"][device]["dtypes"]
    if not taken or len(taken) == row["choices"]:
        return "all" if taken else "none"
    variables = row["dtypes"]
    parts = products([tuple(choice[v] for v in variables) for choice in taken])
    sets = ([(v, names, variables[v]) for v, names in zip(variables, part, strict=True)] for part in parts)
    return "; ".join(map(_by_variable, sets))


_SETS = (("FLOATS", "floats"), ("NUMBERS", "numbers"), ("INTEGERS", "integers"), ("PLAIN", "all plain"))


def _by_variable(sets: Sequence[tuple[str, Sequence[str], Sequence[str] | None]]) -> str:
    """The dtypes of each type variable, out of those that it ranges over; without its name where there is only one."""
    texts = [(variable, _short(names, whole)) for variable, names, whole in sets]
    return texts[0][1] if len(texts) == 1 else ", ".join(f"{variable}: {text}" for variable, text in texts)


def _short(names: Sequence[str], whole: Sequence[str] | None) -> str:
    """A list of dtypes: `all` of those the variable ranges over, a set's name, what it lacks of all, or one by one."""
    from .. import dtypes

    if whole is not None and set(names) == set(whole):
        return "all"
    for attribute, text in _SETS:
        if set(names) == {d.name for d in getattr(dtypes, attribute)}:
            return text
    listed = " ".join(names)
    lacking = "" if whole is None else "all but " + " ".join(n for n in whole if n not in names)
    return lacking if whole is not None and len(lacking) < len(listed) else listed
