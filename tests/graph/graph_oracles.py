"""Properties that programs of all graphs must have, checked without the memory plan.

The checks use the addresses of a program's tensors and the declarations' references.
"""

from __future__ import annotations

import warnings

import numpy as np

from isokern.declare.operator import Sample
from isokern.dtypes import F64
from isokern.graph.ir import PARAMETER, specs_of
from isokern.layout import TensorDesc
from isokern.oracle import values
from isokern.oracle.cases import Case
from isokern.oracle.expected import judge, problem, reference

TINY = 1e-6  # below this, F16 has few digits
REACH = 1e3  # larger sums may overflow, depending on their order; values.sprinkle_specials stays below it too

# Memory


def spans(program, graph):
    """Return the addresses of each value of the compiled graph; the program's own values have the same numbers.

    Parameters that are there in packed layouts alone have none.
    """
    own, tensors = program.graph.values, program._context.tensors
    assert {v.vid: str(v) for v in graph.values.values()} == {n: str(v) for n, v in own.items()}
    there = {v: tensors.get(own[v.vid]) for v in graph.values.values()}
    assert all(t is not None or v.role == PARAMETER for v, t in there.items())
    return {v: (0, 0) if t is None else t.span for v, t in there.items()}


def meet(a, b):
    return max(a[0], b[0]) < min(a[1], b[1])


def moves_nothing(op):
    """Return whether each element of the output is the operand's at the same address, found by moving addresses."""
    given = list(op.given)
    if op.operator.family != "movement" or len(given) != 1:
        return False
    x, y = given[0].spec, op.outputs[0].spec
    if x.numel < y.numel:
        return False
    types = tuple(F64 for _ in op.operator.signature.types)
    (moved,) = reference(Case(op.operator, types, case_of(op).sample), [places(x)], [TensorDesc(F64, y.shape)], [])
    return np.array_equal(moved, places(y))


def joins_in_place(op, where):
    """Return whether the operands of a concat lie where their slices of its result do, so that it writes nothing."""
    y = op.outputs[0]
    if op.kind != "concat" or y.spec.dtype.block > 1:
        return False
    parts = [where[x][0] + x.spec.dtype.itemsize * places(x.spec) for x in op.given]
    joined = np.concatenate(parts, op.attrs["axis"])
    return np.array_equal(joined, where[y][0] + y.spec.dtype.itemsize * places(y.spec))


def moved(program):
    """Return the number of bytes that a program only copies from one place to another."""
    calls = [op for op in program.memory_plan.calls if op.operator.stem == "rearrange"]
    return sum(v.spec.nbytes for op in calls for v in op.outputs)


def places(spec):
    """Return the offset of each element of a tensor."""
    found = np.full(spec.shape, float(spec.offset))
    for axis, (dim, step) in enumerate(zip(spec.shape, spec.strides, strict=True)):
        found += step * np.arange(dim).reshape(-1, *[1] * (spec.ndim - axis - 1))
    return found


def needed(graph):
    """Return for each value the last operator that reads it; inputs, parameters and results are needed to the end."""
    last = dict.fromkeys(graph.values.values(), -1)
    for at, op in enumerate(graph.ops):
        last |= dict.fromkeys(op.given, at)
    kept = [*graph.inputs, *graph.parameters, *graph.outputs]
    return last | dict.fromkeys(kept, len(graph.ops))


def clashes(graph, where):
    """Describe the values that an operator overwrites while they are still needed; empty for a correct program."""
    last, found = needed(graph), []
    there = [*graph.inputs, *graph.parameters]
    content = {v: v for v in there}  # the value whose bytes a value consists of
    for at, op in enumerate(graph.ops):
        for y in op.outputs:
            same = [x for x in op.given if where[x][0] == where[y][0]]  # a slice of the first elements is shorter
            content[y] = content[same[0]] if same and moves_nothing(op) else y
        for n, y in enumerate([] if joins_in_place(op, where) else op.outputs):
            for v in there:
                if last[v] > at and content[v] is not content[y] and meet(where[v], where[y]):
                    found.append(f"{op!r} writes {y!r} over {v!r}, which is read later")
            for x, may in zip(op.inputs, in_place(op, y), strict=True):
                if x is not None and not may and content[x] is not content[y] and meet(where[x], where[y]):
                    found.append(f"{op!r} writes {y!r} over its operand {x!r}")
            found += [f"{op!r} writes {y!r} over {z!r}" for z in op.outputs[:n] if meet(where[z], where[y])]
        there += op.outputs
    return found


def scratched(program, graph, where):
    """Describe the values that overlap an operator's workspace while they are needed; empty for a correct program."""
    last, found, there = needed(graph), [], [*graph.inputs, *graph.parameters]
    spaces = {op.outputs[0].vid: n for op, n in program.memory_plan.spaces.items()}
    for at, op in enumerate(graph.ops):
        there += op.outputs
        need = spaces.get(op.outputs[0].vid, 0)
        taken = (program._context.arena.address, program._context.arena.address + need) if need else (0, 0)
        alive = [v for v in there if last[v] >= at or v in op.outputs]
        found += [f"the workspace of {op!r} lies on {v!r}" for v in alive if meet(where[v], taken)]
    return found


def in_place(op, y):
    """Return for each input whether the declaration lets an output share its memory."""
    names = op.operator.operand_names(len(op.inputs))
    return [
        x is not None and name in op.operator.aliases and x.spec == y.spec
        for name, x in zip(names, op.inputs, strict=False)
    ]


def legal_aliases(graph):
    """Return each (operator, operand, output) where the output may share the operand's memory.

    That is where nothing needs the operand afterwards, or where both have the same content.
    """
    last, found = needed(graph), []
    for at, op in enumerate(graph.ops):
        for y in op.outputs:
            if y in graph.outputs or not y.spec.numel:
                continue
            still = moves_nothing(op)
            for x, may in zip(op.inputs, in_place(op, y), strict=True):
                alone = all(ok for z, ok in zip(op.inputs, in_place(op, y), strict=True) if z is x)
                if x is not None and x not in graph.outputs and (still or (may and alone and last[x] <= at)):
                    found.append((op, x, y))
    return found


# Values


def case_of(op):
    """Return the operator's call as a conformance case."""
    pairs = op.operator.signature.arrange(op.kind, specs_of(op.inputs))
    described = [*pairs, *zip(op.operator.signature.outputs, (v.spec for v in op.outputs), strict=True)]
    told = {o.type: d.dtype for o, d in described if d is not None}
    shapes = {}
    for o, d in pairs:
        if o.variadic:
            shapes.setdefault(o.name, []).append(d.shape)
        elif d is not None:
            shapes[o.name] = d.shape
    types = tuple(told.get(n, allowed[0]) for n, allowed in op.operator.signature.types.items())
    return Case(op.operator, types, Sample(shapes, op.attrs))


def operands(op, held):
    """Return the arrays of the operator's operands, None where one is absent."""
    pairs = op.operator.signature.arrange(op.kind, specs_of(op.inputs))
    arrays = [None if v is None else held[v] for v in op.inputs]
    return arrays + [None] * (len(pairs) - len(arrays))


def as_computed(op, arrays):
    """Return a loop nest's operands as its compute type has them.

    The reference of an integer result takes F32 for F64, since floats are float64 there: right unless integers beside
    them are large.
    """
    kinds = [v.spec.dtype for v in op.inputs if v is not None]
    if op.outputs[0].spec.dtype.kind == "f" or not any(d.kind == "f" for d in kinds) or F64 in kinds:
        return arrays
    return [a.astype(np.float32) if a is not None and a.dtype.kind in "iu" else a for a in arrays]


def judged(op, held, device):
    """Describe how an operator's results differ from the reference for the same operands; empty where they are right.

    Return None where the operator's tolerance does not cover values as large as its operands.
    """
    arrays, operator = operands(op, held), op.operator
    if not operator.exact and operator.scalar_expr is None:
        for array in arrays:
            if array is not None and array.dtype.kind in "fV":
                wide = array.astype(np.float64)
                if np.any(np.isfinite(wide) & (np.abs(wide) > REACH)):
                    return None
    specs = [v.spec for v in op.outputs]
    if op.kind == "generic":
        arrays = as_computed(op, arrays)
    wanted = problem(case_of(op), arrays, specs, [])
    moves = operator.family == "movement" and not operator.free_types
    flushes = "flushes_denormals" in device.conditions
    for n, y in enumerate(op.outputs):
        found = judge(held[y], wanted, n, strict_nan=moves, flushes=flushes)
        if found.wrong:
            return f"{op!r} makes {y!r}: {found.wrong}"
    return ""


class Overflow(Exception):
    """A value exceeds its dtype's range: it may be infinite, or finite where passes keep it in a wider dtype."""


def noisy(graph, held, seed):
    """Return the references' results with each float perturbed by a few roundings, as in correct programs."""
    rng, found = np.random.default_rng(seed), {}

    def put(value, array):
        dtype = value.spec.dtype
        if dtype.kind == "f":
            array, limits = np.asarray(array, np.float64), values.limits_of(dtype)
            off = 4 * float(limits.eps) * rng.uniform(-1, 1, np.shape(array))
            # subnormal numbers are as far apart as the smallest normal ones
            size = np.where(array == 0, 0, np.maximum(np.abs(array), float(limits.tiny)))
            array = np.asarray(np.where(np.isfinite(array), array + off * size, array))
            if (np.isfinite(array) & (np.abs(array) > float(limits.max))).any():
                raise Overflow
        found[value] = array.astype(dtype.numpy)

    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        for v in (*graph.inputs, *graph.parameters):
            put(v, held[v.name])
        for op in graph.ops:
            specs = [v.spec for v in op.outputs]
            for y, array in zip(op.outputs, reference(case_of(op), operands(op, found), specs, []), strict=True):
                put(y, array)
    return [found[v].astype(np.float64) for v in graph.outputs]


def disagreement(graph, held, other, other_held, seed):
    """Describe where two graphs differ: the ranges of their perturbed results by the references are disjoint.

    A few draws suffice to show that graphs agree, but many are needed to show that they do not: all of a few may lie on
    one side of a jump, such as that of `ceil`. Return None where a value overflows.
    """
    try:
        return _apart(graph, held, other, other_held, seed, 4) and _apart(graph, held, other, other_held, seed + 8, 64)
    except Overflow:
        return None


def _apart(graph, held, other, other_held, seed, draws):
    one = [noisy(graph, held, seed + n) for n in range(draws)]
    two = [noisy(other, other_held, seed + draws + n) for n in range(draws)]
    with np.errstate(all="ignore"):
        for value, *both in zip(graph.outputs, zip(*one, strict=True), zip(*two, strict=True), strict=True):
            (low, high), (least, most) = ((np.min(x, 0), np.max(x, 0)) for x in both)
            size = np.maximum(np.abs(low), np.abs(high))
            eps = float(values.limits_of(value.spec.dtype).eps) if value.spec.dtype.kind == "f" else 0.0
            slack = 4 * np.maximum(high - low, most - least) + 64 * eps * size
            apart = (low > most + slack) | (least > high + slack)
            if np.any(apart):
                at = tuple(np.argwhere(apart)[0])
                return f"{value!r} at {list(at)}: {low[at]} to {high[at]}, and {least[at]} to {most[at]}"
    return ""
