"""The backend's own kernels against the portable ones, at sizes and values that the conformance samples lack."""

import numpy as np
import pytest

import isokern


@pytest.fixture(scope="module")
def values():
    random = np.random.default_rng(0)

    def make(shape, dtype, special):
        x = random.standard_normal(shape).astype(np.float32)
        if special:
            x[0, 0], x[-1, :] = np.nan, -np.inf
            x[1, 1] = np.inf
        return isokern.dtype(dtype), x

    return make


def both(device, name, inputs, **attrs):
    """(cuda's, portable's) outputs of one call."""
    made = []
    for variant in ("cuda", "portable"):
        call = isokern.create(
            name, [None if t is None else t.desc for t in inputs], device=device, variant=variant, **attrs
        )
        out = isokern.zeros(call.outputs[0].shape, call.outputs[0].dtype, device=device)
        space = device.memory.alloc(call.workspace.size) if call.workspace.size else None
        call.calculate(inputs, [out], workspace=space)
        made.append(out.numpy().astype(np.float64))
    return made


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
@pytest.mark.parametrize(
    ("dtype", "d"), [("F32", 36), ("F32", 260), ("F32", 1024), ("F16", 512), ("BF16", 1000), ("F64", 130)]
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "rms_norm", "layer_norm"])
def test_rows_that_a_block_holds(opened, values, name, dtype, d, special, seed):
    device = opened(seed)
    _, x = values((5, d), dtype, special)
    w = np.linspace(0.5, 2, d, dtype=np.float32)
    rest = {"rms_norm": [w], "layer_norm": [w, w]}.get(name, [])
    inputs = [isokern.tensor(v, dtype, device=device) for v in [x, *rest]]
    own, portable = both(device, name, inputs)
    bound = {"F64": 1e-14, "F32": 1e-6, "F16": 2e-3, "BF16": 2e-2}[dtype]
    assert np.allclose(own, portable, rtol=bound, atol=bound, equal_nan=True)
    assert np.isnan(own).any() == special


@pytest.mark.parametrize("n", [1, 3, 4, 15, 16, 17, 1000, 1027])
@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16", "I8", "I32", "I64", "U16"])
def test_elements_by_packs(opened, n, dtype):
    device = opened()
    a = isokern.tensor(np.arange(n) % 100, dtype, device=device)
    one = isokern.tensor(np.array([3]), dtype, device=device)
    for inputs in ([a, a], [a, one], [one, a]):
        own, portable = both(device, "mul", inputs)
        assert np.array_equal(own, portable)


def test_tensors_of_several_sizes(opened):
    device = opened()
    c = isokern.tensor(np.arange(133) % 3 == 0, "BOOL", device=device)
    a, b = (isokern.tensor(np.arange(133) * k, "F64", device=device) for k in (1.0, -1.0))
    own, portable = both(device, "where", [c, a, b])
    assert np.array_equal(own, portable)


@pytest.mark.parametrize(
    ("name", "shape", "of"),
    [
        ("softmax", (4, 1025), "16 bytes"),
        ("softmax", (4, 4096), "hold a row"),
        ("softmax", (4, 32), "short"),
        ("neg", (8, 9), "dense"),
    ],
)
def test_what_is_left_to_the_portable_kernels(opened, name, shape, of):
    x = isokern.zeros((shape[0], 2 * shape[1]) if of == "dense" else shape, device=opened())
    x = x[:, ::2] if of == "dense" else x
    call = isokern.create(name, [x.desc], device=x.device)
    assert call.variant == "portable"
    assert of in call.considered[0].reason
