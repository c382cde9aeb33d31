"""attention and attention_lse: softmax(scale q kᵀ) v by heads, over the keys and values of a cache.

Both are computed by the kernel stem `attention`. Normal form: the signature's dims, the mask as [b, h, m, s] with
stride 0 where it repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Operator, Sample, Tolerance, declare
from ..declare.attributes import attrs, flag, integer, number
from ..declare.decomposition import Emitter, V, constant
from ..declare.normal_form import Descs
from ..dtypes import ACTIVATIONS, BF16, F16, F32, F64, I64, INDICES, Q4_0, Q8_0
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

CACHED = (F32, F16, BF16, Q8_0, Q4_0)


def _shapes(where: str) -> Callable[..., list[tuple[int, ...]]]:
    def shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
        q, k, v, mask, lengths = [*inputs, None, None][:5]
        b, m, h, d = q
        s, g = k[1:3]
        if k != (b, s, g, d):
            raise BadTensorShape(where, f"k is {list(k)} beside q {list(q)}", allowed=f"[{b}, keys, heads, {d}]")
        if v[:3] != k[:3]:
            raise BadTensorShape(where, f"v is {list(v)} beside k {list(k)}", allowed=f"[{b}, {s}, {g}, …]")
        if (h % g if g else h) != 0:
            raise BadTensorShape(where, f"{h} heads of q share {g} of k", allowed=f"a divisor of {h}")
        if mask is not None:
            full, given = (b, h, m, s), (1,) * (4 - len(mask)) + mask
            if len(mask) > 4 or any(a not in (1, f) for a, f in zip(given, full, strict=True)):
                raise BadTensorShape(where, f"mask is {list(mask)}", allowed=f"what broadcasts to {list(full)}")
        if lengths is not None and lengths != (b,):
            raise BadTensorShape(where, f"lengths is {list(lengths)}", allowed=f"[{b}], one a sequence")
        if values["window"] and not values["causal"]:
            raise InvalidArgument(where, f"window={values['window']} without causal", allowed="causal=True beside it")
        y = (b, m, h, v[3])
        return [y] if where == "attention" else [y, (b, m, h)]

    return shapes


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the tensors as given; the mask, where there is one, as [b, h, m, s], broadcast by stride 0."""
    q, k, v, mask, lengths = [*inputs, None, None][:5]
    assert q is not None and k is not None
    if mask is not None:
        mask = mask.broadcast_to((q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    return [q, k, v, mask, lengths], list(outputs)


def _weights(q: Any, k: Any, mask: Any, lengths: Any, values: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Return (scores [b, h, m, s], which keys are seen, magnitude of the scores' rounding).

    Scores of keys that are not seen are -inf.
    """
    b, m, h, d = q.shape
    s, g = k.shape[1:3]
    scale = values["scale"] or d**-0.5
    keys = np.repeat(k, h // g if g else 1, 2)
    scores = scale * np.einsum("bmhd,bshd->bhms", q, keys)
    with np.errstate(invalid="ignore"):
        rough = abs(scale) * np.einsum("bmhd,bshd->bhms", np.abs(q), np.abs(keys)) * (4 + np.sqrt(d))
    if values["softcap"]:
        scores = values["softcap"] * np.tanh(scores / values["softcap"])
        rough = rough + 16 * np.abs(scores)
    if mask is not None:
        scores = scores + np.broadcast_to(mask, scores.shape)
        rough = rough + np.abs(np.where(np.isfinite(scores), scores, 0))
    held = np.full(b, s) if lengths is None else np.where((lengths >= 0) & (lengths <= s), lengths, 0)
    at, place = np.arange(s), held[:, None] - m + np.arange(m)
    seen = np.broadcast_to(at < held[:, None, None], (b, m, s))
    if values["causal"]:
        seen = seen & (at <= place[..., None])
    if values["window"]:
        seen = seen & (at > place[..., None] - values["window"])
    seen = np.broadcast_to(seen[:, None], scores.shape)
    return np.where(seen, scores, -np.inf), seen, rough


def _parts(q: Any, k: Any, v: Any, mask: Any, lengths: Any, values: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return (y, log-sum-exp [b, m, h], error bound of y, error bound of the log-sum-exp)."""
    scores, seen, rough = _weights(q, k, mask, lengths, values)
    top = np.max(scores, -1, keepdims=True, initial=-np.inf)
    none = np.isneginf(top) & ~np.isnan(scores).any(-1, keepdims=True)
    shifted = scores - np.where(none, 0, top)
    e = np.where(seen & ~np.isneginf(scores), np.exp(shifted), 0)
    total = e.sum(-1, keepdims=True)
    p = e / np.where(none, 1, total)
    group = q.shape[2] // k.shape[2] if k.shape[2] else 1
    values_ = np.repeat(v, group, 2)
    used = np.where(p[..., None] == 0, 0, np.moveaxis(values_, 1, 2)[:, :, None]) if _odd(v) else None
    mix = np.einsum("bhms,bshe->bmhe", p, values_) if used is None else np.einsum("bhms,bhmse->bmhe", p, used)
    worst = np.max(np.where(seen & np.isfinite(rough), rough, 0), -1, keepdims=True, initial=0)
    finite = np.where(np.isfinite(shifted), np.abs(shifted), 0)
    near = p * (2 * worst + finite + 16 + np.sqrt(scores.shape[-1]))
    bound = np.einsum("bhms,bshe->bmhe", near, np.abs(np.where(np.isfinite(values_), values_, 0)))
    lse = np.where(none, -np.inf, top + np.log(total))[..., 0]
    return mix, np.moveaxis(lse, 1, 2), bound, np.moveaxis(2 * worst[..., 0] + 16 + 2 * np.abs(lse), 1, 2)


def _odd(v: Any) -> bool:
    """Return whether v has values that are not finite, which would give NaN for keys of weight 0."""
    return not np.isfinite(v).all()


def _attention(q: Any, k: Any, v: Any, mask: Any, lengths: Any, **values: Any) -> Any:
    return _parts(q, k, v, mask, lengths, values)[0]


def _attention_lse(q: Any, k: Any, v: Any, mask: Any, lengths: Any, **values: Any) -> tuple[Any, Any]:
    return _parts(q, k, v, mask, lengths, values)[:2]


def _flops(inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> float:
    q, k, v = inputs[:3]
    assert q is not None and k is not None and v is not None
    b, m, h, d = q.shape
    return 2.0 * b * m * h * k.shape[1] * (d + v.shape[3])


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
    **values: Any,
) -> Sample:
    shapes: dict[str, Any] = {"q": (b, m, h, d), "k": (b, s, g, d), "v": (b, s, g, e)}
    if mask is not None:
        shapes["mask"] = mask
    if lengths:
        shapes["lengths"] = (b,)
    return Sample(shapes, values, {"lengths": f"length:{s}"}, size=size)


def _samples() -> list[Sample]:
    return [
        _sample(1, 1, 7, 2, 1, 32, 32),
        _sample(1, 5, 5, 4, 2, 32, 64, causal=True),
        _sample(2, 3, 40, 4, 4, 64, 32, causal=True, scale=0.3),
        _sample(3, 1, 33, 4, 1, 32, 32, lengths=True, causal=True),
        _sample(2, 4, 19, 2, 2, 32, 32, mask=(4, 19)),
        _sample(2, 4, 19, 2, 2, 32, 32, mask=(2, 1, 4, 19), softcap=2.0, causal=True, lengths=True),
        _sample(1, 6, 70, 2, 1, 32, 32, causal=True, window=9),
        _sample(1, 9, 4, 2, 2, 32, 32, causal=True),
        _sample(1, 2, 300, 3, 1, 96, 96, causal=True),
        _sample(1, 3, 5, 6, 2, 5, 7, causal=True),
        _sample(2, 3, 0, 2, 1, 32, 32),
        _sample(0, 3, 4, 2, 1, 32, 32),
        # What a query does not see leaves no trace in its result, NaN neither
        Sample(
            {"q": (1, 24, 4, 32), "k": (1, 80, 2, 32), "v": (1, 80, 2, 32)},
            {"causal": True},
            {"v": "nan_behind"},
            types={"K": CACHED[:3]},
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
        ErrorCase(plain, InvalidArgument, {"window": 3}),
        ErrorCase(plain, InvalidArgument, {"softcap": -1}),
        ErrorCase(plain, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({**plain, "mask": (3, 5), "lengths": (2,)}, BadTensorDtype, dtypes={"lengths": F32}),
        ErrorCase(plain, BadTensorShape, outputs=wrong),
    ]


def _loops(
    e: Emitter[V], inputs: Sequence[V], values: Mapping[str, Any], outputs: Sequence[TensorDesc]
) -> tuple[V, ...]:
    """Emit the scores, what each query sees of them, their softmax, and the weighted values.

    All scores are in memory at a time.
    """
    q, k, v, mask, lengths = [*inputs, None, None][:5]
    assert q is not None and k is not None and v is not None
    b, m, h, d = q.spec.shape
    s, g = k.spec.shape[1:3]
    e_, element = v.spec.shape[3], outputs[0].dtype
    split = (g, h // g if g else 1)
    k, v = (e.cast(x, F32) if x.spec.dtype.block == 1 else e("dequantize", x, dtypes={"T": F32}) for x in (k, v))
    grouped = e("expand_shape", q, groups=(1, 1, 2, 1), shape=(b, m, *split, d))
    scores = e.loop("bmgrd,bsgd->bgrms", "x0 * x1", grouped, k, combine="sum", dtype=F32)
    body = f"x0 * {constant(values['scale'] or d**-0.5)}"
    if values["softcap"]:
        body = f"{constant(values['softcap'])} * tanh({body} / {constant(values['softcap'])})"
    given, maps = [scores, e.iota(s, F32), e.iota(m, F32)], "bgrms,s,m"
    if lengths is not None:
        # gather reports what is out of range, and gives 0 for it; it would count a negative number from the end
        given_lengths = e.loop("b->b", f"x0 if x0 >= 0 else x0 - {s + 1}", e.cast(lengths, I64))
        held = e("gather", e.iota(s + 1, I64), given_lengths)
        given, maps = [*given, held], f"{maps},b"
    if mask is not None:
        letters = "bhms"[4 - mask.spec.ndim :]
        mask, letters = e.squeeze(mask, letters, {"b": b, "h": h, "m": m, "s": s})
        if "h" in letters:
            at = letters.index("h")
            shape = (*mask.spec.shape[:at], *split, *mask.spec.shape[at + 1 :])
            mask = e("expand_shape", mask, groups=tuple(2 if c == "h" else 1 for c in letters), shape=shape)
        body, maps = f"{body} + x{len(given)}", f"{maps},{letters.replace('h', 'gr')}"
        given.append(mask)
    count = "x3" if lengths is not None else constant(s)
    seen, place = f"x1 < {count}", f"{count} - {constant(m)} + x2"
    if values["causal"]:
        seen = f"{seen} and x1 <= {place}"
    if values["window"]:
        seen = f"{seen} and x1 > {place} - {constant(values['window'])}"
    scores = e.loop(f"{maps}->bgrms", f"{body} if {seen} else -1e999", *given)
    top = e.loop("bgrms->bgrm", "x0", scores, combine="maximum")
    below = "0 if x0 == -1e999 else exp(x0 - (0 if x1 == -1e999 else x1))"
    powers = e.loop("bgrms,bgrm->bgrms", below, scores, top)
    total = e.loop("bgrms->bgrm", "x0", powers, combine="sum")
    shares = e.loop("bgrms,bgrm->bgrms", "x0 / (1 if x1 == 0 else x1)", powers, total)
    mixed = e.loop("bgrms,bsge->bmgre", "0 if x0 == 0 else x0 * x1", shares, v, combine="sum", dtype=element)
    y = e.collapse(mixed, (1, 1, 2, 1)) if (b, m, h, e_) != mixed.spec.shape else mixed
    if len(outputs) == 1:
        return (y,)
    lse = e.loop("bgrm,bgrm->bmgr", "x0 + log(x1)", top, total)
    return y, e.collapse(lse, (1, 1, 2))


def _declare(
    name: str, kind: str, outputs: str, reference: Callable[..., Any], scale: Callable[..., Any], doc: str
) -> Operator:
    return declare(
        name,
        kind,
        f"q: T[b, m, h, d], k: K[b, s, g, d], v: K[b, s, g, e], mask?: T[*r], lengths?: I[l] -> {outputs}",
        {"K": CACHED, "T": ACTIVATIONS, "I": INDICES},
        family="attention",
        stem="attention",
        doc=doc,
        reference=reference,
        tolerance=Tolerance(16, scale),
        attrs=attrs(
            "ATT1",
            flag("causal", False, "a query sees no key behind it, the last query being at the last key"),
            number("scale", 0.0, "factor of the scores; 0 for 1/sqrt(d)"),
            integer("window", 0, "a query sees that many keys, its own the last; 0 for all", minimum=0),
            number("softcap", 0.0, "scores become softcap · tanh(scores / softcap); 0 for not", minimum=0),
        ),
        shapes=_shapes(name),
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
    " A query that sees no key gives zeros. A length out of range counts as 0 and raises InvalidArgument at the call on"
    " a synchronous device, else at the next synchronise."
)
attention = _declare(
    "attention",
    "ATTN",
    "y: T[b, m, h, e]",
    _attention,
    lambda q, k, v, mask, lengths, **values: _parts(q, k, v, mask, lengths, values)[2],
    _DOC,
)
attention_lse = _declare(
    "attention_lse",
    "ATLS",
    "y: T[b, m, h, e], lse: F32[b, m, h]",
    _attention_lse,
    lambda q, k, v, mask, lengths, **values: _parts(q, k, v, mask, lengths, values)[2:],
    _DOC
    + (
        " lse is the logarithm of the sum of exponentials of each query's scores, by which parts of the keys are"
        " joined; -inf without keys."
    ),
)
