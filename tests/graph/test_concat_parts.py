"""Test concatenations without copies: what lies where, that nothing is overwritten, and what has to be copied."""

import numpy as np
import pytest
from graph_oracles import clashes, spans

from isokern.graph import Builder, Constraint, verify
from isokern.runtime import compile, plan_memory


def join(b, *values, axis=1):
    (y,) = b.emit("concat", values, {"axis": axis})
    return y


def one(b, kind, *values):
    (y,) = b.emit(kind, values)
    return y


def plan(b):
    return plan_memory(verify(b.graph), join=True)


def copied(made):
    """Return the number of concatenations that are calls."""
    return sum(op.kind == "concat" for op in made.calls)


def compare(b, device, seed=0):
    """Check that a program has the results of one whose values share no memory; return its plan."""
    random = np.random.default_rng(seed)
    feeds = {v.name: random.standard_normal(v.spec.shape, np.float32) for v in b.graph.inputs}
    shared, apart = (compile(b.graph, device, passes="", reuse=r) for r in (True, False))
    found, wanted = (p.run(feeds) for p in (shared, apart))
    for x, y in zip(*(p if isinstance(p, tuple) else (p,) for p in (found, wanted)), strict=True):
        np.testing.assert_array_equal(x, y)
    return shared.memory_plan


def grown(layers=4):
    """Return layers that each read all before them, as in a DenseNet."""
    b = Builder("grown")
    made = [one(b, "neg", b.input("x", (1, 3, 4, 4)))]
    for _ in range(layers):
        y = one(b, "relu", join(b, *made)) if len(made) > 1 else one(b, "abs", made[0])
        (low,) = b.emit("slice", [y], {"starts": (0,), "ends": (2,), "axes": (1,)})
        made.append(one(b, "exp", low))
    b.output(one(b, "neg", join(b, *made)))
    return b


def test_what_is_concatenated_again_and_again_lies_in_one_place(device_group):
    b = grown()
    made = plan(b)
    assert copied(made) == 0
    concats = [op.outputs[0] for op in b.graph.ops if op.kind == "concat"]
    assert {made.root[v] for v in concats} == {concats[-1]}
    starts = [made.starts[v] for v in next(v.producer for v in concats[-1:]).given]
    assert starts == [0, 48, 80, 112, 144]
    for device in device_group:
        assert copied(compare(b, device)) == 0


def test_a_part_that_is_read_later_is_not_written_over(cpu):
    b = Builder("later")
    x, y = one(b, "neg", b.input("x", (1, 2, 4, 4))), one(b, "abs", b.input("y", (1, 2, 4, 4)))
    whole = join(b, x, y)
    both = one(b, "relu", whole)  # the last reader of the whole, which would be written over
    b.output(both, one(b, "neg", one(b, "exp", x)))
    assert copied(compare(b, cpu)) == 0


def test_the_oracle_takes_parts_in_their_places_and_no_others(cpu):
    b = Builder("places")
    x, y = (one(b, "neg", b.input(n, (1, 2, 4, 4))) for n in "xy")
    b.output(one(b, "neg", join(b, x, y)))
    program = compile(b.graph, cpu, passes="")
    assert copied(program.memory_plan) == 0
    where = spans(program, program.graph)
    (whole,) = (op.outputs[0] for op in program.graph.ops if op.kind == "concat")
    assert clashes(program.graph, where) == []
    begin, end = where[whole]
    assert "concat writes" in clashes(program.graph, {**where, whole: (begin + 4, end + 4)})[0]


def refused(name):
    """Return a graph whose concatenation has to copy."""
    b = Builder(name)
    x, y = (one(b, "neg", b.input(n, (2 if name == "batch" else 1, 2, 4, 4))) for n in "xy")
    if name == "twice":
        b.output(one(b, "neg", join(b, x, x)))
    elif name == "result":
        b.output(x, one(b, "neg", join(b, x, y)))
    elif name == "input":
        b.output(one(b, "neg", join(b, x, b.input("z", (1, 2, 4, 4)))))
    elif name == "order":
        b.output(one(b, "add", join(b, x, y), join(b, y, x)))
    elif name == "unaligned":
        (low,) = b.emit("slice", [x], {"starts": (0,), "ends": (3,), "axes": (3,)})
        b.output(one(b, "neg", join(b, one(b, "abs", low), one(b, "relu", low))))
    elif name == "constraint":
        (far,) = b.emit("exp", [y], constraints=[Constraint("aligned", 0, 256)])
        b.output(one(b, "neg", join(b, x, y)), far)
    elif name == "view":
        (low,) = b.emit("slice", [x], {"starts": (0,), "ends": (1,), "axes": (1,)})
        b.output(one(b, "neg", join(b, low, y)))
    else:
        b.output(one(b, "neg", join(b, x, y)))
    return b


@pytest.mark.parametrize("name", ["twice", "result", "input", "order", "batch", "unaligned", "constraint", "view"])
def test_what_has_to_be_copied(name, cpu):
    b = refused(name)
    assert copied(plan(b)) == 1, name
    compare(b, cpu)


def test_random_graphs_of_concatenations(cpu):
    """Operators that write in place, views, and parts that are read before, between and after."""
    joined = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        b = Builder(f"random {seed}")
        values = [b.input("x", (1, 2, 4, 4)), b.input("y", (1, 1, 4, 4))]
        for _ in range(14):
            picked = [values[i] for i in random.integers(max(0, len(values) - 5), len(values), random.integers(1, 4))]
            kind = random.choice(["neg", "relu", "exp", "concat", "concat", "add", "slice"])
            if kind == "concat":
                values.append(join(b, *picked))
            elif kind == "add":
                values.append(one(b, "add", picked[0], one(b, "abs", picked[0])))
            elif kind == "slice":
                (low,) = b.emit("slice", [picked[0]], {"starts": (0,), "ends": (1,), "axes": (1,)})
                values.append(low)
            else:
                values.append(one(b, "sigmoid" if kind == "exp" else kind, picked[0]))
        used = {v for op in b.graph.ops for v in op.given}
        b.output(*(one(b, "neg", v) for v in values if v not in used and v.role == "computed"))
        made = compare(b, cpu, seed)
        joined += sum(op.kind == "concat" for op in made.views)
    assert joined > 50
