"""Test the check of a program operator by operator: it finds a planted fault where it is, and nothing else."""

import ctypes
from dataclasses import replace

import numpy as np
import pytest
from graph_models import MODELS, feeds_of

from isokern import InvalidArgument
from isokern.backend import Kernel
from isokern.demo.zoo import digits, mlp
from isokern.graph import Builder
from isokern.runtime import cache, compile


@pytest.mark.parametrize("make", MODELS, ids=["mlp", "digits", "text", "pooled", "resnet18"])
def test_right_programs_are_right(make, devices):
    model = make()
    model.initialise(5)
    program = compile(model, devices[0])
    feeds = feeds_of(program.graph)
    found = program.check(feeds)
    assert found.first is None and [c.kind for c in found.operators] == [op.kind for op in program.graph.ops]
    assert all(c.share <= 1 for c in found.operators) and "right, " in str(found.operators[0])
    assert found.values.keys() == program.graph.values.keys()
    results = program.run(feeds)
    for value, array in zip(program.graph.outputs, results if isinstance(results, tuple) else (results,), strict=True):
        np.testing.assert_array_equal(found.values[value.vid], array)


def plant(program, name, fault):
    """Make `fault` change the operator's first output after each call; return the operator."""
    (op,) = [op for op in program.calls() if op.name == name]
    call, out = program._context.calls[op], program._context.tensors[op.outputs[0]]

    def wrong():
        call()
        fault(out)

    program._context.calls[op] = wrong
    return op


def test_the_first_wrong_operator_is_named(devices):
    """Only the operator with the fault is reported: later ones compute the right result of the wrong operand."""
    model = digits(2)  # kept: a check reads what is only there in packed layouts
    program = compile(model, devices[0], passes="")

    def fault(out):
        array = out.numpy().copy()
        array[1, 3, 2, 0] += 0.25
        array[1, 3, 2, 1] += 0.5
        out.copy_from(array)

    op = plant(program, "conv2", fault)
    found = program.check(feeds_of(program.graph))
    (wrong,) = [c for c in found.operators if c.wrong]
    assert found.first is wrong and (wrong.name, wrong.kind) == ("conv2", "conv2d") and wrong.variant
    assert wrong.share > 100 and wrong.error == pytest.approx(0.5, rel=1e-3)
    value = found.values[op.outputs[0].vid]
    for part in (
        f"%{op.outputs[0].vid} 'conv2': F32[2, 32,",
        "2 of ",
        "first at [1, 3, 2, 0]",
        "worst at [1, 3, 2, 1]: ",
    ):
        assert part in wrong.wrong, wrong.wrong
    assert f"{value[1, 3, 2, 1]} instead of {value[1, 3, 2, 1] - 0.5:.3f}" in wrong.wrong and "bound " in wrong.wrong
    assert "conv2: conv2d by" in str(wrong)


def test_not_a_number_is_worst(devices):
    model = mlp(2)  # kept: where parameters are there in packed layouts alone, a check reads its own
    program = compile(model, devices[0])

    def fault(out):
        array = out.numpy().copy()
        array[0, 0], array[1, 2] = 1e6, np.nan
        out.copy_from(array)

    plant(program, "net.4", fault)
    first = program.check(feeds_of(program.graph)).first
    assert first.name == "net.4" and "worst at [1, 2]: nan instead of" in first.wrong


class Wrong(Kernel):
    """A kernel that makes one element of its output too large."""

    def __init__(self, inner, plan):
        self.inner, self.workspace = inner, inner.workspace
        self.at = 4 * plan.table[0].offset + 4 * 9

    def launch(self, handles, workspace, workspace_bytes, stream):
        self.inner.launch(handles, workspace, workspace_bytes, stream)
        ctypes.c_float.from_address(handles[0] + self.at).value += 0.125


def test_a_wrong_kernel_of_the_device_is_found(devices, monkeypatch):
    """The wrong operator is the middle one of three, in the memory that the plan gives it."""
    device = next((d for d in devices if d.memory.wraps), None)
    if device is None:
        pytest.skip("no device computes in host memory")
    variants = type(device).variants

    def some(self, stem):
        found = variants(self, stem)
        if stem != "softmax":
            return found
        return [replace(v, build=lambda plan, v=v: Wrong(v.build(plan), plan)) for v in found]

    monkeypatch.setattr(type(device), "variants", some)
    b = Builder("swapped")
    (y,) = b.emit("tanh", [b.input("x", (4, 8))], name="up")
    (z,) = b.emit("softmax", [y], {"axis": -1}, name="middle")
    b.output(*b.emit("neg", [z], name="down"))
    program = compile(b.graph, device, passes="")
    found = program.check(feeds_of(program.graph))
    assert [c.name for c in found.operators if c.wrong] == ["middle"]
    assert "1 of 32 wrong, first at [1, 1]" in found.first.wrong and "worst at [1, 1]: " in found.first.wrong
    cache.clear()  # drop the wrong kernel


def test_a_value_that_is_overwritten_is_found(devices):
    """As with a wrong plan, memory is written to that is still to be read, while each operator itself is right."""
    b = Builder("clobbered")
    x = b.input("x", (3, 5))
    (y,) = b.emit("exp", [x], name="kept")
    (z,) = b.emit("neg", [y], name="between")
    b.output(*b.emit("add", [y, z], name="reader"))
    program = compile(b.graph, devices[0], passes="")
    target = next(t for v, t in program._context.tensors.items() if v.name == "kept")
    plant(program, "between", lambda out: target.copy_from(np.zeros((3, 5))))
    first = program.check(feeds_of(program.graph)).first
    assert first.name == "reader" and "%1 'kept': F32[3, 5] was overwritten before it was read: " in first.wrong
    b.output(y)
    program = compile(b.graph, devices[0], passes="")
    feeds = feeds_of(program.graph)
    assert program.check(feeds).first is None
    result = program.outputs[1]
    plant(program, "reader", lambda out: result.copy_from(np.zeros((3, 5))))
    (wrong,) = [c for c in program.check(feeds).operators if c.wrong]
    assert wrong.kind == "return" and "%1 'kept': F32[3, 5] was overwritten before the end" in wrong.wrong


def test_a_closed_program_is_not_checked(devices):
    program = compile(mlp(), devices[0])
    program.close()
    with pytest.raises(InvalidArgument, match="closed"):
        program.check(np.zeros((1, 20)))
