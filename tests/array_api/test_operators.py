"""Test a tensor as an array: its operators, conversions and indices, beside NumPy's, on every device."""

from __future__ import annotations

import copy
import gc
import operator

import numpy as np
import pytest

import isokern
import isokern.array_api as xp
from isokern import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument, Tensor

A = np.array([[1.5, -2.0, 3.0], [4.0, 5.0, -6.5]], np.float32)
I = np.array([[7, -3, 2], [1, 0, -9]], np.int32)  # noqa: E741
B = np.array([[True, False, True], [False, False, True]])
BINARY = ["add", "sub", "mul", "mod", "lt", "le", "gt", "ge", "eq", "ne"]


def on(place, array):
    return isokern.tensor(array, device=place)


def same(found, expected):
    assert isinstance(found, Tensor)
    assert found.dtype.numpy == expected.dtype
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize("name", [*BINARY, "truediv", "floordiv"])
def test_operators_of_floats_are_numpys(place, name):
    function, x = getattr(operator, name), on(place, A)
    other = np.array([2.0, -3.0, 0.5], np.float32)
    same(function(x, on(place, other)), function(A, other))
    same(function(x, 2.5), function(A, np.float32(2.5)))
    same(function(2.5, x), function(np.float32(2.5), A))
    same(function(x, 2), function(A, np.float32(2)))
    same(function(x, other), function(A, other))
    same(function(other, x), function(other, A))
    assert function(x, on(place, other)).device is place


@pytest.mark.parametrize("name", [*BINARY, "floordiv", "and_", "or_", "xor"])
def test_operators_of_integers_are_numpys(place, name):
    function, x = getattr(operator, name), on(place, I)
    other = np.array([2, -3, 5], np.int32)
    same(function(x, on(place, other)), function(I, other))
    same(function(x, 3), function(I, np.int32(3)))
    same(function(other, abs(x) + 1), function(other, abs(I) + 1))


def test_other_operators(place):
    x, i, b = on(place, A), on(place, I), on(place, B)
    same(-x, -A)
    same(+x, A)
    same(abs(i), abs(I))
    same(~i, ~I)
    same(~b, ~B)
    same(b & True, B)
    same(b ^ on(place, ~B), B ^ ~B)
    same(x**2, A**2)
    same(i**3, I**3)
    same(2 ** abs(i), 2 ** abs(I))
    same(i << 2, I << 2)
    same(1 << abs(i), np.int32(1) << abs(I))
    same(i >> 1, I >> 1)
    same(x @ x.T, A @ A.T)
    same(x @ x[0], A @ A[0])
    same(A.T @ x, A.T @ A)
    same(x.mT, A.T)
    assert (x.size, len(x), x.ndim) == (6, 2, 2)


def test_integer_powers(place):
    base = np.array([0, 1, -1, 2, -3, 7], np.int64)
    for n in (0, 1, 2, 5, 20):
        same(on(place, base) ** n, base**n)
    exponents = np.array([3, 9, 5, 62, 0, 4], np.int64)
    same(on(place, base) ** on(place, exponents), base**exponents)
    same(on(place, base) ** on(place, -exponents), np.array([0, 1, -1, 0, 1, 0]))
    small = np.array([3, 7, 255], np.uint8)
    same(on(place, small) ** on(place, small), small**small)


def test_numbers_that_are_equal_are_not_the_same(every_place):
    """What is kept of a number is found again only by its sign, its type, and the dtype and device beside it."""
    x = on(every_place, np.float32([1.0]))
    for zero in (0.0, -0.0, 0, 0.0):
        assert np.signbit((x * zero).numpy()[0]) == np.signbit(zero)
        assert np.signbit(xp.copysign(x, zero).item()) == np.signbit(zero)
    i, b = on(every_place, np.int8([1])), on(every_place, np.array([True]))
    assert [(v + 1).dtype.name for v in (x, i)] == ["F32", "I8"]
    assert (b & True).item() is True
    for call in (lambda: b & 1, lambda: i + True, lambda: i + 1.0):
        with pytest.raises(BadTensorDtype):
            call()
    assert np.isnan((x + np.nan).item())
    assert (x + 1.0).device is every_place
    y = x + 1.0
    y += 5
    assert (x + 1.0).item() == 2


def test_promotion_is_the_standards(cpu):
    for name, dtypes in {
        "I64": [("U32", "I32"), ("U32", "I8"), ("I64", "U8")],
        "I16": [("I8", "U8"), ("I16", "U8"), ("I16", "I8")],
        "U32": [("U8", "U32"), ("U16", "U32")],
        "F64": [("F32", "F64"), ("F16", "F64")],
        "F32": [("F16", "BF16"), ("BF16", "F32")],
    }.items():
        for a, b in dtypes:
            found = isokern.ones((2,), a) + isokern.ones((2,), b)
            assert (found.dtype.name, found.numpy().tolist()) == (name, [2, 2])
            assert xp.result_type(isokern.dtype(b), isokern.ones((1,), a)) is isokern.dtype(name)
    for a, b in [("I32", "F32"), ("U64", "I8"), ("BOOL", "I8"), ("F8E5M2", "F32")]:
        with pytest.raises(BadTensorDtype, match=f"{a} and {b} have no dtype in common"):
            xp.result_type(isokern.dtype(a), isokern.dtype(b))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x, i, b: i * 1.5, BadTensorDtype, "numbers of the kind of I32"),
        (lambda x, i, b: x + True, BadTensorDtype, "True beside an array of F32"),
        (lambda x, i, b: i + True, BadTensorDtype, "True beside"),
        (lambda x, i, b: b & 1, BadTensorDtype, "1 beside an array of BOOL"),
        (lambda x, i, b: i + 1j, BadTensorDtype, "1j beside"),
        (lambda x, i, b: x * 1j < x, BadTensorDtype, "less: an array of C64; allowed: signed integers"),
        (lambda x, i, b: (x * 1j).astype("F32"), BadTensorDtype, "C64 to F32; allowed: complex dtypes and BOOL"),
        (lambda x, i, b: i + 2**40, InvalidArgument, "-2147483648..2147483647"),
        (lambda x, i, b: x + i, BadTensorDtype, "no dtype in common.*astype"),
        (lambda x, i, b: b + b, BadTensorDtype, "allowed: signed integers"),
        (lambda x, i, b: b / b, BadTensorDtype, "divide: an array of BOOL; allowed: signed integers"),
        (lambda x, i, b: x & x, BadTensorDtype, "bitwise_and"),
        (lambda x, i, b: x + x[0, :2], BadTensorShape, "broadcast|dims|allowed"),
        (lambda x, i, b: x @ 2.0, BadTensorShape, "rank 1 or more"),
        (lambda x, i, b: operator.add(x, [1, 2, 3]), TypeError, "unsupported operand"),
        (lambda x, i, b: x + (v for v in range(3)), TypeError, "unsupported operand"),
        (lambda x, i, b: x < None, TypeError, "not supported"),
        (lambda x, i, b: np.add.reduce(x), TypeError, "ufunc"),
        (lambda x, i, b: np.add(x, "a"), TypeError, "ufunc"),
        (lambda x, i, b: bool(x == x), InvalidArgument, "6 elements; allowed: one"),
        (lambda x, i, b: bool(x[:0]), InvalidArgument, "0 elements"),
        (lambda x, i, b: 1 if isokern.equal(x, x) else 0, InvalidArgument, "any or all"),
        (lambda x, i, b: float(x), BadTensorShape, "6 elements"),
        (lambda x, i, b: [1, 2][x[0, 0]], BadTensorDtype, "integer dtype"),
        (lambda x, i, b: range(9)[i[0]], BadTensorDtype, "one element"),
        (lambda x, i, b: len(x[0, 0]), TypeError, "rank 0"),
        (lambda x, i, b: x[7], IndexError, "-2..1"),
        (lambda x, i, b: x[0, 0, 0], IndexError, "at most 2"),
        (lambda x, i, b: x[b[:1]], IndexError, "a mask"),
        (lambda x, i, b: x[x], BadTensorDtype, "integers, or booleans"),
        (lambda x, i, b: x["a"], InvalidArgument, "'a'"),
        (lambda x, i, b: x[..., ...], IndexError, "one …"),
    ],
)
def test_what_does_not_fit_is_refused(place, call, error, words):
    with pytest.raises(error, match=words):
        call(on(place, A), on(place, I), on(place, B))


def test_devices_do_not_mix(devices):
    if len(devices) < 2:
        pytest.skip("there is one device")
    x, y = on(devices[0], A), on(devices[1], A)
    for call in (lambda: x + y, lambda: y * x, lambda: x @ y.T, lambda: xp.concat([x, y]), lambda: x.__iadd__(y)):
        with pytest.raises(InvalidArgument, match="to_device"):
            call()
    with pytest.raises(InvalidArgument, match="to_device"):
        x[0] = y[0]
    same(x, A)
    same(x + y.to_device(devices[0]), A + A)
    assert x.to_device(devices[0].name) is x


def test_conversions(every_place):
    x, i = on(every_place, A), on(every_place, I)
    assert (bool(x[0, 0]), int(x[0, 1]), float(i[0, 0]), complex(x[0, 0])) == (True, -2, 7.0, 1.5 + 0j)
    assert range(100)[i[0, :1]] == 7
    assert (x[0, 0].item(), type(x[0, 0].item()), i[0, 0].item(), (x == x)[0, 0].item()) == (1.5, float, 7, True)
    assert isokern.tensor([0.5], "BF16", device=every_place).item() == 0.5
    assert x.tolist() == A.tolist()
    same(x.astype("I32"), A.astype(np.int32))
    assert x.astype("F32", copy=False) is x
    assert x.astype("F32").buffer is not x.buffer


def test_identity_is_the_hash_and_elements_are_compared(cpu):
    x, y = on(cpu, A), on(cpu, A)
    assert {x: 1, y: 2} == {x: 1, y: 2}
    assert {x: 1}.get(y) is None
    assert x in [x]
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    with pytest.raises(InvalidArgument, match="any or all"):
        x in [y]  # noqa: B015
    other = copy.deepcopy(x)
    other += 1
    same(x, A)


INDICES = [
    (0,),
    (slice(None), 1),
    (slice(None, None, -1), slice(2, None, -2)),
    (..., None, 0),
    (None, 1, ..., None),
    (slice(5, 2),),
    ([1, 0, -1],),
    (np.array([[0, 1], [1, 0]]),),
    (slice(None), [2, 0]),
    (slice(None), None, [2, 0]),
    ([0, 1], [2, 1]),
    (np.array([[0], [1]]), np.array([0, 2])),
    (0, [1, 1]),
    ([1], slice(None), None),
    ([0, 1], None, [2, 1]),
    (B,),
    (B[:, 0],),
    (slice(None), B[0]),
    (True,),
    (False,),
    (np.array([], np.int64),),
    (np.zeros((0,), bool),),
    ([],),
    (np.uint8([1, 0]),),
    (np.int64(1), np.int8(-1)),
]


@pytest.mark.parametrize("index", INDICES, ids=str)
def test_indices_are_numpys(place, index):
    """What an index reads, and what it writes: an array, and a number."""
    expected = A[index]
    same(on(place, A)[index], expected)
    given = tuple(on(place, i) if isinstance(i, np.ndarray) else i for i in index)
    same(on(place, A)[given], expected)
    x, array = on(place, A), A.copy()
    values = np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
    x[index], array[index] = on(place, values), values
    same(x, array)
    x[given], array[index] = 9, 9
    same(x, array)


def test_indices_of_three_dims(place):
    array = np.arange(60).reshape(3, 4, 5)
    x = on(place, array)
    for index in [
        (0, slice(None), [1, 2]),
        ([0, 1], slice(None), [1, 2]),
        (slice(None), [0, 2], [1, 3]),
        (slice(None), [0, 2], 1),
        (..., [0, -1]),
        ([[0], [2]], [1, 3]),
        (array[:, :, 0] % 2 == 0,),
        (slice(None), array[0] % 3 == 0),
        (slice(None), [0, 2], None, [1, 3]),
        (slice(None), 0, None, [1, 3]),
        (None, slice(None), 1, ..., [1, 3]),
        (array % 7 == 3,),
        (slice(None, None, -2), None, [True, False, True, True], slice(1, 3)),
    ]:
        same(x[index], array[index])
        y, other = isokern.copy(x), array.copy()
        y[index], other[index] = x[index] + 1, array[index] + 1
        same(y, other)


def test_an_index_beyond_the_axis_is_found_by_the_device(every_place):
    with pytest.raises(InvalidArgument, match="out of range"):
        on(every_place, A)[on(every_place, np.array([0, 2]))].numpy()


def test_writes_go_into_the_memory_of_the_whole(place):
    x, array = on(place, A), A.copy()
    x[1:] += 1
    array[1:] += 1
    x[:, ::-2] *= x[:, ::-2]
    array[:, ::-2] *= array[:, ::-2]
    x[0], array[0] = 7, 7
    x[:, 1], array[:, 1] = np.float32([8, 9]), [8, 9]
    view = x[1]
    view -= 2.5
    array[1] -= 2.5
    same(x, array)
    del x
    gc.collect()
    same(view, array[1])


def test_writes_that_overlap_what_they_read(every_place):
    for step in (
        lambda x: operator.setitem(x, slice(1, None), x[:-1]),
        lambda x: operator.setitem(x, slice(None, None, -1), x),
        lambda x: operator.iadd(x[1:], x[:-1]),
        lambda x: operator.iadd(x, x[::-1]),
        lambda x: operator.imul(x, x),
        lambda x: operator.isub(x[::2], x[:3]),
    ):
        x, array = (f(np.arange(5, dtype=np.float32)) for f in (lambda a: on(every_place, a), np.copy))
        step(x)
        step(array)
        same(x, array)


def test_writes_in_place(place):
    x = on(place, np.ones((2, 3), np.float32))
    before = x
    x += on(place, np.float32([1, 2, 3]))
    x /= 2
    x **= 2
    x -= 0.25
    x @= on(place, np.eye(3, dtype=np.float32))
    x //= 1
    x %= 3
    assert x is before
    same(x, np.float32([[0, 2, 0], [0, 2, 0]]))
    i = on(place, np.array([1, 2, 3]))
    i <<= 1
    i |= 1
    i ^= 3
    i &= 7
    i >>= 1
    i += on(place, np.array([1, 1, 1], np.int8))
    same(i, np.array([1, 4, 3]))
    b = on(place, B)
    b &= ~b
    assert not xp.any(b)
    empty = xp.zeros((0, 3), device=place)
    empty += 1
    empty[:] = 2
    empty[empty > 1] = 3
    scalar = on(place, np.float32(3))
    scalar += 1
    scalar[...] = scalar * 2
    scalar[()] += 1
    assert scalar.item() == 9


@pytest.mark.parametrize(
    ("step", "error", "words"),
    [
        (lambda x, i: x.__iadd__(xp.ones((2, 2, 3), device=x.device)), BadTensorShape, "in place"),
        (lambda x, i: i.__iadd__(xp.ones((2, 3), dtype="I64", device=x.device)), BadTensorDtype, "not in place"),
        (lambda x, i: i.__iadd__(1.5), BadTensorDtype, "1.5 beside"),
        (lambda x, i: i.__setitem__(0, 1.5), BadTensorDtype, "1.5 beside"),
        (lambda x, i: i.__setitem__(0, x[0]), BadTensorDtype, "F32 and I32"),
        (lambda x, i: i.__setitem__([0], x[:1]), BadTensorDtype, "F32 and I32"),
        (lambda x, i: x.__setitem__(0, x), BadTensorShape, "broadcasts"),
        (lambda x, i: x.__setitem__([0], x), BadTensorShape, "broadcasts"),
        (lambda x, i: x.__setitem__(x > 0, x[0]), BadTensorShape, "broadcasts"),
        (lambda x, i: x.__setitem__(0, [1, 2, 3]), BadTensorDtype, "asarray"),
        (lambda x, i: x[0].broadcast_to(2, 3).__iadd__(1), BadTensorStrides, "share memory"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(place, step, error, words):
    x, i = on(place, A), on(place, I)
    with pytest.raises(error, match=words):
        step(x, i)
    same(x, A)
    same(i, I)


def test_read_only_memory_is_not_written(cpu):
    array = A.copy()
    array.flags.writeable = False
    x = isokern.from_numpy(array, device=cpu)
    for step in (lambda: x.__iadd__(1), lambda: x.__setitem__(0, 1), lambda: x.__setitem__([0], 1)):
        with pytest.raises(InvalidArgument, match="read-only"):
            step()
    same(x, A)
    with pytest.raises(ValueError, match="read-only"):  # NumPy's own error
        array += x


def test_namespace_of_an_array(cpu):
    x = on(cpu, A)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2024.12") is xp
    with pytest.raises(InvalidArgument, match=r"2024\.12"):
        x.__array_namespace__(api_version="1999.12")
    with pytest.raises(InvalidArgument, match="stream=1"):
        x.to_device(cpu, stream=1)


def test_dlpack_gives_the_host_a_copy_of_any_memory(every_place):
    for dtype in ("F32", "BF16", "BOOL", "I8"):
        x = isokern.ones((2, 3), dtype, device=every_place)
        capsule = x.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
        assert "dltensor" in repr(capsule)

    class Producer:
        def __dlpack__(self, **options):
            return on(every_place, A).__dlpack__(dl_device=(1, 0))

        def __dlpack_device__(self):
            return (1, 0)

    np.testing.assert_array_equal(np.from_dlpack(Producer()), A)
    if every_place.memory.wraps or every_place.dlpack_device is not None:
        assert "dltensor" in repr(on(every_place, A).__dlpack__(copy=True))


def test_the_namespace_is_imported_when_an_array_computes(run):
    code = "import sys, isokern, isokern.tensors; print([m for m in sys.modules if m.startswith('isokern.array_api')])"
    assert run(code) == (0, "[]\n")


@pytest.mark.parametrize("element", ["I8", "I32", "I64", "U8", "U64"])
def test_integers_divide_to_the_default_float(element):
    """scikit-learn's balanced_accuracy_score divides counts."""
    a = xp.asarray([[1, 2, 3], [7, 0, 9]], dtype=element)
    for found, wanted in (
        (a / a[0], a.numpy() / a[0].numpy()),
        (a / 2, a.numpy() / 2),
        (6 / a[0], 6 / a[0].numpy()),
        (xp.divide(a, a[0]), a.numpy() / a[0].numpy()),
    ):
        assert found.dtype is isokern.F32
        np.testing.assert_array_equal(found.numpy(), wanted.astype(np.float32))
    assert (a / (a - a)).numpy()[0].tolist() == [np.inf] * 3
    with pytest.raises(BadTensorDtype):
        a /= 2  # the array itself has no place for floats
