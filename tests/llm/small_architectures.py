"""GGUF files of small models with random weights, one for each architecture that Isokern runs."""

import numpy as np
from gguf_write import write_gguf

from isokern.blocks import quantize
from isokern.dtypes import Q8_0
from isokern.llm import GGUF

WIDTH, INNER, HEADS, KV_HEADS, DIM, VOCABULARY, CONTEXT, WINDOW, EXPERTS, USED, EXPERT = (
    128,
    96,
    4,
    2,
    32,
    97,
    64,
    8,
    6,
    2,
    64,
)
ROWS = {
    "attn_q": HEADS * DIM,
    "attn_k": KV_HEADS * DIM,
    "attn_v": KV_HEADS * DIM,
    "attn_qkv": (HEADS + 2 * KV_HEADS) * DIM,
    "attn_output": WIDTH,
    "ffn_gate": INNER,
    "ffn_up": INNER,
    "ffn_down": WIDTH,
    "ffn_gate_inp": EXPERTS,
    "ffn_gate_shexp": 160,
    "ffn_up_shexp": 160,
    "ffn_down_shexp": WIDTH,
}
COLUMNS = {"attn_output": HEADS * DIM, "ffn_down": INNER, "ffn_down_shexp": 160}
STACKS = {
    "ffn_gate_exps": (EXPERTS, EXPERT, WIDTH),
    "ffn_up_exps": (EXPERTS, EXPERT, WIDTH),
    "ffn_down_exps": (EXPERTS, WIDTH, EXPERT),
}
ATTENTION = "attn_norm attn_q attn_k attn_v attn_output ffn_norm"
LLAMA = f"{ATTENTION} ffn_gate ffn_up ffn_down"
GPT2 = "attn_norm+ attn_qkv+ attn_output+ ffn_norm+ ffn_up+ ffn_down+"
MOE = "ffn_gate_inp ffn_gate_exps ffn_up_exps ffn_down_exps"
SHARED = "ffn_gate_shexp ffn_up_shexp ffn_down_shexp"
AFTER = "post_attention_norm post_ffw_norm"
EXPERT_FACTS = {"expert_count": EXPERTS, "expert_used_count": USED, "expert_feed_forward_length": EXPERT}
WINDOWED = {"attention.sliding_window": WINDOW}
SCALES = {"embedding_scale": 1.7, "residual_scale": 0.6, "logit_scale": 3.0}
PLAIN, ROTATED, VALUE, RANK, QUERY_RANK = 32, 32, 64, 64, 96  # of latent attention
LATENT = "attn_norm attn_q_a attn_q_a_norm attn_q_b attn_kv_a_mqa attn_kv_a_norm attn_k_b attn_v_b attn_output ffn_norm"
LITE = "attn_norm attn_q attn_kv_a_mqa attn_kv_a_norm attn_kv_b attn_output ffn_norm"
LATENT_SHAPES = {
    "attn_q": (HEADS * (PLAIN + ROTATED), WIDTH),
    "attn_q_a": (QUERY_RANK, WIDTH),
    "attn_q_a_norm": (QUERY_RANK,),
    "attn_q_b": (HEADS * (PLAIN + ROTATED), QUERY_RANK),
    "attn_kv_a_mqa": (RANK + ROTATED, WIDTH),
    "attn_kv_a_norm": (RANK,),
    "attn_kv_b": (HEADS * (PLAIN + VALUE), RANK),
    "attn_k_b": (HEADS, RANK, PLAIN),
    "attn_v_b": (HEADS, VALUE, RANK),
    "attn_output": (WIDTH, HEADS * VALUE),
    "exp_probs_b": (EXPERTS,),
} | {
    f"ffn_{name}_shexp": shape
    for name, shape in (("gate", (2 * EXPERT, WIDTH)), ("up", (2 * EXPERT, WIDTH)), ("down", (WIDTH, 2 * EXPERT)))
}
GROUPED = {
    "leading_dense_block_count": 1,
    "expert_shared_count": 2,
    "expert_gating_func": 2,
    "expert_weights_norm": True,
    "expert_weights_scale": 2.5,
    "expert_group_count": 3,
    "expert_group_used_count": 2,
}
ALTUP = (
    "altup_router altup_router_norm altup_predict_coef altup_correct_coef altup_correct_scale"
    " laurel_l laurel_r laurel_post_norm inp_gate proj post_norm"
)


def altup_shapes(count, inner, rank):
    """Return the shapes of what has to do with branches, in six layers."""
    return {
        "altup_router": (count, WIDTH),
        "altup_predict_coef": (count * count, count),
        "altup_correct_coef": (count, count),
        "altup_correct_scale": (WIDTH,),
        "laurel_l": (rank, WIDTH),
        "laurel_r": (WIDTH, rank),
        "inp_gate": (inner, WIDTH),
        "proj": (WIDTH, inner),
        "altup_proj": (count - 1, WIDTH, WIDTH),
        "altup_unembd_proj": (count - 1, WIDTH, WIDTH),
        "per_layer_token_embd": (VOCABULARY, 6 * inner),
        "per_layer_model_proj": (6 * inner, WIDTH),
        "per_layer_proj_norm": (inner,),
    }


ALTUP_SHAPES = altup_shapes(3, 24, 16)
LOW = " ".join(f"time_mix_{letter}{i}" for letter in "wav" for i in range(3))
RWKV = (
    f"attn_norm+ attn_norm_2+ time_mix_lerp_fused {LOW} time_mix_g1 time_mix_g2 time_mix_k_k time_mix_k_a time_mix_r_k"
    " time_mix_receptance time_mix_key time_mix_value time_mix_ln+ time_mix_output"
    " channel_mix_lerp_k channel_mix_key channel_mix_value"
)
RANKS = {"w": 16, "a": 12, "v": 8, "g": 20}
RWKV_SHAPES = {
    "time_mix_lerp_fused": (6, 1, 1, WIDTH),
    "channel_mix_lerp_k": (1, 1, WIDTH),
    "channel_mix_key": (INNER, WIDTH),
    "channel_mix_value": (WIDTH, INNER),
}
RWKV_SHAPES |= {f"time_mix_{n}": (WIDTH,) for n in ("w0", "a0", "v0", "k_k", "k_a", "r_k", "ln")}
RWKV_SHAPES |= {f"time_mix_{n}": (WIDTH, WIDTH) for n in ("receptance", "key", "value", "output")}
RWKV_SHAPES |= {f"time_mix_{letter}1": (rank, WIDTH) for letter, rank in RANKS.items()}
RWKV_SHAPES |= {f"time_mix_{letter}2": (WIDTH, rank) for letter, rank in RANKS.items()}
MAMBA = "attn_norm ssm_in ssm_conv1d+ ssm_a! ssm_d! ssm_out"
STATES = {"ssm.inner_size": 256, "ssm.state_size": 16, "ssm.conv_kernel": 4} | {
    "attention.head_count": 0,
    "attention.head_count_kv": None,
    "feed_forward_length": 0,
}
EVEN = {"ssm.time_step_rank": 8, "ssm.dt_b_c_rms": True}
# By architecture: layers, tensors of each (+: with a bias, -: a bias alone, !: no suffix; those of the first layer
# apart where they differ), facts, tensors of the file besides the table and its norm
FILES = {
    "llama": (2, LLAMA, {}, "output"),
    "mistral": (2, LLAMA, WINDOWED, "output"),
    "mixtral": (2, f"{ATTENTION} {MOE}", {**EXPERT_FACTS, "feed_forward_length": EXPERT}, "output"),
    "qwen2": (2, LLAMA.replace("attn_q attn_k attn_v", "attn_q+ attn_k+ attn_v+"), {}, ""),
    "qwen3": (2, f"{LLAMA} attn_q_norm attn_k_norm", {}, ""),
    "gemma": (2, LLAMA, {"attention.key_length": 64, "attention.value_length": 64}, ""),
    "gemma2": (4, f"{LLAMA} {AFTER}", {**WINDOWED, "attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}, ""),
    "gemma3": (
        7,
        f"{LLAMA} {AFTER} attn_q_norm attn_k_norm",
        {**WINDOWED, "rope.freq_base": 1e6, "rope.scaling.type": "linear", "rope.scaling.factor": 8.0},
        "",
    ),
    "gemma3n": (
        6,
        f"{LLAMA} {AFTER} attn_q_norm attn_k_norm {ALTUP}",
        {
            **WINDOWED,
            "attention.sliding_window_pattern": np.array([True, False] * 3),
            "attention.shared_kv_layers": 2,
            "altup.num_inputs": 3,
            "altup.active_idx": 0,
            "embedding_length_per_layer_input": 24,
            "activation_sparsity_scale": np.array([0.7, 1.6, *[-np.inf] * 4], np.float32),
            "feed_forward_length": np.array([INNER] * 6, np.int32),
            "rope.freq_base": 1e6,
            "rope.freq_base_swa": 10000.0,
            "final_logit_softcapping": 3.0,
        },
        "per_layer_token_embd per_layer_model_proj per_layer_proj_norm altup_proj altup_unembd_proj",
    ),
    "phi2": (2, "attn_norm+ attn_qkv+ attn_output+ ffn_up+ ffn_down+", {"rope.dimension_count": 12}, "output+"),
    "phi3": (2, "attn_norm attn_qkv attn_output ffn_norm ffn_up ffn_down", WINDOWED, "output"),
    "starcoder2": (2, GPT2.replace("attn_qkv+", "attn_q+ attn_k+ attn_v+"), {}, "output"),
    "gpt2": (2, GPT2, {"attention.head_count_kv": HEADS}, "position_embd"),
    "falcon": (2, "attn_norm+ attn_norm_2+ attn_qkv attn_output ffn_up ffn_down", {}, "output"),
    "stablelm": (
        2,
        LLAMA.replace("_norm", "_norm+").replace("attn_q attn_k attn_v", "attn_q+ attn_k+ attn_v+"),
        {"rope.dimension_count": 8, "use_parallel_residual": False},
        "output",
    ),
    "stablelm-parallel": (
        2,
        f"{LLAMA.replace('_norm', '_norm+').replace('ffn_norm+ ', '')} attn_q_norm attn_k_norm",
        {"rope.dimension_count": 8, "use_parallel_residual": True},
        "output",
    ),
    "olmo2": (2, f"{LLAMA[10:].replace('ffn_norm ', '')} {AFTER} attn_q_norm attn_k_norm", {}, "output"),
    "olmo3": (
        4,
        f"{LLAMA[10:].replace('ffn_norm ', '')} {AFTER} attn_q_norm attn_k_norm",
        {
            **WINDOWED,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 16,
        },
        "output",
    ),
    "granite": (2, LLAMA, {**SCALES, "attention.scale": 0.11}, ""),
    "granitemoe": (
        2,
        f"{ATTENTION} {MOE} ffn_gate_shexp ffn_up_shexp ffn_down_shexp",
        {**SCALES, **EXPERT_FACTS, "attention.scale": 0.11, "expert_shared_feed_forward_length": 160},
        "",
    ),
    "command-r": (
        2,
        f"{LLAMA.replace('ffn_norm ', '')} attn_q_norm attn_k_norm",
        {"logit_scale": 0.4, "rope.scaling.type": "none"},
        "",
    ),
    "cohere2": (5, LLAMA.replace("ffn_norm ", ""), {"logit_scale": 0.4, **WINDOWED}, ""),
    "smollm3": (5, LLAMA, {}, ""),
    "exaone": (2, LLAMA, {}, "output"),
    "exaone4": (5, f"{LLAMA[10:].replace('ffn_norm ', '')} {AFTER} attn_q_norm attn_k_norm", WINDOWED, ""),
    "mistral3": (
        2,
        LLAMA,
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 8,
            "rope.scaling.yarn_log_multiplier": 1.0,
            "attention.temperature_scale": 0.3,
        },
        "output",
    ),
    "internlm2": (2, LLAMA, {}, "output"),
    "minicpm": (2, LLAMA, SCALES, ""),
    "glm4": (
        2,
        f"{LLAMA.replace('ffn_gate ', '')} {AFTER}",
        {"rope.dimension_count": 16},
        "output",
    ),
    "chatglm": (
        2,
        "attn_norm attn_qkv+ attn_output ffn_norm ffn_up ffn_down",
        {"rope.dimension_count": 16},
        "output",
    ),
    "qwen2moe": (
        2,
        f"{ATTENTION.replace('attn_q attn_k attn_v', 'attn_q+ attn_k+ attn_v+')} {MOE}"
        " ffn_gate_inp_shexp ffn_gate_shexp ffn_up_shexp ffn_down_shexp",
        {**EXPERT_FACTS, "expert_shared_feed_forward_length": 160},
        "output",
    ),
    "qwen3moe": (2, f"{ATTENTION} {MOE} attn_q_norm attn_k_norm", EXPERT_FACTS, "output"),
    "olmoe": (2, f"{ATTENTION} {MOE} attn_q_norm attn_k_norm", {**EXPERT_FACTS, "expert_used_count": 3}, "output"),
    "deepseek2": (
        3,
        (f"{LATENT} ffn_gate ffn_up ffn_down", f"{LATENT} {MOE} {SHARED} exp_probs_b-"),
        {
            **EXPERT_FACTS,
            **GROUPED,
            "attention.key_length": RANK + ROTATED,
            "attention.value_length": RANK,
            "attention.key_length_mla": PLAIN + ROTATED,
            "attention.value_length_mla": VALUE,
            "attention.head_count_kv": 1,
            "attention.q_lora_rank": QUERY_RANK,
            "attention.kv_lora_rank": RANK,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": ROTATED,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.yarn_log_multiplier": 0.1,
        },
        "output",
    ),
    "deepseek2-lite": (
        2,
        (f"{LITE} ffn_gate ffn_up ffn_down", f"{LITE} {MOE} {SHARED}"),
        {
            **EXPERT_FACTS,
            "leading_dense_block_count": 1,
            "expert_shared_count": 2,
            "attention.key_length": PLAIN + ROTATED,
            "attention.value_length": VALUE,
            "attention.head_count_kv": HEADS,
            "attention.kv_lora_rank": RANK,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.dimension_count": ROTATED,
        },
        "output",
    ),
    "mamba": (2, f"{MAMBA} ssm_x ssm_dt+", {**STATES, **EVEN, "ssm.dt_b_c_rms": False}, ""),
    "falcon-mamba": (
        2,
        f"{MAMBA} ssm_x ssm_dt+",
        {**STATES, **EVEN},
        "output",
    ),
    "mamba2": (2, f"{MAMBA} ssm_dt- ssm_norm", {**STATES, "ssm.time_step_rank": 4, "ssm.group_count": 2}, "output"),
    "mamba2-one": (2, f"{MAMBA} ssm_dt- ssm_norm", {**STATES, "ssm.time_step_rank": 4, "ssm.group_count": 1}, ""),
    "rwkv7": (
        3,
        RWKV,
        {
            "attention.head_count": 0,
            "attention.head_count_kv": None,
            "wkv.head_size": 32,
            "attention.decay_lora_rank": RANKS["w"],
            "attention.iclr_lora_rank": RANKS["a"],
            "attention.value_residual_mix_lora_rank": RANKS["v"],
            "attention.gate_lora_rank": RANKS["g"],
        },
        "token_embd_norm+ output",
    ),
    "gpt-oss": (
        3,
        "attn_norm attn_q+ attn_k+ attn_v+ attn_output+ attn_sinks post_attention_norm"
        " ffn_gate_inp+ ffn_gate_exps+ ffn_up_exps+ ffn_down_exps+",
        {
            **EXPERT_FACTS,
            **WINDOWED,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 16,
        },
        "output",
    ),
}
NAMES = {
    "mistral": "llama",
    "mixtral": "llama",
    "stablelm-parallel": "stablelm",
    "olmo3": "olmo2",
    "deepseek2-lite": "deepseek2",
    "falcon-mamba": "mamba",
    "mamba2-one": "mamba2",
}
LAYER_NORMS = ("gpt2", "phi2", "starcoder2", "falcon", "stablelm", "command-r", "cohere2", "rwkv7")


def shape_of(model, name, dim):
    """Return the shape of a tensor of a layer."""
    if name in RWKV_SHAPES:
        return RWKV_SHAPES[name]
    if name in ALTUP_SHAPES:
        return ALTUP_SHAPES[name]
    if "deepseek2" in model and name in LATENT_SHAPES:
        return LATENT_SHAPES[name]
    if name.startswith("ssm"):
        groups = {"mamba2": 2, "mamba2-one": 1}.get(model, 0)
        more = 2 * groups * 16
        return {
            "ssm_in": (512 + more + (4 if groups else 0), WIDTH),
            "ssm_conv1d": (256 + more, 4),
            "ssm_x": (8 + 2 * 16, 256),
            "ssm_dt": (4,) if groups else (256, 8),
            "ssm_a": (4, 1) if groups else (256, 16),
            "ssm_d": (4, 1) if groups else (256,),
            "ssm_norm": (groups, 256 // max(groups, 1)),
            "ssm_out": (WIDTH, 256),
        }[name]
    if name in STACKS:
        return STACKS[name]
    if name in ("attn_q_norm", "attn_k_norm"):
        heads = HEADS if name == "attn_q_norm" else KV_HEADS
        if model in ("stablelm-parallel", "command-r"):
            return heads, dim
        return (heads * dim,) if model in ("olmo2", "olmo3", "olmoe") else (dim,)
    if name == "attn_sinks":
        return (HEADS,)
    if "norm" in name or name == "ffn_gate_inp_shexp":
        return (WIDTH,)
    if model == "gpt2" and name == "attn_qkv":
        return 3 * HEADS * DIM, WIDTH
    rows, columns = ROWS[name], COLUMNS.get(name, WIDTH)
    if dim != DIM and name.startswith("attn"):
        rows, columns = (rows * dim // DIM, columns) if name != "attn_output" else (rows, columns * dim // DIM)
    if name == "ffn_up" and model in ("phi3", "glm4", "chatglm"):
        rows *= 2
    return rows, columns


def made(path, model, dtype="F32", change=None, seed=5, **metadata):
    """Write a small model with random weights; `change(facts, tensors)` alters it."""
    rng = np.random.default_rng(seed)
    layers, names, facts, others = FILES[model]
    dim, per_layer = facts.get("attention.key_length", DIM), (names, names) if isinstance(names, str) else names

    def weight(shape, vector=False):
        if vector or len(shape) == 1:
            return (rng.standard_normal(shape) / 3).astype(np.float32)
        array = (rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])).astype(np.float32)
        if dtype == "Q8_0":
            return dtype, shape, quantize(array, Q8_0).reshape(-1)
        return array

    held = {}

    def add(own, words):
        for word in words.split():
            name = word.rstrip("+-!")
            shape = (CONTEXT, WIDTH) if name == "position_embd" else (VOCABULARY, WIDTH)
            if own or "norm" in name or name in ALTUP_SHAPES:
                shape = shape_of(model, name, dim)
            norm = 1 if "norm" in name else 0
            if word.endswith("!"):
                array = rng.uniform(0.2, 4, shape).astype(np.float32)
                held[f"{own}{name}"] = -array if name == "ssm_a" else array
            elif not word.endswith("-"):
                plain = norm or name == "ssm_conv1d"
                held[f"{own}{name}.weight"] = norm + weight(shape, True) if plain else weight(shape)
            if word.endswith(("+", "-")):
                held[f"{own}{name}.bias"] = weight(shape[:-1] or shape, True)

    layer_norm = NAMES.get(model, model) in LAYER_NORMS
    biased = "+" if "attn_norm+" in per_layer[0] else ""
    add("", f"token_embd output_norm{biased} {others}")
    for layer in range(layers):
        add(f"blk.{layer}.", per_layer[min(layer, 1)])
    name = NAMES.get(model, model)
    known = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": layers,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        f"attention.layer_norm_{'' if layer_norm else 'rms_'}epsilon": 1e-5,
        **facts,
        **metadata,
    }
    known = {key: value for key, value in known.items() if value is not None}
    whole = {"general.architecture": name, **{f"{name}.{key}": value for key, value in known.items()}}
    if change is not None:
        change(whole, held)
    write_gguf(path, whole, held)
    return GGUF.open(path)
