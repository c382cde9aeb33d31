"""The configuration of a model, read from a GGUF file: its sizes, and which options of its architecture it uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..status import InvalidArgument
from .architectures import ARCHITECTURES, ATTENTION, EMBEDDING, LOGITS, REQUIRED, TEMPERATURE, Architecture
from .gguf import GGUF, quote_name
from .metadata import Metadata
from .parts import (
    AltUp,
    Experts,
    Latent,
    Mixing,
    Recurrent,
    read_altup,
    read_experts,
    read_latent,
    read_mixing,
    read_recurrent,
)
from .places import Kept, Step
from .ropes import LOCAL, LONG, ROPE, Rope, RopeTables, read_ropes


@dataclass(frozen=True)
class Config:
    """The sizes of a model, and what it has of what its architecture may have (`form`).

    `rotated` elements of each head are rotated as `ropes` say, by the name of the parameter; those of LONG are for
    caches of more than `original` positions. `windows` has the sliding window of each layer, 0 for none, and `turned`
    whether rope rotates its queries and keys. `stretch` are the positions after which a temperature of queries first
    changes, 0 for none. `consumed` are the tensors that became part of the configuration.
    """

    architecture: str
    form: Architecture
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
    ropes: Mapping[str, Rope]
    original: int
    windows: tuple[int, ...]
    turned: tuple[bool, ...]
    parallel: bool
    scales: Mapping[str, float]
    scale: float
    stretch: int
    experts: Experts | None
    latent: Latent | None
    recurrent: Recurrent | Mixing | None
    altup: AltUp | None
    consumed: frozenset[str]

    @property
    def frequencies(self) -> Any:
        """Rope's frequencies, F32 [rotated / 2]."""
        return self.ropes[ROPE].frequencies

    @property
    def magnitude(self) -> float:
        """The factor of the rotated elements."""
        return self.ropes[ROPE].magnitude

    @property
    def embedding_scale(self) -> float:
        """The factor of embeddings."""
        return math.sqrt(self.width) if self.form.sqrt_width else self.scales.get(EMBEDDING, 1.0)

    @property
    def logit_scale(self) -> float:
        """The factor of logits."""
        scale = self.scales.get(LOGITS, 1.0)
        return 1 / scale if self.form.divides else scale

    def rope(self, layer: int, length: int) -> str | None:
        """Return the name of the frequencies of a layer over a cache of `length` positions; None without rope."""
        if not self.turned[layer]:
            return None
        if self.windows[layer] and LOCAL in self.ropes:
            return LOCAL
        return LONG if LONG in self.ropes and length > self.original else ROPE

    def source(self, layer: int) -> int:
        """Return the layer whose keys and values a layer sees: its own, or the last like it that has some."""
        return find_source(layer, self.layers, self.altup, self.windows)

    def keep(self, step: Step, layer: int) -> Kept:
        """Return the shape and the dtype of what a layer keeps of the tokens of a step, by name."""
        if self.source(layer) != layer:
            return {}
        if self.recurrent is not None:
            return step.keep_states(self.recurrent.shapes)
        widths = {"keys": self.head_dim, "values": self.value_dim}
        return step.keep(self.kv_heads, widths, self.windows[layer])

    @classmethod
    def of(cls, gguf: GGUF) -> Config:
        """Read the sizes from the metadata of `gguf`.

        InvalidArgument names the key that is missing, of another type or out of range.
        """
        meta = Metadata(gguf.metadata)
        name = meta.text("general.architecture")
        if name not in ARCHITECTURES:
            raise InvalidArgument(
                "GGUF",
                f"general.architecture is {quote_name(name)}",
                allowed=f"{', '.join(ARCHITECTURES)}: what Isokern can run",
            )
        own, form = f"{name}.", ARCHITECTURES[name]
        meta.check_only(own + "attention.causal", True)
        meta.check_only("split.count", 1)
        meta.check_only("general.type", "model")
        table = gguf.tensors.get("token_embd.weight")
        if table is None or len(table.shape) != 2:
            raise InvalidArgument(
                "GGUF", "tensor token_embd.weight is missing or no matrix", allowed="[vocabulary, width]"
            )
        width, layers = meta.whole(own + "embedding_length"), meta.whole(own + "block_count")
        recurrent = _read_states(meta, own, form, width)
        heads, kv_heads, head_dim, value_dim = (0, 0, 0, 0) if recurrent else _heads(meta, own, width)
        context = meta.whole(own + "context_length")
        vocabulary = table.shape[0]
        meta.check_only(own + "vocab_size", vocabulary)
        tokens = gguf.metadata.get("tokenizer.ggml.tokens", ())
        if isinstance(tokens, tuple) and tokens and len(tokens) != vocabulary:
            given = f"tokenizer.ggml.tokens has {len(tokens)} tokens"
            raise InvalidArgument("GGUF", given, allowed=f"{vocabulary}, the rows of token_embd.weight")
        experts = read_experts(meta, own, form)
        ropes = read_ropes(gguf, meta, own, form, head_dim) if form.pairing else RopeTables()
        windows = _windows(meta, own, form, min(layers, len(gguf.tensors)), context)
        scales = {key: _scale(meta, own + key, default) for key, default in form.scales.items()}
        latent = read_latent(meta, own, (kv_heads, head_dim, value_dim), ropes.rotated) if form.latent else None
        altup = read_altup(meta, own, layers) if form.altup else None
        consumed = set(ropes.consumed)
        for layer in range(min(layers, len(gguf.tensors)) if altup else 0):
            if find_source(layer, layers, altup, windows) != layer:  # files have them all the same
                consumed |= {f"blk.{layer}.attn_{part}.weight" for part in ("k", "v", "k_norm")}
        if isinstance(recurrent, Mixing):  # the first layer has values of its own: others are mixed with them
            consumed |= {f"blk.0.time_mix_v{i}.weight" for i in range(3)}
        plain = width / heads if layers == form.scale_by_width else max(head_dim, 1)
        plain = latent.plain + ropes.rotated if latent else plain
        made = cls(
            architecture=name,
            form=form,
            layers=layers,
            width=width,
            inner=0 if recurrent else meta.whole(own + "feed_forward_length", experts.inner if experts else None),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_dim=value_dim,
            vocabulary=vocabulary,
            context=context,
            epsilon=meta.real(own + f"attention.layer_norm_{'rms_' if form.norm == 'rms_norm' else ''}epsilon"),
            rotated=ropes.rotated,
            ropes=ropes.ropes,
            original=ropes.original,
            windows=windows,
            turned=tuple(_is_turned(form, layer, windows) for layer in range(len(windows))),
            parallel=_is_parallel(gguf, meta, own, form),
            scales=scales,
            scale=scales.get(ATTENTION, 0.0) or plain**-0.5 * ropes.score_scale,
            stretch=_stretch(meta, own, scales, ropes.original),
            experts=experts,
            latent=latent,
            recurrent=recurrent,
            altup=altup,
            consumed=frozenset(consumed),
        )
        meta.check_all_read(own)
        return made


def find_source(layer: int, layers: int, altup: AltUp | None, windows: tuple[int, ...]) -> int:
    """Return the layer whose keys and values a layer sees: the last one before those that share, of its window.

    InvalidArgument if no layer before those that share has the window.
    """
    first = layers - altup.shared if altup else layers
    if layer < first:
        return layer
    like = [other for other in range(first) if windows[other] == windows[layer]]
    if not like:
        given = f"layer {layer} shares keys and values of a layer before {first} with its window, {windows[layer]}"
        raise InvalidArgument("GGUF", given, allowed=f"windows of these layers: {sorted(set(windows[:first]))}")
    return like[-1]


def _read_states(meta: Metadata, own: str, form: Architecture, width: int) -> Recurrent | Mixing | None:
    if form.state == "mixing":
        return read_mixing(meta, own, width)
    return read_recurrent(meta, own, form) if form.state else None


def _heads(meta: Metadata, own: str, width: int) -> tuple[int, int, int, int]:
    """Read how many heads queries and keys have, and the widths of keys and values."""
    heads = meta.whole(own + "attention.head_count")
    head_dim = meta.whole(own + "attention.key_length", max(width // heads, 1))
    kv_heads = meta.whole(own + "attention.head_count_kv", heads)
    if heads % kv_heads:
        raise InvalidArgument("GGUF", f"{own}attention.head_count_kv is {kv_heads}", allowed=f"a divisor of {heads}")
    return heads, kv_heads, head_dim, meta.whole(own + "attention.value_length", head_dim)


def _windows(meta: Metadata, own: str, form: Architecture, layers: int, context: int) -> tuple[int, ...]:
    """Return the sliding window of each layer, 0 if it sees the whole context.

    `attention.sliding_window_pattern` is how many layers repeat, of which the last has no window, or whether each has.
    """
    key, every = own + "attention.sliding_window", form.windows
    window = meta.whole(key, None if form.window == REQUIRED else form.window, least=0)
    pattern = meta.get(f"{key}_pattern", every)
    if isinstance(pattern, np.ndarray) and pattern.dtype == np.bool_ and every:
        if len(pattern) < layers:
            raise InvalidArgument("GGUF", f"{key}_pattern has {len(pattern)} layers", allowed=f"{layers} layers")
        seen = [bool(windowed) for windowed in pattern[:layers]]
    else:
        every = meta.whole(f"{key}_pattern", every, least=min(every, 1))
        seen = [every == 1 or (every > 0 and layer % every < every - 1) for layer in range(layers)]
    if not form.windows and 0 < window < context:
        raise InvalidArgument("GGUF", f"{key} is {window}", allowed=f"from {context}, the context")
    return tuple(window if windowed else 0 for windowed in seen)


def _is_turned(form: Architecture, layer: int, windows: tuple[int, ...]) -> bool:
    if form.rotated == "three":
        return layer % 4 != 3
    return bool(form.pairing) and (form.rotated == "all" or windows[layer] > 0 or not any(windows))


def _is_parallel(gguf: GGUF, meta: Metadata, own: str, form: Architecture) -> bool:
    if form.parallel != "file":
        return form.parallel == "always"
    told = meta.get(own + "use_parallel_residual", True)
    if not isinstance(told, bool):
        raise meta.wrong(own + "use_parallel_residual", "a bool")
    return told and f"blk.0.{form.before[1]}.weight" not in gguf.tensors


def _stretch(meta: Metadata, own: str, scales: Mapping[str, float], original: int) -> int:
    """Read the positions after which queries have another temperature: the context before rope was scaled."""
    if not scales.get(TEMPERATURE):
        return 0
    return meta.whole(f"{own}attention.temperature_length", original or None)


def _scale(meta: Metadata, key: str, default: float) -> float:
    value = meta.real(key, None if default == REQUIRED else default)
    if value == 0 and default:
        raise InvalidArgument("GGUF", f"{key} is 0", allowed="a number above 0")
    return value
