"""The architectures of language models, as data: the parts of a layer of each.

Adding one is an entry in `ARCHITECTURES`, and its formula in tests/llm/reference_models.py. Names of tensors are those
of GGUF (the `gguf` package's constants); what a file's own metadata says is read by `isokern.llm.architecture`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

# Scales that a file may give; an architecture lists those that it has, with the value if the file gives none
EMBEDDING, RESIDUAL, LOGITS = "embedding_scale", "residual_scale", "logit_scale"
ATTENTION, SCORES_CAP, LOGITS_CAP = "attention.scale", "attn_logit_softcapping", "final_logit_softcapping"
TEMPERATURE = "attention.temperature_scale"  # a factor of queries that depends on their positions
REQUIRED = -1  # in place of a default: the file has to give the value

QKV = ("attn_qkv", "attn_q", "attn_k", "attn_v")


@dataclass(frozen=True)
class Router:
    """How a layer of experts chooses among them, if the file has some (`expert_count`).

    Scores are `scoring` of the logits; `normalize` makes the chosen ones' weights sum to 1. `shared` is the shared
    expert that computes every token: "" for none, "added", or "gated" by the sigmoid of a product
    (ffn_gate_inp_shexp). `biases`: the router and the experts have biases. `told`: the file says all of this, and more
    (DeepSeek: `expert_gating_func`, `expert_weights_norm`, groups, `leading_dense_block_count` …).
    """

    normalize: bool = True
    scoring: str = "softmax"
    shared: str = ""
    biases: bool = False
    told: bool = False


@dataclass(frozen=True)
class Architecture:
    """The parts of a layer of an architecture. The defaults are Llama's, except for the pairing of rope.

    - `source`: the paper or model card that the formula is from.
    - `pairing`: which elements rope rotates together, "adjacent" or "half"; "" for learned positions (position_embd).
    - `norm`: "rms_norm" or "layer_norm"; `norm_biases`: norms have a bias.
    - `before`, `after`: the norms before and after attention and the feed-forward layer, "" for none.
    - `parallel`: both read the same normed x, and are added together: "always", "never", or "file": if the file has
      no norm before the feed-forward layer, and `use_parallel_residual` is not false. `second_norm`: attention has a
      norm of its own if the file has one (attn_norm_2).
    - `head_norms`: norms of q and k: "head" (one weight for all heads), "heads" (a weight for each, if the file has
      them), "row" (all heads as one row), "" for none.
    - `biases`: the products that must have a bias. Others have one if the file has it.
    - `gate`: the operator between the products of the feed-forward layer; of two inputs if its name ends in mul.
      `fused_gate`: gate and up are one tensor, ffn_up.
    - `windows`: sliding windows (`attention.sliding_window`): of every n layers all but the last have one; with 1 all
        have one, with 0 none may. `window`: the default if the file gives none; 0 for no windows, REQUIRED if it has
        to.
      - `rotated`: the layers with rope: "all", "windowed" (all if none has a window), or "three" of four.
      - `local_scaling`: rope is also scaled in layers with a window; `local_theta`: its base there, 0 for the same.
    - `scales`: factors and caps by key, with their defaults; `divides`: the logits are divided by theirs. The one of
      TEMPERATURE, t, multiplies queries by 1 + t log(1 + floor(position / length)).
      `scale_by_width`: the number of layers of the one model whose scores are scaled by 1/sqrt(width / heads).
    - `sqrt_width`: embeddings are multiplied by sqrt(width).
    - `sinks`: heads have sinks (attn_sinks). `router`: experts, if the file has some. `latent`: keys and values are
      computed from one latent row a token (multi-head latent attention). `state`: layers are state spaces in place of
      attention and feed-forward network, "selective" (Mamba), "heads" (Mamba-2) or "mixing" (RWKV-7). `first_norm`:
      embeddings are normalized (token_embd_norm). `altup`: a token has several rows, the last layers may have no keys
      of their own, and values are normalized (Gemma 3n).
    """

    source: str
    pairing: str
    norm: str = "rms_norm"
    norm_biases: bool = False
    before: tuple[str, str] = ("attn_norm", "ffn_norm")
    after: tuple[str, str] = ("", "")
    parallel: str = "never"
    second_norm: bool = False
    head_norms: str = ""
    biases: tuple[str, ...] = ()
    gate: str = "silu_mul"
    fused_gate: bool = False
    windows: int = 0
    window: int = 0
    rotated: str = "all"
    local_theta: float = 0.0
    local_scaling: bool = True
    scales: Mapping[str, float] = field(default_factory=dict)
    divides: bool = False
    scale_by_width: int = 0
    sqrt_width: bool = False
    sinks: bool = False
    router: Router | None = None
    latent: bool = False
    state: str = ""
    first_norm: bool = False
    altup: bool = False


LLAMA = Architecture("Touvron et al. 2023; experts: Mixtral, Jiang et al. 2024", "adjacent", router=Router(), windows=1)
QWEN2 = Architecture("Qwen2, Yang et al. 2024", "half", biases=QKV)
QWEN3 = Architecture("Qwen3, Yang et al. 2025", "half", head_norms="head")
AFTER = ("post_attention_norm", "post_ffw_norm")

GEMMA = Architecture("Gemma, Google 2024", "half", gate="gelu_tanh_mul", sqrt_width=True)
GEMMA2 = replace(
    GEMMA,
    source="Gemma 2, Google 2024",
    after=AFTER,
    windows=2,
    window=4096,
    scales={ATTENTION: 0.0, SCORES_CAP: 50.0, LOGITS_CAP: 30.0},
    scale_by_width=46,
)
GEMMA3 = replace(
    GEMMA,
    source="Gemma 3, Google 2025",
    after=AFTER,
    head_norms="head",
    windows=6,
    local_scaling=False,
    local_theta=10000.0,
    scales={ATTENTION: 0.0, LOGITS_CAP: 0.0},
    scale_by_width=62,
)
GEMMA3N = replace(
    GEMMA3,
    source="Gemma 3n, Google 2025; AltUp, Baykal et al. 2023; LAuReL, Menghani et al. 2024",
    windows=5,
    scales={ATTENTION: 1.0, LOGITS_CAP: 30.0},
    scale_by_width=0,
    altup=True,
)

# GPT-2's kind: norms with mean and bias, biases everywhere, no gate
GPT2 = Architecture(
    "Radford et al. 2019",
    "",
    norm="layer_norm",
    norm_biases=True,
    biases=(*QKV, "attn_output", "ffn_up", "ffn_down"),
    gate="gelu_tanh",
)
STARCODER2 = replace(GPT2, source="StarCoder 2, Lozhkov et al. 2024", pairing="half", windows=1)
PHI2 = replace(
    GPT2,
    source="Phi-2, Microsoft 2023",
    pairing="half",
    parallel="always",
    biases=(*GPT2.biases, "output"),
)
FALCON = replace(
    GPT2,
    source="Falcon, Almazrouei et al. 2023",
    pairing="half",
    parallel="always",
    second_norm=True,
    biases=(),
    gate="gelu",
)
STABLELM = Architecture(
    "StableLM 2, Bellagente et al. 2024",
    "half",
    norm="layer_norm",
    norm_biases=True,
    parallel="file",
    head_norms="heads",
)
COMMAND_R = Architecture(
    "Command R, Cohere 2024",
    "adjacent",
    norm="layer_norm",
    parallel="always",
    head_norms="heads",
    scales={LOGITS: REQUIRED},
)
GRANITE = Architecture(
    "Granite 3, IBM 2024",
    "adjacent",
    scales={EMBEDDING: 1.0, RESIDUAL: 1.0, ATTENTION: 0.0, LOGITS: 1.0},
    divides=True,
)
OLMO2 = Architecture(
    "OLMo 2, Walsh et al. 2024; with windows OLMo 3, 2025",
    "half",
    before=("", ""),
    after=AFTER,
    head_norms="row",
    windows=4,
    local_scaling=False,
)

ARCHITECTURES: Mapping[str, Architecture] = {
    "llama": LLAMA,
    "qwen2": QWEN2,
    "qwen3": QWEN3,
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3n": GEMMA3N,
    "phi2": PHI2,
    "phi3": Architecture("Phi-3, Abdin et al. 2024; Phi-4", "half", fused_gate=True, windows=1),
    "starcoder2": STARCODER2,
    "gpt2": GPT2,
    "falcon": FALCON,
    "stablelm": STABLELM,
    "olmo2": OLMO2,
    "granite": GRANITE,
    "granitemoe": replace(GRANITE, router=Router(shared="added")),
    "command-r": COMMAND_R,
    "cohere2": replace(
        COMMAND_R, source="Command R7B, Cohere 2024", head_norms="", windows=4, window=REQUIRED, rotated="windowed"
    ),
    "smollm3": Architecture("SmolLM3, Hugging Face 2025", "adjacent", rotated="three"),
    "exaone": Architecture("EXAONE 3, LG AI Research 2024", "half"),
    "exaone4": Architecture(
        "EXAONE 4, LG AI Research 2025",
        "half",
        before=("", ""),
        after=AFTER,
        head_norms="head",
        windows=4,
        rotated="windowed",
    ),
    "mistral3": replace(LLAMA, source="Ministral 3, Mistral AI 2025", scales={TEMPERATURE: 0.0}),
    "internlm2": Architecture("InternLM2, Cai et al. 2024", "adjacent"),
    "minicpm": replace(
        GRANITE,
        source="MiniCPM, Hu et al. 2024",
        scales={EMBEDDING: REQUIRED, RESIDUAL: REQUIRED, LOGITS: REQUIRED},
    ),
    "glm4": Architecture("GLM-4-0414, Z.ai 2025", "adjacent", after=AFTER, fused_gate=True),
    "chatglm": Architecture("GLM-4, GLM Team 2024", "adjacent", biases=QKV, fused_gate=True),
    "qwen2moe": replace(
        QWEN2, source="Qwen1.5-MoE, Qwen2, Yang et al. 2024", router=Router(normalize=False, shared="gated")
    ),
    "qwen3moe": replace(QWEN3, router=Router()),
    "olmoe": Architecture("OLMoE, Muennighoff et al. 2024", "half", head_norms="row", router=Router(normalize=False)),
    "deepseek2": Architecture(
        "DeepSeek-V2, 2024; DeepSeek-V3, 2024", "adjacent", router=Router(shared="added", told=True), latent=True
    ),
    "gpt-oss": Architecture(
        "gpt-oss, OpenAI 2025",
        "half",
        before=("attn_norm", "post_attention_norm"),
        biases=(*QKV, "attn_output"),
        gate="swiglu_clamped",
        windows=2,
        window=REQUIRED,
        sinks=True,
        router=Router(biases=True),
    ),
    "mamba": Architecture(
        "Mamba, Gu and Dao 2023", "", before=("attn_norm", ""), biases=("ssm_dt",), state="selective"
    ),
    "mamba2": Architecture("Mamba-2, Dao and Gu 2024", "", before=("attn_norm", ""), state="heads"),
    "rwkv7": Architecture(
        "RWKV-7, Peng et al. 2025",
        "",
        norm="layer_norm",
        norm_biases=True,
        before=("attn_norm", "attn_norm_2"),
        state="mixing",
        first_norm=True,
    ),
}
