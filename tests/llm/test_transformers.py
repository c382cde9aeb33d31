"""Test the float64 models against transformers' own: the same random weights under its names, the same logits."""

import re
from statistics import NormalDist

import numpy as np
import pytest
from reference_models import logits
from small_architectures import CONTEXT, DIM, EXPERT, EXPERTS, FILES, HEADS, INNER, KV_HEADS, VOCABULARY, WIDTH, made

pytestmark = pytest.mark.full
TEXT = [int(t) for t in np.random.default_rng(2).integers(0, VOCABULARY, 30)]
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_sinks": "self_attn.sinks",
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
} | {f"attn_{n}": f"self_attn.{n}_proj" for n in "qkv"}
LAYER |= {f"attn_{n}_norm": f"self_attn.{n}_norm" for n in "qk"} | {
    f"ffn_{n}": f"mlp.{n}_proj" for n in ("gate", "up", "down")
}
LAYER |= {f"ffn_{n}_shexp": f"mlp.shared_expert.{n}_proj" for n in ("gate", "up", "down")}
WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PATHS = {
    "gpt2": "transformer.h",
    "falcon": "transformer.h",
    "mamba": "backbone.layers",
    "mamba2-one": "backbone.layers",
}
ENDS = {"attn_sinks": "", "altup_correct_scale": "", "exp_probs_b": "_bias", "ssm_a": "", "ssm_d": ""}
AFTER = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
GEMMA = {**AFTER, "ffn_norm": "pre_feedforward_layernorm"}
ALTUP = {
    "altup_router": "altup.modality_router",
    "altup_router_norm": "altup.router_norm",
    "altup_predict_coef": "altup.prediction_coefs",
    "altup_correct_coef": "altup.correction_coefs",
    "altup_correct_scale": "altup.correct_output_scale",
    "laurel_l": "laurel.linear_left",
    "laurel_r": "laurel.linear_right",
    "laurel_post_norm": "laurel.post_laurel_norm",
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
    "altup_proj": "model.altup_projections",
    "altup_unembd_proj": "model.altup_unembed_projections",
}
GPT2 = {
    "token_embd": "transformer.wte",
    "position_embd": "transformer.wpe",
    "output_norm": "transformer.ln_f",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
STARCODER2 = {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"}
FALCON = {
    "token_embd": "transformer.word_embeddings",
    "output_norm": "transformer.ln_f",
    "attn_norm": "ln_mlp",
    "attn_norm_2": "ln_attn",
    "attn_qkv": "self_attention.query_key_value",
    "attn_output": "self_attention.dense",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
PHI2 = {
    "output_norm": "model.final_layernorm",
    "attn_output": "self_attn.dense",
    "ffn_up": "mlp.fc1",
    "ffn_down": "mlp.fc2",
}
LINEAR, YARN = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}, {"rope_type": "yarn", "rope_theta": 10000.0}
YARN |= {"original_max_position_embeddings": 16}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
GRANITE = {
    "embedding_multiplier": 1.7,
    "residual_multiplier": 0.6,
    "logits_scaling": 3.0,
    "attention_multiplier": 0.11,
    "tie_word_embeddings": True,
}
MAMBA_SIZES = {"state_size": 16, "conv_kernel": 4, "expand": 2, "time_step_rank": 8, "use_mambapy": False}
MAMBA_SIZES |= {"layer_norm_epsilon": 1e-5, "tie_word_embeddings": True}
MAMBA = {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "attn_norm": "norm"} | {
    f"ssm_{name}": f"mixer.{other}"
    for name, other in (
        ("in", "in_proj"),
        ("conv1d", "conv1d"),
        ("x", "x_proj"),
        ("dt", "dt_proj"),
        ("a", "A_log"),
        ("d", "D"),
        ("norm", "norm"),
        ("out", "out_proj"),
    )
}
DEEPSEEK = {
    "rms_norm_eps": 1e-6,
    "num_key_value_heads": HEADS,
    "head_dim": 32,
    "qk_rope_head_dim": 32,
    "qk_nope_head_dim": 32,
    "v_head_dim": 64,
    "kv_lora_rank": 64,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 2,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
}
DEEPSEEK_NAMES = {f"ffn_{n}_shexp": f"mlp.shared_experts.{n}_proj" for n in ("gate", "up", "down")} | {
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "exp_probs_b": "mlp.gate.e_score_correction",
}


def partial(share):
    return {"rope_parameters": {**PLAIN, "partial_rotary_factor": share}}


# By model: transformers' class, settings, names that differ, and whether its rope has halves where GGUF has pairs
MODELS = {
    "llama": ("Llama", {}, {}, True),
    "mistral": ("Mistral", {"sliding_window": 8}, {}, True),
    "mixtral": ("Mixtral", {"num_local_experts": EXPERTS, "intermediate_size": EXPERT}, {}, True),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}, {}, False),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}, {}, False),
    "gemma": ("Gemma", {"head_dim": 64}, {}, False),
    "gemma2": (
        "Gemma2",
        {
            "sliding_window": 8,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "query_pre_attn_scalar": DIM,
        },
        GEMMA,
        False,
    ),
    "gemma3": (
        "Gemma3Text",
        {
            "sliding_window": 8,
            "query_pre_attn_scalar": DIM,
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": LINEAR},
        },
        GEMMA,
        False,
    ),
    "gemma3n": (
        "Gemma3nText",
        {
            "sliding_window": 8,
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": {**PLAIN, "rope_theta": 1e6}},
            "layer_types": ["sliding_attention", "full_attention"] * 3,
            "num_kv_shared_layers": 2,
            "altup_num_inputs": 3,
            "laurel_rank": 16,
            "hidden_size_per_layer_input": 24,
            "vocab_size_per_layer_input": VOCABULARY,
            "activation_sparsity_pattern": [NormalDist().cdf(far) for far in (0.7, 1.6)] + [0.0] * 4,
            "final_logit_softcapping": 3.0,
        },
        {**GEMMA, **ALTUP},
        False,
    ),
    "phi2": ("Phi", partial(12 / 32), PHI2, False),
    "phi3": ("Phi3", {"sliding_window": 8}, {"ffn_up": "mlp.gate_up_proj"}, False),
    "starcoder2": (
        "Starcoder2",
        {"norm_epsilon": 1e-5, "sliding_window": None, "tie_word_embeddings": False},
        STARCODER2,
        False,
    ),
    "gpt2": (
        "GPT2",
        {"n_embd": WIDTH, "n_inner": INNER, "n_head": HEADS, "n_layer": 2, "n_positions": CONTEXT},
        GPT2,
        False,
    ),
    "stablelm": ("StableLm", {**partial(8 / 32), "use_qkv_bias": True, "layer_norm_eps": 1e-5}, {}, False),
    "exaone": ("Llama", {}, {}, False),
    "exaone4": (
        "Exaone4",
        {"sliding_window": 8, "sliding_window_pattern": 4, "tie_word_embeddings": True},
        AFTER,
        False,
    ),
    "mistral3": (
        "Ministral3",
        {
            "rope_parameters": {
                **YARN,
                "original_max_position_embeddings": 8,
                "factor": 8.0,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.3,
            }
        },
        {},
        True,
    ),
    "internlm2": ("Llama", {}, {}, True),
    "falcon": (
        "Falcon",
        {
            "new_decoder_architecture": True,
            "num_kv_heads": KV_HEADS,
            "ffn_hidden_size": INNER,
            "alibi": False,
            "bias": False,
            "tie_word_embeddings": False,
            "layer_norm_epsilon": 1e-5,
        },
        FALCON,
        False,
    ),
    "olmo2": ("Olmo2", {}, AFTER, False),
    "olmo3": (
        "Olmo3",
        {
            "sliding_window": 8,
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": {**YARN, "factor": 8.0}},
        },
        AFTER,
        False,
    ),
    "granite": ("Granite", GRANITE, {}, True),
    "command-r": ("Cohere", {"logit_scale": 0.4, "use_qk_norm": True, "layer_norm_eps": 1e-5}, {}, False),
    "cohere2": ("Cohere2", {"logit_scale": 0.4, "sliding_window": 8, "layer_norm_eps": 1e-5}, {}, False),
    "smollm3": ("SmolLM3", {"tie_word_embeddings": True, "no_rope_layer_interval": 4}, {}, True),
    "glm4": (
        "Glm4",
        {**partial(0.5), "attention_bias": False},
        {
            "ffn_up": "mlp.gate_up_proj",
            "post_attention_norm": "post_self_attn_layernorm",
            "post_ffw_norm": "post_mlp_layernorm",
        },
        False,
    ),
    "qwen2moe": (
        "Qwen2Moe",
        {"num_experts": EXPERTS, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 160},
        {},
        False,
    ),
    "qwen3moe": ("Qwen3Moe", {"num_experts": EXPERTS, "num_experts_per_tok": 2, "norm_topk_prob": True}, {}, False),
    "olmoe": ("Olmoe", {"num_experts": EXPERTS, "num_experts_per_tok": 3, "intermediate_size": EXPERT}, {}, False),
    "deepseek2": (
        "DeepseekV3",
        {
            **DEEPSEEK,
            "q_lora_rank": 96,
            "rope_parameters": {**YARN, "factor": 8.0, "mscale": 1.0, "mscale_all_dim": 1.0},
            "n_group": 3,
            "topk_group": 2,
            "norm_topk_prob": True,
            "routed_scaling_factor": 2.5,
        },
        DEEPSEEK_NAMES,
        False,
    ),
    "deepseek2-lite": ("DeepseekV2", {**DEEPSEEK, "q_lora_rank": None}, DEEPSEEK_NAMES, False),
    "mamba": ("Mamba", MAMBA_SIZES, MAMBA, False),
    "mamba2-one": (
        "Mamba2",
        {**MAMBA_SIZES, "num_heads": 4, "head_dim": 64, "n_groups": 1, "chunk_size": 8},
        MAMBA,
        False,
    ),
    "gpt-oss": (
        "GptOss",
        {
            "num_local_experts": EXPERTS,
            "num_experts_per_tok": 2,
            "intermediate_size": EXPERT,
            "sliding_window": 8,
            "rope_parameters": {**YARN, "factor": 4.0, "truncate": True},
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router"},
        False,
    ),
}


def to_transformers(gguf, model, names, halves):
    """Return the file's tensors under transformers' names."""
    held, made_ = {name: tensor.array.astype(np.float64) for name, tensor in gguf.tensors.items()}, {}
    for name, array in held.items():
        layer, stem, kind = re.fullmatch(r"(blk\.\d+\.)?(\w+)\.?(\w*)", name).groups()
        if "_exps" in stem or stem == "attn_k_b":
            continue
        target = {**WHOLE, **LAYER, **names}.get(stem, "")
        own = f"{PATHS.get(model, 'model.layers')}.{layer[4:]}" if layer else ""
        if model.startswith("gemma") and model != "gemma3n" and "norm" in stem:
            array = array - 1
        if halves and stem in ("attn_q", "attn_k"):
            heads = HEADS if stem == "attn_q" else KV_HEADS
            array = array.reshape(heads, DIM // 2, 2, -1).swapaxes(1, 2).reshape(array.shape)
        if model == "gpt2" and layer and array.ndim == 2:
            array = array.T
        if stem == "ffn_gate_inp_shexp":
            array = array[None]
        if model == "falcon" and stem == "attn_qkv":  # there, the heads of q that share one of k and v lie before it
            q, k, v = np.split(array.reshape(-1, DIM, WIDTH), [HEADS, HEADS + KV_HEADS])
            groups = zip(q.reshape(KV_HEADS, -1, DIM, WIDTH), k[:, None], v[:, None], strict=True)
            array = np.concatenate([np.concatenate(group) for group in groups]).reshape(array.shape)
        if stem == "ssm_conv1d" and array.ndim == 2:
            array = array[:, None]
        if stem in ("ssm_a", "ssm_d", "ssm_norm") and model == "mamba2-one":
            array = array.reshape(-1)
        if stem == "ssm_a":
            array = np.log(-array)
        if stem == "ssm_dt" and model == "mamba2-one":
            target, kind = "mixer", "dt_bias"
        if stem == "attn_v_b":
            k_b = held[name.replace("attn_v_b", "attn_k_b")].swapaxes(1, 2)
            target, array = "self_attn.kv_b_proj", np.concatenate([k_b, array], 1).reshape(-1, array.shape[2])
        parts = {target: array}
        if model == "gemma3n" and stem in ("attn_k", "attn_v", "attn_k_norm") and layer in ("blk.4.", "blk.5."):
            continue  # of layers that see the keys of those before
        if stem in ("altup_proj", "altup_unembd_proj"):
            parts = {f"{target}.{i}": matrix for i, matrix in enumerate(array)}
        if model == "phi2" and stem == "attn_qkv":
            rows = [HEADS * DIM, (HEADS + KV_HEADS) * DIM]
            parts = dict(zip((LAYER[f"attn_{n}"] for n in "qkv"), np.split(array, rows), strict=True))
        for part, values in parts.items():
            made_[f"{own}{part}{ENDS.get(stem, f'.{kind}')}"] = values
    for layer in range(FILES[model][0] if any("_exps" in name for name in held) else 0):
        for kind, end in (("weight", ""), ("bias", "_bias")):
            if f"blk.{layer}.ffn_up_exps.{kind}" not in held:
                continue
            gate, up, down = (held[f"blk.{layer}.ffn_{n}_exps.{kind}"] for n in ("gate", "up", "down"))
            both = np.concatenate([gate, up], 1)
            if model == "gpt-oss":
                both = np.stack([gate, up], 2).reshape(EXPERTS, 2 * EXPERT, *gate.shape[2:])
                both, down = (x.swapaxes(1, 2) if x.ndim == 3 else x for x in (both, down))
            own = f"model.layers.{layer}.mlp.experts."
            made_ |= {f"{own}gate_up_proj{end}": both, f"{own}down_proj{end}": down}
    return made_


@pytest.mark.parametrize("model", list(MODELS))
def test_the_float64_model_is_that_of_transformers(tmp_path, monkeypatch, model):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5")
    from module_zoo import import_transformers

    transformers = import_transformers()
    kind, settings, names, halves = MODELS[model]
    gguf = made(tmp_path / "m.gguf", model)
    common = {
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "moe_intermediate_size": EXPERT,
        "num_hidden_layers": FILES[model][0],
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_parameters": PLAIN,
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 1,
    }
    for name in {"Falcon": ["head_dim"], "Mamba": ["intermediate_size"]}.get(kind, []):
        del common[name]
    config = getattr(transformers, f"{kind}Config")(
        **{**common, **settings}, attn_implementation="eager", experts_implementation="eager"
    )
    whole = {"Gemma3Text": "Gemma3ForCausalLM", "Gemma3nText": "Gemma3nForCausalLM", "GPT2": "GPT2LMHeadModel"}.get(
        kind, f"{kind}ForCausalLM"
    )
    other = getattr(transformers, whole)(config).double().eval()
    if model == "gemma3n":  # without a factor scores are large, and it takes their softmax in F32
        softmax = torch.nn.functional.softmax
        monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype: softmax(x, dim))
    tensors = {n: torch.tensor(a) for n, a in to_transformers(gguf, model, names, halves).items()}
    missing, unexpected = other.load_state_dict(tensors, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    other.tie_weights()
    with torch.no_grad():
        wanted = other(torch.tensor([TEXT]), use_cache=False).logits[0].numpy()
    got = logits(gguf, model, TEXT)
    assert np.max(np.abs(got - wanted)) < 2e-6 * np.max(np.abs(wanted))
