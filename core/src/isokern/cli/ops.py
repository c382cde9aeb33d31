"""`isokern ops`: every operator and the choices of dtypes that each device has kernels for; or one in full."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..declare.attributes import REQUIRED, Attr
from ..status import InvalidArgument
from ._output import Json, console, emit, note, quiet, table

if TYPE_CHECKING:
    from ..backend import Device
    from ..declare.operator import Operator
    from ..dtypes import DType


def ops(
    op: Annotated[
        str | None,
        typer.Argument(help="Print one operator in full, by its name here or in ONNX, ggml, InfiniCore or PyTorch."),
    ] = None,
    family: Annotated[str | None, typer.Option("--family", help="Only operators of this family.")] = None,
    json: Json = False,
) -> None:
    """List every operator: signature, dtypes, attributes, and what each available device supports."""
    if op is not None and family is not None:
        raise InvalidArgument("ops", f"{op} and --family {family}", allowed="one of the two")
    with quiet(json):
        names, told = ([], []) if op is None else _translate(op)
        found = rows(None, family) if op is None else [row for name in names for row in rows(name)]
    if json:
        emit(found)
    elif op is not None:
        for line in told:
            note(line)
        for row in found:
            _show(row)
    else:
        _list(found)
    if not json:
        note("why a device refuses: isokern why OP --device D")


def _translate(name: str) -> tuple[list[str], list[str]]:
    """Return the operators of that name, here or in another library, and notes on how they differ."""
    from ..backend.discovery import devices
    from ..ops import all_operators, find
    from ..ops.aliases import ALIASES
    from ..ops.peers import find_peer_names

    devices()  # since a plug-in may bring operators of its own
    known, here = find_peer_names(name), name in {op.name for op in all_operators()}
    if name in ALIASES and not here:
        return list(ALIASES[name]), [_tell(name)]
    if here or not known:
        return [find(name).name], []
    told = [f"{p.peer}'s {p.name}: {', '.join(filter(None, [' and '.join(p.operators), p.note]))}" for p in known]
    names = list(dict.fromkeys(n for p in known for n in p.operators))
    if not names:
        raise InvalidArgument("ops", repr(name), allowed="operators that are here", hint="; ".join(told))
    return names, told


def _tell(name: str) -> str:
    """Return how a function of Isokern's that is not an operator is called, and its first line."""
    from ..eager.functions import function

    made = function(name)
    given = inspect.signature(made)
    plain = [p.replace(annotation=p.empty) for p in given.parameters.values()]
    shown = given.replace(parameters=plain, return_annotation=given.empty)
    return f"isokern.{name}{shown}: {(inspect.getdoc(made) or '').partition(chr(10))[0]}"


def rows(name: str | None = None, family: str | None = None) -> list[dict[str, Any]]:
    """Return one object for each operator: of all, of the one called `name`, or of a family.

    `dtypes` are those that each type variable ranges over, `choices` is how many choices of them the operator takes; a
    device's `dtypes` are the choices that it has a kernel for, `lowered` those for which the operator is
    decomposed, and its `workspace` is the kind of memory that each kernel variant may need scratch memory of. `aliases`
    are inputs that an output may be, `functions` the eager functions. `cost` is that of the operator's first sample.
    """
    from ..backend.discovery import devices
    from ..declare.samples import assignments
    from ..ops import all_operators, find

    available = devices()  # first, since a plug-in may bring operators of its own
    found = []
    for op in all_operators() if name is None else [find(name)]:
        if family not in (None, op.family):
            continue
        found.append(
            {
                "name": op.name,
                "family": op.family,
                "kind": op.kind,
                "kind_id": op.kind_id,
                "schema": op.attrs.schema,
                "schema_id": op.attrs.schema_id,
                "signature": str(op.signature),
                "doc": op.doc,
                "dtypes": {variable: [d.name for d in allowed] for variable, allowed in op.signature.types.items()},
                "choices": len(assignments(op)),
                "attrs": [_attribute(a) for a in op.attrs.attrs],
                "aliases": list(op.aliases),
                "functions": _functions(op),
                "cost": _cost(op),
                "devices": {d.name: _claims(d, op) for d in available},
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


def _functions(op: Operator) -> list[str]:
    from ..eager.functions import functions_of

    return functions_of(op)


def _cost(op: Operator) -> dict[str, Any]:
    """Return operations (None where undeclared) and bytes read and written of the first sample, in F32 if possible."""
    from ..declare.samples import assignments, describe, principal
    from ..dtypes import F32
    from ..measure.sizes import bytes_moved

    variable, allowed = principal(op)
    types = assignments(op, {variable: F32 if F32 in allowed else allowed[0]})[0]
    sample = op.samples()[0]
    inputs, outputs = describe(op, sample, types)
    return {
        "inputs": [None if d is None else str(d) for d in inputs],
        "outputs": [str(d) for d in outputs],
        "attrs": dict(sample.attrs),
        "flops": None if op.flops is None else op.flops(inputs, outputs),
        "bytes": bytes_moved(op, inputs, outputs),
    }


def _claims(device: Device, op: Operator) -> dict[str, Any]:
    from ..declare.samples import assignments
    from ..runtime.lowered import can_lower

    taken = device.supports(op)
    made = [choice for choice in assignments(op) if choice not in taken and can_lower(device, op, choice)]
    return {
        "dtypes": [_names(choice) for choice in taken],
        "lowered": [_names(choice) for choice in made],
        "workspace": {v.name: v.workspace for v in device.variants(op.stem)},
    }


def _names(choice: Mapping[str, DType]) -> dict[str, str]:
    return {variable: element.name for variable, element in choice.items()}


# Output for people


def _list(found: Sequence[Mapping[str, Any]]) -> None:
    lines = []
    for row in found:
        taken = [f"{device}: {claims_text(row, device)}" for device in row["devices"]]
        attrs = ", ".join(a["name"] if a["required"] else f"{a['name']}={a['default']}" for a in row["attrs"])
        own = _by_variable([(v, names, None) for v, names in row["dtypes"].items()])
        lines.append([row["name"], row["family"], row["signature"], own, attrs, "\n".join(taken)])
    table(f"{len(lines)} operators", ["name", "family", "signature", "dtypes", "attributes", "devices"], lines)


def _show(row: Mapping[str, Any]) -> None:
    out, cost = console(), row["cost"]
    out.print(Text(f"{row['name']}: {row['signature']}", style="bold"), soft_wrap=True)
    out.print(Text(row["doc"]))
    for variable, names in row["dtypes"].items():
        out.print(Text(f"{variable}: {', '.join(names)}"))
    out.print(Text(f"out may be {' or '.join(row['aliases']) or 'no input'}"))
    out.print(Text(f"functions: {', '.join(row['functions']) or 'none'}"))
    schema = f"schema {row['schema']} ({row['schema_id']:#x})" if row["schema"] else "no attributes"
    out.print(Text(f"family {row['family']}; kind {row['kind']} ({row['kind_id']:#x}); {schema}"))
    operands = ["-" if d is None else d for d in cost["inputs"]]
    given = ", ".join([*operands, *(f"{name}={value}" for name, value in cost["attrs"].items())])
    flops = "" if cost["flops"] is None else f"{cost['flops']:g} operations, "
    out.print(Text(f"cost of ({given}) -> {', '.join(cost['outputs'])}: {flops}{cost['bytes']} bytes"))
    if row["attrs"]:
        defaults = ["required" if a["required"] else str(a["default"]) for a in row["attrs"]]
        told = [[a["name"], a["allowed"], default, a["doc"]] for a, default in zip(row["attrs"], defaults, strict=True)]
        table("Attributes", ["name", "takes", "default", ""], told)
    devices = [[d, claims_text(row, d), _spaces(claims["workspace"])] for d, claims in row["devices"].items()]
    table("Devices", ["device", "dtypes", "workspace"], devices)


def _spaces(kinds: Mapping[str, str | None]) -> str:
    """Return the kinds of memory of the variants' workspaces, as text."""
    told = {None: "not told", "": "none"}
    return ", ".join(dict.fromkeys(told.get(kind, f"{kind} memory") for kind in kinds.values())) or "-"


def claims_text(row: Mapping[str, Any], device: str) -> str:
    """Return the dtypes of an operator that a device takes, as text: by its own kernels, then decomposed.

    These are sets of dtypes for its type variables, each dtype with each of the others.
    """
    claims = row["devices"][device]
    own, lowered = _choices(row, claims["dtypes"]), _choices(row, claims["lowered"])
    if not claims["lowered"]:
        return own
    return f"decomposed: {lowered}" if not claims["dtypes"] else f"{own}; decomposed: {lowered}"


def _choices(row: Mapping[str, Any], taken: Sequence[Mapping[str, str]]) -> str:
    """Return choices of dtypes as text: `all`, `none`, or sets of them."""
    from ..declare.samples import products

    if not taken or len(taken) == row["choices"]:
        return "all" if taken else "none"
    variables = row["dtypes"]
    parts = products([tuple(choice[v] for v in variables) for choice in taken])
    sets = ([(v, names, variables[v]) for v, names in zip(variables, part, strict=True)] for part in parts)
    return "; ".join(map(_by_variable, sets))


_SETS = (("FLOATS", "floats"), ("NUMBERS", "numbers"), ("INTEGERS", "integers"), ("PLAIN", "all plain"))


def _by_variable(sets: Sequence[tuple[str, Sequence[str], Sequence[str] | None]]) -> str:
    """Return the dtypes of each type variable as text, with its name if there are several.

    Each set is (variable, dtypes, the dtypes that the variable ranges over).
    """
    texts = [(variable, _short(names, whole)) for variable, names, whole in sets]
    return texts[0][1] if len(texts) == 1 else ", ".join(f"{variable}: {text}" for variable, text in texts)


def _short(names: Sequence[str], whole: Sequence[str] | None) -> str:
    """Return a list of dtypes as short text: `all`, a set's name, all but those it lacks, or one by one."""
    from .. import dtypes

    if whole is not None and set(names) == set(whole):
        return "all"
    for attribute, text in _SETS:
        if set(names) == {d.name for d in getattr(dtypes, attribute)}:
            return text
    listed = " ".join(names)
    lacking = "" if whole is None else "all but " + " ".join(n for n in whole if n not in names)
    return lacking if whole is not None and len(lacking) < len(listed) else listed
