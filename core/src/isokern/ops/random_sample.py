"""random_sample: a token drawn from logits, the same one bit for bit on every device.

Everything that rounds is a sequence of single F32 operations; the rest is integers, so sums do not depend on the order:

1. l = the logit in F32. For tokens in `history` it is divided by `penalty` where above 0, else multiplied by it (one
   rounding). Then -0 becomes 0.
2. At temperature 0 the token is the first largest l. Otherwise c = 1.442695 / temperature and z = (l - max) c, each
   step rounded (z is 0 where l is the maximum). The weight w is 0 for z <= -32, else P(f) >> n, where -z 2^24 truncated
   to an integer is n 2^24 + f. P(f), about 2^31 2^(-f / 2^24), is the polynomial `POWERS` by Horner's rule: a =
   POWERS[0]; then a = POWERS[i] + (a g >> 24) with g = 2^24 - f.
3. The tokens in order of l, largest first and equal ones by index, are reduced to a prefix: first to top_k of them
   (0: all); then to the fewest that weigh at least top_p of the sum S of what is left, namely those before which the
   weights sum to less than (S >> 32) P + ((S mod 2^32) P >> 32), P = top_p 2^32 truncated to an integer (the first
   always stays); then to those with w >= (M floor(min_p 2^32)) >> 32, M being the largest weight.
4. r is 64 bits of Philox4x32-10 (Salmon et al. 2011): the key is the two halves of seed, the counter (row, step's two
   halves, 0), and r words 0 and 1, low word first. With S the sum of the remaining weights, the token is the first by
   index at which the weights so far sum to more than floor(r S / 2^64).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..declare import ErrorCase, Sample, SampleTable, declare
from ..declare.attributes import attrs, integer, number
from ..declare.normal_form import Descs, coalesce
from ..dtypes import ACTIVATIONS, F32, F64, INDICES, TOKENS
from ..layout import TensorDesc
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument

POWERS = (16377, 165394, 1431680, 10327387, 59597083, 257941248, 744261118, 1073741824)
"""round(2^30 ln(2)^k / k!) for k = 7 … 0: the series of 2^30 2^(g / 2^24), whose sum is at most 2^31."""
_U64 = (1 << 64) - 1


def philox(seed: int, row: int, step: int) -> int:
    """Return 64 bits of Philox4x32-10 for a seed, a row and a step (all modulo 2^64, the row modulo 2^32)."""
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    c = [row & 0xFFFFFFFF, step & 0xFFFFFFFF, step >> 32 & 0xFFFFFFFF, 0]
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0] | c[1] << 32


def weights(logits: Any, temperature: float) -> Any:
    """Return the integer weights (uint64) of F32 logits without NaN, after the penalty."""
    top = logits.max()
    c = np.float32(1.442695) / np.float32(temperature)
    with np.errstate(invalid="ignore", over="ignore"):
        z = np.where(logits == top, np.float32(0), (logits - top) * c).astype(np.float32)
        kept = z > np.float32(-32)
        fixed = np.where(kept, -z * np.float32(1 << 24), np.float32(0)).astype(np.uint64)
    n, g = fixed >> np.uint64(24), np.uint64(1 << 24) - (fixed & np.uint64((1 << 24) - 1))
    a = np.full(g.shape, POWERS[0], np.uint64)
    for power in POWERS[1:]:
        a = np.uint64(power) + (a * g >> np.uint64(24))
    return np.where(kept, a >> n, np.uint64(0))


def fraction(share: float) -> int:
    """Return a share in [0, 1] (rounded to F32) times 2^32, truncated to an integer."""
    return int(float(np.float32(share)) * 2.0**32)


def _row(logits: Any, history: Any, row: int, step: int, values: Mapping[str, Any]) -> int:
    with np.errstate(over="ignore", invalid="ignore"):
        l = logits.astype(np.float32)  # noqa: E741  # as in the text above
        known = np.unique(history[(history >= 0) & (history < l.size)])
        penalty = np.float32(values["penalty"])
        l[known] = np.where(l[known] > 0, l[known] / penalty, l[known] * penalty)
        l = l + np.float32(0)  # noqa: E741
    if np.isnan(l).any() or not (l > -np.inf).any():
        return 0
    if values["temperature"] == 0:
        return int(np.argmax(l))
    w = [int(v) for v in weights(l, values["temperature"])]
    order = [int(i) for i in np.argsort(-l, kind="stable")]
    order = order[: values["top_k"] or len(order)]
    total, share, before = sum(w[i] for i in order), fraction(values["top_p"]), 0
    target = (total >> 32) * share + ((total & 0xFFFFFFFF) * share >> 32)
    few: list[int] = []
    for i in order:
        if few and before >= target:
            break
        few.append(i)
        before += w[i]
    least = w[order[0]] * fraction(values["min_p"]) >> 32
    kept = sorted(i for i in few if w[i] >= least)
    at, summed = philox(values["seed"], row, step) * sum(w[i] for i in kept) >> 64, 0
    for i in kept:
        summed += w[i]
        if summed > at:
            return i
    raise AssertionError("the largest weight is never 0")


def _reference(logits: Any, history: Any, steps: Any, **values: Any) -> Any:
    flat = logits.reshape(math.prod(logits.shape[:-1]), logits.shape[-1])
    past = np.zeros((len(flat), 0), np.int64) if history is None else history.reshape(len(flat), history.shape[-1])
    counted = [values["step"]] * len(flat) if steps is None else [int(s) for s in steps.reshape(-1)]
    tokens = [_row(x, past[row], row, counted[row], values) for row, x in enumerate(flat)]
    return np.array(tokens, np.int64).reshape(logits.shape[:-1])


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    logits, history, steps = [*inputs, None, None][:3]
    if logits[-1] == 0 and 0 not in logits[:-1]:
        raise BadTensorShape("random_sample", f"logits are {list(logits)}", allowed="at least one token")
    if history is not None and history[:-1] != logits[:-1]:
        allowed = f"{[*logits[:-1], 'any']}"
        raise BadTensorShape("random_sample", f"history is {list(history)}", allowed=allowed)
    if steps is not None and steps != logits[:-1]:
        raise BadTensorShape("random_sample", f"steps is {list(steps)}", allowed=f"{list(logits[:-1])}")
    if values["top_p"] == 0 or values["penalty"] == 0:
        given = f"top_p={values['top_p']:g}, penalty={values['penalty']:g}"
        raise InvalidArgument("random_sample", given, allowed="above 0")
    return [logits[:-1]]


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return rows: y[r] and steps[r] with a last dim of 1, logits[r, v], history[r, h].

    The dims r stay in order, since rows are counted by them.
    """
    logits, history, steps = [*inputs, None, None][:3]
    lifted = [d and TensorDesc(d.dtype, (*d.shape, 1), (*d.strides, 0), d.offset) for d in (*outputs, steps)]
    merged = coalesce([*lifted, logits, history], keep=1, in_order=True)
    y, steps, logits, history = merged
    return [logits, history, steps], [y]


_SAMPLES: SampleTable = [
    ((7,), None, False, {}, "small"),
    ((3, 50), None, False, {"seed": -5, "step": 9, "temperature": 0.7}, "small"),
    ((2, 3, 301), None, True, {"seed": 1 << 40, "top_k": 17}, "small"),
    ((5, 1025), (5, 20), True, {"top_p": 0.8, "penalty": 1.3}, "small"),
    ((5, 1025), None, False, {"min_p": 0.05, "temperature": 2.5, "step": 1 << 35}, "small"),
    ((4, 600), (4, 9), False, {"temperature": 0, "penalty": 2.0}, "small"),
    ((4, 97), None, True, {"top_k": 40, "top_p": 0.9, "min_p": 0.02, "temperature": 0.01}, "small"),
    ((3, 1), None, False, {"top_k": 5}, "small"),
    ((3, 3000), None, True, {"top_k": 2000, "top_p": 0.7, "min_p": 0.01, "temperature": 3.0}, "small"),
    ((0, 5), None, False, {}, "small"),
    ((9, 32000), (9, 64), True, {"top_k": 50, "top_p": 0.95, "temperature": 0.8, "penalty": 1.1}, "wide"),
    ((1, 32000), None, False, {"top_k": 40, "top_p": 0.95, "temperature": 0.8}, "medium"),
    ((64, 128256), None, False, {"top_k": 40, "top_p": 0.95, "temperature": 0.8}, "large"),
]


random_sample = declare(
    "random_sample",
    "RSMP",
    "logits: T[*b, v], history?: I[*p], steps?: J[*q] -> y: I64[*b]",
    {"T": ACTIVATIONS, "I": TOKENS, "J": INDICES},  # no F64: each step is defined in F32; cast logits of F64 first
    family="sampling",
    doc=(
        "A token for each row of logits: softmax((logits, those of `history` penalised) / temperature), cut to top_k,"
        " top_p and min_p in this order, drawn by Philox4x32-10 from seed, row and step (`steps` a row, or the"
        " attribute). The same token by bits on every device: see isokern.ops.random_sample. Entries of history that"
        " are no token are passed over. A row with NaN, or with nothing above -∞, gives 0 and raises InvalidArgument at"
        " the call on a synchronous device, else at the next synchronise."
    ),
    reference=_reference,
    attrs=attrs(
        "RSM1",
        integer("seed", 0, "key of the generator"),
        integer("step", 0, "counter of the generator, where no steps are given"),
        number("temperature", 1.0, "divides the logits; 0 takes the largest", minimum=0),
        integer("top_k", 0, "keep that many of the largest; 0 for all", minimum=0),
        number("top_p", 1.0, "keep the fewest that weigh this share; above 0", minimum=0, maximum=1),
        number("min_p", 0.0, "keep what weighs this share of the largest", minimum=0, maximum=1),
        number("penalty", 1.0, "repetition penalty (Keskar et al. 2019); above 0", minimum=0),
    ),
    shapes=_shapes,
    normal_form=_normal_form,
    domains={"logits": "logits"},
    samples=lambda: [
        Sample(
            {"logits": x, **({"history": h} if h is not None else {}), **({"steps": x[:-1]} if steps else {})},
            values,
            {"history": f"index:{x[-1] + 1}", "steps": "any"},
            size=size,
        )
        for x, h, steps, values, size in _SAMPLES
    ],
    errors=[
        ErrorCase({"logits": ()}, BadTensorShape),
        ErrorCase({"logits": (3, 0)}, BadTensorShape),
        ErrorCase({"logits": (3, 5), "history": (2, 4)}, BadTensorShape),
        ErrorCase({"logits": (3, 5), "history": (3, 4), "steps": (4,)}, BadTensorShape),
        ErrorCase({"logits": (3, 5)}, InvalidArgument, {"temperature": -1}),
        ErrorCase({"logits": (3, 5)}, InvalidArgument, {"top_p": 0}),
        ErrorCase({"logits": (3, 5)}, InvalidArgument, {"top_p": 1.5}),
        ErrorCase({"logits": (3, 5)}, InvalidArgument, {"penalty": 0}),
        ErrorCase({"logits": (3, 5)}, BadTensorDtype, dtypes={"T": F64}),
        ErrorCase({"logits": (3, 5), "history": (3, 4)}, BadTensorDtype, dtypes={"history": F32}),
    ],
    exact=True,
    device_error="row {at} of the logits has NaN at {value} (or, at -1, nothing above -inf)",
)
