"""Test the model in examples/models: the files are as their README says, and float32 NumPy gets its perplexity."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from isokern.llm import GGUF, Tokenizer

FOLDER = Path(__file__).parents[2] / "examples" / "models"
README = (FOLDER / "README.md").read_text()
HELD_OUT = (FOLDER / "heldout.txt").read_text()
# name, bytes, perplexity, sha256, as in README's table
FILES = re.findall(r"^\| `([\w.-]+\.gguf)` \| ([\d,]+) \| ([\d.]+) \| `([0-9a-f]{64})` \|$", README, re.MULTILINE)


@pytest.fixture(params=[name for name, *_ in FILES])
def gguf(request):
    return GGUF.open(FOLDER / request.param)


def test_what_readme_says_of_the_files():
    assert [name for name, *_ in FILES] == sorted(path.name for path in FOLDER.glob("*.gguf"))
    for name, size, _, digest in FILES:
        content = (FOLDER / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (int(size.replace(",", "")), digest)
    assert sum((FOLDER / name).stat().st_size for name, *_ in FILES) < 7_500_000
    assert len(HELD_OUT.encode()) < 100_000


def test_tensors_and_metadata_fit_each_other(gguf):
    of = {key.removeprefix("llama."): value for key, value in gguf.metadata.items() if key.startswith("llama.")}
    width, inner = of["embedding_length"], of["feed_forward_length"]
    heads, kv_heads, dim = of["attention.head_count"], of["attention.head_count_kv"], of["rope.dimension_count"]
    layer = {
        "attn_norm": (width,),
        "ffn_norm": (width,),
        "attn_q": (heads * dim, width),
        "attn_output": (width, heads * dim),
    }
    layer |= {"attn_k": (kv_heads * dim, width), "attn_v": (kv_heads * dim, width)}
    layer |= {"ffn_gate": (inner, width), "ffn_up": (inner, width), "ffn_down": (width, inner)}
    expected = {"token_embd.weight": (of["vocab_size"], width), "output_norm.weight": (width,)}
    expected |= {f"blk.{i}.{name}.weight": shape for i in range(of["block_count"]) for name, shape in layer.items()}
    assert {name: tensor.shape for name, tensor in gguf.tensors.items()} == expected
    assert len(gguf.metadata["tokenizer.ggml.tokens"]) == of["vocab_size"]
    assert gguf.metadata["general.architecture"] == "llama"
    assert {t.type for t in gguf.tensors.values() if len(t.shape) == 1} == {"F32"}
    assert len({t.type for t in gguf.tensors.values() if len(t.shape) == 2}) == 1


def test_text_comes_back(gguf):
    pytest.importorskip("tokenizers")
    tokenizer = Tokenizer.from_gguf(gguf)
    ids = tokenizer.encode(HELD_OUT)
    assert ids[0] == tokenizer.bos == 0
    assert tokenizer.eos == 1
    assert tokenizer.decode(ids) == HELD_OUT
    assert len(HELD_OUT) / len(ids) > 3  # the vocabulary was made for this kind of text


def elements(tensor):
    """Return a tensor of F32, F16 or Q4_0 as float32."""
    if tensor.type != "Q4_0":
        return tensor.array.astype(np.float32)
    blocks = tensor.data.reshape(-1, 18)
    scale = np.ascontiguousarray(blocks[:, :2]).view(np.float16).astype(np.float32)
    halves = np.stack((blocks[:, 2:] & 15, blocks[:, 2:] >> 4), axis=1).reshape(-1, 32)
    return (scale * (halves.astype(np.float32) - 8)).reshape(tensor.shape)


def logits(weights, of, ids):
    """Return logits float32[len(ids), vocabulary] by an independent implementation of the architecture."""
    heads, kv_heads, dim = of["attention.head_count"], of["attention.head_count_kv"], of["rope.dimension_count"]
    n = len(ids)

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + of["attention.layer_norm_rms_epsilon"]) * weights[name]

    angle = np.outer(np.arange(n), of["rope.freq_base"] ** (-np.arange(0, dim, 2) / dim))[:, None]
    turn = np.exp(1j * angle).astype(np.complex64)

    def heads_of(x, count, turned):
        x = x.reshape(n, count, dim)
        return (np.ascontiguousarray(x).view(np.complex64) * turn).view(np.float32) if turned else x

    x = weights["token_embd.weight"][ids]
    later = np.triu(np.full((n, n), -np.inf, np.float32), 1)
    for i in range(of["block_count"]):
        w = {name.split(".")[2]: weights[name].T for name in weights if name.startswith(f"blk.{i}.")}
        h = norm(x, f"blk.{i}.attn_norm.weight")
        q = heads_of(h @ w["attn_q"], heads, True).reshape(n, kv_heads, heads // kv_heads, dim)
        k, v = heads_of(h @ w["attn_k"], kv_heads, True), heads_of(h @ w["attn_v"], kv_heads, False)
        score = np.einsum("ighd,jgd->ghij", q, k, optimize=True) / np.sqrt(np.float32(dim)) + later
        share = np.exp(score - score.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        x = x + np.einsum("ghij,jgd->ighd", share, v, optimize=True).reshape(n, heads * dim) @ w["attn_output"]
        h = norm(x, f"blk.{i}.ffn_norm.weight")
        gate = h @ w["ffn_gate"]
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up"])) @ w["ffn_down"]
    return norm(x, "output_norm.weight") @ weights["token_embd.weight"].T


# NumPy computes the whole held-out text for each file; test_generate compares the program with the same figures
@pytest.mark.full
@pytest.mark.parametrize(("name", "perplexity"), [(name, float(perplexity)) for name, _, perplexity, _ in FILES])
def test_the_perplexity_that_readme_quotes(name, perplexity):
    pytest.importorskip("tokenizers")
    gguf = GGUF.open(FOLDER / name)
    of = {key.removeprefix("llama."): value for key, value in gguf.metadata.items() if key.startswith("llama.")}
    weights = {tensor.name: elements(tensor) for tensor in gguf.tensors.values()}
    tokenizer = Tokenizer.from_gguf(gguf)
    ids = np.array(tokenizer.encode(HELD_OUT, bos=False))
    loss = 0.0
    for start in range(0, len(ids), of["context_length"]):
        window = ids[start : start + of["context_length"]]
        y = logits(weights, of, np.concatenate(([tokenizer.bos], window[:-1]))).astype(np.float64)
        y -= y.max(-1, keepdims=True)
        loss += (np.log(np.exp(y).sum(-1)) - y[np.arange(len(window)), window]).sum()
    assert np.exp(loss / len(ids)) == pytest.approx(perplexity, rel=1e-3)


@pytest.mark.parametrize("name", [name for name, *_ in FILES])
def test_the_library_gguf_agrees(name):
    library = pytest.importorskip("gguf")
    theirs, ours = library.GGUFReader(FOLDER / name), GGUF.open(FOLDER / name)
    assert len(theirs.tensors) == len(ours.tensors)
    for tensor in theirs.tensors:
        values = library.quants.dequantize(tensor.data, tensor.tensor_type)
        assert np.array_equal(values, elements(ours.tensors[tensor.name])), tensor.name
    for key, value in ours.metadata.items():
        assert np.array_equal(theirs.fields[key].contents(), value), key
