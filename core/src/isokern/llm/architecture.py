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
# Keys of an architecture that say nothing of what is computed
UNUSED = ("pooling_type", "rope.scaling.finetuned", "tensor_data_layout")
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
        for key, only in (("expert_count", 0), ("expert_used_count", 0), ("attention.causal", True)):
            meta.check_only(own + key, only)
        meta.check_only("split.count", 1)
        meta.check_only("general.type", "model")
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
        context = meta.whole(own + "context_length")
        if meta.whole(own + "attention.sliding_window", context, least=0) not in (0, *range(context, MOST + 1)):
            given = f"{own}attention.sliding_window is {meta.values[own + 'attention.sliding_window']}"
            raise InvalidArgument("GGUF", given, allowed=f"from {context}, the context")
        vocabulary = table.shape[0]
        meta.check_only(own + "vocab_size", vocabulary)
        tokens = gguf.metadata.get("tokenizer.ggml.tokens", ())
        if isinstance(tokens, tuple) and tokens and len(tokens) != vocabulary:
            given = f"tokenizer.ggml.tokens has {len(tokens)} tokens"
            raise InvalidArgument("GGUF", given, allowed=f"{vocabulary}, the rows of token_embd.weight")
        turns, magnitude = _turns(gguf, meta, own, rotated)
        made = cls(
            architecture=name,
            variant=VARIANTS[name],
            layers=meta.whole(own + "block_count"),
            width=width,
            inner=meta.whole(own + "feed_forward_length"),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=meta.whole(own + "attention.value_length", head_dim),
            vocabulary=vocabulary,
            context=context,
            epsilon=meta.real(own + "attention.layer_norm_rms_epsilon"),
            rotated=rotated,
            frequencies=turns,
            magnitude=magnitude,
        )
        meta.check_all_read(own)
        return made


class _Metadata:
    """Metadata values by key, checked to be of the type that is asked for; `read` are those that were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return self.values.get(key, default)

    def check_only(self, key: str, only: Any) -> None:
        """Refuse another value than the only one that Isokern can run."""
        value = self.get(key, only)
        if type(value) is not type(only) or value != only:
            raise self._wrong(key, f"{only}: Isokern can run no other")

    def check_all_read(self, own: str) -> None:
        """Refuse keys of the architecture that nothing here reads: the model would compute something else."""
        strange = [k for k in self.values if k.startswith(own) and k not in self.read]
        strange = [k for k in strange if k.removeprefix(own) not in UNUSED]
        if strange:
            named = ", ".join(quote_name(k) for k in strange[:8])
            raise InvalidArgument("GGUF", f"{len(strange)} keys are not known here: {named}", allowed="none of such")

    def text(self, key: str, default: str | None = None) -> str:
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, "a string")
        return value

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self._wrong(key, f"an integer from {least} to {MOST}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < float("inf"):
            raise self._wrong(key, "a number from 0")
        return float(value)

    def _wrong(self, key: str, allowed: str) -> InvalidArgument:
        value = self.values.get(key)
        found = "is missing" if value is None else f"is {quote_name(str(value))}"
        return InvalidArgument("GGUF", f"{key} {found}", allowed=allowed)


def _turns(gguf: GGUF, meta: _Metadata, own: str, rotated: int) -> tuple[Any, float]:
    """Return rope's frequencies and magnitude.

    As for llama.cpp, a factor without a type is linear, its old key is `rope.scale_linear`, and an attention factor
    multiplies the magnitude whatever the type.
    """
    scale = f"{own}rope.scaling."
    base, scaling = meta.real(own + "rope.freq_base", 10000.0), meta.text(scale + "type", "linear")
    if scaling not in ("none", "linear", "yarn"):
        raise InvalidArgument("GGUF", f"{scale}type is {quote_name(scaling)}", allowed="none, linear and yarn")
    old = meta.real(own + "rope.scale_linear", 0.0)
    factor = meta.real(scale + "factor", old) or 1.0
    original = meta.whole(scale + "original_context_length", 0, least=0)
    if scaling == "yarn" and not original:
        original = meta.whole(own + "context_length")
    meta.check_only(scale + "yarn_ext_factor", 1.0)
    slow, fast = meta.real(scale + "yarn_beta_slow", 1.0), meta.real(scale + "yarn_beta_fast", 32.0)
    turns = frequencies(rotated, base, scaling, factor=factor, original_length=original, slow=slow, fast=fast)
    given = gguf.tensors.get("rope_freqs.weight")  # Llama 3: the divisor of each frequency
    if given is not None:
        if given.type != "F32" or given.shape != (rotated // 2,):
            allowed = f"F32 [{rotated // 2}]"
            raise BadTensorShape(
                "GGUF", f"tensor rope_freqs.weight is {given.type} {list(given.shape)}", allowed=allowed
            )
        with np.errstate(divide="ignore"):
            turns = (turns / given.array).astype(np.float32)
    magnitude = yarn_magnitude(factor) if scaling == "yarn" else 1.0
    return turns, magnitude * meta.real(scale + "attn_factor", 1.0)
