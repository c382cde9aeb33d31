"""Random graphs for property tests: hypothesis draws them from the declared operators, and shrinks those that fail.

Nothing here depends on a particular operator. A call comes from one of the declaration's samples, or from its
signature, whose dims are bound to values in the graph; a call that the declaration refuses is drawn again. So a new
operator appears in these graphs as soon as it is declared.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field

import numpy as np
from hypothesis import strategies as st

from isokern import IsokernError
from isokern.declare.samples import assignments, describe, slots
from isokern.declare.signature import evaluate, names_in
from isokern.dtypes import BF16, BOOL, F16, F32, F64, I32, I64
from isokern.graph import Builder, Constraint, Graph
from isokern.graph.ir import INPUT, PARAMETER
from isokern.layout import TensorDesc, contiguous_strides
from isokern.ops import all_operators, find
from isokern.oracle import values
from isokern.oracle.cases import samples

TYPES = (F32, F16, BF16, F64, I32, BOOL, I64)  # I64 is the usual dtype of indices
DIMS = (2, 3, 1, 4, 5, 2, 3, 1, 7, 2, 3, 4, 2, 3, 16, 0)
MOST = 2048  # the most elements of one value
NAMES = ("", "a", "net.0", 'say "a"', "π", "two\nlines", "back\\slash")
FLOATS = (1.0, 0.0, -0.0, 0.5, -1.5, 1e-5, 3.25)
ENDLESS = (math.inf, -math.inf, math.nan)
LAYOUTS = ("dense", "permuted", "gaps", "offset", "backwards")
PAIRS = (  # pairs that passes rewrite, which are rare by chance
    ("linear", "relu"),
    ("linear", "gelu"),
    ("linear", "batch_norm"),
    ("conv2d", "batch_norm"),
    ("add", "rms_norm"),
    ("relu", "relu"),
    ("copy", "flatten"),
    ("transpose", "transpose"),
    ("transpose", "matmul"),
    ("transpose", "flatten"),
    ("transpose", "relu"),
    ("linear", "transpose"),
    ("bias_add", "relu"),
)


@functools.cache
def dtypes(op):
    """Return the choices of dtypes for an operator's type variables."""
    return [types for types in assignments(op) if set(types.values()) <= set(TYPES)]


@functools.cache
def calls(op):
    """Return the small samples of an operator."""
    found = []
    for sample in samples(op, "small", dtypes(op)[0]) if dtypes(op) else ():
        inputs, outputs = describe(op, sample, dtypes(op)[0])
        if all(d is None or d.numel <= MOST for d in (*inputs, *outputs)):
            found.append(sample)
    return found


@functools.cache
def checked(op):
    """Return whether calls must come from samples, because a device checks an operand's values or text fixes shapes."""
    if any(a.kind in ("text", "body") for a in op.attrs.attrs):
        return True  # the attribute's text must match the shapes
    domains = [*op.domains.values(), *(d for s in op.samples() for d in s.values.values())]
    return any(d.startswith(values.CHECKED) for d in domains)


@functools.cache
def families():
    """Return operators by family, each in parts of at most a dozen: long lists are drawn from unevenly."""
    found = {}
    for op in all_operators():
        if not op.inout and calls(op):
            found.setdefault(op.family, []).append(op)
    return [ops[n : n + 12] for ops in sorted(found.values(), key=len, reverse=True) for n in range(0, len(ops), 12)]


@dataclass
class Drawn:
    """A graph, and the domains of its inputs' and parameters' values."""

    graph: Graph
    domains: dict = field(default_factory=dict)
    seed: int = 0
    special: bool = False

    def __repr__(self):
        return f"seed {self.seed}{', with special values' if self.special else ''}, {self.domains}\n{self.graph.dump()}"

    def _repr_pretty_(self, printer, cycle):  # hypothesis shows this for a failing example
        printer.text(repr(self))

    def arrays(self):
        """Return (feeds, parameters) by name."""
        rng = np.random.default_rng(self.seed)
        held = {}
        for v in (*self.graph.inputs, *self.graph.parameters):
            domain = self.domains[v.name]
            array = values.draw(domain, v.spec.dtype, v.spec.shape, rng)
            if self.special and domain == "any":
                array = values.sprinkle_specials(array, v.spec.dtype, rng, subnormal=True)
            held[v.name] = array
        return tuple({v.name: held[v.name] for v in vs} for vs in (self.graph.inputs, self.graph.parameters))


class _Drawing:
    """The state while a graph is drawn."""

    def __init__(self, draw):
        self.draw = draw
        self.builder = Builder(self.pick(("graph", *NAMES)))
        self.domains = {}

    def pick(self, choices):
        return self.draw(st.sampled_from(choices))

    def chance(self, of):
        """Return True once in `of` times; examples shrink towards False."""
        return self.draw(st.integers(0, of - 1)) == of - 1

    def near(self, given):
        """Return one of these values, more often one of the last three."""
        return self.pick(given[::-1][: 3 if self.draw(st.booleans()) else None])

    # Values

    def source(self, dtype, shape, domain="any", role=None):
        """Add a new input or parameter."""
        name = f"{self.pick(NAMES)}{len(self.domains)}"
        self.domains[name] = domain
        role = role or self.pick((INPUT, PARAMETER))
        spec = TensorDesc(dtype, shape)
        return self.builder.value(self.layout(spec, 6) if role == INPUT else spec, name, role)

    def layout(self, spec, of):
        """Return the description itself, or once in `of` times one of the same shape with another layout."""
        kind = self.pick(LAYOUTS) if self.chance(of) else "dense"
        shape, strides, offset = spec.shape, list(spec.strides), 0
        if kind == "permuted":
            order = self.draw(st.permutations(range(spec.ndim)))
            for axis, step in zip(order, contiguous_strides([shape[a] for a in order]), strict=True):
                strides[axis] = step
        elif kind == "gaps" and shape:
            strides = contiguous_strides([*shape[:-1], shape[-1] + 1])
        elif kind == "offset":
            offset = self.draw(st.integers(1, 40))
        elif kind == "backwards" and spec.numel:
            axis = self.draw(st.integers(0, spec.ndim - 1)) if shape else None
            if axis is not None:
                offset = (shape[axis] - 1) * strides[axis]
                strides[axis] *= -1
        return TensorDesc(spec.dtype, shape, strides, offset)

    # Calls

    def step(self):
        """Add one operator, or a pair that passes rewrite; where the declaration refuses, use one of its samples."""
        if self.chance(8):
            first, second = self.pick(PAIRS)
            tries = (self.by_signature(find(first), role=PARAMETER) for _ in range(4))
            made = next((m for m in tries if m is not None), None)
            if made is None or self.by_signature(find(second), first=made[0], role=PARAMETER) is not None:
                return
        op = self.pick(self.pick(families()))
        if checked(op) or self.chance(5) or (self.by_signature(op) is None and self.by_signature(op) is None):
            self.by_sample(op)

    def by_sample(self, op):
        types, sample = self.pick(dtypes(op)), self.pick(calls(op))
        if any(types[name] not in allowed for name, allowed in sample.types.items()):
            return
        domains = {**op.domains, **sample.values}
        given = []
        for s in slots(op, sample, types):
            domain = domains.get(s.operand.name, "any")
            same = [v for v in self.builder.values if (v.spec.dtype, v.spec.shape) == (s.dtype, s.shape)]
            if s.shape is None:
                given.append(None)
            elif same and self.open(op, domain) and not self.chance(4):
                given.append(self.near(same))
            else:
                given.append(self.source(s.dtype, s.shape, domain))
        while given and given[-1] is None:
            given.pop()
        _, outputs = describe(op, sample, types)
        self.emit(op, given, sample.attrs, outputs)

    @staticmethod
    def open(op, domain):
        """Return whether an operand may be any value; elementwise operators are defined beyond their domain."""
        return domain == "any" or (op.scalar_expr is not None and not domain.startswith(values.CHECKED))

    def by_signature(self, op, first=None, role=None):
        """Add an operator with operands that fit its signature, new ones where none fits; None where it is refused.

        With a `role` all operands are new and have this role, but the first is mostly an input: passes would fold an
        operator of parameters alone.
        """
        try:
            attrs = op.attrs.check(op.name, self.attributes(op))
            types, pairs, given = {}, [], []
            for operand in op.signature.inputs:
                if operand.optional and not self.draw(st.booleans()):
                    given.append(None)
                    continue
                for _ in range(self.draw(st.integers(1, 3)) if operand.variadic else 1):
                    value = (
                        first
                        if first is not None and not pairs
                        else self.operand(
                            op, operand, types, pairs, attrs, role if pairs or role is None or self.chance(4) else INPUT
                        )
                    )
                    types[operand.type] = value.spec.dtype
                    pairs.append((operand, value.spec))
                    given.append(value)
            while given and given[-1] is None:
                given.pop()
            known = {n: op.signature.types[n] for n in op.free_types}
            free = {n: self.pick([d for d in every if d in TYPES] or every) for n, every in known.items()}
            made = op.infer([None if v is None else v.spec for v in given], attrs, free)
            if any(o.numel > MOST for o in made):
                return None
            return self.emit(op, given, attrs, [self.layout(o, 8) for o in made])
        except IsokernError:
            return None

    def attributes(self, op):
        """Return a sample's attributes, one of them sometimes changed."""
        attrs = dict(self.pick([s.attrs for s in calls(op)]))
        if op.attrs.attrs and self.chance(3):
            attr = self.pick(op.attrs.attrs)
            drawn = {
                "int": st.integers(-3, 4),
                "float": st.sampled_from(FLOATS + ENDLESS),
                "bool": st.booleans(),
                "choice": st.sampled_from(attr.choices or ("",)),
                "ints": st.lists(st.integers(-2, 3), max_size=4),
            }
            attrs[attr.name] = self.draw(drawn[attr.kind])
        return attrs

    def operand(self, op, operand, types, pairs, attrs, role):
        every = op.signature.dtypes_of(operand)
        allowed = [types[operand.type]] if operand.type in types else [d for d in every if d in TYPES] or every
        domain = op.domains.get(operand.name, "any")
        if role is None and self.open(op, domain) and not self.chance(4):
            fitting = [
                v for v in self.builder.values if v.spec.dtype in allowed and fits(op, operand, v.spec, pairs, attrs)
            ]
            if fitting:
                return self.near(fitting)
        return self.source(self.pick(allowed), self.shape(op, operand, pairs, attrs), domain, role)

    def shape(self, op, operand, pairs, attrs):
        """Return a shape for a new operand that goes with the operands chosen so far."""
        if operand.variadic and pairs:
            shape = list(pairs[-1][1].shape)
            if shape and self.draw(st.booleans()):
                shape[self.draw(st.integers(0, len(shape) - 1))] = self.pick(DIMS)
            return shape
        scope = {**attrs, **solved(op, pairs, attrs)}
        shape = []
        for dim in operand.dims:
            if not dim.startswith("*"):
                for name in sorted(names_in(dim) - scope.keys()):
                    bound = [v for k, v in scope.items() if k not in attrs and isinstance(v, int)]
                    scope[name] = self.pick(bound) if bound and self.draw(st.booleans()) else self.pick(DIMS)
                shape.append(evaluate(dim, scope))
            elif dim[1:] not in scope:
                rank = self.draw(st.integers(0, 4 - min(4, len(operand.dims) - 1)))
                scope[dim[1:]] = tuple(self.pick(DIMS) for _ in range(rank))
                shape += scope[dim[1:]]
            elif dim[1:] in op.signature.broadcast:
                group = list(scope[dim[1:]])
                kept = group[self.draw(st.integers(0, len(group))) if self.chance(3) else 0 :]
                shape += [1 if self.chance(5) else d for d in kept]
            else:
                shape += scope[dim[1:]]
        if math.prod(max(d, 1) for d in shape) > MOST:
            return [min(d, 2) for d in shape]
        return shape

    def emit(self, op, given, attrs, outputs):
        constraints = []
        if given and self.chance(8):
            at = self.draw(st.integers(0, len(given) - 1))
            if given[at] is not None:
                constraints = self.constraint(at, given[at].spec)
        name = self.pick(NAMES)
        name = f"{name}{len(self.builder.ops)}" if name else ""
        return self.builder.emit(op.name, given, attrs, name=name, outputs=outputs, constraints=constraints)

    def constraint(self, at, x):
        """Return a constraint that holds, in a list."""
        start = x.dtype.nbytes(x.offset)
        possible = [Constraint("aligned", at, 2**n) for n in range(9) if start % 2**n == 0]
        possible += [Constraint("contiguous", at)] * 9 * x.is_contiguous
        return [self.pick(possible)]

    def alias(self):
        """Add an alias constraint that a declaration allows, half of the time to an input that nothing else needs."""
        graph, allowed, free = self.builder.graph, [], []
        for op in self.builder.ops:
            y = op.outputs[0]
            for at, x in enumerate(op.inputs):
                if x is not None and may_alias(op, at) and x.spec == y.spec:
                    allowed.append((op, at))
                    if x.producer is not None and x.users[-1] is op and not {x, y} & set(graph.outputs):
                        free.append((op, at))
        if self.draw(st.booleans()):
            if not free and (read := [v for v in self.builder.values if v.spec.dtype in (F32, F64) and v.spec.numel]):
                x = self.pick(read)
                for _ in range(2):
                    (x,) = self.builder.emit("abs", [x])
                self.builder.output(x)
                free = [(x.producer, 0)]
            allowed = free or allowed
        if allowed:
            op, at = self.pick(allowed)
            op.constraints = (*op.constraints, Constraint("alias", at))


def fits(op, operand, spec, pairs, attrs):
    """Return whether a tensor can be the operand beside those chosen so far."""
    if operand.variadic:
        shapes = [d.shape for o, d in pairs if o is operand]
        return not shapes or (
            len(spec.shape) == len(shapes[0]) and sum(a != b for a, b in zip(spec.shape, shapes[0], strict=True)) < 2
        )
    try:
        op.signature.bind_dims(op.name, [*pairs, (operand, spec)], attrs)
    except IsokernError:
        return False
    return True


def may_alias(op, at):
    """Return whether the declaration lets the output share this input's memory."""
    inputs = op.operator.signature.inputs
    return not any(o.variadic for o in inputs) and inputs[at].name in op.operator.aliases


def solved(op, pairs, attrs):
    """Return the bound dims, and those that follow from an expression with one unknown name."""
    dims = dict(op.signature.bind_dims(op.name, pairs, attrs))
    for operand, desc in pairs:
        if operand.group is None:
            for dim, size in zip(operand.dims, desc.shape, strict=True):
                unknown = names_in(dim) - attrs.keys() - dims.keys()
                if len(unknown) == 1:
                    (name,) = unknown
                    found = [n for n in range(size + 1) if evaluate(dim, {**attrs, **dims, name: n}) == size]
                    dims |= {name: found[0]} if found else {}
    return dims


@st.composite
def graphs(draw, most=12, aliases=False):
    """Draw graphs of up to `most` operators (a pair counts once), with one to four results.

    A result may also be read by an operator, be given twice, or be an input; operators may be dead. With `aliases` an
    operator may carry an alias constraint, which a plan may refuse.
    """
    drawing = _Drawing(draw)
    for _ in range(draw(st.integers(0, most))):
        drawing.step()
    there = drawing.builder.values
    computed = [v for v in there if v.producer is not None]
    for _ in range(draw(st.integers(1, 4)) if there else 0):
        drawing.builder.output(drawing.near(there if drawing.chance(10) or not computed else computed))
    if aliases and draw(st.booleans()):
        drawing.alias()
    return Drawn(drawing.builder.graph, drawing.domains, draw(st.integers(0, 2**32 - 1)), drawing.chance(4))
