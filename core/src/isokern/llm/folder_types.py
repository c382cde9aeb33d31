"""What model types of Hugging Face folders have in common: keys and tensors in GGUF's words, and how a type differs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

# Keys of config.json whose values are values of GGUF's keys
SIZES = {
    **dict.fromkeys(("hidden_size", "n_embd"), "embedding_length"),
    **dict.fromkeys(("num_hidden_layers", "n_layer"), "block_count"),
    **dict.fromkeys(("intermediate_size", "n_inner", "ffn_hidden_size"), "feed_forward_length"),
    **dict.fromkeys(("num_attention_heads", "n_head"), "attention.head_count"),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), "attention.head_count_kv"),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), "context_length"),
    **dict.fromkeys(("num_local_experts", "num_experts", "n_routed_experts"), "expert_count"),
    **dict.fromkeys(("num_experts_per_tok", "experts_per_token"), "expert_used_count"),
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    **dict.fromkeys(("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon"), "attention.layer_norm_epsilon"),
    "vocab_size": "vocab_size",
    "moe_intermediate_size": "expert_feed_forward_length",
}
# Keys that say nothing of what is computed, or whose tensors say it
UNUSED = {
    *("_attn_implementation_autoset", "_name_or_path", "architectures", "attention_bias", "attention_dropout"),
    *("attention_softmax_in_fp32", "attn_pdrop", "auto_map", "aux_loss_alpha", "bias", "bos_token_id"),
    *("cache_implementation", "chunk_size", "chunk_size_feed_forward", "d_inner", "d_model", "dtype", "embd_pdrop"),
    *("embedding_dropout", "eos_token_id", "ep_size", "fused_add_norm", "hidden_dropout", "id2label"),
    *("initial_context_length", "initializer_range", "is_encoder_decoder", "label2id", "layer_switch"),
    *("max_window_layers", "mlp_bias", "model_max_length", "model_type", "n_ctx", "output_attentions"),
    *("output_hidden_states", "output_router_logits", "pad_token_id", "pad_vocab_size_multiple", "pretraining_tp"),
    *("problem_type", "qkv_bias", "reorder_and_upcast_attn", "rescale_prenorm_residual", "resid_pdrop"),
    *("residual_dropout", "residual_in_fp32", "return_dict", "router_aux_loss_coef", "router_jitter_noise"),
    *("scale_attention_softmax_in_fp32", "seq_aux", "summary_activation", "summary_first_dropout"),
    *("summary_proj_to_labels", "summary_type", "summary_use_proj", "task_specific_params", "time_step_floor"),
    *("time_step_init_scheme", "time_step_max", "time_step_min", "time_step_scale", "torch_dtype"),
    *("transformers.js_config", "transformers_version", "unsloth_fixed", "use_associative_scan", "use_bias"),
    *("use_cache", "use_mambapy", "use_qkv_bias"),
}
# Keys that are read in addition to SIZES, of which a type's `only` and `sizes` allow more
OF_ROPE = ("head_dim", "partial_rotary_factor", "rope_parameters", "rope_scaling", "rope_theta")
OF_WINDOWS = ("layer_types", "sliding_window", "use_sliding_window")
READ = {*OF_ROPE, *OF_WINDOWS, "tie_word_embeddings"}
FLAGS = ("new_decoder_architecture", "tie_word_embeddings", "use_sliding_window")  # true or false and nothing else
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
# Models of text and images or sound: the keys next to text_config that hold for its text, and tensors of the other
# parts
OF_TEXT_AND_MORE = ("gemma3", "gemma3n", "mistral3")
TEXT_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "quantization_config", "tie_word_embeddings")
NO_TEXT_KEYS = (
    r"text_config|\w+_token_(id|index)|spatial_merge_size|mm_tokens_per_image"
    r"|(vision|audio|multimodal_projector|projector)_\w+"
)
NO_TEXT = r"(model\.)?(vision_\w+|audio_\w+|multi_modal_projector|embed_vision|embed_audio)\..+"
# Parts of a tensor's name in GGUF's; # stands for a number, whose tensors are stacked
NAMES = {
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    **{f"self_attn.{n}_proj": f"attn_{n}" for n in ("q", "k", "v", "qkv")},
    **{f"self_attn.{n}_norm": f"attn_{n}_norm" for n in "qk"},
    "self_attn.o_proj": "attn_output",
    **{f"mlp.{n}_proj": f"ffn_{n}" for n in ("gate", "up", "down")},
    **{f"mlp.experts.#.{n}_proj": f"ffn_{n}_exps" for n in ("gate", "up", "down")},
    "mlp.gate": "ffn_gate_inp",
}


@dataclass(frozen=True)
class ModelType:
    """How a folder of a model type differs from the tables of all types.

    - `sizes`: keys of config.json, and GGUF's for them; "" for one that the type reads in another way.
    - `defaults`: what transformers takes for keys that config.json may leave out.
    - `only`: keys that may have only these values. `act`: the activations.
    - `values`: GGUF's keys that are the same for the whole type. `derive`: those that follow from several keys.
    - `names`: parts of tensors' names; `changes`: what becomes of tensors by GGUF's name (`folder_weights.CHANGES`).
    """

    architecture: str
    sizes: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    only: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    act: tuple[str, ...] = ("silu",)
    values: Mapping[str, Any] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, str] = field(default_factory=dict)
    derive: Callable[[Mapping[str, Any]], dict[str, Any]] | None = None


def extend(base: ModelType, architecture: str = "", **changed: Any) -> ModelType:
    """Return a type like another one, whose tables have more entries."""
    tables: dict[str, Any] = {k: {**getattr(base, k), **v} if isinstance(v, dict) else v for k, v in changed.items()}
    return replace(base, architecture=architecture or base.architecture, **tables)
