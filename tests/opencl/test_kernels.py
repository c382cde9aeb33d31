"""Test kernels for processors, with sizes and addresses that operators' samples lack."""

import numpy as np
import pytest

import isokern
from isokern.ops import find


@pytest.fixture(autouse=True)
def builds_without_warnings(capfd):
    """Assert that no compiler's warning appears on the user's terminal."""
    yield
    assert "warning" not in capfd.readouterr().err


def taken_by(device, op, *given, **attrs):
    """Return the variant that a call gets."""
    return isokern.create(op, [t.desc for t in given], device=device, **attrs).variant


@pytest.mark.quick("shape1")
@pytest.mark.parametrize("shape", [(64, 5, 300), (130, 3, 200), (20, 3, 5, 300)])
def test_turned_dims_of_many_blocks(device, shape):
    """A block of a transposition has 128 rows."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    turned = isokern.tensor(x, device=device).T
    assert taken_by(device, "copy", turned) == "cpu"
    assert np.array_equal(isokern.copy(turned).numpy(), x.T)


@pytest.mark.quick("copy-8", "softmax-1")
@pytest.mark.parametrize("skip", [0, 1, 8, 15])
@pytest.mark.parametrize("op", ["copy", "neg", "softmax", "layer_norm"])
def test_large_outputs_anywhere(device, op, skip):
    """Streaming stores write whole cache lines, but a wrapped array may begin anywhere."""
    n = 1024
    x = np.random.default_rng(0).standard_normal((n, n)).astype(np.float32)
    room = np.zeros(n * n + 32, np.float32)
    first = -room.ctypes.data % 64 // 4 + skip
    y = room[first:][: n * n].reshape(n, n)
    given = isokern.tensor(x, device=device)
    given = given.T if op == "copy" else given
    assert taken_by(device, op, given) == "cpu"
    getattr(isokern, op)(given, out=isokern.from_numpy(y, device=device))
    device.synchronize()
    expected = getattr(isokern, op)(given).numpy()
    assert np.array_equal(y, expected)
    assert not room[:first].any()
    assert not room[first + n * n :].any()


FENCED = """
import ctypes, mmap, isokern, numpy as np
device = isokern.device("opencl:0")
x, w = isokern.zeros((1, {c}, 1, 4000), device=device), isokern.zeros(({c}, {c} // {groups}, 1, 40), device=device)
conv = isokern.create("conv2d", [x.desc, w.desc], device=device, dilation=(1, 100), groups={groups})
assert conv.variant == "cpu"
pages = -(-conv.workspace_size // mmap.PAGESIZE) * mmap.PAGESIZE
room = mmap.mmap(-1, pages + (1 << 20))
array = np.frombuffer(room, np.uint8)
assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(array.ctypes.data + pages), ctypes.c_size_t(1 << 20), 0) == 0
space = device.memory.wrap(array[(pages - conv.workspace_size) // 64 * 64 : pages], isokern.dtypes.U8)
conv.calculate([x, w], isokern.zeros((1, {c}, 1, 100), device=device), workspace=space)
device.synchronize()
"""


@pytest.mark.quick("tiles")
@pytest.mark.parametrize("groups", [1, 3], ids=["tiles", "depthwise"])
def test_nothing_is_read_behind_the_workspace(run, groups):
    """The taps are far apart, and panels extend past the last plane."""
    status, text = run(FENCED.format(c=3, groups=groups))
    assert status == 0, text


WINDOWS = [
    ("max_pool2d", (1, 2, 7, 2300), {"kernel": (3, 3), "stride": (2, 2), "padding": (1, 1)}),
    ("max_pool2d", (2, 2, 40, 90), {"kernel": (2, 25), "stride": (1, 6), "dilation": (3, 2)}),
    ("max_pool2d", (1, 1, 1, 80), {"kernel": (5, 3), "dilation": (3, 1), "padding": (11, 0, 11, 0)}),
    ("avg_pool2d", (1, 2, 7, 2300), {"kernel": (3, 3), "stride": (2, 12), "padding": (1, 1)}),
    ("avg_pool2d", (2, 3, 12, 40), {"kernel": (3, 3), "padding": (1, 1), "count_include_pad": True}),
    ("avg_pool2d", (1, 3, 40, 50), {"kernel": (20, 30), "stride": (3, 3), "padding": (9, 14)}),
    ("adaptive_avg_pool2d", (1, 3, 40, 61), {"output_size": (7, 9)}),
    ("adaptive_avg_pool2d", (1, 3, 9, 40), {"output_size": (4, 90)}),
    ("adaptive_avg_pool2d", (2, 3, 40, 61), {"output_size": (1, 1)}),
]


@pytest.mark.quick(
    "max_pool2d-shape1-attrs1-drawn",
    "avg_pool2d-shape3-attrs3-special",
    "adaptive_avg_pool2d-shape7-attrs7-drawn",
)
@pytest.mark.parametrize("filled", ["drawn", "special"])
@pytest.mark.parametrize(("op", "shape", "attrs"), WINDOWS)
def test_windows(device, op, shape, attrs, filled):
    """Covers rows in parts, windows larger than a register or all in the padding, and sums that overflow on the way."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal(shape).astype(np.float32)
    if filled == "special":
        x.flat[rng.integers(x.size // 2, x.size, 6)] = [np.nan, np.inf, -np.inf, 1e37, 1e30, 1e-40]
        x.flat[4:8] = [3e38, 3e38, -3e38, -3e38]
    given = isokern.tensor(x, device=device)
    assert taken_by(device, op, given, **attrs) == "cpu"
    y = getattr(isokern, op)(given, **attrs).numpy()
    values = find(op).attrs.check(op, attrs)
    with np.errstate(all="ignore"):
        expected = find(op).reference(x.astype(np.float64), **values).astype(np.float32)
        scale = find(op).reference(np.abs(x).astype(np.float64), **values)
        near = np.abs(y - expected) <= 2.0**-21 * scale
    assert (near | (y == expected) | (np.isnan(y) & np.isnan(expected))).all()
    assert op != "max_pool2d" or np.array_equal(y, expected, equal_nan=True)


@pytest.mark.quick("shape0-1", "shape2-0")
@pytest.mark.parametrize(("shape", "axis"), [((3, 20_003), 1), ((200, 37), 1), ((20_003, 33), 0), ((90, 40), 0)])
def test_sums_that_overflow_on_the_way(device, shape, axis):
    """Every term of a sum counts when it is added again with care, the first and the last ones too.

    No case of conformance has such sums: a device may overflow where a partial sum does.
    """
    x = np.zeros(shape, np.float32)
    terms = np.moveaxis(x, axis, -1)
    terms[..., :2], terms[..., shape[axis] // 2], terms[..., -2:] = 3e38, 1, -3e38
    given = isokern.tensor(x, device=device)
    assert np.array_equal(isokern.reduce_sum(given, axes=(axis,)).numpy(), np.ones(terms.shape[:-1]))
    assert taken_by(device, "reduce_sum", given, axes=(axis,)) == "cpu"


@pytest.mark.quick("shape0-float32", "shape3-int16")
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int16, np.uint64])
@pytest.mark.parametrize("shape", [(1, 100_003), (3, 40_000), (100_003, 20), (2, 20_000, 530)])
def test_argmax_in_parts(device, shape, dtype):
    """Few outputs of many elements are computed in parts; of equal maxima the first counts, and of NaNs, too."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 30_000, shape).astype(dtype)
    axis = 1 if shape[0] < 4 else 0
    rows = np.moveaxis(x, axis, -1)
    for seen in range(3):
        y = isokern.argmax(isokern.tensor(x, device=device), axis=axis)
        assert np.array_equal(y.numpy(), rows.argmax(-1))
        n = rows.shape[-1]
        places = (n * 9 // 10, n // 2) if seen == 0 else (n * 2 // 3, n // 3)
        for at in places:
            rows[..., at] = np.nan if seen == 1 and x.dtype.kind == "f" else 30_000
    assert taken_by(device, "argmax", isokern.tensor(x, device=device), axis=axis) == "cpu"


ATTENTION = [  # q, heads of k and v, keys, width of v; attributes
    ((1, 1, 8, 64), 2, 3001, 48, {"causal": True}),
    ((2, 1, 5, 32), 1, 700, 32, {"causal": True, "window": 300}),
    ((1, 7, 6, 48), 2, 530, 16, {"softcap": 3.0}),
    ((2, 150, 3, 32), 3, 170, 64, {"causal": True, "window": 40}),
    ((1, 90, 4, 16), 1, 60, 32, {"causal": True}),
]


@pytest.mark.quick("shape0-2-3001-48-attrs0-F32-False", "shape3-3-170-64-attrs3-F16-True")
@pytest.mark.parametrize(("dtype", "masked"), [("F32", False), ("F16", True)])
@pytest.mark.parametrize(("shape", "heads", "keys", "width", "attrs"), ATTENTION)
def test_attention_in_parts(device, shape, heads, keys, width, attrs, dtype, masked):
    """Covers several blocks of keys, tiles of queries and splits, some of them without a key.

    Values that are not finite belong to keys that only some queries see.
    """
    rng = np.random.default_rng(0)
    b, m, h, d = shape
    k, v = rng.standard_normal((b, keys, heads, d)), rng.standard_normal((b, keys, heads, width))
    if not attrs.get("softcap"):
        v[:, keys // 2, :, 3] = np.inf
        v[:, keys - 1, :, 5] = np.nan
    mask = np.where(rng.random((h, m, keys)) < 0.3, -np.inf, rng.standard_normal((h, m, keys)))
    mask[0, 0] = -np.inf
    arrays = [rng.standard_normal(shape), k, v, *([mask] if masked else [])]
    lengths = rng.integers(keys // 2, keys + 1, b)
    given = [isokern.tensor(a.astype(np.float32), dtype, device=device) for a in arrays]
    given = [*given, *([] if masked else [None]), isokern.tensor(lengths, device=device)]
    op = find("attention_lse")
    values = op.attrs.check(op, attrs)
    y, lse = isokern.attention_lse(*given, **attrs)
    assert (
        isokern.create("attention_lse", [t if t is None else t.desc for t in given], device=device, **attrs).variant
        == "cpu"
    )
    wide = [None if t is None else t.numpy().astype(np.float64) for t in given[:4]]
    with np.errstate(all="ignore"):
        expected, sums = op.reference(*wide, lengths, None, None, None, **values)
        got = y.numpy().astype(np.float64)
        near = np.abs(got - expected) <= (2e-3 if dtype == "F16" else 1e-5)
    assert (near | (got == expected) | (np.isnan(got) & np.isnan(expected))).all()
    assert np.allclose(lse.numpy(), sums, rtol=1e-5, atol=1e-5)


NESTS = [  # maps, shapes, body, combine
    ("ab,b,a->ab", [(700, 5), (5,), (700,)], "maximum(x0 * x1, x2)", "none"),
    ("abc,b->cab", [(30, 40, 7), (40,)], "maximum(x0, x1)", "none"),
    ("ab,b->ab", [(3, 1300), (1300,)], "x0 if x0 < x1 else 0.5", "none"),
    ("ab->", [(3, 100_003)], "x0 * x0", "sum"),
    ("ab->b", [(20_000, 40)], "x0", "sum"),
    ("abc->ac", [(9, 700, 5)], "x0 + 1", "sum"),
    ("ab,ab->a", [(40, 1100), (40, 1100)], "x0 * x1 + 1", "sum"),
    ("abc->a", [(50, 3, 70)], "abs(x0)", "maximum"),
    ("ab->b", [(600, 530)], "x0", "minimum"),
    ("mk,nk->mn", [(70, 2100), (37, 2100)], "x0 * x1", "sum"),
    ("km,kn->nm", [(530, 9), (530, 71)], "x1 * x0", "sum"),
    ("abk,ckd->adbc", [(9, 5, 300), (40, 300, 3)], "x0 * x1", "sum"),
    ("kam,bkn->mabn", [(33, 2, 4), (3, 33, 45)], "x0 * x1", "sum"),
]


@pytest.mark.quick(
    "ab,b,a->ab-shapes0-maximum(x0 * x1, x2)-none-drawn-F32",
    "ab->-shapes3-x0 * x0-sum-special-F32",
    "ab->b-shapes4-x0-sum-special-F32",
    "ab->b-shapes8-x0-minimum-drawn-F16",
    "mk,nk->mn-shapes9-x0 * x1-sum-special-F16",
    "abk,ckd->adbc-shapes11-x0 * x1-sum-drawn-F32",
)
@pytest.mark.parametrize("dtype", ["F32", "F16", "F64"])
@pytest.mark.parametrize("filled", ["drawn", "special"])
@pytest.mark.parametrize(("maps", "shapes", "body", "combine"), NESTS)
def test_loop_nests(device, maps, shapes, body, combine, filled, dtype):
    """Covers lanes in rows and lists, terms in parts and groups, edge tiles of a product, and overflow on the way."""
    rng = np.random.default_rng(0)
    kind = isokern.dtypes.dtype(dtype)
    x = [rng.standard_normal(s).astype(kind.numpy) for s in shapes]
    large = filled == "special" and body in ("x0", "x0 + 1") and dtype == "F32"
    if large:
        x[0][1:5] = np.array([3e38, 3e38, -3e38, -3e38]).reshape(4, *[1] * (x[0].ndim - 1))
    elif filled == "special":
        x[0].flat[rng.integers(0, x[0].size, 3)] = [np.nan, np.inf, -np.inf]
    op, given = find("generic"), [isokern.tensor(a, device=device) for a in x]
    sizes = dict(zip(maps.partition("->")[0].replace(",", ""), [n for s in shapes for n in s], strict=True))
    init = (
        None
        if combine == "none"
        else rng.standard_normal([sizes[c] for c in maps.partition("->")[2]]).astype(kind.numpy)
    )
    start = None if init is None else isokern.tensor(init, device=device)
    attrs = {"maps": maps, "body": body, "combine": combine}
    descs = [None if t is None else t.desc for t in (start, *given)]
    types = {"dtypes": {"U": dtype}}
    assert isokern.create("generic", descs, device=device, **types, **attrs).variant == "cpu"
    y = isokern.generic(start, given, dtype=dtype, **attrs).numpy().astype(np.float64)
    wide = [None if a is None else a.astype(np.float64) for a in (init, *x)]
    with np.errstate(all="ignore"):
        expected = op.reference(wide[0], wide[1:], **attrs, out=[isokern.TensorDesc("F64", y.shape)])
        rounded = expected.astype(kind.numpy).astype(np.float64)
        limits, compute = np.finfo(kind.numpy), kind.compute
        scale = op.tolerance.ulps * np.abs(expected) + op.tolerance.scale(wide[0], wide[1:], **attrs, compute=compute)
        bound = np.finfo(compute.numpy).eps * scale + limits.eps * np.abs(expected) + limits.smallest_subnormal
        near = np.abs(y - expected) <= bound
    assert (near | (y == rounded) | (np.isnan(y) & np.isnan(expected))).all()


FENCED_NEST = """
import ctypes, mmap, isokern, numpy as np
device = isokern.device("opencl:0")

def fenced(*shape):
    array = np.random.default_rng(0).standard_normal(shape).astype(np.{dtype})
    pages = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    room = np.frombuffer(mmap.mmap(-1, pages + (1 << 16)), np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(room.ctypes.data + pages), ctypes.c_size_t(1 << 16), 0) == 0
    held = room[pages - array.nbytes : pages].view(array.dtype).reshape(shape)
    held[...] = array
    return held, isokern.from_numpy(held, device=device)

(x, a), (w, b), (start, init), (_, y) = fenced(*{x}), fenced(*{w}), fenced(*{y}), fenced(*{y})
nest = isokern.create("generic", [init.desc, a.desc, b.desc], [y.desc], device=device, \
maps="{maps}", body="x0 * x1", combine="sum")
assert nest.variant == "cpu"
nest.calculate([init, a, b], y, workspace="auto")
device.synchronize()
wide = np.einsum("{maps}", x.astype(np.float64), w.astype(np.float64)) + start
assert np.abs(y.numpy() - wide).max() < 0.1
"""


@pytest.mark.quick("mk,kn->mn-x0-w0-y0-float32")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("maps", "x", "w", "y"),
    [
        ("mk,kn->mn", (9, 21), (21, 35), (9, 35)),
        ("mk,nk->mn", (9, 37), (41, 37), (9, 41)),
        ("km,kn->mn", (21, 9), (21, 70), (9, 70)),
        ("ak,akn->an", (5, 7), (5, 7, 19), (5, 19)),
    ],
)
def test_nothing_is_read_behind_the_tensors(run, maps, x, w, y, dtype):
    """Tiles and panels end where their tensors end."""
    status, text = run(FENCED_NEST.format(maps=maps, x=x, w=w, y=y, dtype=dtype))
    assert status == 0, text
