"""fuse_epilogue: merge a product with the operators that apply to its result alone.

They are a bias, a sum with another tensor, and an activation.

`linear` and `matmul` of any rank become `gemm`, with the other tensor as its c; a `gemm` whose epilogue is incomplete
may take more, and a factor of the product is its alpha. `matmul_transposed`, whose weights have a type of their own,
becomes `linear_mixed`, and so does a `linear` of a vector, for which gemm has no row. Convolutions stay, `conv2d` with
the other tensor as its residual. The values between the operators are then in the compute type, and never in memory.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..dtypes import ACTIVATIONS
from ..graph.ir import Graph, Op, Value
from ..ops import find
from ..rewriting.rewriter import Rewriter, State

CONVOLUTIONS = (
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"
)  # fmt: skip


@dataclass
class _Chain:
    """A product and the operators after it that go into its epilogue, in order.

    `kind` is the operator that they become.
    """

    kind: str
    ops: list[Op]
    bias: Value | None
    added: Value | None = None
    activation: str = "none"
    alpha: float = 1.0

    @property
    def last(self) -> Op:
        return self.ops[-1]

    @property
    def result(self) -> Value:
        return self.last.outputs[0]


@dataclass
class _Found:
    by_last: dict[Op, _Chain] = field(default_factory=dict)
    inner: set[Op] = field(default_factory=set)


def run(state: State) -> State:
    """Return the graph with one operator for each product and its epilogue."""
    found = _chains(state.graph)
    if not found.by_last:
        return state
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in found.by_last:
            _emit(rewriter, found.by_last[op])
        elif op not in found.inner:
            rewriter.copy(op)
    return rewriter.finish()


def _chains(graph: Graph) -> _Found:
    """Find the chains of a graph.

    Of two products that are added, the later one takes the sum, since the other's result is there by then.
    """
    found = _Found()
    for op in reversed(graph.ops):
        kind = _with_epilogue(op)
        chain = None if kind is None else _grow(graph, op, kind, found.inner)
        if chain is not None and len(chain.ops) > 1:
            found.by_last[chain.last] = chain
            found.inner |= set(chain.ops)
    return found


def _with_epilogue(op: Op) -> str | None:
    """Return the operator that a product becomes with an epilogue.

    None for an operator that is not a product, or whose epilogue is complete.
    """
    y = op.outputs[0].spec
    if op.constraints:
        return None
    if op.kind in ("gemm", "linear_mixed", *CONVOLUTIONS):
        room = op.kind != "conv2d" or len(op.inputs) < 4 or op.inputs[3] is None
        return op.kind if room and op.attrs["activation"] == "none" else None
    if op.kind == "matmul":
        return "gemm" if y.dtype.kind == "f" else None  # gemm has no integers
    if op.kind == "linear":
        return "gemm" if y.ndim > 1 else "linear_mixed" if y.dtype in ACTIVATIONS else None
    return "linear_mixed" if op.kind == "matmul_transposed" else None


def _grow(graph: Graph, product: Op, kind: str, taken: set[Op]) -> _Chain:
    bias, added = [*product.inputs[2:], None, None][:2]
    chain = _Chain(kind, [product], bias, added)
    after = _only_user(graph, chain, taken)
    while after is not None and _join(chain, after):
        chain.ops.append(after)
        after = _only_user(graph, chain, taken)
    if after is not None and after.kind in _activations(kind):
        chain.activation = after.kind
        chain.ops.append(after)
    return chain


def _join(chain: _Chain, after: Op) -> bool:
    """Add an operator's other operand to the chain, as the bias or as the added tensor.

    Return whether it could be added: the operator must fit, and the chain must lack that operand.
    """
    shape = chain.result.spec.shape
    if after.kind == "scale" and chain.kind == "gemm" and chain.bias is None and chain.added is None:
        chain.alpha *= float(after.attrs["value"])
        return math.isfinite(chain.alpha)
    others = [v for v in after.inputs if v is not None and v is not chain.result]
    if len(others) != 1 or after.outputs[0].spec.shape != shape:
        return False
    (other,) = others
    axis = 1 if chain.kind in CONVOLUTIONS else len(shape) - 1
    if after.kind == "bias_add":
        is_bias = after.inputs[0] is chain.result and (after.attrs["axis"] - axis) % len(shape) == 0
    elif after.kind == "add":
        whole = other.spec.shape == shape
        # along the batch
        repeated = chain.kind == "gemm" and other.spec.ndim > 1 and other.spec.shape[-2:] == shape[-2:]
        has_room = chain.added is None and (chain.kind == "conv2d" or chain.kind not in CONVOLUTIONS)
        if (whole or repeated) and has_room:
            chain.added = other
            return True
        is_bias = _runs_along(other.spec.shape, shape, axis)
    else:
        return False
    if is_bias and chain.bias is None:
        chain.bias = other
        return True
    return False


def _runs_along(given: Sequence[int], shape: Sequence[int], axis: int) -> bool:
    """Return whether an operand that broadcasts to a shape has one element for each index of an axis."""
    at = axis - (len(shape) - len(given))
    return at >= 0 and given[at] == shape[axis] and math.prod(given) == shape[axis]


def _only_user(graph: Graph, chain: _Chain, taken: set[Op]) -> Op | None:
    """Return the one operator that reads a chain's result, if it may join."""
    value = chain.result
    users = set(value.users)
    if len(users) != 1 or value in graph.outputs:
        return None
    (user,) = users
    same = user.outputs[0].spec.dtype is value.spec.dtype
    return user if same and not user.constraints and user not in taken else None


def _activations(kind: str) -> list[str]:
    """Return the operators that can be an epilogue's activation."""
    choices = next(a.choices for a in find(kind).attrs.attrs if a.name == "activation")
    return [c for c in choices if c != "none"]


def _emit(rewriter: Rewriter, chain: _Chain) -> None:
    product = chain.ops[0]
    inputs = [*product.inputs[:2], chain.bias, chain.added]
    while inputs[-1] is None:
        inputs.pop()
    given = rewriter.values(inputs)
    if len(given) > 2 and given[2] is not None and given[2].spec.ndim > 1:  # a bias that broadcasts
        (given[2],) = rewriter.builder.emit("reshape", [given[2]], {"shape": (given[2].spec.numel,)})
    (made,) = rewriter.builder.emit(
        chain.kind,
        given,
        {**_attrs(chain), "activation": chain.activation},
        name=product.name or chain.last.name,
        outputs=[v.spec for v in chain.last.outputs],
    )
    rewriter.put(chain.result, made)


def _attrs(chain: _Chain) -> Mapping[str, Any]:
    """Return the attributes of the operator that a chain becomes, without its activation."""
    product = chain.ops[0]
    if product.kind == "matmul_transposed":
        return {"lhs_quantization": product.attrs["lhs_quantization"]}
    if chain.kind == "linear_mixed":
        return product.attrs
    attrs = dict(product.attrs)
    if product.kind == "linear":
        attrs = {"trans_b": True}
    if product.kind == "gemm" and chain.added is not [*product.inputs, None, None][3]:
        attrs["beta"] = 1.0  # there was no c before
    if chain.alpha != 1:
        attrs["alpha"] = chain.alpha * attrs.get("alpha", 1.0)
    return attrs
