"""Test rows, reductions, loop nests, windows and skinny products in each way that launch blocks choose.

One item, one group, or parts and a join compute a result, along memory and across it, on items that work alone and on
groups of 64.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from row_samples import SEVERAL_AXES, case

import isokern
from isokern.conformance.run import Runner
from isokern.declare.operator import Sample
from isokern.dtypes import BF16, F16, F32, F64, I32, U64, DType
from isokern.eager.create import create
from isokern.ops import find
from isokern.oracle.cases import Case
from isokern.simt import SimtDevice

ROWS = ["softmax", "log_softmax", "rms_norm", "layer_norm"]
FOLDS = ["reduce_sum", "reduce_mean", "reduce_max", "reduce_min", "argmax"]
# (shape, axis): many short rows, some, few long, one very long; then across memory in the same order
ALONG = [((600, 3), 1), ((200, 130), 1), ((20, 2100), 1), ((3, 9000), 1), ((1, 100003), 1)]
ACROSS = [((3, 900), 0), ((700, 33), 0), ((64, 600), 0), ((9000, 3), 0), ((5000, 40), 0)]
SHAPES = [*ALONG, *ACROSS, ((3, 130, 70), 1), ((2, 7, 5, 600), 2)]


@pytest.fixture(params=[1, 64], ids=["alone", "groups"])
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimtDevice:
    """Return a device with groups of one item, or of 64."""
    try:
        found = isokern.device("opencl:0")
    except isokern.DeviceNotAvailable as error:
        pytest.skip(str(error))
    assert isinstance(found, SimtDevice)
    monkeypatch.setattr(found, "traits", replace(found.traits, group=request.param))
    return found


def judge(device: SimtDevice, op: str, dtype: DType, sample: Sample, layout: str, values: str = "drawn") -> None:
    """Assert that a case of one dtype passes."""
    passes(device, Case(find(op), (dtype,), sample, layout, values, variant="portable"))


def passes(device: SimtDevice, case: Case) -> None:
    """Assert that a case passes."""
    outcome = Runner(device).run(case)
    assert outcome.verdict.value == "pass", f"{outcome.id}: {outcome.detail}"


def computed(device: SimtDevice, op: str, x: np.ndarray[Any, Any], **attrs: Any) -> np.ndarray[Any, Any]:
    """Return the result of one call."""
    given = isokern.tensor(x, device=device)
    (desc,) = find(op).infer([given.desc], attrs)
    with create(op, [given.desc], [desc], device=device, variant="portable", **attrs) as made:
        y = isokern.empty(desc.shape, desc.dtype, device=device)
        made.calculate([given], [y], workspace="auto")
        device.synchronize()
        return np.asarray(y.numpy())


@pytest.mark.quick("groups-softmax-contiguous", "groups-argmax-contiguous", "alone-reduce_sum-contiguous")
@pytest.mark.parametrize("layout", ["contiguous", "permuted_in", "gaps"])
@pytest.mark.parametrize("op", [*ROWS, *FOLDS])
def test_rows_of_every_length(device: SimtDevice, op: str, layout: str) -> None:
    for n, (shape, axis) in enumerate(SHAPES):
        sample = case(op, shape, axis)
        if sample is not None:
            judge(device, op, (F32, BF16)[n % 2] if layout == "gaps" else F32, sample, layout)


@pytest.mark.quick("groups-reduce_min")
@pytest.mark.parametrize("op", ["reduce_sum", "reduce_min", "argmax"])
def test_integers(device: SimtDevice, op: str) -> None:
    for dtype in (I32, U64):
        for shape, axis in SHAPES:
            sample = case(op, shape, axis)
            assert sample is not None
            judge(device, op, dtype, sample, "contiguous")


@pytest.mark.quick("groups-layer_norm", "alone-reduce_max")
@pytest.mark.parametrize("op", [*ROWS, *FOLDS])
def test_special_values_in_long_rows(device: SimtDevice, op: str) -> None:
    for shape, axis in [((3, 9000), 1), ((1, 100003), 1), ((9000, 3), 0), ((5000, 40), 0)]:
        sample = case(op, shape, axis)
        if sample is not None:
            judge(device, op, F32, sample, "contiguous", "special")


@pytest.mark.quick("alone")
def test_several_axes(device: SimtDevice) -> None:
    for sample in SEVERAL_AXES:
        for op in ("reduce_sum", "reduce_max"):
            for layout in ("contiguous", "permuted_in", "gaps"):
                judge(device, op, F32, sample, layout)


@pytest.mark.quick("groups-1x2")
@pytest.mark.parametrize(
    ("shape", "size"),
    [((1, 1, 300, 301), (1, 1)), ((2, 3, 130, 70), (1, 2)), ((1, 2, 40, 41), (3, 3)), ((1, 1, 900, 7), (2, 9))],
    ids=["1x1", "1x2", "3x3", "2x9"],
)
def test_bins_of_every_size(device: SimtDevice, shape: tuple[int, ...], size: tuple[int, int]) -> None:
    for layout in ("contiguous", "permuted_in", "gaps"):
        judge(device, "adaptive_avg_pool2d", F32, Sample({"x": shape}, {"output_size": size}), layout)


@pytest.mark.quick("groups-max_pool2d-huge-F32")
@pytest.mark.parametrize("dtype", [F32, F16, F64], ids=str)
@pytest.mark.parametrize(
    "values",
    [
        {"kernel": (200, 190), "stride": (50, 50), "padding": (3, 4)},
        {"kernel": (9, 40), "dilation": (3, 2)},
        {"kernel": (9,)},
    ],
    ids=["huge", "dilated", "9x9"],
)
@pytest.mark.parametrize("op", ["max_pool2d", "avg_pool2d"])
def test_windows_of_every_size(device: SimtDevice, op: str, values: dict[str, Any], dtype: DType) -> None:
    judge(device, op, dtype, Sample({"x": (1, 1, 230, 231)}, values), "contiguous")


@pytest.mark.quick("groups")
def test_channels_anywhere(device: SimtDevice) -> None:
    for shape in [(2, 3, 5000), (2, 3, 9, 70), (40, 5, 7), (300, 70), (1, 2, 10000)]:
        c = shape[1:2]
        for layout in ("contiguous", "permuted", "permuted_in", "mixed"):
            for dtype in (F32, F64):
                judge(device, "batch_norm", dtype, Sample({"x": shape, "mean": c, "var": c, "w": c, "bias": c}), layout)


@pytest.mark.quick("groups-F32-F32-sum")
@pytest.mark.parametrize("combine", ["sum", "maximum"])
@pytest.mark.parametrize(("dtype", "out"), [(F32, F32), (F16, F32), (F32, F16), (U64, U64)], ids=str)
def test_loop_nests_of_every_length(device: SimtDevice, combine: str, dtype: DType, out: DType) -> None:
    """Covers many short, some, few long and one very long row, both along memory and across it."""
    for maps, x, w in [
        ("ab,b->a", (600, 3), (3,)),
        ("ab,b->a", (20, 2100), (2100,)),
        ("ab,b->a", (3, 9000), (9000,)),
        ("a,a->", (100003,), (100003,)),
        ("ab,a->b", (700, 33), (700,)),
        ("ab,a->b", (9000, 3), (9000,)),
        ("abcd,bd->ca", (3, 50, 4, 70), (50, 70)),
        ("abc,c->b", (60, 3, 130), (130,)),
    ]:
        sizes = dict(zip("".join(maps.split("->")[0].split(",")), (*x, *w), strict=True))
        given = {"x": [x, w], "init": tuple(sizes[c] for c in maps.split("->")[1])}
        sample = Sample(given, {"maps": maps, "body": "x0 + x1", "combine": combine})
        for layout in ("contiguous", "permuted_in", "gaps"):
            passes(device, Case(find("generic"), (dtype, out), sample, layout, "drawn", variant="portable"))


@pytest.mark.quick("groups-30001")
@pytest.mark.parametrize("length", [7, 3000, 30001])
def test_parts_of_infinities(device: SimtDevice, length: int) -> None:
    """A part of only -inf contributes nothing to a softmax; an infinity affects the parts of other groups."""
    x = np.full((2, length), -np.inf, np.float32)
    x[0, length // 3] = 1
    y = computed(device, "softmax", x)
    assert y[0, length // 3] == 1 and y[0].sum() == 1 and np.isnan(y[1]).all()
    x = np.zeros((2, length), np.float32)
    x[0, length // 2] = np.inf
    y = computed(device, "softmax", x)
    assert np.isnan(y[0]).all() and np.isfinite(y[1]).all()


@pytest.mark.quick("groups-30001")
@pytest.mark.parametrize("length", [7, 3000, 30001])
def test_sums_beyond_the_range_on_the_way(device: SimtDevice, length: int) -> None:
    x = np.full((2, length), 3e38, np.float32)
    x[0, 1::2] *= -1
    assert computed(device, "reduce_sum", x, axes=(1,)).tolist() == [x[0, 0] * (length % 2), np.inf]
    assert computed(device, "reduce_mean", x, axes=(1,))[1] == pytest.approx(3e38, rel=3e-7)


@pytest.mark.quick("groups-False-30001")
@pytest.mark.parametrize("length", [9, 3000, 30001])
@pytest.mark.parametrize("across", [False, True])
def test_the_first_of_equals(device: SimtDevice, length: int, across: bool) -> None:
    x = np.zeros((length, 40) if across else (3, length), np.float32)
    rows = x.T if across else x
    rows[0, [length // 3, length - 1]] = 5
    rows[1, [length // 2, length - 2]] = np.nan
    rows[1, 0] = np.inf
    assert computed(device, "argmax", x, axis=0 if across else 1)[:3].tolist() == [length // 3, length // 2, 0]


@pytest.mark.quick("groups-F32")
@pytest.mark.parametrize("dtype", [F32, F16, F64], ids=str)
def test_products_of_few_rows(device: SimtDevice, dtype: DType) -> None:
    """Where groups have 64 items, a group computes one result."""
    judge(device, "linear", dtype, Sample({"x": (3, 700), "w": (5, 700), "bias": (5,)}), "contiguous")
    shapes = {"a": (2, 1030), "b": (9, 1030), "bias": (9,), "c": (2, 9)}
    attrs = {"trans_b": True, "alpha": 0.5, "beta": -2.0, "activation": "relu"}
    judge(device, "gemm", dtype, Sample(shapes, attrs), "gaps")
