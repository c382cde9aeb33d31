"""Test the functions of the namespace beside NumPy's of the same names, on every device."""

from __future__ import annotations

import math

import numpy as np
import pytest
from foreign import Foreign

import isokern
import isokern.array_api as xp
from isokern import BadTensorDtype, BadTensorShape, InvalidArgument, Tensor
from isokern.array_api.elementwise import BINARY, UNARY
from isokern.backend import discovery

F = np.array([[0.5, -0.25, 0.75, 0.0], [-0.5, 0.9, -0.0, 0.3], [1.0, 0.1, 0.5, -1.0]], np.float32)
I = np.array([[7, -3, 2, 0], [1, 0, -9, 2], [5, 5, -1, 3]], np.int16)  # noqa: E741
V = np.array([3.0, 1.0, np.nan, 1.0, -2.0, np.nan, 3.0], np.float32)


def on(place, value):
    """Return a value with the arrays in it as tensors."""
    if isinstance(value, np.ndarray):
        return isokern.tensor(value, device=place)
    return [on(place, v) for v in value] if isinstance(value, list) else value


def has_double(place):
    return "float64" in xp.__array_namespace_info__().dtypes(device=place)


def check(place, name, *args, rtol=0, **kwargs):
    """Compare a function with NumPy's of the same name: dtypes, shapes and values."""
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(*args, **kwargs)
    found = getattr(xp, name)(*on(place, list(args)), **kwargs)
    many = isinstance(expected, (tuple, list))
    assert isinstance(found, (tuple, list)) == many
    for y, e in zip(found if many else [found], expected if many else [expected], strict=True):
        assert isinstance(y, Tensor)
        assert y.device is place
        assert (y.shape, y.dtype.numpy) == (e.shape, e.dtype), name
        np.testing.assert_allclose(y.numpy(), e, rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(place, name):
    kinds = UNARY[name][1]
    domain = F + 2 if name in ("acosh", "log", "log2", "log10", "sqrt", "reciprocal") else F
    if "f" in kinds:
        check(place, name, domain, rtol=2e-6)
        check(place, name, np.array([], np.float32))
        check(place, name, np.float32([np.nan, np.inf, -np.inf, 1.0])[()] if name != "tan" else F, rtol=2e-6)
    if "i" in kinds and name not in ("isfinite",):
        check(place, name, I)
    if "u" in kinds:
        check(place, name, np.uint8([0, 3, 255]))
    if "b" in kinds:
        check(place, name, I > 0)
    with pytest.raises(BadTensorDtype, match=name):
        getattr(xp, name)(isokern.zeros((2,), "F32" if "f" not in kinds else "BOOL", device=place))


@pytest.mark.parametrize("name", [n for n in BINARY if n != "pow"])
def test_binary_functions(place, name):
    kinds = BINARY[name][1]
    row = np.float32([0.5, -0.75, 2.0, 1.25])
    if "f" in kinds:
        check(place, name, F, row, rtol=2e-6)
        check(place, name, F, F[:, :1], rtol=2e-6)
        check(place, name, row, 2.0, rtol=2e-6)
        check(place, name, np.zeros((0, 4), np.float32), row)
    if "i" in kinds and name != "divide":  # which gives the default float, see test_operators.py
        other = np.int16([2, 3, 1, 4])
        check(place, name, I, other)
        check(place, name, other, 3)
        check(place, name, np.uint16([9, 3]), np.uint16([2, 1]))
    if "b" in kinds:
        check(place, name, I > 0, I > 1)


def test_floor_division_is_exact(place):
    """Quotients that round up to an integer, infinities, zeros and their signs."""
    for real in (np.float32, np.float64)[: 1 + has_double(place)]:
        check_floor_division(place, real)


def check_floor_division(place, real):
    a = np.array(
        [
            6.0,
            0.3,
            1.0,
            -1.0,
            7.0,
            -7.0,
            0.0,
            -0.0,
            5.0,
            -5.0,
            np.nan,
            1e16,
            1e7,
            1042.513427734375,
            -138801.09659841363,
        ],
        real,
    )
    b = np.array(
        [
            0.1,
            0.1,
            0.1,
            0.1,
            np.inf,
            np.inf,
            3.0,
            3.0,
            -np.inf,
            -np.inf,
            1.0,
            3.0,
            0.7,
            0.0003083723713643849,
            -24.578756788579334,
        ],
        real,
    )
    found = xp.floor_divide(on(place, a), on(place, b)).numpy()
    expected = np.where(np.isinf(b), a / b, np.floor_divide(a, b))  # NumPy has -1 where the standard has -0
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(np.signbit(found), np.signbit(expected))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_next_after(place, dtype):
    if dtype is np.float64 and not has_double(place):
        pytest.skip(f"{place.name} has no F64")
    values = np.array([0.0, -0.0, 1.0, -1.0, 3.5, np.inf, -np.inf, np.nan, np.finfo(dtype).max], dtype)
    for other in values:
        targets = np.full_like(values, other)
        with np.errstate(all="ignore"):
            expected = np.nextafter(values, targets)
        found = xp.nextafter(on(place, values), on(place, targets)).numpy()
        np.testing.assert_array_equal(found, expected)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.signbit(found)[numbers], np.signbit(expected)[numbers])


def test_clip(place):
    check(place, "clip", F, -0.25, 0.5)
    check(place, "clip", F, None, F[0])
    check(place, "clip", I, 1, None)
    check(place, "clip", F)
    with pytest.raises(BadTensorDtype, match=r"0\.5"):
        xp.clip(on(place, I), 0.5)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"])
def test_reductions(place, name):
    for axis in (None, 0, -1, (0, 1)):
        check(place, name, F, axis=axis, rtol=2e-6)
        check(place, name, F, axis=axis, keepdims=True, rtol=2e-6)
    if name not in ("mean", "std", "var"):
        check(place, name, I, axis=0)
        check(place, name, np.uint8([200, 100]))
    if name in ("sum", "prod", "all", "any", "count_nonzero"):
        check(place, name, np.zeros((0, 3), np.float32), axis=0)
    each = getattr(xp, name)(on(place, F), axis=())
    assert each.shape == F.shape


def test_reductions_that_are_refused(place):
    with pytest.raises(BadTensorShape, match="one element or more"):
        xp.max(xp.zeros((0, 3), device=place), axis=0)
    with pytest.raises(BadTensorDtype, match="mean: an array of I16; allowed: floats"):
        xp.mean(on(place, I))
    with pytest.raises(InvalidArgument, match="each axis once"):
        xp.sum(on(place, I), axis=(0, -2))
    with pytest.raises(IndexError, match=r"axis=2.*-2..1"):
        xp.sum(on(place, I), axis=2)
    with pytest.raises(BadTensorDtype, match="asarray"):
        xp.sum(v for v in (1, 2))


def test_running_totals(place):
    for name, plain in (("cumulative_sum", np.cumsum), ("cumulative_prod", np.cumprod)):
        for array in (I, F):
            found = getattr(xp, name)(on(place, array), axis=1)
            np.testing.assert_allclose(found.numpy(), plain(array, axis=1), rtol=1e-6)
        whole = getattr(xp, name)(on(place, I[0]), include_initial=True).numpy().tolist()
        assert whole == [int(name == "cumulative_prod"), *plain(I[0]).tolist()]
        assert found.dtype is isokern.F32
        assert getattr(xp, name)(on(place, I), axis=0).dtype is isokern.I64
    check(place, "diff", F, axis=0)
    check(place, "diff", I, n=2)
    same = xp.diff(on(place, I), prepend=on(place, I[:, :1]), append=on(place, I[:, :2]), axis=1).numpy()
    np.testing.assert_array_equal(same, np.diff(I, prepend=I[:, :1], append=I[:, :2], axis=1))


def test_searching(place):
    for axis in (None, 0, 1):
        for keepdims in (False, True):
            check(place, "argmax", I, axis=axis, keepdims=keepdims)
            check(place, "argmin", F, axis=axis, keepdims=keepdims)
    check(place, "nonzero", I)
    check(place, "where", I > 0, F, 2 * F)
    check(place, "where", I > 0, F, np.float32(2))
    assert xp.where(on(place, I) > 0, 1, 2.5).dtype is isokern.F32
    row = np.float32([-1, 0, 0, 2, 5, np.nan])
    wanted = np.float32([[-2, -1, 0, 1], [2, 5, 6, np.nan]])
    for side in ("left", "right"):
        check(place, "searchsorted", row, wanted, side=side)
        for n in range(6):
            check(place, "searchsorted", row[:n], wanted, side=side)
    order = np.array([1, 0, 2])
    found = xp.searchsorted(on(place, np.int32([5, 3, 9])), on(place, np.int32([4, 9])), sorter=on(place, order))
    assert found.numpy().tolist() == [1, 2]


def test_what_is_no_array_is_refused_and_arrays_of_numpy_are_taken(cpu):
    calls = [
        (xp.squeeze, (0,)),
        (xp.flip, ()),
        (xp.reshape, ((1,),)),
        (xp.argmax, ()),
        (xp.nonzero, ()),
        (xp.take, (isokern.tensor([0]),)),
        (xp.zeros_like, ()),
        (xp.sum, ()),
        (xp.sort, ()),
        (xp.sin, ()),
        (xp.linalg.svd, ()),
        (xp.unique_all, ()),
    ]
    for function, args in calls:
        for value in ([1.0], 1.0, None, "a", (v for v in (1.0,))):
            with pytest.raises(BadTensorDtype, match=r"asarray"):
                function(value, *args)
        array = np.ones((1, 1) if function is xp.linalg.svd else (1,), np.float32)
        assert function(array, *args) is not None


def test_sorting(place):
    for array in (F, I):
        for axis in (0, -1):
            check(place, "sort", array, axis=axis)
            check(place, "argsort", array, axis=axis, stable=True)
    falling = xp.argsort(on(place, np.int32([1, 2, 1, 2])), descending=True)
    assert falling.numpy().tolist() == [1, 3, 0, 2]


def test_sets(place):
    for array in (I, F, np.array([], np.int32), np.array(3), I > 0):
        for name in ("unique_all", "unique_counts", "unique_inverse"):
            check(place, name, array)
        found = xp.unique_values(on(place, array)).numpy()
        np.testing.assert_array_equal(found, np.unique(array))
    found = xp.unique_all(on(place, V))
    assert found.values.numpy().tolist()[:3] == [-2, 1, 3]
    assert found.counts.numpy().tolist() == [1, 2, 2, 1, 1]
    assert np.isnan(found.values.numpy()[3:]).all()
    np.testing.assert_array_equal(found.values.numpy()[found.inverse_indices.numpy()], V)


def test_manipulation(place):
    check(place, "concat", [I, I[:1]])
    check(place, "concat", [I, I], axis=None)
    check(place, "stack", [I, I], axis=-1)
    check(place, "unstack", I, axis=1)
    check(place, "expand_dims", I, axis=-1)
    check(place, "squeeze", I[:, :1], axis=1)
    check(place, "permute_dims", I, (1, 0))
    check(place, "moveaxis", I[None], (0, 1), (2, 0))
    check(place, "flip", I)
    check(place, "flip", I, axis=0)
    check(place, "reshape", I, (2, -1))
    check(place, "roll", I, 5)
    check(place, "roll", I, (1, -2), axis=(0, 1))
    check(place, "roll", I, (1, 2), axis=(0, 0))
    check(place, "tile", I, (2, 1, 3))
    check(place, "repeat", I, 3)
    check(place, "repeat", I, np.array([0, 2, 1]), axis=0)
    check(place, "broadcast_to", I[0], (2, 4))
    check(place, "broadcast_arrays", I, I[:, :1])
    check(place, "take", I, np.array([2, 0]), axis=1)
    check(place, "take_along_axis", I, np.array([[2], [0], [1]]), axis=1)
    check(place, "meshgrid", I[0], I[1])
    mixed = xp.concat([on(place, I), on(place, I.astype(np.int64))])
    assert mixed.dtype is isokern.I64
    x = on(place, I)
    assert xp.reshape(x, (12,)).buffer is x.buffer
    assert xp.reshape(x, (12,), copy=True).buffer is not x.buffer
    with pytest.raises(isokern.BadTensorStrides):
        xp.reshape(x.T, (12,), copy=False)


def test_creation(place):
    for call, expected in [
        (lambda d: xp.arange(5, device=d), np.arange(5)),
        (lambda d: xp.arange(5, 0, -2, dtype=xp.int8, device=d), np.arange(5, 0, -2, dtype=np.int8)),
        (lambda d: xp.arange(0.5, 3, 0.5, device=d), np.arange(0.5, 3, 0.5, dtype=np.float32)),
        (lambda d: xp.arange(3, dtype=xp.float32, device=d), np.arange(3.0, dtype=np.float32)),
        (lambda d: xp.arange(0, 3 * 2.0**63, 2.0**63, device=d), np.float32([0, 2.0**63, 2.0**64])),
        (lambda d: xp.eye(2, k=2**63, device=d), np.zeros((2, 2), np.float32)),
        (lambda d: xp.linspace(0, 1, 5, device=d), np.linspace(0, 1, 5, dtype=np.float32)),
        (lambda d: xp.linspace(0, 1, 4, endpoint=False, device=d), np.linspace(0, 1, 4, False, dtype=np.float32)),
        (lambda d: xp.linspace(0, 1, 0, device=d), np.zeros(0, np.float32)),
        (lambda d: xp.linspace(1e38, -1e38, 3, device=d), np.float32([1e38, 0, -1e38])),
        (lambda d: xp.eye(2, 3, k=1, device=d), np.eye(2, 3, k=1, dtype=np.float32)),
        (lambda d: xp.full((2,), 2**62 + 1, device=d), np.full((2,), 2**62 + 1)),
        (lambda d: xp.full(2, True, device=d), np.full((2,), True)),
        (lambda d: xp.ones((), dtype=xp.uint8, device=d), np.uint8(1)),
        (lambda d: xp.zeros_like(xp.ones((2,), device=d), dtype=xp.bool), np.zeros(2, bool)),
        (lambda d: xp.full_like(xp.ones((2,), device=d), 4), np.float32([4, 4])),
        (lambda d: xp.asarray([[1, 2]], device=d), np.array([[1, 2]])),
        (lambda d: xp.asarray([1.5, 2], device=d), np.float32([1.5, 2])),
        (lambda d: xp.asarray(True, device=d), np.array(True)),
        (lambda d: xp.asarray([xp.ones((2,)), xp.zeros((2,))], device=d), np.float32([[1, 1], [0, 0]])),
        (lambda d: xp.tril(xp.ones((3, 3), device=d), k=2**40), np.ones((3, 3), np.float32)),
    ]:
        found = call(place)
        assert (found.device, found.shape, found.dtype.numpy) == (place, expected.shape, expected.dtype)
        np.testing.assert_array_equal(found.numpy(), expected)
    assert xp.empty((2, 0), device=place).shape == (2, 0)


def test_what_is_refused(cpu):
    for call, error in [
        (lambda: xp.asarray([300], dtype=xp.int8), InvalidArgument),
        (lambda: xp.asarray(1j, dtype=xp.float32), BadTensorDtype),
        (lambda: xp.asarray([1], copy=False), InvalidArgument),
        (lambda: xp.asarray(["a"]), BadTensorDtype),
        (lambda: xp.full((2,), 1.5, dtype=xp.int8), BadTensorDtype),
        (lambda: xp.full((2,), 300, dtype=xp.int8), InvalidArgument),
        (lambda: xp.zeros((-1,)), BadTensorShape),
        (lambda: xp.arange(0, 1, 0), InvalidArgument),
        (lambda: xp.arange(0, 1.5, 0.5, dtype=xp.int8), BadTensorDtype),
        (lambda: xp.linspace(0, 1, -1), InvalidArgument),
        (lambda: xp.arange(0, math.inf), InvalidArgument),
        (lambda: xp.arange(math.nan), InvalidArgument),
        (lambda: xp.arange("a"), InvalidArgument),
        (lambda: xp.arange(2**70), InvalidArgument),
        (lambda: xp.full((2,), None), BadTensorDtype),
        (lambda: xp.zeros(2.5), BadTensorShape),
        (lambda: xp.reshape(xp.ones(3), "abc"), BadTensorShape),
        (lambda: xp.repeat(xp.ones(2), isokern.tensor([-1, 3])), InvalidArgument),
        (lambda: xp.diff(xp.ones(3), n=-1), InvalidArgument),
        (lambda: xp.linalg.matrix_power(xp.ones((2, 2)), 1.5), InvalidArgument),
        (lambda: xp.linalg.vector_norm(xp.ones(3), ord="a"), InvalidArgument),
        (lambda: xp.concat([xp.ones(3), 1]), BadTensorDtype),
        (lambda: xp.clip(xp.ones(3), "a"), BadTensorDtype),
    ]:
        with pytest.raises(error):
            call()


def test_asarray_shares_and_copies(cpu):
    array = F.copy()
    shared, copied = xp.asarray(array, device=cpu), xp.asarray(array, copy=True, device=cpu)
    array[0, 0] = 99
    assert shared[0, 0].item() == 99
    assert copied[0, 0].item() != 99
    assert xp.asarray(shared) is shared
    assert xp.asarray(shared, copy=True).buffer is not shared.buffer
    assert xp.from_dlpack(array).dtype is isokern.F32
    with pytest.raises(InvalidArgument, match="without a copy"):
        xp.asarray(shared, dtype=xp.float64, copy=False)


def test_memory_of_the_host_goes_to_any_device(every_place, monkeypatch):
    """To the default one, too, and is copied where that cannot use it."""
    monkeypatch.setitem(discovery._by_name, "", every_place)
    for made in (xp.from_dlpack(F), xp.asarray(Foreign(F)), xp.from_dlpack(F, copy=True)):
        assert made.device is every_place
        assert made.numpy().tolist() == F.tolist()
    assert xp.from_dlpack(F, device="cpu:0", copy=False).device is isokern.device("cpu:0")
    if not every_place.memory.wraps:
        with pytest.raises(InvalidArgument, match="in place"):
            xp.from_dlpack(F, copy=False)


def test_from_dlpack_of_a_tensor_is_the_same_memory(every_place):
    x = on(every_place, F)
    y = xp.from_dlpack(x)
    y[0, 0] = 5
    assert x[0, 0].item() == 5
    assert xp.from_dlpack(x, copy=True).buffer is not x.buffer
    assert xp.from_dlpack(x, device="cpu:0").device is isokern.device("cpu:0")


def test_products(place):
    a, b = F, np.arange(16, dtype=np.float32).reshape(4, 4)
    check(place, "matmul", a, b, rtol=1e-6)
    check(place, "matmul", a[0], b, rtol=1e-6)
    check(place, "matmul", I, I.T.copy())
    check(place, "vecdot", a, a[0], rtol=1e-6)
    check(place, "vecdot", I, I, axis=-2)
    for axes in (0, 1, ((1,), (0,)), ((), ())):
        found = xp.tensordot(on(place, a), on(place, b), axes=axes).numpy()
        np.testing.assert_allclose(found, np.tensordot(a, b, axes=axes), rtol=1e-5)
    check(place, "matrix_transpose", I)


def test_dtypes(cpu):
    assert xp.isdtype(xp.float32, "real floating")
    assert xp.isdtype(xp.uint8, ("signed integer", xp.uint8))
    assert not xp.isdtype(xp.bool, "numeric")
    assert not xp.isdtype(xp.float64, "complex floating")
    with pytest.raises(InvalidArgument, match="real floating"):
        xp.isdtype(xp.float32, "float")
    assert (xp.finfo(xp.float32).eps, xp.finfo(xp.ones((1,))).bits) == (2.0**-23, 32)
    assert xp.finfo(xp.bfloat16).max == 3.3895313892515355e38
    assert (xp.iinfo(xp.int8).min, xp.iinfo(xp.uint64).max) == (-128, 2**64 - 1)
    for call in (lambda: xp.finfo(xp.int8), lambda: xp.iinfo(xp.float32)):
        with pytest.raises(BadTensorDtype):
            call()
    assert xp.can_cast(xp.int8, xp.int16)
    assert not xp.can_cast(xp.int16, xp.int8)
    assert not xp.can_cast(xp.int16, xp.float32)
    assert xp.result_type(xp.float32, 1) is isokern.F32
    with pytest.raises(BadTensorDtype):
        xp.result_type(xp.int32, 1.0)


def test_info(devices):
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 8}
    assert info.default_device() is isokern.device()
    assert info.devices() == devices
    assert info.default_dtypes()["real floating"] is xp.float32
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    assert set(info.dtypes(kind="complex floating")) == {"complex64", "complex128"}
    assert len(info.dtypes(device="cpu")) == 13
    assert set(info.dtypes(device="cpu")) - set(info.dtypes(device=devices[-1])) <= {"float64", "complex128"}
    assert (xp.e, xp.pi, xp.inf, xp.newaxis) == (math.e, math.pi, math.inf, None)
    assert math.isnan(xp.nan)
    assert [n for n in xp.__all__ if not hasattr(xp, n)] == []
