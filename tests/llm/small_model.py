"""GGUF files of small models with random weights, valid and invalid ones."""

import numpy as np
from gguf_write import write_gguf

import isokern
from isokern.blocks import quantize
from isokern.dtypes import Q4_0, Q4_1, Q8_0
from isokern.llm import GGUF

BLOCKS = {d.name: d for d in (Q4_0, Q4_1, Q8_0)}
PROMPT = [3, 17, 90, 4, 4, 61, 33, 8]


def made(path, architecture="llama", dtype="F32", tied=True, change=None, width=64, inner=96, **metadata):
    """Write a small model with random weights: 2 layers, width 64, 4 heads that share 2, 97 tokens."""
    heads, kv_heads, dim, vocabulary = 4, 2, 32, 97
    rng = np.random.default_rng(11)  # whatever was made before

    def weight(*shape):
        array = (rng.standard_normal(shape) / np.sqrt(shape[-1])).astype(np.float32)
        if len(shape) == 1:
            return 1 + array / 4
        if dtype in BLOCKS:
            return dtype, shape, quantize(array, BLOCKS[dtype]).reshape(-1)
        return array.astype(isokern.dtype(dtype).numpy)

    held = {"token_embd.weight": weight(vocabulary, width), "output_norm.weight": weight(width)}
    if not tied:
        held["output.weight"] = weight(vocabulary, width)
    for layer in range(2):
        own = f"blk.{layer}."
        held |= {
            own + "attn_norm.weight": weight(width),
            own + "attn_q.weight": weight(heads * dim, width),
            own + "attn_k.weight": weight(kv_heads * dim, width),
            own + "attn_v.weight": weight(kv_heads * dim, width),
            own + "attn_output.weight": weight(width, heads * dim),
            own + "ffn_norm.weight": weight(width),
            own + "ffn_gate.weight": weight(inner, width),
            own + "ffn_up.weight": weight(inner, width),
            own + "ffn_down.weight": weight(width, inner),
        }
        if architecture == "qwen2":
            held |= {
                f"{own}attn_{n}.bias": weight(s * dim) for n, s in zip("qkv", (heads, kv_heads, kv_heads), strict=True)
            }
        if architecture == "qwen3":
            held |= {f"{own}attn_{n}_norm.weight": weight(dim) for n in "qk"}
    own = architecture
    facts = {
        "general.architecture": architecture,
        f"{own}.context_length": 48,
        f"{own}.embedding_length": width,
        f"{own}.block_count": 2,
        f"{own}.feed_forward_length": inner,
        f"{own}.attention.head_count": heads,
        f"{own}.attention.head_count_kv": kv_heads,
        f"{own}.attention.key_length": dim,
        f"{own}.attention.value_length": dim,
        f"{own}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{own}.rope.dimension_count": dim,
        **metadata,
    }
    if change is not None:
        change(facts, held)
    write_gguf(path, facts, held)
    return GGUF.open(path)


def drop(name):
    return lambda facts, held: held.pop(name) if name in held else facts.pop(name)


def put(name, value):
    return lambda facts, held: facts.__setitem__(name, value)


def replace(name, array):
    return lambda facts, held: held.__setitem__(name, array)
