"""Attention as one operator, where it means what ONNX means; the rest is left to the body of ONNX's function."""

from __future__ import annotations

from ..dtypes import BOOL
from .library import proto
from .node import Handler, Node, Operand, Output, dtype_of, shape_of

PRECISIONS = (0, proto.TensorProto.FLOAT)  # of the softmax: not given, or the one that we compute in


def attention(node: Node) -> Output | list[Output]:
    """Return softmax(scale q kᵀ + mask) v of heads, and the keys and values that were seen."""
    attrs = node.attrs
    if (len(node.wanted) > 3 and node.wanted[3]) or node.has(6):
        raise node.refuse("the scores as a result, or lengths", "neither")
    if attrs.get("softmax_precision", 0) not in PRECISIONS:
        raise node.refuse("a softmax that rounds otherwise", "F32")
    causal, positions = bool(attrs["is_causal"]), 2 if node.rank == 4 else 1
    if causal and node.shape()[positions] != node.shape(1)[positions]:
        raise node.refuse("causal attention that begins at the first key", "as many queries as new keys")
    left, right = attrs.get("left_window_size", -1), attrs.get("right_window_size", -1)
    if (left >= 0 and not causal) or right > 0 or (right == 0 and not causal):
        raise node.refuse(f"a window of {left} and {right}", "a causal one")
    past = node.shape(4)[2] if node.has(4) else 0
    keys = node.shape(1)[positions] + past
    if node.has(3) and node.shape(3)[-1:] != (keys,):
        raise node.refuse(f"a mask {list(node.shape(3))} of {keys} keys", "one that covers all keys")
    q, k, v = (_heads(node, n, name) for n, name in enumerate(("q_num_heads", "kv_num_heads", "kv_num_heads")))
    if node.has(4) and node.has(5):
        k, v = (node.emit("concat", node.transpose(node.x(n), (0, 2, 1, 3)), x, axis=1) for n, x in ((4, k), (5, v)))
    mask, seen = _masks(node)
    how = {
        "causal": causal,
        "window": max(0, left + 1),
        "scale": float(attrs.get("scale", 0.0)),
        "softcap": float(attrs.get("softcap", 0.0)),
    }
    y = node.emit("attention", q, k, v, mask, None, seen, **how)
    if node.rank == 3:
        y = node.reshape(y, (*shape_of(y)[:2], shape_of(y)[2] * shape_of(y)[3]))
    else:
        y = node.transpose(y, (0, 2, 1, 3))
    present = [
        node.transpose(x, (0, 2, 1, 3)) if wanted else None for x, wanted in zip((k, v), node.wanted[1:3], strict=False)
    ]
    return [y, *present]


def _heads(node: Node, n: int, name: str) -> Operand:
    """Return an operand as [batch, position, head, element]."""
    x, shape = node.x(n), node.shape(n)
    if len(shape) == 4:
        return node.transpose(x, (0, 2, 1, 3))
    heads = int(node.attrs.get(name, 0))
    if len(shape) != 3 or heads < 1 or shape[2] % heads:
        raise node.refuse(f"{name} {heads} of {list(shape)}", "rank 4, or 3 and a number of heads")
    return node.reshape(x, (*shape[:2], heads, shape[2] // heads))


def _masks(node: Node) -> tuple[Operand | None, Operand | None]:
    """Return the mask that is added, or the one of keys that may be seen."""
    mask = node.tensor(3)
    if mask is None:
        return None, None
    shape = shape_of(mask)
    mask = node.reshape(mask, (*[1] * (4 - len(shape)), *shape))
    return (None, mask) if dtype_of(mask) is BOOL else (mask, None)


NODES: dict[str, Handler] = {"Attention": attention}
