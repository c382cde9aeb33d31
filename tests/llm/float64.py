"""A Llama in NumPy and float64: the expected results of the operators together, written without any of them."""

import numpy as np

from isokern import blocks
from isokern.dtypes import Q8_0
from isokern.llm.architecture import Config


def weights(gguf):
    """Return (weight as float64, whether it was quantised) by name."""
    found = {}
    for name, held in gguf.tensors.items():
        if held.dtype.block > 1:
            raw = held.data.reshape(*held.shape[:-1], held.dtype.nbytes(held.shape[-1]))
            found[name] = blocks.dequantize(raw, held.dtype).astype(np.float64), True
        else:
            found[name] = held.array.astype(np.float64), False
    return found


def logits(gguf, tokens, activation="float"):
    """Return the logits [tokens, vocabulary] of a whole text at once."""
    c, w = Config.of(gguf), weights(gguf)
    n, at = len(tokens), np.arange(len(tokens))
    output, output_bias = ("output.weight" if "output.weight" in w else "token_embd.weight"), "output.bias"

    def product(x, name):
        matrix, quantised = w[name]
        if quantised and activation == "q8_0":
            x = blocks.dequantize(blocks.quantize(x.astype(np.float32), Q8_0), Q8_0).astype(np.float64)
        y = x @ matrix.T
        bias = output_bias if name == output else name.replace(".weight", ".bias")
        return y + w[bias][0] if bias in w else y

    def norm(x, name):
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + c.epsilon) * w[name][0]

    angles = at[:, None, None] * c.frequencies.astype(np.float64)
    cos, sin = c.magnitude * np.cos(angles), c.magnitude * np.sin(angles)

    def turn(x):
        y, half = x.copy(), c.rotated // 2
        first, second = (
            (slice(0, c.rotated, 2), slice(1, c.rotated, 2))
            if c.form.pairing == "adjacent"
            else (
                slice(0, half),
                slice(half, c.rotated),
            )
        )
        a, b = x[..., first], x[..., second]
        y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
        return y

    held = w["token_embd.weight"][0][list(tokens)]
    for layer in range(c.layers):
        own = f"blk.{layer}."
        x = norm(held, own + "attn_norm.weight")
        q, k, v = (product(x, f"{own}attn_{name}.weight") for name in "qkv")
        q, k, v = q.reshape(n, c.heads, -1), k.reshape(n, c.kv_heads, -1), v.reshape(n, c.kv_heads, -1)
        if c.form.head_norms:
            q, k = norm(q, own + "attn_q_norm.weight"), norm(k, own + "attn_k_norm.weight")
        q, k = turn(q), turn(k)
        mixed = np.empty((n, c.heads, c.value_dim))
        for head in range(c.heads):
            shared = head // (c.heads // c.kv_heads)
            scores = q[:, head] @ k[:, shared].T / np.sqrt(c.head_dim)
            scores = np.where(at <= at[:, None], scores, -np.inf)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            mixed[:, head] = p / p.sum(-1, keepdims=True) @ v[:, shared]
        held = held + product(mixed.reshape(n, -1), own + "attn_output.weight")
        x = norm(held, own + "ffn_norm.weight")
        gate = product(x, own + "ffn_gate.weight")
        held = held + product(gate / (1 + np.exp(-gate)) * product(x, own + "ffn_up.weight"), own + "ffn_down.weight")
    return product(norm(held, "output_norm.weight"), output)
