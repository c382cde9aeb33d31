"""Test parameters in a kernel's packed layout: `compile(…, prepack=True)`."""

import numpy as np
import pytest

import isokern
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
def test_prepacked_parameters_give_the_same_and_are_made_once(devices, dynamic):
    random = np.random.default_rng(0)
    feeds = [np.array([3]), random.standard_normal((5, 128), np.float32)]
    for device in devices:
        w = isokern.tensor(random.standard_normal((64, 128)), "Q4_0", device=device)
        options = {"parameters": {"w": w}, "dynamic": ["x"] if dynamic else False}
        wanted = compile(product_graph(5), device, **options).run(feeds)
        packed = device.prepack_cache.packed
        program = compile(product_graph(5), device, prepack=True, **options)
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
        again = compile(product_graph(5), device, prepack=True, parameters={"w": w})
        assert cache.info().shared == hits + 1
        other = compile(product_graph(2), device, prepack=True, parameters={"w": w})
        assert again.prepacked == other.prepacked == first.prepacked
        assert device.prepack_cache.packed - packed == bool(made.packed_layouts)
        first.close()
        assert not first.prepacked
