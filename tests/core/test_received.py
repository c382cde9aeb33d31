"""Test what is said of the tensors and attributes that a kernel receives."""

from __future__ import annotations

import struct

import pytest

from isokern import TensorDesc
from isokern.cabi.plan import Plan
from isokern.cabi.received import find_siblings, list_fields, list_tensors, say_normal_form, summarise_operands
from isokern.declare.samples import assignments, describe, first_sample
from isokern.ops import all_operators, find


def resolve(name, *inputs, **attrs):
    op = find(name)
    return op.resolve(inputs, op.infer(inputs, attrs), attrs)


@pytest.mark.parametrize("op", all_operators(), ids=lambda op: op.name)
def test_every_operator_says_its_normal_form(op):
    assert say_normal_form(op).endswith(".")
    facts = {f.name: f for f in summarise_operands(op)}
    for sample in (s for s in op.samples() if not s.types and s.size == "small"):
        types = assignments(op)[0]
        for tensor in list_tensors(op.resolve(*describe(op, sample, types), sample.attrs)):
            fact = facts[tensor.name]
            assert fact.may_be_absent if tensor.desc is None else tensor.desc.ndim in fact.ranks


def test_a_call_is_told_as_the_plan_has_it():
    resolved = resolve("softmax", TensorDesc("F32", (2, 3, 4)), axis=1)
    plan, told = Plan(resolved), list_tensors(resolved)
    assert [(t.name, t.written) for t in told] == [("y", True), ("x", False)]
    assert [t.desc for t in told] == list(plan.table)
    assert find_siblings(find("softmax")) == ["log_softmax"]


def test_fields_lie_where_the_record_has_them():
    resolved = resolve("gemm", TensorDesc("F32", (2, 3)), TensorDesc("F32", (3, 5)), alpha=2.5, activation="relu")
    record = find("gemm").attrs
    blob = record.pack(resolved.attrs)
    fields = {f.name: f for f in list_fields(find("gemm"), dict(resolved.attrs))}
    assert sum(f.nbytes for f in fields.values()) == record.nbytes
    assert struct.unpack_from("<d", blob, fields["alpha"].offset) == (2.5,) == (fields["alpha"].value,)
    assert struct.unpack_from("<q", blob, fields["activation"].offset) == (1,)


@pytest.mark.parametrize("op", all_operators(), ids=lambda op: op.name)
def test_fields_fill_the_record(op):
    types = assignments(op)[0]
    sample = first_sample(op, types)
    resolved = op.resolve(*describe(op, sample, types), sample.attrs)
    fields = list_fields(op, dict(resolved.attrs))
    assert [f.name for f in fields] == [name for name, _, _ in op.attrs.layout]
    assert sum(f.nbytes for f in fields) == op.attrs.nbytes - (fields[0].offset if fields else op.attrs.nbytes)


def test_a_broadcast_operand_may_repeat_and_an_optional_one_be_absent():
    facts = {f.name: f for f in summarise_operands(find("gemm"))}
    assert (facts["a"].may_repeat, facts["c"].may_be_absent, facts["y"].may_repeat) == (True, True, False)
