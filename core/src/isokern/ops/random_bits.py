"""random_bits: the words of a counter-based generator, the same ones on every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integers
from ..declare.normal_form import Descs, coalesce
from ..dtypes import I64, U64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

SHAPE = integers("shape", (), "shape of an output that is not given", minimum=0)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)


def words(seed: Any, count: int) -> Any:
    """Return the first words (uint64 below 2^32) of Philox4x32-10 for a seed: the key, and the number of a block."""
    key, first = (np.uint64(v) for v in seed)
    keys = np.array([key & _LOW, key >> _HALF])
    blocks = np.arange(-(-count // 4), dtype=np.uint64) + first
    c = [blocks & _LOW, blocks >> _HALF, np.zeros_like(blocks), np.zeros_like(blocks)]
    for _ in range(10):
        a, b = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [b >> _HALF ^ c[1] ^ keys[0], b & _LOW, a >> _HALF ^ c[3] ^ keys[1], a & _LOW]
        keys = keys + np.array([0x9E3779B9, 0xBB67AE85], np.uint64) & _LOW
    return np.stack(c, -1).reshape(-1)[:count]


def shape_given(inputs: Sequence[Any], values: Mapping[str, Any], outputs: Sequence[Any] | None) -> list[Any]:
    """Return the attribute `shape`, or the shape of an output that is given."""
    return [values["shape"] if outputs is None else outputs[0]]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return y with its dims merged in order, since its elements are counted."""
    return list(inputs), coalesce(outputs, in_order=True)


def _reference(seed: Any, shape: Any, out: Sequence[TensorDesc]) -> Any:
    return words(seed, out[0].numel).astype(np.uint32).reshape(out[0].shape)


declare(
    "random_bits",
    "RBIT",
    "seed: S[2] -> y: U32[*d]",
    {"S": (U64,)},
    family="sampling",
    doc=(
        "Random integers of 32 bits by Philox4x32-10 (Salmon et al. 2011), the same on every device. `seed` is a key"
        " and the number of the first block of four words: element i, in row-major order, is word i mod 4 of block"
        " seed[1] + i div 4 (modulo 2^64), which is the low half of the counter. A second draw from one"
        " key begins behind the blocks of the first."
    ),
    reference=_reference,
    attrs=attrs("RBT1", SHAPE),
    shapes=shape_given,
    normal_form=_normal_form,
    samples=lambda: [
        *(
            Sample({"seed": (2,)}, outputs={"y": shape})
            for shape in [(), (7,), (3, 5), (1025,), (0, 3), (4, 1, 33), (2, 1, 2, 3, 1, 2, 2, 3)]
        ),
        Sample({"seed": (2,)}, {"shape": (2, 3)}),
        *(
            Sample({"seed": (2,)}, outputs={"y": shape}, size=size)
            for size, shape in [("wide", (601, 1025)), ("medium", (512, 512)), ("large", (4096, 4096))]
        ),
    ],
    errors=[
        ErrorCase({"seed": (3,)}, BadTensorShape, {"shape": (3,)}),
        ErrorCase({"seed": ()}, BadTensorShape, {"shape": (3,)}),
        ErrorCase({"seed": (2,)}, BadTensorDtype, {"shape": (3,)}, dtypes={"S": I64}),
        ErrorCase({"seed": (2,)}, InvalidArgument, {"shape": (-1,)}),
    ],
    exact=True,
)
