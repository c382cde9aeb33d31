"""The expected results of a case: its inputs, the reference's results, and the interval accepted around each.

An element may lie between round(ref - b) and round(ref + b), both rounded to the output's dtype, where b = eps(compute)
* (ulps * |ref| + scale), plus (1 + ulps) times the compute type's smallest subnormal. Rounding the ends accounts for
overflow, subnormals and the half ULP of the last rounding. Exact operators, integers and booleans are compared bit for
bit.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from ..blocks import dequantize
from ..declare.error_bound import UNBOUNDED
from ..declare.operator import Operator
from ..declare.samples import Slot, describe, slots
from ..dtypes import BOOL, DType
from ..layout import TensorDesc
from . import values
from .cases import Case
from .layouts import arrangements, constant_axis, windows
from .ulps import ulp_errors
from .verdicts import Failure, Verdict

Array = np.ndarray[Any, Any]
KEPT = 1 << 20  # elements of all problems that are cached for the next cases


@dataclass(frozen=True)
class Interval:
    """Smallest and largest accepted value of each element, as float64, and the bound (half an ULP included).

    An error's share is relative to that bound.
    """

    low: Array
    high: Array
    bound: Array

    def anything(self, expected: Array) -> Any:
        """Return where any result is right: the expected one is not finite, and its bound is UNBOUNDED.

        So it is where rounding may make 0 what an infinity multiplies: then a kernel has NaN or either infinity.
        """
        return ~np.isfinite(expected) & (self.low == -np.inf) & (self.high == np.inf)


@dataclass
class Problem:
    """Inputs (None where absent), the outputs' old content, and their expected content."""

    slots: list[Slot]
    inputs: list[Array | None]
    before: list[Array]
    outputs: list[TensorDesc]
    expected: list[Array]
    intervals: list[Interval | None]
    signed_zeros: Array | bool = False  # where a zero must have the sign of the expected one

    @property
    def elements(self) -> int:
        """Number of elements in all arrays: the cost of caching the problem."""
        return sum(a.size for a in (*self.inputs, *self.before, *self.expected) if a is not None)


class Problems:
    """The problems of cases, with a cache of the last few: neighbouring cases differ only in their placement."""

    def __init__(self, subnormal: bool = True) -> None:
        self.subnormal = subnormal
        self._kept: dict[Any, Problem] = {}
        self._elements = 0  # of those that are kept

    def of(self, case: Case) -> Problem:
        """Return the problem of a case; its arrays must not be written to."""
        inputs = slots(case.operator, case.sample, case.bound_types)
        _, outputs = describe(case.operator, case.sample, case.bound_types)
        kinds = arrangements(case.layout, len(outputs), len(inputs))[len(outputs) :]
        repeats = tuple(
            None if s.shape is None else constant_axis(k, s.dtype, s.shape) for k, s in zip(kinds, inputs, strict=True)
        )
        key = (case.problem_id, repeats, case.alias and case.operator.inout and case.layout)
        if key not in self._kept:
            made = self._make(case, inputs, outputs, repeats)
            while self._kept and self._elements + made.elements > KEPT:
                self._elements -= self._kept.pop(next(iter(self._kept))).elements
            self._kept[key] = made
            self._elements += made.elements
        return self._kept[key]

    def _make(self, case: Case, given: list[Slot], outputs: list[TensorDesc], repeats: Sequence[int | None]) -> Problem:
        rng = values.generator(case.problem_id)
        arrays = _arrays(case, given, outputs, rng, self.subnormal)
        for i, axis in enumerate(repeats):
            array = arrays[i]
            if axis is not None and array is not None:
                arrays[i] = np.broadcast_to(np.take(array, [0], axis), array.shape)
        before = [values.draw("any", o.dtype, o.shape, rng) for o in outputs]
        if case.alias and case.operator.inout:
            arrays, before = _share(case.layout, arrays, before, rng)
        return problem(case, arrays, outputs, before)


def problem(case: Case, arrays: list[Array | None], outputs: list[TensorDesc], before: list[Array]) -> Problem:
    """Return the problem of given inputs: the reference's results, and the interval around each."""
    with warnings.catch_warnings():  # means of no elements and the like are valid here
        warnings.simplefilter("ignore", RuntimeWarning)
        expected = reference(case, arrays, outputs, before)
        intervals: list[Interval | None] = [None] * len(outputs)
        for i, (o, e) in enumerate(zip(outputs, expected, strict=True)):
            if not case.operator.exact and o.dtype.kind == "f":
                intervals[i] = _interval(case, arrays, o.dtype, e, i)
            elif o.dtype is BOOL and case.operator.tolerance.scale is not None and case.types[0].kind == "f":
                intervals[i] = _truths(case, arrays, o, before)
    zeros = _find_signed_zeros(case, arrays, expected[0])
    given = slots(case.operator, case.sample, case.bound_types)
    return Problem(given, arrays, before, outputs, expected, intervals, zeros)


# Functions of the scalar language whose result for a zero may have either sign, or none
SIGNLESS = frozenset({"minimum", "maximum", "abs", "sign"})


def _find_signed_zeros(case: Case, arrays: Sequence[Array | None], expected: Array) -> Array | bool:
    """Return where an operand of an elementwise operator is zero and the result is one, whose sign IEEE 754 defines.

    It does not where the operator's expression chooses, compares, or takes a minimum; where a result underflows, its
    sign depends on how it is computed.
    """
    tree = case.operator.scalar_expr
    if tree is None or expected.dtype.kind != "f":
        return False
    if any(e.kind not in ("const", "name", "arith", "neg", "call") or e.value in SIGNLESS for e in tree.walk()):
        return False
    zeros = np.zeros(expected.shape, bool)
    for array in arrays:
        if array is not None and array.dtype.kind in "fV" and can_broadcast(array.shape, zeros.shape):
            zeros |= array.astype(np.float64) == 0
    signed: Array = zeros & (expected == 0)
    return signed


def can_broadcast(shape: Sequence[int], to: Sequence[int]) -> bool:
    """Return whether NumPy broadcasts a shape to another; it does not where an operator aligns other dims."""
    return len(shape) <= len(to) and all(n in (1, d) for n, d in zip(reversed(shape), reversed(to), strict=False))


def _arrays(
    case: Case, given: list[Slot], outputs: list[TensorDesc], rng: np.random.Generator, subnormal: bool
) -> list[Array | None]:
    op = case.operator
    domains = {**op.domains, **case.sample.values}
    present = [(i, s, s.shape) for i, s in enumerate(given) if s.shape is not None]
    arrays: list[Array | None] = [None] * len(given)
    for i, s, shape in present:
        arrays[i] = values.draw(domains.get(s.operand.name, "any"), s.dtype, shape, rng)
    if case.values in ("special", "special_2") and present:
        free = [p for p in present if not domains.get(p[1].operand.name, "").startswith(values.CHECKED)]
        crossed = op.exact or op.scalar_expr is not None or op.tolerance.ulps == 0
        if crossed and all(s.dtype.block == 1 for _, s, _ in free):
            for (i, _, _), array in zip(
                free,
                values.cross_specials([s.dtype for _, s, _ in free], [shape for _, _, shape in free], rng, subnormal),
                strict=True,
            ):
                arrays[i] = array
            if op.family == "conversion":
                i, s, _ = free[0]
                arrays[i] = values.append_conversions(arrays[i], s.dtype, outputs[0].dtype)
        elif free:
            i, s, _ = free[min(case.values == "special_2", len(free) - 1)]
            plain = arrays[i]
            assert plain is not None
            arrays[i] = values.sprinkle_specials(plain, s.dtype, rng, subnormal, op.exact or s.dtype.block == 1)
    if case.sample.size == "edge" and case.values == "drawn":
        for i, s, shape in present:
            if domains.get(s.operand.name, "any") == "any" and s.dtype.kind == "f" and 0 not in shape:
                arrays[i] = values.weight_tails(arrays[i], s.dtype, 1 if len(case.sample.text) % 2 else -1)
    if case.values.startswith("nan_"):
        for i, s, shape in present:
            if s.operand.name == case.values[4:] and s.dtype.kind == "f":
                arrays[i] = np.full(shape, np.nan, s.dtype.numpy)
    if case.values == "special_slices":
        for i, s, _ in present:
            plain = arrays[i]
            checked = domains.get(s.operand.name, "").startswith(values.CHECKED)
            if plain is not None and s.dtype.block == 1 and not checked:
                arrays[i] = values.special_slices(plain, s.dtype)
                break
    if case.values == "out_of_range":
        for i, s, shape in present:
            domain = domains.get(s.operand.name, "")
            if domain.startswith(values.CHECKED):
                arrays[i] = values.out_of_range(domain, s.dtype, shape, rng)
    return arrays


def _share(
    layout: str, arrays: list[Array | None], before: list[Array], rng: np.random.Generator
) -> tuple[list[Array | None], list[Array]]:
    """Return input and old output as two windows of one run of elements."""
    (x,), (y,) = arrays, before
    assert x is not None
    given, out, length = windows(layout, x.size, y.size)
    run = rng.permutation(np.resize(np.concatenate([x, y]), length))
    return [run[np.array(given)]], [run[np.array(out)]]


@lru_cache(1024)
def _parameters(function: Callable[..., Any]) -> frozenset[str]:
    if isinstance(function, np.ufunc) or not inspect.isfunction(function):
        return frozenset()  # NumPy's functions have neither an `out` of descriptions nor `before`
    return frozenset(inspect.signature(function).parameters)


def reference(
    case: Case, arrays: Sequence[Array | None], outputs: Sequence[TensorDesc], before: Sequence[Array]
) -> list[Array]:
    """Return the declaration's reference: floats in float64, or in their own dtype where the operator is exact.

    Integers keep their dtype.
    """
    op = case.operator
    extra: dict[str, Any] = {}
    names = _parameters(op.reference)
    if "out" in names:
        extra["out"] = list(outputs)
    if "before" in names:
        extra["before"] = [np.array(b) for b in before]
    with np.errstate(all="ignore"):
        result = op.reference(*_group(case, arrays), **op.attrs.check(op.name, case.sample.attrs), **extra)
    results = list(result) if isinstance(result, tuple) else [result]
    fitted = []
    for value, desc in zip(results, outputs, strict=True):
        array = np.asarray(value)
        blocky = desc.dtype.block > 1
        if array.shape != (desc.raw if blocky else desc).shape:
            raise Failure(
                Verdict.FAIL_ERROR,
                f"the declaration contradicts itself: reference gives {array.shape}, signature {desc.shape}",
            )
        exact = op.exact or desc.dtype.kind != "f"
        kept = np.uint8 if blocky else desc.dtype.numpy if exact else np.float64
        fitted.append(array.astype(kept, copy=False))
    return fitted


def _group(case: Case, arrays: Sequence[Array | None]) -> list[Any]:
    """Return the reference's positional arguments.

    Floats are float64 unless the operator is exact, blocks are dequantised, and a variadic operand is one list.
    """
    op = case.operator
    given = slots(op, case.sample, case.bound_types)
    worth = [
        dequantize(a, s.dtype) if a is not None and s.dtype.block > 1 else a for a, s in zip(arrays, given, strict=True)
    ]
    wide = [a if a is None or op.exact or a.dtype.kind not in "fV" else a.astype(np.float64) for a in worth]
    variadic = next((i for i, o in enumerate(op.signature.inputs) if o.variadic), None)
    if variadic is None:
        return list(wide)
    behind = len(op.signature.inputs) - variadic - 1
    return [*wide[:variadic], wide[variadic : len(wide) - behind], *wide[len(wide) - behind :]]


def _scale(case: Case, arrays: Sequence[Array | None], compute: DType) -> Any:
    """Return the magnitude to which the operator's tolerance is relative."""
    scale, attrs = case.operator.tolerance.scale, case.operator.attrs.check(case.operator.name, case.sample.attrs)
    assert scale is not None
    return scale(*_group(case, arrays), **attrs, **({"compute": compute} if "compute" in _parameters(scale) else {}))


def _interval(case: Case, arrays: Sequence[Array | None], dtype: DType, expected: Array, output: int) -> Interval:
    tolerance = case.operator.tolerance
    limits, own = np.finfo(dtype.compute.numpy), values.limits_of(dtype)
    with np.errstate(all="ignore"):
        unbounded: Any = False
        # A longdouble, which the largest float64 does not overflow
        size = tolerance.ulps * np.abs(expected).astype(np.longdouble)
        if tolerance.scale is not None:
            scale = _scale(case, arrays, dtype.compute)
            own_scale = scale[output] if isinstance(scale, tuple) else scale
            unbounded = own_scale == UNBOUNDED
            size = size + own_scale
        bound = (float(limits.eps) * np.where(np.isfinite(size) & np.isfinite(expected), size, 0.0)).astype(np.float64)
        if tolerance.ulps or tolerance.scale is not None:
            bound = bound + (1 + tolerance.ulps) * float(limits.smallest_subnormal)
        ulp = np.exp2(np.maximum(np.frexp(expected)[1] - 1, own.minexp) - float(own.nmant))
        low, high = _round(expected - bound, dtype, -np.inf), _round(expected + bound, dtype, np.inf)
        return Interval(np.where(unbounded, -np.inf, low), np.where(unbounded, np.inf, high), bound + ulp / 2)


def _truths(case: Case, arrays: Sequence[Array | None], output: TensorDesc, before: Sequence[Array]) -> Interval:
    """Return the intervals of booleans made from rounded numbers.

    True is accepted where the number may be other than 0, false where it may be 0.
    """
    compute = case.types[0].compute
    (number,) = reference(case, arrays, [TensorDesc(compute, output.shape)], before)
    with np.errstate(all="ignore"):
        scale = _scale(case, arrays, compute)
        bound = float(np.finfo(compute.numpy).eps) * scale
        zero = (np.abs(number) <= bound) | (np.isnan(number) & (scale == UNBOUNDED))
        other = (number != 0) | (bound > 0)
    return Interval(np.where(zero, 0.0, 1.0), np.where(other, 1.0, 0.0), np.ones(output.shape))


def _round(x: Array, dtype: DType, toward: float) -> Array:
    """Return x rounded to the dtype, as float64.

    The step by way of F32 rounds `toward` the given infinity, so that rounding twice does not narrow the interval.
    """
    assert dtype.numpy is not None
    if dtype.itemsize < 4:
        single = x.astype(np.float32)
        inward = single > x if toward < 0 else single < x
        x = np.where(inward, np.nextafter(single, np.float32(toward)), single)
    return np.asarray(x.astype(dtype.numpy).astype(np.float64))


@dataclass(frozen=True)
class Judged:
    """The judgement of one output: largest error, largest share of the bound, and largest error in ULPs of its dtype.

    Where an element is wrong, `wrong` says what was found, `at` is the index of the first one, and `worst` says which
    element is furthest off.
    """

    error: float = 0.0
    share: float = 0.0
    wrong: str = ""
    worst: str = ""
    at: tuple[int, ...] = ()
    ulps: float = 0.0

    def join(self, other: Judged) -> Judged:
        """Return the judgement of two outputs together."""
        worst = max(self, other, key=lambda j: j.share)
        return replace(worst, ulps=max(self.ulps, other.ulps))


def keeps_bits(operator: Operator) -> bool:
    """Return whether the operator only moves data, so that NaNs must keep their bits too."""
    return operator.family == "movement" and not operator.free_types


def judge(got: Array, problem: Problem, output: int, *, strict_nan: bool, flushes: bool) -> Judged:
    """Compare one output with its expected content."""
    expected, accepted = problem.expected[output], problem.intervals[output]
    if accepted is None:
        return _judge_bits(got, expected, strict_nan)
    with np.errstate(all="ignore"):
        wide = got.astype(np.float64)
        right = (accepted.low <= wide) & (wide <= accepted.high)
        right |= np.isnan(wide) & (np.isnan(expected) | accepted.anything(expected))
        right &= ~(problem.signed_zeros & (wide == 0) & (np.signbit(wide) != np.signbit(expected)))
        if flushes and problem.outputs[output].dtype.kind == "f":
            right |= (wide == 0) & (np.abs(expected) <= float(values.limits_of(problem.outputs[output].dtype).tiny))
        difference = np.abs(wide - expected)
        countable = np.isfinite(difference)
        share = np.where(countable, difference / accepted.bound, 0.0)
    error = float(np.max(difference, where=countable, initial=0.0))
    worst = float(np.max(share, initial=0.0))
    if right.all():
        return Judged(error, worst, ulps=count_ulps(got, expected, problem.outputs[output].dtype))
    # An infinite or NaN difference counts as the furthest
    off = np.where(right, -1.0, np.where(countable, share, np.inf))
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    furthest = f"worst at {list(at)}: {got[at]} instead of {expected[at]}, bound {accepted.bound[at]:.3g}"
    return Judged(error, worst, _describe(got, expected, right, share), furthest, _first(right))


def count_ulps(got: Array, expected: Array, dtype: DType) -> float:
    """Return the largest finite error in units in the last place; 0 for dtypes that are not floats."""
    if dtype.kind != "f":
        return 0.0
    errors = ulp_errors(got, np.asarray(expected, np.float64), dtype)
    return float(np.max(errors, where=np.isfinite(errors), initial=0.0))


def _judge_bits(got: Array, expected: Array, strict_nan: bool) -> Judged:
    bits = np.dtype(f"u{got.dtype.itemsize}")
    right = np.asarray(np.ascontiguousarray(got).view(bits) == np.ascontiguousarray(expected).view(bits)).reshape(
        got.shape
    )
    if not strict_nan and got.dtype.kind in "fV":
        with np.errstate(invalid="ignore"):  # ml_dtypes warns of the NaN that is looked for
            right = right | (np.isnan(got) & np.isnan(expected))
    if right.all():
        return Judged()
    return Judged(1.0, float("inf"), _describe(got, expected, right, None), at=_first(right))


def _first(right: Array) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(~right)[0])


def _describe(got: Array, expected: Array, right: Array, share: Array | None) -> str:
    """Return how many elements are wrong, and the first of them."""
    at = _first(right)
    given, wanted = got[at], expected[at]
    shown = [str(given), str(wanted)]
    if shown[0] == shown[1] or given.dtype == np.bool_:
        shown = [v.tobytes()[::-1].hex() for v in (given, wanted)]
    more = f", {share[at]:.3g} times the bound" if share is not None and share[at] else ""
    return f"{int((~right).sum())} of {right.size} wrong, first at {list(at)}: {shown[0]} instead of {shown[1]}{more}"
