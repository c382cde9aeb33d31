"""The rope of a GGUF file: the frequencies of each kind of layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..ops.rope import frequencies, yarn_magnitude
from ..status import BadTensorShape, InvalidArgument
from .architectures import Architecture
from .gguf import GGUF, quote_name
from .metadata import Metadata

# Parameters that the configuration computes: no tensor of a file has them as they are
ROPE, LOCAL, LONG = "rope_freqs", "rope_freqs_local", "rope_freqs_long"


@dataclass(frozen=True)
class Rope:
    """The angle by which a position rotates each pair, F32 [rotated / 2], and the factor of the rotated elements."""

    frequencies: Any
    magnitude: float


@dataclass(frozen=True)
class RopeTables:
    """The frequencies that rotate the first `rotated` elements of a head, by the name of the parameter.

    LOCAL is for layers with a window, LONG for caches of more than `original` positions. `consumed` are the tensors
    from which the tables were computed. Scores of attention are multiplied by `score_scale`.
    """

    rotated: int = 0
    ropes: Mapping[str, Rope] = field(default_factory=dict)
    original: int = 0
    consumed: frozenset[str] = frozenset()
    score_scale: float = 1.0


def read_ropes(gguf: GGUF, meta: Metadata, own: str, form: Architecture, head_dim: int) -> RopeTables:
    """Read the tables of a file, whose keys begin with `own`.

    As for llama.cpp, a factor without a type is linear, its old key is `rope.scale_linear`, and an attention factor
    multiplies the magnitude whatever the type. Tensors with a factor for each pair are LongRoPE's.
    """
    rotated = meta.whole(own + "rope.dimension_count", head_dim)
    if rotated > head_dim or rotated % 2:
        allowed = f"an even number up to {head_dim}"
        raise InvalidArgument("GGUF", f"{own}rope.dimension_count is {rotated}", allowed=allowed)
    scale = f"{own}rope.scaling."
    base, scaling = meta.real(own + "rope.freq_base", 10000.0), meta.text(scale + "type", "linear")
    long, short = (_divisors(gguf, f"rope_factors_{name}.weight", rotated) for name in ("long", "short"))
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise InvalidArgument(
            "GGUF", f"{scale}type is {quote_name(scaling)}", allowed="none, linear, yarn and longrope"
        )
    if (long is None) != (short is None) or (scaling == "longrope" and long is None):
        given = f"{'long and short' if long is short else 'long' if long is None else 'short'} rope factors are missing"
        raise InvalidArgument("GGUF", given, allowed="tensors rope_factors_long.weight and rope_factors_short.weight")
    old = meta.real(own + "rope.scale_linear", 0.0)
    factor = meta.real(scale + "factor", old) or 1.0
    original = meta.whole(scale + "original_context_length", 0, least=0)
    if not original and (scaling == "yarn" or long is not None):
        original = meta.whole(own + "context_length")
    meta.check_only(scale + "yarn_ext_factor", 1.0)
    slow, fast = meta.real(scale + "yarn_beta_slow", 1.0), meta.real(scale + "yarn_beta_fast", 32.0)
    kind = "none" if scaling == "longrope" else scaling
    plain = frequencies(rotated, base, kind, factor=factor, original_length=original, slow=slow, fast=fast)
    magnitude = yarn_magnitude(factor) if scaling == "yarn" else 1.0
    score_scale = 1.0
    if form.latent:  # DeepSeek's YaRN scales scores, also those of elements that are not rotated
        score_scale = (1 + meta.real(scale + "yarn_log_multiplier", 0.0) * math.log(max(factor, 1.0))) ** 2
        magnitude = 1.0
    elif scaling == "yarn":  # elsewhere it is how much of the magnitude is taken back
        magnitude /= 1 + 0.1 * meta.real(scale + "yarn_log_multiplier", 0.0) * math.log(max(factor, 1.0))
    magnitude *= meta.real(scale + "attn_factor", 1.0)
    given = _divisors(gguf, "rope_freqs.weight", rotated)  # Llama 3: the divisor of each frequency
    ropes = {ROPE: Rope(_divide(plain, given if short is None else short), magnitude)}
    if long is not None:
        ropes[LONG] = Rope(_divide(plain, long), magnitude)
    local = meta.real(own + "rope.freq_base_swa", form.local_theta or base) if form.windows > 1 else base
    if form.windows > 1 and (local != base or not form.local_scaling):
        ropes[LOCAL] = Rope(frequencies(rotated, local), 1.0)
    consumed = {
        f"rope_{name}.weight"
        for name, tensor in (("freqs", given), ("factors_long", long), ("factors_short", short))
        if tensor is not None
    }
    if given is not None and short is not None:
        consumed.discard("rope_freqs.weight")  # factors and divisors exclude each other: the former are applied
    return RopeTables(rotated, ropes, original, frozenset(consumed), score_scale)


def _divisors(gguf: GGUF, name: str, rotated: int) -> Any:
    """Return the tensor of a divisor for each frequency, None if the file has none."""
    given = gguf.tensors.get(name)
    if given is None:
        return None
    if given.type != "F32" or given.shape != (rotated // 2,):
        raise BadTensorShape(
            "GGUF", f"tensor {name} is {given.type} {list(given.shape)}", allowed=f"F32 [{rotated // 2}]"
        )
    return given.array


def _divide(turns: Any, divisors: Any) -> Any:
    if divisors is None:
        return turns
    with np.errstate(divide="ignore"):
        return (turns / divisors).astype(np.float32)
