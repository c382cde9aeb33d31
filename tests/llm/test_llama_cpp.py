"""Test logits against llama.cpp's own, of every architecture that both run, and of the files that it quantises."""

import os

import numpy as np
import pytest
import small_architectures
import small_model
from gguf_write import write_gguf
from quantised_files import check_commands, choose_q4_k_m, write
from small_architectures import EXPERT, FILES, HEADS, VOCABULARY, WINDOW, altup_shapes, made
from test_tokenizer import PROSE, rwkv_metadata

from isokern import blocks
from isokern.llm import GGUF, Model, Session, Tokenizer

pytestmark = pytest.mark.full
TEXT = [int(t) for t in np.random.default_rng(2).integers(0, VOCABULARY, 30)]
# The numbers of file types in llama.h
MIXES = {"Q4_0": 2, "Q4_1": 3, "Q5_0": 8, "Q5_1": 9, "Q8_0": 7, "Q2_K": 10, "Q3_K_S": 11, "Q3_K_M": 12, "Q3_K_L": 13}
MIXES |= {"Q4_K_S": 14, "Q4_K_M": 15, "Q5_K_S": 16, "Q5_K_M": 17, "Q6_K": 18, "IQ3_S": 26, "IQ4_NL": 25, "IQ4_XS": 30}
MIXES |= {"TQ1_0": 36, "TQ2_0": 37}


def lacks(*names):
    def change(facts, held):
        for name in [n for n in held if any(f".{word}." in n for word in names)]:
            del held[name]

    return change


def fill_first_layer(facts, held):
    for end in ("1.weight", "2.weight"):
        held[f"blk.0.time_mix_v{end}"] = held[f"blk.0.time_mix_a{end}"]


# What llama.cpp does otherwise: the file is changed, or the text is short, so that it makes no difference
CHANGED = {
    "granitemoe": ("experts are as wide as what is not of experts", {"feed_forward_length": EXPERT}, None),
    "command-r": ("only models of 64 layers and more have norms of heads", {}, lacks("attn_q_norm", "attn_k_norm")),
    "rwkv7": (
        "heads are as long as its vectors need, and what the first layer does not use has another shape",
        {"wkv.head_size": 64},
        fill_first_layer,
    ),
    "exaone4": ("only models of 64 layers have windows", {"attention.sliding_window": None}, None),
}
WITHOUT_WINDOWS = ["mistral", "phi3"]
# With the authors' deviation of gates, and an activation that is not rounded to F16, they would agree within 4e-3
ELSE = {"gemma3n": "a gate opens by the deviation of a sample, of one element fewer"}
PUBLISHED = {
    "altup.num_inputs": 4,
    "embedding_length_per_layer_input": 256,
    "activation_sparsity_scale": np.full(6, 1.6448536269514722, np.float32),
    "attention.shared_kv_layers": 0,
    "attention.sliding_window_pattern": np.array([True] * 4 + [False, True]),
    "final_logit_softcapping": 30.0,
}
REFUSED = {
    "olmoe": f"norms of keys are as long as those of queries, so there are {HEADS} heads of keys",
    "deepseek2-lite": "only models of 26, 27 or 48 layers may lack the rank of queries",
}


def say_vocabulary(facts, held):
    """Add what llama.cpp asks of every file: here, a vocabulary without texts."""
    facts["tokenizer.ggml.model"] = "none"
    facts[f"{facts['general.architecture']}.vocab_size"] = VOCABULARY


def other_logits(path, text):
    """Return llama.cpp's logits after each token of a text, in F32 wherever it has the choice."""
    llama = pytest.importorskip("llama_cpp")
    given = {"n_ctx": 64, "n_batch": 64, "n_threads": 2, "type_k": 0, "type_v": 0, "flash_attn": False}
    model = llama.Llama(str(path), logits_all=True, verbose=False, **given)
    try:
        model.eval(text)
        return np.array(model.scores[: len(text)], np.float64)
    finally:
        model.close()


def quantise(source, target, kind):
    """Write a file as llama.cpp quantises it."""
    llama = pytest.importorskip("llama_cpp")
    how = llama.llama_model_quantize_default_params()
    how.ftype, how.nthread = MIXES[kind], 1
    assert llama.llama_model_quantize(os.fsencode(source), os.fsencode(target), how) == 0


def far(got, wanted):
    return float(np.max(np.abs(got - wanted)) / np.max(np.abs(wanted)))


def check(gguf, cpu, wanted, text):
    got = Session(Model(gguf, device=cpu), dtype="F32").logits(text, every=True)
    assert far(got, wanted) < 1e-3
    best = np.sort(wanted, 1)
    ties = best[:, -1] - best[:, -2] < 1e-3 * np.abs(wanted).max()
    assert np.all((got.argmax(1) == wanted.argmax(1)) | ties)


@pytest.mark.parametrize("model", FILES)
def test_logits_are_those_of_llama_cpp(tmp_path, cpu, model):
    if model in REFUSED | ELSE:
        pytest.skip(f"llama.cpp: {(REFUSED | ELSE)[model]}")
    _, facts, change = CHANGED.get(model, ("", {}, None))
    text = TEXT[:WINDOW] if model in WITHOUT_WINDOWS else TEXT

    def both(whole, held):
        for each in filter(None, (change, say_vocabulary)):
            each(whole, held)

    gguf = made(tmp_path / "m.gguf", model, change=both, **facts)
    check(gguf, cpu, other_logits(tmp_path / "m.gguf", text), text)


@pytest.mark.parametrize("model", [*WITHOUT_WINDOWS, *REFUSED, *ELSE])
def test_what_is_said_of_llama_cpp_is_still_so(tmp_path, cpu, monkeypatch, model):
    monkeypatch.setattr(small_architectures, "ALTUP_SHAPES", altup_shapes(4, 256, 64))
    gguf = made(tmp_path / "m.gguf", model, change=say_vocabulary, **(PUBLISHED if model in ELSE else {}))
    if model in REFUSED:
        with pytest.raises(ValueError, match="Failed to load"):
            other_logits(tmp_path / "m.gguf", TEXT)
    else:
        got = Session(Model(gguf, device=cpu), dtype="F32").logits(TEXT, every=True)
        assert far(got, other_logits(tmp_path / "m.gguf", TEXT)) > 0.05


@pytest.mark.parametrize("kind", MIXES)
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_files_that_llama_cpp_quantised(tmp_path, cpu, architecture, kind):
    """Ours of the file are llama.cpp's of the same weights in F32: it would round activations, too."""
    sizes = {"width": 256, "inner": 512, "tied": False, "change": say_vocabulary}
    small_model.made(tmp_path / "f32.gguf", architecture, **sizes)
    quantise(tmp_path / "f32.gguf", tmp_path / "m.gguf", kind)
    gguf = GGUF.open(tmp_path / "m.gguf")
    assert any(t.dtype.block > 1 for t in gguf.tensors.values())

    def widen(facts, held):
        say_vocabulary(facts, held)
        for name, tensor in gguf.tensors.items():
            raw = tensor.data.reshape(*tensor.shape[:-1], tensor.dtype.nbytes(tensor.shape[-1]))
            held[name] = blocks.dequantize(raw, tensor.dtype) if tensor.dtype.block > 1 else tensor.array

    small_model.made(tmp_path / "wide.gguf", architecture, **{**sizes, "change": widen})
    check(gguf, cpu, other_logits(tmp_path / "wide.gguf", TEXT), TEXT)


@pytest.mark.parametrize("kind", ["Q4_K_M", "Q5_K_M", "Q6_K", "Q4_0"])
def test_the_commands_write_with_files_that_llama_cpp_quantised(tmp_path, cpu, kind):
    write(tmp_path / "f32.gguf")
    quantise(tmp_path / "f32.gguf", tmp_path / "m.gguf", kind)
    types = {name: t.type for name, t in GGUF.open(tmp_path / "m.gguf").tensors.items() if len(t.shape) > 1}
    if kind == "Q4_K_M":
        assert types == {name: choose_q4_k_m(name) for name in types}
    check_commands(tmp_path / "m.gguf")


def test_tokens_of_rwkv_are_llama_cpps(tmp_path):
    random = np.random.default_rng(3)
    starts = random.integers(0, len(PROSE) - 10, 800)
    words = {PROSE[at : at + random.integers(2, 9)].encode() for at in starts}
    words |= {"日本".encode(), b"\xe6\x97", b"\n\n", b"\\", b"\t\"", b" '\""}  # fmt: skip
    _, metadata = rwkv_metadata(sorted(word for word in words if len(word) > 1))
    path = tmp_path / "rwkv.gguf"
    write_gguf(path, {"general.architecture": "rwkv7", **metadata}, {})
    tokenizer = Tokenizer.from_gguf(GGUF.open(path))
    theirs = pytest.importorskip("llama_cpp").Llama(str(path), vocab_only=True, verbose=False)
    for at in random.integers(0, len(PROSE) - 50, 3000):
        text = PROSE[at : at + random.integers(1, 50)] + "".join(random.choice([*"日本語ß½👩\x01\\'\"\t\n "], 4))
        assert tokenizer.encode(text) == theirs.tokenize(text.encode(), add_bos=False, special=False), text
