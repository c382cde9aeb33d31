"""`isokern why`: every kernel variant of a device for one call, and its answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from ..layout import TensorDesc
from ..status import InvalidArgument
from ._output import Json, console, emit, quiet, table

if TYPE_CHECKING:
    from ..backend import Device
    from ..declare.attributes import Attr
    from ..declare.operator import Operator, Resolved

GRAMMAR = "NAME=DTYPE[d0,d1,…][:s0,s1,…][@offset], as x=F32[2,3]:1,2@4"
NONE = "Without a tensor: the operator's first sample."


def why(
    op: Annotated[str, typer.Argument(help="The operator.")],
    call: Annotated[
        list[str] | None, typer.Argument(help=f"Tensors {GRAMMAR}; attributes NAME=VALUE; types T=F16. {NONE}")
    ] = None,
    device: Annotated[
        str | None, typer.Option("--device", help="The device; else ISOKERN_DEVICE, or the first that is not emulated.")
    ] = None,
    dtype: Annotated[str | None, typer.Option("--dtype", help="The dtype of the first sample.")] = None,
    json: Json = False,
) -> None:
    """List every variant of an operator on a device, and why it is chosen or declines; else how the call is lowered."""
    from ..backend.discovery import device as find_device
    from ..backend.dispatch import consider
    from ..ops import find

    with quiet(json):
        target = find_device(device)
        operator = find(op)
        resolved = resolve(operator, call or [], dtype)
        _, chosen, answers = consider(target, resolved)
        lowered = _lower(target, resolved) if chosen is None else None
    document = {
        "op": operator.name,
        "device": target.name,
        "inputs": [None if d is None else str(d) for d in resolved.inputs],
        "outputs": [str(d) for d in resolved.outputs],
        "attrs": dict(resolved.attrs),
        "variants": [
            {"variant": a.variant, "priority": a.priority, "chosen": a.chosen, "reason": a.reason or ""}
            for a in answers
        ],
        "lowered": lowered,
    }
    if json:
        emit(document)
    else:
        _show(document, target, operator)


def _show(document: dict[str, Any], device: Device, operator: Operator) -> None:
    from ..backend.dispatch import say_parts

    given = ", ".join("-" if d is None else d for d in document["inputs"])
    attrs = "".join(f" {k}={v}" for k, v in document["attrs"].items())
    title = f"{operator.name}({given}) -> {', '.join(document['outputs'])}{attrs} on {device.name}"
    lines = [
        [v["variant"], v["priority"], Text("chosen", "green") if v["chosen"] else v["reason"]]
        for v in document["variants"]
    ]
    if lines:
        table(title, ["variant", "priority", "answer"], lines, right=["priority"])
    else:
        console().print(f"{title}\n{device.name} has no kernel for {operator.stem}")
    lowered = document["lowered"]
    if lowered is None:
        return
    if lines:
        console().print("no variant takes this call")
    space = f"with {lowered['workspace']} bytes of workspace"
    made = f"{say_parts(lowered['made_of'])}, {space}" if lowered["made_of"] else "not decomposed"
    style = "green" if lowered["chosen"] else "yellow"
    console().print(Text(": ".join(filter(None, (made, lowered["reason"]))), style), soft_wrap=True)


def _lower(device: Device, resolved: Resolved) -> dict[str, Any]:
    """Return how a call that no variant takes is decomposed, with its workspace, or why it is not."""
    from ..runtime.lowered import SETTING, LoweredKernel, is_lowering
    from ..status import NotImplementedOnDevice

    none: dict[str, Any] = {"chosen": False, "made_of": [], "workspace": 0}
    if resolved.operator.decompose is None:
        return {**none, "reason": f"{resolved.operator.name} has no decomposition"}
    try:
        kernel = LoweredKernel(device, resolved)
    except NotImplementedOnDevice as refused:
        return {**none, "reason": refused.problem}
    chosen = is_lowering(resolved.operator.name)
    reason = "" if chosen else f"refused, by {SETTING}=error"
    return {"chosen": chosen, "made_of": list(kernel.made_of), "workspace": kernel.workspace.size, "reason": reason}


def resolve(op: Operator, words: Sequence[str], element: str | None = None) -> Resolved:
    """Return the call that words on the command line describe.

    Without a tensor among them, it is the operator's first sample.
    """
    from ..declare.samples import describe, first_sample, principal
    from ..dtypes import DType, dtype

    inputs = {o.name: o for o in op.signature.inputs}
    outputs = {o.name: o for o in op.signature.outputs}
    attrs, fields = {}, {a.name: a for a in op.attrs.attrs}
    types: dict[str, DType] = {} if element is None else {principal(op)[0]: dtype(element)}
    tensors: dict[str, list[TensorDesc]] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise InvalidArgument(op.name, f"{word!r} has no =", allowed=f"{GRAMMAR}; ATTRIBUTE=VALUE")
        if name in inputs or name in outputs:
            tensors.setdefault(name, []).append(tensor(name, value))
        elif name in fields:
            attrs[name] = attribute(fields[name], value)
        elif name in op.signature.types:
            types[name] = dtype(value)
        else:
            known = [*inputs, *outputs, *fields, *op.signature.types]
            raise InvalidArgument(op.name, f"it has no {name!r}", allowed=", ".join(known))
    if not tensors:
        chosen = {n: types.get(n, allowed[0]) for n, allowed in op.signature.types.items()}
        sample = first_sample(op, chosen)
        ins, outs = describe(op, sample, chosen)
        return op.resolve(ins, outs, {**sample.attrs, **attrs})
    for name, given in tensors.items():
        operand = inputs.get(name) or outputs[name]
        if len(given) > 1 and not operand.variadic:
            raise InvalidArgument(op.name, f"{name} is given {len(given)} times", allowed="once")
    given_inputs: list[TensorDesc | None] = []
    for name, operand in inputs.items():
        given_inputs += tensors.get(name, [] if operand.variadic else [None])
    while given_inputs and given_inputs[-1] is None:
        given_inputs.pop()
    if outputs.keys() <= tensors.keys():
        return op.resolve(given_inputs, [tensors[n][0] for n in outputs], attrs)
    inferred = op.infer(given_inputs, attrs, types)
    return op.resolve(
        given_inputs, [tensors[n][0] if n in tensors else d for n, d in zip(outputs, inferred, strict=True)], attrs
    )


_TENSOR = re.compile(
    r"\s*(\w+)\s*\[([\d,\s]*)\]\s*(?:(?::|strides)\s*\(?([-\d,\s]*?)\)?)?\s*(?:(?:@|offset)\s*(\d+))?\s*"
)


def tensor(name: str, text: str) -> TensorDesc:
    """Return `F32[2,3]:1,2@4` (or as a TensorDesc prints itself) as a TensorDesc."""
    match = _TENSOR.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        element, dims, strides, offset = match.groups()
        shape, steps = _integers(dims), None if strides is None else _integers(strides)
        start = int(offset or 0)
    except ValueError:  # also a malformed number, such as 1-2
        raise InvalidArgument(name, f"{text!r} is not a tensor", allowed=GRAMMAR) from None
    return TensorDesc(element, shape, steps, start)


def _integers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part.strip()]


_WORDS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def attribute(field: Attr, text: str) -> Any:
    """Return the text of an attribute as its Python value; other text is left for the record's own check to refuse."""
    try:
        if field.kind == "int":
            return int(text, 0)
        if field.kind == "float":
            return float(text)
        if field.kind == "ints":
            return tuple(_integers(text.strip("()[] ")))
    except ValueError:
        return text
    return _WORDS.get(text.lower(), text) if field.kind == "bool" else text
