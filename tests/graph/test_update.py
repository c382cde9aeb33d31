"""Operators that update what their output holds: that is one more operand, updated in its memory or copied before."""

import numpy as np
import pytest
from graph_models import feeds_of

import isokern
from isokern import InvalidArgument
from isokern.graph import Builder, parse, verify
from isokern.runtime import compile, plan


def cache_graph():
    """Keys of one step into a cache of eight, the mean of all, and the cache."""
    b = Builder("step")
    x, at, held = b.input("x", (1, 1, 2, 4)), b.input("at", (1,), "I64"), b.input("cache", (1, 8, 2, 4))
    (y,) = b.emit("neg", [x], name="key")
    (new,) = b.emit("cache_update", [y, at, held], name="update")
    b.output(*b.emit("reduce_mean", [new], {"axes": (1,)}, name="mean"), new)
    return verify(b.graph)


def test_a_state_stays_over_runs(devices):
    for device in devices:
        program = compile(cache_graph(), device, mutable=["cache"])
        other = compile(cache_graph(), device, mutable=["cache"])
        state = program.inputs[2]
        assert program.outputs[1].span == state.span and not program.plan.copies
        assert other.inputs[2].span != state.span
        held = np.zeros((1, 8, 2, 4), np.float32)
        random_ = np.random.default_rng(0)
        for n in range(3):
            x = random_.standard_normal((1, 1, 2, 4), np.float32)
            held[:, n] = -x[0]
            mean, found = program.run([x, np.array([n])])
            np.testing.assert_array_equal(found, held)
            np.testing.assert_allclose(mean.reshape(2, 4), held.mean(1)[0], rtol=1e-5, atol=1e-6)
        assert not other.inputs[2].numpy().any()
        _, found = program.run({"x": x, "at": np.array([7]), "cache": np.ones_like(held)})
        assert (found[:, :7] == 1).all() and (found[:, 7] == -x[0]).all()
        assert program.check([x, np.array([3])]).first is None
        assert "in place of %2" in next(line.memory for line in program.explain() if line.kind == "cache_update")


def test_what_is_not_mutable_is_copied(devices):
    program = compile(cache_graph(), devices[0])
    given = np.arange(64, dtype=np.float32).reshape(1, 8, 2, 4)
    x = np.ones((1, 1, 2, 4), np.float32)
    for _ in range(2):
        _, found = program.run([x, np.array([2]), given])
        assert (found[:, 2] == -1).all() and (found[:, 3:] == given[:, 3:]).all()
        np.testing.assert_array_equal(program.inputs[2].numpy(), given)
    assert "after a copy of %2" in next(line.memory for line in program.explain() if line.kind == "cache_update")
    with pytest.raises(InvalidArgument, match="2 feeds; allowed: 3: x, at, cache"):
        program.run([x, np.array([2])])


def slices(later):
    """y = -x, z = y with two of its elements from w; `later` reads y afterwards."""
    b = Builder("slices")
    x, w = b.input("x", (6,)), b.parameter("w", (3,))
    (y,) = b.emit("neg", [x], name="y")
    (z,) = b.emit("copy_slice", [w, y], {"x_offset": 1, "y_offset": 2, "count": 2}, name="z")
    b.output(*b.emit("mul" if later else "abs", [z, y] if later else [z], name="last"))
    return b.graph


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
def test_computed_values(later, reuse, devices):
    """In place where nobody reads what was there, else copied; the same either way."""
    w = {"w": np.array([9, 8, 7], np.float32)}
    program = compile(slices(later), devices[0], parameters=w, reuse=reuse)
    x = np.arange(6, dtype=np.float32)
    y = -x
    z = y.copy()
    z[2:4] = [8, 7]
    np.testing.assert_array_equal(program.run(x), z * y if later else abs(z))
    assert bool(program.plan.copies) == (later or not reuse)
    assert program.check(feeds_of(program.graph)).first is None


def test_parameters_are_not_written_to(devices):
    b = Builder("table")
    x, w = b.input("x", (2,)), b.parameter("w", (4,))
    b.output(*b.emit("copy_slice", [x, w], {"count": 2, "y_offset": 1}, name="put"))
    program = compile(b.graph, devices[0], parameters={"w": np.arange(4.0)})
    np.testing.assert_array_equal(program.run([[5.0, 6.0]]), [0, 5, 6, 3])
    np.testing.assert_array_equal(program.parameters["w"].numpy(), np.arange(4.0))


def test_text_and_errors(devices):
    graph = cache_graph()
    text = graph.dump()
    assert "= cache_update(%3, %1, %2)" in text and parse(text).dump() == text == graph.copy().dump()
    b = Builder("wrong")
    x = b.input("x", (4,))
    (y,) = b.emit("neg", [x])
    for inputs, outputs, message in [
        ([y], None, "copy_slice: 1 inputs are given; allowed: x, what y holds"),
        ([y, x, x], None, "copy_slice: 3 inputs are given"),
        ([y, x], [isokern.TensorDesc("F32", (5,))], r"outputs F32\[5\]; allowed: F32\[4\]"),
    ]:
        with pytest.raises(InvalidArgument, match=message):
            b.emit("copy_slice", inputs, {"count": 2}, name="put", outputs=outputs)
    (z,) = b.emit("copy_slice", [y, x], {"count": 2}, name="put")
    b.output(*b.emit("add", [z, x]))
    with pytest.raises(InvalidArgument, match=r"wrong: copy_slice\(put\): %0 'x'.* is updated in its memory, and read"):
        plan(b.graph, mutable=["x"])
    assert plan(b.graph).copies
    with pytest.raises(InvalidArgument, match=r"mutable=\['z'\]; allowed: of x"):
        compile(b.graph, devices[0], mutable=["z"])
    with pytest.raises(InvalidArgument, match="of a dynamic program"):
        compile(b.graph, devices[0], mutable=["x"], dynamic=True)
    op = b.graph.ops[1]
    op.inputs = op.inputs[:1]
    with pytest.raises(InvalidArgument, match="put"):
        verify(b.graph)
