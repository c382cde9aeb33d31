"""Test graphs: building, printing, parsing and verifying; each mistake is refused by name."""

import math
import random

import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument
from isokern.declare.samples import assignments, describe, fits
from isokern.graph import Builder, Constraint, Op, TensorSpec, Value, parse, verify
from isokern.ops import all_operators


def small():
    b = Builder("small")
    x, w, c = b.input("x", (2, 3)), b.parameter("w", (4, 3)), b.parameter("b", (4,))
    (y,) = b.emit("linear", [x, w, c], name="fc")
    (z,) = b.emit("relu", [y], name="act", constraints=[Constraint("alias", 0)])
    b.output(z)
    return b


SMALL = """graph small {
  %0 = input "x": F32[2, 3]
  %1 = parameter "w": F32[4, 3]
  %2 = parameter "b": F32[4]
  %3 = linear(%0, %1, %2) "fc": F32[2, 4]
  %4 = relu(%3) where alias(0) "act": F32[2, 4]
  return %4
}
"""


def test_what_a_builder_has():
    b = small()
    assert (b.input_vids, b.output_vids, len(b.values), [o.kind for o in b.ops]) == ([0], [4], 5, ["linear", "relu"])
    x, y = b.values[0], b.values[3]
    assert x.users == [b.ops[0]] and y.producer is b.ops[0] and y.users == [b.ops[1]]
    assert b.graph.dump() == SMALL
    assert verify(b.graph) is b.graph


def test_printing_and_parsing_is_the_identity():
    assert parse(SMALL).dump() == SMALL
    assert verify(parse(SMALL)).inputs[0].spec == TensorSpec("F32", (2, 3))


@pytest.mark.parametrize("operator", all_operators(), ids=lambda o: o.name)
def test_every_operator_goes_through_text(operator):
    """Samples in their first three choices of dtypes cover attributes, absent inputs and several outputs."""
    for types in list(assignments(operator))[:3]:
        for sample in operator.samples():
            if sample.size != "small" or not fits(operator, sample, types):
                continue
            descs, outs = describe(operator, sample, types)
            b = Builder(f"of {operator.name}")
            given = [None if d is None else b.input(f"x{i}", d.shape, d.dtype) for i, d in enumerate(descs)]
            given += [b.input("held", d.shape, d.dtype) for d in outs if operator.inout]
            b.output(*b.emit(operator.name, given, sample.attrs, name="it", outputs=outs))
            printed = verify(b.graph).dump()
            again = verify(parse(printed))
            assert again.dump() == printed
            assert repr(dict(again.ops[0].attrs)) == repr(dict(b.ops[0].attrs))
            assert [v.spec for v in again.values.values()] == [v.spec for v in b.values]


def test_odd_numbers_names_and_layouts():
    b = Builder('a "graph"\n')
    x = b.value(TensorSpec("F32", (3, 4), (1, 3), 7), "x\\é", "input")
    (y,) = b.emit("clip", [x], {"min": -0.0, "max": -math.inf}, name='"quoted", {%0}')
    b.output(y, x)
    printed = b.graph.dump()
    assert "strides [1, 3] offset 7" in printed and "-Infinity" in printed
    again = verify(parse(printed))
    assert again.dump() == printed
    assert math.copysign(1, again.ops[0].attrs["max"]) == -1
    assert (again.name, again.inputs[0].name, again.ops[0].name) == ('a "graph"\n', "x\\é", '"quoted", {%0}')


@pytest.mark.parametrize(
    ("error", "message", "make"),
    [
        (BadTensorShape, "fc: linear", lambda b: b.emit("linear", [b.values[0], b.input("v", (4, 5))], name="fc")),
        (BadTensorDtype, "act: relu", lambda b: b.emit("relu", [b.input("i", (2,), "BOOL")], name="act")),
        (InvalidArgument, "no operator is called 'rellu'", lambda b: b.emit("rellu", [b.values[0]])),
        (InvalidArgument, "unknown attribute 'axes'", lambda b: b.emit("softmax", [b.values[0]], {"axes": 1})),
        (InvalidArgument, "input w is missing", lambda b: b.emit("linear", [b.values[0]], name="fc")),
        (InvalidArgument, "is not a value of small", lambda b: b.emit("relu", [small().values[0]])),
        (InvalidArgument, "input 'x'; allowed: a name of its own; there are b, w, x", lambda b: b.input("x", (2,))),
        (InvalidArgument, "output", lambda b: b.output(small().values[0])),
        (BadTensorShape, "output y", lambda b: b.emit("relu", [b.values[0]], outputs=[TensorSpec("F32", (2, 2))])),
    ],
)
def test_mistakes_at_emit(error, message, make):
    b = small()
    before = b.graph.dump()
    with pytest.raises(error) as caught:
        make(b)
    assert message in str(caught.value)
    assert len(b.ops) == 2 and before.splitlines()[:6] == b.graph.dump().splitlines()[:6]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("%3 = linear", "%4 = linear", "%4 is made; allowed: %3, the next number"),
        ("relu(%3)", "relu(%4)", "%4 is read and was not made before"),
        ("relu(%3)", "rellu(%3)", "line 6"),
        ("return %4", "return %9", "%9 is read"),
        ("F32[4, 3]", "F33[4, 3]", "'F33' is not an element type"),
        ('"b": F32[4]', '"b": F32[5]', "line 5"),
        ("alias(0)", "alias(x)", "'x'; allowed: an integer"),
        ("alias(0)", "alias 0", "allowed: '('"),
        ("{\n", "\n", "allowed: '{'"),
        ("}\n", "", "'the end'"),
        ("}\n", "} }\n", "nothing after the graph"),
        ("%4 = relu(%3)", "%4 = relu(%3) {slope = 1}", "unknown attribute 'slope'"),
        ("%4 = relu(%3)", "%4 = relu(%3) {slope = }", "allowed: a number"),
        ("graph small", "graph sm@ll", "'@ll {"),
        ("%4 = relu", "%4, %5 = relu", "2 values and 1 types"),
        ("%4 = relu(%3)", "%4 = relu(%3) {slope = [[1]]}", "line 6: '['; allowed: a number, true, false or a string"),
        ("%4 = relu(%3)", f"%4 = relu(%3) {{slope = {'[' * 100_000}}}", "line 6: '['"),
        ("%4 = relu(%3)", f"%4 = relu(%3) {{slope = {'9' * 10_000}}}", "line 6: 999"),
        ("F32[2, 3]", f"F32[{'2, ' * 100_000}]", "rank 100000"),
        ("F32[2, 3]", f"F32[{'9' * 10_000}]", "line 2: '999"),
        ("relu", "r" * 200_000, "line 6: act: find: no operator is called 'rrr"),
    ],
)
def test_wrong_text(old, new, message):
    assert old in SMALL
    with pytest.raises(isokern.IsokernError) as caught:
        parse(SMALL.replace(old, new, 1))
    assert message in str(caught.value)
    assert len(str(caught.value)) < 5000


class Scanned(str):
    """A text that counts how many of its characters `count` has scanned."""

    looked = 0

    def count(self, sub, start=0, end=None):
        self.looked += (len(self) if end is None else end) - start
        return super().count(sub, start, end)


def test_a_text_is_read_once():
    lines = "".join(f"  %{n} = relu(%{n - 1}): F32[2]\n" for n in range(1, 1001))
    text = Scanned(f'graph g {{\n  %0 = input "x": F32[2]\n{lines}  return %1000\n}}\n')
    assert len(parse(text).ops) == 1000
    assert text.looked <= 2 * len(text)
    with pytest.raises(InvalidArgument, match="graph text: line 1002: "):
        parse(text.replace("%1000 = relu", "%1000 = @"))


def broken_graphs():
    """Return (what is wrong, a function that breaks a graph that way) for each mistake."""

    def cyclic(g):
        g.ops.reverse()

    def foreign(g):
        g.ops[1].inputs = (Value(3, "", g.values[3].spec),)

    def twice(g):
        g.ops.append(g.ops[1])

    def dangling(g):
        g.add(Value(9, "", g.values[3].spec))

    def no_producer(g):
        g.ops.pop()

    def users(g):
        g.values[3].users.clear()

    def number(g):
        g.values[4].vid = 7

    def name(g):
        g.values[1].name = "x"

    def role(g):
        g.values[1].role = "weight"

    def shape(g):
        g.values[4].spec = TensorSpec("F32", (2, 5))

    def dtype(g):
        g.values[1].spec = TensorSpec("F16", (4, 3))

    def kind(g):
        g.ops[1].kind = "rellu"

    def attribute(g):
        g.ops[0].attrs = {"axis": 1}

    def output(g):
        g.outputs.append(Value(4, "", g.values[4].spec))

    def constraint(g):
        g.ops[1].constraints = (Constraint("fast", 0),)

    def no_input(g):
        g.ops[1].constraints = (Constraint("contiguous", 3),)

    def no_alias(g):
        g.ops[0].constraints = (Constraint("alias", 1),)

    def alignment(g):
        g.ops[0].constraints = (Constraint("aligned", 1, 48),)

    def layout(g):
        g.values[0].spec = TensorSpec("F32", (2, 3), (1, 2), 1)
        g.ops[0].constraints = (Constraint("contiguous", 0),)

    def start(g):
        g.values[0].spec = TensorSpec("F32", (2, 3), None, 1)
        g.ops[0].constraints = (Constraint("aligned", 0, 16),)

    return [f for f in locals().values() if callable(f)]


@pytest.mark.parametrize("spoil", broken_graphs(), ids=lambda f: f.__name__)
def test_the_verifier_refuses(spoil):
    graph = verify(small().graph)
    spoil(graph)
    with pytest.raises(isokern.IsokernError) as caught:
        verify(graph)
    assert "small" in str(caught.value)


def test_constraints_that_hold():
    graph = small().graph
    graph.ops[0].constraints = (Constraint("contiguous", 0), Constraint("aligned", 1, 256))
    assert parse(verify(graph).dump()).dump() == graph.dump()


def test_spoilt_text_is_refused_or_read():
    """Texts with characters changed, dropped or doubled either parse or give a typed error."""
    random_ = random.Random(20)
    for _ in range(3000):
        at = random_.randrange(len(SMALL))
        new = random_.choice(["", SMALL[at] * 2, random_.choice('%{}()[],=:"\\ \n0aZ_.-')])
        try:
            graph = parse(SMALL[:at] + new + SMALL[at + 1 :])
        except isokern.IsokernError:
            continue
        assert parse(verify(graph).dump()).dump() == graph.dump()


def test_op_shows_what_it_is():
    (op, _) = small().ops
    assert isinstance(op, Op) and repr(op) == "linear(fc)" and op.operator.name == "linear"
    assert repr(op.outputs[0]) == "%3 'fc': F32[2, 4]"
