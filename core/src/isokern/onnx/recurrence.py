"""Recurrent layers whose activations, clip or coupled gates the operators do not have: computed step by step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ..dtypes import I64
from ..importing.products import multiply
from ..status import InvalidArgument
from .node import Node, Operand, dtype_of, shape_of

MAX_STEPS = 2000
Activate = Callable[[Operand], Operand]
GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
# The numbers that an activation takes, alpha and beta, with ONNX's defaults
NUMBERS: dict[str, tuple[float, ...]] = {
    "affine": (1.0, 0.0),
    "elu": (1.0,),
    "hardsigmoid": (0.2, 0.5),
    "leakyrelu": (0.01,),
    "relu": (),
    "scaledtanh": (1.0, 1.0),
    "sigmoid": (),
    "softplus": (),
    "softsign": (),
    "tanh": (),
    "thresholdedrelu": (1.0,),
}


def _activation(node: Node, name: str, numbers: Sequence[float], clips: bool) -> Activate:
    """Return the function of an activation, whose input is clipped if the node says so."""

    def line(x: Operand) -> Operand:
        return node.emit("add_scalar", node.emit("scale", x, value=numbers[0]), value=numbers[1])

    functions: dict[str, Activate] = {
        "affine": line,
        "elu": lambda x: node.emit("elu", x, alpha=numbers[0]),
        "hardsigmoid": lambda x: node.emit("clip", line(x), min=0.0, max=1.0),
        "leakyrelu": lambda x: node.emit("leaky_relu", x, alpha=numbers[0]),
        "scaledtanh": lambda x: node.emit(
            "scale", node.emit("tanh", node.emit("scale", x, value=numbers[1])), value=numbers[0]
        ),
        "thresholdedrelu": lambda x: node.emit("thresholded_relu", x, alpha=numbers[0]),
    }
    limit = float(node.attrs.get("clip", 0.0)) if clips else 0.0

    def activate(x: Operand) -> Operand:
        held = node.emit("clip", x, min=-limit, max=limit) if limit else x
        return functions[name](held) if name in functions else node.emit(name, held)

    return activate


def read_activations(node: Node, usual: Sequence[str], directions: int) -> list[list[Activate]]:
    """Return the activations of each direction; the numbers of `activation_alpha` and `activation_beta` in order."""
    wanted = len(usual) * directions
    names = [str(a).lower() for a in node.attrs.get("activations") or [*usual] * directions][:wanted]
    if len(names) != wanted or any(name not in NUMBERS for name in names):
        given, allowed = f"activations {names}", f"{wanted} of {', '.join(NUMBERS)}"
        raise InvalidArgument(node.op_type, given, allowed=allowed)
    told = [iter(node.attrs.get(f"activation_{n}") or ()) for n in ("alpha", "beta")]
    made = []
    for n, name in enumerate(names):
        numbers = [float(next(of, default)) for of, default in zip(told, NUMBERS[name], strict=False)]
        # As in ONNX Runtime, gates are clipped, and the cell's state is not
        made.append(_activation(node, name, numbers, clips=n % len(usual) < 2))
    return [made[d * len(usual) : (d + 1) * len(usual)] for d in range(directions)]


def unroll(
    node: Node, inputs: Sequence[Operand | None], usual: Sequence[str], read: Activate = lambda x: x
) -> list[Operand]:
    """Return the outputs and the last states, of inputs that have the time first.

    `read` is applied to what weights are multiplied by: the input, and the hidden state of each step.
    """
    x, w = inputs[0], inputs[1]
    assert x is not None and w is not None
    steps, batch, _ = shape_of(x)
    if steps > MAX_STEPS:
        raise node.refuse(f"{steps} steps with such activations", f"up to {MAX_STEPS}")
    directions, hidden = shape_of(w)[0], shape_of(w)[1] // GATES[node.op_type]
    named = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}.get(node.attrs["direction"], [])
    if len(named) != directions:
        raise InvalidArgument(node.op_type, f"direction {node.attrs['direction']!r} of W {list(shape_of(w))}")
    outputs, last = [], []
    for d, (backwards, activations) in enumerate(zip(named, read_activations(node, usual, directions), strict=True)):
        layer = _Direction(node, inputs, d, hidden, activations, read)
        places = range(steps)[::-1] if backwards else range(steps)
        made = dict(layer.run(places))
        empty = node.full((0, batch, hidden), 0, dtype_of(x))
        outputs.append(node.emit("stack", *(made[t] for t in range(steps)), axis=0) if steps else empty)
        last.append(layer.state)
    states = [node.emit("stack", *parts, axis=0) for parts in zip(*last, strict=True)]
    return [node.emit("stack", *outputs, axis=1), *states]


class _Direction:
    """One direction of a layer; `state` is the hidden state, and for an LSTM the cell's."""

    def __init__(
        self,
        node: Node,
        inputs: Sequence[Operand | None],
        d: int,
        hidden: int,
        activations: Sequence[Activate],
        read: Activate,
    ) -> None:
        self.node, self.hidden, self.activations = node, hidden, activations
        self.dtype, self.d, self.read = dtype_of(node.x()), d, read
        x, w, r, b, lengths, *states = (*inputs, *[None] * 8)[:8]
        assert x is not None and w is not None and r is not None
        self.steps, self.batch, size = shape_of(x)
        gates, width = GATES[node.op_type], GATES[node.op_type] * hidden
        flat = read(node.reshape(x, (self.steps * self.batch, size)))
        self.given = node.reshape(
            multiply(node, flat, self._turn(self._part(w, (width, size)))), (self.steps, self.batch, width)
        )
        self.r = self._turn(self._part(r, (width, hidden)))
        zero = node.full((2 * width,), 0, self.dtype)
        bias = zero if b is None else self._part(b, (2 * width,))
        self.wb, self.rb = (self._cut(bias, n * width, width, 0) for n in (0, 1))
        self.gates, self.lengths = gates, lengths
        count = 2 if node.op_type == "LSTM" else 1
        nothing = node.full((self.batch, hidden), 0, self.dtype)
        begun = [nothing if s is None else self._part(s, (self.batch, hidden)) for s in states[:count]]
        self.state: list[Operand] = begun
        peep = states[2] if node.op_type == "LSTM" else None
        self.peep = None if peep is None else self._part(peep, (3 * hidden,))

    def _part(self, x: Operand, shape: tuple[int, ...]) -> Operand:
        """Return what belongs to this direction."""
        return self.node.reshape(self._cut(x, self.d, 1, 0), shape)

    def _cut(self, x: Operand, start: int, size: int, axis: int) -> Operand:
        return self.node.emit("slice", x, starts=(start,), ends=(start + size,), axes=(axis,))

    def _turn(self, x: Operand) -> Operand:
        return self.node.transpose(x, (1, 0))

    def _gate(self, x: Operand, n: int) -> Operand:
        """Return the part of a gate, along the last axis."""
        return self._cut(x, n * self.hidden, self.hidden, len(shape_of(x)) - 1)

    def run(self, places: Sequence[int]) -> Iterator[tuple[int, Operand]]:
        """Yield each place with the output there; beyond the length of a sequence it is 0, and the state stays."""
        node = self.node
        step = {"RNN": self._rnn, "GRU": self._gru, "LSTM": self._lstm}[node.op_type]
        nothing = node.full((self.batch, self.hidden), 0, self.dtype)
        for t in places:
            x = node.reshape(self._cut(self.given, t, 1, 0), (self.batch, self.gates * self.hidden))
            made = step(x)
            y = made[0]
            if self.lengths is not None:
                held = node.reshape(node.cast(self.lengths, I64), (self.batch, 1))
                going = node.emit("greater", held, node.full((), t, I64))
                made = [node.emit("where", going, new, old) for new, old in zip(made, self.state, strict=True)]
                y = node.emit("where", going, y, nothing)
            self.state = made
            yield t, y

    def _rnn(self, x: Operand) -> list[Operand]:
        node, (f,) = self.node, self.activations
        total = node.emit("add", node.emit("add", x, self.wb), node.emit("add", self._recur(), self.rb))
        return [f(total)]

    def _recur(self) -> Operand:
        return multiply(self.node, self.read(self.state[0]), self.r)

    def _gru(self, x: Operand) -> list[Operand]:
        node, (f, g), (h,) = self.node, self.activations, self.state
        x, recurred = node.emit("add", x, self.wb), node.emit("add", self._recur(), self.rb)
        z, r = (f(node.emit("add", self._gate(x, n), self._gate(recurred, n))) for n in (0, 1))
        if node.attrs.get("linear_before_reset", 0):
            inner = node.emit("mul", r, self._gate(recurred, 2))
        else:
            inner = multiply(node, self.read(node.emit("mul", r, h)), self._gate(self.r, 2))
            inner = node.emit("add", inner, self._gate(self.rb, 2))
        new = g(node.emit("add", self._gate(x, 2), inner))
        rest = node.emit("mul", node.emit("rsub_scalar", z, value=1.0), new)
        return [node.emit("add", rest, node.emit("mul", z, h))]

    def _lstm(self, x: Operand) -> list[Operand]:
        node, (f, g, h), (_, c) = self.node, self.activations, self.state
        total = node.emit("add", node.emit("add", x, self.wb), node.emit("add", self._recur(), self.rb))

        def gate(n: int, cell: Operand) -> Operand:
            found = self._gate(total, n)
            if self.peep is not None:
                found = node.emit("add", found, node.emit("mul", self._gate(self.peep, n), cell))
            return f(found)

        i = gate(0, c)
        forget = node.emit("rsub_scalar", i, value=1.0) if node.attrs.get("input_forget", 0) else gate(2, c)
        new = node.emit("add", node.emit("mul", forget, c), node.emit("mul", i, g(self._gate(total, 3))))
        return [node.emit("mul", gate(1, new), h(new)), new]


def is_usual(node: Node, usual: Sequence[str], directions: int) -> bool:
    """Return whether a layer is one that the operators compute."""
    wanted = [*usual] * directions
    names = [str(a).capitalize() for a in node.attrs.get("activations") or wanted][: len(wanted)]
    plain = not node.attrs.get("clip") and not node.attrs.get("input_forget", 0)
    same = node.op_type == "RNN" and len({*names}) == 1 and names[0] in ("Tanh", "Relu")
    return plain and (same or names == wanted)
