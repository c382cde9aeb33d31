"""Test the cost of decompositions: every composite operator has a row, and each figure is correct."""

import json
from dataclasses import asdict

import pytest
from graph_models import command

from isokern import InvalidArgument
from isokern.declare.samples import describe
from isokern.ops import all_operators, find
from isokern.oracle.cases import samples
from isokern.passes import run
from isokern.rewriting.conversion import single
from isokern.rewriting.rewriter import State
from isokern.rewriting.target import EXCEPTIONS, primitives
from isokern.runtime.decompositions import PASSES, decomposition, decompositions

COMPOSITE = [op for op in all_operators() if op.decompose is not None]


def parts(row):
    """Return (the operator's tensors, the graph of its parts, its dtypes) for the sample that a row names."""
    op = find(row.name)
    named = zip(op.signature.types.items(), row.dtypes, strict=True)
    types = {variable: next(d for d in allowed if d.name == name) for (variable, allowed), name in named}
    (sample,) = [s for size in ("small", "medium") for s in samples(op, size, types) if s.text == row.sample]
    inputs, outputs = describe(op, sample, types)
    graph = single(op, inputs, outputs, op.attrs.check(op.name, sample.attrs))
    return [d for d in (*inputs, *outputs) if d is not None], run(State(graph, {}), PASSES).graph, types


def test_every_composite_operator_has_a_line_and_no_other():
    names = [row.name for row in decompositions()]
    assert names == [op.name for op in COMPOSITE]
    assert {*names, *primitives(), *EXCEPTIONS} == {op.name for op in all_operators()}


def is_view(op):
    """Return whether an operator is no call, and shares its operand's memory: a reshape, or a slice of first rows."""
    if op.kind in ("collapse_shape", "expand_shape"):
        return True
    first = op.kind == "slice" and not any(op.attrs["starts"]) and set(op.attrs["steps"]) <= {1}
    return first and op.inputs[0].spec.shape[1:] == op.outputs[0].spec.shape[1:]


@pytest.mark.parametrize("op", COMPOSITE, ids=lambda op: op.name)
def test_the_figures(op):
    row = decomposition(op)
    operands, graph, types = parts(row)
    assert row.operands == sum(d.nbytes for d in operands) > 0
    for size in ("small", "medium"):
        for other in samples(op, size, types):
            inputs, outputs = describe(op, other, types)
            assert sum(d.nbytes for d in (*inputs, *outputs) if d is not None) <= row.operands
    assert set(row.primitives) <= {*primitives(), *EXCEPTIONS}
    kinds = [o.kind for o in graph.ops]
    assert row.primitives == {k: kinds.count(k) for k in kinds} and 1 <= row.calls <= len(kinds)
    made = [o for o in graph.ops if not is_view(o)]
    between = [v.spec.nbytes for o in made for v in o.outputs if v not in graph.outputs]
    assert max(between, default=0) <= row.peak <= row.naive
    assert row.naive >= sum(between)
    assert (row.peak == 0) == (not any(between)), "what calls pass to one another takes memory, and nothing else does"


def test_memory_is_reused():
    row = decomposition(find("attention"))
    assert row.peak < row.naive / 2
    # one part is a view, which is no call
    assert (row.primitives["generic"], row.calls) == (7, sum(row.primitives.values()) - 1)


def test_what_has_none_is_refused():
    with pytest.raises(InvalidArgument, match=r"pad: it has no decomposition; allowed: .*softmax"):
        decompositions(["softmax", "pad"])


def test_the_command(capsys):
    code, out, _ = command(capsys, "decompositions", "--op", "softmax", "--op", "conv2d", "--json")
    rows = [asdict(decomposition(find(name))) for name in ("softmax", "conv2d")]
    assert code == 0 and json.loads(out) == json.loads(json.dumps(rows))
    code, out, _ = command(capsys, "decompositions")
    assert code == 0 and all(op.name in out for op in COMPOSITE) and f"{rows[0]['peak']:,}" in out
    code, out, err = command(capsys, "decompositions", "--op", "sofmax")
    assert code == 2 and not out and "softmax" in err
