"""Test every architecture: logits against float64 models written from their papers, and what their files may hold."""

import contextlib
import dataclasses
import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from reference_models import MODELS, Weights, inverse, logits, phi3
from small_architectures import FILES, NAMES, made
from small_model import drop, put, replace

from isokern import BadTensorShape, InvalidArgument, IsokernError
from isokern.graph import parse, verify
from isokern.llm import Generation, Model, Sampling, Session, tokens
from isokern.llm.architecture import Config
from isokern.llm.architectures import ARCHITECTURES
from isokern.llm.decoder import decoder
from isokern.llm.steps import TokenStep

PAGE = Path(__file__).parents[2] / "docs" / "language_models.md"
TEXT = [int(t) for t in np.random.default_rng(2).integers(0, 97, 30)]
# Tensors that a file may lack: another one stands for them, or the part is not there
OPTIONAL = {"attn_norm_2", "attn_q_norm", "attn_k_norm", "exp_probs_b", "output"}
# Of each kind of layer, norm, position, window and output one
FEW = (
    *("llama", "gpt2", "falcon", "phi2", "phi3", "stablelm-parallel", "cohere2", "gemma2", "gemma3n", "olmo3"),
    *("gpt-oss", "granitemoe", "qwen2moe", "deepseek2", "mamba2", "rwkv7"),
)


def far(got, wanted):
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


def test_every_architecture_has_a_file_a_model_and_a_row_of_the_page():
    assert set(MODELS) == set(FILES)
    assert {NAMES.get(name, name) for name in FILES} == set(ARCHITECTURES)
    section = PAGE.read_text().partition("## Architectures\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]+) \| [^|]+ \|$", section, re.MULTILINE)
    assert rows == [(name, form.source) for name, form in ARCHITECTURES.items()]


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("model", list(FILES))
def test_logits_are_those_of_float64(tmp_path, device, model):
    gguf = made(tmp_path / "m.gguf", model)
    wanted, loaded = logits(gguf, model, TEXT), Model(gguf, device=device)
    assert far(Session(loaded, dtype="F32").logits(TEXT, every=True), wanted) < 1e-5
    parts = Session(loaded, dtype="F32")
    rows = [parts.logits(TEXT[a:b], every=True) for a, b in itertools.pairwise((0, 14, 28, 29, 30))]
    assert far(np.concatenate(rows), wanted) < 1e-5


@pytest.mark.parametrize("model", ["gemma3", "phi3", "cohere2"])
@pytest.mark.parametrize(("dtype", "most"), [("F16", 1e-3), ("BF16", 1e-2), ("Q8_0", 2e-2)])
def test_caches_of_fewer_bits_past_the_window(tmp_path, device, model, dtype, most):
    gguf = made(tmp_path / "m.gguf", model)
    session = Session(Model(gguf, device=device), dtype=dtype)
    got = np.concatenate([session.logits(TEXT[:25], every=True), *(session.logits([t]) for t in TEXT[25:])])
    wanted = logits(gguf, model, TEXT)
    assert 1e-6 < np.sqrt(np.mean((got - wanted) ** 2) / np.mean(wanted**2)) < most


@pytest.mark.parametrize("model", ["gpt2", "phi3", "falcon", "mixtral", "qwen2moe", "deepseek2"])
def test_quantised_weights(tmp_path, device, model):
    gguf = made(tmp_path / "m.gguf", model, "Q8_0")
    wanted = logits(gguf, model, TEXT)
    assert far(Session(Model(gguf, device=device), dtype="F32").logits(TEXT, every=True), wanted) < 1e-4


@pytest.mark.parametrize("model", ["gemma2", "mamba", "mamba2"])
def test_a_session_begins_again(tmp_path, device, model):
    session = Session(Model(made(tmp_path / "m.gguf", model), device=device), 40)
    first = session.logits(TEXT[:9])
    session.logits(TEXT[9:20])
    session.clear()
    assert session.position == 0 and session.cache_bytes > 0
    np.testing.assert_array_equal(session.logits(TEXT[:9]), first)


@pytest.mark.parametrize("model", ["gpt2", "mamba", "qwen2moe"])
def test_text_of_a_model_is_the_likeliest(tmp_path, device, model):
    gguf = made(tmp_path / "m.gguf", model)
    report, text = Generation(), list(TEXT[:7])
    for _ in range(12):
        text.append(int(logits(gguf, model, text)[-1].argmax()))
    session = Session(Model(gguf, device=device), dtype="F32")
    assert list(tokens(session, TEXT[:7], 12, Sampling(), frozenset(), report)) == text[7:]


def test_tokens_without_rows_of_the_layers_have_the_first(tmp_path, device):
    def change(facts, held):
        held["per_layer_token_embd.weight"] = held["per_layer_token_embd.weight"][:60]

    assert max(TEXT) >= 60
    gguf = made(tmp_path / "m.gguf", "gemma3n", change=change)
    got = Session(Model(gguf, device=device), dtype="F32").logits(TEXT, every=True)
    assert far(got, logits(gguf, "gemma3n", TEXT)) < 1e-5


def test_learned_positions_end_with_the_table(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf", "gpt2"), device=device)
    with pytest.raises(InvalidArgument, match="length=65; allowed: up to 64, the positions that the model has"):
        Session(model, 65)


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("model", list(FILES))
def test_graphs_verify_print_and_parse(tmp_path, model):
    gguf = made(tmp_path / "m.gguf", model)
    for step in (TokenStep(64), TokenStep(48, 5, "Q8_0", "q8_0", True)):
        text = verify(decoder(gguf, Config.of(gguf), step).graph).dump()
        assert parse(text).dump() == text


@dataclasses.dataclass
class Changed:
    """A file with other tensors, or other metadata."""

    gguf: object
    tensors: dict
    changed: dict | None = None

    @property
    def metadata(self):
        return self.gguf.metadata if self.changed is None else self.changed


@pytest.mark.quick(*FEW)
@pytest.mark.parametrize("model", list(FILES))
def test_no_tensor_may_be_missing_and_none_is_ignored(tmp_path, model):
    gguf = made(tmp_path / "m.gguf", model)
    config = Config.of(gguf)
    layer = f"blk.{config.layers - 1}."
    for name in gguf.tensors:
        stem = name.removeprefix("blk.").split(".")[1 if "blk" in name else 0]
        if stem in OPTIONAL or ("blk" in name and not name.startswith(layer)):
            continue
        form, router = config.form, config.form.router
        if config.source(config.layers - 1) != config.layers - 1 and stem in ("attn_k", "attn_v", "attn_k_norm"):
            continue  # of a layer that sees the keys of another
        required = stem in form.biases or stem.startswith("ssm") or (form.norm_biases and "norm" in stem)
        required |= (router is not None and router.biases) or stem == "time_mix_ln"
        if name.endswith("bias") and not required:
            continue  # biases are added wherever the file has them
        changed = Changed(gguf, {n: t for n, t in gguf.tensors.items() if n != name})
        with pytest.raises(InvalidArgument, match=re.escape(name).replace("attn_qkv", "attn_(qkv|q)") + "|no matrix"):
            decoder(changed, Config.of(changed), TokenStep(48))
    for name in (f"{layer}attn_what.weight", f"blk.{config.layers}.attn_norm.weight", "rope_factors_short", "cls.bias"):
        more = Changed(gguf, {**gguf.tensors, name: gguf.tensors["output_norm.weight"]})
        with pytest.raises(InvalidArgument, match=f"not used: '{name}'"):
            decoder(more, config, TokenStep(48))
    other = made(tmp_path / "n.gguf", model, something=1)
    with pytest.raises(InvalidArgument, match=r"not known here: '[\w-]+.something'"):
        Config.of(other)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("gpt2", put("gpt2.rope.freq_base", 1e4), "not known here: 'gpt2.rope.freq_base'"),
        ("gpt2", put("gpt2.attention.sliding_window", 8), "sliding_window is 8; allowed: from 64"),
        ("qwen3", put("qwen3.attention.sliding_window", 8), "sliding_window is 8; allowed: from 64"),
        ("qwen3", put("qwen3.expert_count", 8), "qwen3.expert_count is '8'; allowed: 0"),
        ("gpt-oss", drop("gpt-oss.attention.sliding_window"), "gpt-oss.attention.sliding_window is missing"),
        ("gemma3", put("gemma3.attention.sliding_window_pattern", 0), "pattern is '0'; allowed: an integer from 1"),
        ("gemma3", put("gemma3.attention.sliding_window_pattern", np.array([True, False])), "has 2 layers; allowed: 7"),
        ("gemma3n", drop("gemma3n.activation_sparsity_scale"), "allowed: 6 floats, one for each layer"),
        ("gemma3n", put("gemma3n.activation_sparsity_scale", np.full(6, np.inf, np.float32)), "or minus infinity"),
        ("gemma3n", put("gemma3n.attention.shared_kv_layers", 6), "shared_kv_layers is 6; allowed: up to 5"),
        ("gemma3n", put("gemma3n.attention.shared_kv_layers", 5), "layer 1 shares keys and values of a layer before 1"),
        ("gemma3n", put("gemma3n.altup.active_idx", 3), "active_idx is 3; allowed: up to 2"),
        ("gemma3n", put("gemma3n.feed_forward_length", np.array([96, 64], np.int32)), "feed_forward_length is"),
        ("command-r", drop("command-r.logit_scale"), "command-r.logit_scale is missing"),
        (
            "mistral3",
            put("mistral3.attention.temperature_length", 0),
            "temperature_length is '0'; allowed: an integer from",
        ),
        ("minicpm", put("minicpm.residual_scale", 0.0), "minicpm.residual_scale is 0; allowed: a number above 0"),
        ("minicpm", put("minicpm.residual_scale", -0.5), "minicpm.residual_scale is '-0.5'; allowed: a number from 0"),
        ("gemma2", put("gemma2.attn_logit_softcapping", "x"), "attn_logit_softcapping is 'x'"),
        ("stablelm", put("stablelm.use_parallel_residual", 1), "use_parallel_residual is '1'; allowed: a bool"),
        ("mixtral", put("llama.expert_used_count", 7), "expert_used_count is 7; allowed: up to 6"),
        ("mixtral", drop("llama.expert_used_count"), "expert_used_count is missing"),
        ("deepseek2", put("deepseek2.expert_gating_func", 3), r"expert_gating_func is 3; allowed: 1 \(softmax\) and 2"),
        ("deepseek2", put("deepseek2.expert_group_count", 4), "expert_group_count is 4"),
        ("deepseek2", put("deepseek2.expert_weights_norm", 2), "expert_weights_norm is '2'; allowed: a bool"),
        ("deepseek2", put("deepseek2.attention.head_count_kv", 4), r"are \[4, 96, 64\]; allowed: \[1, 96, 64\]"),
        ("deepseek2", drop("deepseek2.attention.kv_lora_rank"), "kv_lora_rank is missing"),
        ("deepseek2-lite", put("deepseek2.rope.dimension_count", 64), "less than a head's width"),
        ("mamba", put("mamba.attention.head_count", 4), "head_count is '4'; allowed: 0"),
        ("mamba", put("mamba.ssm.conv_kernel", 1), "conv_kernel is '1'; allowed: an integer from 2"),
        ("mamba", put("mamba.ssm.dt_b_c_rms", 1), "dt_b_c_rms is '1'; allowed: a bool"),
        ("mamba", put("mamba.ssm.group_count", 1), "not known here: 'mamba.ssm.group_count'"),
        ("mamba2", put("mamba2.ssm.group_count", 3), "allowed: heads of one width, and groups of as many heads"),
        ("phi3", replace("rope_factors_long.weight", np.ones(16, np.float32)), "short rope factors are missing"),
    ],
)
def test_what_files_may_not_say(tmp_path, model, change, message):
    with pytest.raises(InvalidArgument, match=message):
        Config.of(made(tmp_path / "m.gguf", model, change=change))


VALUES = [0, 1, 3, 2**31, -1, 0.5, float("nan"), -1.0, 1e30, "x", "", True, np.array([1, 2], np.int32), ["a"]]


@pytest.mark.full
@pytest.mark.parametrize("model", list(FILES))
def test_no_value_of_a_key_is_more_than_a_typed_error(tmp_path, model):
    gguf = made(tmp_path / "m.gguf", model)
    for key in [k for k in gguf.metadata if k != "general.architecture"]:
        for value in VALUES:
            other = Changed(gguf, gguf.tensors, {**gguf.metadata, key: value})
            with contextlib.suppress(IsokernError):
                decoder(other, Config.of(other), TokenStep(48))


def test_experts_have_one_shape(tmp_path):
    change = replace("blk.1.ffn_up_exps.weight", np.zeros((6, 128, 64), np.float32))
    gguf = made(tmp_path / "m.gguf", "mixtral", change=change)
    with pytest.raises(BadTensorShape, match=r"blk.1.ffn_up_exps.weight is \[6, 128, 64\]; allowed: \[6, 64, 128\]"):
        decoder(gguf, Config.of(gguf), TokenStep(48))


def test_layers_that_have_windows(tmp_path):
    def windows(model, **facts):
        return Config.of(made(tmp_path / "m.gguf", model, **facts)).windows

    assert windows("gemma2") == (8, 0, 8, 0)
    assert windows("gemma3") == (8, 8, 8, 8, 8, 0, 8)
    assert windows("cohere2") == (8, 8, 8, 0, 8)
    assert windows("mistral") == (8, 8)
    assert windows("mistral", **{"attention.sliding_window": 0}) == (0, 0)
    assert windows("gemma3", **{"attention.sliding_window_pattern": 3}) == (8, 8, 0, 8, 8, 0, 8)
    pattern = np.array([True, False, False, True, True, True, False])
    assert windows("gemma3", **{"attention.sliding_window_pattern": pattern}) == (8, 0, 0, 8, 8, 8, 0)
    assert Config.of(made(tmp_path / "m.gguf", "smollm3")).turned == (True, True, True, False, True)
    for window in (8, 64):  # also where the window is as long as the context, rope is as it is with one
        facts = {"attention.sliding_window": window}
        assert Config.of(made(tmp_path / "m.gguf", "cohere2", **facts)).turned == (True, True, True, False, True)
        gemma = Config.of(made(tmp_path / "m.gguf", "gemma3", **facts))
        assert [gemma.rope(layer, 64) for layer in (0, 5, 6)] == ["rope_freqs_local", "rope_freqs", "rope_freqs_local"]
    everywhere = Config.of(made(tmp_path / "m.gguf", "exaone4", **{"attention.sliding_window": 0}))
    assert all(everywhere.turned) and not any(everywhere.windows)


def test_scores_of_the_largest_gemmas_are_scaled_by_width(tmp_path):
    for model, layers in (("gemma2", 46), ("gemma3", 62)):
        small, large = (Config.of(made(tmp_path / "m.gguf", model, block_count=n)) for n in (layers - 1, layers))
        facts = {"attention.key_length": 64, "block_count": layers}
        other = Config.of(made(tmp_path / "m.gguf", model, **facts))
        assert (small.scale, large.scale, other.scale) == (32**-0.5, 32**-0.5, 32**-0.5)
        assert Config.of(made(tmp_path / "m.gguf", model, **{"attention.key_length": 64})).scale == 64**-0.5


def test_a_base_of_its_own_for_layers_with_windows(tmp_path, device):
    plain = made(tmp_path / "m.gguf", "gemma3")
    got = Session(Model(plain, device=device), dtype="F32").logits(TEXT)
    same = made(tmp_path / "n.gguf", "gemma3", **{"rope.freq_base_swa": 10000.0})
    np.testing.assert_array_equal(Session(Model(same, device=device), dtype="F32").logits(TEXT), got)
    other = made(tmp_path / "o.gguf", "gemma3", **{"rope.freq_base_swa": 500.0})
    assert far(Session(Model(other, device=device), dtype="F32").logits(TEXT), got) > 1e-3


def test_longrope_has_factors_for_short_and_for_long_caches(tmp_path, device):
    factors = {name: np.linspace(1, most, 16, dtype=np.float32) for name, most in (("short", 2), ("long", 9))}

    def change(facts, held):
        held |= {f"rope_factors_{name}.weight": array for name, array in factors.items()}
        facts |= {"phi3.rope.scaling.original_context_length": 32, "phi3.rope.scaling.attn_factor": 1.2}

    gguf = made(tmp_path / "m.gguf", "phi3", change=change)
    model = Model(gguf, device=device)
    for length, name in ((32, "short"), (33, "long")):
        wanted = phi3(Weights(gguf, TEXT), inverse(32) / factors[name], 1.2)
        assert far(Session(model, length, dtype="F32").logits(TEXT, every=True), wanted) < 1e-5


@pytest.mark.parametrize("model", ["gpt2", "phi3", "glm4"])
def test_fused_tensors_are_split_as_views(tmp_path, device, model):
    session = Session(Model(made(tmp_path / "m.gguf", model), device=device))
    program = session.program(5, every=True).compiled
    assert "slice" in {op.kind for op in program.graph.ops}
    assert "slice" not in {op.kind for op in program.calls()} and not program.memory_plan.copies


def test_bytes_that_a_token_reads_of_experts(tmp_path, device):
    model = Model(made(tmp_path / "m.gguf", "mixtral"), device=device)
    experts = sum(t.desc.nbytes for name, t in model.weights.items() if "_exps" in name)
    table = model.weights["token_embd.weight"].desc.nbytes
    assert model.read_bytes == model.nbytes - table - experts * 4 // 6


@pytest.mark.parametrize("model", ["llama", "gpt2", "mamba"])
def test_prompts_of_any_length_need_few_programs(tmp_path, device, model):
    loaded = Model(made(tmp_path / "m.gguf", model), device=device)
    session, single, text = Session(loaded, 64, "F32"), Session(loaded, 64, "F32"), [*TEXT, *TEXT[:10]]
    wanted = np.concatenate([single.logits([token]) for token in text])
    for first, then in [(1, 9), (3, 2), (13, 27), (33, 7), (21, 5)]:
        session.clear()
        got = [session.logits(text[:first], every=True), session.logits(text[first : first + then])]
        assert far(got[0], wanted[:first]) < 1e-5 and far(got[1], wanted[first + then - 1]) < 1e-5
    assert {count for count, *_ in session._programs} <= {1, 2, 4, 8, 16, 32, 64}
    full = Session(loaded, 13, "F32")  # where there is no room for more than the tokens
    assert [size for size, _ in full.cut(13)] == [8, 4, 1]
    assert far(full.logits(TEXT[:13]), wanted[12]) < 1e-5 and full.position == 13
    for wrong, message in [(TEXT[:5], "5 tokens"), ([], "0 tokens")]:
        with pytest.raises(InvalidArgument, match=message):
            single.program(4).run(wrong)
    with pytest.raises(InvalidArgument, match="a program for 32 tokens after 40"):
        single.program(32).run(text[:32])
