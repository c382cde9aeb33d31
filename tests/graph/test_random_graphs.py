"""Test properties of random graphs: text, verifier, memory, values and passes.

`tox -e graph-fuzz` draws 5,000 graphs for each property; by default it is fewer.
"""

from collections import Counter

from graph_mutations import MUTATIONS, named
from graph_oracles import (
    clashes,
    disagreement,
    in_place,
    judged,
    legal_aliases,
    meet,
    moved,
    scratched,
    spans,
)
from hypothesis import event, given, note, reject, settings, strategies as st
from random_graphs import families, graphs

from isokern import IsokernError, NotImplementedOnDevice
from isokern.graph import parse, verify
from isokern.passes import DEFAULT, run as run_passes
from isokern.rewriting.rewriter import State
from isokern.runtime import compile

BITWISE = "canonicalise,common_subexpressions,dead_code"
PER_GRAPH = 12


def compiled(graph, device, parameters, **options):
    try:
        return compile(graph, device, parameters=parameters, **{"passes": "", **options})
    except NotImplementedOnDevice:
        reject()


def refusal(call, *given_):
    """Return the message of the typed error that a call raises, or an empty string."""
    try:
        call(*given_)
    except IsokernError as error:
        return str(error)
    return ""


def results(program, feeds):
    found = program.run(feeds)
    return found if isinstance(found, tuple) else (found,)


def assert_same_bits(one, other, what):
    for n, (a, b) in enumerate(zip(one, other, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes(), f"{what}: result {n}"


def computed(graph):
    return [v for op in graph.ops for v in op.outputs]


def facts(graph):
    """Return everything that a graph states, without using its text."""
    ops = [
        (
            o.kind,
            [v and v.vid for v in o.inputs],
            [v.vid for v in o.outputs],
            repr(dict(o.attrs)),
            o.constraints,
            o.name,
        )
        for o in graph.ops
    ]
    values = [(v.vid, v.name, v.spec, v.role, [graph.ops.index(u) for u in v.users]) for v in graph.values.values()]
    return graph.name, ops, values, [v.vid for v in graph.outputs]


def test_what_is_built_is_valid_and_its_text_says_all_of_it():
    """All operators occur in the graphs of a thorough run, and a hundred in those of a quick one."""
    kinds = Counter()

    @given(graphs(aliases=True))
    def same(drawn):
        graph = verify(drawn.graph)
        kinds.update(op.kind for op in graph.ops)
        shown = graph.dump()
        again = verify(parse(shown))
        assert again.dump() == shown
        assert facts(again) == facts(graph)

    same()
    wanted = {op.name for family in families() for op in family}
    never = sorted(wanted - kinds.keys())
    print(kinds.total(), "operators of", len(kinds), "kinds; never", *never)
    assert len(kinds) >= 100 and (settings().max_examples < 1000 or not never), never


def test_the_verifier_refuses_every_mutation():
    """Each mutation occurs often, and the error names an operator or a value at fault."""
    tried, order, examples = Counter(), [*MUTATIONS, *MUTATIONS], settings().max_examples

    @settings(
        max_examples=min(3 * examples, max(examples, 450))
    )  # few small graphs have an operator that reads another
    @given(graphs(aliases=True), st.data())
    def refused(drawn, data):
        first = data.draw(st.integers(0, len(MUTATIONS) - 1), "first mutation")
        for name in order[first : first + PER_GRAPH]:
            graph = parse(drawn.graph.dump())
            fault = MUTATIONS[name](graph, lambda there: there[data.draw(st.integers(0, len(there) - 1))])
            if fault is None:
                continue
            note(name)
            tried[name] += 1
            said = refusal(verify, graph)
            assert said, f"{name} is not seen: {fault}"
            assert named(said, fault), f"{name}: {said}"

    refused()
    print(dict(tried))
    assert all(tried[name] >= examples // 20 for name in MUTATIONS), tried


def test_alias_constraints_are_kept_or_refused(device):
    count = Counter()

    @given(graphs(aliases=True))
    def kept(drawn):
        asked = [(op, c.operand) for op in drawn.graph.ops for c in op.constraints if c.kind == "alias"]
        if not asked:
            return
        feeds, parameters = drawn.arrays()
        if said := refusal(lambda: compiled(drawn.graph, device, parameters).close()):
            assert "alias(" in said and "memory that keeps it" in said
            count["refused"] += 1
            return
        program = compiled(drawn.graph, device, parameters)
        there = [(op, c.operand) for op in program.graph.ops for c in op.constraints if c.kind == "alias"]
        assert [(op.kind, at) for op, at in there] == [(op.kind, at) for op, at in asked]
        where = spans(program, program.graph)
        assert all(where[op.inputs[at]] == where[op.outputs[0]] and in_place(op, op.outputs[0])[at] for op, at in there)
        plain = parse(drawn.graph.dump())
        for op in plain.ops:
            op.constraints = ()
        apart = compiled(plain, device, parameters, reuse=False)
        assert_same_bits(results(program, feeds), results(apart, feeds), "with the constraint and without")
        count["kept"] += 1
        program.close()
        apart.close()

    kept()
    print(dict(count))
    assert count["kept"] and count["refused"], count


def held_by(graph, device, feeds, parameters):
    """Return what every value holds after a run of a program whose results are all values."""
    every = parse(graph.dump())
    every.outputs[:] = computed(every)
    program = compiled(every, device, parameters)
    found = dict(zip((v.vid for v in every.outputs), results(program, feeds), strict=True))
    program.close()
    given_ = {**feeds, **parameters}
    return {v: found[v.vid] if v.vid in found else given_[v.name] for v in graph.values.values()}


def assert_right(graph, held, device, count):
    """Assert that each operator is within its tolerance."""
    for op in graph.ops:
        wrong = judged(op, held, device)
        count["skipped" if wrong is None else "judged"] += 1
        assert not wrong, wrong


def check_memory(drawn, device, count):
    """No needed value is overwritten; without reuse and in a second run the bits are the same; aliases are used."""
    feeds, parameters = drawn.arrays()
    shared, apart = (compiled(drawn.graph, device, parameters, reuse=r) for r in (True, False))
    graph = shared.graph  # of the operators that the device has
    where, own = spans(shared, graph), spans(apart, graph)
    assert clashes(graph, where) == []
    assert scratched(shared, graph, where) == [] and scratched(apart, graph, own) == []
    made = computed(graph)
    assert not any(meet(own[v], own[w]) for n, v in enumerate(made) for w in made[:n]), "without reuse"
    first = results(shared, feeds)
    assert_same_bits(first, results(apart, feeds), "with reuse and without")
    assert_same_bits(first, results(shared, feeds), "once and again")
    legal = legal_aliases(graph)
    there = [
        (op, x, y) for op in graph.ops for y in op.outputs for x in op.given if y.spec.numel and where[x] == where[y]
    ]
    count.update(
        graphs=1,
        workspaces=len(shared.memory_plan.spaces),
        legal=bool(legal),
        one=bool(legal and there),
        sites=len(legal),
        taken=len({y for _, _, y in there}),
    )
    event("legal alias" if legal else "no legal alias")
    shared.close()
    apart.close()


def check_tolerance(drawn, device, count):
    """Each operator is within its bound for the operands on the device; no result depends on which others are."""
    feeds, parameters = drawn.arrays()
    held = held_by(drawn.graph, device, feeds, parameters)
    program = compiled(drawn.graph, device, parameters)
    found = results(program, feeds)
    program.close()
    for value, array in zip(drawn.graph.outputs, found, strict=True):
        assert held[value].tobytes() == array.tobytes(), f"{value!r} as one result of all"
    assert_right(drawn.graph, held, device, count)


def check_passes(drawn, device, count):
    """Passes that only leave work out change no bit; all passes together change results within their bounds."""
    graph = drawn.graph
    feeds, parameters = drawn.arrays()
    programs = [compiled(graph, device, parameters, passes=p) for p in ("", BITWISE, DEFAULT)]
    plain, less, whole = (results(p, feeds) for p in programs)
    copied = [moved(p) for p in programs]
    count["moved less"] += copied[2] < copied[0]
    assert copied[2] <= copied[0], "bytes that are only copied"
    for program in programs:
        program.close()
    assert_same_bits(plain, less, BITWISE)
    state = run_passes(State(graph, parameters))
    count["constants"] += any(name.endswith(" constant") for name in state.parameters)
    known = [(op.kind, op.name, op.attrs) for op in graph.ops]
    if set(state.parameters) <= set(parameters) and all(
        (op.kind, op.name, op.attrs) in known for op in state.graph.ops
    ):
        assert_same_bits(plain, whole, DEFAULT)
        return
    count["fused"] += 1
    held = held_by(state.graph, device, feeds, state.parameters)
    assert_same_bits(whole, [held[v] for v in state.graph.outputs], "results after passes, as some of all")
    assert_right(state.graph, held, device, count)
    wrong = disagreement(graph, {**feeds, **parameters}, state.graph, {**feeds, **state.parameters}, drawn.seed)
    count["overflows" if wrong is None else "agree"] += 1
    assert not wrong, wrong


def test_memory_values_and_passes(device):
    """Drawing a graph takes longer than trying it: one graph is tried in three ways."""
    memory, values, passes = Counter(), Counter(), Counter()

    @given(graphs())
    def right(drawn):
        check_memory(drawn, device, memory)
        check_tolerance(drawn, device, values)
        check_passes(drawn, device, passes)

    right()
    print(dict(memory), dict(values), dict(passes))
    assert memory["legal"] >= memory["graphs"] / 4, memory
    assert memory["one"] >= 0.8 * memory["legal"], memory
    assert memory["workspaces"] >= memory["graphs"] / 20, memory
    assert values["skipped"] <= 0.1 * values["judged"], values
    assert min(passes["fused"], passes["constants"], passes["judged"]) >= settings().max_examples / 50, passes
    assert passes["overflows"] <= 0.2 * passes["agree"], passes
