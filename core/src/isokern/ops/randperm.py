"""randperm: the numbers from 0 in random order, sorted by random keys, and so the same on every device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.attributes import attrs, integer
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import I32, I64, U64
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .random_bits import words
from .random_numbers import SEED


def _shuffle(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    y = outputs[0]
    if y.numel == 0:
        return e.fill(y.shape, 0.0, y.dtype)
    pairs = e.cast(e("random_bits", inputs[0], shape=(y.numel, 2)), U64)
    first, second = (e.collapse(e("slice", pairs, starts=(i,), ends=(i + 1,), axes=(1,)), (2,)) for i in range(2))
    keys = e.loop("a,a->a", "x0 * 4294967296 + x1", first, second)
    return e.cast(e.all("sort", keys, axis=0)[1], y.dtype)


def _reference(seed: Any, n: int, out: Sequence[TensorDesc]) -> Any:
    pairs = words(seed, 2 * n).reshape(n, 2).astype(np.uint64)
    keys = (pairs[:, 0] << np.uint64(32)) + pairs[:, 1]
    return np.argsort(keys, kind="stable").astype(out[0].dtype.numpy)


declare(
    "randperm",
    "RPRM",
    "seed: U64[2] -> y: T[n]",
    {"T": (I64, I32)},
    family="sampling",
    doc=(
        "The numbers from 0 to n - 1 in random order (PyTorch's randperm, NumPy's permutation): a stable sort of keys"
        " of 64 bits, two words of `random_bits` each. Two of them are equal with a probability below n² / 2^65, and"
        " are then in rising order."
    ),
    reference=_reference,
    attrs=attrs("RPM1", integer("n", doc="how many numbers", minimum=0, maximum=(1 << 31) - 1)),
    normal_form=as_given,
    decompose=_shuffle,
    samples=lambda: [
        Sample(SEED, {"n": n}, size=size)
        for n, size in [
            (7, "small"),
            (1, "small"),
            (0, "small"),
            (33, "small"),
            (1025, "small"),
            (150_001, "wide"),
            (1 << 18, "medium"),
            (1 << 22, "large"),
        ]
    ],
    errors=[
        ErrorCase(SEED, InvalidArgument),
        ErrorCase(SEED, InvalidArgument, {"n": -1}),
        ErrorCase({"seed": (3,)}, BadTensorShape, {"n": 3}),
        ErrorCase(SEED, BadTensorShape, {"n": 3}, outputs={"y": (4,)}),
        ErrorCase(SEED, BadTensorDtype, {"n": 3}, dtypes={"seed": I64}),
    ],
    exact=True,
)
