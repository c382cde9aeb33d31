"""Mutations that make a graph invalid; each declares the places of a graph where it applies.

`MUTATIONS[name](graph, pick)` applies one at a place that `pick` chooses from a list, and returns the operators and
values at fault: an error must name one of them or of their neighbours. It returns None where the graph has no such
place.
"""

from __future__ import annotations

import inspect

from isokern.dtypes import BOOL, F32, F64, I32
from isokern.graph import Constraint, Op, Value
from isokern.graph.ir import COMPUTED, INPUT
from isokern.layout import TensorDesc

MUTATIONS = {}


def mutation(places):
    """Register a function that breaks a graph at one of its `places`; it returns what is at fault, if not the place."""

    def register(spoil):
        def mutate(graph, pick):
            there = list(places(graph))
            if not there:
                return None
            place = pick(there)
            return spoil(graph, place, pick) or [place]

        MUTATIONS[spoil.__name__] = mutate
        return spoil

    return register


# Places


def operators(graph):
    return graph.ops


def values(graph):
    return graph.values.values()


def sources(graph):
    return [v for v in values(graph) if v.role != COMPUTED]


def computed(graph):
    return [v for v in values(graph) if v.role == COMPUTED]


def read(graph):
    return [v for v in values(graph) if v.users]


def tied(graph):
    """Return all values but unread inputs, which can be removed or exchanged without a fault."""
    return [v for v in values(graph) if v.users or v.producer is not None or v in graph.outputs]


def reading(graph):
    return [op for op in graph.ops if any(op.given)]


def with_attributes(graph):
    return [op for op in graph.ops if op.attrs]


def of_inferred_shape(graph):
    """Return computed values whose shapes the declaration infers alone; a copy, by contrast, may broadcast."""
    shapes = {v: v.producer.operator.shapes for v in computed(graph)}
    return [v for v, f in shapes.items() if f is None or "outputs" not in inspect.signature(f).parameters]


def of_inferred_dtype(graph):
    """Yield computed values whose dtypes follow from the inputs."""
    for op in graph.ops:
        for operand, value in zip(op.operator.signature.outputs, op.outputs, strict=True):
            if operand.type not in op.operator.free_types:
                yield value


def variadic(op):
    return any(o.variadic for o in op.operator.signature.inputs)


def alone(value, number=None):
    """Return a value like this one that belongs to no graph."""
    return Value(value.vid if number is None else number, value.name, value.spec, value.role, value.producer)


# Values


@mutation(values)
def number_of_another(graph, value, pick):
    value.vid = pick([n for n in (*graph.values, -1) if n != value.vid])


@mutation(tied)
def other_value_under_number(graph, value, pick):
    graph.values[value.vid] = alone(value)
    return [value, graph.values[value.vid]]


@mutation(tied)
def value_gone(graph, value, pick):
    del graph.values[value.vid]


@mutation(lambda graph: [max(graph.values, default=-1) + 1])
def value_without_maker(graph, number, pick):
    return [graph.add(Value(number, "loose", TensorDesc("F32", (2,))))]


@mutation(values)
def unknown_role(graph, value, pick):
    value.role = pick(["weight", "", None])


@mutation(values)
def other_role(graph, value, pick):
    value.role = INPUT if value.role == COMPUTED else COMPUTED


@mutation(sources)
def source_without_name(graph, value, pick):
    value.name = ""


@mutation(lambda graph: [(v, w) for v in sources(graph) for w in sources(graph) if v is not w])
def name_taken_twice(graph, pair, pick):
    pair[0].name = pair[1].name
    return pair


@mutation(of_inferred_shape)
def wrong_rank(graph, value, pick):
    value.spec = TensorDesc(value.spec.dtype, (*value.spec.shape, 2) if value.spec.ndim < 8 else ())


@mutation(lambda graph: [(v, axis) for v in of_inferred_shape(graph) for axis in range(v.spec.ndim)])
def wrong_dim(graph, place, pick):
    value, axis = place
    shape = list(value.spec.shape)
    shape[axis] += 1
    value.spec = TensorDesc(value.spec.dtype, shape)
    return [value]


@mutation(of_inferred_dtype)
def wrong_dtype(graph, value, pick):
    other = pick([d for d in (F32, F64, I32, BOOL) if d is not value.spec.dtype])
    value.spec = TensorDesc(other, value.spec.shape, value.spec.strides, value.spec.offset)


@mutation(lambda graph: [v for v in computed(graph) if v.spec.numel > 1])
def elements_share_memory(graph, value, pick):
    value.spec = TensorDesc(value.spec.dtype, value.spec.shape, [0] * value.spec.ndim)


@mutation(read)
def reader_not_counted(graph, value, pick):
    value.users.remove(pick(value.users))


@mutation(read)
def reader_counted_twice(graph, value, pick):
    value.users.append(pick(value.users))


@mutation(lambda graph: [(v, op) for v in values(graph) for op in graph.ops if v not in op.given])
def reader_that_does_not_read(graph, pair, pick):
    pair[0].users.append(pair[1])
    return pair


@mutation(computed)
def no_producer(graph, value, pick):
    value.producer = None


@mutation(lambda graph: [(v, op) for v in values(graph) for op in graph.ops if op is not v.producer])
def other_producer(graph, pair, pick):
    pair[0].producer = pair[1]
    return pair


@mutation(lambda graph: [*values(graph), Value(0, "nowhere", TensorDesc("F32", ()))])
def output_not_in_graph(graph, value, pick):
    stranger = alone(value, pick([value.vid, 10**6]))
    graph.outputs.insert(pick(range(len(graph.outputs) + 1)), stranger)
    return [stranger]


# Operators


@mutation(lambda graph: [(op, v.producer) for op in graph.ops for v in op.given if v.producer is not None])
def reader_before_maker(graph, pair, pick):
    graph.ops.remove(pair[0])
    graph.ops.insert(graph.ops.index(pair[1]), pair[0])
    return pair


@mutation(operators)
def operator_gone(graph, op, pick):
    graph.ops.remove(op)


@mutation(operators)
def operator_twice(graph, op, pick):
    graph.ops.append(op)


@mutation(operators)
def value_made_by_two(graph, op, pick):
    graph.ops.append(Op(op.kind, op.inputs, op.outputs, op.attrs, op.constraints, "again"))
    return [op, graph.ops[-1]]


@mutation(operators)
def unknown_kind(graph, op, pick):
    op.kind = pick([op.kind + "x", op.kind.upper(), ""])


@mutation(operators)
def unknown_attribute(graph, op, pick):
    op.attrs = {**op.attrs, "colour": pick([0, 1.5, "red"])}


@mutation(with_attributes)
def attribute_missing(graph, op, pick):
    gone = pick(sorted(op.attrs))
    op.attrs = {n: v for n, v in op.attrs.items() if n != gone}


@mutation(with_attributes)
def attribute_of_wrong_type(graph, op, pick):
    op.attrs = {**op.attrs, pick(sorted(op.attrs)): pick([None, "?", [[1]], [0.5]])}


@mutation(reading)
def operand_of_no_graph(graph, op, pick):
    at = pick([i for i, v in enumerate(op.inputs) if v is not None])
    op.inputs = tuple(alone(v) if i == at else v for i, v in enumerate(op.inputs))


@mutation(
    lambda graph: [
        (op, i)
        for op in graph.ops
        for i, v in enumerate(op.inputs)
        if not variadic(op) and not op.operator.signature.inputs[i].optional
    ]
)
def operand_missing(graph, place, pick):
    op, at = place
    op.inputs = tuple(None if i == at else v for i, v in enumerate(op.inputs))
    return [op]


@mutation(lambda graph: [op for op in reading(graph) if not variadic(op)])
def operand_too_many(graph, op, pick):
    more = len(op.operator.signature.inputs) + 1 - len(op.inputs)
    op.inputs = (*op.inputs, *[pick(list(op.given))] * more)


@mutation(operators)
def outputs_too_few(graph, op, pick):
    op.outputs = op.outputs[:-1]


@mutation(operators)
def broken_constraint(graph, op, pick):
    wrong = [Constraint("fast", 0), Constraint("contiguous", len(op.inputs)), Constraint("aligned", -1, 16)]
    operands, held = op.operator.operand_names(len(op.declared)), [old for old, _ in op.updated]
    for i, v in enumerate(op.inputs):
        if v is None:
            wrong.append(Constraint("contiguous", i))
            continue
        wrong += [Constraint("aligned", i, amount) for amount in (0, -4, 48, 512)]
        wrong += [Constraint("contiguous", i)] * (not v.spec.is_contiguous)
        start = v.spec.offset * v.spec.dtype.itemsize
        wrong += [Constraint("aligned", i, amount) for amount in (2, 16, 256) if start % amount]
        if v not in held and (operands[i] not in op.operator.aliases or v.spec != op.outputs[0].spec):
            wrong.append(Constraint("alias", i))
    op.constraints = (*op.constraints, pick(wrong))


def named(text, fault):
    """Return whether an error names an operator or a value at fault, or a neighbour of one."""
    near = list(fault)
    for thing in fault:
        near += [*thing.outputs, *thing.given] if isinstance(thing, Op) else [*thing.users, thing.producer]
    return any(repr(thing) in text for thing in near if thing is not None)
