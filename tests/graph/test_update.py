"""Test operators that update a tensor: it is one more operand, updated in its memory or copied before."""

import numpy as np
import pytest
from graph_models import feeds_of

import isokern
from isokern import InvalidArgument
from isokern.graph import Builder, parse, verify
from isokern.passes import DEFAULT
from isokern.runtime import compile, plan_memory


def cache_graph():
    """Return a graph that writes one step's keys to a cache of eight, with the cache and its mean as results."""
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
        assert program.outputs[1].span == state.span and not program.memory_plan.copies
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


def test_a_state_in_memory_of_the_caller_s(devices):
    """Two programs share a cache: each sees what the other wrote, and neither allocates or frees it."""
    for device in devices:
        state = isokern.tensor(np.zeros((1, 8, 2, 4), np.float32), device=device)
        one, other = (compile(cache_graph(), device, mutable={"cache": state}) for _ in range(2))
        x = np.ones((1, 1, 2, 4), np.float32)
        one.run([x, np.array([0])])
        one.close()
        _, found = other.run([2 * x, np.array([5])])
        assert (found[:, 0] == -1).all() and (found[:, 5] == -2).all() and not found[:, [1, 2, 3, 4, 6, 7]].any()
        np.testing.assert_array_equal(state.numpy(), found)
        assert other.inputs[2] is state and other.outputs[1].span == state.span
        assert compile(cache_graph(), device, mutable={"cache": None}).inputs[2].span != state.span
        own = compile(cache_graph(), device, mutable=["cache"])
        assert own.nbytes - other.nbytes == state.buffer.nbytes


def test_memory_that_will_not_do(devices):
    device = devices[0]
    shape = (1, 8, 2, 4)
    closed, state = (isokern.empty(shape, "F32", device=device) for _ in range(2))
    closed.buffer.close()
    fixed = np.zeros(shape, np.float32)
    fixed.flags.writeable = False
    for given, error, message in [
        (fixed, InvalidArgument, "step, input cache: its memory is a ndarray; allowed: a tensor, F32"),
        (state[:, ::2], isokern.BadTensorShape, r"step, input cache: F32\[1, 4, 2, 4\] strides"),
        (isokern.empty(shape, "F16", device=device), isokern.BadTensorShape, r"F16\[1, 8, 2, 4\] on .*; allowed: F32"),
        (closed, InvalidArgument, "step, input cache: the tensor's buffer is closed"),
    ]:
        with pytest.raises(error, match=message):
            compile(cache_graph(), device, mutable={"cache": given})
    if device.memory.wraps:
        held = isokern.Tensor(state.desc, isokern.from_numpy(fixed, device=device).buffer)
        with pytest.raises(InvalidArgument, match="step, input cache: read-only memory"):
            compile(cache_graph(), device, mutable={"cache": held})
    with pytest.raises(InvalidArgument, match=r"mutable=\['none'\]; allowed: of x, at, cache"):
        compile(cache_graph(), device, mutable={"none": state})
    b = Builder("two")
    x, at, k, v = b.input("x", (1, 1, 2, 4)), b.input("at", (1,), "I64"), b.input("k", shape), b.input("v", shape)
    b.output(*(b.emit("cache_update", [x, at, held])[0] for held in (k, v)))
    with pytest.raises(InvalidArgument, match="two: inputs k and v are in the same memory"):
        compile(b.graph, device, mutable={"k": state, "v": state})


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
    """Return the graph of y = -x and z, which is y with two elements from w; with `later`, y is read afterwards."""
    b = Builder("slices")
    x, w = b.input("x", (6,)), b.parameter("w", (3,))
    (y,) = b.emit("neg", [x], name="y")
    (z,) = b.emit("copy_slice", [w, y], {"x_offset": 1, "y_offset": 2, "count": 2}, name="z")
    b.output(*b.emit("mul" if later else "abs", [z, y] if later else [z], name="last"))
    return b.graph


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("reuse", [False, True])
def test_computed_values(later, reuse, devices):
    """The update happens in place where nothing reads the old value, else on a copy; results are the same."""
    w = {"w": np.array([9, 8, 7], np.float32)}
    program = compile(slices(later), devices[0], parameters=w, reuse=reuse)
    x = np.arange(6, dtype=np.float32)
    y = -x
    z = y.copy()
    z[2:4] = [8, 7]
    np.testing.assert_array_equal(program.run(x), z * y if later else abs(z))
    assert bool(program.memory_plan.copies) == (later or not reuse)
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
        plan_memory(b.graph, mutable=["x"])
    assert plan_memory(b.graph).copies
    with pytest.raises(InvalidArgument, match=r"mutable=\['z'\]; allowed: of x"):
        compile(b.graph, devices[0], mutable=["z"])
    with pytest.raises(InvalidArgument, match="of a dynamic program"):
        compile(b.graph, devices[0], mutable=["x"], dynamic=True)
    op = b.graph.ops[1]
    op.inputs = op.inputs[:1]
    with pytest.raises(InvalidArgument, match="put"):
        verify(b.graph)


@pytest.mark.parametrize("passes", ["", DEFAULT])
def test_a_view_of_a_state_is_of_what_it_was_before_its_update(passes, devices):
    """A transpose or flatten that is read after the update is a copy made before it."""
    b = Builder("before")
    x, at, held = b.input("x", (1, 1, 2, 4)), b.input("at", (1,), "I64"), b.input("cache", (1, 8, 2, 4))
    (flat,) = b.emit("flatten", [held])
    (turned,) = b.emit("transpose", [flat])
    (whole,) = b.emit("transpose", [held])
    (new,) = b.emit("cache_update", [x, at, held])
    (product,) = b.emit("matmul", [flat, turned])
    b.output(product, new, *b.emit("softmax", [whole]))
    given = np.arange(64, dtype=np.float32).reshape(1, 8, 2, 4)
    for device in devices:
        program = compile(b.graph, device, mutable=["cache"], passes=passes)
        product, new, soft = program.run({"x": np.ones((1, 1, 2, 4)), "at": np.array([3]), "cache": given})
        assert product.item() == (given * given).sum() and (new[:, 3] == 1).all() and (soft == 1).all()


def test_two_tensors_of_one_arena_are_two(devices):
    """Scatter copies x where its result lies in the same buffer at another place, since x is read again."""
    b = Builder("scatter")
    x, at, new = b.input("x", (4, 3)), b.input("at", (2,), "I64"), b.input("new", (2, 3))
    (held,) = b.emit("relu", [x])
    (y,) = b.emit("scatter", [held, at, new], {"reduction": "add"})
    b.output(*b.emit("mul", [y, held]))
    given = np.arange(12, dtype=np.float32).reshape(4, 3) - 3
    wanted = np.maximum(given, 0)
    wanted = wanted * (wanted + np.array([[0], [2], [0], [0]], np.float32))
    for device in devices:
        found = compile(b.graph, device).run([given, np.array([1, -3]), np.ones((2, 3), np.float32)])
        np.testing.assert_array_equal(found, wanted)
