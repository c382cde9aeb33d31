"""Control flow: the branch of an If, Loop and Scan step by step; a course that is not known is asked for.

A loop that would be too long step by step, or whose length a run decides, is a program that runs again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from ..dtypes import I64, DType
from ..graph.ir import Value
from ..status import InvalidArgument, IsokernError
from .elements import NARROW, element_name, our_dtype
from .node import Node, Operand, OperandScope, Output, Parts, Ragged, UnsupportedModel, dtype_of, shape_of
from .reader import subgraphs
from .segments import LONGEST, Scanned

MAX_STEPS = 10_000  # of a loop that is unrolled
MAX_UNROLLED = 20_000  # nodes that a loop of known length is unrolled to
Kinds: TypeAlias = "list[str | None]"  # narrow types of operands


def _run(
    node: Node, graph: Any, outer: OperandScope, given: Sequence[Any], kinds: Sequence[str | None]
) -> tuple[list[Any], Kinds]:
    """Import a graph in the scope around it, with operands for its inputs, and return what it gives, and the types."""
    scope = OperandScope(outer)
    if len(given) != len(graph.input):
        raise InvalidArgument(node.op_type, f"{len(given)} operands of a graph", allowed=f"{len(graph.input)}")
    for value, operand, kind in zip(graph.input, given, kinds, strict=True):
        scope.enter(value.name, operand, kind)
    node.importer.run_graph(graph, scope)
    return node.importer.results_of(node.op_type, graph, scope)


def run_if(node: Node, scope: OperandScope) -> list[Output]:
    """Import one of the branches, or both if the condition is known only when the model runs."""
    condition = node.x()
    if isinstance(condition, Value) and not node.importer.may_be_known(condition):
        outputs = _run_both(node, scope, condition)
        if outputs is not None:
            return outputs
    outputs, node.each = _run(node, node.graphs["then_branch" if node.number(0) else "else_branch"], scope, [], [])
    return outputs


def _run_both(node: Node, scope: OperandScope, condition: Value) -> list[Output] | None:
    """Import both branches, and choose between their results; None unless these are alike and neither may fail."""
    before, restore = node.importer.count_emitted(), node.importer.checkpoint()
    try:
        with node.importer.without_asking():
            (yes, node.each), (no, others) = (
                _run(node, node.graphs[name], scope, [], []) for name in ("then_branch", "else_branch")
            )
    except IsokernError:  # of a branch that perhaps is not taken
        restore()
        return None
    pairs = list(zip(yes, no, strict=True))
    tensors = all(isinstance(x, (Value, np.ndarray)) for pair in pairs for x in pair)
    alike = tensors and all((shape_of(a), dtype_of(a)) == (shape_of(b), dtype_of(b)) for a, b in pairs)
    if not alike or node.each != others or node.importer.may_fail(before):
        restore()
        return None
    chosen = node.reshape(condition, ())
    return [node.emit("where", chosen, a, b) for a, b in pairs]


def run_loop(node: Node, scope: OperandScope) -> list[Output]:
    """Import the body once for each step: inputs are the trip count, the first condition, and the carried values."""
    body = node.graphs["body"]
    decided = [x for x in (node.get(0), node.get(1)) if _is_decided(node, x)]
    if decided and (found := _run_while(node, scope, decided)) is not None:
        return found
    steps = int(node.number(0)) if node.has(0) else None
    going = bool(node.number(1)) if node.has(1) else True
    carried: list[Any] = list(node.inputs[2:])
    kept, node.each = len(carried), node.elements[2:]
    if going and steps is not None and steps <= LONGEST and _is_long(body, steps):
        joined = [(0, False)] * (len(body.output) - 1 - kept)
        return _run_as_program(node, scope, body, steps, carried, [], joined)
    parts: list[list[Any]] = [[] for _ in range(len(body.output) - 1 - kept)]
    i, restarted = 0, False
    while going and (steps is None or i < steps):
        if i >= MAX_STEPS:
            raise InvalidArgument(node.op_type, f"more than {MAX_STEPS} steps", allowed="a loop that can be unrolled")
        given = [np.asarray(i, np.int64), np.asarray(going), *carried]
        outputs, kinds = _run(node, body, scope, given, [None, None, *node.each[:kept]])
        condition, carried, node.each = outputs[0], outputs[1 : 1 + kept], kinds[1:]
        if _is_decided(node, condition) and not restarted:
            restarted = True
            if (whole := _run_while(node, scope, [condition])) is not None:
                return whole
        if isinstance(condition, Value):
            condition = node.know(condition, "the condition to go on")
        going = bool(np.asarray(condition).reshape(-1)[0])
        for part, found in zip(parts, outputs[1 + kept :], strict=True):
            part.append(_check_part(node, found))
        i += 1
    if not i and parts:
        given = [np.asarray(0, np.int64), np.asarray(True), *carried]
        return [*carried, *_join_nothing(node, scope, body, given, [None, None, *node.each], [0] * len(parts))]
    return [*carried, *(node.emit("stack", *part, axis=0) for part in parts)]


def _is_decided(node: Node, x: Any) -> bool:
    """Return whether a run decides what an operand is: it depends on inputs that cannot be part of a program."""
    return isinstance(x, Value) and not node.importer.may_be_known(x)


def _run_while(node: Node, scope: OperandScope, decided: Sequence[Any]) -> list[Output] | None:
    """Import a Loop whose length a run decides as a program; None if what it carries or gives changes its dims.

    `decided` are the values that a run decides, of the trip count and the conditions.
    """
    body, restore, each = node.graphs["body"], node.importer.checkpoint(), node.each
    carried = list(node.inputs[2:])
    joined = [(0, False)] * (len(body.output) - 1 - len(carried))
    trip, going = node.tensor(0), node.tensor(1)
    steps: Any = LONGEST + 1 if trip is None else int(node.number(0)) if not _is_decided(node, trip) else trip
    if isinstance(going, np.ndarray) and not going.all():
        steps = 0
    origins = frozenset[str]().union(*(node.importer.origins[x] for x in decided))
    try:
        return _run_as_program(node, scope, body, steps, carried, [], joined, going, origins)
    except UnsupportedModel:
        restore()
        node.each = each
        return None


def run_scan(node: Node, scope: OperandScope) -> list[Output]:
    """Import the body once for each part of the scanned inputs."""
    if node.version < 9:
        return _run_batches(node, scope)
    body, count = node.graphs["body"], int(node.attrs["num_scan_inputs"])
    kept = len(node.inputs) - count
    scanned = [node.x(kept + n) for n in range(count)]
    axes = [node.axis(a, len(shape_of(x))) for a, x in zip(_each(node, "scan_input_axes", count), scanned, strict=True)]
    back = _each(node, "scan_input_directions", count)
    results = len(body.output) - kept
    out_back, out_axes = _each(node, "scan_output_directions", results), _each(node, "scan_output_axes", results)
    pairs = list(zip(scanned, axes, strict=True))
    lengths = {shape_of(x)[a] for x, a in pairs}
    if len(lengths) != 1:
        raise InvalidArgument(node.op_type, f"lengths {sorted(lengths)} of scanned inputs", allowed="one length")
    (steps,) = lengths
    if steps > LONGEST:
        raise node.refuse(f"{steps} steps", f"up to {LONGEST}")
    carried: list[Any] = list(node.inputs[:kept])
    node.each = node.elements[:kept]
    if _is_long(body, steps):
        joined = [(axis, bool(reverse)) for axis, reverse in zip(out_axes, out_back, strict=True)]
        ways = zip(scanned, axes, map(bool, back), strict=True)
        return _run_as_program(node, scope, body, steps, carried, list(ways), joined)
    if not steps:
        nothing = [node.full(np.delete(shape_of(x), a).tolist(), 0, dtype_of(x)) for x, a in pairs]
        return [*carried, *_join_nothing(node, scope, body, [*carried, *nothing], node.elements, out_axes)]
    parts: list[list[Any]] = [[] for _ in range(results)]
    for i in range(steps):
        given = []
        for x, axis, reverse in zip(scanned, axes, back, strict=True):
            at = steps - 1 - i if reverse else i
            part = node.emit("slice", x, starts=(at,), ends=(at + 1,), axes=(axis,))
            given.append(node.emit("squeeze", part, axes=(axis,)))
        outputs, node.each = _run(node, body, scope, [*carried, *given], [*node.each[:kept], *node.elements[kept:]])
        carried = outputs[:kept]
        for part_list, found in zip(parts, outputs[kept:], strict=True):
            part_list.append(_check_part(node, found))
    stacked = [
        node.emit("stack", *(p[::-1] if reverse else p), axis=axis)
        for p, reverse, axis in zip(parts, out_back, out_axes, strict=True)
    ]
    return [*carried, *stacked]


def _run_batches(node: Node, scope: OperandScope) -> list[Output]:
    """Scan the elements of a batch in turn, as version 8 has them: the batch is axis 0, and the steps are axis 1."""
    if node.has(0):
        raise node.refuse("lengths of sequences", "none: sequences of the same length")
    given, count = [node.x(n) for n in range(1, len(node.inputs))], int(node.attrs["num_scan_inputs"])
    batches = {shape_of(x)[0] for x in given}
    if len(batches) != 1 or 0 in batches:
        raise InvalidArgument(node.op_type, f"batches of {sorted(batches)}", allowed="one number, at least 1")
    attrs = {"num_scan_inputs": count, "scan_input_directions": node.attrs.get("directions", [0] * count)}
    made: list[list[Operand]] = []
    for n in range(batches.pop()):
        parts = [node.emit("slice", x, starts=(n,), ends=(n + 1,), axes=(0,)) for x in given]
        inputs = [node.emit("squeeze", x, axes=(0,)) for x in parts]
        one = replace(node, version=9, inputs=[*inputs], attrs=attrs, elements=node.elements[1:])
        made.append([_check_part(node, x) for x in run_scan(one, scope)])
        node.each = one.each
    return [node.emit("stack", *parts, axis=0) for parts in zip(*made, strict=True)]


def run_sequence_map(node: Node, scope: OperandScope) -> list[Output]:
    """Import the body once for each element of a sequence; further sequences give theirs, tensors are whole."""
    body, first = node.graphs["body"], node.inputs[0]
    if not isinstance(first, Parts):
        raise InvalidArgument(node.op_type, "input 0 is not a sequence", allowed="a sequence")
    count = len(first.elements)
    if any(isinstance(x, Parts) and len(x.elements) != count for x in node.inputs):
        raise InvalidArgument(node.op_type, "sequences of other lengths", allowed=f"{count} elements each")
    made: list[list[Operand]] = [[] for _ in body.output]
    for i in range(count):
        given = [x.elements[i] if isinstance(x, Parts) else x for x in node.inputs]
        outputs, _ = _run(node, body, scope, given, node.elements)
        for parts, found in zip(made, outputs, strict=True):
            parts.append(_check_part(node, found))
    return [Parts(tuple(parts)) for parts in made]


def _check_part(node: Node, x: Any) -> Operand:
    """Return what a step gives for a joined result; it has to be a tensor of known size."""
    if isinstance(x, Ragged):
        count = int(node.know(x.count, "the size of a part of a result"))
        return node.emit("slice", x.value, starts=(0,), ends=(count,), axes=(x.axis,))
    if not isinstance(x, (Value, np.ndarray)):
        raise node.refuse("a part of a result that is no tensor", "tensors")
    return x


def _describe_part(node: Node, x: Any) -> tuple[tuple[int, ...], DType]:
    """Return dims and dtype of a part, of which there is none: a dim that depends on numbers is 0."""
    if not isinstance(x, Ragged):
        part = _check_part(node, x)
        return shape_of(part), dtype_of(part)
    shape = shape_of(x.value)
    return (*shape[: x.axis], 0, *shape[x.axis + 1 :]), dtype_of(x.value)


def _join_nothing(
    node: Node, scope: OperandScope, body: Any, given: Sequence[Any], kinds: Sequence[str | None], axes: Sequence[int]
) -> list[Operand]:
    """Return what no steps give along axes: a step on trial tells the dims of parts, else the body's declaration."""
    first, found = len(body.output) - len(axes), list[Operand]()
    try:
        with node.importer.trial():
            outputs, made = _run(node, body, scope, given, kinds)
            told, made = [_describe_part(node, x) for x in outputs[first:]], made[first:]
    except IsokernError:  # such as of an element that is not there
        types = [value.type.tensor_type for value in body.output[first:]]
        if not all(t.HasField("shape") and t.elem_type for t in types):
            raise
        names = [element_name(node.op_type, t.elem_type) for t in types]
        shapes = [tuple(max(d.dim_value, 0) for d in t.shape.dim) for t in types]  # one without a number is 0
        told = list(zip(shapes, map(our_dtype, names), strict=True))
        made = [n if n in NARROW else None for n in names]
    node.each += made
    for (shape, dtype), at in zip(told, axes, strict=True):
        axis = node.axis(at, len(shape) + 1)
        found.append(np.zeros((*shape[:axis], 0, *shape[axis:]), dtype.numpy))
    return found


def _is_long(body: Any, steps: int) -> bool:
    """Return whether a loop is too long to be unrolled."""
    return steps > MAX_STEPS or steps * _count_nodes(body) > MAX_UNROLLED


def _count_nodes(graph: Any) -> int:
    return sum(1 + sum(map(_count_nodes, subgraphs(node))) for node in graph.node)


def _run_as_program(
    node: Node,
    scope: OperandScope,
    body: Any,
    steps: int | Value,
    carried: Sequence[Any],
    scanned: Sequence[tuple[Operand, int, bool]],
    joined: Sequence[tuple[int, bool]],
    going: Operand | None = None,
    origins: frozenset[str] = frozenset(),
) -> list[Output]:
    """Import a body as a segment: `scanned` are tensors, axes and directions, `joined` those of the parts.

    `going` is the condition of a first step. If a run decides the number of steps, what is behind the loop is built
    when that is known, unless nothing but carried values is given; `origins` are the inputs that decide it.
    """
    importer, is_loop = node.importer, node.op_type == "Loop"
    if importer.in_loop:
        raise node.refuse("a long loop within a loop that runs as a program", "a loop that can be unrolled")
    for x in (*carried, *(x for x, _, _ in scanned)):
        if not isinstance(x, (Value, np.ndarray)):
            raise node.refuse("a carried value that is no tensor")
    sources = [importer.source_of(x) for x in carried]
    parts = [importer.source_of(x) for x, _, _ in scanned]
    for x in (*carried, *(x for x, _, _ in scanned), steps, going):
        origins |= importer.origins[x] if isinstance(x, Value) else frozenset()
    length = importer.source_of(steps) if isinstance(steps, Value) else steps
    first = importer.source_of(going) if isinstance(going, Value) else None
    loop = importer.begin_loop(length)
    loop.going = first
    given: list[Any] = []
    for x, source in zip(carried, sources, strict=True):
        given.append(importer.add_input("carried", shape_of(x), dtype_of(x), origins))
        loop.carried.append((given[-1].name, source))
    for (x, axis, backwards), source in zip(scanned, parts, strict=True):
        shape = shape_of(x)
        given.append(importer.add_input("part", (*shape[:axis], *shape[axis + 1 :]), dtype_of(x), origins))
        loop.scanned.append(Scanned(given[-1].name, source, axis, backwards))
    if is_loop:
        step = importer.add_input("step", (), I64, frozenset())
        loop.index = step.name
        given = [step, np.asarray(True), *given]
    outputs, node.each = _run(node, body, scope, given, [None, None, *node.elements[2:]] if is_loop else node.elements)
    if is_loop:
        condition, *outputs = outputs
        del node.each[0]
        if _is_decided(node, condition):
            loop.condition = loop.keep(importer.place(condition))
        elif isinstance(condition, Value):
            node.know(condition, "the condition to go on")
        elif not np.asarray(condition).all():
            raise node.refuse("a condition that ends a long loop")
    made = []
    for n, x in enumerate(outputs):
        if not isinstance(x, (Value, np.ndarray)):
            raise node.refuse("a result of a step that is no tensor")
        if n < len(carried) and (shape_of(x), dtype_of(x)) != (shape_of(carried[n]), dtype_of(carried[n])):
            now = f"{dtype_of(x)}{list(shape_of(x))}"
            was = f"{dtype_of(carried[n])}{list(shape_of(carried[n]))}"
            raise node.refuse(f"a carried value of a long loop that is {now} after a step", f"{was}, as before")
        loop.outputs.append(loop.keep(importer.place(x)) if isinstance(x, Value) else x)
        made.append((shape_of(x), dtype_of(x)))
    for value in loop.builder.graph.inputs:
        origins |= importer.origins[value]
    count = importer.end_loop(origins)
    found: list[Output] = [importer.receive(loop, *made[n], origins) for n in range(len(carried))]
    if joined and (loop.condition is not None or not isinstance(steps, int) or first is not None):
        steps = int(node.know(count, "the number of steps"))
    for (shape, dtype), (given_axis, backwards) in zip(made[len(carried) :], joined, strict=True):
        assert isinstance(steps, int)
        axis = node.axis(given_axis, len(shape) + 1)
        loop.joined.append((axis, backwards))
        found.append(importer.receive(loop, (*shape[:axis], steps, *shape[axis:]), dtype, origins))
    return found


def _each(node: Node, name: str, count: int) -> list[int]:
    """Return an attribute of one number for each of `count`, 0 by default."""
    found = [int(v) for v in node.attrs.get(name, [0] * count)]
    if len(found) != count:
        raise InvalidArgument(node.op_type, f"{name} {found}", allowed=f"{count} numbers")
    return found


CONTROL: dict[str, Callable[[Node, Any], list[Output]]] = {
    "If": run_if,
    "Loop": run_loop,
    "Scan": run_scan,
    "SequenceMap": run_sequence_map,
}
