"""PyTorch's products, attention and normalisations, made of our operators."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch_rows import (
    ANY,
    FLOATS,
    INF,
    NAN,
    Elsewhere,
    Row,
    Sample,
    along,
    ik,
    lift,
    wide,
)


def added(name: str, rank: int) -> Callable[..., Any]:
    """Return addmm and the like: PyTorch has c first, which broadcasts there and has y's shape here."""

    def call(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
        shape = {1: lambda: a.shape[:1], 2: lambda: (a.shape[-2], b.shape[-1]), 3: lambda: (*a.shape[:2], b.shape[-1])}
        return getattr(ik, name)(a, b, ik.broadcast_to(c, shape=shape[rank]()), alpha=alpha, beta=beta)

    return call


def addr(c: Any, a: Any, b: Any, *, beta: float = 1, alpha: float = 1) -> Any:
    return ik.ger(a, b, ik.broadcast_to(c, shape=(*a.shape, *b.shape)), alpha=alpha, beta=beta)


def product(a: Any, b: Any) -> Any:
    """PyTorch's matmul takes vectors, as our function of this name does."""
    return ik.matmul(a, b)


def linear(x: Any, w: Any, bias: Any = None) -> Any:
    if w.ndim == 1:
        return ik.reshape(
            linear(x, ik.reshape(w, shape=(1, -1)), bias if bias is None else bias[None]), shape=x.shape[:-1]
        )
    return ik.linear(x, w, bias)


def contract(maps: str, tensors: list[Any], shape: tuple[int, ...]) -> Any:
    """Return the sums of products over the letters that the output lacks."""
    body, like = " * ".join(f"x{i}" for i in range(len(tensors))), tensors[0].dtype
    return ik.generic(ik.fill(shape=shape, dtype=like), tensors, maps=maps, body=body, combine="sum", dtype=like)


def bilinear(a: Any, b: Any, w: Any, bias: Any = None) -> Any:
    flat = [ik.reshape(x, shape=(-1, x.shape[-1])) for x in (a, b)]
    y = contract("ni,nj,oij->no", [*flat, w], (flat[0].shape[0], w.shape[0]))
    return ik.reshape(y if bias is None else ik.bias_add(y, bias), shape=(*a.shape[:-1], w.shape[0]))


def einsum(*given: Any) -> Any:
    equation, tensors = (given[1], given[0]) if isinstance(given[1], str) else (given[0], given[1:])
    inputs, _, output = equation.replace(" ", "").partition("->")
    letters = inputs.split(",")
    if "." in equation or any(len(set(part)) < len(part) for part in letters) or any(c.isupper() for c in equation):
        raise Elsewhere("ellipses, diagonals and capital letters")
    if "->" not in equation:
        output = "".join(sorted(c for c in set(inputs) - {","} if inputs.count(c) == 1))
    if len(tensors) == 1 and len(output) < len(set(letters[0])):
        tensors = [wide(tensors[0])]  # PyTorch has I64 for sums of one tensor of integers alone
    sizes = {c: n for part, t in zip(letters, tensors, strict=True) for c, n in zip(part, t.shape, strict=True)}
    maps, shape = f"{inputs}->{output}", tuple(sizes[c] for c in output)
    if set(sizes) == set(output):
        body = " * ".join(f"x{i}" for i in range(len(tensors)))
        return ik.generic(None, list(tensors), maps=maps, body=body, dtype=tensors[0].dtype)
    return contract(maps, list(tensors), shape)


def kron(a: Any, b: Any) -> Any:
    return ik.kron(a, b)


def cross(a: Any, b: Any, dim: Any = None) -> Any:
    dim = next(i for i, n in enumerate(a.shape) if n == 3) if dim is None else dim
    return crossed(a, b, dim)


def crossed(a: Any, b: Any, dim: int = -1) -> Any:
    shape = np.broadcast_shapes(a.shape, b.shape)
    axes = [*(i for i in range(len(shape)) if i != dim % len(shape)), dim % len(shape)]
    y = ik.cross(*(ik.transpose(ik.broadcast_to(x, shape=shape), axes=axes) for x in (a, b)))
    return ik.transpose(y, axes=[int(i) for i in np.argsort(axes)])


def vecdot(a: Any, b: Any, *, dim: int = -1) -> Any:
    shape = np.broadcast_shapes(a.shape, b.shape)
    axes = [*(i for i in range(len(shape)) if i != dim % len(shape)), dim % len(shape)]
    return ik.vecdot(*(ik.transpose(ik.broadcast_to(x, shape=shape), axes=axes) for x in (a, b)))


def cdist(a: Any, b: Any, p: float = 2.0, compute_mode: str = "") -> Any:
    if p not in (1, 2):
        raise Elsewhere("other norms than 1 and 2")
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    return ik.cdist(*(ik.broadcast_to(x, shape=(*lead, *x.shape[-2:])) for x in (a, b)), p=int(p))


def matrix_power(x: Any, n: int) -> Any:
    if n < 0:
        raise Elsewhere("powers of the inverse")
    return ik.matrix_power(x, n=n)


def vander(x: Any, N: int | None = None) -> Any:
    """PyTorch's linalg.vander rises, and takes rows of vectors."""
    if x.ndim != 1:
        raise Elsewhere("batches of vectors")
    return ik.vander(x, columns=-1 if N is None else N, increasing=True)


def inner(a: Any, b: Any) -> Any:
    if a.ndim == 0 or b.ndim == 0:
        return ik.mul(a, b)
    return ik.inner(a, b)


def attention(
    q: Any,
    k: Any,
    v: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """PyTorch has heads before positions; its causal mask begins at the first key, ours ends at the last."""
    if dropout_p:
        raise Elsewhere("random dropping")
    lead = np.broadcast_shapes(*(x.shape[:-2] for x in (q, k, v))) if not enable_gqa else None
    given = [x if lead is None else ik.broadcast_to(x, shape=(*lead, *x.shape[-2:])) for x in (q, k, v)]
    given = [ik.reshape(x, shape=(-1, *(x.shape[-3:] if x.ndim > 2 else (1, *x.shape)))) for x in given]
    m, s = q.shape[-2], k.shape[-2]
    if is_causal and m != s:
        attn_mask = ik.tril(ik.fill(value=1, shape=(m, s), dtype="I32"))
        attn_mask, is_causal = ik.cast(attn_mask, dtype="BOOL"), False
    if attn_mask is not None and attn_mask.dtype.name == "BOOL":
        none = ik.fill(value=-math.inf, shape=attn_mask.shape, dtype=q.dtype)
        attn_mask = ik.where(attn_mask, ik.fill(shape=attn_mask.shape, dtype=q.dtype), none)
    if attn_mask is not None and attn_mask.ndim == 3 and q.ndim == 3:
        attn_mask = attn_mask[None]
    heads_last = [ik.transpose(x, axes=(0, 2, 1, 3)) for x in given]
    y = ik.attention(*heads_last, attn_mask, causal=is_causal, scale=scale or 0.0)
    return ik.reshape(ik.transpose(y, axes=(0, 2, 1, 3)), shape=(*(lead or q.shape[:-2]), m, v.shape[-1]))


def embedding(table: Any, indices: Any, padding_idx: Any = None, max_norm: Any = None, *_: Any, **more: Any) -> Any:
    if max_norm is not None:
        raise Elsewhere("rows made shorter")
    return ik.embedding(table, indices, dtype=table.dtype)


# Normalisation


def known(eps: float) -> float:
    if eps < 0:
        raise Elsewhere("eps below 0")
    return eps


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    known(eps)
    rows = ik.reshape(x, shape=(*x.shape[: x.ndim - len(shape)], math.prod(shape)))
    flat = [None if w is None else ik.reshape(w, shape=(-1,)) for w in (weight, bias)]
    return ik.reshape(ik.layer_norm(rows, *flat, eps=eps), shape=x.shape)


def native_layer_norm(x: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    return layer_norm(x, shape, weight, bias, eps), ANY, ANY


def rms_norm(x: Any, shape: Any, weight: Any = None, eps: float | None = None) -> Any:
    """PyTorch's default eps is that of the type."""
    rows = ik.reshape(x, shape=(*x.shape[: x.ndim - len(shape)], math.prod(shape)))
    eps = float(np.finfo(x.dtype.numpy).eps) if eps is None else known(eps)
    return ik.reshape(
        ik.rms_norm(rows, None if weight is None else ik.reshape(weight, shape=(-1,)), eps=eps), shape=x.shape
    )


def group_norm(x: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return ik.group_norm(x, weight, bias, groups=num_groups, eps=known(eps))


def instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if not use_input_stats:
        return ik.batch_norm(x, running_mean, running_var, weight, bias, eps=eps)
    return ik.instance_norm(x, weight, bias, eps=eps)


def batch_norm(
    x: Any,
    mean: Any,
    var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    if training:
        raise Elsewhere("statistics of the batch")
    if x.ndim < 2:
        raise Elsewhere("a vector")
    return ik.batch_norm(x, mean, var, weight, bias, eps=eps)


def local_response_norm(x: Any, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Any:
    """PyTorch's window of an even size begins a channel earlier: it is ours of the channels in the reverse order."""
    y = ik.local_response_norm(ik.flip(x, axes=(1,)), size=size, alpha=alpha, beta=beta, bias=k)
    return ik.flip(y, axes=(1,))


def normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    if p not in (1, 2):
        raise Elsewhere("other norms than 1 and 2")
    return lift(ik.lp_normalize, x, p=int(p), axis=dim, eps=eps)


def soft(name: str) -> Callable[..., Any]:
    def call(x: Any, dim: int, dtype: str | None = None) -> Any:
        return lift(getattr(ik, name), x if dtype is None else ik.cast(x, dtype=dtype), axis=dim)

    return call


def flat_rows(*more: Any) -> Callable[[torch.dtype], list[Sample]]:
    """Return samples of rows without a spread, or of zeros, or very large."""
    rows = [[0, 0, 0], [2, 2, 2], [1e-20, -1e-20, 0], [1e18, 0, 1], [INF, 1, 2], [NAN, 1, 2]]
    return lambda dtype: [
        ((torch.tensor(rows, dtype=dtype), *more), {"eps": eps} if eps else {}) for eps in (None, 1e-3)
    ]


def masked(dtype: torch.dtype) -> list[Sample]:
    """Return samples with more keys than queries and fewer, and of a query that sees no key."""
    q, k, v = (torch.rand(2, 3, n, 8, dtype=dtype) for n in (4, 6, 6))
    truths = torch.tensor([[True] * 6, [False] * 6, [True, False] * 3, [False] * 5 + [True]])
    return [
        ((q, k, v), {"attn_mask": truths}),
        ((q, k, v), {"attn_mask": torch.zeros(4, 6, dtype=dtype).masked_fill(~truths, -INF)}),
        ((q, k, v), {"is_causal": True}),
        ((k, q, q), {"is_causal": True}),
        ((q, k, v), {"scale": 0.3}),
    ]


ROWS = [
    Row("addmm", "addmm", added("addmm", 2)),
    Row("addmm.decomposed", "addmm", added("addmm", 2)),
    Row("baddbmm", "baddbmm", added("baddbmm", 3)),
    Row("addbmm", "addbmm", added("addbmm", 2)),
    Row(
        "addmv",
        "gemv",
        lambda c, a, x, *, beta=1, alpha=1: ik.gemv(
            a, x, ik.broadcast_to(c, shape=a.shape[:1]), alpha=alpha, beta=beta
        ),
    ),
    Row("addr", "ger", addr),
    Row("mm", "matmul", product),
    Row("bmm", "bmm", lambda a, b: ik.bmm(a, b)),
    Row("mv", "gemv", lambda a, x: ik.gemv(a, x)),
    Row("matmul", "matmul", product),
    Row("__rmatmul__", "matmul", lambda a, b: ik.matmul(b, a)),
    Row("dot", "dot", lambda a, b: ik.dot(a, b)),
    Row("vdot", "dot", lambda a, b: ik.dot(a, b)),
    Row("inner", "inner", inner),
    Row("outer", "outer", lambda a, b: ik.outer(a, b)),
    Row("kron", "kron", kron),
    Row("cross", "cross", cross),
    Row("linalg.cross", "cross", crossed),
    Row("linalg.vecdot", "vecdot", vecdot),
    Row("linalg.matrix_power", "matrix_power", matrix_power, share=0.4),
    Row("linalg.vander", "vander", vander, share=0.3),
    Row("einsum", "generic", einsum, share=0.4),
    Row("cdist", "cdist", cdist, share=0.2),
    Row("nn.functional.linear", "linear", linear),
    Row("nn.functional.bilinear", "generic", bilinear, dtypes=FLOATS),
    Row("nn.functional.embedding", "embedding", embedding, share=0.5),
    Row("nn.functional.scaled_dot_product_attention", "attention", attention, share=0.4, slack=10, inputs=masked),
    Row("softmax", "softmax", soft("softmax"), dtypes=FLOATS, inputs=along()),
    Row("softmax.with_dtype", "softmax", soft("softmax")),
    Row("log_softmax", "log_softmax", soft("log_softmax"), inputs=along()),
    Row("log_softmax.with_dtype", "log_softmax", soft("log_softmax")),
    Row("nn.functional.softmin", "softmin", soft("softmin")),
    Row("nn.functional.softmin.with_dtype", "softmin", soft("softmin")),
    Row("nn.functional.layer_norm", "layer_norm", layer_norm, share=0.7, inputs=flat_rows((3,))),
    Row("native_layer_norm", "layer_norm", native_layer_norm, share=0.7),
    Row("nn.functional.rms_norm", "rms_norm", rms_norm, share=0.7, inputs=flat_rows((3,))),
    Row("nn.functional.group_norm", "group_norm", group_norm, share=0.7),
    Row("nn.functional.instance_norm", "instance_norm", instance_norm),
    Row("nn.functional.batch_norm", "batch_norm", batch_norm, share=0.3),
    Row("nn.functional.local_response_norm", "local_response_norm", local_response_norm),
    Row("nn.functional.normalize", "lp_normalize", normalize, share=0.3, inputs=flat_rows()),
]
