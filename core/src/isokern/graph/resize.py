"""The same graph for inputs of other shapes.

Every operator's outputs are inferred again; attributes and parameters stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..status import BadTensorShape, InvalidArgument, IsokernError
from .builder import Builder, error_context
from .ir import COMPUTED, Graph, Op, TensorSpec, Value, spec_text, specs_of


def resize(graph: Graph, shapes: Mapping[str, Sequence[int]]) -> Graph:
    """Return a graph of the same operators for dense inputs of these shapes; other inputs keep theirs.

    An operator that does not accept its new operands raises its declaration's typed error, with its name in front. An
    operator whose outputs were given when it was emitted, and differ from the inferred ones, is refused if its inputs
    change.
    """
    known = {v.name: v for v in graph.inputs}
    for name in shapes:
        if name not in known:
            raise InvalidArgument(graph.name, f"input {name!r}", allowed=", ".join(known) or "none: it has no inputs")
        if not known[name].spec.is_contiguous or known[name].spec.offset:
            raise InvalidArgument(graph.name, f"input {known[name]!r} of another shape", allowed="dense inputs")
    builder = Builder(graph.name)
    of: dict[Value, Value] = {}
    for value in graph.values.values():
        if value.role != COMPUTED:
            spec = value.spec
            if value.name in shapes:
                spec = TensorSpec(spec.dtype, shapes[value.name])
            of[value] = builder.value(spec, value.name, value.role)
        elif value.producer is not None and value is value.producer.outputs[0]:
            op = value.producer
            given = [None if v is None else of[v] for v in op.inputs]
            with error_context(graph.name):
                made = builder.emit(
                    op.kind,
                    given,
                    op.attrs,
                    name=op.name,
                    dtypes=free_dtypes(op),
                    outputs=_given_outputs(op, given),
                    constraints=op.constraints,
                    hints=op.hints,
                )
            of.update(zip(op.outputs, made, strict=True))
    for value, new in ((v, of[v]) for v in graph.outputs):
        if new.spec.ndim != value.spec.ndim:
            raise BadTensorShape(graph.name, f"result {value!r} would be {spec_text(new.spec)}", allowed="its rank")
    builder.output(*[of[v] for v in graph.outputs])
    return builder.graph


def free_dtypes(op: Op) -> dict[str, object]:
    """Return the dtypes of outputs that no input determines."""
    operator = op.operator
    pairs = zip(operator.signature.outputs, op.outputs, strict=True)
    return {o.type: v.spec.dtype for o, v in pairs if o.type in operator.free_types}


def _given_outputs(op: Op, given: Sequence[Value | None]) -> list[TensorSpec] | None:
    """Return the outputs as they were if no input changes, None if they are to be inferred."""
    before, outputs = specs_of(op.inputs), [v.spec for v in op.outputs]
    if op.operator.inout:
        return None  # they are those of the values that the operator updates
    if before == specs_of(given):
        return outputs
    try:
        inferred = op.operator.infer(before, op.attrs, free_dtypes(op))
    except IsokernError:
        inferred = ()
    if list(inferred) == outputs:
        return None
    changed = ", ".join(
        f"{old!r} to {spec_text(new.spec)}"
        for old, new in zip(op.inputs, given, strict=True)
        if old and new and old.spec != new.spec
    )
    raise InvalidArgument(
        f"{op.name}: {op.kind}" if op.name else op.kind,
        f"its outputs were given ({', '.join(map(spec_text, outputs))}), and its inputs change: {changed}",
        allowed="outputs that are inferred",
        hint="emit it without outputs=",
    )
