"""Test the scalar language: what parses, what is refused, and the C code that is printed."""

import dataclasses
import pickle
from random import Random

import pytest

from isokern import ops
from isokern.cabi import header
from isokern.cabi.header import _row
from isokern.declare.attributes import attrs, body, integer, number
from isokern.dtypes import F32
from isokern.expr import stack_code
from isokern.expr.stack_code import OPCODES
from isokern.expr.tree import literal, parse, substitute, to_c, to_text
from isokern.status import InvalidArgument


def c(text, compute="F32"):
    return to_c(parse(text), compute, lambda name: name)


def test_printing():
    assert c("a + b * 2") == "(a + (b * 2.0f))"
    assert c("x if x > 0 else alpha * expm1(x)", "F64") == "((x > 0.0) ? x : (alpha * ik_expm1_f64(x)))"
    assert c("a < b") == "((a < b) ? 1.0f : 0.0f)"
    assert c("-1.5") == "-1.5f"
    assert c("-a * 2", "I64") == "((int64_t)((uint64_t)((int64_t)(0 - (uint64_t)a)) * (uint64_t)INT64_C(2)))"
    assert (
        c("not (a != 0 and b != 0)", "I64") == "((!((a != INT64_C(0)) & (b != INT64_C(0)))) ? INT64_C(1) : INT64_C(0))"
    )


@pytest.mark.parametrize(
    "text",
    ["x ** 2", "x[0]", "f(x)", "x.y", "exp(x, x)", "lambda: x", "'s'", "x // 2", "1 < x < 2", "exp(x=1)", "True"],
)
def test_outside_the_language(text):
    with pytest.raises(ValueError, match="outside the language"):
        parse(text)


def test_literals_read_back():
    assert float(literal(0.1, "F64")) == 0.1
    assert literal(3, "U64") == "UINT64_C(3)"
    assert literal(float("-inf"), "F32") == "(-1.0f / 0.0f)"
    with pytest.raises(ValueError, match="no literal"):
        literal(float("nan"), "F32")


def test_every_row_uses_only_its_own_names():
    rows = [o for o in ops.all_operators() if o.scalar_expr is not None]
    assert len(rows) >= 45
    for op in rows:
        known = {i.name for i in op.signature.inputs} | {a.name for a in op.attrs.attrs}
        used = {n.value for n in op.scalar_expr.walk() if n.kind == "name"}
        assert used <= known, op.name


def test_a_row_finds_its_numbers_behind_other_attributes():
    """Kernels read a number from its position in the record, which is counted in words of 8 bytes."""
    record = attrs("MIX1", integer("axis", -1), number("alpha"), integer("n", 0), number("beta"))
    mixed = dataclasses.replace(ops.find("leaky_relu"), attrs=record, expression=parse("x * alpha + beta"))
    text = _row(mixed, F32)
    assert "alpha = ((const float *)attrs_)[1];" in text
    assert "beta = ((const float *)attrs_)[3];" in text


def drawn(random, depth):
    """Return a random expression in which subexpressions are likely to repeat."""
    if depth == 0:
        return random.choice([parse("x0"), parse("x1"), parse("2")])
    parts = [drawn(random, random.randrange(depth)) for _ in range(3)]
    made = random.choice(["x0 + x1", "x0 * x1", "exp(x0)", "-x0", "x0 if x2 < x1 else x1"])
    return substitute(parse(made), dict(zip(("x0", "x1", "x2"), parts, strict=True)))


def test_programs_read_back_and_write_over_nothing_that_is_on_the_stack():
    """`tree_of` refuses code that overwrites values on the stack, since a kernel may refer to kept values in place."""
    random, again = Random(0), 0
    for n in range(2000):
        tree = drawn(random, 2 + n % 4)
        try:
            made = stack_code.words(tree)
        except ValueError:  # too long, or too many values on the stack
            continue
        assert stack_code.tree_of(made) == tree
        again += sum(word & 255 == stack_code.OPCODES["again"] for word in made)
    assert again > 500
    add, keep, x = stack_code.OPCODES["add"], stack_code.OPCODES["keep"], stack_code.OPCODES["input"]
    with pytest.raises(ValueError, match="keep 0 would write over what is on the stack"):
        stack_code.tree_of([x, x, add, keep, x, x, add, keep, add])


NESTED = {
    "a sum of 500": "+".join(["x0"] * 500),
    "a sum of 100,000": "+".join(["x0"] * 100_000),
    "brackets": "(" * 300 + "x0" + ")" * 300,
    "signs": "-" * 5000 + "x0",
    "conditions": "x0 if x0 else " * 400 + "x0",
    "calls": "abs(" * 190 + "x0" + ")" * 190,
}


@pytest.mark.parametrize("text", NESTED.values(), ids=NESTED)
def test_what_is_too_long_or_too_deep_is_refused_as_an_attribute(text):
    with pytest.raises(InvalidArgument) as caught:
        attrs("TST3", body("body")).check("op", {"body": text})
    assert len(str(caught.value)) < 5000


def test_a_long_program_is_taken_from_deep_in_a_recursion():
    text = "+".join(["x0"] * 63)

    def at(depth):
        return len(stack_code.words(parse(text))) if depth == 0 else at(depth - 1)

    assert at(300) == 125


@pytest.mark.parametrize("constant", ["9" * 400, "9007199254740993", "-18446744073709551615"])
def test_a_constant_that_no_float64_is_is_refused(constant):
    with pytest.raises(InvalidArgument, match="no float64 is"):
        attrs("TST3", body("body")).check("op", {"body": f"x0 * {constant}"})
    stack_code.words(parse("x0 * 9007199254740992 + -9223372036854775808 - 1e999"))


def test_zeros_of_both_signs_are_two_parts():
    """Were 0.0 and -0.0 taken as equal, the two quotients would be one common subexpression."""
    tree = parse("x0 / 0.0 + x0 / -0.0")
    assert stack_code.tree_of(stack_code.words(tree)) == tree
    assert OPCODES["again"] not in [word & 255 for word in stack_code.words(tree)]


def test_a_program_that_would_be_endless_as_text_is_refused():
    """Squaring a value 40 times takes 123 words, but its text would have about 10**12 parts."""
    code = [OPCODES["input"]]
    for n in range(40):
        code += [OPCODES["keep"] | n % 2 << 8, OPCODES["again"] | n % 2 << 8, OPCODES["mul"]]
    with pytest.raises(ValueError, match="more than 4000 parts"):
        stack_code.tree_of(code)


def test_walking_goes_from_left_to_right():
    nodes = parse("abs(a) * (b if a < 2 else c)").walk()
    assert [n.value for n in nodes if n.kind in ("name", "const")] == ["a", "a", 2, "b", "c"]


def test_trees_go_to_other_processes():
    tree = parse("x0 * 2 + exp(x0)")
    again = pickle.loads(pickle.dumps(tree))
    assert (again, hash(again), again.parts) == (tree, hash(tree), tree.parts)


def test_a_text_is_parsed_once_and_what_it_repeats_is_one_object():
    text = "exp(x0 + 1.5) * (x0 + 1.5) + (2 if x0 < 1.5 else exp(x0 + 1.5))"
    tree = parse(text)
    assert parse(text) is tree
    product, choice = tree.args
    assert product.args[0] is choice.args[2] and product.args[0].args[0] is product.args[1]
    assert parse(to_text(tree)) == tree


def test_zeros_of_both_signs_stay_apart():
    tree = parse("copysign(x0, 0.0) + copysign(x0, -0.0)")
    assert to_text(tree) == "(copysign(x0, 0.0) + copysign(x0, -0.0))"
    assert tree.args[0] is not tree.args[1]


def test_an_activation_is_generated_or_refused(monkeypatch):
    monkeypatch.setattr(header, "ACTIVATIONS", ("none", "mish", "relu"))
    assert "case 1: row_mish_f32(n, in, x, 0); return;" in header.elementwise_activations()
    monkeypatch.setattr(header, "ACTIVATIONS", ("none", "leaky_relu"))
    with pytest.raises(ValueError, match="leaky_relu"):
        header.elementwise_activations()
