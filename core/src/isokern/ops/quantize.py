"""quantize and dequantize: floats to blocks of 32, and blocks to floats; kernel stem `quantize`, normal form rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import blocks
from ..declare import ErrorCase, Sample, declare
from ..declare.conversion import convert
from ..declare.normal_form import rows
from ..dtypes import ACTIVATIONS, BLOCKS, QUANTIZED, STORED_BLOCKS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape

_SHAPES = [
    ((64,), "small"),
    ((3, 32), "small"),
    ((2, 3, 96), "small"),
    ((5, 1024), "small"),
    ((2, 1, 2, 1, 3, 1, 2, 32), "small"),
    ((0, 32), "small"),
    ((3, 0), "small"),
    ((601, 1024), "wide"),
    ((512, 512), "medium"),
    ((4096, 4096), "large"),
]


SMALL_BLOCKS, LARGE_BLOCKS = (tuple(d for d in QUANTIZED if (d.block > 32) == large) for large in (False, True))


def _quantize(x: Any, out: Sequence[TensorDesc]) -> Any:
    return blocks.quantize(x, out[0].dtype)


def _dequantize(x: Any, out: Sequence[TensorDesc]) -> Any:
    return convert(x, out[0].dtype.numpy)


quantize = declare(
    "quantize",
    "QUAN",
    "x: T[*b, k] -> y: Q[*b, k]",
    {"Q": QUANTIZED, "T": ACTIVATIONS},  # no F64: the blocks are defined by F32 arithmetic (isokern.blocks)
    family="conversion",
    doc=(
        "x in blocks along the last dim, byte for byte as GGUF has them (see isokern.blocks): the scale from the"
        " element of largest magnitude, quants by the scale before it is rounded to F16. Infinities make a scale"
        " infinite, NaN makes it NaN, and both make the power of a block of MXFP4 255; quants that are no finite number"
        " are 0."
    ),
    reference=_quantize,
    stem="quantize",
    normal_form=rows,
    samples=lambda: [
        *(Sample({"x": s}, size=size, types={"Q": SMALL_BLOCKS}) for s, size in _SHAPES),
        *(Sample({"x": s}, types={"Q": LARGE_BLOCKS}) for s in ((768,), (2, 3, 512), (3, 1, 256), (0, 256), (5, 1024))),
    ],
    errors=[
        ErrorCase({"x": (3, 33)}, BadTensorShape),
        ErrorCase({"x": ()}, BadTensorShape),
        ErrorCase({"x": (3, 32)}, BadTensorShape, outputs={"y": (4, 32)}),
        ErrorCase({"x": (3, 32)}, BadTensorDtype, dtypes={"T": BLOCKS[0]}),
    ],
    domains={"x": "any"},
    exact=True,
)

dequantize = declare(
    "dequantize",
    "DEQU",
    "x: Q[*b, k] -> y: T[*b, k]",
    {
        "Q": (*BLOCKS, *STORED_BLOCKS),
        "T": ACTIVATIONS,
    },  # no F64: the blocks are defined by F32 arithmetic (isokern.blocks)
    family="conversion",
    doc=(
        "The elements of blocks: (n - 8) d, n d + m, q d in F32, the sum rounded once, then in the type of y; of types"
        " that are only decoded, such as Q4_K and Q6_K, by their layouts (isokern.blocks.layouts)."
    ),
    reference=_dequantize,
    stem="quantize",
    normal_form=rows,
    samples=lambda: [
        *(Sample({"x": s}, size=size) for s, size in _SHAPES),
        *(Sample({"x": s}, types={"Q": STORED_BLOCKS}) for s in ((768,), (2, 3, 512))),
    ],
    errors=[
        ErrorCase({"x": (3, 32)}, BadTensorShape, outputs={"y": (4, 32)}),
        ErrorCase({"x": (3, 32)}, BadTensorDtype, dtypes={"Q": ACTIVATIONS[0]}),
    ],
    exact=True,
)
