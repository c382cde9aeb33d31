"""Test programs whose leading dim changes from run to run: each size is planned anew, with shared parameters."""

import gc

import numpy as np
import pytest
from graph_models import text

import isokern
from isokern import BadTensorShape, InvalidArgument
from isokern.demo.zoo import digits, mlp, resnet18
from isokern.graph import Builder
from isokern.graph.resize import resize
from isokern.runtime import DynamicProgram, cache, compile, dynamic


@pytest.mark.parametrize(
    "make", [mlp, digits, text, lambda n: resnet18(n, 32, 8, 10)], ids=["mlp", "digits", "text", "resnet18"]
)
def test_any_number_of_rows(make, devices):
    """Graph and results equal those of a model made for that many rows, bit for bit; parameters are shared."""
    model = make(2)
    model.initialise(3)
    program = compile(model, devices[0], dynamic=True)
    assert isinstance(program, DynamicProgram)
    for n in (2, 5, 1, 5):
        other = make(n)
        other.set(model.parameters)
        assert resize(model.graph, {v.name: v.spec.shape for v in other.graph.inputs}).dump() == other.graph.dump()
        (value,) = other.graph.inputs
        random_ = np.random.default_rng(n)
        x = (
            random_.integers(0, 11, value.spec.shape)
            if value.spec.dtype.kind == "i"
            else random_.random(value.spec.shape)
        )
        found, wanted = program.run(x), compile(other, devices[0]).run(x)
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
            np.testing.assert_array_equal(a, b)
    assert len(program.programs) == 3
    for name, t in program.parameters.items():
        assert {p.parameters[name].buffer.address for p in program.programs} == {t.buffer.address}
    assert program.program(5) is program.programs[-1]


def test_which_inputs(devices):
    b = Builder("apart")
    x, w = b.input("x", (2, 3)), b.input("w", (3, 4))
    b.output(*b.emit("matmul", [x, w], name="product"))
    program = compile(b.graph, devices[0], dynamic="x")
    w_, x_ = np.ones((3, 4)), np.ones((7, 3))
    out = isokern.zeros((7, 4), device=devices[0])
    assert program.run([x_, w_], out=out) is out and (out.numpy() == 3).all()
    assert program.program({"x": 7}).inputs[0].shape == (7, 3)
    for feeds, message in [
        ([x_, np.ones((4, 4))], r"apart, input w: shape \[4, 4\]; allowed: F32\[3, 4\]"),
        ([x_[:, :2], w_], r"apart, input x: shape \[7, 2\]; allowed: F32\[any number, 3\]"),
        ([x_[0], w_], r"apart, input x: shape \[3\]; allowed: F32\[any number, 3\]"),
        ([x_], "1 feeds; allowed: 2: x, w"),
    ]:
        with pytest.raises(isokern.IsokernError, match=message):
            program.run(feeds)
    with pytest.raises(InvalidArgument, match=r"rows of \['w'\]; allowed: x"):
        program.program({"w": 3})
    with pytest.raises(InvalidArgument, match="dynamic input 'y'; allowed: of x, w"):
        compile(b.graph, devices[0], dynamic=["y"])
    both = compile(b.graph, devices[0], dynamic=True)
    with pytest.raises(BadTensorShape, match="apart: product: matmul"):
        both.run([x_, np.ones((5, 4))])


def test_an_operator_that_does_not_go_with_it_is_named(devices):
    """The error names an operator that fixes the rows or has given outputs; nothing stays allocated."""
    b = Builder("fixed")
    x = b.input("x", (2, 6))
    (y,) = b.emit("relu", [x], name="window")
    (z,) = b.emit("pad", [y], {"low": (0, 0), "high": (0, 1)}, name="pad")
    mask = b.parameter("mask", (2, 7))
    b.output(*b.emit("silu_mul", [z, mask], name="masked"))
    memory = devices[0].memory
    program = compile(b.graph, devices[0], parameters={"mask": np.ones((2, 7))}, dynamic=True)
    program.run(np.zeros((2, 6)))
    before = memory.live
    with pytest.raises(BadTensorShape, match=r"fixed: masked: silu_mul"):
        program.run(np.zeros((3, 6)))
    assert memory.live == before and len(program.programs) == 1
    b = Builder("given")
    x = b.input("x", (2, 3))
    (y,) = b.emit("relu", [x], name="strided", outputs=[isokern.TensorDesc("F32", (2, 3), (4, 1))])
    b.output(y)
    program = compile(b.graph, devices[0], dynamic=True)
    with pytest.raises(
        InvalidArgument,
        match=r"given: strided: relu: its outputs were given "
        r"\(F32\[2, 3\] strides .*%0 'x': F32\[2, 3\] to F32\[4, 3\]",
    ):
        program.run(np.zeros((4, 3)))


def test_parameters_are_those_at_compile(devices):
    b = Builder("product")
    x, w = b.input("x", (1, 3)), b.parameter("w", (3, 3))
    b.output(*b.emit("matmul", [x, w]))
    mine = np.ones((3, 3), np.float32)
    program = compile(b.graph, devices[0], parameters={"w": mine}, dynamic=True)
    mine *= 2
    assert (program.run(np.ones((1, 3))) == 3).all() and (program.run(np.ones((4, 3))) == 3).all()


def test_only_the_last_are_kept(devices, monkeypatch):
    monkeypatch.setattr(dynamic, "KEPT", 2)
    memory = devices[0].memory
    cache.clear()
    gc.collect()
    before = memory.live
    program = compile(mlp(1), devices[0], dynamic=True)
    for n in (2, 3, 2, 4):
        program.run(np.zeros((n, 20)))
    assert [p.inputs[0].shape[0] for p in program.programs] == [1, 2, 4]
    program.close()
    gc.collect()
    assert memory.live == before
    for n in (1, 6):
        with pytest.raises(InvalidArgument, match="closed"):
            program.run(np.zeros((n, 20)))
