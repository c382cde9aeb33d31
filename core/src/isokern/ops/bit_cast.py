"""bit_cast: the bits of elements read as another type of the same size, moved by the kernel `rearrange`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..declare import ErrorCase, Sample, declare
from ..declare.normal_form import Descs, pointwise
from ..dtypes import BOOL, F16, F32, F64, I32, I64, PLAIN, U8, U16, DType
from ..layout import TensorDesc, make_desc
from ..status import BadTensorDtype, BadTensorShape
from .rearrange import SHAPES


def _same_size(types: Mapping[str, DType]) -> bool:
    return types["T"].itemsize == types["U"].itemsize


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the form of `pointwise` with x as a tensor of y's type: kernels move elements by their size."""
    (x,), (y,) = inputs, outputs
    assert x is not None
    return pointwise([make_desc(y.dtype, x.shape, x.strides, x.offset)], outputs, values)


_TYPES = tuple(d for d in PLAIN if d is not BOOL)

declare(
    "bit_cast",
    "BITC",
    "x: T[*d] -> y: U[*d]",
    {"T": _TYPES, "U": _TYPES},
    combinations=_same_size,
    family="movement",
    stem="rearrange",
    doc=(
        "The elements of x as the elements of y's type that have the same bits, which must have the same size (ONNX"
        " BitCast, NumPy's view of a dtype, C++'s std::bit_cast)."
    ),
    reference=lambda x, out: x.view(out[0].dtype.numpy),
    normal_form=_normal_form,
    samples=lambda: [*(Sample({"x": s}) for s in SHAPES), Sample({"x": (769, 801)}, size="wide")],
    errors=[
        ErrorCase({"x": (3,)}, BadTensorShape, outputs={"y": (4,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": F32, "U": F16}, outputs={"y": (3,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": I64, "U": F32}, outputs={"y": (3,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": U8, "U": U16}, outputs={"y": (3,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": BOOL, "U": U8}, outputs={"y": (3,)}),
        ErrorCase({"x": (3,)}, BadTensorDtype, dtypes={"T": F64, "U": I32}, outputs={"y": (3,)}),
    ],
    exact=True,
)
