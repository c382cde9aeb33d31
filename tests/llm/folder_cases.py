"""Small models of every model type that folders may have, as transformers' settings."""

PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 12}
EXPERTS = {"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
LOCAL = {"num_local_experts": 6, "num_experts_per_tok": 2}
COMMON = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 48,
    "vocab_size": 97,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
WIDE = {"hidden_size": 128, "head_dim": ...}  # for types whose heads share the width
DEEPSEEK = {
    "head_dim": 16,
    "num_key_value_heads": 4,
    "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 32,
    "v_head_dim": 24,
    "kv_lora_rank": 40,
    "q_lora_rank": 48,
    "n_routed_experts": 6,
    "n_shared_experts": 2,
    "moe_intermediate_size": 64,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "n_group": 3,
    "topk_group": 2,
}
MSCALE = {**YARN, "mscale": 0.7, "mscale_all_dim": 0.9}
NONE = dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads"), ...)
NONE |= dict.fromkeys(("intermediate_size", "num_key_value_heads", "head_dim", "max_position_embeddings"), ...)
GPT2 = {**NONE, "n_embd": 64, "n_inner": 96, "n_head": 4, "n_layer": 2, "n_positions": 48}
FALCON = {**WIDE, "num_key_value_heads": ..., "intermediate_size": ...}
STATES = {**NONE, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 16, "tie_word_embeddings": True}
# Transformers' names of models, where they are not those of the configurations
CLASSES = {"Gemma3Text": "Gemma3ForCausalLM", "Gemma3nText": "Gemma3nForCausalLM", "GPT2": "GPT2LMHeadModel"}
# By name: transformers' class, and settings other than COMMON; ... for none
CASES = {
    "llama": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama 3": (
        "Llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 500000.0,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "yarn": ("Llama", {"rope_parameters": YARN}),
    "yarn, not rounded": ("Llama", {"rope_parameters": {**YARN, "truncate": False, "beta_fast": 16.0}}),
    "mistral": ("Mistral", {"sliding_window": 5}),
    "mixtral": ("Mixtral", {**LOCAL, "sliding_window": None}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True, **WIDE}),
    "qwen3": ("Qwen3", {}),
    "gemma": ("Gemma", {}),
    "gemma2": ("Gemma2", {"num_hidden_layers": 3, "sliding_window": 8, "query_pre_attn_scalar": 20}),
    "gemma3_text": ("Gemma3Text", {"num_hidden_layers": 7, "sliding_window": 8, "query_pre_attn_scalar": 20}),
    "gemma3_text linear": (
        "Gemma3Text",
        {
            "num_hidden_layers": 4,
            "layer_types": ["sliding_attention", "full_attention"] * 2,
            "sliding_window": 8,
            "rope_parameters": {
                "sliding_attention": PLAIN,
                "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
            },
        },
    ),
    "phi3": ("Phi3", {**WIDE, "sliding_window": 8}),
    "phi3 partial": ("Phi3", {**WIDE, "rope_parameters": {**PLAIN, "partial_rotary_factor": 0.75}}),
    "longrope": (
        "Phi3",
        {
            **WIDE,
            "original_max_position_embeddings": 16,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                "short_factor": [1.0 + i / 9 for i in range(16)],
                "long_factor": [1.0 + i for i in range(16)],
            },
        },
    ),
    "qwen2_moe": ("Qwen2Moe", {**EXPERTS, "shared_expert_intermediate_size": 80, **WIDE}),
    "qwen3_moe": ("Qwen3Moe", {**EXPERTS, "norm_topk_prob": True}),
    "olmo2": ("Olmo2", {**WIDE}),
    "olmoe": ("Olmoe", {**WIDE, "num_experts": 6, "num_experts_per_tok": 3}),
    "granite": (
        "Granite",
        {
            **WIDE,
            "embedding_multiplier": 1.7,
            "residual_multiplier": 0.6,
            "logits_scaling": 3.0,
            "attention_multiplier": 0.11,
            "tie_word_embeddings": True,
        },
    ),
    "cohere": ("Cohere", {**WIDE, "logit_scale": 0.4, "use_qk_norm": True}),
    "cohere plain": (
        "Cohere",
        {
            **WIDE,
        },
    ),
    "cohere2": ("Cohere2", {"num_hidden_layers": 5, "sliding_window": 8}),
    "smollm3": ("SmolLM3", {**WIDE, "num_hidden_layers": 5}),
    "gpt2": ("GPT2", GPT2),
    "gpt_bigcode": ("GPTBigCode", GPT2),
    "glm": ("Glm", {}),
    "glm4": ("Glm4", {"attention_bias": False}),
    "deepseek_v2": ("DeepseekV2", {**DEEPSEEK, "q_lora_rank": None}),
    "deepseek_v2, groups": (
        "DeepseekV2",
        {**DEEPSEEK, "topk_method": "group_limited_greedy", "routed_scaling_factor": 2.5, "rope_parameters": MSCALE},
    ),
    "deepseek_v3": ("DeepseekV3", {**DEEPSEEK, "rope_parameters": MSCALE, "num_nextn_predict_layers": 1}),
    "gpt_oss": (
        "GptOss",
        {**LOCAL, "sliding_window": 8, "intermediate_size": 64, "rope_parameters": {**YARN, "truncate": False}},
    ),
    "phi": ("Phi", WIDE),
    "starcoder2": ("Starcoder2", {**WIDE, "sliding_window": 8}),
    "falcon": ("Falcon", FALCON),
    "falcon, new": ("Falcon", {**FALCON, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "stablelm": ("StableLm", {**WIDE, "use_qkv_bias": True}),
    "stablelm, parallel": ("StableLm", {**WIDE, "use_parallel_residual": True, "qk_layernorm": True}),
    "granitemoe": ("GraniteMoe", {**WIDE, **LOCAL, "attention_multiplier": 0.11}),
    "granitemoeshared": (
        "GraniteMoeShared",
        {**WIDE, **LOCAL, "attention_multiplier": 0.11, "shared_intermediate_size": 80},
    ),
    "exaone4": ("Exaone4", {"num_hidden_layers": 5, "sliding_window": 8}),
    "exaone4, whole": (
        "Exaone4",
        {"num_hidden_layers": 4, "sliding_window": None, "layer_types": ["full_attention"] * 4},
    ),
    "olmo3": (
        "Olmo3",
        {
            **WIDE,
            "num_hidden_layers": 4,
            "sliding_window": 8,
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": YARN},
        },
    ),
    "ministral3": (
        "Ministral3",
        {"rope_parameters": {**MSCALE, "original_max_position_embeddings": 8, "llama_4_scaling_beta": 0.3}},
    ),
    "mamba": ("Mamba", {**STATES, "time_step_rank": 8}),
    "mamba2": ("Mamba2", {**STATES, "num_heads": 4, "head_dim": 32, "n_groups": 2, "chunk_size": 8}),
    "gemma3n_text": (
        "Gemma3nText",
        {
            "num_hidden_layers": 6,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_kv_shared_layers": 2,
            "altup_num_inputs": 3,
            "laurel_rank": 16,
            "hidden_size_per_layer_input": 24,
            "vocab_size_per_layer_input": 97,
            "activation_sparsity_pattern": [0.8, 0.95, 0.0, 0.0, 0.0, 0.0],
        },
    ),
}
