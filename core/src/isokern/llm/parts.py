"""Parts that only some architectures have, read from a file: experts, latent attention, and states in place of keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..status import InvalidArgument
from .architectures import Architecture
from .metadata import Metadata


@dataclass(frozen=True)
class Experts:
    """How many experts a layer has and a token uses, and their widths; `shared` is 0 without a shared expert.

    The first `dense` layers have none. `how` are the attributes of `topk_router`.
    """

    count: int
    used: int
    inner: int
    shared: int
    dense: int
    how: Mapping[str, Any]


@dataclass(frozen=True)
class Latent:
    """The sizes of latent attention: the ranks of keys and of queries (0: no latent), and the parts of a head.

    A head's key is `plain` elements and the rotated ones, its value `value`. With `absorbed` heads are multiplied by
    what makes keys and values of latents, and the cache holds latents.
    """

    rank: int
    query_rank: int
    plain: int
    value: int
    absorbed: bool


@dataclass(frozen=True)
class Mixing:
    """The sizes of RWKV-7's layers: heads, the channels of channel mixing, and the ranks of products of low rank.

    `gate_rank` is 0 without a gate.
    """

    width: int
    heads: int
    inner: int
    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what a layer keeps, by name: the rows that each part saw last, and the heads' states."""
        head = self.width // self.heads
        return {"shift": (1, 2, self.width), "wkv": (1, self.heads, head, head)}


@dataclass(frozen=True)
class AltUp:
    """The branches of a token: how many, which one is computed, and the width of what each layer gets of it.

    The last `shared` layers read the keys and values of those before. `sparsity` says for each layer how many standard
    deviations above the mean a gate opens; not above 0 for a layer whose gates are all open.
    """

    count: int
    active: int
    inner: int
    shared: int
    sparsity: tuple[float, ...]


@dataclass(frozen=True)
class Recurrent:
    """The sizes of a selective state space: what a layer keeps of all tokens so far.

    `inner` channels are convolved with `kernel` - 1 elements before, and each keeps `state` numbers. Mamba makes the
    steps of channels from a row of `rank` elements, and `even` is whether it is normalized; Mamba-2 has `heads` that
    share `groups` of B and C.
    """

    inner: int
    state: int
    kernel: int
    rank: int = 0
    even: bool = False
    heads: int = 0
    groups: int = 1

    @property
    def convolved(self) -> int:
        """The channels that are convolved: in Mamba-2 also B and C."""
        return self.inner + (2 * self.groups * self.state if self.heads else 0)

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of what a layer keeps, by name."""
        split = (self.heads, self.state, self.inner // self.heads) if self.heads else (self.inner, self.state)
        return {"conv": (1, self.convolved, self.kernel - 1), "ssm": (1, *split)}


def read_experts(meta: Metadata, own: str, form: Architecture) -> Experts | None:
    """Read the sizes of experts; None if the architecture or the file has none."""
    router = form.router
    if router is None:
        for key in ("expert_count", "expert_used_count"):
            meta.check_only(own + key, 0)
        return None
    count = meta.whole(own + "expert_count", 0, least=0)
    if not count:
        meta.check_only(own + "expert_used_count", 0)
        return None
    used = meta.whole(own + "expert_used_count")
    if used > count:
        raise InvalidArgument("GGUF", f"{own}expert_used_count is {used}", allowed=f"up to {count}, the experts")
    how: dict[str, Any] = {"top": used, "scoring": router.scoring, "normalize": router.normalize}
    inner = meta.whole(own + "expert_feed_forward_length", meta.get(own + "feed_forward_length"))
    shared, dense = 0, 0
    if router.told:
        shared = inner * meta.whole(own + "expert_shared_count", 0, least=0)
        dense = meta.whole(own + "leading_dense_block_count", 0, least=0)
        how |= _routing(meta, own, count, used)
    elif router.shared:
        default = meta.get(own + "feed_forward_length", inner) if router.shared == "gated" else 0
        shared = meta.whole(own + "expert_shared_feed_forward_length", default, least=0)
    return Experts(count, used, inner, shared, dense, how)


def _routing(meta: Metadata, own: str, count: int, used: int) -> dict[str, Any]:
    """Return the attributes of a router that the file describes; groups count as DeepSeek-V2 and V3 have it."""
    kind = meta.whole(own + "expert_gating_func", 1)
    if kind not in (1, 2):
        raise InvalidArgument("GGUF", f"{own}expert_gating_func is {kind}", allowed="1 (softmax) and 2 (sigmoid)")
    normalize = meta.get(own + "expert_weights_norm", False)
    if not isinstance(normalize, bool):
        raise meta.wrong(own + "expert_weights_norm", "a bool")
    groups = meta.whole(own + "expert_group_count", 1)
    best = meta.whole(own + "expert_group_used_count", groups)
    if (
        count % groups
        or best > groups
        or used > count // groups * best
        or (kind == 2 and count // groups < 2 <= groups)
    ):
        given = f"{own}expert_group_count is {groups}, expert_group_used_count {best}"
        raise InvalidArgument("GGUF", given, allowed=f"groups of {count} experts with {used} or more in those used")
    return {
        "scoring": "softmax" if kind == 1 else "sigmoid",
        "normalize": normalize,
        "scale": meta.real(own + "expert_weights_scale", 1.0) or 1.0,
        "groups": groups,
        "top_groups": best,
        "group_score": "max" if kind == 1 else "top2",
    }


def read_latent(meta: Metadata, own: str, cached: tuple[int, int, int], rotated: int) -> Latent:
    """Read the sizes of latent attention, and those of its cache: heads, and the widths of keys and values."""
    rank = meta.whole(own + "attention.kv_lora_rank")
    query_rank = meta.whole(own + "attention.q_lora_rank", 0, least=0)
    head = meta.whole(own + "attention.key_length_mla", 0, least=0)
    if not head:
        latent = Latent(rank, query_rank, cached[1] - rotated, cached[2], False)
    else:
        value = meta.whole(own + "attention.value_length_mla")
        latent = Latent(rank, query_rank, head - rotated, value, True)
        if cached != (1, rank + rotated, rank):
            given = f"{own}attention.head_count_kv, key_length and value_length are {list(cached)}"
            raise InvalidArgument("GGUF", given, allowed=f"{[1, rank + rotated, rank]}, with key_length_mla")
    if latent.plain < 1:
        raise InvalidArgument("GGUF", f"{own}rope.dimension_count is {rotated}", allowed="less than a head's width")
    return latent


def read_mixing(meta: Metadata, own: str, width: int) -> Mixing:
    """Read the sizes of RWKV-7's layers."""
    meta.check_only(own + "attention.head_count", 0)
    head = meta.whole(own + "wkv.head_size")
    if width % head:
        raise InvalidArgument("GGUF", f"{own}wkv.head_size is {head}", allowed=f"a divisor of {width}")
    rank = own + "attention.{}_lora_rank"
    return Mixing(
        width,
        width // head,
        meta.whole(own + "feed_forward_length"),
        decay_rank=meta.whole(rank.format("decay")),
        rate_rank=meta.whole(rank.format("iclr")),
        value_rank=meta.whole(rank.format("value_residual_mix")),
        gate_rank=meta.whole(rank.format("gate"), 0, least=0),
    )


def read_altup(meta: Metadata, own: str, layers: int) -> AltUp:
    """Read the sizes of branches."""
    count = meta.whole(own + "altup.num_inputs", least=2)
    active = meta.whole(own + "altup.active_idx", 0, least=0)
    if active >= count:
        raise InvalidArgument("GGUF", f"{own}altup.active_idx is {active}", allowed=f"up to {count - 1}")
    shared = meta.whole(own + "attention.shared_kv_layers", 0, least=0)
    if shared >= layers:
        given = f"{own}attention.shared_kv_layers is {shared}"
        raise InvalidArgument("GGUF", given, allowed=f"up to {layers - 1}, fewer than the layers")
    key = own + "activation_sparsity_scale"
    sparsity = meta.get(key)
    if not isinstance(sparsity, np.ndarray) or sparsity.dtype.kind != "f" or len(sparsity) < layers:
        raise meta.wrong(key, f"{layers} floats, one for each layer")
    if not np.all(sparsity < np.inf):  # minus infinity is for a layer without
        raise meta.wrong(key, "numbers, or minus infinity")
    inner = meta.whole(own + "embedding_length_per_layer_input")
    return AltUp(count, active, inner, shared, tuple(float(far) for far in sparsity[:layers]))


def read_recurrent(meta: Metadata, own: str, form: Architecture) -> Recurrent:
    """Read the sizes of a selective state space."""
    for key in ("attention.head_count", "feed_forward_length"):
        meta.check_only(own + key, 0)
    inner, state = meta.whole(own + "ssm.inner_size"), meta.whole(own + "ssm.state_size")
    kernel, rank = meta.whole(own + "ssm.conv_kernel", least=2), meta.whole(own + "ssm.time_step_rank")
    if form.state == "selective":
        even = meta.get(own + "ssm.dt_b_c_rms", False)
        if not isinstance(even, bool):
            raise meta.wrong(own + "ssm.dt_b_c_rms", "a bool")
        return Recurrent(inner, state, kernel, rank, even)
    groups = meta.whole(own + "ssm.group_count", 1)
    if inner % rank or rank % groups or inner % groups:
        given = f"{own}ssm.inner_size is {inner}, time_step_rank {rank}, group_count {groups}"
        raise InvalidArgument("GGUF", given, allowed="heads of one width, and groups of as many heads")
    return Recurrent(inner, state, kernel, heads=rank, groups=groups)
