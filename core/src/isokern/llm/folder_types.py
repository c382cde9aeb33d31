"""The model types of Hugging Face folders, as data: their keys and tensors in GGUF's words.

A type is an entry in `MODEL_TYPES`: its architecture, and where it differs from the tables of all types. Formulas are
those of the architecture (`isokern.llm.architectures`).
"""

from __future__ import annotations

from collections.abc import Mapping
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
    *("architectures", "attention_bias", "attention_dropout", "attn_pdrop", "auto_map", "bias", "bos_token_id"),
    *("cache_implementation", "chunk_size_feed_forward", "dtype", "embd_pdrop", "embedding_dropout", "eos_token_id"),
    *("hidden_dropout", "id2label", "initializer_range", "is_encoder_decoder", "label2id", "layer_switch", "mlp_bias"),
    *("max_window_layers", "model_type", "output_attentions", "output_hidden_states", "output_router_logits"),
    *("pad_token_id", "pretraining_tp", "problem_type", "qkv_bias", "reorder_and_upcast_attn", "resid_pdrop"),
    *("residual_dropout", "return_dict", "router_aux_loss_coef", "router_jitter_noise", "task_specific_params"),
    *("torch_dtype", "transformers_version", "unsloth_fixed", "use_bias", "use_cache", "use_qkv_bias"),
    *("_attn_implementation_autoset", "_name_or_path"),
}
# Keys that are read beside SIZES, of which a type's `only` and `sizes` allow more
READ = {"head_dim", "layer_types", "partial_rotary_factor", "rope_parameters", "rope_scaling", "rope_theta"}
READ |= {"hidden_act", "sliding_window", "tie_word_embeddings", "use_sliding_window"}
ACTIVATIONS = ("hidden_act", "hidden_activation", "activation_function", "activation")
# Of a model of text and images: the keys beside text_config that hold for its text, and tensors of the other parts
TEXT_KEYS = ("bos_token_id", "eos_token_id", "pad_token_id", "quantization_config", "tie_word_embeddings")
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
    - `only`: keys that may have no other values than these. `act`: the activations.
    - `values`: GGUF's keys that are the same for the whole type.
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


def _more(base: ModelType, architecture: str = "", **changed: Any) -> ModelType:
    """Return a type like another one, whose tables have more entries."""
    tables: dict[str, Any] = {k: {**getattr(base, k), **v} if isinstance(v, dict) else v for k, v in changed.items()}
    return replace(base, architecture=architecture or base.architecture, **tables)


TIED = {"tie_word_embeddings": True}
GELU = ("gelu_new", "gelu_pytorch_tanh")
AFTER = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
NORMS = ("output_norm", "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm")

LLAMA = ModelType("llama", changes={"attn_q": "pairs", "attn_k": "pairs"})
QWEN2 = ModelType("qwen2", defaults={"use_sliding_window": False})
MIXTRAL = _more(
    LLAMA,
    defaults={"rope_theta": 1e6},
    names={
        **{f"block_sparse_moe.experts.#.w{i}": f"ffn_{n}_exps" for i, n in ((1, "gate"), (2, "down"), (3, "up"))},
        "block_sparse_moe.gate": "ffn_gate_inp",
    },
)
MOE: dict[str, tuple[Any, ...]] = {"decoder_sparse_step": (1,), "mlp_only_layers": ([], None)}
GEMMA = ModelType(
    "gemma",
    defaults={**TIED, "head_dim": 256},
    only={"use_bidirectional_attention": (None, False)},
    act=(*GELU, "gelu"),  # gelu of the first files meant the approximation
    changes=dict.fromkeys(NORMS, "plus_one"),
)
GEMMA2 = _more(
    GEMMA,
    "gemma2",
    sizes={
        "query_pre_attn_scalar": "",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    defaults={"query_pre_attn_scalar": 256, "sliding_window": 4096},
    act=GELU,
    names={**AFTER, "pre_feedforward_layernorm": "ffn_norm"},
)
GRANITE = _more(
    LLAMA,
    "granite",
    sizes={
        "embedding_multiplier": "embedding_scale",
        "residual_multiplier": "residual_scale",
        "logits_scaling": "logit_scale",
        "attention_multiplier": "attention.scale",
    },
    defaults={"attention_multiplier": 1.0},
)
COHERE = ModelType(
    "command-r",
    sizes={"logit_scale": "logit_scale"},
    defaults={**TIED, "logit_scale": 0.0625, "layer_norm_eps": 1e-5, "rope_theta": 500000.0},
    only={
        "use_qk_norm": (False, True),
        "use_parallel_block": (True,),
        "use_gated_activation": (True,),
        "rotary_pct": (1.0,),
        "position_embedding_type": ("rope_gptj",),
        "order_of_interleaved_layers": ("local_attn_first",),
        "use_embedding_sharing": (True,),
        "use_parallel_embedding": (False, True),
    },
)

MODEL_TYPES: Mapping[str, ModelType] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": MIXTRAL,
    "qwen2": QWEN2,
    "qwen3": replace(QWEN2, architecture="qwen3"),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": _more(
        GEMMA2,
        "gemma3",
        sizes={"sliding_window_pattern": "", "_sliding_window_pattern": "", "rope_local_base_freq": ""},
        defaults={
            **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "rms_norm_eps": 1e-6},
            **{"max_position_embeddings": 131072, "rope_theta": 1e6},
        },
        only={"attn_logit_softcapping": (None,), "use_bidirectional_attention": (None, False)},
    ),
    "phi3": ModelType("phi3", sizes={"original_max_position_embeddings": ""}, names={"mlp.gate_up_proj": "ffn_up"}),
    "qwen2_moe": _more(
        QWEN2,
        "qwen2moe",
        sizes={"shared_expert_intermediate_size": "expert_shared_feed_forward_length"},
        only={**MOE, "norm_topk_prob": (False,)},
        names={
            **{f"mlp.shared_expert.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")},
            "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
        },
        changes={"ffn_gate_inp_shexp": "squeezed"},
    ),
    "qwen3_moe": _more(QWEN2, "qwen3moe", defaults={"norm_topk_prob": False}, only={**MOE, "norm_topk_prob": (True,)}),
    "olmo2": ModelType("olmo2", names=AFTER),
    "olmoe": ModelType("olmoe", only={"clip_qkv": (None,), "norm_topk_prob": (False,)}),
    "granite": GRANITE,
    "cohere": COHERE,
    "cohere2": _more(
        COHERE,
        "cohere2",
        sizes={"sliding_window_pattern": "", "_sliding_window_pattern": ""},
        defaults={"rope_theta": 10000.0, "sliding_window": 4096, "head_dim": 128},
    ),
    "smollm3": _more(
        LLAMA,
        "smollm3",
        sizes={"no_rope_layers": ""},
        defaults={**TIED, "rope_theta": 2e6, "use_sliding_window": False},
        only={"no_rope_layer_interval": (4,)},
    ),
}
