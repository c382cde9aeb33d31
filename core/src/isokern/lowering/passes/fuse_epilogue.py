"""fuse_epilogue: a product and what is done to its result alone (a bias, a sum with another tensor, an activation) become one operator.

`linear` and `matmul` of matrices become `gemm`, with the other tensor as its c, and so does a `gemm` whose epilogue has room; `conv2d` stays, with
the other tensor as its residual. What is between them is then held in the compute type, and never in memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...graph.ir import Graph, Op, Value
from ...ops import find
from ..rewrite import Rewriter, State


@dataclass
class _Chain:
    """A product and the operators after it that go into its epilogue, the last one last."""

    ops: list[Op]
    bias: Value | None
    added: Value | None = None
    activation: str = "none"

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
    """The graph with one operator for each product and its epilogue."""
    found = _chains(state.graph)
    rewriter = Rewriter(state)
    for op in state.graph.ops:
        if op in found.by_last:
            _emit(rewriter, found.by_last[op])
        elif op not in found.inner:
            rewriter.copy(op)
    return rewriter.finish()


def _chains(graph: Graph) -> _Found:
    """The later of two products that are added takes the sum, since the other's result is there by then."""
    found = _Found()
    for op in reversed(graph.ops):
        chain = _grown(graph, op, found.inner) if _is_product(op) else None
        if chain is not None and len(chain.ops) > 1:
            found.by_last[chain.last] = chain
            found.inner |= set(chain.ops)
    return found


def _is_product(op: Op) -> bool:
    """Whether the operator has an epilogue that may grow."""
    if op.constraints:
        return False
    if op.kind in ("linear", "matmul"):
        matrices = op.outputs[0].spec.ndim == 2 and all(v is None or v.spec.ndim <= 2 for v in op.inputs)
        return matrices and op.outputs[0].spec.dtype.kind == "f"  # gemm has no integers
    if op.kind == "gemm":
        return bool(op.attrs["activation"] == "none")
    return op.kind == "conv2d" and op.attrs["activation"] == "none" and (len(op.inputs) < 4 or op.inputs[3] is None)


def _grown(graph: Graph, product: Op, taken: set[Op]) -> _Chain:
    bias, added = [*product.inputs[2:], None, None][:2]
    chain = _Chain([product], bias, added)
    axis = 1 if product.kind == "conv2d" else -1
    after = _only_user(graph, chain, taken)
    if after is not None and after.kind == "bias_add" and chain.bias is None:
        rank = product.outputs[0].spec.ndim
        if after.inputs[0] is chain.result and (after.attrs["axis"] - axis) % rank == 0:
            chain.bias = after.inputs[1]
            chain.ops.append(after)
            after = _only_user(graph, chain, taken)
    if after is not None and after.kind == "add" and chain.added is None:
        others = [v for v in after.inputs if v is not chain.result]
        if len(others) == 1 and others[0] is not None and others[0].spec.shape == chain.result.spec.shape:
            chain.added = others[0]
            chain.ops.append(after)
            after = _only_user(graph, chain, taken)
    if after is not None and after.kind in _activations(product):
        chain.activation = after.kind
        chain.ops.append(after)
    return chain


def _only_user(graph: Graph, chain: _Chain, taken: set[Op]) -> Op | None:
    """The one operator that reads what a chain gives, if it may join."""
    value = chain.result
    users = set(value.users)
    if len(users) != 1 or value in graph.outputs:
        return None
    (user,) = users
    same = user.outputs[0].spec.dtype is value.spec.dtype
    return user if same and not user.constraints and user not in taken else None


def _activations(product: Op) -> list[str]:
    """The operators that can be done at the end."""
    choices = next(a.choices for a in find(_kind(product)).attrs.attrs if a.name == "activation")
    return [c for c in choices if c != "none"]


def _kind(product: Op) -> str:
    return "gemm" if product.kind in ("linear", "matmul") else product.kind


def _emit(rewriter: Rewriter, chain: _Chain) -> None:
    product = chain.ops[0]
    inputs = [*product.inputs[:2], chain.bias, chain.added]
    while inputs[-1] is None:
        inputs.pop()
    attrs: Mapping[str, Any] = {"linear": {"trans_b": True}, "matmul": {}}.get(product.kind, product.attrs)
    if product.kind == "gemm" and chain.added is not [*product.inputs, None, None][3]:
        attrs = {**attrs, "beta": 1.0}  # there was no c before
    (made,) = rewriter.builder.emit(
        _kind(product),
        rewriter.values(inputs),
        {**attrs, "activation": chain.activation},
        name=product.name or chain.last.name,
        outputs=[v.spec for v in chain.last.outputs],
    )
    rewriter.put(chain.result, made)
