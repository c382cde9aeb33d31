"""Test the eager functions: arguments, out=, the cache, aliases."""

import dataclasses
import gc
import inspect
import subprocess
import sys
import threading

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorStrides, InvalidArgument, IsokernError, ops
from isokern.declare import registry
from isokern.eager import calls, functions, repeated


def test_every_operator_has_one(device):
    for op in ops.all_operators():
        function = getattr(isokern, op.name)
        assert op.doc in function.__doc__
        names = list(inspect.signature(function).parameters)
        assert names[: len(op.signature.inputs)] == [o.name for o in op.signature.inputs]
        assert op.name in dir(isokern)
    with pytest.raises(AttributeError, match="no operator"):
        isokern.sofmax  # noqa: B018  # the attribute access is the test


def test_a_module_is_found_without_loading_the_operators():
    code = (
        "import sys; from isokern import settings; assert 'isokern.ops' not in sys.modules;"
        " import isokern; assert not hasattr(isokern, 'no.name'); assert 'isokern.ops' in sys.modules; isokern.relu"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_operator_that_a_plug_in_brings_later_has_one(device, monkeypatch):
    isokern.relu([1.0], device=device)
    registry.all_operators()
    monkeypatch.setattr(registry, "_BY_NAME", dict(registry._BY_NAME))
    monkeypatch.setattr(registry, "_FOUND", dict(registry._FOUND))
    monkeypatch.setattr(registry, "_BY_KIND", dict(registry._BY_KIND))
    registry.register(dataclasses.replace(registry.find("relu"), name="late_relu", kind="LATE"))
    try:
        assert isokern.late_relu.__name__ == "late_relu"
    finally:
        vars(isokern).pop("late_relu", None)
        functions.function.cache_clear()


def test_a_stream_takes_its_scratch_memory_with_it(device):
    if not isokern.create(
        "batch_norm", [isokern.TensorDesc("F32", s) for s in ((2, 3), (3,), (3,))], device=device
    ).workspace_size:
        pytest.skip(f"{device.name} needs no workspace for it")
    x, v = np.ones((2, 3), np.float32), np.ones(3, np.float32)
    isokern.batch_norm(x, v, v, device=device)
    gc.collect()
    live, stream = device.memory.live, device.stream()
    isokern.batch_norm(x, v, v, device=device, stream=stream)
    assert device.memory.live > live
    del stream
    gc.collect()
    assert device.memory.live == live


def test_arrays_scalars_and_out(device):
    x = np.array([[1.0, -2.0], [3.0, -4.0]], np.float32)
    assert (isokern.add(x, 1, device=device).numpy() == x + 1).all()
    assert (isokern.maximum(0, x, device=device).numpy() == np.maximum(0, x)).all()
    y = isokern.zeros((2, 2), device=device)
    assert isokern.relu(x, out=y, device=device) is y
    assert (y.numpy() == np.maximum(x, 0)).all()
    assert (isokern.leaky_relu(x, alpha=0.5, device=device).numpy() == np.where(x < 0, x / 2, x)).all()
    assert isokern.add_assign(y, 1.0) is y
    assert (y.numpy() == np.maximum(x, 0) + 1).all()


def test_an_array_as_out_is_written_in_place_or_refused(device):
    if not device.memory.wraps:
        pytest.skip(f"{device.name} cannot use host memory in place")
    y = np.zeros(2, np.float32)
    assert isokern.relu([-1.0, 2.0], out=y, device=device) is y
    assert (y == [0, 2]).all()
    misaligned = np.zeros(9, np.uint8)[1:].view(np.float32)
    with pytest.raises(isokern.BadTensorStrides, match="copy it"):
        isokern.relu([-1.0, 2.0], out=misaligned, device=device)
    with pytest.raises(InvalidArgument, match="out is a str"):
        isokern.relu([-1.0, 2.0], out="y", device=device)


def test_an_array_as_out_holds_the_result_on_every_device(device):
    x = np.array([[3.0, -1.0], [-2.0, 5.0]], np.float32)
    whole = np.full((4, 3), 7, np.float32)
    part = whole[::2, 2:0:-1]
    assert isokern.relu(x, out=part, device=device) is part
    assert whole.tolist() == [[7, 0, 3], [7, 7, 7], [7, 5, 0], [7, 7, 7]]
    largest, places = np.zeros((2, 2), np.float32), np.zeros((2, 2), np.int64)
    made = isokern.sort(x, out=(largest, places), device=device)
    assert made[0] is largest
    assert (largest.tolist(), places.tolist()) == ([[-1, 3], [-2, 5]], [[1, 0], [0, 1]])
    empty = np.zeros((0, 3), np.float32)
    assert isokern.relu(np.zeros((0, 3), np.float32), out=empty, device=device) is empty
    cache = np.ones((1, 3, 2), np.float32)  # what an operator keeps of its output
    isokern.cache_update(x[None, :1], [1], out=cache, device=device)
    assert cache.tolist() == [[[1, 1], [3, -1], [1, 1]]]


def test_an_array_as_out_that_cannot_hold_the_result_is_refused_and_unchanged(device):
    x = np.array([1.0, -2.0], np.float32)
    fixed = np.full(2, 7, np.float32)
    fixed.flags.writeable = False
    for out, error, words in [
        (np.full(3, 7, np.float32), isokern.BadTensorShape, "y"),
        (np.full(2, 7, np.float64), isokern.BadTensorDtype, "F64"),
        (np.full(2, 7, ">f4"), InvalidArgument, "byte order"),
        (fixed, InvalidArgument, "read-only"),
    ]:
        with pytest.raises(error, match=words):
            isokern.relu(x, out=out, device=device)
        assert (out == 7).all()
    taken = np.full(2, 7, np.float32)
    with pytest.raises(InvalidArgument, match="out of range"):
        isokern.gather(x, [1, 9], out=taken, device=device)
    assert taken.tolist() == [-2, 0]


def test_views_of_empty_tensors(device):
    x = isokern.zeros((3, 0, 4), device=device)
    for view, shape in [
        (x[::-1], (3, 0, 4)),
        (x[:, ::-1, ::-2], (3, 0, 2)),
        (x[3:], (0, 0, 4)),
        (x[1:1, :, -1], (0, 0)),
        (x[..., None], (3, 0, 4, 1)),
        (x.T, (4, 0, 3)),
        (x.permute(1, 0, 2), (0, 3, 4)),
        (x.reshape(0), (0,)),
        (x.reshape(5, 0, 7), (5, 0, 7)),
    ]:
        assert view.shape == shape
        for made in (
            view,
            isokern.relu(view),
            isokern.copy(view),
            isokern.relu(view, out=isokern.zeros(shape, device=device)),
        ):
            assert made.numpy().shape == shape
    assert isokern.reduce_max(x, axes=(1,)).numpy().tolist() == [[-np.inf] * 4] * 3
    assert isokern.reduce_sum(x[::-1], axes=(1,)).numpy().tolist() == [[0] * 4] * 3


def test_reductions_of_nothing_are_the_identity(device):
    x = np.zeros((2, 0), np.float32)
    for name, wanted in {
        "reduce_sum": 0,
        "reduce_prod": 1,
        "reduce_any": False,
        "reduce_all": True,
        "reduce_mean": np.nan,
        "reduce_max": -np.inf,
        "reduce_min": np.inf,
        "var": np.nan,
        "norm": 0,
        "logsumexp": -np.inf,
        "count_nonzero": 0,
        "reduce_log_sum": -np.inf,
    }.items():
        y = getattr(isokern, name)(x, axes=(1,), device=device).numpy()
        np.testing.assert_array_equal(y, [wanted] * 2, err_msg=name)
    for element in ("I8", "U16", "I32", "I64", "U64"):
        whole = isokern.zeros((0, 3), element, device=device)
        ends = np.iinfo(whole.dtype.numpy)
        assert isokern.reduce_max(whole, axes=(0,)).numpy().tolist() == [ends.min] * 3
        assert isokern.reduce_min(whole, axes=(0,)).numpy().tolist() == [ends.max] * 3
    with pytest.raises(isokern.BadTensorShape, match="nothing to choose from"):
        isokern.argmax(x, axis=1, device=device)


def test_wrong_arguments_name_the_operator(device):
    for call in (lambda: isokern.relu(), lambda: isokern.relu([1.0], slope=1), lambda: isokern.add([1.0])):
        with pytest.raises(InvalidArgument, match=r"relu|add"):
            call()


def test_cache_is_bounded_and_keyed_by_everything(device):
    calls._cache.clear()
    x = isokern.tensor([1.0, 2.0], device=device)
    for _ in range(3):
        isokern.scale(x, value=2.0)
    assert len(calls._cache) == 1
    isokern.scale(x, value=3.0)
    isokern.scale(isokern.tensor([1.0], device=device), value=2.0)
    assert len(calls._cache) == 3
    for i in range(calls.CACHE_SIZE + 5):
        isokern.scale(x, value=float(i))
    assert len(calls._cache) == calls.CACHE_SIZE


def test_cache_tells_attributes_apart_that_compare_equal(device):
    for value in (0.0, -0.0):
        assert np.signbit(
            isokern.fill(value=value, out=isokern.empty((2,), device=device)).numpy()
        ).all() == np.signbit(value)
    x = isokern.tensor([[1.0, 2.0]], device=device)
    isokern.softmax(x, axis=1)
    with pytest.raises(InvalidArgument, match=r"axis=1\.0"):
        isokern.softmax(x, axis=1.0)
    with pytest.raises(InvalidArgument, match="axes"):
        isokern.reduce_sum(x, axes=[[0]])


@pytest.mark.parametrize(
    ("a", "b"), [((3,), (3,)), ((3,), (3, 4)), ((2, 3), (3,)), ((5, 2, 3), (3,)), ((3,), (5, 3, 2)), ((2, 3), (3, 4))]
)
def test_matmul_takes_numpys_vectors(device, a, b):
    rng = np.random.default_rng(0)
    x, y = rng.integers(-4, 5, a).astype(np.float32), rng.integers(-4, 5, b).astype(np.float32)
    got = isokern.matmul(x, y, device=device).numpy()
    assert got.shape == np.matmul(x, y).shape
    assert (got == np.matmul(x, y)).all()


def test_matmul_gives_a_list_the_dtype_of_the_tensor_beside_it(device):
    x = isokern.tensor([[1.0, 2.0]], "F16", device=device)
    assert isokern.matmul(x, [[3.0], [4.0]]).dtype is isokern.F16
    with pytest.raises(InvalidArgument, match="input b is missing"):
        isokern.matmul(x, None)


def test_transpose_copies(device):
    x = isokern.tensor(np.arange(24).reshape(2, 3, 4), device=device)
    y = isokern.transpose(x, (2, 0, 1))
    assert y.desc.is_contiguous
    assert (y.numpy() == x.numpy().transpose(2, 0, 1)).all()


@pytest.mark.parametrize("bad", [5, -6])
def test_gather_out_of_range_is_a_typed_error(device, bad):
    table = isokern.tensor(np.arange(10, dtype=np.float32).reshape(5, 2), device=device)
    with pytest.raises(InvalidArgument, match=f"indices\\[1\\] is {bad}"):
        isokern.gather(table, isokern.tensor([0, bad, 2], device=device)).numpy()
    assert (isokern.gather(table, isokern.tensor([-1, 0], device=device)).numpy() == [[8, 9], [0, 1]]).all()


def test_the_cache_tells_minus_zero_and_kinds_apart(device):
    for value in (0.0, -0.0, 0.0):
        got = isokern.fill(value=value, shape=(1,), dtype="F32", device=device).numpy()
        assert np.signbit(got[0]) == np.signbit(value)
    x = isokern.zeros((2, 3), device=device)
    isokern.softmax(x, axis=1)
    with pytest.raises(InvalidArgument, match=r"axis=1\.0"):
        isokern.softmax(x, axis=1.0)


def test_numbers_take_the_dtype_of_their_own_type_variable(device):
    x = isokern.tensor([1.0, 2.0, 3.0], device=device)
    assert isokern.gather(x, [2, 0], device=device).numpy().tolist() == [3, 1]
    chosen = isokern.tensor([True, False, True], device=device)
    assert isokern.where(chosen, x, 0.0).numpy().tolist() == [1, 0, 3]
    assert isokern.where([True, False, True], x, -1).numpy().tolist() == [1, -1, 3]
    assert isokern.matmul(x[None], [[1], [2], [3]]).numpy().tolist() == [[14]]


@pytest.mark.parametrize(
    ("dtype", "value"), [("I32", 1.5), ("I32", float("nan")), ("I8", 300), ("U8", -1), ("BOOL", 2)]
)
def test_numbers_that_the_tensors_dtype_cannot_hold(device, dtype, value):
    x = isokern.tensor([0, 1], dtype, device=device)
    with pytest.raises(InvalidArgument, match=f"with a tensor of {dtype}"):
        isokern.where([True, False], x, value)
    assert isokern.where([True, False], x, 1.0).numpy().tolist() == [0, 1]


@pytest.mark.parametrize("value", ["3", 1j, object(), [[1.0], [2.0, 3.0]], {1: 2}])
def test_what_is_no_number(device, value):
    x = isokern.tensor([1.0], device=device)
    with pytest.raises((InvalidArgument, BadTensorDtype), match=r"add: .*numbers"):
        isokern.add(x, value)


def test_out_is_written_or_refused(device):
    x = isokern.tensor([-1.0, 2.0], device=device)
    for out in (0.0, np.float32(0), ([0.0, 0.0],), "abc", x.desc):
        with pytest.raises(InvalidArgument, match="relu: out is a"):
            isokern.relu(x, out=out)
    with pytest.raises(InvalidArgument, match="add_assign"):
        isokern.add_assign(x, 1.0, out=x)
    if device.memory.wraps:
        with pytest.raises(BadTensorStrides, match="divide"):
            isokern.relu(x, out=np.zeros(9, np.uint8)[1:].view(np.float32))
        y = np.zeros(2, np.float32)
        assert isokern.relu(x, out=y) is y
        assert y.tolist() == [0, 2]


def test_arguments_of_another_kind(device):
    x = isokern.tensor([[1.0, 2.0]], device=device)
    for call, words in (
        (lambda: isokern.relu(x, device=5), "device: 5"),
        (lambda: isokern.relu(x, stream=5), "relu: the stream is a int"),
        (lambda: isokern.concat(5), "concat: x is a int"),
        (lambda: isokern.concat([x, None]), "missing"),
        (lambda: isokern.matmul(x, None), "matmul: input b is missing"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            call()


def test_attributes_of_another_kind(device):
    x = isokern.zeros((2, 3), device=device)
    assert isokern.reduce_sum(x, axes=np.array([0, 1])).shape == ()
    for op, attrs, words in (
        ("softmax", {"axis": True}, "axis=True"),
        ("reduce_sum", {"axes": (np.True_,)}, "axes="),
        ("scale", {"value": 2**53 + 1}, "float64"),
        ("scale", {"value": "1"}, "value='1'"),
    ):
        with pytest.raises(InvalidArgument, match=words):
            getattr(isokern, op)(x, **attrs)
    with pytest.raises(InvalidArgument, match="activation"):
        isokern.gemm(x, x, trans_b=True, activation=np.array(["relu"]))
    with pytest.raises(InvalidArgument, match="rank 1 or more"):
        isokern.softmax(isokern.zeros((), device=device))


@pytest.mark.parametrize(("queries", "keys"), [(5, 5), (40, 40), (3, 130)])
def test_attention_multiplies_no_value_that_is_not_seen(device, queries, keys):
    """The last key's value is infinite, and only the last query sees it."""
    random = np.random.default_rng(0)
    q, k = (random.standard_normal((1, n, h, 32)).astype(np.float32) for n, h in ((queries, 4), (keys, 2)))
    v = random.standard_normal((1, keys, 2, 64)).astype(np.float32)
    last = v.copy()
    last[0, -1] = np.inf
    found = [isokern.attention(*(isokern.tensor(a, device=device) for a in (q, k, x)), causal=True) for x in (v, last)]
    plain, infinite = (y.numpy() for y in found)
    np.testing.assert_allclose(infinite[:, :-1], plain[:, :-1], rtol=1e-5, atol=1e-5)
    assert np.isinf(infinite[:, -1]).all()


ENDS = [2**63 - 1, -(2**63) + 1, 2**53 + 1, -(2**53) - 1, 2**62 + 3, 2**53, 0, -(2**63)]


@pytest.mark.parametrize("value", ENDS)
def test_fill_with_an_integer_of_64_bits(device, value):
    for dtype in ("I64", "U64") if value >= 0 else ("I64",):
        wanted = np.full((2, 3), value, dtype.lower().replace("i", "int").replace("u", "uint"))
        found = isokern.fill(value=value, shape=(2, 3), dtype=dtype, device=device)
        assert found.dtype.name == dtype
        np.testing.assert_array_equal(found.numpy(), wanted)
        y = isokern.zeros((2, 3), dtype, device=device)
        assert isokern.fill(value=value, out=y[:, 1:]).shape == (2, 2)
        np.testing.assert_array_equal(y.numpy(), wanted * np.array([0, 1, 1], wanted.dtype))
    if device.memory.wraps:
        array = np.zeros(3, np.int64)
        isokern.fill(value=value, out=array, device=device)
        assert (array == value).all()
    isokern.fill(value=2**64 - 1, dtype="U64", shape=(1,), device=device)


@pytest.mark.parametrize(
    ("low", "high"), [(-3, 2**53 + 1), (-(2**63) + 1, 2**62 + 1), (2**53 + 1, np.inf), (2**62 + 1, 5)]
)
def test_clip_at_integers_of_64_bits(device, low, high):
    ends = np.array([*ENDS, 7, -7, 2**53 + 3], np.int64)
    limits = [-(2**63) if limit == -np.inf else 2**63 - 1 if limit == np.inf else limit for limit in (low, high)]
    wanted = [min(max(int(v), limits[0]), limits[1]) for v in ends]
    for given in (isokern.tensor(ends, device=device), ends):
        assert isokern.clip(given, min=low, max=high, device=device).numpy().tolist() == wanted
    x = isokern.tensor(ends, device=device)
    assert isokern.clip(x, min=low, max=high, out=x) is x
    assert x.numpy().tolist() == wanted


def test_clip_with_one_limit_none_or_tensors(device):
    x = isokern.tensor(np.array([-3.5, -0.5, 0.5, np.nan, 9.0], np.float32), device=device)
    for given, wanted in [
        ({}, [-3.5, -0.5, 0.5, np.nan, 9]),
        ({"min": 0}, [0, 0, 0.5, np.nan, 9]),
        ({"max": 0.25}, [-3.5, -0.5, 0.25, np.nan, 0.25]),
        ({"min": 2, "max": 1}, [1, 1, 1, np.nan, 1]),
        ({"min": np.array([-1.0], np.float32)}, [-1, -0.5, 0.5, np.nan, 9]),
        ({"max": isokern.tensor(np.float32([0, 1, 0, 1, 4]), device=device)}, [-3.5, -0.5, 0, np.nan, 4]),
        ({"min": isokern.tensor(2.0, device=device), "max": 1.0}, [1, 1, 1, np.nan, 1]),
    ]:
        np.testing.assert_array_equal(isokern.clip(x, **given).numpy(), np.float32(wanted))
    small = isokern.tensor(np.array([0, 7, 255], np.uint8), device=device)
    assert isokern.clip(small, min=-5, max=300).numpy().tolist() == [0, 7, 255]
    assert isokern.clip(small, min=300).numpy().tolist() == [255] * 3
    wide = isokern.tensor(np.array([0, 2**53 + 1, 2**64 - 1], np.uint64), device=device)
    assert isokern.clip(wide, min=1).numpy().tolist() == [1, 2**53 + 1, 2**64 - 1]
    assert isokern.clip(wide, max=2**64 - 2).numpy().tolist() == [0, 2**53 + 1, 2**64 - 2]


@pytest.mark.parametrize("value", [2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**62 + 3])
def test_fill_writes_every_integer_of_64_bits(device, value):
    assert isokern.fill(value=value, shape=(3,), dtype="I64", device=device).numpy().tolist() == [value] * 3
    beyond = value % 2**64
    assert isokern.fill(value=beyond, shape=(2,), dtype="U64", device=device).numpy().tolist() == [beyond] * 2
    descriptor = isokern.create("fill", [], [isokern.TensorDesc("I64", (2,))], value=2.0**53, offset=1, device=device)
    y = isokern.zeros((2,), "I64", device=device)
    descriptor.calculate([], [y])
    device.synchronize()
    assert y.numpy().tolist() == [2**53 + 1] * 2


@pytest.mark.parametrize(
    ("call", "near"),
    [
        (lambda d: isokern.clip(isokern.zeros((2,), device=d), max=2**53 + 1), "9007199254740992 and 9007199254740994"),
        (lambda d: isokern.clip(isokern.zeros((2,), "I32", device=d), max=2**53 + 1), "and 9007199254740994"),
        (lambda d: isokern.fill(value=2**60 + 1, shape=(2,), dtype="F32", device=d), "and 1152921504606847232"),
        (lambda d: isokern.fill(value=-(2**62) - 1, shape=(2,), dtype="U64", device=d), "-4611686018427388928 and"),
        (lambda d: isokern.create("clip", [isokern.TensorDesc("I64", (2,))], max=2**53 + 1, device=d), "as a tensor"),
        (lambda d: isokern.clip(isokern.zeros((2,), "I64", device=d), min=2**64 + 1), "a number in float64"),
        (lambda d: isokern.fill(value=10**5000, shape=(2,), dtype="I64", device=d), "a number in float64"),
    ],
)
def test_integers_that_nothing_holds_are_told_their_neighbours(device, call, near):
    with pytest.raises(InvalidArgument, match=near):
        call(device)


def test_functions_beside_operators_name_what_they_take(device):
    for call in (
        lambda: isokern.clip(),
        lambda: isokern.fill(3),
        lambda: isokern.cast(),
        lambda: isokern.matmul([1.0]),
        lambda: isokern.gather([1.0], [0], 0),
    ):
        with pytest.raises(InvalidArgument, match=r"allowed: \w+\("):
            call()


def test_a_repeated_call_is_found_by_what_it_is(device):
    x = isokern.tensor([[0.5, -2.0], [3.0, -0.25]], device=device)
    for _ in range(3):
        assert isokern.relu(x).numpy().tolist() == [[0.5, 0], [3, 0]]
        assert isokern.relu(x.T).numpy().tolist() == [[0.5, 3], [0, 0]]
        assert isokern.reduce_sum(x, axes=(1,)).shape == (2,)
        assert isokern.reduce_sum(x, axes=(1,), keepdims=True).shape == (2, 1)
        assert isokern.softmax(x, axis=1).shape == (2, 2)
        with pytest.raises(InvalidArgument, match="axis"):
            isokern.softmax(x, axis=1.0)
        assert isokern.cast(x, dtype="F64").dtype.name == "F64"
        assert isokern.cast(x, dtype="I32").dtype.name == "I32"
        for value in (0.0, -0.0):
            found = isokern.scale(x, value=value).numpy()
            assert (np.signbit(found) == (np.signbit(x.numpy()) ^ np.signbit(value))).all()
        for axes in ((1.0,), (True,)):  # equal to (1,) in Python, and not what was kept
            with pytest.raises(InvalidArgument, match="axes"):
                isokern.reduce_sum(x, axes=axes)
    before = sum(map(len, repeated._known.values()))
    isokern.relu(x, on_missing="lower")
    assert sum(map(len, repeated._known.values())) == before
    x.buffer.close()
    with pytest.raises(InvalidArgument, match="closed"):
        isokern.relu(x)


def test_a_repeated_call_gives_new_memory_each_time(device):
    x = isokern.tensor([1.0, -2.0], device=device)
    gc.collect()
    live = device.memory.live
    kept = [isokern.neg(x) for _ in range(100)]
    assert len({y.buffer.address for y in kept}) == 100
    for y in kept[::2]:
        y.buffer.close()
        y.buffer.close()
    del y, kept[:50]
    gc.collect()
    assert (kept[1].numpy() == [-1, 2]).all()
    del kept
    gc.collect()
    assert device.memory.live == live


def test_repeated_calls_into_tensors_are_checked(device):
    x = isokern.tensor([[0.5, -2.0], [3.0, -0.25]], device=device)
    y, wide = isokern.zeros((2, 2), device=device), isokern.zeros((3, 2), device=device)
    for _ in range(3):
        assert isokern.relu(x, out=y) is y and y.numpy().tolist() == [[0.5, 0], [3, 0]]
        assert isokern.relu(x, out=wide[1:]).numpy().tolist() == [[0.5, 0], [3, 0]]
        assert isokern.reduce_sum(x, axes=(1,), out=wide[0]) is not None
        assert isokern.add(y, y, out=y).numpy().tolist() == [[1, 0], [6, 0]]
        with pytest.raises(InvalidArgument, match="overlap"):
            isokern.add(wide[:2], wide[:2], out=wide[1:])
        with pytest.raises(IsokernError):
            isokern.relu(x, out=wide)
    frozen = np.zeros((2, 2), np.float32)
    frozen.flags.writeable = False
    if device.memory.wraps:
        held = isokern.from_numpy(frozen, device=device)
        with pytest.raises(InvalidArgument, match="read-only"):
            isokern.relu(x, out=held)
        assert not frozen.any()


def test_lists_of_tensors_are_found_by_where_they_stand(device):
    a, b = isokern.tensor([[1.0, 2.0]], device=device), isokern.tensor([[3.0, 4.0]], device=device)
    for _ in range(2):
        assert isokern.concat([a, b]).numpy().tolist() == [[1, 2], [3, 4]]
        assert isokern.concat([b, a]).numpy().tolist() == [[3, 4], [1, 2]]
        assert isokern.concat([a]).numpy().tolist() == [[1, 2]]
        assert isokern.concat((t for t in (a, b)), axis=1).numpy().tolist() == [[1, 2, 3, 4]]
        assert isokern.neg(a).shape == (1, 2)
        assert isokern.neg([a]).shape == (1, 1, 2)  # not that tensor, but one with a dim more


def test_functions_beside_operators_give_the_same_when_repeated(device):
    table = isokern.cast(isokern.tensor(np.ones((4, 32), np.float32), device=device), dtype="Q8_0")
    vector = isokern.tensor([1.0, 2.0], device=device)
    matrix = isokern.tensor([[1.0, 2.0], [3.0, 4.0]], device=device)
    large = isokern.tensor(np.array([2**62, -(2**62)]), device=device)
    rows = isokern.tensor(np.array([1, 0]), device=device)
    for call, wanted in (
        (lambda: isokern.matmul(matrix, vector), [5, 11]),
        (lambda: isokern.matmul(matrix, matrix), [[7, 10], [15, 22]]),
        (lambda: isokern.clip(large, max=2**60 + 1), [2**60 + 1, -(2**62)]),
        (lambda: isokern.clip(vector, max=1.5), [1, 1.5]),
        (lambda: isokern.gather(matrix, rows), [[3, 4], [1, 2]]),
        (lambda: isokern.gather(matrix, rows, axis=1), [[2, 1], [4, 3]]),
        (lambda: isokern.gather(table, rows)[0, :2], [1, 1]),
        (lambda: isokern.cast(table, dtype="F32")[3, :2], [1, 1]),
        (lambda: isokern.cast(vector, dtype=isokern.I32), [1, 2]),
    ):
        for _ in range(3):
            assert np.allclose(call().numpy(), wanted, atol=1e-4, rtol=0)


def test_memory_of_repeated_calls_is_used_again_when_nobody_has_it(device):
    x = isokern.tensor(np.arange(300, dtype=np.float32), device=device)
    for n in (1, 3, 300):
        part = x[:n]
        arrays = []
        for i in range(200):
            y = isokern.add(part, part)
            view = y.numpy() if i % 2 else np.asarray(y)[::-1][::-1]
            if i % 3 == 0:
                y.buffer.close()
            arrays.append(view)
            del y
        assert all((array == 2 * np.arange(n)).all() for array in arrays)
    threads = [threading.Thread(target=_add_often, args=(x[:4],)) for _ in range(4)]
    gc.collect()
    live, allocations = device.memory.live, device.memory.allocations
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert (device.memory.live, device.memory.allocations) == (live, allocations)


def _add_often(x):
    kept = []
    for i in range(1000):
        kept.append(isokern.scale(x, value=float(i % 7 + 1)))
        if len(kept) > 100:
            for j, y in enumerate(kept):
                assert (y.numpy() == x.numpy() * ((i - len(kept) + 1 + j) % 7 + 1)).all()
            kept.clear()


def test_pools_of_many_sizes_keep_little(device):
    x = isokern.tensor(np.ones(1000, np.float32), device=device)
    kept = [isokern.neg(x[:n]) for n in range(1, 200) for _ in range(3)]
    live = device.memory.live
    del kept
    gc.collect()
    again = [isokern.neg(x[:n]) for n in range(1, 200) for _ in range(3)]
    assert device.memory.live == live
    assert device.memory.peak >= live
    del again
    device.memory.reset_peak()
    assert device.memory.peak == device.memory.live


def test_the_policy_is_asked_for_at_each_repeated_call(device, monkeypatch):
    x = isokern.tensor([[1.0, -2.0]], device=device)
    made = [o.name for o in ops.all_operators() if not device.variants(o.stem)]
    if "hardmax" not in made:
        pytest.skip(f"{device.name} has a kernel for hardmax")
    assert isokern.hardmax(x).numpy().tolist() == [[1, 0]]
    monkeypatch.setenv("ISOKERN_ON_MISSING", "error")
    with pytest.raises(isokern.NotImplementedOnDevice):
        isokern.hardmax(x)
