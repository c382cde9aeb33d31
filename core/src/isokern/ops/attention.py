"""attention and attention_lse: softmax(scale q kᵀ) v by heads, over the keys and values of a cache.

Both are computed by the kernel stem `attention`. Normal form: the signature's dims, the masks as [b, h, m, s] with
stride 0 if they repeat.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import Descs
from ..dtypes import ACTIVATIONS, BF16, F16, F32, F64, FP8, I64, INDICES, Q4_0, Q8_0, DType
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .attention_reference import Extras, attend

CACHED = (F32, F16, BF16, Q8_0, Q4_0, *FP8, F64)
FARTHEST = 10**15  # a place plus it stays in 64 bits, and float64, in which bodies have their constants, holds it
WINDOW = integer(
    "window", 0, "a query sees keys less than that far from its own; 0 for all", minimum=0, maximum=FARTHEST
)


def match_doubles(types: Mapping[str, DType]) -> bool:
    """Return whether dtypes go together: keys and values of F64 go with queries of F64, and with no others."""
    return (types["T"] is F64) == (types["K"] is F64)


def _shapes(where: str) -> Callable[..., list[tuple[int, ...]]]:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        q, k, v, mask, lengths, seen = [*inputs, None, None, None][:6]
        b, m, h, d = q
        s, g = k[1:3]
        if k != (b, s, g, d):
            raise BadTensorShape(where, f"k is {list(k)} with q {list(q)}", allowed=f"[{b}, keys, heads, {d}]")
        if v[:3] != k[:3]:
            raise BadTensorShape(where, f"v is {list(v)} with k {list(k)}", allowed=f"[{b}, {s}, {g}, …]")
        if (h % g if g else h) != 0:
            raise BadTensorShape(where, f"{h} heads of q share {g} of k", allowed=f"a divisor of {h}")
        for what, mask_ in (("mask", mask), ("seen", seen)):
            if mask_ is not None:
                full, given = (b, h, m, s), (1,) * (4 - len(mask_)) + mask_
                if len(mask_) > 4 or any(a not in (1, f) for a, f in zip(given, full, strict=True)):
                    raise BadTensorShape(where, f"{what} is {list(mask_)}", allowed=f"what broadcasts to {list(full)}")
        if lengths is not None and lengths != (b,):
            raise BadTensorShape(where, f"lengths is {list(lengths)}", allowed=f"[{b}], one a sequence")
        y = (b, m, h, v[3])
        return [y] if where == "attention" else [y, (b, m, h)]

    return shapes


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the tensors as given; the masks, if there are some, as [b, h, m, s], broadcast by stride 0."""
    q, k, v, mask, lengths, seen, sinks, alibi = [*inputs, None, None, None, None, None][:8]
    assert q is not None and k is not None
    full = (q.shape[0], q.shape[2], q.shape[1], k.shape[1])
    if mask is not None:
        mask = mask.broadcast_to(full)
    if seen is not None:
        seen = seen.broadcast_to(full)
    return [q, k, v, mask, lengths, seen, sinks, alibi], list(outputs)


def _attention(
    q: Any, k: Any, v: Any, mask: Any, lengths: Any, seen: Any, sinks: Any, alibi: Any, **values: Any
) -> Any:
    return attend(q, k, v, Extras(mask, lengths, seen, sinks, alibi), values)[0]


def _attention_lse(
    q: Any, k: Any, v: Any, mask: Any, lengths: Any, seen: Any, sinks: Any, alibi: Any, **values: Any
) -> tuple[Any, Any]:
    return attend(q, k, v, Extras(mask, lengths, seen, sinks, alibi), values)[:2]


def _scale(q: Any, k: Any, v: Any, mask: Any, lengths: Any, seen: Any, sinks: Any, alibi: Any, **values: Any) -> Any:
    return attend(q, k, v, Extras(mask, lengths, seen, sinks, alibi), values)[2]


def _scale_lse(
    q: Any, k: Any, v: Any, mask: Any, lengths: Any, seen: Any, sinks: Any, alibi: Any, **values: Any
) -> tuple[Any, Any]:
    return attend(q, k, v, Extras(mask, lengths, seen, sinks, alibi), values)[2:]


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    q, k, v = inputs[:3]
    assert q is not None and k is not None and v is not None
    b, m, h, d = q.shape
    return 2.0 * b * m * h * k.shape[1] * (d + v.shape[3])


_EVERY: Mapping[str, tuple[DType, ...]] = {}
_SOME = {"K": (F32, F16, Q8_0, F64), "T": (F32, BF16, F64)}


def _sample(
    b: int,
    m: int,
    s: int,
    h: int,
    g: int,
    d: int,
    e: int,
    size: str = "small",
    mask: Any = None,
    lengths: bool = False,
    seen: Any = None,
    sinks: bool = False,
    alibi: bool = False,
    types: Mapping[str, tuple[DType, ...]] = _EVERY,
    **values: Any,
) -> Sample:
    others = {
        "mask": mask,
        "lengths": (b,) if lengths else None,
        "seen": seen,
        "sinks": (h,) if sinks else None,
        "alibi": (h,) if alibi else None,
    }
    shapes = {"q": (b, m, h, d), "k": (b, s, g, d), "v": (b, s, g, e)}
    shapes |= {name: shape for name, shape in others.items() if shape is not None}
    return Sample(shapes, values, {"lengths": f"length:{s}"}, size=size, types=types)


def _samples() -> list[Sample]:
    return [
        _sample(1, 1, 7, 2, 1, 32, 32),
        _sample(1, 5, 5, 4, 2, 32, 64, causal=True),
        _sample(2, 3, 40, 4, 4, 64, 32, causal=True, scale=0.3),
        _sample(3, 1, 33, 4, 1, 32, 32, lengths=True, causal=True),
        _sample(2, 4, 19, 2, 2, 32, 32, mask=(4, 19)),
        _sample(2, 4, 19, 2, 2, 32, 32, mask=(2, 1, 4, 19), softcap=2.0, causal=True, lengths=True),
        _sample(1, 6, 70, 2, 1, 32, 32, causal=True, window=9),
        _sample(1, 6, 70, 2, 1, 32, 32, window=9, types=_SOME),
        _sample(2, 5, 33, 4, 2, 32, 32, lengths=True, window=4, types=_SOME),
        _sample(2, 4, 19, 4, 2, 32, 32, seen=(2, 1, 4, 19), types=_SOME),
        _sample(1, 3, 70, 2, 2, 32, 32, mask=(3, 70), seen=(2, 1, 70), causal=True, types=_SOME),
        _sample(2, 3, 33, 6, 2, 32, 32, sinks=True, lengths=True, causal=True, window=8, types=_SOME),
        _sample(1, 3, 33, 4, 2, 32, 32, alibi=True, causal=True, types=_SOME),
        _sample(
            2,
            4,
            19,
            4,
            1,
            32,
            64,
            mask=(19,),
            lengths=True,
            seen=(4, 1),
            sinks=True,
            alibi=True,
            softcap=9.0,
            types=_SOME,
        ),
        _sample(2, 3, 0, 4, 2, 32, 32, sinks=True, alibi=True, types=_SOME),
        _sample(1, 2, 300, 3, 1, 32, 32, sinks=True, alibi=True, causal=True, types=_SOME),
        _sample(1, 9, 4, 2, 2, 32, 32, causal=True),
        _sample(1, 2, 300, 3, 1, 96, 96, causal=True),
        _sample(1, 3, 5, 6, 2, 5, 7, causal=True),
        _sample(2, 3, 0, 2, 1, 32, 32),
        _sample(0, 3, 4, 2, 1, 32, 32),
        # A key that a query does not see does not affect its result, even if it is NaN
        Sample(
            {"q": (1, 24, 4, 32), "k": (1, 80, 2, 32), "v": (1, 80, 2, 32)},
            {"causal": True},
            {"v": "nan_behind"},
            types={"K": (F32, F16, BF16, F64)},
        ),
        _sample(1, 1, 2, 1, 1, 32, 40_960, "long"),
        _sample(1, 33, 130, 4, 2, 64, 64, "wide", causal=True),
        _sample(1, 1, 1024, 8, 2, 64, 64, "medium", causal=True),
        _sample(1, 1, 4096, 32, 8, 128, 128, "large", causal=True),
        _sample(1, 512, 512, 32, 8, 128, 128, "large", causal=True),
    ]


def _errors(lse: bool) -> list[ErrorCase]:
    q, k = (2, 3, 4, 32), (2, 5, 2, 32)
    plain = {"q": q, "k": k, "v": k}
    wrong = {"y": (2, 3, 4, 31), **({"lse": (2, 3, 4)} if lse else {})}
    return [
        ErrorCase({"q": q[1:], "k": k, "v": k}, BadTensorShape),
        ErrorCase({"q": q, "k": (2, 5, 3, 32), "v": (2, 5, 3, 32)}, BadTensorShape),
        ErrorCase({"q": q, "k": (2, 5, 2, 64), "v": k}, BadTensorShape),
        ErrorCase({"q": q, "k": k, "v": (2, 6, 2, 32)}, BadTensorShape),
        ErrorCase({**plain, "mask": (3, 4)}, BadTensorShape),
        ErrorCase({**plain, "mask": (3, 5), "lengths": (3,)}, BadTensorShape),
        ErrorCase({**plain, "seen": (3, 4)}, BadTensorShape),
        ErrorCase({**plain, "seen": (3, 5)}, BadTensorDtype, dtypes={"seen": F32}),
        ErrorCase({**plain, "sinks": (2,)}, BadTensorShape),
        ErrorCase({**plain, "alibi": (3,)}, BadTensorShape),
        ErrorCase(plain, InvalidArgument, {"window": -1}),
        ErrorCase(plain, InvalidArgument, {"window": 2**63 - 1}),
        ErrorCase(plain, InvalidArgument, {"softcap": -1}),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": F64, "K": F32}),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": F32, "K": F64}),
        ErrorCase({**plain, "mask": (3, 5), "lengths": (2,)}, BadTensorDtype, dtypes={"lengths": F32}),
        ErrorCase(plain, BadTensorShape, outputs=wrong),
    ]


def _loops(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, ...]:
    """Emit the scores, what each query sees of them, their softmax, and the weighted values.

    All scores are in memory at a time.
    """
    q, k, v, mask, lengths, seen, sinks, alibi = [*inputs, *[None] * 5][:8]
    assert q is not None and k is not None and v is not None
    b, m, h, d = q.spec.shape
    s, g = k.spec.shape[1:3]
    e_, element = v.spec.shape[3], outputs[0].dtype
    wide, split = element.compute, (g, h // g if g else 1)
    k, v = (e.cast(x, wide) if x.spec.dtype.block == 1 else e("dequantize", x, dtypes={"T": wide}) for x in (k, v))
    grouped = e("expand_shape", q, groups=(1, 1, 2, 1), shape=(b, m, *split, d))
    scores = e.loop("bmgrd,bsgd->bgrms", "x0 * x1", grouped, k, combine="sum", dtype=wide)
    body = f"x0 * {constant(values['scale'] or 1 / math.sqrt(max(d, 1)))}"
    if values["softcap"]:
        body = f"{constant(values['softcap'])} * tanh({body} / {constant(values['softcap'])})"
    given, maps = [scores, e.iota(s, wide), e.iota(m, wide)], ["bgrms", "s", "m"]

    def add(x: V, letters: str) -> str:
        """Have one more operand of the scores, whose h is split into groups and the heads of each; return its name."""
        x, letters = e.squeeze(x, letters, {"b": b, "h": h, "m": m, "s": s})
        if "h" in letters:
            at = letters.index("h")
            shape = (*x.spec.shape[:at], *split, *x.spec.shape[at + 1 :])
            x = e("expand_shape", x, groups=tuple(2 if c == "h" else 1 for c in letters), shape=shape)
        given.append(x)
        maps.append(letters.replace("h", "gr"))
        return f"x{len(given) - 1}"

    count = constant(s)
    if lengths is not None:
        # gather reports what is out of range, and gives 0 for it; it would count a negative number from the end
        given_lengths = e.loop("b->b", f"x0 if x0 >= 0 else x0 - {s + 1}", e.cast(lengths, I64))
        count = add(e("gather", e.iota(s + 1, I64), given_lengths), "b")
    visible, place = f"x1 < {count}", f"({count} - {constant(m)} + x2)"
    if values["causal"]:
        visible = f"{visible} and x1 <= {place}"
    if values["window"]:
        size = constant(values["window"])
        visible = f"{visible} and x1 > {place} - {size} and x1 < {place} + {size}"
    if mask is not None:
        body = f"{body} + {add(mask, 'bhms'[4 - mask.spec.ndim :])}"
    if alibi is not None:
        body = f"{body} - {add(alibi, 'h')} * abs({place} - x1)"
    if seen is not None:
        visible = f"{visible} and {add(seen, 'bhms'[4 - seen.spec.ndim :])} != 0"
    scores = e.loop(f"{','.join(maps)}->bgrms", f"{body} if {visible} else -1e999", *given)
    top = e.loop("bgrms->bgrm", "x0", scores, combine="maximum")
    sink = None if sinks is None else e("expand_shape", e.cast(sinks, wide), groups=(2,), shape=split)
    if sink is not None:
        top = e.loop("bgrm,gr->bgrm", "maximum(x0, x1)", top, sink)
    below = "0 if x0 == -1e999 else exp(x0 - (0 if x1 == -1e999 else x1))"
    powers = e.loop("bgrms,bgrm->bgrms", below, scores, top)
    total = e.loop("bgrms->bgrm", "x0", powers, combine="sum")
    if sink is not None:
        rest = "x0 + (0 if x1 == -1e999 else exp(x1 - x2))"
        total = e.loop("bgrm,gr,bgrm->bgrm", rest, total, sink, top)
    shares = e.loop("bgrms,bgrm->bgrms", "x0 / (1 if x1 == 0 else x1)", powers, total)
    mixed = e.loop("bgrms,bsge->bmgre", "0 if x0 == 0 else x0 * x1", shares, v, combine="sum", dtype=element)
    y = e.collapse(mixed, (1, 1, 2, 1)) if (b, m, h, e_) != mixed.spec.shape else mixed
    if len(outputs) == 1:
        return (y,)
    lse = e.loop("bgrm,bgrm->bmgr", "x0 + log(x1)", top, total)
    return y, e.cast(e.collapse(lse, (1, 1, 2)), F32)


def _declare(
    name: str, kind: str, outputs: str, reference: Callable[..., Any], scale: Callable[..., Any], doc: str
) -> Operator:
    return declare(
        name,
        kind,
        (
            "q: T[b, m, h, d], k: K[b, s, g, d], v: K[b, s, g, e], mask?: T[*r], lengths?: I[l],"
            f" seen?: BOOL[*w], sinks?: T[h], alibi?: F32[h] -> {outputs}"
        ),
        {"K": CACHED, "T": (*ACTIVATIONS, F64), "I": INDICES},
        family="attention",
        stem="attention",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(16, scale),
        attrs=attrs(
            "ATT1",
            flag("causal", False, "a query sees no key behind it, the last query being at the last key"),
            number("scale", 0.0, "factor of the scores; 0 for 1/sqrt(d)"),
            WINDOW,
            number("softcap", 0.0, "scores become softcap · tanh(scores / softcap); 0 for not", minimum=0),
        ),
        shapes=_shapes(name),
        combinations=match_doubles,
        normal_form=_normal_form,
        decompose=_loops,
        flops=_flops,
        domains={"q": "unit", "k": "unit", "mask": "moderate"},
        samples=_samples,
        errors=_errors(name == "attention_lse"),
        device_error="lengths[{at}] is {value}, out of range for the keys",
    )


_DOC = (
    "softmax(scale · q kᵀ + mask) v (Vaswani et al. 2017) for h heads of q that share g of k and v (grouped-query,"
    " Ainslie et al. 2023), one pass over the keys (online softmax: memory does not grow with them). lengths is how"
    " many keys each sequence has, where not all s; causal counts from there: query i sees keys up to lengths - m + i"
    " (in PyTorch up to i)."
    " Attention to another sequence (cross attention) has its k and v; q, k and v of one product are side by"
    " side in its heads, and are slices of them. A window is of both sides without causal (Beltagy et al. 2020). seen"
    " is which keys may be seen (ONNX, PyTorch), and mask is added; sinks has a logit more for each head,"
    " which takes part in the softmax and has no value (gpt-oss; Xiao et al. 2024); alibi a slope for each head, times"
    " which the distance of key and query is subtracted (Press et al. 2022; see alibi_slopes). k and v of F64 go with q"
    " of F64. Those of 8 bits have no scale of their own: that of k is a factor of `scale`, that of v of the result."
    " A query that sees no key gives zeros. A length out of range counts as 0 and raises InvalidArgument at the call on"
    " a synchronous device, else at the next synchronize."
)
attention = _declare(
    "attention",
    "ATTN",
    "y: T[b, m, h, e]",
    _attention,
    _scale,
    _DOC,
)
attention_lse = _declare(
    "attention_lse",
    "ATLS",
    "y: T[b, m, h, e], lse: F32[b, m, h]",
    _attention_lse,
    _scale_lse,
    _DOC
    + (
        " lse is the logarithm of the sum of exponentials of each query's scores, by which parts of the keys are"
        " joined (merge_attention_states); -inf without keys or sink."
    ),
)
