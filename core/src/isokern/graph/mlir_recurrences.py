"""The recurrences of RNN, GRU and LSTM as loops of scf over time, one for each direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from ..dtypes import I64, U64, DType
from ..expr.tree import parse
from ..ops import find
from .ir import Op
from .mlir_body import combine, compare, constant, convert, evaluate, select
from .mlir_loops import index, pick, put, repeat
from .mlir_tensors import Operands, cast, empty, extract_slice, fill, letter_dims, shape_of

State = list[SSAValue]
INPUTS = ("x", "r", "bias", "initial_h", "lengths", "initial_c", "peepholes")


class _Direction:
    """One direction of a recurrence: its weights, and the scalar parts of a step."""

    def __init__(self, op: Op, given: dict[str, SSAValue], d: int) -> None:
        y = op.outputs[0].spec
        self.op, self.d, self.dtype, self.wide = op, d, y.dtype, y.dtype.compute
        self.steps, _, self.batch, self.h = y.shape
        own = {name: pick(v, 0, index(d)) for name, v in given.items() if name not in ("x", "lengths")}
        self.x, self.lengths = pick(given["x"], 2, index(d)), given.get("lengths")
        self.r, self.bias, self.peepholes = own["r"], own.get("bias"), own.get("peepholes")
        self.initial = [own.get("initial_h"), own.get("initial_c")][: len(op.outputs) - 1]
        self.backward = op.attrs["direction"] == "reverse" or d == 1

    def run(self, y: SSAValue) -> tuple[SSAValue, State]:
        """Return y with this direction's steps, and the last states in the compute type."""
        none = fill(0, self.wide, (self.batch, self.h))
        start = [none if s is None else cast(s, self.dtype, self.wide) for s in self.initial]

        def step(i: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
            before, y = list(carried[:-1]), carried[-1]
            at = arith.SubiOp(index(self.steps - 1), i).result if self.backward else i
            after = CELLS[self.op.kind](self, pick(self.x, 0, at), before)
            shown = after[0]
            if self.lengths is not None:  # a sequence that has ended before this step keeps its state
                shown = self._keep_live(after[0], none, at)
                after = [self._keep_live(new, old, at) for new, old in zip(after, before, strict=True)]
            part = put(pick(y, 1, index(self.d)), cast(shown, self.wide, self.dtype), 0, at)
            return [*after, put(y, part, 1, index(self.d))]

        *last, y = repeat(self.steps, [*start, y], step)
        return y, last

    def _keep_live(self, new: SSAValue, old: SSAValue, at: SSAValue) -> SSAValue:
        """Return the new state of the sequences that have step `at`; a length out of range counts as 0."""
        spec = self.op.inputs[INPUTS.index("lengths")]
        assert self.lengths is not None and spec is not None
        place, given = arith.IndexCastOp(at, i64).result, spec.spec.dtype

        def body(a: SSAValue, b: SSAValue, length: SSAValue, _: SSAValue) -> SSAValue:
            wide = convert(length, given, I64)
            within = compare("<=", wide, constant(self.steps, I64), U64)  # as an unsigned number, so not below 0
            live = arith.AndIOp(within, compare("<", place, wide, I64)).result
            return select(live, a, b)

        return letter_dims("bh,bh,b->bh", [new, old, self.lengths], empty(self.wide, shape_of(new)), body)

    def multiply(self, state: SSAValue, first: int, count: int) -> SSAValue:
        """Return the state's product with the weights of `count` gates."""
        weights = extract_slice(self.r, [first * self.h, 0], [count * self.h, self.h], [1, 1])

        def add(a: SSAValue, b: SSAValue, total: SSAValue) -> SSAValue:
            return combine("+", total, combine("*", a, convert(b, self.dtype, self.wide), self.wide), self.wide)

        return letter_dims("bk,gk->bg", [state, weights], fill(0, self.wide, (self.batch, count * self.h)), add)

    def part(self, x: SSAValue, i: int) -> SSAValue:
        """Return gate i of x[b, gates · h], or of a vector."""
        if len(shape_of(x)) == 1:
            return extract_slice(x, [i * self.h], [self.h], [1])
        return extract_slice(x, [0, i * self.h], [self.batch, self.h], [1, 1])

    def compute(self, body: str, *given: SSAValue) -> SSAValue:
        """Return an expression of x0, x1, …, each [b, h] in the compute type or [h] in the tensors' type."""
        ranks = [len(shape_of(v)) for v in given]
        maps = ",".join("bh" if rank == 2 else "h" for rank in ranks)

        def element(*values: SSAValue) -> SSAValue:
            wide = [
                v if rank == 2 else convert(v, self.dtype, self.wide)
                for v, rank in zip(values[:-1], ranks, strict=True)
            ]
            return _evaluate(body, wide, self.wide)

        return letter_dims(f"{maps}->bh", given, empty(self.wide, (self.batch, self.h)), element)

    def add_up(self, x: SSAValue, product: SSAValue, i: int, at: int) -> SSAValue:
        """Return gate i's sum of x, the product (if it is gate `at`) and the bias."""
        terms = [self.part(x, i), self.part(product, at)]
        if self.bias is None:
            return self.compute("x0 + x1", *terms)
        return self.compute("x0 + (x1 + x2)", *terms, self.part(self.bias, i))


def _evaluate(body: str, values: Sequence[SSAValue], compute: DType) -> SSAValue:
    return evaluate(parse(body), {f"x{i}": v for i, v in enumerate(values)}, compute)


def _apply(c: _Direction, name: str, x: SSAValue) -> SSAValue:
    """Return a function of the elementwise table, of each element."""
    tree = find(name).expression
    assert tree is not None
    made = empty(c.wide, shape_of(x))
    return letter_dims("bh->bh", [x], made, lambda v, _: evaluate(tree, {"x": v}, c.wide))


def _step_rnn(c: _Direction, x: SSAValue, states: State) -> State:
    total = c.add_up(x, c.multiply(states[0], 0, 1), 0, 0)
    return [_apply(c, c.op.attrs["activation"], total)]


def _step_gru(c: _Direction, x: SSAValue, states: State) -> State:
    (h,) = states
    first = c.multiply(h, 0, 2)
    update, reset = (_apply(c, "sigmoid", c.add_up(x, first, i, i)) for i in (0, 1))
    if not c.op.attrs["linear_before_reset"]:
        new = c.add_up(x, c.multiply(c.compute("x0 * x1", reset, h), 2, 1), 2, 0)
    else:
        given = [c.part(x, 2), reset, c.multiply(h, 2, 1)]
        bias = [] if c.bias is None else [c.part(c.bias, 2)]
        new = c.compute("x0 + x1 * (x2 + x3)" if bias else "x0 + x1 * x2", *given, *bias)
    return [c.compute("(1 - x0) * x1 + x0 * x2", update, _apply(c, "tanh", new), h)]


def _step_lstm(c: _Direction, x: SSAValue, states: State) -> State:
    h, cell = states
    product = c.multiply(h, 0, 4)

    def gate(i: int, watched: SSAValue) -> SSAValue:
        total = c.add_up(x, product, i, i)
        if c.peepholes is not None:
            total = c.compute("x0 + x1 * x2", total, c.part(c.peepholes, i), watched)
        return _apply(c, "sigmoid", total)

    entry, forget = gate(0, cell), gate(2, cell)
    new = _apply(c, "tanh", c.add_up(x, product, 3, 3))
    after = c.compute("x0 * x1 + x2 * x3", forget, cell, entry, new)
    return [c.compute("x0 * x1", gate(1, after), _apply(c, "tanh", after)), after]


CELLS: dict[str, Callable[[_Direction, SSAValue, State], State]] = {
    "rnn_recurrence": _step_rnn,
    "gru_recurrence": _step_gru,
    "lstm_recurrence": _step_lstm,
}


def emit_recurrence(op: Op, args: Operands) -> Sequence[SSAValue]:
    """Emit the directions one after the other; each carries its states, and writes its part of y."""
    values = iter(args)
    given = {name: next(values) for name, v in zip(INPUTS, op.inputs, strict=False) if v is not None}
    y, dtype = op.outputs[0].spec, op.outputs[0].spec.dtype
    whole = empty(dtype, y.shape)
    if 0 in y.shape:  # no step, and the states are those of the beginning
        initial = [given.get("initial_h"), given.get("initial_c")][: len(op.outputs) - 1]
        return [whole, *(fill(0, dtype, y.shape[1:]) if s is None else s for s in initial)]
    states = [empty(dtype, y.shape[1:]) for _ in op.outputs[1:]]
    for d in range(y.shape[1]):
        whole, last = _Direction(op, given, d).run(whole)
        states = [put(s, cast(new, dtype.compute, dtype), 0, index(d)) for s, new in zip(states, last, strict=True)]
    return [whole, *states]
