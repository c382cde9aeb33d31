"""Integers of 1, 2 or 4 bits in bytes, the first in the lowest bits (as ONNX packs INT4): pack_bits and unpack_bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, integer
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import I8, I16, I32, U8
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

Shape = tuple[int, ...]
BITS = integer("bits", 4, "of an integer: 1, 2 or 4", minimum=1, maximum=4)
CARRIED = (I8, U8)


def _check(where: str, x: Shape, bits: int) -> int:
    """Return how many integers a byte holds, or raise InvalidArgument or BadTensorShape."""
    if bits == 3:
        raise InvalidArgument(where, f"bits={bits}", allowed="1, 2, 4")
    if len(x) == 0:
        raise BadTensorShape(where, f"x is {list(x)}", allowed="rank 1 or more")
    return 8 // bits


def _pack_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    each = _check("pack_bits", x, values["bits"])
    return [(*x[:-1], (x[-1] + each - 1) // each)]


def _pack(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y, bits = inputs, outputs[0], values["bits"]
    each, lacking = 8 // bits, y.shape[-1] * (8 // bits) - x.spec.shape[-1]
    if lacking:
        x = e("pad", x, low=(0,) * x.spec.ndim, high=(*(0 for _ in x.spec.shape[1:]), lacking))
    fields = e.cast(e.reshape(x, (y.numel, each)), I32)
    body = f"shift_left(bitand(x0, {2**bits - 1}), {bits} * x1)"
    return e.reshape(e.cast(e.loop("ab,b->a", body, fields, e.iota(each, I32), combine="sum"), U8), y.shape)


def _pack_reference(x: Any, bits: int) -> Any:
    each = 8 // bits
    lacking = -x.shape[-1] % each
    fields = np.pad(x.view(np.uint8) & (2**bits - 1), [*[(0, 0)] * (x.ndim - 1), (0, lacking)])
    fields = fields.reshape(*x.shape[:-1], (x.shape[-1] + lacking) // each, each)
    return (fields << (bits * np.arange(each, dtype=np.uint8))).sum(-1, dtype=np.uint8)


declare(
    "pack_bits",
    "PKBT",
    "x: T[*b, d] -> y: U8[*b, p]",
    {"T": CARRIED},
    family="conversion",
    doc=(
        "The lowest `bits` bits of integers, side by side in bytes along the last dim, the first in the lowest bits:"
        " two of 4 bits in a byte (as ONNX packs INT4), four of 2, eight of 1. Higher bits are dropped; a last byte"
        " that is not full has zeros above."
    ),
    reference=_pack_reference,
    attrs=attrs("PKB1", BITS),
    shapes=_pack_shapes,
    normal_form=as_given,
    decompose=_pack,
    samples=lambda: [Sample({"x": x}, {"bits": bits}, size=size) for x, bits, size in SAMPLES],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"bits": 3}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"bits": 8}),
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, BadTensorShape, outputs={"y": (3, 4)}),
        ErrorCase({"x": (3, 4)}, BadTensorDtype, dtypes={"T": I16}),
    ],
    domains={"x": "any"},
    exact=True,
)

SAMPLES: SampleTable = [
    ((8,), 4, "small"),
    ((7,), 4, "small"),
    ((3, 5), 2, "small"),
    ((2, 3, 16), 1, "small"),
    ((2, 3, 4), 2, "small"),
    ((5, 1025), 4, "small"),
    ((2, 1, 2, 1, 3, 1, 2, 9), 1, "small"),
    ((0, 4), 4, "small"),
    ((3, 0), 4, "small"),
    ((301, 1024), 4, "wide"),
    ((512, 1024), 4, "medium"),
    ((4096, 4096), 4, "large"),
]


def _unpack_shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[Shape]:
    (x,) = inputs
    each, length = _check("unpack_bits", x, values["bits"]), values["length"]
    most = x[-1] * each
    if length > 0 and not most - each < length <= most:
        raise BadTensorShape("unpack_bits", f"length={length} of x {list(x)}", allowed=f"{most - each + 1} to {most}")
    return [(*x[:-1], length if length > 0 else most)]


def _unpack(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    (x,), y, bits = inputs, outputs[0], values["bits"]
    each, shape = 8 // bits, x.spec.shape
    packed = e.cast(e.reshape(x, (x.spec.numel,)), I32)
    field = f"bitand(shift_right(x0, {bits} * x1), {2**bits - 1})"
    fields = e.loop("a,b->ab", field, packed, e.iota(each, I32))
    if y.dtype is I8:
        fields = e.loop("ab->ab", f"x0 - {2**bits} if x0 >= {2 ** (bits - 1)} else x0", fields)
    rows = e.reshape(e.cast(fields, y.dtype), (*shape[:-1], shape[-1] * each))
    if y.shape[-1] == shape[-1] * each:
        return rows
    return e("slice", rows, starts=(0,), ends=(y.shape[-1],), axes=(y.ndim - 1,))


def _unpack_reference(x: Any, bits: int, length: int, out: Sequence[TensorDesc]) -> Any:
    each = 8 // bits
    fields = x[..., None] >> (bits * np.arange(each, dtype=np.uint8)) & (2**bits - 1)
    wide = fields.astype(np.int16)
    wide = np.where(wide >= 2 ** (bits - 1), wide - 2**bits, wide) if out[0].dtype is I8 else wide
    rows = wide.reshape(*x.shape[:-1], x.shape[-1] * each)[..., : out[0].shape[-1]]
    return rows.astype(out[0].dtype.numpy)


declare(
    "unpack_bits",
    "UPBT",
    "x: U8[*b, p] -> y: T[*b, d]",
    {"T": CARRIED},
    family="conversion",
    doc=(
        "The integers of `bits` bits in bytes, the first in the lowest bits: pack_bits' inverse. In I8 they are signed"
        " (two's complement), in U8 not. `length` says how many there are along the last dim, where the last byte is"
        " not full."
    ),
    reference=_unpack_reference,
    attrs=attrs("UPB1", BITS, integer("length", 0, "of y's last dim; 0 for all that x has", minimum=0)),
    shapes=_unpack_shapes,
    normal_form=as_given,
    decompose=_unpack,
    samples=lambda: [
        Sample(
            {"x": (*x[:-1], -(-x[-1] * bits // 8))}, {"bits": bits, "length": x[-1] if x[-1] * bits % 8 else 0}, size=n
        )
        for x, bits, n in SAMPLES
    ],
    errors=[
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"bits": 3}),
        ErrorCase({"x": (3, 4)}, InvalidArgument, {"bits": 0}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"length": 9}),
        ErrorCase({"x": (3, 4)}, BadTensorShape, {"length": 6}),
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (3, 4)}, BadTensorDtype, dtypes={"x": I8}),
    ],
    domains={"x": "any"},
    exact=True,
)
