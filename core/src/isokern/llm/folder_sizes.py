"""Sizes that follow from several keys of config.json, or from one by a formula, for the model types that have some."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..status import InvalidArgument
from .metadata import MOST

MAX_LAYERS = 99_999  # names of tensors have no more digits


def read_size(config: Mapping[str, Any], key: str, default: int | None = None, most: int = MOST) -> int:
    """Return an integer of config.json; InvalidArgument if it is not from 1 to `most`."""
    value: Any = config.get(key)
    value = default if value is None else value
    if not is_integer(value) or not 1 <= value <= most:
        allowed = f"an integer from 1 to {most}"
        raise InvalidArgument("folder", f"config.json: {key} is {value!r}"[:120], allowed=allowed)
    return int(value)


def size_gpt2(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the inner width, by default four times the width."""
    return {"feed_forward_length": read_size(config, "n_inner", 4 * read_size(config, "n_embd"))}


def size_falcon(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the heads of keys: one, or in the newer layers as many as the file says."""
    heads = read_size(config, "num_attention_heads")
    kv_heads = read_size(config, "num_kv_heads", heads) if config.get("new_decoder_architecture") else 1
    inner = read_size(config, "ffn_hidden_size", 4 * read_size(config, "hidden_size"))
    return {"attention.head_count_kv": kv_heads, "feed_forward_length": inner}


def size_deepseek(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of heads: the cache holds latents and the rotated elements."""
    names = ("kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim")
    rank, rotated, plain, value = (read_size(config, name) for name in names)
    if config.get("head_dim") not in (None, rotated):
        raise InvalidArgument("folder", f"config.json: head_dim is {config['head_dim']}"[:120], allowed=str(rotated))
    made: dict[str, Any] = {"attention.key_length": rank + rotated, "attention.value_length": rank}
    made |= {"attention.key_length_mla": plain + rotated, "attention.value_length_mla": value}
    if config.get("topk_method") != "greedy" and config.get("n_group") is not None:
        made |= {"expert_group_count": config["n_group"], "expert_group_used_count": config.get("topk_group")}
    return made | {"rope.dimension_count": rotated}


def size_gemma3n(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return how many deviations above the mean gates open, of the share that is closed, and the inner widths."""
    layers, inner = read_size(config, "num_hidden_layers", most=MAX_LAYERS), config.get("intermediate_size")
    shares: Any = config.get("activation_sparsity_pattern")
    if shares is None:
        closed = 10 if layers > 10 else 0
        shares = [0.95] * closed + [0.0] * (layers - closed)
    if not isinstance(shares, list) or not all(isinstance(s, (int, float)) and 0 <= s < 1 for s in shares):
        raise InvalidArgument(
            "folder", "config.json: activation_sparsity_pattern is not a list of numbers from 0 below 1"
        )
    far = [NormalDist().inv_cdf(s) if s else -math.inf for s in shares]
    made: dict[str, Any] = {"activation_sparsity_scale": np.array(far, np.float32)}
    if isinstance(inner, list) and all(is_integer(i) and 0 < i <= MOST for i in inner):
        made["feed_forward_length"] = np.array(inner, np.int64)
    return made


def size_mamba(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the channels of a state space."""
    inner = read_size(config, "expand", 2) * read_size(config, "hidden_size")
    heads = read_size(config, "num_heads", 1)
    for key, size in (("intermediate_size", inner), ("d_inner", inner), ("head_dim", inner // heads)):
        if config.get(key) is not None and read_size(config, key) != size:
            raise InvalidArgument("folder", f"config.json: {key} is {config[key]}", allowed=f"{size}, of other keys")
    return {"ssm.inner_size": inner}


def check_rope_layers(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return nothing; InvalidArgument unless three of four layers have rope."""
    found = config.get("no_rope_layers")
    layers = read_size(config, "num_hidden_layers", most=MAX_LAYERS)
    if found is not None and found != [int(layer % 4 != 3) for layer in range(layers)]:
        raise InvalidArgument("folder", f"config.json: no_rope_layers is {found}"[:120], allowed="0 for every fourth")
    return {}


def check_mxfp4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return nothing; InvalidArgument if weights are quantized in any other way than MXFP4."""
    found = config.get("quantization_config")
    method = found.get("quant_method") if isinstance(found, dict) else found
    if method not in (None, "mxfp4"):
        raise InvalidArgument("folder", f"config.json: quantization_config has {method!r}"[:120], allowed="mxfp4")
    return {}
