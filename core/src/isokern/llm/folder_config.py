"""What config.json says of a model, in GGUF's keys. What sizes are allowed to be is checked where GGUF's are."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..ops.rope import frequencies, longrope_magnitude, yarn_magnitude
from ..status import InvalidArgument
from .architectures import ARCHITECTURES, Architecture
from .folder_table import MODEL_TYPES
from .folder_types import ACTIVATIONS, FLAGS, OF_ROPE, OF_WINDOWS, READ, SIZES, UNUSED, ModelType
from .gguf import GGUFTensor, quote_name
from .metadata import MOST

# By the type of rope: the keys that say how it is scaled
SCALINGS = {
    "default": (),
    "linear": ("factor",),
    "yarn": (
        *("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"),
        *("truncate", "mscale", "mscale_all_dim"),
    ),
    "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    "longrope": ("factor", "original_max_position_embeddings", "attention_factor", "short_factor", "long_factor"),
}
WINDOWED, WHOLE = "sliding_attention", "full_attention"


def wrong(file: str, problem: str, allowed: str = "", hint: str = "") -> InvalidArgument:
    """Return the error of a file of a folder."""
    return InvalidArgument("folder", f"{file}: {problem}", allowed=allowed, hint=hint)


def wrong_value(key: str, value: Any, allowed: str) -> InvalidArgument:
    """Return the error of a key of config.json."""
    return wrong("config.json", f"{key} is {quote_name(str(value))}", allowed)


def read_config(config: Mapping[str, Any]) -> tuple[ModelType, dict[str, Any], dict[str, GGUFTensor]]:
    """Return the model type, GGUF's keys, and the tensors that follow from a configuration.

    InvalidArgument names a key that is not known, or whose value Isokern cannot run.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        raise wrong_value("model_type", kind, ", ".join(MODEL_TYPES))
    model = MODEL_TYPES[kind]
    known = {*READ, *UNUSED, *ACTIVATIONS, *SIZES, *model.sizes, *model.only}
    strange = [key for key in config if key not in known]
    if strange:
        named = ", ".join(quote_name(key) for key in strange[:8])
        raise wrong("config.json", f"{len(strange)} keys are not known here: {named}", "none of such")
    _check_numbers({key: value for key, value in config.items() if key not in UNUSED and key not in model.only})
    given, form = {**model.defaults, **config}, ARCHITECTURES[model.architecture]
    unread = {*(() if form.pairing else OF_ROPE), *(OF_WINDOWS if form.state else ())} - {*model.sizes}
    only = {**dict.fromkeys(unread, (None,)), **model.only, **dict.fromkeys(ACTIVATIONS, (None, *model.act))}
    only |= dict.fromkeys(FLAGS, (False, True))
    for key, values in only.items():
        if key in given and (given[key] not in values or (key in FLAGS and not isinstance(given[key], bool))):
            raise wrong_value(key, given[key], ", ".join(str(v) for v in values if v is not None) or "null")
    own = f"{model.architecture}."
    metadata: dict[str, Any] = {"general.architecture": model.architecture}
    metadata |= {own + key: value for key, value in model.values.items()}
    for key, name in {**SIZES, **model.sizes}.items():
        if name and given.get(key) is not None and metadata.setdefault(own + name, given[key]) != given[key]:
            raise wrong_value(key, given[key], f"{metadata[own + name]}, as another key has it")
    extra: dict[str, GGUFTensor] = {}
    rope, local = _find_rope(config, given, form)
    if form.pairing:
        _add_heads(metadata, own, given, rope)
    if model.derive is not None:
        metadata |= {own + key: value for key, value in model.derive(given).items()}
    if form.pairing:
        _add_rope(metadata, extra, own, given, form, rope, local)
    if not form.state:
        _add_windows(metadata, own, given, form)
    return model, metadata, extra


def _check_numbers(config: Mapping[str, Any]) -> None:
    """Refuse numbers, at any depth, that no size and no float32 can be: formulas of others do not overflow."""
    found = [*config.items()]
    for key, value in found:  # which grows
        if isinstance(value, (dict, list)):
            found += [(key, v) for v in (value.values() if isinstance(value, dict) else value)]
        elif isinstance(value, (int, float)) and not abs(value) <= (1e38 if isinstance(value, float) else 1 << 53):
            raise wrong_value(key, value, "integers within 2**53 and numbers within 1e38")


def is_number(value: Any) -> bool:
    """Return whether a value of JSON is a finite number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _add_heads(metadata: dict[str, Any], own: str, given: Mapping[str, Any], rope: Mapping[str, Any]) -> None:
    heads, width = metadata.get(own + "attention.head_count"), metadata.get(own + "embedding_length")
    dim = given.get("head_dim")
    if dim is None and isinstance(heads, int) and isinstance(width, int) and heads > 0:
        dim = width // heads
    if dim is not None:
        share = rope.get("partial_rotary_factor")
        share = given.get("partial_rotary_factor", 1.0) if share is None else share
        if not is_number(share) or not 0 < share <= 1:
            raise wrong_value("partial_rotary_factor", share, "a number above 0 to 1")
        if not is_integer(dim) or not 0 < dim <= MOST:
            raise wrong_value("head_dim", dim, f"an integer from 1 to {MOST}")
        metadata |= {own + f"attention.{name}_length": dim for name in ("key", "value")}
        metadata[own + "rope.dimension_count"] = int(dim * share)
    if "query_pre_attn_scalar" in given:
        scalar = given["query_pre_attn_scalar"]
        if not is_number(scalar) or not scalar > 0:
            raise wrong_value("query_pre_attn_scalar", scalar, "a number above 0")
        metadata[own + "attention.scale"] = scalar**-0.5


def _add_windows(metadata: dict[str, Any], own: str, given: Mapping[str, Any], form: Architecture) -> None:
    """Add the window, and the layers that have it."""
    key, layers = own + "attention.sliding_window", given.get("layer_types")
    window = given.get("sliding_window") if given.get("use_sliding_window", True) else None
    if layers is not None and (not isinstance(layers, list) or {*map(str, layers)} - {WINDOWED, WHOLE}):
        raise wrong_value("layer_types", layers, f"a list of {WINDOWED} and {WHOLE}")
    seen = np.array([kind == WINDOWED for kind in layers or ()], np.bool_)
    if not window:
        if seen.any():
            raise wrong("config.json", f"layer_types has others than {WHOLE}", WHOLE)
        if form.window:
            metadata[key] = 0
    elif form.windows < 2:
        if layers and seen.any() != seen.all():
            raise wrong("config.json", f"layer_types has {WINDOWED} and {WHOLE}", "one of these")
        if seen.all() or not form.windows:
            metadata[key] = window
    else:
        if layers is not None and form.rotated == "windowed" and not seen.any():
            raise wrong("config.json", f"layer_types has no {WINDOWED}", f"{WINDOWED} in some layers")
        metadata[key] = window
        every = given.get("sliding_window_pattern", given.get("_sliding_window_pattern"))
        if layers is not None or every is not None:
            metadata[f"{key}_pattern"] = every if layers is None else seen


def _find_rope(
    config: Mapping[str, Any], given: Mapping[str, Any], form: Architecture
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return `rope_parameters`, and those of layers with a window; older keys next to it say the same."""
    keys = ("rope_parameters", "rope_scaling")
    either = [config[key] for key in keys if config.get(key) not in (None, {})]
    either = either or [given[key] for key in keys if given.get(key)] or [{}]
    if not all(isinstance(found, dict) for found in either):
        raise wrong("config.json", "rope_scaling is not a JSON object")
    if either[0] != either[-1]:
        raise wrong_value("rope_scaling", either[1], f"{either[0]}, as rope_parameters has it")
    found, local = either[0], {"rope_theta": given.get("rope_local_base_freq")}
    if WHOLE in found or WINDOWED in found:
        if set(found) - {WHOLE, WINDOWED} or not all(isinstance(found.get(k), dict) for k in (WHOLE, WINDOWED)):
            raise wrong("config.json", "rope_parameters has other parts", f"{WHOLE} and {WINDOWED}")
        local, found = found[WINDOWED], found[WHOLE]
        local, found = ({"partial_rotary_factor": 1.0, **part} for part in (local, found))
        whole = {"rope_theta": 0, "partial_rotary_factor": 1.0, "rope_type": "default"}
        if form.windows < 2 or form.local_scaling or {**whole, **local, "rope_theta": 0} != whole:
            raise wrong("config.json", f"rope of {WINDOWED} is {local}", "its rope_theta, for types that have one")
        if found["partial_rotary_factor"] != 1.0:
            raise wrong_value("partial_rotary_factor", found["partial_rotary_factor"], "1.0 if layers have windows")
    older = {key: found.get(key) for key in ("rope_theta", "partial_rotary_factor", "original_max_position_embeddings")}
    for key, value in {**older, "rope_local_base_freq": local.get("rope_theta")}.items():
        if config.get(key) is not None and value not in (None, config[key]):
            raise wrong_value(key, config[key], f"{value}, as rope_parameters has it")
    return found, local


def _add_rope(
    metadata: dict[str, Any],
    extra: dict[str, GGUFTensor],
    own: str,
    given: Mapping[str, Any],
    form: Architecture,
    found: Mapping[str, Any],
    local: Mapping[str, Any],
) -> None:
    """Add rope's base and scaling; the base of layers with a window apart."""
    if local.get("rope_theta") is not None:
        metadata[own + "rope.freq_base_swa"] = local["rope_theta"]
    scaling = {k: v for k, v in found.items() if k != "partial_rotary_factor"}
    base = scaling.pop("rope_theta", given.get("rope_theta", 10000.0))
    kinds = [k for k in (scaling.pop(key, None) for key in ("rope_type", "type")) if k is not None]
    kind = kinds[0] if kinds else "default"
    kind = "longrope" if kind == "su" else kind
    metadata[own + "rope.freq_base"] = base
    if not isinstance(kind, str) or kind not in SCALINGS or kinds[:1] != kinds[-1:]:
        raise wrong_value("rope_type", " and ".join(map(str, kinds)), ", ".join(SCALINGS))
    context = metadata.get(own + "context_length")
    if "llama_4_scaling_beta" in scaling and "attention.temperature_scale" in form.scales:
        metadata[own + "attention.temperature_scale"] = scaling.pop("llama_4_scaling_beta")
        if scaling.get("max_position_embeddings", context) == context:
            scaling.pop("max_position_embeddings", None)
    allowed = SCALINGS[kind]
    strange = [f"{key}={value}" for key, value in scaling.items() if key not in allowed]
    if not isinstance(scaling.get("truncate", True), bool):
        strange.append(f"truncate={scaling['truncate']}")
    values = {key: value for key, value in scaling.items() if value is not None}
    plain = [v for key, v in values.items() if key not in ("truncate", "short_factor", "long_factor")]
    if strange or not all(map(is_number, (*plain, base))):
        raise wrong("config.json", f"rope of type {kind} has {', '.join(strange) or scaling}", ", ".join(allowed))
    if kind != "default":
        original = values.get("original_max_position_embeddings", given.get("original_max_position_embeddings"))
        try:
            made, tensors = _scale_rope(
                kind, values, (base, metadata.get(own + "rope.dimension_count", 0)), original, context, form.latent
            )
        except (KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise wrong(
                "config.json", f"rope of type {kind} lacks keys, or has wrong ones: {error}", ", ".join(allowed)
            ) from None
        metadata |= {f"{own}rope.scaling.{key}": value for key, value in made.items()}
        extra |= {t.name: t for t in tensors}


def _scale_rope(
    kind: str, values: Mapping[str, Any], plain: tuple[float, int], original: Any, context: Any, latent: bool
) -> tuple[dict[str, Any], list[GGUFTensor]]:
    """Return the keys of rope.scaling, and the tensors of the frequencies' divisors."""
    base, dims = plain
    if kind == "linear":
        return {"type": kind, "factor": values["factor"]}, []
    if kind == "llama3":
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        turns = frequencies(dims, base, kind, factor=values["factor"], original_length=original, low=low, high=high)
        return {}, [_tensor("rope_freqs.weight", frequencies(dims, base) / turns)]
    original = context if original is None else original
    if kind == "longrope":
        factor = context / original
        tensors = [_tensor(f"rope_factors_{n}.weight", values[f"{n}_factor"]) for n in ("short", "long")]
        magnitude = values.get("attention_factor", longrope_magnitude(factor, original))
        return {"type": kind, "original_context_length": original, "attn_factor": magnitude}, tensors
    factor = values["factor"] if "factor" in values else context / original
    names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
    made = {"type": kind, "factor": factor} | {names[k]: v for k, v in values.items() if k in names}
    if "original_max_position_embeddings" in values:
        made["original_context_length"] = original
    one, all_dims = values.get("mscale"), values.get("mscale_all_dim")
    magnitude = yarn_magnitude(factor)
    if one and all_dims:
        magnitude = (1 + one * (magnitude - 1)) / (1 + all_dims * (magnitude - 1))
    magnitude = values.get("attention_factor", magnitude)
    if latent:
        return made | {"attn_factor": magnitude, "yarn_log_multiplier": 0.1 * (all_dims or 0.0)}, []
    if not values.get("truncate", True):  # GGUF's keys do not say so: the frequencies are made here
        bounds = {"slow": values.get("beta_slow", 1.0), "fast": values.get("beta_fast", 32.0)}
        turns = frequencies(dims, base, kind, factor=factor, original_length=original, rounded=False, **bounds)
        return {"type": "none", "attn_factor": magnitude}, [
            _tensor("rope_freqs.weight", frequencies(dims, base) / turns)
        ]
    return made | (
        {"attn_factor": magnitude / yarn_magnitude(factor)} if one or "attention_factor" in values else {}
    ), []


def _tensor(name: str, values: Any) -> GGUFTensor:
    array = np.array(values, np.float32)
    return GGUFTensor(name, array.shape, "F32", 0, array.reshape(-1).view(np.uint8))
