"""embedding: rows of a table of weights, quantized or not, in the dtype of the activations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, declare
from ..declare.conversion import convert
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import ALL_WEIGHTS, F32, F64, FLOATS, STORED_BLOCKS, TOKENS, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape


def _reference(table: Any, indices: Any, out: Sequence[TensorDesc]) -> Any:
    size, width = table.shape
    known = (-size <= indices) & (indices < size)
    rows = np.take(table, np.where(known, indices, 0), 0) if size else np.zeros((*indices.shape, width), table.dtype)
    return convert(np.where(known[..., None], rows, np.zeros((), table.dtype)), out[0].dtype.numpy)


def _goes(types: Mapping[str, DType]) -> bool:
    """Return whether a table goes with an output: F64 with F64 alone, whose rows are moved, the others in any pair."""
    return (types["W"] is F64) == (types["T"] is F64)


def _parts(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
    table, indices = inputs
    element = outputs[0].dtype
    plain = table if table.spec.dtype.block == 1 else e("dequantize", table, dtypes={"T": element})
    return e.cast(e("gather", plain, indices, axis=0), element)


embedding = declare(
    "embedding",
    "EMBD",
    "table: W[n, d], indices: I[*i] -> y: T[*i, d]",
    {"W": (*ALL_WEIGHTS, F64), "T": FLOATS, "I": TOKENS},
    combinations=_goes,
    family="movement",
    doc=(
        "table[indices], as floats: blocks are dequantised as `dequantize` does, floats cast; a table of F64"
        " is for an output of F64. A negative index counts from the end; one out of range writes zeros in its place and"
        " raises InvalidArgument at the call on a synchronous device, else at the next synchronize."
    ),
    reference=_reference,
    normal_form=as_given,
    decompose=_parts,
    samples=lambda: [
        *(
            Sample({"table": (5, d), "indices": i}, values={"indices": "index:5"}, types={"W": STORED_BLOCKS})
            for d, i in ((512, (3,)), (256, (2, 1, 2)), (768, ()))
        ),
        *(
            Sample({"table": (n, d), "indices": i}, values={"indices": f"index:{n}"}, size=size)
            for n, d, i, size in [
                (5, 64, (6,), "small"),
                (7, 32, (), "small"),
                (9, 33, (4, 3), "small"),
                (3, 96, (2, 1, 2), "small"),
                (4, 32, (0,), "small"),
                (600, 1024, (603,), "wide"),
                (4096, 256, (1024,), "medium"),
                (32768, 1024, (8192,), "large"),
            ]
        ),
    ],
    errors=[
        ErrorCase({"table": (3,), "indices": (2,)}, BadTensorShape),
        ErrorCase({"table": (3, 4), "indices": (2,)}, BadTensorDtype, dtypes={"indices": F32}),
        ErrorCase({"table": (3, 4), "indices": (2,)}, BadTensorDtype, dtypes={"W": F64, "T": F32}),
        ErrorCase({"table": (3, 4), "indices": (2,)}, BadTensorShape, outputs={"y": (2, 3)}),
    ],
    exact=True,
    device_error="indices[{at}] is {value}, out of range for the table",
)
