"""Language models in NumPy and float64, each written out from its paper: what logits are compared with.

Nothing here is taken from `isokern.llm`, but for reading the file.
"""

import math

import numpy as np

from isokern import blocks
from isokern.dtypes import Q8_0


class Weights:
    """The tensors and the keys of a file, and the products, norms and tables that models are written in."""

    def __init__(self, gguf, tokens, activations="float"):
        name = gguf.metadata["general.architecture"]
        self.facts = {k.removeprefix(f"{name}."): v for k, v in gguf.metadata.items()}
        self.tensors, self.tokens, self.own = {}, list(tokens), ""
        self.rounding = {key for key, held in gguf.tensors.items() if held.dtype.block > 1 and activations == "q8_0"}
        for key, held in gguf.tensors.items():
            if held.dtype.block > 1:
                raw = held.data.reshape(*held.shape[:-1], held.dtype.nbytes(held.shape[-1]))
                self.tensors[key] = blocks.dequantize(raw, held.dtype).astype(np.float64)
            else:
                self.tensors[key] = held.array.astype(np.float64)
        self.layers, self.heads = self.facts["block_count"], self.facts["attention.head_count"]
        self.shared, self.width = self.facts.get("attention.head_count_kv", self.heads), self.facts["embedding_length"]
        self.eps = next(v for k, v in self.facts.items() if k.endswith("epsilon"))

    def each_layer(self):
        for layer in range(self.layers):
            self.own = f"blk.{layer}."
            yield layer
        self.own = ""

    def get(self, name):
        return self.tensors[self.own + name]

    def embed(self):
        return self.tensors["token_embd.weight"][self.tokens]

    def meet(self, x, name):
        """Return x as it enters products with a matrix."""
        if f"{self.own}{name}.weight" not in self.rounding:
            return x
        return blocks.dequantize(blocks.quantize(x.astype(np.float32), Q8_0), Q8_0).astype(np.float64)

    def mul(self, x, name):
        """Return the product with a matrix, and its bias where the file has one."""
        y = self.meet(x, name) @ self.get(f"{name}.weight").T
        bias = f"{self.own}{name}.bias"
        return y + self.tensors[bias] if bias in self.tensors else y

    def rms(self, x, name):
        return x / np.sqrt(np.mean(x**2, -1, keepdims=True) + self.eps) * self.get(f"{name}.weight")

    def layer_norm(self, x, name, bias=True):
        y = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + self.eps) * self.get(f"{name}.weight")
        return y + self.get(f"{name}.bias") if bias else y

    def qkv(self, h):
        """Return q, k and v [n, heads, dim] of separate products."""
        q, k, v = (self.mul(h, f"attn_{name}") for name in "qkv")
        return self.heads_of(q, self.heads), self.heads_of(k, self.shared), self.heads_of(v, self.shared)

    def fused_qkv(self, h):
        """Return q, k and v of one product, with q's rows first, or of three where a file has these."""
        if f"{self.own}attn_qkv.weight" not in self.tensors:
            return self.qkv(h)
        y = self.mul(h, "attn_qkv")
        dim = y.shape[-1] // (self.heads + 2 * self.shared)
        q, k, v = np.split(y, [self.heads * dim, (self.heads + self.shared) * dim], -1)
        return self.heads_of(q, self.heads), self.heads_of(k, self.shared), self.heads_of(v, self.shared)

    def heads_of(self, x, heads):
        return x.reshape(len(x), heads, -1)

    def output(self, mixed, name="attn_output"):
        return self.mul(mixed.reshape(len(mixed), -1), name)

    def swiglu(self, h):
        return self.mul(silu(self.mul(h, "ffn_gate")) * self.mul(h, "ffn_up"), "ffn_down")

    def fused_swiglu(self, h):
        gate, up = np.split(self.mul(h, "ffn_up"), 2, -1)
        return self.mul(silu(gate) * up, "ffn_down")

    def logits(self, x):
        return x @ self.tensors["token_embd.weight"].T


def silu(x):
    return x / (1 + np.exp(-x))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * np.vectorize(math.erfc)(-x / math.sqrt(2)) / 2


def gelu_new(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def inverse(dims, theta=10000.0):
    return theta ** (-np.arange(0, dims, 2) / dims)


def yarn(dims, factor, original, theta=10000.0):
    """Return YaRN's frequencies and magnitude, with its ramp from 32 turns to one in the original length."""

    def place(turns):
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(place(32)), 0), min(math.ceil(place(1)), dims - 1)
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
    return inverse(dims, theta) * (1 - ramp) + inverse(dims, theta) / factor * ramp, 0.1 * math.log(factor) + 1


def turn(x, freqs, interleaved=False, magnitude=1.0):
    """Rotate the first 2 · len(freqs) elements of each head of x [n, heads, dim]."""
    dims = 2 * len(freqs)
    z = np.exp(1j * np.arange(len(x))[:, None] * freqs)[:, None] * magnitude
    y, half = x.copy(), dims // 2
    first, second = (
        (np.s_[..., 0:dims:2], np.s_[..., 1:dims:2]) if interleaved else (np.s_[..., :half], np.s_[..., half:dims])
    )
    c = (x[first] + 1j * x[second]) * z
    y[first], y[second] = c.real, c.imag
    return y


def attend(q, k, v, scale=None, window=None, cap=None, sinks=None):
    """Return causal attention [n, heads, dim]; heads share those of k in their order."""
    n, heads, dim = q.shape
    at, out = np.arange(n), np.empty((n, heads, v.shape[2]))
    far = at[:, None] - at
    hidden = (far < 0) | ((far >= window) if window else False)
    for head in range(heads):
        own = head * k.shape[1] // heads
        scores = q[:, head] @ k[:, own].T * (dim**-0.5 if scale is None else scale)
        scores = cap * np.tanh(scores / cap) if cap else scores
        scores = np.where(hidden, -np.inf, scores)
        if sinks is not None:
            p = softmax(np.concatenate([scores, np.full((n, 1), sinks[head])], 1))[:, :-1]
        else:
            p = softmax(scores)
        out[:, head] = p @ v[:, own]
    return out


def llama(
    m, window=None, interleaved=True, feed_forward=None, scale=None, residual=1.0, rope=True, freqs=None, temper=1.0
):
    """Touvron et al. 2023: the base of many; with a window Mistral 7B (Jiang et al. 2023)."""
    freqs, x = inverse(32) if freqs is None else freqs, m.embed() * m.facts.get("embedding_scale", 1.0)
    for layer in m.each_layer():
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        if rope is True or layer in rope:
            q, k = turn(q, freqs, interleaved) * temper, turn(k, freqs, interleaved)
        x = x + residual * m.output(attend(q, k, v, scale, window))
        h = m.rms(x, "ffn_norm")
        x = x + residual * (m.swiglu(h) if feed_forward is None else feed_forward(m, h))
    x = m.rms(x, "output_norm")
    return m.mul(x, "output") if "output.weight" in m.tensors else m.logits(x)


def mistral(m):
    return llama(m, window=8)


def mistral3(m):
    """Ministral 3: YaRN whose magnitude is taken back, and queries that grow with their positions."""
    grown = 1 + 0.3 * np.log(1 + np.arange(len(m.tokens)) // 8)
    return llama(m, freqs=yarn(32, 8.0, 8)[0], temper=grown[:, None, None])


def experts(m, h, used, normalize, gate=None):
    """Return the weighted sum of the outputs of the most probable experts of each token."""
    probabilities, y = softmax(m.mul(h, "ffn_gate_inp")), np.zeros_like(h)
    w = {name: m.get(f"ffn_{name}_exps.weight") for name in ("gate", "up", "down")}
    for i, p in enumerate(probabilities):
        best = np.argsort(-p)[:used]
        shares = p[best] / p[best].sum() if normalize else p[best]
        for share, e in zip(shares, best, strict=True):
            gate, up = (w[name][e] @ m.meet(h[i], f"ffn_{name}_exps") for name in ("gate", "up"))
            y[i] += share * (w["down"][e] @ m.meet(silu(gate) * up, "ffn_down_exps"))
    return y


def mixtral(m):
    """Jiang et al. 2024."""
    return llama(m, feed_forward=lambda m, h: experts(m, h, 2, True))


def qwen2(m):
    return llama(m, interleaved=False)


def qwen3(m, feed_forward=None):
    freqs, x = inverse(32), m.embed()
    for _ in m.each_layer():
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        q, k = turn(m.rms(q, "attn_q_norm"), freqs), turn(m.rms(k, "attn_k_norm"), freqs)
        x = x + m.output(attend(q, k, v))
        h = m.rms(x, "ffn_norm")
        x = x + (m.swiglu(h) if feed_forward is None else feed_forward(m, h))
    x = m.rms(x, "output_norm")
    return m.mul(x, "output") if "output.weight" in m.tensors else m.logits(x)


def geglu(m, h):
    return m.mul(gelu_new(m.mul(h, "ffn_gate")) * m.mul(h, "ffn_up"), "ffn_down")


def gemma(m):
    """Gemma: embeddings times sqrt(width), GEGLU, heads of their own width."""
    freqs, x = inverse(64), m.embed() * math.sqrt(m.width)
    for _ in m.each_layer():
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        x = x + m.output(attend(turn(q, freqs), turn(k, freqs), v))
        x = x + geglu(m, m.rms(x, "ffn_norm"))
    return m.logits(m.rms(x, "output_norm"))


def gemma2(m):
    """Gemma 2: norms after each part, too, caps, and a window in every other layer, beginning with the first."""
    freqs, x = inverse(32), m.embed() * math.sqrt(m.width)
    for layer in m.each_layer():
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        mixed = attend(turn(q, freqs), turn(k, freqs), v, window=None if layer % 2 else 8, cap=5.0)
        x = x + m.rms(m.output(mixed), "post_attention_norm")
        x = x + m.rms(geglu(m, m.rms(x, "ffn_norm")), "post_ffw_norm")
    return 3.0 * np.tanh(m.logits(m.rms(x, "output_norm")) / 3.0)


def gemma3(m):
    """Gemma 3: norms of heads; five layers with a window and base 10,000, then one without, base 1,000,000 over 8."""
    x = m.embed() * math.sqrt(m.width)
    for layer in m.each_layer():
        everything = layer % 6 == 5
        freqs = inverse(32, 1e6) / 8 if everything else inverse(32)
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        q, k = turn(m.rms(q, "attn_q_norm"), freqs), turn(m.rms(k, "attn_k_norm"), freqs)
        x = x + m.rms(m.output(attend(q, k, v, window=None if everything else 8)), "post_attention_norm")
        x = x + m.rms(geglu(m, m.rms(x, "ffn_norm")), "post_ffw_norm")
    return m.logits(m.rms(x, "output_norm"))


def gemma3n(m):
    """Gemma 3n: three branches a token, of which the first is computed; two layers see the keys of those before."""
    count, inner, width = 3, 24, m.width
    h0, tokens, kept = m.embed() * math.sqrt(width), m.tokens, {}

    def level(x, like):
        own, other = (np.mean(v**2, -1, keepdims=True) for v in (x, like))
        return x * np.sqrt(other) / np.sqrt(np.maximum(own, 1e-5))

    table = m.tensors["per_layer_token_embd.weight"]
    table = table[np.where(np.array(tokens) < len(table), tokens, 0)].reshape(len(tokens), -1, inner) * math.sqrt(inner)
    made = m.mul(h0, "per_layer_model_proj").reshape(len(tokens), -1, inner) / math.sqrt(width)
    rows = (m.rms(made, "per_layer_proj_norm") + table) / math.sqrt(2)
    h = np.stack([h0, *(level(h0 @ w.T, h0) for w in m.tensors["altup_proj.weight"])])
    far = m.facts["activation_sparsity_scale"]
    for layer in m.each_layer():

        def route(x):
            return np.tanh(m.mul(m.rms(x, "altup_router_norm") / width, "altup_router"))

        mixing = m.mul(route(h[0]), "altup_predict_coef").reshape(-1, count, count)
        predicted = h + np.einsum("inw,nji->jnw", h, mixing)
        x = predicted[0]
        normed, local = m.rms(x, "attn_norm"), layer % 2 == 0
        freqs = inverse(32) if local else inverse(32, 1e6)
        if layer < 4:
            q, k, v = m.qkv(normed)
            v = v / np.sqrt(np.mean(v**2, -1, keepdims=True) + m.eps)
            kept[local] = turn(m.rms(k, "attn_k_norm"), freqs), v
        q = turn(m.rms(m.heads_of(m.mul(normed, "attn_q"), m.heads), "attn_q_norm"), freqs)
        mixed = m.rms(m.output(attend(q, *kept[local], scale=1.0, window=8 if local else None)), "post_attention_norm")
        laurel = normed + m.rms(m.mul(m.mul(normed, "laurel_l"), "laurel_r"), "laurel_post_norm")
        mixed = (x + mixed + laurel) / math.sqrt(2)
        f = m.rms(mixed, "ffn_norm")
        gate = m.mul(f, "ffn_gate")
        if far[layer] > 0:
            gate = np.maximum(gate - gate.mean(-1, keepdims=True) - far[layer] * gate.std(-1, keepdims=True), 0)
        f = m.rms(m.mul(gelu_new(gate) * m.mul(f, "ffn_up"), "ffn_down"), "post_ffw_norm")
        made = mixed + f
        h = predicted + (made - x) * (1 + m.mul(route(made), "altup_correct_coef").T[:, :, None])
        first = gelu_new(m.mul(h[0] * m.get("altup_correct_scale.weight"), "inp_gate")) * rows[:, layer]
        h[1:] += m.rms(m.mul(first, "proj"), "post_norm")
    more = (level(x @ w.T, h[0]) for x, w in zip(h[1:], m.tensors["altup_unembd_proj.weight"], strict=True))
    y = m.rms(np.mean([h[0], *more], 0), "output_norm")
    return 3.0 * np.tanh(m.logits(y) / 3.0)


def phi2(m):
    """Phi-2: one norm, and attention and feed-forward network of it side by side; rope of a part of each head."""
    freqs, x = inverse(12), m.embed()
    for _ in m.each_layer():
        h = m.layer_norm(x, "attn_norm")
        q, k, v = m.fused_qkv(h)
        mixed = m.output(attend(turn(q, freqs), turn(k, freqs), v))
        x = x + mixed + m.mul(gelu_new(m.mul(h, "ffn_up")), "ffn_down")
    return m.mul(m.layer_norm(x, "output_norm"), "output")


def phi3(m, freqs=None, magnitude=1.0, window=8):
    freqs, x = inverse(32) if freqs is None else freqs, m.embed()
    for _ in m.each_layer():
        q, k, v = m.fused_qkv(m.rms(x, "attn_norm"))
        q, k = turn(q, freqs, magnitude=magnitude), turn(k, freqs, magnitude=magnitude)
        x = x + m.output(attend(q, k, v, window=window))
        x = x + m.fused_swiglu(m.rms(x, "ffn_norm"))
    return m.mul(m.rms(x, "output_norm"), "output")


def starcoder2(m):
    freqs, x = inverse(32), m.embed()
    for _ in m.each_layer():
        q, k, v = m.qkv(m.layer_norm(x, "attn_norm"))
        x = x + m.output(attend(turn(q, freqs), turn(k, freqs), v))
        x = x + m.mul(gelu_new(m.mul(m.layer_norm(x, "ffn_norm"), "ffn_up")), "ffn_down")
    return m.mul(m.layer_norm(x, "output_norm"), "output")


def gpt2(m):
    """Radford et al. 2019: learned positions."""
    x = m.embed() + m.tensors["position_embd.weight"][: len(m.tokens)]
    for _ in m.each_layer():
        x = x + m.output(attend(*m.fused_qkv(m.layer_norm(x, "attn_norm"))))
        x = x + m.mul(gelu_new(m.mul(m.layer_norm(x, "ffn_norm"), "ffn_up")), "ffn_down")
    return m.logits(m.layer_norm(x, "output_norm"))


def falcon(m):
    """Falcon 40B: two norms of one x, attention of the one and the feed-forward network of the other."""
    freqs, x = inverse(32), m.embed()
    for _ in m.each_layer():
        q, k, v = m.fused_qkv(m.layer_norm(x, "attn_norm_2"))
        mixed = m.output(attend(turn(q, freqs), turn(k, freqs), v))
        x = x + mixed + m.mul(gelu(m.mul(m.layer_norm(x, "attn_norm"), "ffn_up")), "ffn_down")
    return m.mul(m.layer_norm(x, "output_norm"), "output")


def stablelm(m):
    freqs, x = inverse(8), m.embed()
    for _ in m.each_layer():
        q, k, v = m.qkv(m.layer_norm(x, "attn_norm"))
        x = x + m.output(attend(turn(q, freqs), turn(k, freqs), v))
        x = x + m.swiglu(m.layer_norm(x, "ffn_norm"))
    return m.mul(m.layer_norm(x, "output_norm"), "output")


def stablelm_parallel(m):
    """StableLM 2 12B: a norm of each head, and both parts side by side."""
    freqs, x = inverse(8), m.embed()
    for _ in m.each_layer():
        h = m.layer_norm(x, "attn_norm")
        q, k, v = m.qkv(h)
        q, k = m.layer_norm(q, "attn_q_norm", bias=False), m.layer_norm(k, "attn_k_norm", bias=False)
        x = x + m.output(attend(turn(q, freqs), turn(k, freqs), v)) + m.swiglu(h)
    return m.mul(m.layer_norm(x, "output_norm"), "output")


def olmo2(m, windowed=False):
    """OLMo 2: norms after, not before; q and k are normalised as rows of all heads. OLMo 3 has windows and YaRN."""
    x = m.embed()
    for layer in m.each_layer():
        local = windowed and layer % 4 != 3
        freqs, magnitude = yarn(32, 8.0, 16) if windowed and not local else (inverse(32), 1.0)
        q, k = m.rms(m.mul(x, "attn_q"), "attn_q_norm"), m.rms(m.mul(x, "attn_k"), "attn_k_norm")
        q, k, v = m.heads_of(q, m.heads), m.heads_of(k, m.shared), m.heads_of(m.mul(x, "attn_v"), m.shared)
        q, k = turn(q, freqs, magnitude=magnitude), turn(k, freqs, magnitude=magnitude)
        x = x + m.rms(m.output(attend(q, k, v, window=8 if local else None)), "post_attention_norm")
        x = x + m.rms(m.swiglu(x), "post_ffw_norm")
    return m.mul(m.rms(x, "output_norm"), "output")


def olmo3(m):
    return olmo2(m, windowed=True)


def granite(m, feed_forward=None):
    """Granite 3: four factors; logits are divided by theirs."""
    return llama(m, scale=0.11, residual=0.6, feed_forward=feed_forward) / 3.0


def granitemoe(m):
    def feed_forward(m, h):
        shared = m.mul(silu(m.mul(h, "ffn_gate_shexp")) * m.mul(h, "ffn_up_shexp"), "ffn_down_shexp")
        return experts(m, h, 2, True) + shared

    return granite(m, feed_forward)


def minicpm(m):
    return llama(m, residual=0.6) / 3.0


def command_r(m, windowed=False):
    """Command R: norms without bias, both parts side by side; Command R7B has rope in layers with a window only."""
    freqs, x = inverse(32), m.embed()
    for layer in m.each_layer():
        h = m.layer_norm(x, "attn_norm", bias=False)
        q, k, v = m.qkv(h)
        local = windowed and layer % 4 != 3
        if not windowed:
            q, k = m.layer_norm(q, "attn_q_norm", bias=False), m.layer_norm(k, "attn_k_norm", bias=False)
        if local or not windowed:
            q, k = turn(q, freqs, True), turn(k, freqs, True)
        x = x + m.output(attend(q, k, v, window=8 if local else None)) + m.swiglu(h)
    return 0.4 * m.logits(m.layer_norm(x, "output_norm", bias=False))


def cohere2(m):
    return command_r(m, windowed=True)


def smollm3(m):
    """SmolLM3: no rope in every fourth layer."""
    return llama(m, rope=(0, 1, 2, 4))


def exaone(m):
    return llama(m, interleaved=False)


def exaone4(m):
    """EXAONE 4: norms after, norms of heads; three of four layers have a window, and only these have rope."""
    freqs, x = inverse(32), m.embed()
    for layer in m.each_layer():
        q, k, v = m.qkv(x)
        q, k, local = m.rms(q, "attn_q_norm"), m.rms(k, "attn_k_norm"), layer % 4 != 3
        if local:
            q, k = turn(q, freqs), turn(k, freqs)
        x = x + m.rms(m.output(attend(q, k, v, window=8 if local else None)), "post_attention_norm")
        x = x + m.rms(m.swiglu(x), "post_ffw_norm")
    return m.logits(m.rms(x, "output_norm"))


def glm4(m):
    freqs, x = inverse(16), m.embed()
    for _ in m.each_layer():
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        mixed = attend(turn(q, freqs, True), turn(k, freqs, True), v)
        x = x + m.rms(m.output(mixed), "post_attention_norm")
        x = x + m.rms(m.fused_swiglu(m.rms(x, "ffn_norm")), "post_ffw_norm")
    return m.mul(m.rms(x, "output_norm"), "output")


def chatglm(m):
    freqs, x = inverse(16), m.embed()
    for _ in m.each_layer():
        q, k, v = m.fused_qkv(m.rms(x, "attn_norm"))
        x = x + m.output(attend(turn(q, freqs, True), turn(k, freqs, True), v))
        x = x + m.fused_swiglu(m.rms(x, "ffn_norm"))
    return m.mul(m.rms(x, "output_norm"), "output")


def qwen2moe(m):
    """Qwen1.5-MoE: weights as the softmax gives them, and a shared expert with a gate."""

    def feed_forward(m, h):
        shared = m.mul(silu(m.mul(h, "ffn_gate_shexp")) * m.mul(h, "ffn_up_shexp"), "ffn_down_shexp")
        return experts(m, h, 2, False) + sigmoid(h @ m.get("ffn_gate_inp_shexp.weight"))[:, None] * shared

    return llama(m, interleaved=False, feed_forward=feed_forward)


def qwen3moe(m):
    return qwen3(m, lambda m, h: experts(m, h, 2, True))


def olmoe(m):
    freqs, x = inverse(32), m.embed()
    for _ in m.each_layer():
        h = m.rms(x, "attn_norm")
        q, k = m.rms(m.mul(h, "attn_q"), "attn_q_norm"), m.rms(m.mul(h, "attn_k"), "attn_k_norm")
        q, k, v = m.heads_of(q, m.heads), m.heads_of(k, m.shared), m.heads_of(m.mul(h, "attn_v"), m.shared)
        x = x + m.output(attend(turn(q, freqs), turn(k, freqs), v))
        x = x + experts(m, m.rms(x, "ffn_norm"), 3, False)
    return m.mul(m.rms(x, "output_norm"), "output")


def gpt_oss(m):
    """gpt-oss: sinks, every other layer with a window, biases of the experts, the softmax of the chosen logits."""
    (freqs, magnitude), x = yarn(32, 4.0, 16), m.embed()
    for layer in m.each_layer():
        q, k, v = m.qkv(m.rms(x, "attn_norm"))
        q, k = turn(q, freqs, magnitude=magnitude), turn(k, freqs, magnitude=magnitude)
        sinks = m.get("attn_sinks.weight")
        x = x + m.output(attend(q, k, v, window=None if layer % 2 else 8, sinks=sinks))
        h = m.rms(x, "post_attention_norm")
        for i, scores in enumerate(m.mul(h, "ffn_gate_inp")):
            best = np.argsort(-scores)[:2]
            for share, e in zip(softmax(scores[best]), best, strict=True):
                gate, up = (
                    m.get(f"ffn_{s}_exps.weight")[e] @ m.meet(h[i], f"ffn_{s}_exps") + m.get(f"ffn_{s}_exps.bias")[e]
                    for s in ("gate", "up")
                )
                gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
                made = m.meet(gate * sigmoid(1.702 * gate) * (up + 1), "ffn_down_exps")
                x[i] += share * (m.get("ffn_down_exps.weight")[e] @ made + m.get("ffn_down_exps.bias")[e])
    return m.mul(m.rms(x, "output_norm"), "output")


def deepseek(m, route, mscale, freqs, q_names):
    """DeepSeek-V2 and V3 as the papers have them, with the keys and values of every head; `route` weighs experts."""
    x = m.embed()
    for layer in m.each_layer():
        h = m.rms(x, "attn_norm")
        c = m.rms(m.mul(h, "attn_q_a"), "attn_q_a_norm") if len(q_names) > 1 else h
        q = m.heads_of(m.mul(c, q_names[-1]), m.heads)
        row = m.mul(h, "attn_kv_a_mqa")
        latent, shared = m.rms(row[:, :64], "attn_kv_a_norm"), turn(row[:, None, 64:], freqs, True)
        if f"{m.own}attn_kv_b.weight" in m.tensors:
            k, v = np.split(m.heads_of(m.mul(latent, "attn_kv_b"), m.heads), [32], -1)
        else:
            k = np.einsum("hri,nr->nhi", m.get("attn_k_b.weight"), latent)
            v = np.einsum("hvr,nr->nhv", m.get("attn_v_b.weight"), latent)
        q = np.concatenate([q[..., :32], turn(q[..., 32:], freqs, True)], -1)
        k = np.concatenate([k, np.repeat(shared, m.heads, 1)], -1)
        x = x + m.output(attend(q, k, v, scale=mscale**2 / math.sqrt(64)))
        h = m.rms(x, "ffn_norm")
        if layer == 0:
            x = x + m.swiglu(h)
            continue
        w = {name: m.get(f"ffn_{name}_exps.weight") for name in ("gate", "up", "down")}
        x = x + m.mul(silu(m.mul(h, "ffn_gate_shexp")) * m.mul(h, "ffn_up_shexp"), "ffn_down_shexp")
        for i, scores in enumerate(h @ m.get("ffn_gate_inp.weight").T):
            for e, share in route(m, scores).items():
                x[i] += share * (w["down"][e] @ (silu(w["gate"][e] @ h[i]) * (w["up"][e] @ h[i])))
    return m.mul(m.rms(x, "output_norm"), "output")


def deepseek3(m):
    def route(m, logits):
        scores = sigmoid(logits)
        ranks = (scores + m.get("exp_probs_b.bias")).reshape(3, 2)
        for group in np.argsort(ranks.sum(1))[:1]:
            ranks[group] = -np.inf
        best = np.argsort(-ranks.reshape(-1))[:2]
        return {e: 2.5 * scores[e] / scores[best].sum() for e in best}

    return deepseek(m, route, 1 + 0.1 * math.log(8), yarn(32, 8.0, 16)[0], ("attn_q_a", "attn_q_b"))


def deepseek2_lite(m):
    def route(m, logits):
        p = softmax(logits)
        return {e: p[e] for e in np.argsort(-p)[:2]}

    return deepseek(m, route, 1.0, inverse(32), ("attn_q",))


def convolve(m, x):
    """Return silu of each channel's convolution with the three elements before it."""
    w, n = m.get("ssm_conv1d.weight"), len(x)
    padded = np.concatenate([np.zeros((3, x.shape[1])), x])
    return silu(sum(padded[i : i + n] * w[:, i] for i in range(4)) + m.get("ssm_conv1d.bias"))


def mamba(m, normalized=False):
    """Gu and Dao 2023, algorithm 2 with the discretisation of section 2; FalconMamba normalises dt, B and C."""
    x = m.embed()
    for _ in m.each_layer():
        u, z = np.split(m.mul(m.rms(x, "attn_norm"), "ssm_in"), 2, -1)
        u = convolve(m, u)
        parts = np.split(m.mul(u, "ssm_x"), [8, 24], -1)
        if normalized:
            parts = [p / np.sqrt(np.mean(p**2, -1, keepdims=True) + m.eps) for p in parts]
        steps, h, y = np.log1p(np.exp(m.mul(parts[0], "ssm_dt"))), np.zeros((256, 16)), np.empty_like(u)
        for t, (step, b, c) in enumerate(zip(steps, *parts[1:], strict=True)):
            h = np.exp(step[:, None] * m.get("ssm_a")) * h + (step * u[t])[:, None] * b
            y[t] = h @ c + m.get("ssm_d") * u[t]
        x = x + m.mul(y * silu(z), "ssm_out")
    x = m.rms(x, "output_norm")
    return m.mul(x, "output") if "output.weight" in m.tensors else m.logits(x)


def falcon_mamba(m):
    return mamba(m, normalized=True)


def mamba2(m):
    """Dao and Gu 2024: heads of one decay each; the norm is of what is gated, by groups."""
    x, groups = m.embed(), m.facts["ssm.group_count"]
    for _ in m.each_layer():
        row = m.mul(m.rms(x, "attn_norm"), "ssm_in")
        z, xbc, dt = np.split(row, [256, row.shape[1] - 4], -1)
        u, b, c = np.split(convolve(m, xbc), [256, 256 + 16 * groups], -1)
        steps, a, d = np.log1p(np.exp(dt + m.get("ssm_dt.bias"))), m.get("ssm_a")[:, 0], m.get("ssm_d")[:, 0]
        u, y, h = u.reshape(-1, 4, 64), np.empty((len(x), 4, 64)), np.zeros((4, 64, 16))
        b, c = (np.repeat(v.reshape(-1, groups, 16), 4 // groups, 1) for v in (b, c))
        for t, step in enumerate(steps):
            h = np.exp(step * a)[:, None, None] * h + np.einsum("h,hd,hs->hds", step, u[t], b[t])
            y[t] = np.einsum("hds,hs->hd", h, c[t]) + d[:, None] * u[t]
        y = (y.reshape(len(x), -1) * silu(z)).reshape(len(x), groups, -1)
        y = y / np.sqrt(np.mean(y**2, -1, keepdims=True) + m.eps) * m.get("ssm_norm.weight")
        x = x + m.mul(y.reshape(len(x), -1), "ssm_out")
    x = m.rms(x, "output_norm")
    return m.mul(x, "output") if "output.weight" in m.tensors else m.logits(x)


def rwkv7(m):
    """Peng et al. 2025, section 4: the state of a head is a matrix from keys to values."""
    x, eps, first = m.layer_norm(m.embed(), "token_embd_norm"), 64e-5, None
    n, width, dim = len(x), m.width, m.facts["wkv.head_size"]

    def low(h, letter, f=lambda y: y):
        y = m.mul(f(m.mul(h, f"time_mix_{letter}1")), f"time_mix_{letter}2")
        return y if letter == "g" else y + m.get(f"time_mix_{letter}0.weight")

    for _ in m.each_layer():
        h = m.layer_norm(x, "attn_norm")
        shifted = np.concatenate([np.zeros((1, width)), h[:-1]])
        mixes = m.get("time_mix_lerp_fused.weight").reshape(6, width)
        hr, hw, hk, hv, ha, hg = (h + (shifted - h) * mix for mix in mixes)
        r, k, v = (m.mul(y, f"time_mix_{s}") for y, s in ((hr, "receptance"), (hk, "key"), (hv, "value")))
        if first is None:
            first = v
        else:
            v = v + (first - v) * sigmoid(low(hv, "v"))
        w = np.exp(-np.exp(-0.5) * sigmoid(low(hw, "w", np.tanh)))
        a, g = sigmoid(low(ha, "a")), low(hg, "g", sigmoid)
        kappa = (k * m.get("time_mix_k_k.weight")).reshape(n, -1, dim)
        kappa = kappa / np.linalg.norm(kappa, axis=-1, keepdims=True)
        k = k * (1 + (a - 1) * m.get("time_mix_k_a.weight"))
        r, k, v, w, a = (y.reshape(n, -1, dim) for y in (r, k, v, w, a))
        state, y = np.zeros((width // dim, dim, dim)), np.empty((n, width // dim, dim))
        for t in range(n):
            removed = np.einsum("hvk,hk->hv", state, kappa[t])
            state = state * w[t][:, None] - removed[:, :, None] * (kappa[t] * a[t])[:, None]
            state = state + v[t][:, :, None] * k[t][:, None]
            y[t] = np.einsum("hvk,hk->hv", state, r[t])
        even = (y - y.mean(-1, keepdims=True)) / np.sqrt(y.var(-1, keepdims=True) + eps)
        y = even.reshape(n, width) * m.get("time_mix_ln.weight") + m.get("time_mix_ln.bias")
        bonus = np.sum(r * k * m.get("time_mix_r_k.weight").reshape(-1, dim), -1, keepdims=True) * v
        x = x + m.mul((y + bonus.reshape(n, width)) * g, "time_mix_output")
        h = m.layer_norm(x, "attn_norm_2")
        shifted = np.concatenate([np.zeros((1, width)), h[:-1]])
        h = h + (shifted - h) * m.get("channel_mix_lerp_k.weight").reshape(width)
        x = x + m.mul(np.maximum(m.mul(h, "channel_mix_key"), 0) ** 2, "channel_mix_value")
    return m.mul(m.layer_norm(x, "output_norm"), "output")


MODELS = {
    "llama": llama,
    "mistral": mistral,
    "mixtral": mixtral,
    "qwen2": qwen2,
    "qwen3": qwen3,
    "gemma": gemma,
    "gemma2": gemma2,
    "gemma3": gemma3,
    "gemma3n": gemma3n,
    "phi2": phi2,
    "phi3": phi3,
    "starcoder2": starcoder2,
    "gpt2": gpt2,
    "falcon": falcon,
    "stablelm": stablelm,
    "stablelm-parallel": stablelm_parallel,
    "olmo2": olmo2,
    "olmo3": olmo3,
    "granite": granite,
    "granitemoe": granitemoe,
    "minicpm": minicpm,
    "command-r": command_r,
    "cohere2": cohere2,
    "smollm3": smollm3,
    "exaone": exaone,
    "exaone4": exaone4,
    "mistral3": mistral3,
    "internlm2": llama,
    "glm4": glm4,
    "chatglm": chatglm,
    "qwen2moe": qwen2moe,
    "qwen3moe": qwen3moe,
    "olmoe": olmoe,
    "gpt-oss": gpt_oss,
    "deepseek2": deepseek3,
    "deepseek2-lite": deepseek2_lite,
    "mamba": mamba,
    "falcon-mamba": falcon_mamba,
    "mamba2": mamba2,
    "rwkv7": rwkv7,
    "mamba2-one": mamba2,
}


def logits(gguf, model, tokens, activations="float"):
    """Return the logits [tokens, vocabulary] of a whole text at once."""
    return MODELS[model](Weights(gguf, tokens, activations))
