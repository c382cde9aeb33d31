"""`isokern ops`: every operator, what it takes, and the dtypes each available device supports."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..abi.records import REQUIRED, Attr
from ._output import Json, emit, note, quiet, table


def ops(
    family: Annotated[str | None, typer.Option("--family", help="Only operators of this family.")] = None,
    json: Json = False,
) -> None:
    """Every operator: signature, dtypes, attributes, and what each available device supports."""
    with quiet(json):
        found = [row for row in rows() if family in (None, row["family"])]
    if json:
        emit(found)
        return
    lines = []
    for row in found:
        taken = [f"{device}: {_short(dtypes, row['dtypes'])}" for device, dtypes in row["devices"].items()]
        attrs = ", ".join(a["name"] if a["required"] else f"{a['name']}={a['default']}" for a in row["attrs"])
        lines.append([row["name"], row["family"], row["signature"], _short(row["dtypes"]), attrs, "\n".join(taken)])
    table(f"{len(lines)} operators", ["name", "family", "signature", "dtypes", "attributes", "devices"], lines)
    note("why a device refuses: isokern why OP --device D")


def rows() -> list[dict[str, Any]]:
    """One object an operator; `dtypes` are those of its first type variable, of which a device supports some."""
    from ..ops import all_operators
    from ..plugins import devices
    from ..support import principal, support

    available = devices()  # first: a plug-in may bring operators of its own
    found = []
    for op in all_operators():
        found.append(
            {
                "name": op.name,
                "family": op.family,
                "signature": str(op.signature),
                "dtypes": [d.name for d in principal(op)[1]],
                "attrs": [_attribute(a) for a in op.attrs.attrs],
                "devices": {d.name: [e.name for e, why in support(d, op).items() if why is None] for d in available},
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


_SETS = (("FLOATS", "floats"), ("NUMBERS", "numbers"), ("INTEGERS", "integers"), ("PLAIN", "all"))


def _short(names: list[str], whole: list[str] | None = None) -> str:
    """A list of dtypes for people: a set's name where it is one, `all` where it is everything the operator takes."""
    from .. import dtypes

    if not names:
        return "none"
    if names == whole:
        return "all"
    return next(
        (text for attribute, text in _SETS if set(names) == {d.name for d in getattr(dtypes, attribute)}),
        " ".join(names),
    )
