"""Test parameters in a kernel's packed layout, which `compile` makes unless it is told not to."""

import gc

import numpy as np
import pytest

import isokern
from isokern import InvalidArgument
from isokern.call.descriptor import Descriptor
from isokern.demo.zoo import resnet18
from isokern.graph import Builder
from isokern.runtime import cache, compile


def product_graph(rows):
    """Return a graph that looks up rows in a Q4_0 table and multiplies with it, as language models do."""
    b = Builder("tied")
    at, x = b.input("at", (1,), "I64"), b.input("x", (rows, 128))
    w = b.parameter("w", (64, 128), "Q4_0")
    b.output(*b.emit("embedding", [w, at], dtypes={"T": "F32"}, name="rows"))
    b.output(*b.emit("matmul_transposed", [x, w], {"lhs_quantization": "q8_0"}, name="product"))
    return b.graph


@pytest.mark.parametrize("dynamic", [False, True])
def test_prepacked_parameters_give_the_same_and_are_made_once(device_group, dynamic):
    random = np.random.default_rng(0)
    feeds = [np.array([3]), random.standard_normal((5, 128), np.float32)]
    for device in device_group:
        w = isokern.tensor(random.standard_normal((64, 128)), "Q4_0", device=device)
        options = {"parameters": {"w": w}, "dynamic": ["x"] if dynamic else False}
        wanted = compile(product_graph(5), device, prepack=False, **options).run(feeds)
        packed = device.prepack_cache.packed
        program = compile(product_graph(5), device, **options)
        for got, want in zip(program.run(feeds), wanted, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
        first = program.program(5) if dynamic else program
        made = isokern.create(
            "matmul_transposed",
            [isokern.TensorDesc("F32", (5, 128)), w.desc],
            device=device,
            prepacked=["w"],
            lhs_quantization="q8_0",
        )
        assert len(first.prepacked) == bool(made.packed_layouts) == device.prepack_cache.packed - packed
        assert first.parameters["w"] is w
        assert first.check(feeds).first is None
        hits = cache.info().shared
        again = compile(product_graph(5), device, parameters={"w": w})
        assert cache.info().shared == hits + 1
        other = compile(product_graph(2), device, parameters={"w": w})
        assert again.prepacked == other.prepacked == first.prepacked
        assert device.prepack_cache.packed - packed == bool(made.packed_layouts)
        first.close()
        assert not first.prepacked


def test_the_largest_parameters_are_packed_first(device_group, monkeypatch):
    """While one is packed, its own bytes may be in memory besides: so the peak is no higher than what is left."""
    b, random = Builder("some"), np.random.default_rng(0)
    x, rows = b.input("x", (3, 128)), {"first": 32, "second": 96, "third": 64}
    for name, n in rows.items():
        w = b.parameter(name, (n, 128), "Q4_0")
        b.output(*b.emit("matmul_transposed", [x, w], {"lhs_quantization": "q8_0"}))
    packed, real = [], Descriptor.prepack
    monkeypatch.setattr(Descriptor, "prepack", lambda d, n, t, **how: packed.append(t) or real(d, n, t, **how))
    for device in device_group:
        packed.clear()
        given = {n: isokern.tensor(random.standard_normal((r, 128)), "Q4_0", device=device) for n, r in rows.items()}
        program = compile(b.graph, device, parameters=given)
        assert packed == ([given[n] for n in ("second", "third", "first")] if program.prepacked else [])


def images(seed=0):
    return np.random.default_rng(seed).standard_normal((2, 3, 32, 32), np.float32)


@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_only_read_packed_is_there_once(cpu, dynamic):
    """The CPU's convolutions read packed weights; those are computed again where somebody wants to see them."""
    model, memory = resnet18(2, 32, 16, 10), cpu.memory
    gc.collect()
    before = memory.live
    plain = compile(model, cpu, prepack=False, dynamic=dynamic)
    wanted = plain.run(images())
    held = sum(t.desc.nbytes for t in plain.parameters.values())
    plain.close()
    del plain
    gc.collect()
    assert memory.live == before
    program = compile(model, cpu, dynamic=dynamic)
    first = program.program(2) if dynamic else program
    weights = [op.inputs[1] for op, d in first.descriptors.items() if d.packed_layouts]
    assert len(weights) > 10 and not {v.name for v in weights} & set(first.parameters)
    there = sum(t.desc.nbytes for t in (*first.parameters.values(), *first.prepacked))
    assert there < 1.2 * held and memory.live - before <= there + first.nbytes + 64 * len(first.prepacked)
    np.testing.assert_allclose(program.run(images()), wanted, rtol=1e-4, atol=1e-5)
    assert first.check(images()).first is None
    assert first.read(weights[0]).shape == weights[0].spec.shape
    if dynamic:
        packed = cpu.prepack_cache.packed
        assert program.run(images()[:1]).shape == (1, 10)
        assert cpu.prepack_cache.packed == packed and program.program(1).prepacked == first.prepacked
    else:
        again = compile(model, cpu)
        assert again.prepacked == first.prepacked and not set(again.parameters) ^ set(first.parameters)
        again.close()
    program.close()


def test_an_original_that_is_gone_or_changed_is_told(cpu):
    b = Builder("g")
    x, w = b.input("x", (1, 16, 8, 8)), b.parameter("w", (32, 16, 3, 3))
    b.output(*b.emit("conv2d", [x, w]))
    array = np.ones((32, 16, 3, 3), np.float32)
    program = compile(b.graph, cpu, parameters={"w": array})
    value = program.graph.parameters[0]
    np.testing.assert_array_equal(program.read(value), array)
    array[0] = 2
    with pytest.raises(InvalidArgument, match="written to"):
        program.read(value)
    del array
    gc.collect()
    with pytest.raises(InvalidArgument, match="prepack=False"):
        program.read(value)
    feed = np.ones((1, 16, 8, 8), np.float32)
    np.testing.assert_array_equal(program.run(feed), np.full((1, 32, 6, 6), 144))


@pytest.mark.parametrize("prepack", [False, True])
def test_floats_of_64_bits_become_blocks_wherever_they_lie(cpu, prepack):
    """NumPy takes None, which block types have in place of a NumPy type, for float64."""
    random = np.random.default_rng(0)
    numbers, x = random.standard_normal((64, 128)), random.standard_normal((5, 128), np.float32)
    b = Builder("product")
    b.output(*b.emit("matmul_transposed", [b.input("x", (5, 128)), b.parameter("w", (64, 128), "Q4_0")]))
    wanted = compile(b.graph, cpu, parameters={"w": isokern.tensor(numbers, "Q4_0", device=cpu)}).run(x)
    for n in range(9):  # every remainder by the bytes of a block
        held = np.zeros(numbers.nbytes + 8192, np.uint8)
        at = -held.ctypes.data % 256 + 256 * n
        given = held[at : at + numbers.nbytes].view(np.float64).reshape(64, 128)
        given[...] = numbers
        held.flags.writeable = given.flags.writeable = False
        got = compile(b.graph, cpu, parameters={"w": given}, prepack=prepack).run(x)
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
