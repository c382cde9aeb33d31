"""Test what compiles of one graph share, and what they do not share."""

import gc

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument
from isokern.demo.zoo import digits, mlp, resnet18
from isokern.graph import Builder, parse
from isokern.runtime import cache, compile
from isokern.runtime.cache import Cache, key_of
from isokern.runtime.packed import frozen


@pytest.fixture(autouse=True)
def empty():
    cache.clear()
    yield
    cache.clear()


def counts():
    found = cache.info()
    return found.hits, found.shared, found.misses


def addresses(program):
    return {name: t.buffer.address for name, t in program.parameters.items()}


def test_a_second_compile_shares_what_nobody_writes_to(devices):
    model = digits(2)
    first, second = compile(model, devices[0]), compile(model, devices[0])
    assert counts() == (1, 1, 1)
    assert second.memory_plan is first.memory_plan and list(second.descriptors.values()) == list(
        first.descriptors.values()
    )
    assert addresses(second) == addresses(first)
    own = [{b.address for b in (*p._context.buffers, *p._context.spaces.values())} for p in (first, second)]
    assert own[0] and not own[0] & own[1]
    random_ = np.random.default_rng(0)
    a, b = random_.standard_normal((2, 2, 1, 8, 8), np.float32)
    wanted = first.run(a), second.run(b)
    for program, x in [(first, a), (second, b)]:
        program.inputs[0].copy_from(x)
    for program in (first, second):
        program.replay()
    devices[0].synchronize()
    for program, y in [(first, wanted[0]), (second, wanted[1])]:
        np.testing.assert_array_equal(program.outputs[0].numpy(), y)


def test_what_differs_is_made_anew(devices):
    model = mlp()
    compile(model, devices[0])
    for options in ({"passes": ""}, {"reuse": False}, {"passes": "dead_code"}):
        before = cache.info().misses
        compile(model, devices[0], **options)
        compile(model, devices[0], **options)
        assert cache.info().misses <= before + 1 and cache.info().shared >= 1
    assert cache.info().misses == 3  # with only dead_code the graph is the same as without passes
    compile(mlp(2), devices[0])
    assert cache.info().misses == 4
    compile(mlp(2), devices[0])  # another model of the same graph: shares plan and descriptors, not parameters
    assert counts()[2] == 4 and counts()[0] == counts()[1] + 2


def test_parameters_that_change_are_seen(devices):
    """Parameters may be set anew, written to by their owner, or be a tensor on the device."""
    b = Builder("product")
    x, w = b.input("x", (2, 3)), b.parameter("w", (3, 3))
    b.output(*b.emit("matmul", [x, w]))
    given = np.ones((2, 3), np.float32)
    mine = np.ones((3, 3), np.float32)
    kept = compile(b.graph, devices[0], parameters={"w": mine})
    mine *= 2
    changed = compile(b.graph, devices[0], parameters={"w": mine})
    np.testing.assert_array_equal(kept.run(given), np.full((2, 3), 3))
    np.testing.assert_array_equal(changed.run(given), np.full((2, 3), 6))
    on_device = isokern.tensor(mine, device=devices[0])
    programs = [compile(b.graph, devices[0], parameters={"w": on_device}) for _ in range(2)]
    on_device.copy_from(3 * mine)
    for program in programs:
        np.testing.assert_array_equal(program.run(given), np.full((2, 3), 18))
        program.close()
    assert on_device.buffer.alive
    model = mlp()
    first = compile(model, devices[0])
    with pytest.raises(ValueError, match="read-only"):
        model.parameters["net.0.bias"][0] = 1
    model.set({"net.4.bias": 100.0 * np.arange(10)})
    other = compile(model, devices[0])
    image = np.zeros((1, 20), np.float32)
    assert other.run(image).argmax() == 9 and first.run(image).max() < 0.9


def test_what_is_frozen():
    own = np.zeros(3)
    view = np.broadcast_to(own, (2, 3))
    assert not frozen(own) and not frozen(view) and not view.flags.writeable
    own.flags.writeable = False
    assert frozen(own) and frozen(own[1:]) and frozen(np.frombuffer(b"abcd", np.uint8)) and not frozen([1.0])
    assert not frozen(np.frombuffer(bytearray(b"abcd"), np.uint8))


def test_memory_is_not_kept(devices):
    """Parameters stay on the device exactly as long as the model or a program; the last `close` frees them at once."""
    memory = devices[0].memory
    gc.collect()
    before = memory.live
    model = mlp()
    first = compile(model, devices[0], prepack=False)  # prepacked parameters may be larger
    del first
    assert cache.info().nbytes == sum(a.nbytes for a in model.parameters.values()) == memory.live - before
    first, second = (compile(model, devices[0], prepack=False) for _ in range(2))
    assert counts() == (2, 2, 1)
    first.close()
    second.run(np.zeros((1, 20)))
    second.close()
    assert memory.live == before and cache.info().nbytes == 0
    with pytest.raises(InvalidArgument, match="closed"):
        second.outputs  # noqa: B018
    first = compile(model, devices[0])
    del model
    gc.collect()
    first.run(np.zeros((1, 20)))
    assert cache.info().nbytes == 0
    del first
    gc.collect()
    assert memory.live == before


def test_there_is_a_limit(devices):
    small = Cache(limit=2)
    graphs = [mlp(n).graph for n in (1, 2, 3)]
    for graph in graphs:
        small.recipe(graph, devices[0], True)
    assert small.info().entries == 2
    small.recipe(graphs[2], devices[0], True)
    small.recipe(graphs[0], devices[0], True)
    assert (small.info().hits, small.info().misses) == (1, 4)
    small.clear()
    assert small.info().entries == small.info().hits == 0


def test_keys_tell_graphs_apart():
    graph = resnet18(1, 32, 8, 10).graph
    same = parse(graph.dump())
    assert key_of(same) == key_of(graph) == key_of(graph.copy())
    assert graph.copy().dump() == graph.dump()
    text = mlp().graph.dump()
    for old, new in [("gelu", "relu"), ('"x"', '"y"'), ("F32", "F16"), ("relu(%3)", "relu(%3) where alias(0)")]:
        assert old in text and key_of(parse(text.replace(old, new))) != key_of(mlp().graph)
    zeros = [
        parse(
            f'graph g {{ %0 = input "x": F32[2] '
            f" %1 = pad(%0) {{low = [1], high = [0], value = {v}}}: F32[3] return %1 }}"
        )
        for v in ("0.0", "-0.0")
    ]
    assert key_of(zeros[0]) != key_of(zeros[1])
    graph = mlp().graph
    before = key_of(graph)
    graph.outputs.append(graph.outputs[0])
    assert key_of(graph) != before


def test_a_program_keeps_its_graph(devices):
    """Continuing with a builder changes neither compiled programs nor later look-ups."""
    b = Builder("growing")
    (y,) = b.emit("relu", [b.input("x", (2,))])
    b.output(y)
    first = compile(b.graph, devices[0], passes="")
    b.output(*b.emit("neg", [y]))
    second = compile(b.graph, devices[0], passes="")
    given = np.array([1.0, -1.0])
    np.testing.assert_array_equal(first.run(given), [1, 0])
    np.testing.assert_array_equal(second.run(given)[1], [-1, 0])


def test_what_is_given_by_generators_is_kept_as_it_is(devices):
    """Arguments may be generators: unknown passes are refused, and a later compile finds the entry of its arguments."""
    model = digits(2)
    compile(model, devices[0], passes="")
    canonical = compile(model, devices[0], passes=(name for name in ["canonicalise", "dead_code"]))
    misses = counts()[2]
    again = compile(model, devices[0], passes=["canonicalise", "dead_code"])
    assert counts()[2] == misses
    assert again.graph.dump() == canonical.graph.dump()
    with pytest.raises(InvalidArgument, match="nonsense"):
        compile(model, devices[0], passes=(name for name in ["nonsense"]))
    b = Builder("state")
    x, held = b.input("x", (4,)), b.input("held", (4,))
    b.output(*b.emit("add", [x, held]))
    for _ in range(2):
        assert compile(b.graph, devices[0], mutable=(name for name in ["held"])).memory_plan.mutable
        assert not compile(b.graph, devices[0]).memory_plan.mutable
    with pytest.raises(InvalidArgument, match="none"):
        compile(b.graph, devices[0], mutable=(name for name in ["none"]))
