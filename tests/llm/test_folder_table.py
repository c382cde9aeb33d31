"""Test folders of model types by the table, against the same weights in GGUF files; what is refused names the key."""

import json

import numpy as np
import pytest
from small_architectures import DIM, EXPERT, EXPERTS, HEADS, INNER, KV_HEADS, VOCABULARY, WIDTH, WINDOW, made
from small_model import PROMPT

from isokern.blocks import quantize
from isokern.dtypes import MXFP4
from isokern.llm import Model, Session
from isokern.llm.folder import open_folder
from isokern.llm.folder_config import read_config
from isokern.llm.folder_table import MODEL_TYPES
from isokern.llm.folder_types import NAMES
from isokern.status import InvalidArgument

safetensors = pytest.importorskip("safetensors.numpy")
CONFIG = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": DIM,
    "max_position_embeddings": 64,
    "vocab_size": VOCABULARY,
    "rms_norm_eps": 1e-5,
    "sliding_window": WINDOW,
}
MOE = {"moe_intermediate_size": EXPERT, "num_experts_per_tok": 2, "num_experts": EXPERTS, "num_hidden_layers": 2}
TYPES = {
    "smollm3": {"num_hidden_layers": 5, "sliding_window": None, "rope_theta": 10000.0},
    "gemma2": {
        "num_hidden_layers": 4,
        "query_pre_attn_scalar": DIM,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 3.0,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
    },
    "qwen2_moe": {**MOE, "shared_expert_intermediate_size": 160, "sliding_window": None},
    "gpt_oss": {
        "num_hidden_layers": 3,
        "intermediate_size": EXPERT,
        "num_local_experts": EXPERTS,
        "num_experts_per_tok": 2,
        "rope_theta": 10000.0,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    },
}


def quantize_experts(facts, held):
    """Put the experts of a GGUF file in blocks of MXFP4."""
    for name, array in held.items():
        if name.endswith("exps.weight"):
            held[name] = "MXFP4", array.shape, quantize(array, MXFP4).reshape(-1)


def split_blocks(tensor):
    """Return gpt-oss's blocks, of neighbours, and scales of a tensor of MXFP4."""
    raw = tensor.data.reshape(*tensor.shape[:2], -1, 17)
    each = np.concatenate([raw[..., 1:] & 15, raw[..., 1:] >> 4], -1)
    return each[..., 0::2] | each[..., 1::2] << 4, raw[..., 0]


def weave(gate, up):
    return np.stack([gate, up], 2).reshape(EXPERTS, -1, *gate.shape[2:])


def order_halves(array):
    """Return the rows of each head with its even ones first, then its odd ones."""
    return array.reshape(-1, DIM // 2, 2, WIDTH).swapaxes(1, 2).reshape(array.shape)


def list_tensors(gguf, kind):
    """Return the tensors of a file under the names and in the form of transformers."""
    names = {ours: theirs for theirs, ours in {**NAMES, **MODEL_TYPES[kind].names}.items()}
    found = {}
    for name, tensor in gguf.tensors.items():
        *layer, part, end = name.removeprefix("blk.").split(".")
        own = ".".join(["model.layers", *layer, ""]) if layer else "" if part == "output" else "model."
        if tensor.type == "MXFP4" or (kind == "gpt_oss" and "_exps" in part):
            continue
        array = np.array(tensor.array)
        if kind == "smollm3" and part in ("attn_q", "attn_k"):
            array = order_halves(array)
        array = array - 1 if kind == "gemma2" and "norm" in part else array
        array = array[None] if part == "ffn_gate_inp_shexp" else array
        theirs = names.get(f"{part}.{end}") or f"{names[part]}.{end}"
        if "#" in theirs:
            found |= {f"{own}{theirs.replace('#', str(i))}": matrix for i, matrix in enumerate(array)}
        else:
            found[f"{own}{theirs}"] = array
    for layer in range(3 if kind == "gpt_oss" else 0):
        own, theirs = f"blk.{layer}.ffn_", f"model.layers.{layer}.mlp.experts."
        parts = {n: split_blocks(gguf.tensors[f"{own}{n}_exps.weight"]) for n in ("gate", "up", "down")}
        biases = {n: gguf.tensors[f"{own}{n}_exps.bias"].array for n in parts}
        for i, end in enumerate(("blocks", "scales")):
            found[f"{theirs}gate_up_proj_{end}"] = weave(parts["gate"][i], parts["up"][i])
            found[f"{theirs}down_proj_{end}"] = parts["down"][i]
        found |= {f"{theirs}gate_up_proj_bias": weave(biases["gate"], biases["up"])}
        found |= {f"{theirs}down_proj_bias": biases["down"]}
    return {name: np.ascontiguousarray(array) for name, array in found.items()}


def write_folder(folder, tensors, config):
    folder.mkdir(exist_ok=True)
    safetensors.save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def logits(model):
    return Session(model, 64, "F32").logits([*PROMPT, *range(20)], every=True)


@pytest.fixture(scope="module", params=TYPES)
def written(request, tmp_path_factory):
    """Return a GGUF file, the tensors of its folder, and config.json."""
    kind, path = request.param, tmp_path_factory.mktemp("table") / "m.gguf"
    name, change = kind.replace("2_", "2").replace("_", "-"), quantize_experts if kind == "gpt_oss" else None
    gguf = made(path, name, change=change)
    tied = "output.weight" not in gguf.tensors
    return gguf, list_tensors(gguf, kind), {**CONFIG, "model_type": kind, "tie_word_embeddings": tied, **TYPES[kind]}


def test_logits_are_those_of_the_gguf_file(tmp_path, written):
    gguf, tensors, config = written
    got = logits(Model.open(write_folder(tmp_path / "m", tensors, config), device="cpu:0"))
    wanted = logits(Model(gguf, device="cpu:0"))
    assert np.abs(got - wanted).max() < 1e-5 * np.abs(wanted).max()  # norms less one, and one more


ROPES = {kind: {"rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")}
HALF = {"rope_theta": 10000.0, "partial_rotary_factor": 0.5}
CHANGES = [
    ("gemma2", {"rope_parameters": ROPES}, "rope of sliding_attention is .*; allowed: its rope_theta, for types"),
    ("olmo3", {"rope_parameters": ROPES | {"sliding_attention": HALF}}, "rope of sliding_attention is .*0.5"),
    ("olmo3", {"rope_parameters": ROPES | {"full_attention": HALF}}, "partial_rotary_factor is '0.5'; allowed: 1.0"),
    ("olmo3", {"rope_parameters": {"full_attention": HALF}}, "rope_parameters has other parts"),
    ("gemma2", {"use_bidirectional_attention": True}, "use_bidirectional_attention is 'True'; allowed: False"),
    ("gemma2", {"hidden_activation": "silu"}, "hidden_activation is 'silu'; allowed: gelu_new, gelu_pytorch_tanh"),
    ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is '0'; allowed: a number above 0"),
    ("gemma2", {"layer_types": ["chunked_attention"]}, "layer_types is .*; allowed: a list of sliding_attention"),
    ("gemma2", {"clip_qkv": 1.0}, "1 keys are not known here: 'clip_qkv'"),
    ("gemma2", {"n_embd": WIDTH + 1}, f"hidden_size is '128'; allowed: 129|n_embd is '129'; allowed: {WIDTH}"),
    ("gemma2", {"tie_word_embeddings": False}, "tensor lm_head.weight is missing"),
    ("qwen2_moe", {"norm_topk_prob": True}, "norm_topk_prob is 'True'; allowed: False"),
    ("qwen2_moe", {"decoder_sparse_step": 2}, "decoder_sparse_step is '2'; allowed: 1"),
    ("smollm3", {"no_rope_layers": [1, 1, 0, 1]}, r"no_rope_layers is \[1, 1, 0, 1\]; allowed: 0 for every fourth"),
    ("smollm3", {"num_hidden_layers": 10**7, "no_rope_layers": [1]}, "num_hidden_layers is 10000000; allowed: an int"),
    (
        "gemma3n_text",
        {"num_hidden_layers": 10**12},
        "num_hidden_layers is 1000000000000; allowed: an integer from 1 to",
    ),
    (
        "gemma3n_text",
        {"num_hidden_layers": 2, "intermediate_size": [10**30, 1]},
        "intermediate_size is '1000.*'; allowed",
    ),
    ("falcon", {"new_decoder_architecture": "false"}, "new_decoder_architecture is 'false'; allowed: False, True"),
    ("gpt_oss", {"swiglu_limit": 6.0}, "swiglu_limit is '6.0'; allowed: 7.0"),
    ("gpt_oss", {"quantization_config": {"quant_method": "fp8"}}, "quantization_config has 'fp8'; allowed: mxfp4"),
]


@pytest.mark.parametrize(("kind", "changed", "message"), CHANGES, ids=[f"{k}-{next(iter(c))}" for k, c, _ in CHANGES])
def test_keys_that_are_refused(tmp_path, kind, changed, message):
    config = {**CONFIG, "model_type": kind, "tie_word_embeddings": True, **TYPES.get(kind, {}), **changed}
    with pytest.raises(InvalidArgument, match=message):
        open_folder(write_folder(tmp_path / "m", {"model.embed_tokens.weight": np.zeros((97, WIDTH), "f")}, config))


GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 48}
MAMBA = {"model_type": "mamba", "hidden_size": 64, "num_hidden_layers": 2}
MAMBA2 = {"model_type": "mamba2", "hidden_size": 64, "num_hidden_layers": 2, "num_heads": 4, "head_dim": 32}
UNREAD = [
    (GPT2, {"rope_scaling": {"type": "nonsense"}}, "rope_scaling is .*; allowed: null"),
    (GPT2, {"rope_theta": "x"}, "rope_theta is 'x'; allowed: null"),
    (GPT2, {"head_dim": 7}, "head_dim is '7'; allowed: null"),
    (GPT2, {"layer_types": ["x"]}, "layer_types is .*; allowed: a list of sliding_attention"),
    (MAMBA, {"head_dim": 7}, "head_dim is '7'; allowed: null"),
    (MAMBA, {"sliding_window": 3}, "sliding_window is '3'; allowed: null"),
    (MAMBA, {"layer_types": ["x"]}, "layer_types is .*; allowed: null"),
    (MAMBA, {"n_layer": 7}, "n_layer is '7'; allowed: 2, as another key has it"),
    (MAMBA, {"intermediate_size": 7}, "intermediate_size is 7; allowed: 128, of other keys"),
    (MAMBA, {"d_inner": 7}, "d_inner is 7; allowed: 128, of other keys"),
    (MAMBA2, {"head_dim": 16}, "head_dim is 16; allowed: 32, of other keys"),
]


@pytest.mark.parametrize(("config", "changed", "message"), UNREAD, ids=[m for _, _, m in UNREAD])
def test_keys_that_a_type_does_not_read(config, changed, message):
    read_config(config)
    with pytest.raises(InvalidArgument, match=message):
        read_config({**config, **changed})


def test_rope_without_a_context_to_compare():
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16, "llama_4_scaling_beta": 0.1}
    config = {**CONFIG, "model_type": "ministral3", "sliding_window": None, "rope_parameters": yarn}
    for change in ({}, {"max_position_embeddings": None}):
        _, metadata, _ = read_config({**config, **change})
        assert metadata["mistral3.attention.temperature_scale"] == 0.1


MATRIX, BYTES = np.zeros((EXPERT, WIDTH), np.float32), np.zeros((2, 2, 2, 16), np.uint8)
EXPERT_1 = {"model.layers.0.mlp.experts.1.up_proj.weight": MATRIX}
BLOCKS = {"model.layers.0.mlp.experts.down_proj_blocks": BYTES}
TENSORS = [
    ("qwen2_moe", EXPERT_1, r"'blk.0.ffn_up_exps.weight' have the numbers \['1'\]"),
    ("qwen2_moe", {"model.layers.0.mlp.shared_experts.up_proj.weight": MATRIX}, "is not known here"),
    ("gpt_oss", BLOCKS, "tensor 'blk.0.ffn_down_exps.scales' is missing"),
    ("gpt_oss", {**BLOCKS, "model.layers.0.mlp.experts.down_proj_scales": BYTES[0, 0]}, "allowed: U8 .experts, rows"),
    (
        "granitemoe",
        {
            **{f"model.layers.0.mlp.experts.{i}.gate_proj.weight": MATRIX for i in range(2)},
            "model.layers.0.block_sparse_moe.input_linear.weight": np.zeros((2, 2 * EXPERT, WIDTH), np.float32),
        },
        "several tensors make 'blk.0.ffn_gate_exps.weight'; allowed: one of them",
    ),
    ("gemma2", {"vision_tower.x.weight": MATRIX}, "tensor 'vision_tower.x.weight' is not known here"),
]


@pytest.mark.parametrize(("kind", "tensors", "message"), TENSORS, ids=[m for _, _, m in TENSORS])
def test_tensors_that_are_refused(tmp_path, kind, tensors, message):
    config = {**CONFIG, "model_type": kind, **TYPES.get(kind, {})}
    with pytest.raises(InvalidArgument, match=message):
        open_folder(write_folder(tmp_path / "m", tensors, config))


def test_the_text_of_a_model_of_images(tmp_path):
    gguf = made(tmp_path / "m.gguf", "llama")
    rows = {"num_hidden_layers": 2, "sliding_window": None}
    text = {**CONFIG, **rows, "model_type": "mistral", "tie_word_embeddings": True}
    tensors = list_tensors(gguf, "smollm3")  # whose names are llama's
    tensors = {f"language_model.{name}": array for name, array in tensors.items()}
    tensors |= {"vision_tower.layers.0.weight": MATRIX, "multi_modal_projector.linear_1.weight": MATRIX}
    config = {"model_type": "mistral3", "vision_config": {}, "tie_word_embeddings": False, "text_config": text}
    config |= {"image_token_index": 10, "multimodal_projector_bias": False, "spatial_merge_size": 2, "dtype": "float32"}
    found = Model.open(write_folder(tmp_path / "f", tensors, config), device="cpu:0")
    assert np.array_equal(logits(found), logits(Model(gguf, device="cpu:0")))
    with pytest.raises(InvalidArgument, match="keys next to text_config are not known here: 'rope_theta'"):
        open_folder(write_folder(tmp_path / "f", tensors, {**config, "rope_theta": 5.0}))


def test_layers_that_draft_are_left_out(tmp_path):
    rows = {"num_hidden_layers": 2, "num_nextn_predict_layers": 1, "head_dim": None, "sliding_window": None}
    config = {**CONFIG, "model_type": "deepseek_v3", **rows}
    table = {"model.embed_tokens.weight": np.zeros((97, WIDTH), "f"), "lm_head.weight": np.zeros((97, WIDTH), "f")}
    drafts = {f"model.layers.2.{name}.weight": MATRIX for name in ("eh_proj", "enorm", "mlp.down_proj")}
    found = open_folder(write_folder(tmp_path / "m", {**table, **drafts}, config))
    assert {*found.tensors} == {"token_embd.weight", "output.weight"}
    for name in ("model.layers.2.junk.weight", "model.layers.3.eh_proj.weight"):
        with pytest.raises(InvalidArgument, match=f"tensor '{name}' is not known here"):
            open_folder(write_folder(tmp_path / "m", {**table, name: MATRIX}, config))
    for value in ("x", 10**9, -1, True):
        with pytest.raises(InvalidArgument, match=r"num_nextn_predict_layers is .*; allowed: 0 to 9"):
            open_folder(write_folder(tmp_path / "m", table, {**config, "num_nextn_predict_layers": value}))
    with pytest.raises(InvalidArgument, match="head_dim is 7; allowed: 64"):
        open_folder(write_folder(tmp_path / "m", table, {**config, "head_dim": 7}))
