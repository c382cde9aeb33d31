"""The model types of Hugging Face folders, as data.

A type is an entry in `MODEL_TYPES`: its architecture, and its differences from the tables of all types. Formulas are
those of the architecture (`isokern.llm.architectures`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .folder_sizes import (
    check_mxfp4,
    check_rope_layers,
    size_deepseek,
    size_falcon,
    size_gemma3n,
    size_gpt2,
    size_mamba,
)
from .folder_types import ModelType, extend

TIED = {"tie_word_embeddings": True}
GELU = ("gelu_new", "gelu_pytorch_tanh")
AFTER = {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
NORMS = ("output_norm", "attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm", "attn_q_norm", "attn_k_norm")

LLAMA = ModelType(
    "llama",
    only={"is_llama_config": (True,), "rope_interleaved": (False,)},
    changes={"attn_q": "pairs", "attn_k": "pairs"},
)
QWEN2 = ModelType("qwen2", defaults={"use_sliding_window": False})
MIXTRAL = extend(
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
GEMMA2 = extend(
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
GRANITE = extend(
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
GPT2 = ModelType(
    "gpt2",
    defaults={**TIED, "layer_norm_epsilon": 1e-5},
    only={
        "scale_attn_weights": (True,),
        "scale_attn_by_inverse_layer_idx": (False,),
        "add_cross_attention": (False,),
    },
    act=GELU,
    names={
        **{"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm", "ln_1": "attn_norm", "ln_2": "ffn_norm"},
        **{"attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output", "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    },
    changes=dict.fromkeys(("attn_qkv", "attn_output", "ffn_up", "ffn_down"), "transposed"),
    derive=size_gpt2,
)
GLM = ModelType(
    "chatglm",
    defaults={"partial_rotary_factor": 0.5, "head_dim": 128, "rms_norm_eps": 1.5625e-7},
    names={"mlp.gate_up_proj": "ffn_up"},
)
DEEPSEEK = ModelType(
    "deepseek2",
    sizes={
        **dict.fromkeys(
            ("num_key_value_heads", "qk_head_dim", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"), ""
        ),
        **{"n_group": "", "topk_group": "", "n_shared_experts": "expert_shared_count"},
        "first_k_dense_replace": "leading_dense_block_count",
        "kv_lora_rank": "attention.kv_lora_rank",
        "q_lora_rank": "attention.q_lora_rank",
        "routed_scaling_factor": "expert_weights_scale",
        "norm_topk_prob": "expert_weights_norm",
    },
    defaults={
        **{"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128},
        **{"v_head_dim": 128, "rms_norm_eps": 1e-6},
    },
    only={
        **{"moe_layer_freq": (1,), "rope_interleave": (True,), "scoring_func": ("sigmoid",)},
        "topk_method": ("noaux_tc",),
    },
    values={"attention.head_count_kv": 1, "expert_gating_func": 2},
    names={
        **{f"mlp.shared_experts.{n}_proj": f"ffn_{n}_shexp" for n in ("gate", "up", "down")},
        **{"self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm"},
        **{"self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa"},
        **{"self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.kv_b_proj": "attn_kv_b"},
        "mlp.gate.e_score_correction_bias": "exp_probs_b.bias",
    },
    changes={"attn_kv_b": "latent"},
    derive=size_deepseek,
)
GRANITEMOE = extend(
    GRANITE,
    "granitemoe",
    sizes={"shared_intermediate_size": "expert_shared_feed_forward_length"},
    names={
        "block_sparse_moe.router.layer": "ffn_gate_inp",
        "block_sparse_moe.input_linear": "ffn_gate_up_exps",
        "block_sparse_moe.output_linear": "ffn_down_exps",
        "shared_mlp.input_linear": "ffn_gate_up_shexp",
        "shared_mlp.output_linear": "ffn_down_shexp",
    },
    changes={"ffn_gate_up_exps": "halves", "ffn_gate_up_shexp": "halves"},
)
MAMBA = ModelType(
    "mamba",
    sizes={
        **dict.fromkeys(("intermediate_size", "expand"), ""),
        **{"state_size": "ssm.state_size", "conv_kernel": "ssm.conv_kernel", "time_step_rank": "ssm.time_step_rank"},
        "layer_norm_epsilon": "attention.layer_norm_rms_epsilon",
    },
    defaults={**TIED, "state_size": 16, "conv_kernel": 4, "layer_norm_epsilon": 1e-5},
    only={"rms_norm": (True,), "ssm_cfg": ({},), "use_conv_bias": (True,)},
    values={"attention.head_count": 0, "feed_forward_length": 0, "context_length": 1 << 20},
    names={
        **{"embeddings": "token_embd", "norm_f": "output_norm", "norm": "attn_norm", "mixer.in_proj": "ssm_in"},
        **{"mixer.conv1d": "ssm_conv1d", "mixer.x_proj": "ssm_x", "mixer.dt_proj": "ssm_dt", "mixer.A_log": "ssm_a."},
        **{"mixer.D": "ssm_d.", "mixer.out_proj": "ssm_out", "mixer.dt_bias": "ssm_dt.bias", "mixer.norm": "ssm_norm"},
    },
    changes={"ssm_conv1d": "squeezed", "ssm_a": "decay"},
    derive=size_mamba,
)

MODEL_TYPES: Mapping[str, ModelType] = {
    "llama": LLAMA,
    "mistral": LLAMA,
    "mixtral": MIXTRAL,
    "qwen2": QWEN2,
    "qwen3": replace(QWEN2, architecture="qwen3"),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": extend(
        GEMMA2,
        "gemma3",
        sizes={"sliding_window_pattern": "", "_sliding_window_pattern": "", "rope_local_base_freq": ""},
        defaults={
            **{"num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 262208, "rms_norm_eps": 1e-6},
            **{"max_position_embeddings": 131072, "rope_theta": 1e6},
        },
        only={"attn_logit_softcapping": (None,), "use_bidirectional_attention": (None, False)},
    ),
    "phi3": ModelType(
        "phi3",
        sizes={"original_max_position_embeddings": ""},
        only={"full_attn_mod": (1,), "interpolate_factor": (1,), "lm_head_bias": (False,)},
        names={"mlp.gate_up_proj": "ffn_up"},
    ),
    "qwen2_moe": extend(
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
    "qwen3_moe": extend(QWEN2, "qwen3moe", defaults={"norm_topk_prob": False}, only={**MOE, "norm_topk_prob": (True,)}),
    "olmo2": ModelType("olmo2", names=AFTER),
    "olmoe": ModelType("olmoe", only={"clip_qkv": (None,), "norm_topk_prob": (False,)}),
    "granite": GRANITE,
    "cohere": COHERE,
    "cohere2": extend(
        COHERE,
        "cohere2",
        sizes={"sliding_window_pattern": "", "_sliding_window_pattern": ""},
        defaults={"rope_theta": 10000.0, "sliding_window": 4096, "head_dim": 128},
    ),
    "smollm3": extend(
        LLAMA,
        "smollm3",
        sizes={"no_rope_layers": ""},
        defaults={**TIED, "rope_theta": 2e6, "use_sliding_window": False},
        only={"no_rope_layer_interval": (4,)},
        derive=check_rope_layers,
    ),
    "gpt2": GPT2,
    "gpt_bigcode": extend(
        GPT2,
        sizes={"num_key_value_heads": ""},
        only={"multi_query": (True,)},
        values={"attention.head_count_kv": 1},
        changes=dict.fromkeys(GPT2.changes, ""),
    ),
    "glm": GLM,
    "glm4": extend(
        GLM,
        "glm4",
        names={"post_self_attn_layernorm": "post_attention_norm", "post_mlp_layernorm": "post_ffw_norm"},
    ),
    "deepseek_v2": extend(
        DEEPSEEK,
        defaults={"topk_method": "greedy", "n_shared_experts": 2, "first_k_dense_replace": 0},
        only={
            "topk_method": ("greedy", "group_limited_greedy"),
            "scoring_func": ("softmax",),
            "norm_topk_prob": (False,),
        },
        values={"expert_gating_func": 1},
    ),
    "deepseek_v3": extend(
        DEEPSEEK,
        sizes={"num_nextn_predict_layers": ""},
        defaults={
            **{"n_group": 8, "topk_group": 4, "n_shared_experts": 1, "first_k_dense_replace": 3},
            **{"norm_topk_prob": True, "routed_scaling_factor": 2.5, "num_experts_per_tok": 8, "n_routed_experts": 256},
        },
    ),
    "gpt_oss": ModelType(
        "gpt-oss",
        defaults={
            **{"sliding_window": 128, "head_dim": 64, "num_experts_per_tok": 4, "rms_norm_eps": 1e-5},
            "rope_scaling": {
                **{"rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False},
                **{"original_max_position_embeddings": 4096, "rope_theta": 150000.0},
            },
        },
        sizes={"quantization_config": ""},
        only={"swiglu_limit": (7.0,), "swiglu_alpha": (1.702,)},
        derive=check_mxfp4,
        names={
            **{
                f"mlp.experts.{n}_proj_{part}": f"ffn_{n}_exps.{part}"
                for n in ("gate_up", "down")
                for part in ("blocks", "scales")
            },
            **{"post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp"},
            **{"self_attn.sinks": "attn_sinks.weight", "mlp.experts.down_proj": "ffn_down_exps.weight"},
            **{
                "mlp.experts.gate_up_proj": "ffn_gate_up_exps.weight",
                "mlp.experts.down_proj_bias": "ffn_down_exps.bias",
            },
            "mlp.experts.gate_up_proj_bias": "ffn_gate_up_exps.bias",
        },
        changes={"ffn_gate_up_exps": "woven", "ffn_down_exps": "swapped"},
    ),
    "phi": ModelType(
        "phi2",
        defaults={"partial_rotary_factor": 0.5, "layer_norm_eps": 1e-5},
        only={"qk_layernorm": (False,)},
        act=GELU,
        names={
            **{"final_layernorm": "output_norm", "self_attn.dense": "attn_output"},
            **{"mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down"},
        },
    ),
    "starcoder2": ModelType(
        "starcoder2",
        defaults={**TIED, "norm_epsilon": 1e-5},
        only={"mlp_type": ("default",), "scale_attn_weights": (True,), "norm_type": ("layer_norm",)},
        act=GELU,
        names={"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"},
    ),
    "falcon": ModelType(
        "falcon",
        sizes={
            "num_kv_heads": "",
            "ffn_hidden_size": "",
            "num_ln_in_parallel_attn": "",
            "new_decoder_architecture": "",
        },
        defaults={**TIED, "max_position_embeddings": 2048, "layer_norm_epsilon": 1e-5},
        only={
            **{"alibi": (False,), "parallel_attn": (True,), "multi_query": (True,)},
            "apply_residual_connection_post_layernorm": (False,),
        },
        act=("gelu",),
        names={
            **{"word_embeddings": "token_embd", "ln_f": "output_norm", "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2"},
            **{"self_attention.query_key_value": "attn_qkv", "self_attention.dense": "attn_output"},
            **{"mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down"},
        },
        changes={"attn_qkv": "grouped"},
        derive=size_falcon,
    ),
    "stablelm": ModelType(
        "stablelm",
        sizes={"use_parallel_residual": "use_parallel_residual"},
        defaults={"partial_rotary_factor": 0.25, "use_parallel_residual": False, "layer_norm_eps": 1e-5},
        only={"qk_layernorm": (False, True)},
        names={f"self_attn.{n}_layernorm.norms.#": f"attn_{n}_norm" for n in "qk"},
    ),
    "granitemoe": GRANITEMOE,
    "granitemoeshared": GRANITEMOE,
    "exaone4": ModelType(
        "exaone4", sizes={"sliding_window_pattern": ""}, defaults={"sliding_window": 4096}, names=AFTER
    ),
    "olmo3": ModelType("olmo2", defaults={"sliding_window": 4096, "rope_theta": 500000.0}, names=AFTER),
    "ministral3": extend(
        LLAMA,
        "mistral3",
        defaults={
            "rope_scaling": {
                **{"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "original_max_position_embeddings": 16384},
                **{"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1},
                **{"beta_fast": 32.0, "beta_slow": 1.0},
            },
        },
    ),
    "mamba": MAMBA,
    "mamba2": extend(
        MAMBA,
        "mamba2",
        sizes={"num_heads": "ssm.time_step_rank", "n_groups": "ssm.group_count", "time_step_rank": "", "head_dim": ""},
        defaults={"tie_word_embeddings": False, "state_size": 128, "num_heads": 128, "n_groups": 8},
        only={
            "time_step_limit": ([0.0, float("inf")], [0.0, {"__float__": "Infinity"}]),
            "norm_before_gate": (False,),
        },
        changes={"ssm_a": "decay", "ssm_d": "column", "ssm_norm": "groups"},
    ),
    "gemma3n_text": extend(
        GEMMA,
        "gemma3n",
        sizes={
            **dict.fromkeys(
                ("laurel_rank", "vocab_size_per_layer_input", "altup_coef_clip", "rope_local_base_freq"), ""
            ),
            **{
                "hidden_size_per_layer_input": "embedding_length_per_layer_input",
                "altup_num_inputs": "altup.num_inputs",
            },
            **{"altup_active_idx": "altup.active_idx", "num_kv_shared_layers": "attention.shared_kv_layers"},
            **{"final_logit_softcapping": "final_logit_softcapping", "activation_sparsity_pattern": ""},
            "intermediate_size": "",
        },
        defaults={"rope_theta": 1e6, "sliding_window": 512},
        only={"altup_correct_scale": (True,)},
        act=GELU,
        names={
            **GEMMA2.names,
            **{f"altup.{n}": f"altup_{m}" for n, m in (("modality_router", "router"), ("router_norm", "router_norm"))},
            **{f"altup.{n}ion_coefs": f"altup_{n}_coef" for n in ("predict", "correct")},
            "altup.correct_output_scale": "altup_correct_scale.weight",
            **{"laurel.linear_left": "laurel_l", "laurel.linear_right": "laurel_r"},
            **{"laurel.post_laurel_norm": "laurel_post_norm", "per_layer_input_gate": "inp_gate"},
            **{"per_layer_projection": "proj", "post_per_layer_input_norm": "post_norm"},
            **{"embed_tokens_per_layer": "per_layer_token_embd", "per_layer_model_projection": "per_layer_model_proj"},
            **{"per_layer_projection_norm": "per_layer_proj_norm", "altup_projections.#": "altup_proj"},
            "altup_unembed_projections.#": "altup_unembd_proj",
        },
        changes=dict.fromkeys(NORMS, ""),
        derive=size_gemma3n,
    ),
}
