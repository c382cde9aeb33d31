"""A Hugging Face folder as if it were a GGUF file: config.json, safetensors and tokenizer.json, used where they lie.

Tensors and sizes get the names that GGUF has for them, so that everything else reads one kind of model. The rows of
Llama's query and key weights are put in another order, in memory of their own: transformers rotates the halves of a
head, GGUF's llama adjacent elements.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ..arguments import is_integer
from ..ops.rope import frequencies, yarn_magnitude
from ..status import InvalidArgument
from .gguf import GGUF, GGUFTensor, Value, quote_name
from .safetensors_file import read_safetensors
from .vocabularies import BYTE, CONTROL, NORMAL, UNUSED, USER_DEFINED

# model_type: the architecture of GGUF, and whether the rows of q and k change places
ARCHITECTURES = {
    "llama": ("llama", True),
    "mistral": ("llama", True),
    "qwen2": ("qwen2", False),
    "qwen3": ("qwen3", False),
}
SIZES = {
    "hidden_size": "embedding_length",
    "num_hidden_layers": "block_count",
    "intermediate_size": "feed_forward_length",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "vocab_size": "vocab_size",
}
# Keys of config.json that say nothing of what is computed, or whose tensors say it
UNUSED_KEYS = {
    *("architectures", "attention_bias", "attention_dropout", "bos_token_id", "dtype", "eos_token_id", "id2label"),
    *("initializer_range", "label2id", "max_window_layers", "mlp_bias", "model_type", "pad_token_id", "pretraining_tp"),
    *("torch_dtype", "transformers_version", "use_cache", "_name_or_path", "_attn_implementation_autoset"),
    *("chunk_size_feed_forward", "is_encoder_decoder", "output_attentions", "output_hidden_states", "problem_type"),
    *("return_dict",),
}
READ_KEYS = {"head_dim", "hidden_act", "layer_types", "rope_parameters", "rope_scaling", "rope_theta"}
READ_KEYS |= {"sliding_window", "tie_word_embeddings", "use_sliding_window", *SIZES}
PARTS = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def open_folder(path: str | os.PathLike[str]) -> GGUF:
    """Return the model in a folder as a GGUF object. InvalidArgument names the file and what is wrong or not known."""
    folder = Path(path)
    config = _read_json(folder / "config.json")
    kind = config.get("model_type")
    if not isinstance(kind, str) or kind not in ARCHITECTURES:
        raise _wrong("config.json", f"model_type is {quote_name(str(kind))}", ", ".join(ARCHITECTURES))
    strange = [key for key in config if key not in READ_KEYS | UNUSED_KEYS]
    if strange:
        named = ", ".join(quote_name(key) for key in strange[:8])
        raise _wrong("config.json", f"{len(strange)} keys are not known here: {named}", "none of such")
    architecture, permuted = ARCHITECTURES[kind]
    metadata: dict[str, Any] = {"general.architecture": architecture}
    extra: dict[str, GGUFTensor] = {}
    _add_sizes(metadata, f"{architecture}.", config)
    _add_rope(metadata, extra, f"{architecture}.", config)
    tensors = _tensors(folder, config, permuted) | extra
    table = tensors.get("token_embd.weight")
    _add_tokenizer(metadata, folder, config, 0 if table is None else table.shape[0])
    return GGUF.from_parts(metadata, tensors)


def _wrong(file: str, problem: str, allowed: str = "", hint: str = "") -> InvalidArgument:
    return InvalidArgument("folder", f"{file}: {problem}", allowed=allowed, hint=hint)


def _read_json(path: Path, needed: bool = True) -> dict[str, Any]:
    """Return the JSON object of a file; an empty one where it is missing and not needed."""
    if not needed and not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise _wrong(path.name, f"it cannot be opened: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _wrong(path.name, f"it is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise _wrong(path.name, "it is no JSON object")
    return found


def _add_sizes(metadata: dict[str, Any], own: str, config: Mapping[str, Any]) -> None:
    """Add the sizes; what they are allowed to be is checked where GGUF's are."""
    for key, name in SIZES.items():
        if config.get(key) is not None:
            metadata[own + name] = config[key]
    heads, width = config.get("num_attention_heads"), config.get("hidden_size")
    head_dim = config.get("head_dim")
    if head_dim is None and isinstance(heads, int) and isinstance(width, int) and heads > 0:
        head_dim = width // heads
    names = ("attention.key_length", "attention.value_length", "rope.dimension_count") if head_dim is not None else ()
    for name in names:
        metadata[own + name] = head_dim
    if config.get("hidden_act", "silu") != "silu":
        raise _wrong("config.json", f"hidden_act is {quote_name(str(config['hidden_act']))}", "silu")
    window = config.get("sliding_window")
    if window is not None and config.get("use_sliding_window", True):
        metadata[own + "attention.sliding_window"] = window
    elif set(config.get("layer_types") or ()) - {"full_attention"}:
        raise _wrong("config.json", "layer_types has others than full_attention", "full_attention")


def _add_rope(metadata: dict[str, Any], extra: dict[str, GGUFTensor], own: str, config: Mapping[str, Any]) -> None:
    """Add rope's base and scaling, of `rope_parameters` or the older keys."""
    given = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(given, dict):
        raise _wrong("config.json", "rope_scaling is no JSON object")
    scaling = dict(given)
    base = scaling.pop("rope_theta", config.get("rope_theta", 10000.0))
    kinds = {scaling.pop(key, None) for key in ("rope_type", "type")} - {None}
    kind = kinds.pop() if kinds else "default"
    metadata[own + "rope.freq_base"] = base
    read = {
        "default": (),
        "linear": ("factor",),
        "yarn": ("factor", "original_max_position_embeddings", "beta_fast", "beta_slow", "attention_factor"),
        "llama3": ("factor", "original_max_position_embeddings", "low_freq_factor", "high_freq_factor"),
    }
    if kinds or kind not in read:
        raise _wrong("config.json", f"rope_type is {quote_name(str(kind))}", ", ".join(read))
    strange = [f"{key}={value}" for key, value in scaling.items() if key not in read[kind]]
    numbers = [v for key, v in scaling.items() if key in read[kind] and v is not None]
    if strange or not all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in (*numbers, base)):
        raise _wrong("config.json", f"rope of type {kind} has {', '.join(strange) or scaling}", ", ".join(read[kind]))
    values = {key: value for key, value in scaling.items() if value is not None}
    factor, original = values.get("factor", 1.0), values.get("original_max_position_embeddings")
    if kind in ("linear", "yarn"):
        metadata |= {own + "rope.scaling.type": kind, own + "rope.scaling.factor": factor}
    if kind == "yarn":
        names = {"beta_fast": "yarn_beta_fast", "beta_slow": "yarn_beta_slow"}
        names["original_max_position_embeddings"] = "original_context_length"
        metadata |= {f"{own}rope.scaling.{names[key]}": value for key, value in values.items() if key in names}
        if "attention_factor" in values:
            metadata[own + "rope.scaling.attn_factor"] = values["attention_factor"] / yarn_magnitude(factor)
    if kind == "llama3":
        dims, bounds = metadata.get(own + "rope.dimension_count", 0), ("low_freq_factor", "high_freq_factor")
        if original is None or any(key not in values for key in bounds):
            raise _wrong("config.json", "rope of type llama3 lacks keys", ", ".join(read[kind]))
        low, high = (values[key] for key in bounds)
        turns = frequencies(dims, base, "llama3", factor=factor, original_length=original, low=low, high=high)
        divisors = (frequencies(dims, base) / turns).astype(np.float32)
        extra["rope_freqs.weight"] = GGUFTensor("rope_freqs.weight", divisors.shape, "F32", 0, divisors.view(np.uint8))


def _tensors(folder: Path, config: Mapping[str, Any], permuted: bool) -> dict[str, GGUFTensor]:
    """Return the tensors under GGUF's names."""
    index = folder / "model.safetensors.index.json"
    files = ["model.safetensors"]
    places: dict[str, str] | None = None
    if index.exists():
        places = _read_json(index).get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(f, str) and Path(f).name == f for f in places.values()):
            raise _wrong(index.name, "weight_map is no map of tensors to files in this folder")
        files = sorted(set(places.values()))
    found: dict[str, GGUFTensor] = {}
    for file in files:
        part = read_safetensors(folder / file)
        if places is not None and part.keys() != {name for name, place in places.items() if place == file}:
            raise _wrong(file, f"its tensors are not those that {index.name} tells", "files of one model")
        found |= part
    tied = bool(config.get("tie_word_embeddings", False))
    renamed = {}
    for name, tensor in found.items():
        own = _rename(name)
        if own is None:
            raise _wrong("safetensors", f"tensor {quote_name(name)} is not known here", "tensors of the model_type")
        if own == "" or (tied and own == "output.weight"):
            continue
        heads = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads"}.get(own.split(".")[-2], "")
        if permuted and heads and own.startswith("blk."):
            tensor = _permute(tensor, config.get(heads) or config.get("num_attention_heads"))
        renamed[own] = GGUFTensor(own, tensor.shape, tensor.type, tensor.offset, tensor.data)
    return renamed


def _rename(name: str) -> str | None:
    """Return GGUF's name; "" for a tensor that follows from the configuration, None for one that is not known."""
    if name in NAMES:
        return NAMES[name]
    layer = re.fullmatch(r"model\.layers\.(\d{1,5})\.(.+)\.(weight|bias|inv_freq)", name)
    if layer is None:
        return None
    if layer[2] == "self_attn.rotary_emb":
        return ""
    return f"blk.{int(layer[1])}.{PARTS[layer[2]]}.{layer[3]}" if layer[2] in PARTS else None


def _permute(tensor: GGUFTensor, heads: Any) -> GGUFTensor:
    """Return a weight or bias whose rows of each head alternate between the head's halves."""
    rows = tensor.shape[0]
    if not is_integer(heads) or heads < 1 or rows % (2 * heads):
        raise _wrong("safetensors", f"tensor {quote_name(tensor.name)} has {rows} rows", f"even rows for {heads} heads")
    halves = tensor.data.reshape(heads, 2, rows // heads // 2, -1)
    data = np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(-1)
    return GGUFTensor(tensor.name, tensor.shape, tensor.type, tensor.offset, data)


def _add_tokenizer(metadata: dict[str, Value], folder: Path, config: Mapping[str, Any], size: int) -> None:
    """Add what tokenizer.json and tokenizer_config.json say, where they are."""
    if not (folder / "tokenizer.json").exists():
        return
    file, more = _read_json(folder / "tokenizer.json"), _read_json(folder / "tokenizer_config.json", needed=False)
    model, added = file.get("model"), file.get("added_tokens") or []
    if not isinstance(model, dict) or not isinstance(model.get("vocab"), (dict, list)):
        raise _wrong("tokenizer.json", "it has no model with a vocab")
    vocabulary = model["vocab"]
    try:
        listed = vocabulary.items() if isinstance(vocabulary, dict) else ((t[0], i) for i, t in enumerate(vocabulary))
        texts = {int(i): str(text) for text, i in listed}
        special = {int(token["id"]): (str(token["content"]), bool(token["special"])) for token in added}
    except (KeyError, TypeError, ValueError, IndexError):
        raise _wrong("tokenizer.json", "its vocab or added_tokens are not of the known form") from None
    texts |= {i: text for i, (text, _) in special.items()}
    if not all(0 <= i < size for i in texts):
        raise _wrong("tokenizer.json", f"it has token {max(texts)}", f"below {size}, the rows of the embedding table")
    fallback = bool(model.get("byte_fallback"))
    types = np.full(size, UNUSED, np.int32)
    for i, text in texts.items():
        types[i] = BYTE if fallback and re.fullmatch("<0x[0-9A-F]{2}>", text) else NORMAL
    for i, (_, control) in special.items():
        types[i] = CONTROL if control else USER_DEFINED
    ids = {text: i for i, text in texts.items()}
    own: dict[str, Any] = {"model": "huggingface", "token_type": types}
    own["tokens"] = tuple(texts.get(i, f"[PAD{i}]") for i in range(size))
    for name in ("bos", "eos", "unk"):
        given = more.get(f"{name}_token")
        content = given.get("content") if isinstance(given, dict) else given
        token = ids.get(content) if isinstance(content, str) else config.get(f"{name}_token_id")
        if isinstance(token, int):
            own["unknown_token_id" if name == "unk" else f"{name}_token_id"] = token
    for key in ("add_bos_token", "add_eos_token"):
        if isinstance(more.get(key), bool):
            own[key] = more[key]
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in own.items()}
    metadata["tokenizer.huggingface.json"] = json.dumps(file)
    template = folder / "chat_template.jinja"
    if template.exists():
        metadata["tokenizer.chat_template"] = template.read_text(encoding="utf-8")
    elif isinstance(more.get("chat_template"), str):
        metadata["tokenizer.chat_template"] = more["chat_template"]
