"""Test the eager functions by others' names against NumPy: einsum, views of parts, diagonals; and views of tensors."""

import numpy as np
import pytest

import isokern
from isokern import BadTensorDtype, BadTensorShape, BadTensorStrides, InvalidArgument
from isokern.eager.conveniences import parse_equation

RNG = np.random.default_rng(3)


def draw(*shape):
    return RNG.uniform(-1, 1, shape).astype(np.float32)


EQUATIONS = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("ij,kj->ki", (3, 4), (5, 4)),
    ("ijk,jkl->li", (3, 4, 2), (4, 2, 5)),
    ("i,j->ij", (3,), (4,)),
    ("i,i->", (7,), (7,)),
    ("ij->ji", (3, 4)),
    ("ij->j", (3, 4)),
    ("ij->", (3, 4)),
    ("ii->i", (4, 4)),
    ("ii", (4, 4)),
    ("iij->ij", (3, 3, 2)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("a,ab,b->", (3,), (3, 4), (4,)),
    ("...ij,...jk->...ik", (2, 3, 4), (2, 4, 5)),
    ("...i->...", (2, 3, 4)),
    ("ij,jk->ik", (0, 4), (4, 5)),
    ("ij,jk->ik", (3, 0), (0, 5)),
]


@pytest.mark.parametrize(("equation", "shapes"), [(e, s) for e, *s in EQUATIONS])
def test_einsum_is_that_of_numpy(device, equation, shapes):
    xs = [draw(*s) for s in shapes]
    y = isokern.einsum(equation, *xs, device=device)
    np.testing.assert_allclose(y.numpy(), np.einsum(equation, *xs), rtol=1e-5, atol=1e-5)


def test_einsum_of_integers_and_of_half_precision(device):
    a, b = RNG.integers(-9, 9, (3, 4)), RNG.integers(-9, 9, (4, 5))
    assert (isokern.einsum("ij,jk->ki", a, b, device=device).numpy() == (a @ b).T).all()
    x = draw(3, 4).astype(np.float16)
    y = isokern.einsum("ij->i", x, device=device)
    assert y.dtype is isokern.F16
    np.testing.assert_allclose(y.numpy(), x.astype(np.float64).sum(1), atol=1e-2)


def test_einsum_refuses_what_is_no_equation(device):
    x = isokern.tensor(draw(3, 4), device=device)
    for equation, xs in [("ij,jk", (x,)), ("ijk->i", (x,)), ("ij->iz", (x,)), ("ij->ii", (x,)), ("i1->i", (x,))]:
        with pytest.raises(InvalidArgument, match="einsum"):
            isokern.einsum(equation, *xs)
    with pytest.raises(BadTensorShape, match="equal dims"):
        isokern.einsum("ij,ij->i", x, x.T)
    with pytest.raises(BadTensorShape, match="equal dims"):
        isokern.einsum("ii->i", x)
    with pytest.raises(BadTensorDtype, match="one dtype"):
        isokern.einsum("ij,ij->i", x, np.ones((3, 4), np.float64))


def test_letters_that_occur_once_are_the_result():
    assert parse_equation("ba", [2]) == (["ba"], "ab")
    assert parse_equation("ij,jk", [2, 2]) == (["ij", "jk"], "ik")
    assert parse_equation("...j,j", [3, 1]) == (["abj", "j"], "ab")


def test_parts_are_views(device):
    x = isokern.tensor(draw(7, 4), device=device)
    for parts, wanted in [
        (isokern.split(x, 3), np.split(x.numpy(), [3, 6])),
        (isokern.split(x, [2, 0, 5]), np.split(x.numpy(), [2, 2])),
        (isokern.split(x, [1, 3], axis=-1), np.split(x.numpy(), [1], 1)),
        (isokern.chunk(x, 3), np.split(x.numpy(), [3, 6])),
        (isokern.chunk(x, 3, axis=1), np.split(x.numpy(), [2], 1)),
        (x.split((4, 3)), np.split(x.numpy(), [4])),
    ]:
        assert len(parts) == len(wanted)
        for part, array in zip(parts, wanted, strict=True):
            assert part.buffer is x.buffer
            assert part.shape == array.shape
            assert (part.numpy() == array).all()
    assert [p.shape for p in isokern.chunk(isokern.zeros((0, 2), device=device), 2)] == [(0, 2)] * 2
    for wrong in (0, -1, [3, 3], [8, -1], "all", 2.5):
        with pytest.raises((InvalidArgument, BadTensorShape)):
            isokern.split(x, wrong)
    with pytest.raises(InvalidArgument, match="axis"):
        isokern.chunk(x, 2, axis=2)
    with pytest.raises(InvalidArgument, match="chunks"):
        isokern.chunk(x, 0)


@pytest.mark.parametrize("indexing", ["xy", "ij"])
@pytest.mark.parametrize("lengths", [(3,), (3, 4), (2, 3, 4), (2, 0), ()])
def test_meshgrid_is_that_of_numpy(device, indexing, lengths):
    xs = [draw(n) for n in lengths]
    found = isokern.meshgrid(*xs, indexing=indexing, device=device)
    wanted = np.meshgrid(*xs, indexing=indexing)
    assert len(found) == len(wanted)
    for y, array in zip(found, wanted, strict=True):
        assert y.shape == array.shape
        assert (y.numpy() == array).all()
    with pytest.raises(InvalidArgument, match="indexing"):
        isokern.meshgrid(*xs, indexing="ji")
    with pytest.raises(BadTensorShape, match="vectors"):
        isokern.meshgrid(draw(2, 2), device=device)


def test_functions_that_name_operators(device):
    x, square = draw(4), draw(3, 4)
    rows, at = np.array([2, 0]), np.array([[1, 0, 3], [2, 2, 1], [0, 0, 0]])
    pairs = [
        (isokern.diag(x, 1, device=device), np.diag(x, 1)),
        (isokern.diag(square, -1, device=device), np.diag(square, -1)),
        (isokern.diagflat(square, device=device), np.diagflat(square)),
        (isokern.diagflat(isokern.tensor(square, device=device).T), np.diagflat(square.T)),
        (isokern.take(square, rows, device=device), np.take(square, rows)),
        (isokern.take(square, rows, axis=1, device=device), np.take(square, rows, 1)),
        (isokern.take_along_axis(square, at, axis=1, device=device), np.take_along_axis(square, at, 1)),
        (isokern.ones((2, 3), device=device), np.ones((2, 3), np.float32)),
        (isokern.full((2, 0), 7, "I32", device=device), np.full((2, 0), 7, np.int32)),
        (isokern.full((2,), -7, "I64", device=device), np.full(2, -7)),
    ]
    for y, array in pairs:
        assert y.dtype.numpy == array.dtype
        assert (y.numpy() == array).all()
    copied = square.copy()
    copied[rows] = square[:2] + 1
    assert (isokern.index_copy(square, 0, rows, square[:2] + 1, device=device).numpy() == copied).all()
    tokens, offsets = draw(6, 2), np.array([0, 1, 4, 6])
    assert (isokern.select_last_token(tokens, offsets, device=device).numpy() == tokens[[0, 3, 5]]).all()
    with pytest.raises(BadTensorShape, match="diag"):
        isokern.diag(draw(2, 2, 2), device=device)
    if device.supports("pow", T="F64"):
        y = isokern.float_power(x, np.float32(2), device=device)
        assert y.dtype is isokern.F64
        np.testing.assert_allclose(y.numpy(), np.float_power(x, 2))


def test_methods_give_views(device):
    x = isokern.tensor(draw(2, 1, 3), device=device)
    array = x.numpy()
    for view, wanted in [
        (x.squeeze(), array[:, 0]),
        (x.squeeze(1), array[:, 0]),
        (x.squeeze((-2,)), array[:, 0]),
        (x.unsqueeze(0), array[None]),
        (x.unsqueeze((0, -1)), array[None, ..., None]),
        (x.flatten(), array.reshape(-1)),
        (x.flatten(1), array.reshape(2, 3)),
        (x.flatten(0, 1), array.reshape(2, 3)),
        (x.transpose(), array.T),
        (x.transpose(0, 2, 1), array.transpose(0, 2, 1)),
        (x.tile(1, 4, 1), np.tile(array, (1, 4, 1))),
        (x[0].tile(3, 1, 1), np.tile(array[0], (3, 1, 1))),
    ]:
        assert view.buffer is x.buffer
        assert view.shape == wanted.shape
        assert (view.numpy() == wanted).all()
    with pytest.raises(BadTensorShape, match="squeeze"):
        x.squeeze(0)
    with pytest.raises(InvalidArgument, match="unsqueeze"):
        x.unsqueeze((0, 0))
    with pytest.raises(InvalidArgument, match="flatten"):
        x.flatten(2, 0)
    with pytest.raises(BadTensorStrides, match=r"isokern\.tile"):
        x.tile(2, 1, 1)
    with pytest.raises(BadTensorStrides, match="copy"):
        x.transpose().flatten()


def test_views_of_empty_tensors(device):
    x = isokern.zeros((3, 0, 2), device=device)
    array = x.numpy()
    for view, wanted in [
        (x[::-1], array[::-1]),
        (x[:, ::-1], array[:, ::-1]),
        (x[2:0:-2, :, ::-1], array[2:0:-2, :, ::-1]),
        (x[1:1], array[1:1]),
        (x[5:], array[5:]),
        (x[..., None], array[..., None]),
        (x.T, array.T),
        (x.T[::-1, ::-1], array.T[::-1, ::-1]),
        (x.reshape(0, 6), array.reshape(0, 6)),
        (x.reshape(-1), array.reshape(-1)),
        (x[::-1].reshape(2, 0, 3), array.reshape(2, 0, 3)),
        (x[::-1].flatten(), array.reshape(-1)),
        (x.unsqueeze(1), array[:, None]),
        (x.broadcast_to(4, 3, 0, 2), np.broadcast_to(array, (4, 3, 0, 2))),
        (isokern.zeros((0,), device=device)[::-1], np.zeros(0)[::-1]),
        (isokern.zeros((5,), device=device)[4:1], np.zeros(5)[4:1]),
        (isokern.zeros((5,), device=device)[1:4:-1][::-1], np.zeros(5)[1:4:-1]),
    ]:
        assert view.shape == wanted.shape
        assert view.numpy().shape == wanted.shape
        assert isokern.copy(view).shape == wanted.shape
    assert [p.shape for p in x.split(2)] == [(2, 0, 2), (1, 0, 2)]
    assert [p.shape for p in x.split([0], axis=1)] == [(3, 0, 2)]
    assert list(isokern.zeros((0, 3), device=device)) == []
