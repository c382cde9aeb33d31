"""Bounds on a model's message, checked before the library copies, checks or expands it.

The library opens the file that any tensor names, relative to the working directory, and a kilobyte of functions that
call functions twice is as many nodes as it likes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from ..dtypes import DType
from ..status import InvalidArgument, quote
from .elements import is_external
from .library import proto

MAX_DEPTH = 32  # graphs within graphs
MAX_NODES = 200_000  # with those of functions and loops, each time
MAX_CALLS = 64  # functions within functions
MAX_BYTES = 1 << 30  # of the nodes when functions are expanded: half of what a message can have

MAX_ASKED = 64  # values of a run for which the building of the rest waits
KNOWN_INTEGERS = 1 << 16  # elements of an input, or of a value that is asked for, whose content is built in
UNREAD = "training_info"

Key = tuple[str, str, str]  # a function's domain, name and overload


def most_known(dtype: DType) -> int:
    """Return how many elements an input may have whose content is built into a program.

    Floats are others in each run, so what follows from them is asked for.
    """
    return 0 if dtype.kind == "f" else KNOWN_INTEGERS


def check_tensors(where: str, message: Any) -> None:
    """Raise for graphs too deep, and for tensors in files, unless they are initialisers of the model's graph.

    Every tensor is found, wherever the format lets one be: the fields that lead to one follow from its definition.
    What is said of training is not looked at: it is not read.
    """
    waiting: list[tuple[Any, str, int]] = [(message, "", 0)]
    while waiting:
        at, place, depth = waiting.pop()
        kind = at.DESCRIPTOR.full_name
        if kind == _TENSOR:
            if is_external(at):
                what = f"{where}: {place or f'tensor {quote(at.name)}'}"
                raise InvalidArgument(what, "a tensor in a file", allowed="initialisers of the model's graph")
            continue
        if kind == _NODE:
            place = f"{at.op_type} {quote(at.name)}"
        depth += kind == _GRAPH
        if depth > MAX_DEPTH + 1:
            raise InvalidArgument(where, "graphs within graphs", allowed=f"a depth of {MAX_DEPTH}")
        for name, repeated in _leading()[kind]:
            if name == UNREAD or (name == "initializer" and kind == _GRAPH and at is message.graph):
                continue
            if repeated:
                waiting += [(part, place, depth) for part in getattr(at, name)]
            elif at.HasField(name):
                waiting.append((getattr(at, name), place, depth))


_TENSOR, _GRAPH, _NODE = (m.DESCRIPTOR.full_name for m in (proto.TensorProto, proto.GraphProto, proto.NodeProto))


@lru_cache(maxsize=1)
def _leading() -> Mapping[str, list[tuple[str, bool]]]:
    """Message type → its fields that lead to a tensor, and whether each is repeated."""
    inner: dict[str, list[Any]] = {}
    waiting = [proto.ModelProto.DESCRIPTOR]
    while waiting:
        at = waiting.pop()
        if at.full_name not in inner:
            inner[at.full_name] = [field for field in at.fields if field.message_type is not None]
            waiting += [field.message_type for field in inner[at.full_name]]
    leads = {_TENSOR}
    while more := {k for k, fields in inner.items() if any(f.message_type.full_name in leads for f in fields)} - leads:
        leads |= more
    return {
        kind: [(f.name, _is_repeated(f)) for f in fields if f.message_type.full_name in leads]
        for kind, fields in inner.items()
    }


def _is_repeated(field: Any) -> bool:
    """Return whether a field has several values; protobuf has two names for that, of which each version has one."""
    found = getattr(field, "is_repeated", None)
    return bool(field.label == field.LABEL_REPEATED if found is None else found)


def check_calls(where: str, message: Any) -> None:
    """Raise if the model's functions call each other in a circle or too deeply, or expand to too much."""
    if not message.functions:
        return
    functions: dict[Key, Any] = {key_of_function(f): f for f in message.functions}
    sizes: dict[Key, tuple[int, int, int]] = {}  # nodes, bytes and depth of an expanded function
    waiting = list(functions)
    open_: set[Key] = set()
    while waiting:
        key = waiting[-1]
        if key in sizes:
            waiting.pop()
            open_.discard(key)
            continue
        nodes = list(every_node(functions[key].node))
        lacking = [k for k in map(key_of, nodes) if k in functions and k not in sizes]
        if not lacking:
            sizes[key] = _measure(nodes, sizes)
        elif key in open_:
            raise InvalidArgument(where, f"function {quote(key[1])} calls itself", allowed="calls of other functions")
        else:
            open_.add(key)
            waiting += lacking
    count, size, depth = _measure(list(every_node(message.graph.node)), sizes)
    limits = [(count, MAX_NODES, "nodes"), (size, MAX_BYTES, "bytes"), (depth, MAX_CALLS, "calls within calls")]
    for found, most, what in limits:
        if found > most:
            given = f"{found:.3g} {what}, once its functions are expanded"
            raise InvalidArgument(where, given, allowed=f"{most} {what}")


def every_node(nodes: Any) -> Iterator[Any]:
    """Yield nodes, and those of the graphs within them."""
    for node in nodes:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else ()), *attribute.graphs):
                yield from every_node(inner.node)


def key_of(node: Any) -> Key:
    """Return the key of the function that a node may call."""
    return node.domain, node.op_type, node.overload


def key_of_function(function: Any) -> Key:
    """Return the key by which nodes call a function."""
    return function.domain, function.name, function.overload


def _measure(nodes: list[Any], sizes: Mapping[Key, tuple[int, int, int]]) -> tuple[int, int, int]:
    """Return nodes, bytes and depth of a list of nodes whose calls are expanded."""
    called = [sizes[key] for key in map(key_of, nodes) if key in sizes]
    count = len(nodes) - len(called) + sum(n for n, _, _ in called)
    size = sum(node.ByteSize() for node in nodes) + sum(b for _, b, _ in called)
    return count, size, 1 + max((d for _, _, d in called), default=-1)
