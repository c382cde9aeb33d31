"""Draws of nodes of sequences, optional values and control flow."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import Draw, Drawn, Recipe, i64, node
from onnx import helper, numpy_helper

# Sequences, optional values: between nodes that make them and nodes that make a tensor of them


def sequence(d: Draw) -> Drawn:
    """Return a node about a sequence of three tensors of the same dims."""
    name, kind, shape = d.schema.name, np.float32, d.shape(1, 3)
    parts = [d.array(shape, kind) for _ in range(3)]
    made = [node("SequenceConstruct", ["i0", "i1", "i2"], ["before"])]
    joined = [node("ConcatFromSequence", ["o0"], ["y"], axis=d.int(0, len(shape) - 1))]
    place = i64(d.int(-3, 2))[0]
    if name == "SequenceConstruct":
        return Drawn(parts, after=joined)
    if name == "SequenceEmpty":
        return Drawn([], {"dtype": d.maybe(1)}, after=[node("SequenceLength", ["o0"], ["y"])])
    if name == "SequenceAt":
        return Drawn([*parts, place], before=made, reads=["before", "i3"], known=(3,))
    if name == "SequenceErase":
        reads = ["before", "i3"] if d.chance(0.7) else ["before"]
        return Drawn([*parts, place], before=made, reads=reads, known=(3,), after=joined)
    if name == "SequenceInsert":
        reads = ["before", "i0", "i3"] if d.chance(0.7) else ["before", "i0"]
        return Drawn([*parts, place], before=made, reads=reads, known=(3,), after=joined)
    if name == "SequenceLength":
        return Drawn(parts, before=made, reads=["before"])
    if name == "ConcatFromSequence":
        new = d.maybe(d.int(0, 1))
        return Drawn(parts, {"axis": d.axis(len(shape)), "new_axis": new}, before=made, reads=["before"])
    if name == "SplitToSequence":
        dim = d.int(2, 5)
        x = d.array((dim, 3), kind)
        keep = d.maybe(d.int(0, 1))
        split = d.pick([None, np.int64(2), i64(1, dim - 1)])
        after = [node("SequenceAt", ["o0", "where"], ["y"])]
        before = [node("Constant", [], ["where"], value=numpy_helper.from_array(np.int64(0)))]
        reads = ["i0"] if split is None else ["i0", "i1"]
        return Drawn([x, split], {"axis": 0, "keepdims": keep}, before=before, after=after, reads=reads, known=(1,))
    body = helper.make_graph(
        [node("Neg", ["e"], ["r"])],
        "body",
        [helper.make_tensor_value_info("e", 1, None)],
        [helper.make_tensor_value_info("r", 1, None)],
    )
    return Drawn(parts, {"body": body}, before=made, reads=["before"], after=joined)


def optional(d: Draw) -> Drawn:
    x = d.array(d.shape())
    made = [node("Optional", ["i0"], ["before"])]
    if d.schema.name == "Optional":
        return Drawn([x], after=[node("OptionalGetElement", ["o0"], ["y"])])
    return Drawn([x], before=made, reads=["before"])


# Control flow


def branch(d: Draw) -> Drawn:
    x = d.array(d.shape())

    def graph(op: str) -> Any:
        result = helper.make_tensor_value_info("r", 1, None)
        return helper.make_graph([node(op, ["i1"], ["r"])], op, [], [result])

    condition = np.asarray(d.chance(0.5)) if d.chance(0.5) else np.asarray([d.chance(0.5)])
    named = {"then_branch": graph("Neg"), "else_branch": graph("Exp")}
    return Drawn([condition, x], named, reads=["i0"], known=d.pick([(0,), ()]))


def loop(d: Draw) -> Drawn:
    x, steps = d.array(d.shape()), d.int(0, 4)
    stop = d.int(1, 4)
    infos = [helper.make_tensor_value_info("n", 7, []), helper.make_tensor_value_info("c", 9, [])]
    limit = node("Constant", [], ["limit"], value=numpy_helper.from_array(np.asarray(stop, np.int64)))
    nodes = [limit, node("Less", ["n", "limit"], ["go"]), node("Mul", ["a", "i2"], ["b"]), node("Neg", ["a"], ["part"])]
    if d.opset < 9:  # Less is of floats then
        nodes[1:2] = [
            node("Cast", ["n"], ["nf"], to=1),
            node("Cast", ["limit"], ["lf"], to=1),
            node("Less", ["nf", "lf"], ["go"]),
        ]
    carried = [helper.make_tensor_value_info("a", 1, x.shape)]
    results = [helper.make_tensor_value_info(*i) for i in (("go", 9, []), ("b", 1, x.shape), ("part", 1, x.shape))]
    body = helper.make_graph(nodes, "body", infos + carried, results)
    count = np.asarray(steps, np.int64)
    return Drawn([count, np.asarray(True), x], {"body": body}, 2, known=d.pick([(0, 1), ()]))


def scan(d: Draw) -> Drawn:
    steps, shape = d.int(1, 4), d.shape(1, 2)
    old = d.version < 9
    lead = (1, steps) if old else (steps,)
    start, x = d.array((1, *shape) if old else shape), d.array((*lead, *shape))
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Add", ["a", "p"], ["b"]), node("Mul", ["a", "p"], ["q"])],
        "body",
        [info("a", 1, shape), info("p", 1, shape)],
        [info("b", 1, shape), info("q", 1, shape)],
    )
    named: dict[str, Any] = {"body": body, "num_scan_inputs": 1}
    if old:
        return Drawn([start, x], {**named, "directions": d.maybe([d.int(0, 1)])}, 2, reads=["", "i0", "i1"])
    named["scan_input_directions"] = d.maybe([d.int(0, 1)])
    named["scan_output_directions"] = d.maybe([d.int(0, 1)])
    named["scan_output_axes"] = d.maybe([d.int(0, len(shape))])
    return Drawn([start, x], named, 2)


def whole(d: Draw) -> Drawn:
    """Return one tensor, of any dims."""
    return Drawn([d.tensor(0, d.shape(0))])


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(("Optional", "OptionalGetElement", "OptionalHasElement"), optional),
    **dict.fromkeys(
        [
            "SequenceAt",
            "SequenceConstruct",
            "SequenceEmpty",
            "SequenceErase",
            "SequenceInsert",
            "SequenceLength",
            "SequenceMap",
            "ConcatFromSequence",
            "SplitToSequence",
        ],
        sequence,
    ),
    "If": branch,
    "Loop": loop,
    "Scan": scan,
}
