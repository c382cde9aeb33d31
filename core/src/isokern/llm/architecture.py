"""What a GGUF file says of a model of the Llama family: its sizes and its variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..ops.rope import frequencies, yarn_magnitude
from ..status import BadTensorShape, InvalidArgument
from .gguf import GGUF, quote_name


@dataclass(frozen=True)
class Variant:
    """How an architecture differs: the pairing of rope, biases of q, k and v, norms of each head of q and k."""

    pairing: str
    biases: bool = False
    head_norms: bool = False


VARIANTS = {
    "llama": Variant("adjacent"),
    "qwen2": Variant("half", biases=True),
    "qwen3": Variant("half", head_norms=True),
}
MOST = 1 << 24  # the largest value of any size: a product of two larger ones might not be a valid size


@dataclass(frozen=True)
class Config:
    """The sizes of a model.

    `rotated` elements of each head are rotated by `frequencies` (F32 [rotated / 2]), times `magnitude`.
    """

    architecture: str
    variant: Variant
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    value_dim: int
    vocabulary: int
    context: int
    epsilon: float
    rotated: int
    frequencies: Any
    magnitude: float

    @classmethod
    def of(cls, gguf: GGUF) -> Config:
        """Read the sizes from the metadata of `gguf`.

        InvalidArgument names the key that is missing, of another type or out of range.
        """
        meta = _Metadata(gguf.metadata)
        name = meta.text("general.architecture")
        if name not in VARIANTS:
            raise InvalidArgument(
                "GGUF",
                f"general.architecture is {quote_name(name)}",
                allowed=f"{', '.join(VARIANTS)}: what Isokern can run",
            )
        own = f"{name}."
        if meta.whole(own + "expert_count", 0, least=0):
            raise InvalidArgument("GGUF", f"{own}expert_count is above 0", allowed="dense models")
        table = gguf.tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise InvalidArgument(
                "GGUF", "tensor token_embd.weight is missing or no matrix", allowed="[vocabulary, width]"
            )
        width, heads = meta.whole(own + "embedding_length"), meta.whole(own + "attention.head_count")
        head_dim = meta.whole(own + "attention.key_length", width // heads)
        rotated = meta.whole(own + "rope.dimension_count", head_dim)
        if rotated > head_dim or rotated % 2:
            allowed = f"an even number up to {head_dim}"
            raise InvalidArgument("GGUF", f"{own}rope.dimension_count is {rotated}", allowed=allowed)
        kv_heads = meta.whole(own + "attention.head_count_kv", heads)
        if heads % kv_heads:
            raise InvalidArgument(
                "GGUF", f"{own}attention.head_count_kv is {kv_heads}", allowed=f"a divisor of {heads}"
            )
        turns, magnitude = _turns(gguf, meta, own, rotated)
        return cls(
            architecture=name,
            variant=VARIANTS[name],
            layers=meta.whole(own + "block_count"),
            width=width,
            inner=meta.whole(own + "feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=meta.whole(own + "attention.value_length", head_dim),
            vocabulary=table.shape[0],
            context=meta.whole(own + "context_length"),
            epsilon=meta.real(own + "attention.layer_norm_rms_epsilon"),
            rotated=rotated,
            frequencies=turns,
            magnitude=magnitude,
        )


class _Metadata:
    """Metadata values by key, checked to be of the type that is asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values

    def text(self, key: str, default: str | None = None) -> str:
        value = self.values.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self._wrong(key, f"an integer from {least} to {MOST}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self.values.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise self._wrong(key, "a number from 0")
        return float(value)

    def _wrong(self, key: str, allowed: str) -> InvalidArgument:
        value = self.values.get(key)
        found = "is missing" if value is None else f"is {quote_name(str(value))}"
        return InvalidArgument("GGUF", f"{key} {found}", allowed=allowed)


def _turns(gguf: GGUF, meta: _Metadata, own: str, rotated: int) -> tuple[Any, float]:
    """Return rope's frequencies and magnitude."""
    base, scaling = meta.real(own + "rope.freq_base", 10000.0), meta.text(own + "rope.scaling.type", "none")
    if scaling not in ("none", "linear", "yarn"):
        allowed = "none, linear and yarn"
        raise InvalidArgument("GGUF", f"{own}rope.scaling.type is {quote_name(scaling)}", allowed=allowed)
    factor = meta.real(own + "rope.scaling.factor", 1.0) or 1.0
    original = meta.whole(own + "rope.scaling.original_context_length", 0, least=0)
    if scaling == "yarn" and not original:
        original = meta.whole(own + "context_length")
    turns = frequencies(rotated, base, scaling, factor=factor, original_length=original)
    given = gguf.tensors.get("rope_freqs.weight")  # Llama 3: the divisor of each frequency
    if given is not None:
        if given.type != "F32" or given.shape != (rotated // 2,):
            allowed = f"F32 [{rotated // 2}]"
            raise BadTensorShape(
                "GGUF", f"tensor rope_freqs.weight is {given.type} {list(given.shape)}", allowed=allowed
            )
        with np.errstate(divide="ignore"):
            turns = (turns / given.array).astype(np.float32)
    return turns, yarn_magnitude(factor) if scaling == "yarn" else 1.0
