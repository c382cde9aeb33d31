"""Rearrangements that are a reshape, a permutation and a reshape, one row of a table each.

A pattern names the dims by letters, as einops does (Rogozhnikov 2022): `n pqc h w -> n c hp wq` splits the second dim
into p, q and c, and merges h with p and w with q. Attributes give the sizes of some letters; each dim of x has at most
one letter without a size, which takes the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..declare import ErrorCase, Operator, Sample, SampleTable, declare
from ..declare.attributes import Attr, attrs, choice, integer
from ..declare.decomposition import Emitter, V
from ..declare.normal_form import as_given
from ..dtypes import PLAIN
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument

Factors = tuple[tuple[str, str], ...]  # (letters, the attribute that is the size of each)


def _sizes(
    where: str, left: Sequence[str], factors: Factors, shape: Sequence[int], values: Mapping[str, Any]
) -> dict[str, int]:
    """Return the size of each letter."""
    sizes: dict[str, int] = {}
    for letters, name in factors:
        for i in range(len(letters)):
            sizes[letters[i]] = values[name]
    for i, group in enumerate(left):
        free, known = "", 1
        for j in range(len(group)):
            if group[j] in sizes:
                known = known * sizes[group[j]]
            else:
                free = group[j]
        rest = shape[i] // known
        if rest * known != shape[i] or (free == "" and rest != 1):
            allowed = f"a multiple of {known}" if free != "" else f"{known}"
            raise BadTensorShape(where, f"dim {i} of x is {shape[i]}", allowed=allowed)
        if free != "":
            sizes[free] = rest
    return sizes


def _rearrange(x: Any, left: Sequence[str], right: Sequence[str], sizes: Mapping[str, int]) -> Any:
    fine = "".join(left)
    y = x.reshape([sizes[c] for c in fine]).transpose([fine.index(c) for c in "".join(right)])
    return y.reshape([math.prod(sizes[c] for c in group) for group in right])


def pattern(
    name: str,
    kind: str,
    signature: str,
    patterns: Mapping[str, str],
    factors: Factors,
    samples: SampleTable,
    *,
    doc: str,
    fields: Sequence[Attr] = (),
) -> Operator:
    """Declare one rearrangement.

    `patterns` has a pattern for each value of the attribute `mode`, or one for an empty text; all give one shape.
    `samples` are shapes and attributes, the last of them large.
    """
    texts = {mode: text.partition(" -> ") for mode, text in patterns.items()}
    sides = {mode: (tuple(a.split()), tuple(b.split())) for mode, (a, _, b) in texts.items()}
    left, right = next(iter(sides.values()))
    names = tuple(dict.fromkeys(n for _, n in factors))

    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        sizes = _sizes(name, left, factors, inputs[0], values)
        made = []
        for group in right:
            size = 1
            for i in range(len(group)):
                size = size * sizes[group[i]]
            made.append(size)
        return [tuple(made)]

    def reference(x: Any, **values: Any) -> Any:
        own, out = sides[values.get("mode", "")]
        return _rearrange(x, own, out, _sizes(name, own, factors, x.shape, values))

    def decompose(e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]) -> V:
        (x,), (own, out) = inputs, sides[values.get("mode", "")]
        sizes = _sizes(name, own, factors, x.spec.shape, values)
        fine, order = "".join(own), "".join(out)
        if len(fine) > len(own):
            x = e("expand_shape", x, groups=tuple(map(len, own)), shape=tuple(sizes[c] for c in fine))
        x = e("transpose", x, axes=tuple(fine.index(c) for c in order))
        return e.collapse(x, tuple(map(len, out)))

    shape, attributes = samples[0]
    first = names[0]
    uneven = next(i for i, group in enumerate(left) if any(c in letters for letters, _ in factors for c in group))
    odd = tuple(2 * d + 1 if i == uneven else d for i, d in enumerate(shape))
    return declare(
        name,
        kind,
        signature,
        {"T": PLAIN},
        family="movement",
        doc=doc,
        reference=reference,
        attrs=attrs(
            "P" + kind[:3],
            *(integer(n, doc=f"size of {', '.join(a for a, m in factors if m == n)}", minimum=1) for n in names),
            *fields,
        ),
        shapes=shapes,
        normal_form=as_given,
        decompose=decompose,
        samples=lambda: [
            *(Sample({"x": s}, a) for s, a in samples[:-1]),
            *(Sample({"x": s}, a, size="wide") for s, a in samples[-1:]),
        ],
        errors=[
            ErrorCase({"x": shape[1:]}, BadTensorShape, attributes),
            ErrorCase({"x": odd}, BadTensorShape, {**attributes, first: attributes[first] * 2}),
            ErrorCase({"x": shape}, InvalidArgument, {**attributes, first: 0}),
            ErrorCase({"x": shape}, InvalidArgument, {n: v for n, v in attributes.items() if n != first}),
            ErrorCase({"x": shape}, BadTensorShape, attributes, outputs={"y": (1,)}),
        ],
        exact=True,
    )


IMAGE = "x: T[n, c, h, w] -> y: T[n, k, i, j]"
BLOCK: Factors = (("pq", "block"),)
UP: SampleTable = [
    ((2, 8, 3, 5), {"block": 2}),
    ((1, 9, 1, 4), {"block": 3}),
    ((2, 5, 3, 4), {"block": 1}),
    ((0, 4, 2, 2), {"block": 2}),
    ((1, 4, 0, 3), {"block": 2}),
    ((1, 4, 2, 1025), {"block": 2}),
    ((2, 16, 61, 211), {"block": 2}),
]
DOWN: SampleTable = [
    ((2, 3, 4, 6), {"block": 2}),
    ((1, 1, 9, 3), {"block": 3}),
    ((2, 5, 3, 4), {"block": 1}),
    ((0, 4, 2, 2), {"block": 2}),
    ((1, 4, 0, 4), {"block": 2}),
    ((1, 2, 2, 2050), {"block": 2}),
    ((2, 4, 122, 422), {"block": 2}),
]

pattern(
    "depth_to_space",
    "DEPS",
    IMAGE,
    {"DCR": "n pqc h w -> n c hp wq", "CRD": "n cpq h w -> n c hp wq"},
    BLOCK,
    [(s, {**a, "mode": m}) for m in ("DCR", "CRD") for s, a in UP],
    fields=[choice("mode", ("DCR", "CRD"), "DCR", "whether the blocks or the channels change slowest in x")],
    doc="Channels moved into blocks of pixels: y[n, c, h·block + p, w·block + q] (ONNX DepthToSpace).",
)
pattern(
    "space_to_depth",
    "SPDP",
    IMAGE,
    {"": "n c hp wq -> n pqc h w"},
    BLOCK,
    DOWN,
    doc="Blocks of pixels moved into channels, the block slowest (ONNX SpaceToDepth): the inverse of depth_to_space.",
)
pattern(
    "pixel_shuffle",
    "PXSH",
    IMAGE,
    {"": "n cpq h w -> n c hp wq"},
    BLOCK,
    UP,
    doc="Channels moved into blocks of pixels, the channel slowest (Shi et al. 2016; PyTorch's pixel_shuffle).",
)
pattern(
    "pixel_unshuffle",
    "PXUN",
    IMAGE,
    {"": "n c hp wq -> n cpq h w"},
    BLOCK,
    DOWN,
    doc="Blocks of pixels moved into channels, the channel slowest: the inverse of pixel_shuffle.",
)
pattern(
    "focus",
    "FOCU",
    IMAGE,
    {"": "n c hp wq -> n qpc h w"},
    BLOCK,
    DOWN,
    doc="Blocks of pixels moved into channels, columns before rows (the Focus layer of YOLOv5).",
)
pattern(
    "channel_shuffle",
    "CHSH",
    "x: T[n, c, h, w] -> y: T[n, c, h, w]",
    {"": "n gc h w -> n cg h w"},
    (("g", "groups"),),
    [
        ((2, 6, 3, 5), {"groups": 2}),
        ((1, 9, 1, 1), {"groups": 3}),
        ((2, 5, 3, 4), {"groups": 5}),
        ((1, 4, 0, 3), {"groups": 2}),
        ((1, 4, 1, 1025), {"groups": 2}),
        ((2, 16, 61, 211), {"groups": 4}),
    ],
    doc="Channels of `groups` groups dealt out in turn (Zhang et al. 2018, ShuffleNet).",
)
pattern(
    "window_partition",
    "WPAR",
    "x: T[n, h, w, c] -> y: T[m, p, q, c]",
    {"": "n hp wq c -> nhw p q c"},
    (("pq", "window"),),
    [
        ((2, 4, 6, 3), {"window": 2}),
        ((1, 3, 3, 5), {"window": 3}),
        ((1, 3, 5, 2), {"window": 1}),
        ((0, 4, 2, 2), {"window": 2}),
        ((1, 2, 4, 1025), {"window": 2}),
        ((2, 84, 98, 33), {"window": 7}),
    ],
    doc="An image [n, h, w, c] cut into windows, one a row of the batch (Liu et al. 2021, Swin).",
)
pattern(
    "window_reverse",
    "WREV",
    "x: T[m, p, q, c] -> y: T[n, h, w, c]",
    {"": "nhw p q c -> n hp wq c"},
    (("h", "rows"), ("w", "columns")),
    [
        ((12, 2, 2, 3), {"rows": 2, "columns": 3}),
        ((1, 3, 3, 5), {"rows": 1, "columns": 1}),
        ((0, 2, 2, 2), {"rows": 2, "columns": 1}),
        ((2, 2, 2, 1025), {"rows": 1, "columns": 2}),
        ((336, 7, 7, 33), {"rows": 12, "columns": 14}),
    ],
    doc="Windows put together again, `rows` down and `columns` across: the inverse of window_partition.",
)
PATCHES: SampleTable = [
    ((2, 3, 4, 6), {"patch": 2}),
    ((1, 1, 9, 3), {"patch": 3}),
    ((2, 5, 3, 4), {"patch": 1}),
    ((0, 4, 2, 2), {"patch": 2}),
    ((1, 2, 2, 2050), {"patch": 2}),
    ((2, 3, 224, 192), {"patch": 16}),
]
pattern(
    "patchify",
    "PTCH",
    "x: T[n, c, h, w] -> y: T[n, l, d]",
    {"": "n c hp wq -> n hw pqc"},
    (("pq", "patch"),),
    PATCHES,
    doc="An image as a row of patches, each as [patch, patch, c] (Dosovitskiy et al. 2021; He et al. 2022).",
)
pattern(
    "unpatchify",
    "UNPT",
    "x: T[n, l, d] -> y: T[n, c, h, w]",
    {"": "n hw pqc -> n c hp wq"},
    (("pq", "patch"), ("h", "rows")),
    [
        ((2, 6, 12), {"patch": 2, "rows": 2}),
        ((1, 3, 9), {"patch": 3, "rows": 3}),
        ((0, 4, 8), {"patch": 2, "rows": 2}),
        ((1, 1025, 4), {"patch": 2, "rows": 1}),
        ((2, 168, 768), {"patch": 16, "rows": 14}),
    ],
    doc="Patches put together again, `rows` of them down: the inverse of patchify.",
)
pattern(
    "space_to_batch",
    "S2BT",
    "x: T[n, c, h, w] -> y: T[m, c, i, j]",
    {"": "n c hp wq -> pqn c h w"},
    BLOCK,
    DOWN,
    doc="Blocks of pixels moved into the batch, the block slowest (TensorFlow's space_to_batch, without padding).",
)
pattern(
    "batch_to_space",
    "B2SP",
    "x: T[m, c, h, w] -> y: T[n, c, i, j]",
    {"": "pqn c h w -> n c hp wq"},
    BLOCK,
    [
        ((8, 3, 2, 3), {"block": 2}),
        ((9, 1, 3, 1), {"block": 3}),
        ((2, 5, 3, 4), {"block": 1}),
        ((0, 4, 2, 2), {"block": 2}),
        ((4, 2, 1, 1025), {"block": 2}),
        ((8, 4, 61, 211), {"block": 2}),
    ],
    doc="Blocks of images moved into pixels: the inverse of space_to_batch.",
)
pattern(
    "split_heads",
    "SPHD",
    "x: T[n, s, d] -> y: T[n, h, s, e]",
    {"": "n s hd -> n h s d"},
    (("h", "heads"),),
    [
        ((2, 5, 12), {"heads": 3}),
        ((1, 1, 8), {"heads": 8}),
        ((2, 0, 4), {"heads": 2}),
        ((1, 3, 1026), {"heads": 2}),
        ((4, 200, 768), {"heads": 12}),
    ],
    doc="The features of each token as heads, heads before tokens (Vaswani et al. 2017).",
)
