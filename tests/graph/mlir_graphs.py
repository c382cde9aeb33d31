"""Graphs for the MLIR tests: samples of one primitive in several dtypes, and functions of the scalar language."""

from isokern.declare.samples import assignments, describe, fits
from isokern.dtypes import BLOCKS, FP8, STORED_BLOCKS, dtype
from isokern.expr.tree import ARITY, INTEGER_FUNCTIONS, SHARED_FUNCTIONS
from isokern.graph import Builder
from isokern.ops import find
from isokern.oracle.cases import Case
from isokern.rewriting.target import primitives

REFUSED = {"dequantize", "quantize", "sample_regions", "suppress_overlaps"}
EXPORTED = [name for name in primitives() if name not in REFUSED]
FUNCTIONS = [f for f in ARITY if f not in INTEGER_FUNCTIONS or f in SHARED_FUNCTIONS]


def refused(case):
    """Return whether MLIR cannot express a case of a primitive."""
    back = case.operator.name == "slice" and -2 in case.sample.attrs.get("steps", ())
    dtypes = {*case.types, *(d for each in case.sample.each.values() for d in each)}
    return back or case.sample.attrs.get("lhs_quantization") == "q8_0" or dtypes & {*BLOCKS, *STORED_BLOCKS, *FP8}


def cases_of(name, values="drawn"):
    """Return each small sample in the first dtypes and one in each of the others; for special values, one in each."""
    operator, found = find(name), []
    for i, types in enumerate(assignments(operator)):
        small = [s for s in operator.samples() if s.size == "small" and fits(operator, s, types)]
        chosen = small if i == 0 and values == "drawn" else small[3:4] if values != "drawn" else [small[i % len(small)]]
        found += [Case(operator, tuple(types.values()), s, values=values) for s in chosen]
    return [case for case in found if not refused(case)]


def graph_of(cases):
    """Return a graph of the cases' operators, each with its own inputs and outputs."""
    b = Builder("cases")
    for i, case in enumerate(cases):
        descs, outs = describe(case.operator, case.sample, case.bound_types)
        given = [None if d is None else b.input(f"{i}.x{j}", d.shape, d.dtype) for j, d in enumerate(descs)]
        b.output(*b.emit(case.operator.name, given, case.sample.attrs, name=f"{case.operator.name}{i}", outputs=outs))
    return b.graph


def functions_graph(element, names=FUNCTIONS):
    """Return a graph of each function of the scalar language, applied to inputs x and y of one dtype."""
    b = Builder("functions")
    x, y = b.input("x", (4096,), element), b.input("y", (4096,), element)
    for name in names:
        body = f"{name}({'x0' if ARITY[name] == 1 else 'x0, x1'})"
        attrs = {"maps": "a,a->a", "body": body}
        b.output(*b.emit("generic", [None, x, y], attrs, name=name, dtypes={"U": dtype(element)}))
    return b.graph


def argmax_graph():
    """Return a graph of argmax, for inputs that its samples lack: NaN, and ties."""
    b = Builder("argmax")
    x = b.input("x", (3, 4))
    b.output(*b.emit("argmax", [x], {"axis": 0}), *b.emit("argmax", [x], {"axis": 1, "keepdims": True}))
    return b.graph
