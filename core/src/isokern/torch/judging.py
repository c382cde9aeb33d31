"""Judging a graph before it is built: which nodes run here, and why the others do not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend import Device
from ..importing.emission import UnsupportedModel
from ..rewriting.conversion import convert, find_illegal, single
from ..rewriting.rewriter import State
from ..rewriting.target import Target
from ..status import IsokernError
from .elements import check_plain, our_dtype
from .importer import ModuleImporter, Unreadable, value_of
from .library import library as torch


def judge(module: Any, device: Device) -> dict[Any, str]:
    """Return the nodes of a graph that do not run on a device, each with the reason.

    Every node is imported on its own: where one has no counterpart, those that read it go on from what PyTorch says of
    its results.
    """
    importer, reasons = ModuleImporter("judged"), dict[Any, str]()
    for node in module.graph.nodes:
        if node.op == "output":
            continue
        try:
            if node.op == "placeholder":
                importer.found[node] = _stand_in(importer, node.name, value_of(node))
            else:
                importer.run_node(module, node)
        except IsokernError as error:
            reasons[node] = _text(error)
            if node.op == "placeholder":
                importer.found[node] = Unreadable(reasons[node])
        if node in reasons and node.op != "placeholder":
            try:
                importer.found[node] = _stand_in(importer, node.name, value_of(node))
            except IsokernError as error:
                importer.found[node] = Unreadable(_text(error))
    reasons |= _lacking(importer, module, device, reasons)
    return reasons


def _text(error: IsokernError) -> str:
    return f"{error.problem}" + (f"; allowed: {error.allowed}" if error.allowed else "")


def _stand_in(importer: ModuleImporter, name: str, val: Any) -> Any:
    """Return an input, or several, with the dims and the dtype that PyTorch says; numbers by their hints."""
    if isinstance(val, (tuple, list)):
        return [_stand_in(importer, f"{name}.{n}", v) for n, v in enumerate(val)]
    if isinstance(val, torch.Tensor):
        check_plain(name, val)
        return importer.input(name, sizes_of(val.shape), our_dtype(name, val.dtype))
    return hint(val)


def sizes_of(shape: Sequence[Any]) -> tuple[int, ...]:
    """Return dims as numbers; a dim that depends on content is refused by the caller, as it has no hint."""
    return tuple(int(hint(d)) for d in shape)


def hint(number: Any) -> Any:
    """Return what PyTorch has seen a number of dims be."""
    if isinstance(number, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        found = number.node.hint
        if found is None:
            raise UnsupportedModel(str(number), "a size that depends on what tensors hold", allowed="sizes of dims")
        return found
    return number


def _lacking(importer: ModuleImporter, module: Any, device: Device, known: dict[Any, str]) -> dict[Any, str]:
    """Return the nodes whose operators the device lacks, as for dtypes that it does not have."""
    target = Target.of_device(device)
    by_name = {node.name: node for node in module.graph.nodes}
    found: dict[Any, str] = {}
    for op, _why in find_illegal(importer.builder.graph, target):
        node = by_name.get(op.name)
        if node is None or node in known or node in found:
            continue
        specs = [None if v is None else v.spec for v in op.declared]
        try:
            convert(State(single(op.operator, specs, [v.spec for v in op.outputs], op.attrs), {}, target), target)
        except IsokernError as error:
            found[node] = f"{device.name}: {error.problem}"
    return found
