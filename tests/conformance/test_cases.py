"""Test the cases themselves: number, layouts, stable ids and values, and that their checks can fail."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice

import numpy as np
import pytest

import isokern
from isokern.backend import Device
from isokern.conformance.derive import choices, device_cases, operator_cases
from isokern.conformance.edges import resize
from isokern.declare.operator import Sample
from isokern.declare.samples import assignments, describe, slots
from isokern.dtypes import ALL, BF16, BOOL, F8E4M3FN, F16, F32, F64, I32, PLAIN, STORED_BLOCKS
from isokern.layout import TensorDesc
from isokern.ops import all_operators, find
from isokern.oracle.cases import Case, dtype_text
from isokern.oracle.expected import Judged, Problems, count_ulps, judge, problem
from isokern.oracle.layouts import GUARD, LAYOUTS, arrangements, elements, outside, place
from isokern.oracle.values import draw, generator, limits_of, special_values


@pytest.fixture(scope="module")
def cases(cpu: Device) -> list[Case]:
    return device_cases(cpu)


def _placed(case: Case) -> list[isokern.TensorDesc]:
    inputs = slots(case.operator, case.sample, case.bound_types)
    _, outputs = describe(case.operator, case.sample, case.bound_types)
    kinds = arrangements(case.layout, len(outputs), len(inputs))
    tensors = [*((o.dtype, o.shape) for o in outputs), *((s.dtype, s.shape) for s in inputs)]
    return [place(k, d, shape)[0] for k, (d, shape) in zip(kinds, tensors, strict=True) if shape is not None]


def test_ids_are_unique_and_every_pair_has_its_cases(cases: list[Case], cpu: Device) -> None:
    """An operator that is decomposed runs whole in its first dtypes, and in others in a few ways of each kind."""
    assert len({c.id for c in cases}) == len(cases) >= 3000
    by_pair = defaultdict(list)
    for c in cases:
        if c.calls and not c.variant:
            by_pair[c.operator.name, c.dtype].append(c)
    assert set(by_pair) == {(o.name, dtype_text(t.values())) for o in all_operators() for t in choices(o)}
    for pair, own in by_pair.items():
        texts = {s.text for s in own[0].operator.samples()}
        long = [c for c in own if c.sample.text in texts]  # without samples that are shortened, of which many are empty
        usual = all(own[0].bound_types[v] is own[0].operator.signature.types[v][0] for v in own[0].operator.index_types)
        few = not cpu.variants(own[0].operator.stem) and own[0].types != tuple(choices(own[0].operator)[0].values())
        chosen = all(c.sample.each for c in own)  # a pair of dtypes that there is for the sake of one sample
        least = 2 if few else 5 if chosen else 12 if usual else 10  # samples without explicit indices are left out
        assert len(own) >= least, pair
        wanted = 1 if few else -(-len(long) // 2)
        strided = (c for c in long if any(not d.is_contiguous for d in _placed(c)))
        assert len(list(islice(strided, wanted))) == wanted, (pair, wanted)
        assert few or any(c.layout == "offset" for c in own), pair
        assert any(c.values.startswith("special") for c in own) or not own[0].operator.signature.inputs, pair
        if own[0].operator.aliases and not chosen:
            assert any(c.alias for c in own), pair
    assert {c.operator.name for c in cases if c.error is not None} == {o.name for o in all_operators()}


def test_every_dim_is_short_once_where_the_declaration_takes_that_and_no_index_is_left() -> None:
    def shapes(name: str, sample: Sample, length: int = 0) -> list[tuple[tuple[int, ...], ...]]:
        operator = find(name)
        return [tuple(s.shapes.values()) for s in resize(operator, sample, choices(operator)[0], length)]

    product = Sample({"a": (2, 3), "b": (3, 2)})
    assert shapes("matmul", product) == [((0, 3), (3, 0)), ((2, 0), (0, 2)), ((0, 3), (3, 2)), ((2, 3), (3, 0))]
    assert shapes("matmul", product, 1) == [((1, 3), (3, 1)), ((2, 1), (1, 2)), ((1, 3), (3, 2)), ((2, 3), (3, 1))]
    rows = Sample({"x": (5, 4), "indices": (3,)}, {"axis": 0}, {"indices": "index:5"})
    assert shapes("gather", rows) == [((5, 4), (0,))] and shapes("gather", rows, 1) == []
    assert shapes("concat", Sample({"x": [(2,), (3,)]}, {"axis": 0})) == [([(0,), (3,)],), ([(2,), (0,)],)]


def test_indices_of_every_dtype_are_judged() -> None:
    taken = {o.name: o.index_types for o in all_operators() if o.index_types}
    assert taken == {
        **dict.fromkeys(("attention", "attention_lse", "cache_update", "embedding", "gather", "rope"), ("I",)),
        **dict.fromkeys(("one_hot", "reverse_sequence"), ("I",)),
        **dict.fromkeys(("add_id", "gather_elements", "gather_nd", "index_add", "index_fill", "max_unpool"), ("I",)),
        "weighted_gather": ("I",),
        **dict.fromkeys(("scatter", "scatter_elements", "scatter_nd"), ("I",)),
        **dict.fromkeys(("fused_moe", "fused_moe_mxfp4", "grouped_gemm", "matmul_id"), ("I",)),
        **dict.fromkeys(("indexer_logits", "roi_align"), ("I",)),
        **dict.fromkeys(("cross_entropy", "ldexp", "multi_margin_loss", "nll_loss"), ("I",)),
        **dict.fromkeys(("gru", "gru_recurrence", "lstm", "lstm_recurrence", "rnn", "rnn_recurrence"), ("I",)),
        **dict.fromkeys(("mla_attention", "mrope", "nsa_compress_paged_cache", "nsa_paged_attention"), ("I",)),
        **dict.fromkeys(("paged_attention", "paged_attention_prefill", "paged_cache_update"), ("I",)),
        **dict.fromkeys(
            ("paged_mla_attention", "repetition_penalty", "sinusoidal_embedding", "varlen_attention"), ("I",)
        ),
        **dict.fromkeys(("conv_integer", "matmul_integer", "qlinear_conv", "qlinear_matmul"), ("B",)),
        "random_sample": ("I", "J"),
    }
    for name, variables in taken.items():
        op = find(name)
        judged = choices(op)
        plain = [t for t in judged if all(t[v] is op.signature.types[v][0] for v in variables)]
        first = [t for t in assignments(op) if all(t[v] is op.signature.types[v][0] for v in variables)]
        # Blocks that are only decoded meet every choice in their first type, the others F32 alone
        further = set(STORED_BLOCKS[1:])
        assert plain == [t for t in first if not further & set(t.values()) or t.get("T") is F32]
        for variable in variables:
            assert {t[variable] for t in judged} == set(op.signature.types[variable])
            for c in (
                c
                for c in operator_cases(op)
                if c.calls and c.bound_types[variable] is not op.signature.types[variable][0]
            ):
                assert any(o.type == variable and o.name in c.sample.shapes for o in op.signature.inputs), c.id


def test_every_wide_and_long_sample_is_called(cases: list[Case]) -> None:
    """Operators with indices have a dtype among theirs that no computation is in."""
    called = {(c.operator.name, c.sample.text) for c in cases if c.calls and not c.variant}
    for operator in all_operators():
        for sample in operator.samples():
            if sample.size in ("wide", "long"):
                assert (operator.name, sample.text) in called


def test_quick_cases_have_every_layout(cases: list[Case]) -> None:
    assert {c.layout for c in cases if c.quick} == set(LAYOUTS) - {"far"}, "that one takes 64 MiB a tensor"


def test_every_variant_is_forced(cases: list[Case], cpu: Device) -> None:
    forced = defaultdict(set)
    for c in cases:
        forced[c.operator.stem].add(c.variant)
    for stem, names in forced.items():
        ranked = sorted(cpu.variants(stem), key=lambda v: -v.priority)
        assert names == {"", *(v.name for v in ranked[1:])}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_placed_tensor_stays_inside_its_guards(layout: str) -> None:
    for shape in [(), (1,), (7,), (3, 5), (2, 3, 4), (0, 3), (2, 1, 2, 1, 3, 1, 2, 2)]:
        for dtype in PLAIN:
            for kind in set(arrangements(layout, 1, 5)):
                desc, nbytes = place(kind, dtype, shape)
                low, high = desc.byte_range
                assert nbytes == high if kind == "exact" and high else high + GUARD <= nbytes
                assert low >= (0 if kind in ("bare", "exact") else GUARD)
                raw = np.zeros(nbytes, np.uint8)
                elements(raw, desc)[...] = 1
                assert not raw[outside(desc, nbytes)].any()
                assert desc.numel == 0 or raw[~outside(desc, nbytes)].any()
                assert kind in ("broadcast", "repeated") or not desc.overlaps_itself


def test_offset_moves_every_tensor_by_one_element(cases: list[Case]) -> None:
    shifted = [c for c in cases if c.layout == "offset" and not c.alias and c.calls]
    for case in {(c.operator.name, c.dtype): c for c in shifted}.values():
        for d in _placed(case):
            assert d.offset == (-(-GUARD // d.dtype.itemsize) + 1) * d.dtype.block, case.id


def test_values_depend_on_the_id_alone() -> None:
    case = next(c for c in device_cases(isokern.device("cpu"), [find("gemm")]) if c.values == "drawn")
    first, second = Problems().of(case), Problems().of(case)
    assert all(np.array_equal(a, b) for a, b in zip(first.inputs, second.inputs, strict=True) if a is not None)
    assert np.array_equal(first.expected[0], second.expected[0])


def test_every_row_of_drawn_logits_has_a_token() -> None:
    x = draw("logits", isokern.F32, (500, 1), generator("x"))
    assert np.isfinite(x).all()
    assert np.isneginf(draw("logits", isokern.F32, (3, 500), generator("x"))).any()


@pytest.mark.parametrize("domain", sorted({d for o in all_operators() for d in o.domains.values()} | {"index:9"}))
@pytest.mark.parametrize("dtype", PLAIN, ids=str)
def test_draws_stay_in_their_domain(domain: str, dtype: isokern.DType) -> None:
    shaped = {"boxes": (250, 4), "regions": (250, 4), "rois": (200, 5), "peaks": (30, 33)}  # by their last dims
    x = draw(domain, dtype, shaped.get(domain, (999,)), generator("x"))
    assert x.dtype == dtype.numpy
    if dtype.kind == "b" or domain == "any":
        return
    wide = x.astype(np.float64)
    low, high = {
        "positive": (0, np.inf),
        "unit": (-1, 1),
        "small": (-1 / 8, 1 / 8),
        "above_one": (1, np.inf),
        "moderate": (-8, 8),
        "index:9": (-9, 8),
        "nonzero": (-np.inf, np.inf),
        "logits": (-np.inf, np.inf),
        "exponents": (112, 128),  # in 8 bits 127 is rounded up
        "peaks": (-np.inf, 1e12),
        "boxes": (0, 12),
        "regions": (-2, 5),
        "rois": (0, 12),
    }[domain]
    if dtype.kind == "f" or (domain.startswith("index") and dtype.kind == "i"):
        assert low <= wide.min() <= wide.max() <= high
        assert len(np.unique(x)) > (1 if domain == "exponents" and dtype.storage else 10)  # 8 bits hold few of these


def test_boxes_are_corners_in_order_and_overlap() -> None:
    a, b = np.split(draw("boxes", isokern.F32, (50, 4), generator("x")), 2, -1)
    assert (a < b).all()
    shared = np.minimum(b[:, None], b) - np.maximum(a[:, None], a)
    assert 0.05 < (shared > 0).all(-1).mean() < 0.95
    assert (draw("rois", isokern.F32, (50, 5), generator("x"))[:, 0] == 0).all()


def test_an_unknown_domain_is_refused() -> None:
    with pytest.raises(ValueError, match="positve"):
        draw("positve", isokern.F32, (3,), generator("x"))


def test_special_values_hold_what_kernels_get_wrong() -> None:
    for dtype in (d for d in ALL if d.kind == "f"):
        x = special_values(dtype)
        assert np.isnan(x).any()
        assert np.isposinf(x.astype(np.float64)).any() or dtype is F8E4M3FN  # which has no infinity
        assert (np.signbit(x) & (x == 0)).any()
        assert ((np.abs(x.astype(np.float64)) < float(limits_of(dtype).tiny)) & (x != 0)).any()
        normal = np.abs(special_values(dtype, subnormal=False).astype(np.float64))
        assert not ((normal > 0) & (normal < float(limits_of(dtype).tiny))).any()


def test_special_cases_cross_the_values_of_two_operands() -> None:
    case = next(
        c
        for c in device_cases(isokern.device("cpu"), [find("add")])
        if c.dtype == "F32" and c.values == "special" and c.quick
    )
    a, b = Problems().of(case).inputs
    assert a is not None and b is not None
    seen = Counter(zip(map(str, a.tolist()), map(str, b.tolist()), strict=True))
    assert {("inf", "-inf"), ("nan", "0.0"), ("-0.0", "-0.0"), ("inf", "nan")} <= set(seen)


@pytest.mark.parametrize("name", ["add", "softmax", "matmul"])
@pytest.mark.parametrize("dtype", ["F64", "F32", "F16", "BF16"])
def test_the_tolerance_takes_the_rounded_reference_and_refuses_its_neighbours(name: str, dtype: str) -> None:
    for case in device_cases(isokern.device("cpu"), [find(name)]):
        if case.dtype != dtype or case.variant or case.values != "drawn":
            continue
        asked = Problems().of(case)
        expected = asked.expected[0]
        if expected.size == 0:
            continue
        numpy = asked.outputs[0].dtype.numpy
        assert not judge(expected.astype(numpy), asked, 0, strict_nan=True, flushes=False).wrong, case.id
        bound = asked.intervals[0].bound
        far = np.nextafter((expected + 2.1 * bound).astype(numpy), np.array(np.inf, numpy))
        assert judge(far, asked, 0, strict_nan=True, flushes=False).share > 1, case.id
        one = expected.astype(numpy).copy()
        one.reshape(-1)[-1] = np.nan
        assert "first at" in judge(one, asked, 0, strict_nan=True, flushes=False).wrong, case.id


@pytest.mark.parametrize(
    ("body", "x", "false", "true"),
    [
        ("(x0 if x0 > 0 else expm1(x0)) <= x0", -1e-7, True, True),  # expm1(x0) equals x0 to within rounding
        ("(x0 if x0 > 0 else expm1(x0)) <= x0", -1e-4, True, False),
        ("(x0 if x0 > 0 else expm1(x0)) <= x0", 2.0, False, True),
        ("x0 < x0", 1.0, True, False),
        ("x0 * 3 - x0", 0.0, True, False),
        ("log(x0) - log(x0)", 3.0, True, True),
        ("x0 - 1", float("nan"), False, True),
    ],
)
@pytest.mark.parametrize("dtype", [F16, F32, F64])
def test_a_truth_of_rounded_numbers_may_be_either_where_rounding_turns_it(
    dtype: isokern.DType, body: str, x: float, false: bool, true: bool
) -> None:
    case = Case(
        find("generic"), (dtype, BOOL), Sample({"x": [(3,)]}, {"maps": "a->a", "body": body, "combine": "none"})
    )
    asked = problem(case, [None, np.full(3, x, dtype.numpy)], [TensorDesc(BOOL, (3,))], [])
    right = [not judge(np.full(3, t), asked, 0, strict_nan=False, flushes=False).wrong for t in (False, True)]
    if dtype is F64 and false and true:  # the reference is computed in float64 as well
        assert any(right)
    else:
        assert right == [false, true]


@pytest.mark.parametrize(
    ("name", "lost", "least"),
    [
        ("silu_mul", -120, -100),
        ("silu_mul", -105, -100),  # exp is 0 in F32, and the gate is not
        ("sigmoid_mul", -105, -100),
        ("quick_gelu_mul", -62, -58),
        ("gelu_mul", -20, -13),
        ("gelu_mul", -14.1, -13),
        ("gelu_tanh_mul", -18, -10),
        ("gelu_tanh_mul", -10.7, -10),
    ],
)
def test_a_gate_that_may_be_lost_may_be_0_or_not(name: str, lost: float, least: float) -> None:
    """Where the compute type may have 0 for the gate, its product with infinity is NaN or infinite, else infinite."""
    a = np.array([lost, lost, 2, least, lost], np.float32)
    b = np.array([np.inf, -np.inf, np.inf, np.inf, 2], np.float32)
    case = Case(find(name), (F32,), Sample({"a": (5,), "b": (5,)}))
    with np.errstate(all="ignore"):
        given = problem(case, [a, b], [TensorDesc(F32, (5,))], [np.zeros(5, np.float32)])
    gate = np.inf if name == "sigmoid_mul" else -np.inf
    for first in (np.nan, -np.inf, np.inf):
        got = np.array([first, -first, np.inf, gate, 0], np.float32)
        assert judge(got, given, 0, strict_nan=False, flushes=False).wrong == ""
    for at, wrong in ((2, np.nan), (2, -np.inf), (3, np.nan), (3, -gate), (4, np.nan), (4, np.inf), (4, 1e-30)):
        bad = got.copy()
        bad[at] = wrong
        assert judge(bad, given, 0, strict_nan=False, flushes=False).wrong


@pytest.mark.parametrize("name", ["silu_mul", "gelu_mul", "sigmoid_mul"])
def test_a_result_near_the_largest_number_has_as_wide_a_bound_as_others(name: str) -> None:
    """The bound of a product in F64 must not overflow where the product does not."""
    a, b = np.full(2, -1.0), np.array([1, np.finfo(np.float64).max])
    case = Case(find(name), (F64,), Sample({"a": (2,), "b": (2,)}))
    given = problem(case, [a, b], [TensorDesc(F64, (2,))], [np.zeros(2)])
    (found,) = given.intervals
    assert found is not None
    share = (found.high - found.low) / np.abs(given.expected[0])
    assert 0.5 < share[1] / share[0] < 2


def test_a_zero_has_the_sign_of_the_reference_where_ieee_754_defines_it() -> None:
    x = np.array([-0.0, 0.0, -1.0], np.float32)
    for name, demanded in (("sqrt", True), ("tanh", True), ("relu", False)):
        given = problem(
            Case(find(name), (F32,), Sample({"x": (3,)})), [x], [TensorDesc(F32, (3,))], [np.zeros(3, np.float32)]
        )
        got = given.expected[0].astype(np.float32)
        assert judge(got, given, 0, strict_nan=False, flushes=False).wrong == ""
        judged = judge(np.where(got == 0, -got, got), given, 0, strict_nan=False, flushes=False)
        assert bool(judged.wrong) is demanded


@pytest.mark.parametrize(
    ("dtype", "expected", "got", "ulps"),
    [
        (F32, 1.0, 1 + 2**-23, 1.0),
        (F32, 0.75, 0.75 + 2**-23, 2.0),  # below 1 the last place is worth half
        (F32, 0.0, 2**-149, 1.0),
        (F32, 2**-140, 2**-140 + 2**-148, 2.0),  # a subnormal number
        (BF16, 1.0, 1 + 2**-7, 1.0),
        (F16, 2048.0, 2050.0, 1.0),
        (F32, 1.0 + 2**-25, 1.0, 0.25),
        (F32, np.inf, np.inf, 0.0),
        (I32, 7.0, 7.0, 0.0),
    ],
)
def test_distances_in_ulps(dtype, expected, got, ulps):
    results = np.array([got, np.nan]).astype(dtype.numpy) if dtype.kind == "f" else np.array([7, 7])
    assert count_ulps(results, np.array([expected, np.nan]), dtype) == ulps


def test_judgements_of_two_outputs_are_joined():
    joined = Judged(1.0, 0.5, ulps=2.0).join(Judged(0.1, 0.7, ulps=1.0))
    assert (joined.error, joined.share, joined.ulps) == (0.1, 0.7, 2.0)
