"""Control flow whose course is known when the graph is built: the branch of an If, Loop and Scan step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..graph.ir import Value
from ..status import InvalidArgument
from .node import Node, OperandScope, Output, shape_of

MAX_STEPS = 10_000  # of a loop that is unrolled


def _run(node: Node, graph: Any, outer: OperandScope, given: Sequence[Any]) -> list[Any]:
    """Import a graph in the scope around it, with operands for its inputs, and return what it gives."""
    scope = OperandScope(outer)
    if len(given) != len(graph.input):
        raise InvalidArgument(node.op_type, f"{len(given)} operands of a graph", allowed=f"{len(graph.input)}")
    for value, operand in zip(graph.input, given, strict=True):
        scope[value.name] = operand
        scope.narrow.pop(value.name, None)
    node.importer.run_graph(graph, scope)
    return node.importer.results_of(node.op_type, graph, scope)


def run_if(node: Node, scope: OperandScope) -> list[Output]:
    """Import one of the branches."""
    return _run(node, node.graphs["then_branch" if node.number(0) else "else_branch"], scope, [])


def run_loop(node: Node, scope: OperandScope) -> list[Output]:
    """Import the body once for each step: inputs are the trip count, the first condition, and the carried values."""
    body = node.graphs["body"]
    steps = int(node.number(0)) if node.has(0) else None
    going = bool(node.number(1)) if node.has(1) else True
    carried: list[Any] = list(node.inputs[2:])
    kept = len(carried)
    parts: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - kept)]
    i = 0
    while going and (steps is None or i < steps):
        if i >= MAX_STEPS:
            raise InvalidArgument(node.op_type, f"more than {MAX_STEPS} steps", allowed="a loop that can be unrolled")
        outputs = _run(node, body, scope, [np.asarray(i, np.int64), np.asarray(going), *carried])
        condition, carried = outputs[0], outputs[1 : 1 + kept]
        if isinstance(condition, Value):
            node.need(condition, "the condition to go on")
        going = bool(np.asarray(condition).reshape(-1)[0])
        for part, found in zip(parts, outputs[1 + kept :], strict=True):
            part.append(found)
        i += 1
    if not i and parts:
        raise node.refuse("a loop of no steps, whose results have no shape")
    return [*carried, *(node.emit("stack", *part, axis=0) for part in parts)]


def run_scan(node: Node, scope: OperandScope) -> list[Output]:
    """Import the body once for each part of the scanned inputs."""
    body, count = node.graphs["body"], int(node.attrs["num_scan_inputs"])
    kept = len(node.inputs) - count
    scanned = [node.x(kept + n) for n in range(count)]
    axes = [node.axis(a, len(shape_of(x))) for a, x in zip(_each(node, "scan_input_axes", count), scanned, strict=True)]
    back = _each(node, "scan_input_directions", count)
    results = len(body.output) - kept
    out_back, out_axes = _each(node, "scan_output_directions", results), _each(node, "scan_output_axes", results)
    lengths = {shape_of(x)[a] for x, a in zip(scanned, axes, strict=True)}
    if len(lengths) != 1:
        raise InvalidArgument(node.op_type, f"lengths {sorted(lengths)} of scanned inputs", allowed="one length")
    (steps,) = lengths
    if not 0 < steps <= MAX_STEPS:
        raise node.refuse(f"{steps} steps", f"1 to {MAX_STEPS}")
    carried: list[Any] = list(node.inputs[:kept])
    parts: list[list[Any]] = [[] for _ in range(results)]
    for i in range(steps):
        given = []
        for x, axis, reverse in zip(scanned, axes, back, strict=True):
            at = steps - 1 - i if reverse else i
            part = node.emit("slice", x, starts=(at,), ends=(at + 1,), axes=(axis,))
            given.append(node.emit("squeeze", part, axes=(axis,)))
        outputs = _run(node, body, scope, [*carried, *given])
        carried = outputs[:kept]
        for part_list, found in zip(parts, outputs[kept:], strict=True):
            part_list.append(found)
    stacked = [
        node.emit("stack", *(p[::-1] if reverse else p), axis=axis)
        for p, reverse, axis in zip(parts, out_back, out_axes, strict=True)
    ]
    return [*carried, *stacked]


def _each(node: Node, name: str, count: int) -> list[int]:
    """Return an attribute of one number for each of `count`, 0 by default."""
    found = [int(v) for v in node.attrs.get(name, [0] * count)]
    if len(found) != count:
        raise InvalidArgument(node.op_type, f"{name} {found}", allowed=f"{count} numbers")
    return found


CONTROL: dict[str, Callable[[Node, Any], list[Output]]] = {"If": run_if, "Loop": run_loop, "Scan": run_scan}
