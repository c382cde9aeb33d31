"""Test the backend's own kernels against the portable ones, with sizes and values that conformance samples lack."""

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
    """Return the outputs of one call by (the backend's own variant, the portable one)."""
    made = []
    for variant in ("cuda", "portable"):
        call = isokern.create(
            name, [None if t is None else t.desc for t in inputs], device=device, variant=variant, **attrs
        )
        out = isokern.zeros(call.outputs[0].shape, call.outputs[0].dtype, device=device)
        call.calculate(inputs, [out], workspace="auto")
        made.append(out.numpy().astype(np.float64))
    return made


@pytest.mark.quick(
    "softmax-F32-260-special-1",
    "log_softmax-F16-512-plain-0",
    "rms_norm-F32-4092-plain-1",
    "layer_norm-BF16-1000-special-0",
)
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("special", [False, True], ids=["plain", "special"])
@pytest.mark.parametrize(
    ("dtype", "d"),
    [
        ("F32", 36),
        ("F32", 260),
        ("F32", 1024),
        ("F32", 4092),
        ("F16", 512),
        ("F16", 4096),
        ("BF16", 1000),
        ("F64", 130),
    ],
)
@pytest.mark.parametrize("name", ["softmax", "log_softmax", "rms_norm", "layer_norm"])
def test_rows_that_a_block_holds(opened, values, name, dtype, d, special, seed):
    device = opened(seed)
    _, x = values((69, d) if d < 300 else (5, d), dtype, special)
    w = np.linspace(0.5, 2, d, dtype=np.float32)
    rest = {"rms_norm": [w], "layer_norm": [w, w]}.get(name, [])
    inputs = [isokern.tensor(v, dtype, device=device) for v in [x, *rest]]
    own, portable = both(device, name, inputs)
    bound = {"F64": 1e-14, "F32": 1e-6, "F16": 2e-3, "BF16": 2e-2}[dtype]
    assert np.allclose(own, portable, rtol=bound, atol=bound, equal_nan=True)
    assert np.isnan(own).any() == special


@pytest.mark.quick("256")
@pytest.mark.parametrize("d", [4, 36, 256, 4092])
def test_a_maximum_anywhere(opened, d):
    device = opened()
    places = np.arange(0, d, -(-d // 256))
    x = np.zeros((len(places), d), np.float32)
    x[np.arange(len(places)), places] = 200
    own, _ = both(device, "softmax", [isokern.tensor(x, device=device)])
    assert np.array_equal(own, x / 200)


@pytest.mark.quick("F32-1027", "I8-17", "F16-3")
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


@pytest.mark.quick("F32-shape1")
@pytest.mark.parametrize("shape", [(6, 64), (5, 3, 48)])
@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "I8"])
def test_rows_columns_and_planes_beside_a_tensor(opened, shape, dtype):
    device = opened()
    a = isokern.tensor(np.arange(np.prod(shape)).reshape(shape) % 90, dtype, device=device)
    for other in [shape[-1:], (*shape[:-1], 1), (1, *shape[1:]), (*[1] * len(shape),)]:
        b = isokern.tensor((np.arange(np.prod(other)) % 7 - 3).reshape(other), dtype, device=device)
        for inputs in ([a, b], [b, a]):
            own, portable = both(device, "sub", inputs)
            assert np.array_equal(own, portable)


@pytest.mark.quick("F32-F16-1027", "I8-I32-17")
@pytest.mark.parametrize("n", [16, 17, 1000, 1027])
@pytest.mark.parametrize(
    ("given", "made"),
    [
        *[("F32", "F16"), ("F16", "F32"), ("F32", "BF16"), ("F64", "F16"), ("F32", "I8"), ("I64", "F16")],
        *[("U8", "BOOL"), ("BF16", "I64"), ("I8", "I32"), ("I32", "I8"), ("F16", "F16"), ("BOOL", "F64")],
    ],
)
def test_casts_by_packs(opened, given, made, n):
    device = opened()
    x = np.linspace(-300, 300, n)
    if given[0] in "FB" and given != "BOOL":
        x[[0, 3, 7, n - 1]] = np.nan, np.inf, -np.inf, 1e-7
    x = isokern.tensor(x if given[0] in "FB" else np.abs(x) % 100, given, device=device)
    own, portable = both(device, "cast", [x], dtypes={"T": made})
    assert np.array_equal(own, portable, equal_nan=True)


REDUCED = [((40, 64), (1,)), ((9, 16), (1,)), ((3, 4112), (1,)), ((3, 20000), (1,)), ((40003,), ())]
REDUCED += [
    ((90, 512), (0,)),
    ((3, 40, 256), (1,)),
    ((5, 3, 4, 64), (1, 3)),
    ((10, 8, 272), (0, 1)),
    ((3000, 320), (0,)),
]


@pytest.mark.quick("F32-(3, 20000)-(1,)-0", "F32-(90, 512)-(0,)-1", "I8-(5, 3, 4, 64)-(1, 3)-1", "F16-(40003,)-()-0")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("shape", "axes"), REDUCED, ids=str)
@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "I8", "U32"])
def test_rows_and_columns_reduced(opened, shape, axes, dtype, seed):
    device = opened(seed)
    x = np.random.default_rng(0).integers(0, 100, shape)  # small integers, so that sums are exact
    x = isokern.tensor(x, dtype, device=device)
    for name in ("reduce_sum", "reduce_max", "reduce_min"):
        own, portable = both(device, name, [x], axes=axes)
        assert np.array_equal(own, portable), name


@pytest.mark.quick("F32-(70, 48)-1", "BF16-(3, 20000)-0")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("shape", [(9, 16), (70, 48), (6, 512), (5, 4112), (3, 20000)], ids=str)
@pytest.mark.parametrize("dtype", ["F64", "F32", "BF16", "I8", "U64"])
def test_the_first_of_the_largest(opened, shape, dtype, seed):
    device = opened(seed)
    x = np.random.default_rng(0).integers(0, 100, shape).astype(np.float64)
    d = shape[1]
    x[0, [d // 3, d - 2]] = 120
    x[1] = 7
    if dtype[0] in "FB":
        x[1] = -np.inf
        x[2, [d // 2, d - 1]], x[2, 0] = np.nan, np.inf
    x = isokern.tensor(x, dtype, device=device)
    own, portable = both(device, "argmax", [x], axis=1)
    assert np.array_equal(own, portable)
    assert own[:2].tolist() == [d // 3, 0] and (dtype[0] not in "FB" or own[2] == d // 2)


@pytest.mark.quick("(4, 8192)-1")
@pytest.mark.parametrize(("shape", "axis"), [((4, 1024), 1), ((4, 8192), 1), ((256, 64), 0), ((2048, 128), 0)], ids=str)
def test_sums_that_leave_the_range_on_the_way(opened, shape, axis):
    device = opened()
    x = np.zeros(shape, np.float32)
    lines = x if axis else x.T
    n = lines.shape[1]
    lines[0], lines[0, 1::2] = 3e38, -3e38  # the sum is 0
    lines[1] = 3e38  # the sum exceeds the range
    lines[2, [0, n // 2, n - 1]] = 3e38, 1, -3e38  # the sum is 1
    lines[3, n // 2] = np.nan
    given = isokern.tensor(x, device=device)
    own, portable = both(device, "reduce_sum", [given], axes=(axis,))
    assert np.array_equal(own, portable, equal_nan=True)
    assert own[:3].tolist() == [0, np.inf, 1] and np.isnan(own[3]) and not own[4:].any()
    own, portable = both(device, "reduce_mean", [given], axes=(axis,))
    assert own[1] == pytest.approx(3e38, rel=3e-7)
    for name in ("reduce_max", "reduce_min"):
        own, portable = both(device, name, [given], axes=(axis,))
        assert np.array_equal(own, portable, equal_nan=True)


@pytest.mark.quick("I8-(33, 65)-1", "I32-(2, 40, 3, 64)-0")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(
    "shape", [(32, 32), (33, 65), (64, 128), (130, 260), (36, 1000), (3, 70, 36), (2, 40, 3, 64)], ids=str
)
@pytest.mark.parametrize("dtype", ["I8", "I16", "I32", "I64"])
def test_transposes(opened, shape, dtype, seed):
    device = opened(seed)
    x = np.random.default_rng(0).integers(-100, 100, shape)
    order = [*range(len(shape) - 2), -1, -2] if len(shape) < 4 else [0, 3, 1, 2]
    turned = isokern.tensor(x, dtype, device=device).permute([axis % len(shape) for axis in order])
    own, portable = both(device, "rearrange", [turned])
    assert np.array_equal(own, portable) and np.array_equal(own, x.transpose(order))


@pytest.mark.quick("I16")
@pytest.mark.parametrize("dtype", ["I8", "I16", "I32", "I64"])
def test_copies_by_packs(opened, dtype):
    device = opened()
    x = isokern.tensor(np.arange(70 * 96).reshape(70, 96) % 127, dtype, device=device)
    for part in (x, x[:, 16:80], x[:, 2:90], x[::2], x[3, :93]):
        own, portable = both(device, "copy", [part])
        assert np.array_equal(own, portable) and np.array_equal(own, part.numpy())


@pytest.mark.quick("F32")
@pytest.mark.parametrize("dtype", ["I8", "I16", "F32", "F64"])
def test_lines_moved_by_packs(opened, dtype):
    device = opened()
    x, z = (isokern.tensor(np.arange(6 * n).reshape(6, n) % 100, dtype, device=device) for n in (48, 80))
    for name, inputs, attrs in [
        ("concat", [x, z, x], {"axis": 1}),
        ("concat", [x[:, 16:32], x[:3, 16:32]], {"axis": 0}),
        ("concat", [x[0], x[1, :46]], {"axis": 0}),
        ("pad", [x], {"low": (1, 16), "high": (2, 32), "value": 7}),
        ("pad", [x[:, 16:32]], {"low": (0, 2), "high": (0, 6), "value": -1.5}),
        ("pad", [x[:, ::3]], {"low": (3, 1), "high": (0, 1), "value": 2}),
        ("pad", [x[2]], {"low": (5,), "high": (2,), "value": 3}),
    ]:
        own, portable = both(device, name, inputs, **attrs)
        assert np.array_equal(own, portable), (name, attrs)


@pytest.mark.quick("1-F16")
@pytest.mark.parametrize("dtype", ["I8", "F16", "F32", "F64"])
@pytest.mark.parametrize("axis", [0, 1])
def test_lines_gathered_by_packs(opened, dtype, axis):
    device = opened()
    x = isokern.tensor(np.arange(4 * 5 * 48).reshape(4, 5, 48) % 100, dtype, device=device)
    for given in (x, x[:, :, 16:32]):
        indices = isokern.tensor(np.array([[3, 0, -1], [2, -4, 1]]), "I64", device=device)
        own, portable = both(device, "gather", [given, indices], axis=axis)
        assert np.array_equal(own, portable)


@pytest.mark.quick("[4100, 4099, 4355, 8200]-9000-1")
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("count", [100, 9000, 40000])
@pytest.mark.parametrize("wrong", [[], [0], [-1], [4100, 4099, 4355, 8200]], ids=str)
def test_the_first_wrong_index(opened, count, wrong, seed):
    device = opened(seed)
    x = isokern.tensor(np.arange(20).reshape(5, 4), "I64", device=device)
    places = [place % count for place in wrong]
    indices = np.arange(count) % 10 - 5
    indices[places] = 5 + np.arange(len(places))
    given = [x, isokern.tensor(indices, "I32", device=device)]
    for variant in ("cuda", "portable"):
        call = isokern.create("gather", [t.desc for t in given], device=device, variant=variant)
        y = isokern.empty(call.outputs[0].shape, "I64", device=device)
        call.calculate(given, [y], workspace="auto")
        if not places:
            device.synchronize()
            continue
        first = min(places)
        with pytest.raises(isokern.InvalidArgument, match=rf"indices\[{first}\] is {indices[first]}\b"):
            device.synchronize()


@pytest.mark.quick("shifted-F32-shape1")
@pytest.mark.parametrize("shape", [(2, 3, 64), (3, 5, 8, 6), (1, 2, 400)])
@pytest.mark.parametrize("dtype", ["F64", "F32", "F16"])
@pytest.mark.parametrize("given", [2, 3, 4], ids=["plain", "scaled", "shifted"])
def test_planes_normalised(opened, shape, dtype, given):
    device = opened()
    random = np.random.default_rng(0)
    c = shape[1]
    x, mean, var, w, bias = (random.random(s) for s in (shape, (c,), (c,), (c,), (c,)))
    x[0, 0].flat[:3] = np.nan, np.inf, -np.inf
    inputs = [isokern.tensor(v, dtype, device=device) for v in (x, mean, var, w, bias)[: given + 1]]
    own, portable = both(device, "batch_norm", [*inputs, *[None] * (5 - len(inputs))])
    assert np.array_equal(own, portable, equal_nan=True)


@pytest.mark.parametrize(
    ("name", "shape", "of"),
    [
        ("softmax", (4, 1025), "16 bytes"),
        ("softmax", (4, 4100), "hold a row"),
        ("neg", (8, 9), "by packs"),
        ("copy", (8, 9), "by packs"),
        ("reduce_sum", (8, 9), "by packs"),
    ],
)
def test_what_is_left_to_the_portable_kernels(opened, name, shape, of):
    device = opened()
    x = isokern.zeros((shape[0], 2 * shape[1]) if of == "by packs" else shape, device=device)
    x = x[:, ::2] if of == "by packs" else x
    call = isokern.create(name, [x.desc], device=device)
    assert call.variant == "portable"
    assert of in call.considered[0].reason
