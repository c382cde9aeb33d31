"""Read a model: parsed and checked. Each operator is read by the version that the model, or its function, states.

Initialisers leave the message first and become arrays, so that checking copies none of them. Small ones stay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ..arguments import regular_file
from ..status import InvalidArgument, IsokernError, quote
from .bounds import UNREAD, Key, check_calls, check_tensors, every_node, key_of_function
from .elements import Array, array_of, is_external, narrow_name, widen
from .external import map_external
from .library import proto
from .node import describe

OLDEST = 1
SMALL = 1 << 12  # bytes of an initialiser that stays in the message
DOMAINS = ("", "ai.onnx")
# What the checker does not know in some versions and that has a meaning nevertheless: the first version without, and
# the first one with a definition
WITHDRAWN = {
    "GroupNormalization": (18, 21),  # its weights are a group's
    "LayerNormalization": (1, 17),  # these two as ONNX Runtime's optimiser writes them
    "SimplifiedLayerNormalization": (1, 1 << 31),
}
HIDDEN = "isokern.not_checked"

Contents: TypeAlias = dict[int, Array]  # bytes of initialisers by their place


@dataclass
class Source:
    """A model's message without its large initialisers, which are `arrays` by name; `narrow` names their types.

    `functions` are those that the model defines itself, `opsets` the versions of its graph.
    """

    message: Any
    arrays: dict[str, Array]
    narrow: dict[str, str]
    opsets: dict[str, int]
    where: str
    functions: dict[Key, Any]


def read(model: Any) -> Source:
    """Return what a path or a ModelProto holds; every fault is a typed error."""
    folder: Path | None = None
    contents: Contents = {}
    if isinstance(model, (str, os.PathLike)):
        where, folder = os.fspath(model), Path(model).parent
        message = _parse(where)
    elif isinstance(model, proto.ModelProto):
        where = model.graph.name or "model"
        message = model
    else:
        raise InvalidArgument("onnx.load", f"a {type(model).__name__}", allowed="a path or an onnx.ModelProto")
    if not message.HasField("graph"):
        raise InvalidArgument(where, "there is no graph", allowed="an ONNX model")
    # Before anything else: the library copies and expands without bounds, and opens files that tensors name
    check_tensors(where, message)
    _check_names(where, message.graph)
    check_calls(where, message)
    if message is model:
        message, contents = _copy(model)
    message.ClearField(UNREAD)
    arrays, narrow = _take_initialisers(where, message, contents, folder)
    unshaped = _shape_outputs(message.graph)
    versions, newest = _versions(where, message), proto.defs.onnx_opset_version()
    for opset in (versions.get("", newest), *(versions_of(f).get("", newest) for f in message.functions)):
        if not OLDEST <= opset <= newest:
            raise InvalidArgument(where, f"opset {opset}", allowed=f"{OLDEST} to {newest}")
    with _translate(where, "the model is not valid"), _hide_withdrawn(message):
        proto.checker.check_model(message, skip_opset_compatibility_check=True)
    for value in message.graph.output:
        if value.name in unshaped:
            value.type.tensor_type.ClearField("shape")
    functions = {key_of_function(f): f for f in message.functions}
    return Source(message, arrays, narrow, versions, where, functions)


@contextmanager
def _hide_withdrawn(message: Any) -> Iterator[None]:
    """Let the checker pass by operators that it does not know in their version."""
    hidden: list[tuple[Any, str]] = []
    owners = [message, *message.functions]
    for owner in owners:
        opset = versions_of(owner).get("", 0)
        lacking = {name for name, (first, last) in WITHDRAWN.items() if first <= opset < last}
        nodes = every_node(owner.graph.node if owner is message else owner.node)
        hidden += [(n, n.domain) for n in nodes if n.op_type in lacking and n.domain in DOMAINS]
        owner.opset_import.add(domain=HIDDEN, version=1)
    for node, _ in hidden:
        node.domain = HIDDEN
    try:
        yield
    finally:
        for node, domain in hidden:
            node.domain = domain
        for owner in owners:
            del owner.opset_import[-1]


@contextmanager
def _translate(where: str, problem: str) -> Iterator[None]:
    """Turn any error of the library in the block into InvalidArgument."""
    try:
        yield
    except IsokernError:
        raise
    except Exception as error:  # of many types, some of them of its native code
        raise InvalidArgument(where, f"{problem}: {' '.join(str(error).split())}") from None


def _parse(where: str) -> Any:
    regular_file("onnx.load", where, exists=True)
    with _translate(where, "the file is not an ONNX model"):
        return proto.load_model(where, load_external_data=False)


def _copy(model: Any) -> tuple[Any, Contents]:
    """Return a message's copy, without the elements of large initialisers, and these by the initialiser's place."""
    message, contents = proto.ModelProto(), Contents()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(message, field.name, value)
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy_field(message.graph, field.name, value)
    for count, tensor in enumerate(model.graph.initializer):
        kept = message.graph.initializer.add()
        raw = tensor.raw_data if tensor.HasField("raw_data") else b""
        if len(raw) <= SMALL:
            kept.CopyFrom(tensor)
            continue
        contents[count] = np.frombuffer(raw, np.uint8)
        for field, value in tensor.ListFields():
            if field.name != "raw_data":
                _copy_field(kept, field.name, value)
    if model.HasField("graph"):
        message.graph.SetInParent()
    return message, contents


def _copy_field(to: Any, name: str, value: Any) -> None:
    held = getattr(to, name)
    if hasattr(held, "MergeFrom"):  # a message, or a row of them or of numbers
        held.MergeFrom(value)
    else:
        setattr(to, name, value)


def _versions(where: str, message: Any) -> dict[str, int]:
    """Return the version of each domain; the two names of the default one are the same."""
    found = versions_of(message)
    if not found:
        raise InvalidArgument(where, "no opset is named", allowed=f"{OLDEST} to {proto.defs.onnx_opset_version()}")
    return found


def versions_of(message: Any) -> dict[str, int]:
    """Return the version of each domain that a model or a function states."""
    return {"" if entry.domain in DOMAINS else entry.domain: entry.version for entry in message.opset_import}


def subgraphs(node: Any) -> Iterator[Any]:
    """Return the graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.type == proto.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def _shape_outputs(graph: Any) -> set[str]:
    """Give results without dims some, which the checker asks for and nobody reads; return their names."""
    found = set()
    for value in graph.output:
        if value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape"):
            value.type.tensor_type.shape.SetInParent()
            found.add(value.name)
    return found


def _take_initialisers(
    where: str, message: Any, contents: Contents, folder: Path | None
) -> tuple[dict[str, Array], dict[str, str]]:
    """Return the arrays of the graph's initialisers; in the message, inputs stand for those that are not small."""
    arrays: dict[str, Array] = {}
    narrow: dict[str, str] = {}
    kept = []
    graph = message.graph
    declared = {value.name for value in graph.input}
    for count, tensor in enumerate(graph.initializer):
        at = f"{where}: initialiser {quote(tensor.name)}"
        if not tensor.name or tensor.name in arrays:
            raise InvalidArgument(at, "the name is missing or taken", allowed="a name of its own")
        array = map_external(at, tensor, folder) if is_external(tensor) else array_of(at, tensor, contents.get(count))
        if (name := narrow_name(array)) is not None:
            narrow[tensor.name] = name
        arrays[tensor.name] = widen(array)
        # ByteSize would go through every byte; what was taken out may be narrow numbers, of which more lie in a byte
        if is_external(tensor) or count in contents or array.nbytes > SMALL:
            if tensor.name not in declared:
                stand = graph.input.add(name=tensor.name)
                stand.type.tensor_type.elem_type = tensor.data_type
                for dim in tensor.dims:
                    stand.type.tensor_type.shape.dim.add(dim_value=dim)
                if not tensor.dims:
                    stand.type.tensor_type.shape.SetInParent()
        else:
            kept.append(tensor)
    if len(graph.sparse_initializer):
        name = graph.sparse_initializer[0].values.name
        raise InvalidArgument(f"{where}: initialiser {quote(name)}", "a sparse tensor", allowed="dense ones")
    small = [tensor.SerializeToString() for tensor in kept]
    del graph.initializer[:]
    for content in small:
        graph.initializer.add().ParseFromString(content)
    return arrays, narrow


def _check_names(where: str, graph: Any) -> None:
    """Raise for names that two results have; a checker does not say which node takes a name again."""
    taken = {value.name for value in (*graph.input, *graph.initializer)}
    for node in graph.node:
        made = [name for name in node.output if name]
        if twice := [name for n, name in enumerate(made) if name in taken or name in made[:n]]:
            at = f"{where}: {describe(node.op_type, node.name, node.output)}, {node.op_type}"
            raise InvalidArgument(at, f"the result's name {quote(twice[0])} is taken", allowed="a name of its own")
        taken.update(made)
        for inner in subgraphs(node):
            _check_names(where, inner)
