"""Test the samples that are made from signatures: that each kind is there, and what the declarations refuse is not."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from isokern.conformance import edges
from isokern.conformance.derive import operator_cases
from isokern.declare.operator import Sample
from isokern.declare.samples import describe, first_sample
from isokern.dtypes import BF16, BOOL, F16, F32, F64, I32, I64, DType
from isokern.layout import MAX_RANK
from isokern.ops import all_operators, find
from isokern.oracle.layouts import place
from isokern.oracle.values import conversion_values, draw, generator, special_slices, weight_tails


def of(name: str) -> tuple[list[Sample], dict[str, DType]]:
    """Return the small samples of an operator that go with F32, and its first dtypes."""
    operator = find(name)
    types = {variable: F32 if F32 in allowed else allowed[0] for variable, allowed in operator.signature.types.items()}
    return [s for s in operator.samples() if s.size == "small" and not s.types], types


def test_each_dim_of_a_product_is_beside_powers_of_two() -> None:
    samples, types = of("gemm")
    base = next(s for s in samples if s.text == "a=17x33,b=33x9,bias=9,activation=relu")
    found = list(edges.lengthen(find("gemm"), base, types))
    m = {s.shapes["a"][0] for s in found}
    k = {s.shapes["a"][1] for s in found}
    n = {s.shapes["b"][1] for s in found}
    assert k >= set(edges.LENGTHS)
    assert m & n >= {d for d in edges.LENGTHS if d < 4000}, "of longer ones a matrix is too large to judge"
    for s in found:
        assert s.shapes["a"][1] == s.shapes["b"][0] and s.shapes["bias"] == s.shapes["b"][1:]


def test_all_dims_at_once_differ() -> None:
    samples, types = of("matmul")
    base = next(s for s in samples if s.text == "a=17x33,b=33x9")
    for start in range(12):
        (found,) = edges.lengthen_all(find("matmul"), base, types, start)
        dims = [*found.shapes["a"], found.shapes["b"][1]]
        assert len(set(dims)) == 3 and sum(d in edges.LENGTHS for d in dims) >= 2


def test_ranks_of_seven_and_eight() -> None:
    samples, types = of("transpose")
    base = next(s for s in samples if len(s.shapes["x"]) == 3 and 1 not in s.shapes["x"])
    found = list(edges.deepen(find("transpose"), base, types))
    assert [len(s.shapes["x"]) for s in found] == [MAX_RANK - 1, MAX_RANK]
    assert all(sorted(s.attrs["axes"]) == list(range(len(s.shapes["x"]))) for s in found)


def test_pairs_of_attributes_are_away_from_their_defaults() -> None:
    samples, types = of("conv2d")
    found = list(edges.pair_attributes(find("conv2d"), samples, types))
    assert any({"stride", "dilation"} <= s.attrs.keys() and max(s.attrs["dilation"]) > 1 for s in found)
    assert len({s.text for s in found}) == len(found) > 6


def test_every_axis_has_indices_of_every_rank() -> None:
    samples, types = of("gather")
    found = {(s.attrs["axis"], len(s.shapes["indices"])) for s in edges.turn_axes(find("gather"), samples, types)}
    assert found == {(axis, rank) for axis in range(-2, 3) for rank in range(4)}


def test_attributes_of_digits_that_f32_lacks() -> None:
    samples, types = of("gemm")
    (found,) = edges.refine_attributes(find("gemm"), samples[0], types)
    assert found.attrs["alpha"] not in (1.0, float(np.float32(found.attrs["alpha"])))


def test_launches_beyond_what_a_grid_may_have() -> None:
    operator = find("abs")
    wide = next(s for s in operator.samples() if s.size == "wide")
    (found,) = edges.widen(operator, wide, {"T": F32})
    assert edges.VAST <= np.prod(found.shapes["x"]) < edges.VAST + (1 << 16)


KINDS = ("cache_update", "conv2d", "gather", "gemm", "gru_recurrence", "softmax", "suppress_overlaps", "topk")


@pytest.mark.parametrize("name", KINDS)
def test_no_sample_is_larger_than_a_case_may_be(name: str) -> None:
    operator = find(name)
    for case in operator_cases(operator):
        if case.sample.size == "edge" and case.layout != "far":
            inputs, outputs = describe(operator, case.sample, case.bound_types)
            assert max(d.numel for d in (*inputs, *outputs) if d is not None) <= 2 * edges.VAST


def test_every_operator_has_them_and_they_can_be_left_out() -> None:
    for operator in all_operators():
        if operator.name in ("abs", "cast", "gemm", "softmax"):
            assert {"edge"} < {c.sample.size for c in operator_cases(operator)}
            assert "edge" not in {c.sample.size for c in operator_cases(operator, at_edges=False)}


def test_dims_of_one_have_strides_that_mean_nothing() -> None:
    desc, _ = place("gaps", F32, (2, 1, 3))
    assert desc.strides[1] not in (1, 2, 3) and abs(desc.strides[1]) > desc.extent[1] - desc.extent[0]


def test_strides_of_both_signs() -> None:
    for kind, signs in (("turned", [-1, 1, -1]), ("turned_back", [1, -1, 1])):
        assert [np.sign(s) for s in place(kind, F32, (2, 3, 4))[0].strides] == signs


def test_whole_slices_are_special() -> None:
    x = special_slices(draw("any", F32, (9, 5), generator("x")), F32)
    assert np.isneginf(x[0]).all() and np.isnan(x[2, 1:]).all() and (x[4, 1:] == 0).all() and np.isneginf(x[:, 0]).all()
    assert np.isneginf(special_slices(draw("any", F32, (5,), generator("x")), F32)).all()


def test_the_largest_value_is_in_the_last_place() -> None:
    x = weight_tails(draw("any", F32, (3, 9), generator("x")), F32, 1)
    assert (np.argmax(x, -1) == 8).all() and (np.argmin(weight_tails(x, F32, -1), -1) == 8).all()
    assert first_sample(find("softmax"), {"T": F32}).size == "small"


@pytest.mark.parametrize(
    ("source", "target", "value"),
    [
        (F32, F16, 65519.996),
        (F32, F16, 65520.0),
        (F32, BF16, 1.00390625),
        (F32, I32, 2.0**31),
        (I64, F32, 2**60 + 2**36 + 1),
        (F64, F16, float(np.nextafter(1.00048828125, 2))),
        (F64, BF16, float(np.nextafter(1.00390625, 2))),
        (F64, I64, -(2.0**63)),
    ],
    ids=str,
)
def test_conversions_meet_ties_and_ends(source: DType, target: DType, value: float) -> None:
    found = conversion_values(source, target)
    assert found.dtype == source.numpy
    assert np.array(value, source.numpy) in found


def test_nan_has_several_payloads() -> None:
    found = conversion_values(F32, BF16)
    bits = np.ascontiguousarray(found[np.isnan(found)]).view(np.uint32)
    assert 0x7F800001 in bits and 0x7FC00000 in bits and 0x7FC00001 in bits
    cut = (bits >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
    assert np.isinf(cut.astype(np.float32)).any(), "one is lost with its lower half"
    assert not len(conversion_values(I32, BOOL))
