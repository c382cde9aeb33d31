"""Test the float64 models against transformers' own: the same random weights, saved as a folder, the same logits."""

from dataclasses import replace
from statistics import NormalDist

import numpy as np
import pytest
from folder_cases import CLASSES
from reference_models import logits
from small_architectures import CONTEXT, DIM, EXPERT, EXPERTS, FILES, HEADS, INNER, KV_HEADS, VOCABULARY, WIDTH

from isokern.llm.folder import open_folder
from isokern.llm.folder_table import MODEL_TYPES

pytestmark = pytest.mark.full
TEXT = [int(t) for t in np.random.default_rng(2).integers(0, VOCABULARY, 30)]
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


def partial(share):
    return {"rope_parameters": {**PLAIN, "partial_rotary_factor": share}}


# By model: transformers' class, and settings
MODELS = {
    "llama": ("Llama", {}),
    "mistral": ("Mistral", {"sliding_window": 8}),
    "mixtral": ("Mixtral", {"num_local_experts": EXPERTS, "intermediate_size": EXPERT}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True}),
    "gemma": ("Gemma", {"head_dim": 64}),
    "gemma2": (
        "Gemma2",
        {
            "sliding_window": 8,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 3.0,
            "query_pre_attn_scalar": DIM,
        },
    ),
    "gemma3": (
        "Gemma3Text",
        {
            "sliding_window": 8,
            "query_pre_attn_scalar": DIM,
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": LINEAR},
        },
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
    ),
    "phi2": ("Phi", partial(12 / 32)),
    "phi3": ("Phi3", {"sliding_window": 8}),
    "starcoder2": (
        "Starcoder2",
        {"norm_epsilon": 1e-5, "sliding_window": None, "tie_word_embeddings": False},
    ),
    "gpt2": (
        "GPT2",
        {"n_embd": WIDTH, "n_inner": INNER, "n_head": HEADS, "n_layer": 2, "n_positions": CONTEXT},
    ),
    "stablelm": ("StableLm", {**partial(8 / 32), "use_qkv_bias": True, "layer_norm_eps": 1e-5}),
    "exaone": ("Llama", {}),
    "exaone4": (
        "Exaone4",
        {"sliding_window": 8, "sliding_window_pattern": 4, "tie_word_embeddings": True},
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
    ),
    "internlm2": ("Llama", {}),
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
    ),
    "olmo2": ("Olmo2", {}),
    "olmo3": (
        "Olmo3",
        {
            "sliding_window": 8,
            "rope_parameters": {"sliding_attention": PLAIN, "full_attention": {**YARN, "factor": 8.0}},
        },
    ),
    "granite": ("Granite", GRANITE),
    "command-r": ("Cohere", {"logit_scale": 0.4, "use_qk_norm": True, "layer_norm_eps": 1e-5}),
    "cohere2": ("Cohere2", {"logit_scale": 0.4, "sliding_window": 8, "layer_norm_eps": 1e-5}),
    "smollm3": ("SmolLM3", {"tie_word_embeddings": True, "no_rope_layer_interval": 4}),
    "chatglm": ("Glm", partial(0.5)),
    "glm4": (
        "Glm4",
        {**partial(0.5), "attention_bias": False},
    ),
    "qwen2moe": (
        "Qwen2Moe",
        {"num_experts": EXPERTS, "num_experts_per_tok": 2, "shared_expert_intermediate_size": 160},
    ),
    "qwen3moe": ("Qwen3Moe", {"num_experts": EXPERTS, "num_experts_per_tok": 2, "norm_topk_prob": True}),
    "olmoe": ("Olmoe", {"num_experts": EXPERTS, "num_experts_per_tok": 3, "intermediate_size": EXPERT}),
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
    ),
    "deepseek2-lite": ("DeepseekV2", {**DEEPSEEK, "q_lora_rank": None}),
    "mamba": ("Mamba", MAMBA_SIZES),
    "mamba2-one": (
        "Mamba2",
        {**MAMBA_SIZES, "num_heads": 4, "head_dim": 64, "n_groups": 1, "chunk_size": 8},
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
    ),
}


def draw_weights(torch, model, plain):
    """Draw a model's weights; norms are about 1, or about 0 where transformers adds 1 to them (`plain` is false)."""
    torch.manual_seed(2)
    for name, weight in model.state_dict().items():
        if weight.ndim > 1 and "A_log" not in name:
            torch.nn.init.normal_(weight, std=1.5 / weight.shape[-1] ** 0.5)
        elif weight.is_floating_point() and "A_log" not in name and "dt_" not in name:
            torch.nn.init.normal_(weight, mean=float(plain and "norm" in name), std=1 / 3)


def build(model):
    """Return transformers' model of a kind, with the sizes of the small files."""
    from module_zoo import import_transformers

    transformers = import_transformers()
    kind, settings = MODELS[model]
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
    made = getattr(transformers, f"{kind}Config")
    fields = made().to_dict()
    common = {
        key: value for key, value in common.items() if key in fields and (kind, key) != ("Mamba", "intermediate_size")
    }
    config = made(**{**common, **settings}, attn_implementation="eager", experts_implementation="eager")
    return getattr(transformers, CLASSES.get(kind, f"{kind}ForCausalLM"))(config).eval()


@pytest.mark.parametrize("model", list(MODELS))
def test_the_float64_model_is_that_of_transformers(tmp_path, monkeypatch, model):
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers", minversion="5")
    other = build(model)
    draw_weights(torch, other, "gemma" not in model or model == "gemma3n")
    other.save_pretrained(tmp_path)
    if model == "gemma3n":  # without a factor scores are large, and it takes their softmax in F32
        softmax = torch.nn.functional.softmax
        monkeypatch.setattr(torch.nn.functional, "softmax", lambda x, dim, dtype: softmax(x, dim))
    with torch.no_grad():
        wanted = other.double()(torch.tensor([TEXT]), use_cache=False).logits[0].numpy()
    if model == "exaone":  # Llama's weights in transformers' own order of rows
        monkeypatch.setitem(MODEL_TYPES, "llama", replace(MODEL_TYPES["llama"], changes={}))
    got = logits(open_folder(tmp_path), model, TEXT)
    limit = 4e-6 if model == "gemma3n" else 2e-6  # its gates open at a float32 share
    assert np.max(np.abs(got - wanted)) < limit * np.max(np.abs(wanted))
