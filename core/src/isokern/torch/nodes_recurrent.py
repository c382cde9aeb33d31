"""Recurrent layers: PyTorch's gates in our order, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

from .node import AtenNode, Handler, Operand, Result, shape_of

ORDER = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn": (0,)}  # where our gates are among PyTorch's


def _gates(node: AtenNode, kind: str, w: Operand) -> Operand:
    """Return weights or biases with their gates in our order, and a dim in front for the direction."""
    order = ORDER[kind]
    h = shape_of(w)[0] // len(order)
    parts = [node.emit("slice", w, starts=(n * h,), ends=((n + 1) * h,), axes=(0,)) for n in order]
    joined = w if len(parts) == 1 else node.emit("concat", *parts, axis=0)
    return node.reshape(joined, (1, *shape_of(w)))


def _both(node: AtenNode, parts: Sequence[Operand]) -> Operand:
    return parts[0] if len(parts) == 1 else node.emit("concat", *parts, axis=0)


def recurrent(kind: str, activation: str | None = None) -> Handler:
    """Return the handler of a stack of layers, of one direction or two."""

    def handle(node: AtenNode) -> Result:
        x, params = node["input"], list(node["params"])
        states = list(node["hx"]) if kind == "lstm" else [node["hx"]]
        if node.get("train") and float(node.get("dropout", 0)):
            raise node.refuse("dropout", "model.eval()")
        single = len(shape_of(x)) == 2
        if single:
            raise node.refuse("a sequence without a batch", "rank 3")
        if kind == "lstm" and shape_of(states[0]) != shape_of(states[1]):
            raise node.refuse("a projection", "none")
        x = node.transpose(x, (1, 0, 2)) if node["batch_first"] else x
        n, each = 2 if node["bidirectional"] else 1, 4 if node["has_biases"] else 2
        last: list[list[Operand]] = [[] for _ in states]
        for layer in range(int(node["num_layers"])):
            groups = [params[(layer * n + d) * each : (layer * n + d + 1) * each] for d in range(n)]
            w, r = (_both(node, [_gates(node, kind, g[i]) for g in groups]) for i in (0, 1))
            bias = None
            if each == 4:
                halves = [[_gates(node, kind, g[i]) for i in (2, 3)] for g in groups]
                bias = _both(node, [node.emit("concat", *pair, axis=1) for pair in halves])
            own = (slice_states(node, s, layer * n, n) for s in states)
            how: dict[str, object] = {"direction": "bidirectional" if n == 2 else "forward"}
            if kind == "gru":
                how["linear_before_reset"] = True
            if activation is not None:
                how["activation"] = activation
            y, *ends = node.emit_all(kind, x, w, r, bias, None, *own, **how)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
            t, _, b, h = shape_of(y)
            x = node.reshape(node.transpose(y, (0, 2, 1, 3)), (t, b, n * h))
        x = node.transpose(x, (1, 0, 2)) if node["batch_first"] else x
        return [x, *(_both(node, kept) for kept in last)]

    return handle


def slice_states(node: AtenNode, state: Operand, first: int, count: int) -> Operand:
    """Return the states of one layer."""
    if shape_of(state)[0] == count:
        return state
    return node.emit("slice", state, starts=(first,), ends=(first + count,), axes=(0,))


NODES: dict[str, Handler] = {
    "gru": recurrent("gru"),
    "lstm": recurrent("lstm"),
    "rnn_relu": recurrent("rnn", "relu"),
    "rnn_tanh": recurrent("rnn", "tanh"),
}
