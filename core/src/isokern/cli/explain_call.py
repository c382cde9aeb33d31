"""`isokern explain-call`: what a kernel receives for one call."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..status import InvalidArgument
from ._output import Json, console, emit, quiet, table
from .why import GRAMMAR, resolve

if TYPE_CHECKING:
    from ..declare.operator import Resolved

ALLOWED = f"OPERATOR {GRAMMAR} ATTRIBUTE=VALUE, as 'softmax x=F32[2,3] axis=1'"


def explain_call(
    call: Annotated[
        list[str],
        typer.Argument(
            help=f"The operator, then tensors {GRAMMAR} and attributes NAME=VALUE; one argument or several."
        ),
    ],
    device: Annotated[
        str | None, typer.Option("--device", help="Also show this device's variant and workspace.")
    ] = None,
    json: Json = False,
) -> None:
    """Show a call as its kernel receives it: tensors in normal form, the record of attributes, workspace, aliases."""
    from ..backend.discovery import device as find_device
    from ..ops import find

    name, *words = _split(call)
    with quiet(json):
        operator = find(name)
        resolved = resolve(operator, words)
        document = describe_received(resolved)
        if device is not None:
            document["device"] = _ask(find_device(device), resolved)
    if json:
        emit(document)
    else:
        _show(document)


def _split(call: list[str]) -> list[str]:
    """Return the words of a call, at least one, whether they came as one argument or as several."""
    try:
        words = [word for part in call for word in shlex.split(part)]
    except ValueError as error:  # a quotation mark without its counterpart
        raise InvalidArgument("explain-call", f"{' '.join(call)!r}: {error}", allowed=ALLOWED) from None
    if not words:
        raise InvalidArgument("explain-call", "the call is empty", allowed=ALLOWED)
    return words


def describe_received(resolved: Resolved) -> dict[str, Any]:
    """Return the JSON form: what a kernel of the operator's stem receives for a call."""
    from ..cabi.received import find_siblings, list_fields, list_tensors, say_normal_form

    op = resolved.operator
    return {
        "op": op.name,
        "stem": op.stem,
        "kind": op.kind,
        "shared_with": find_siblings(op),
        "normal_form": say_normal_form(op),
        "tensors": [
            {
                "position": t.position,
                "name": t.name,
                "written": t.written,
                "layout": None if t.desc is None else str(t.desc),
            }
            for t in list_tensors(resolved)
        ],
        "schema": op.attrs.schema,
        "attr_bytes": op.attrs.nbytes,
        "attrs": [
            {"name": f.name, "kind": f.kind, "offset": f.offset, "bytes": f.nbytes, "value": f.value}
            for f in list_fields(op, dict(resolved.attrs))
        ],
        "aliases": list(op.aliases),
        "inout": list(op.inout),
        "constants": list(op.constants),
        "primitive": op.decompose is None,
    }


def _ask(device: Any, resolved: Resolved) -> dict[str, Any]:
    """Return the variant that the device chooses for the call, and its workspace; or why there is none."""
    from ..call.descriptor import Descriptor
    from ..status import NotImplementedOnDevice

    try:
        descriptor = Descriptor(device, resolved)
    except NotImplementedOnDevice as refused:
        return {"name": device.name, "variant": None, "reason": str(refused)}
    need = descriptor.workspace
    workspace = {"bytes": need.size, "alignment": need.alignment, "kind": need.kind}
    return {"name": device.name, "variant": descriptor.variant, "workspace": workspace}


def _show(document: dict[str, Any]) -> None:
    out = console()
    shared = document["shared_with"]
    also = f", whose kernels also compute {', '.join(shared)}" if shared else ""
    title = f"{document['op']} ({document['kind']}): stem {document['stem']}{also}"
    rows = [
        [t["position"], t["name"], "written" if t["written"] else "read", t["layout"] or "absent"]
        for t in document["tensors"]
    ]
    table(title, ["tensor", "operand", "is", "layout in normal form"], rows)
    out.print(document["normal_form"], soft_wrap=True)
    if document["attrs"]:
        fields = [[f["name"], f["kind"], f["offset"], f["bytes"], f["value"]] for f in document["attrs"]]
        named = f"attributes: record {document['schema']} of {document['attr_bytes']} bytes"
        table(named, ["attribute", "kind", "offset", "bytes", "value"], fields, right=["offset", "bytes"])
    else:
        out.print("attributes: none")
    if document["aliases"]:
        out.print(f"the output may be, exactly: {', '.join(document['aliases'])}")
    if document["inout"]:
        out.print(f"read before they are written: {', '.join(document['inout'])}")
    if document["constants"]:
        out.print(f"may come in a packed layout: {', '.join(document['constants'])}")
    out.print("a primitive" if document["primitive"] else f"decomposed: isokern graph decompositions {document['op']}")
    asked = document.get("device")
    if asked is not None and asked["variant"] is None:
        out.print(asked["reason"], soft_wrap=True)
    elif asked is not None:
        need = asked["workspace"]
        kind = f" of {need['kind']} memory, aligned to {need['alignment']}" if need["bytes"] else ""
        out.print(f"{asked['name']}: variant {asked['variant']}, workspace of {need['bytes']} bytes{kind}")
