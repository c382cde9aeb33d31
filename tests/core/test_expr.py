"""The scalar language: what parses, what is refused, and the C that is printed."""

import dataclasses

import pytest

from isokern import ops
from isokern.abi.header import _row
from isokern.abi.records import attrs, integer, number
from isokern.dtypes import F32
from isokern.expr import literal, parse, to_c


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
    rows = [o for o in ops.all_operators() if o.row is not None]
    assert len(rows) >= 45
    for op in rows:
        known = {i.name for i in op.signature.inputs} | {a.name for a in op.attrs.attrs}
        used = {n.value for n in op.row.walk() if n.kind == "name"}
        assert used <= known, op.name


def test_a_row_finds_its_numbers_behind_other_attributes():
    """Kernels read a number at its place in the record, in words of 8 bytes."""
    record = attrs("MIX1", integer("axis", -1), number("alpha"), integer("n", 0), number("beta"))
    mixed = dataclasses.replace(ops.find("leaky_relu"), attrs=record, expression=parse("x * alpha + beta"))
    text = _row(mixed, F32)
    assert "alpha = ((const float *)attrs_)[1];" in text
    assert "beta = ((const float *)attrs_)[3];" in text
