"""Nodes that are recurrent layers."""

from __future__ import annotations

from .node import Handler, Node, Operand, Output
from .recurrence import is_usual, unroll

USUAL = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


def recurrent(kind: str, states: int) -> Handler:
    """Return the handler of a layer with that many states; `layout` 1 has the batch first."""

    def handle(node: Node) -> list[Output]:
        attrs = node.attrs
        if attrs["direction"] == "foward":  # so ONNX's definition of GRU-1 spells its default
            node.attrs = attrs = {**attrs, "direction": "forward"}
        usual = USUAL[node.op_type]
        directions = 2 if attrs["direction"] == "bidirectional" else 1
        how: dict[str, object] = {"direction": attrs["direction"]}
        if kind == "rnn" and attrs.get("activations"):
            how["activation"] = str(attrs["activations"][0]).lower()
        if kind == "gru":
            how["linear_before_reset"] = bool(attrs.get("linear_before_reset", 0))
        first = bool(attrs.get("layout", 0))
        inputs: list[Operand | None] = [*node.tensors, *[None] * (8 - len(node.inputs))][: 8 if kind == "lstm" else 6]
        if first:
            for n in (0, 5, *([6] if kind == "lstm" else [])):
                x = inputs[n]
                inputs[n] = None if x is None else node.transpose(x, (1, 0, 2))
        if is_usual(node, usual, directions):
            y, *last = node.emit_all(kind, *inputs, **how)
        else:
            y, *last = unroll(node, inputs, usual)
        if not first:
            return [y, *last[:states]]
        return [node.transpose(y, (2, 0, 1, 3)), *(node.transpose(s, (1, 0, 2)) for s in last[:states])]

    return handle


NODES: dict[str, Handler] = {
    "GRU": recurrent("gru", 1),
    "LSTM": recurrent("lstm", 2),
    "RNN": recurrent("rnn", 1),
}
