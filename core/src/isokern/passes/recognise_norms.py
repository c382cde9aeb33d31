"""recognise_norms: put layer_norm or rms_norm where small operators compute one over the last dim.

A norm divides n by sqrt(mean(n²) + eps), in any of the ways in which that is written: n may be squared, raised to 2 or
multiplied by itself, and the root may be divided by, or its reciprocal multiplied with. Where n is x less its mean, it
is a layer_norm of x, otherwise an rms_norm of n. A product with a vector and a sum with one behind it are its weight
and its bias.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..dtypes import FLOATS
from ..graph.ir import Op, Value, specs_of
from ..ops import find
from ..rewriting.rewriter import Rewriter, State


@dataclass
class _Norm:
    """A norm of `x`, and the operators that compute it."""

    kind: str
    x: Value
    eps: float
    ops: list[Op]
    weight: Value | None = None
    bias: Value | None = None

    @property
    def last(self) -> Op:
        return self.ops[-1]


def run(state: State) -> State:
    """Return the graph with one operator for each norm."""
    if not any(op.kind == "reduce_mean" for op in state.graph.ops):
        return state
    rewriter = Rewriter(state)
    found: dict[Op, _Norm] = {}
    inner: set[Op] = set()
    for op in state.graph.ops:
        norm = _find(rewriter, op) if op.kind in ("div", "mul") and op not in inner else None
        if norm is not None and _is_closed(state, norm):
            norm = _extend(rewriter, state, norm)
            if _legal(state, norm):
                found[norm.last] = norm
                inner |= set(norm.ops[:-1])
    if not found:
        return state
    for op in state.graph.ops:
        if op in found:
            _emit(rewriter, found[op])
        elif op not in inner:
            rewriter.copy(op)
    return rewriter.finish()


def _find(rewriter: Rewriter, op: Op) -> _Norm | None:
    """Return the norm that ends in an operator: n / root, or n · reciprocal root."""
    a, b = op.inputs[:2]
    for n, root in [(a, b)] if op.kind == "div" else [(a, b), (b, a)]:
        if n is None or root is None or n.spec.dtype not in FLOATS or n.spec != op.outputs[0].spec or op.constraints:
            continue
        parts = _mean_square(rewriter, n, root, op.kind == "mul")
        if parts is None:
            continue
        eps, ops = parts
        below = _find_mean(n)
        if below is not None:
            x, before = below
            return _Norm("layer_norm", x, eps, [*before, *ops, op])
        return _Norm("rms_norm", n, eps, [*ops, op])
    return None


def _mean_square(rewriter: Rewriter, n: Value, root: Value, reciprocal: bool) -> tuple[float, list[Op]] | None:
    """Return eps, and the operators that make sqrt(mean(n²) + eps), or its reciprocal, of n."""
    ops: list[Op] = []

    def step(value: Value | None, *kinds: str) -> Op | None:
        op = None if value is None else value.producer
        if op is None or op.kind not in kinds or op.constraints:
            return None
        ops.append(op)
        return op

    op = step(root, "rsqrt", "reciprocal", "div", "pow_scalar") if reciprocal else step(root, "sqrt", "pow_scalar")
    if op is None:
        return None
    if op.kind == "pow_scalar" and op.attrs["value"] != (-0.5 if reciprocal else 0.5):
        return None
    if op.kind == "div":  # 1 / sqrt
        one = rewriter.array(op.inputs[0])
        if one is None or one.size != 1 or one.reshape(())[()] != 1:
            return None
        op = step(op.inputs[1], "sqrt")
    elif op.kind == "reciprocal":
        op = step(op.inputs[0], "sqrt")
    if op is None:
        return None
    total = step(op.inputs[0], "add_scalar", "add")
    if total is None:
        return None
    if total.kind == "add_scalar":
        eps, mean = float(total.attrs["value"]), total.inputs[0]
    else:
        known = [rewriter.array(v) for v in total.inputs]
        at = next((i for i, k in enumerate(known) if k is not None and k.size == 1), None)
        if at is None:
            return None
        eps, mean = float(known[at].reshape(())[()]), total.inputs[1 - at]  # type: ignore[union-attr]
    averaged = step(mean, "reduce_mean")
    if averaged is None or eps < 0 or not _over_last(averaged):
        return None
    square = step(averaged.inputs[0], "square", "pow_scalar", "mul", "pow")
    if square is None or any(v is not n for v in square.inputs[: 2 if square.kind == "mul" else 1]):
        return None
    if square.kind == "pow_scalar" and square.attrs["value"] != 2:
        return None
    if square.kind == "pow":
        power = rewriter.array(square.inputs[1])
        if power is None or power.size != 1 or power.reshape(())[()] != 2:
            return None
    return eps, ops[::-1]


def _over_last(op: Op) -> bool:
    """Return whether a reduction is over the last dim alone, which stays as 1."""
    x = op.inputs[0]
    assert x is not None
    axes = {a % x.spec.ndim for a in op.attrs["axes"]} if x.spec.ndim else set()
    return axes == {x.spec.ndim - 1} and bool(op.attrs["keepdims"])


def _find_mean(n: Value) -> tuple[Value, list[Op]] | None:
    """Return x and the operators of n = x - mean(x)."""
    op = n.producer
    if op is None or op.kind != "sub" or op.constraints:
        return None
    x, mean = op.inputs[:2]
    below = None if mean is None else mean.producer
    if x is None or below is None or below.kind != "reduce_mean" or below.inputs[0] is not x or below.constraints:
        return None
    return (x, [below, op]) if _over_last(below) and x.spec.shape == n.spec.shape else None


def _is_closed(state: State, norm: _Norm) -> bool:
    """Return whether nothing but the norm reads what its operators make, apart from its result."""
    members = set(norm.ops)
    values = [v for op in norm.ops[:-1] for v in op.outputs]
    return all(v not in state.graph.outputs and all(u in members for u in v.users) for v in values)


def _extend(rewriter: Rewriter, state: State, norm: _Norm) -> _Norm:
    """Take the weight and the bias behind a norm, as far as they are vectors over the last dim."""
    for kinds in (("mul",), ("add", "bias_add")) if norm.kind == "layer_norm" else (("mul",),):
        y = norm.last.outputs[0]
        user = y.users[0] if len(y.users) == 1 and y not in state.graph.outputs else None
        if user is None or user.kind not in kinds or user.constraints or user.outputs[0].spec != y.spec:
            continue
        others = [v for v in user.inputs if v is not None and v is not y]
        if len(others) != 1 or (user.kind == "bias_add" and user.attrs["axis"] % y.spec.ndim != y.spec.ndim - 1):
            continue
        (other,) = others
        d = y.spec.shape[-1]
        if other.spec.dtype is not y.spec.dtype or other.spec.numel != d or other.spec.shape[-1:] != (d,):
            continue
        if other.producer is not None and other.spec.shape != (d,):
            continue
        norm.ops.append(user)
        if user.kind == "mul":
            norm.weight = other
        else:
            norm.bias = other
    return norm


def _legal(state: State, norm: _Norm) -> bool:
    if state.target is None:
        return True
    operator = find(norm.kind)
    vector = None if norm.weight is None else norm.weight.spec.reshape((norm.weight.spec.numel,))
    specs = [*specs_of([norm.x]), vector]
    if norm.kind == "layer_norm":
        specs.append(None if norm.bias is None else norm.bias.spec.reshape((norm.bias.spec.numel,)))
    y = norm.last.outputs[0].spec
    return state.target.why_not(operator, specs, [y], operator.attrs.check(norm.kind, {"eps": norm.eps})) is None


def _emit(rewriter: Rewriter, norm: _Norm) -> None:
    inputs = [rewriter.value(norm.x), _vector(rewriter, norm.weight), _vector(rewriter, norm.bias)]
    while inputs[-1] is None:
        inputs.pop()
    y = norm.last.outputs[0]
    attrs = {"eps": norm.eps}
    (made,) = rewriter.builder.emit(norm.kind, inputs, attrs, name=norm.last.name, outputs=[y.spec])
    rewriter.put(y, made)


def _vector(rewriter: Rewriter, value: Value | None) -> Value | None:
    """Return a weight as [d]."""
    if value is None or value.spec.ndim == 1:
        return None if value is None else rewriter.value(value)
    (made,) = rewriter.builder.emit("reshape", [rewriter.value(value)], {"shape": (value.spec.numel,)})
    return made
