"""Operators that are matrix products and convolutions."""

from __future__ import annotations

import math

import numpy as np

from ..graph.ir import Value
from ..importing.products import multiply
from ..importing.windows import Window, convolve
from .node import AtenNode, Handler, Operand, Result, dtype_of, is_float, shape_of

# Attention as PyTorch has it on devices with a kernel for it: output 0 is the result, the others are for gradients
FUSED = (
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_fused_attention_overrideable",
)


def find_transposed(x: Operand) -> Operand | None:
    """Return the matrix of which an operand is the transpose, None where it is none."""
    op = x.producer if isinstance(x, Value) else None
    if op is None or op.kind not in ("transpose", "rearrange") or len(shape_of(x)) != 2:
        return None
    return op.inputs[0] if tuple(op.attrs.get("axes", ())) == (1, 0) else None


def product(node: AtenNode, a: Operand, b: Operand, bias: Operand | None = None) -> Operand:
    """Return a b + bias; a weight that PyTorch transposes first is that of a linear layer."""
    weight = find_transposed(b) if is_float(a) else None
    if weight is not None:
        return node.emit("linear", a, weight, bias)
    if bias is not None and is_float(a):
        return node.emit("gemm", a, b, bias)
    y = multiply(node, a, b)
    return y if bias is None else node.emit("add", y, bias)


def mm(node: AtenNode) -> Result:
    """Multiply two matrices."""
    return product(node, node.x, node["mat2"])


def matmul(node: AtenNode) -> Result:
    """Multiply as NumPy does."""
    a, b = list(node.args.values())[:2]
    return multiply(node, a, b)


def addmm(node: AtenNode) -> Result:
    """Return beta c + alpha a b; where c is a row of the result, it is a bias."""
    c, a, b = node.x, node["mat1"], node["mat2"]
    beta, alpha = float(node.get("beta", 1)), float(node.get("alpha", 1))
    n = shape_of(b)[1]
    if not is_float(a):
        if (beta, alpha) != (1, 1):
            raise node.refuse(f"integers with alpha {alpha} and beta {beta}", "1 and 1")
        return node.emit("add", multiply(node, a, b), c)
    if (beta, alpha) == (1, 1) and shape_of(c) == (n,):
        return product(node, a, b, c)
    full = node.expand(c, (shape_of(a)[0], n))
    return node.emit("gemm", a, b, None, full, alpha=alpha, beta=beta)


def baddbmm(node: AtenNode) -> Result:
    """Return beta c + alpha a b of batches."""
    c, a, b = node.x, node["batch1"], node["batch2"]
    full = node.expand(c, (*shape_of(a)[:2], shape_of(b)[2]))
    return node.emit("gemm", a, b, None, full, alpha=float(node.get("alpha", 1)), beta=float(node.get("beta", 1)))


def linear(node: AtenNode) -> Result:
    """Return x wᵀ + bias."""
    x, w, bias = node["input"], node["weight"], node.get("bias")
    if len(shape_of(w)) == 1:
        raise node.refuse("a weight that is a vector", "a matrix")
    if not is_float(x):
        raise node.refuse(f"elements of type {dtype_of(x)}", "floats")
    return node.emit("linear", x, w, bias)


def convolution(node: AtenNode) -> Result:
    """Convolve planes of one to three dims, forwards or backwards, with or without a batch."""
    x, w, bias = node["input"], node["weight"], node.get("bias")
    rank = len(shape_of(w)) - 2
    if not 1 <= rank <= 3 or not is_float(x):
        raise node.refuse(f"planes of {rank} dims, of {dtype_of(x)}", "1 to 3, of floats")
    single = len(shape_of(x)) == rank + 1
    x = node.reshape(x, (1, *shape_of(x))) if single else x
    pads = node.ints("padding", rank)
    window = Window(tuple(shape_of(w)[2:]), node.ints("stride", rank), node.ints("dilation", rank), pads, pads)
    how = {"stride": window.stride, "dilation": window.dilation, "groups": int(node.get("groups", 1))}
    if node.get("transposed"):
        more = node.ints("output_padding", rank)
        y = node.emit(f"conv_transpose{rank}d", x, w, bias, padding=window.padding, output_padding=more, **how)
    else:
        y = convolve(node, "conv", x, w, bias, rank, window, how)
    return node.reshape(y, shape_of(y)[1:]) if single else y


def attention(node: AtenNode) -> Result:
    """Return softmax(scale q kᵀ + mask) v of heads, which PyTorch has before positions; and no logarithms of sums."""
    q, k, v = node["query"], node["key"], node["value"]
    fused = node.op_type in FUSED
    mask, causal, scale = node.get("attn_mask", node.get("attn_bias")), bool(node.get("is_causal")), node.get("scale")
    if float(node.get("dropout_p", 0)) or len(shape_of(q)) < 3:
        raise node.refuse(f"dropout {node.get('dropout_p')} of rank {len(shape_of(q))}", "0, and rank 3 or more")
    lead, m, s = shape_of(q)[:-3], shape_of(q)[-2], shape_of(k)[-2]
    if lead != shape_of(k)[:-3] or (shape_of(q)[-3] != shape_of(k)[-3] and not (fused or node.get("enable_gqa"))):
        raise node.refuse(f"queries {list(shape_of(q))} beside keys {list(shape_of(k))}", "as many heads")
    if causal and m != s:  # PyTorch's begins at the first key, ours ends at the last
        mask, causal = np.tril(np.ones((m, s), np.bool_)), False
    batch = math.prod(lead)
    heads_last = [node.transpose(node.reshape(x, (batch, *shape_of(x)[-3:])), (0, 2, 1, 3)) for x in (q, k, v)]
    seen = None
    if mask is not None:
        if len(lead) > 1 and len(shape_of(mask)) > 3:
            raise node.refuse(f"a mask {list(shape_of(mask))}", "rank up to 3 beside more than one dim of batches")
        shape = shape_of(mask)
        if not lead and len(shape) == 4 and shape[0] != 1:
            raise node.refuse(f"a mask {list(shape)}", "one without a batch")
        mask = node.reshape(mask, (*[1] * (4 - len(shape)), *shape))
        if dtype_of(mask).kind == "b":
            mask, seen = None, mask
        elif dtype_of(mask) is not dtype_of(q):
            mask = node.cast(mask, dtype_of(q))
    how = {"causal": causal, "scale": 0.0 if scale is None else float(scale)}
    y = node.emit("attention", *heads_last, mask, None, seen, **how)
    y = node.reshape(node.transpose(y, (0, 2, 1, 3)), (*shape_of(q)[:-1], shape_of(v)[-1]))
    return [y] if fused else y


def mv(node: AtenNode) -> Result:
    """Multiply a matrix and a vector."""
    return multiply(node, node.x, node["vec"])


def addmv(node: AtenNode) -> Result:
    """Return beta c + alpha a x."""
    a = node["mat"]
    c = node.expand(node.x, shape_of(a)[:1])
    return node.emit("gemv", a, node["vec"], c, alpha=float(node.get("alpha", 1)), beta=float(node.get("beta", 1)))


def dot(node: AtenNode) -> Result:
    """Multiply two vectors."""
    return node.emit("dot", node.x, node["tensor"])


NODES: dict[str, Handler] = {
    **dict.fromkeys(FUSED, attention),
    "addmm": addmm,
    "addmv": addmv,
    "baddbmm": baddbmm,
    "bmm": lambda node: multiply(node, node.x, node["mat2"]),
    "conv1d": convolution,
    "conv2d": convolution,
    "conv3d": convolution,
    "convolution": convolution,
    "dot": dot,
    "linear": linear,
    "matmul": matmul,
    "mm": mm,
    "mv": mv,
    "scaled_dot_product_attention": attention,
}
