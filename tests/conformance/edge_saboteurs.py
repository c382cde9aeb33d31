"""Saboteurs that are wrong at the edges alone: at one length, rank, sign of a stride, pair of attributes or value.

They are faults that vendors' kernels had, or that were planted as one would make them.
"""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np
from saboteur import Array, Call, Saboteur, changed

from isokern.cabi.plan import Plan
from isokern.layout import TensorDesc


def source_of(call: Call) -> tuple[str, str]:
    """Return the dtypes that a conversion reads and writes."""
    source = call.plan.table[1]
    assert source is not None
    return source.dtype.name, call.out_desc.dtype.name


class LosesTheLastTerm(Saboteur):
    """A product drops the last of its terms where their number is one less than a multiple of 32."""

    operators = ("matmul",)

    def after(self, call: Call) -> None:
        a, b = call.tensor(1), call.tensor(2)
        if a.shape[-1] % 32 == 31 and call.out.dtype == np.float32:
            call.out[...] -= a[..., -1:] * b[..., -1:, :]


class LosesTheLastColumn(Saboteur):
    """A product does not write its last column where their number is one more than a multiple of 256."""

    operators = ("matmul",)

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        before = call.out.copy()
        run(call)
        if call.out.shape[-1] % 256 == 1 and call.out.shape[-1] > 1:
            call.out[..., -1] = before[..., -1]


class LosesTheLastOfARow(Saboteur):
    """The last element of rows of 1023 does not count."""

    operators = ("softmax", "reduce_max", "logsumexp")

    def plan(self, plan: Plan) -> Plan:
        x = plan.table[1]
        if x is None or not x.ndim or x.shape[-1] != 1023:
            return plan
        return changed(
            plan, [plan.table[0], TensorDesc(x.dtype, x.shape, (*x.strides[:-1], 0), x.offset), *plan.table[2:]]
        )


class HasSixDims(Saboteur):
    """Of seven dims and more that do not merge the first are left out."""

    operators = ("abs", "add", "bit_cast", "gather")

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        before = call.out.copy()
        run(call)
        if call.out.ndim > 6:
            call.out[1:] = before[1:]


class TrustsStridesOfOnes(Saboteur):
    """The pitch of rows is the stride of the dim before the last, also where that is 1."""

    operators = ("softmax", "gather", "concat", "rms_norm", "layer_norm", "reduce_max", "matmul", "conv2d")

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, [plan.table[0], *(None if d is None else self._wrong(d) for d in plan.table[1:])])

    def _wrong(self, d: TensorDesc) -> TensorDesc:
        reach = sum((n - 1) * abs(s) for n, s in zip(d.shape, d.strides, strict=True))
        odd = any(n == 1 and abs(s) > reach for n, s in zip(d.shape, d.strides, strict=True))
        return TensorDesc(d.dtype, d.shape, [0] * d.ndim, d.offset) if odd and d.numel else d


class TakesTheFirstStrideAsPositive(Saboteur):
    """A negative stride of the first dim is taken as positive, if the others are positive."""

    operators = ("add", "copy", "exp", "softmax", "matmul")

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, [plan.table[0], *(None if d is None else self._turned(d) for d in plan.table[1:])])

    def _turned(self, d: TensorDesc) -> TensorDesc:
        if d.ndim < 2 or d.strides[0] >= 0 or min(d.strides[1:]) < 0:
            return d
        return TensorDesc(d.dtype, d.shape, (-d.strides[0], *d.strides[1:]), d.offset + (d.shape[0] - 1) * d.strides[0])


class NothingCountsAsZero(Saboteur):
    """The softmax of a row of -Inf alone is 0 instead of NaN."""

    operators = ("softmax",)

    def after(self, call: Call) -> None:
        x = call.tensor(1)
        if x.dtype.kind == "f" and x.size:
            call.out[...] = np.where((x == -np.inf).all(-1, keepdims=True), 0, call.out)


class RoundsIntegersTwice(Saboteur):
    """I64 becomes F32 by way of F64."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        if source_of(call) == ("I64", "F32"):
            call.out[...] = call.tensor(1).astype(np.float64).astype(np.float32)


class RoundsFloatsTwice(Saboteur):
    """F64 becomes F16 and BF16 by way of F32."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        if source_of(call) in (("F64", "F16"), ("F64", "BF16")):
            call.out[...] = call.tensor(1).astype(np.float32).astype(call.out.dtype)


class RoundsTiesAway(Saboteur):
    """F32 becomes BF16 with ties rounded away from zero."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        if source_of(call) == ("F32", "BF16"):
            x = np.ascontiguousarray(call.tensor(1))
            away = ((x.view(np.uint32) + 0x8000) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
            call.out[...] = np.where(np.isfinite(x), away, call.out)


class CutsPayloads(Saboteur):
    """NaN whose payload lies in the lower half becomes an infinity in BF16."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        if source_of(call) == ("F32", "BF16"):
            x = np.ascontiguousarray(call.tensor(1))
            cut = (x.view(np.uint32) >> 16).astype(np.uint16).view(ml_dtypes.bfloat16)
            call.out[...] = np.where(np.isnan(x), cut, call.out)


class OverflowsEarly(Saboteur):
    """What is larger than the largest F16, and would be rounded to it, becomes an infinity."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        if source_of(call) == ("F32", "F16"):
            x = call.tensor(1)
            call.out[...] = np.where(np.abs(x) > 65504, np.copysign(np.inf, x), call.out).astype(np.float16)


class WrapsAtTheEnd(Saboteur):
    """2^31 as F32 becomes the lowest I32 instead of the largest."""

    operators = ("cast",)

    def after(self, call: Call) -> None:
        if source_of(call) == ("F32", "I32"):
            call.out[...] = np.where(call.tensor(1) == 2.0**31, np.int32(-(2**31)), call.out)


class SwapsIndices(Saboteur):
    """Along a middle axis, indices of rank 2 are taken with their dims exchanged."""

    operators = ("gather",)

    def after(self, call: Call) -> None:
        names = [o.name for o in (*call.plan.operator.signature.outputs, *call.plan.operator.signature.inputs)]
        indices = call.plan.table[names.index("indices")]
        axis = call.plan.attrs["axis"]
        if indices is None or call.out.size == 0 or indices.ndim < 2 or 1 in indices.shape[-2:]:
            return
        if 0 < axis < call.out.ndim - 2 or (call.out.ndim > 2 and call.out.shape[0] > 1):
            call.out.flat[0], call.out.flat[1] = call.out.flat[1], call.out.flat[0]


class IgnoresDilationOfSteps(Saboteur):
    """Dilation is ignored where the stride is above 1."""

    operators = ("conv2d",)

    def plan(self, plan: Plan) -> Plan:
        away = max(plan.attrs["stride"]) > 1 and max(plan.attrs["dilation"]) > 1
        return changed(plan, dilation=tuple(1 for _ in plan.attrs["dilation"])) if away else plan


class MultipliesByZero(Saboteur):
    """Where beta is 0, c counts: it is multiplied by it, and NaN shows."""

    operators = ("gemm",)

    def after(self, call: Call) -> None:
        names = [o.name for o in (*call.plan.operator.signature.outputs, *call.plan.operator.signature.inputs)]
        at = names.index("c")
        if call.plan.attrs["beta"] == 0 and call.plan.table[at] is not None and call.out.dtype == np.float32:
            call.out[...] += 0 * call.tensor(at)


class RoundsAttributes(Saboteur):
    """An attribute of an F64 call is rounded to F32."""

    operators = ("gemm",)

    def plan(self, plan: Plan) -> Plan:
        return changed(plan, alpha=float(np.float32(plan.attrs["alpha"])))


class LosesTheLastPart(Saboteur):
    """From 2^22 elements on, the last 1,000 stay unwritten."""

    operators = ("abs", "cast")

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        vast = call.out_desc.numel >= 1 << 22
        before: Array = call.out.reshape(-1)[-1000:].copy() if vast else np.zeros(0)
        run(call)
        if vast and call.out.flags.c_contiguous:
            call.out.reshape(-1)[-1000:] = before


class CountsInFloats(Saboteur):
    """Offsets are computed in F32, which does not hold those above 2^24."""

    operators = ("abs", "bit_cast")

    def plan(self, plan: Plan) -> Plan:
        def near(d: TensorDesc) -> TensorDesc:
            return TensorDesc(d.dtype, d.shape, d.strides, int(np.float32(d.offset)))

        return changed(plan, [plan.table[0], *(None if d is None else near(d) for d in plan.table[1:])])
