"""The steps of an engine whose model keeps states: tokens of many sequences, whose states are read and written by slot.

A slot is what one sequence's states have in each layer's memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..graph.ir import Value
from ..graph.layer import Context
from ..graph.model import Model
from .places import Kept, Run, wrong_step


@dataclass(frozen=True)
class StateStep:
    """One token of each of `texts` sequences, and behind these up to `span` tokens of one more, or none.

    Each layer keeps the states of `slots` sequences, and behind them those of a sequence that begins: zeros, which
    nothing writes. Inputs: `tokens` I64 [n]; `sources` and `slots` I64 [sequences], where states are read and written,
    which may be different places, and a negative slot is for padding; with a span `last` I64 [1], the
    index of its last token, and `real` F32 [span], 1 for those up to that one and 0 for what is behind; `rows` I64
    [sequences], the tokens whose logits are wanted; and each layer's states [slots + 1, 1, …]. The result is logits
    [sequences, vocabulary].
    """

    length: int
    texts: int
    span: int
    slots: int
    activations: str = "float"

    @property
    def sequences(self) -> int:
        """How many sequences have tokens."""
        return self.texts + bool(self.span)

    def begin(self, made: Model, windows: Sequence[int]) -> StateInputs:
        """Emit the inputs, except those of layers."""
        n = self.sequences
        shapes = {"tokens": self.texts + self.span, "sources": n, "slots": n, "rows": n}
        inputs = {name: made.input(name, (size,), "I64") for name, size in shapes.items()}
        runs = [Run(0, self.texts, 1)]
        if self.span:
            last, real = made.input("last", (1,), "I64"), made.input("real", (self.span,), "F32")
            runs.append(Run(self.texts, 1, self.span, last, real))
        return StateInputs(runs=runs, **inputs)

    def keep(self, heads: int, widths: Mapping[str, int], window: int) -> Kept:
        """Raise InvalidArgument: slots are of states."""
        raise wrong_step(self, "keys")

    def keep_states(self, shapes: Mapping[str, tuple[int, ...]]) -> Kept:
        """Return the shape and the dtype of a layer's states."""
        return {name: ((self.slots + 1, 1, *shape[1:]), "F32") for name, shape in shapes.items()}


@dataclass(frozen=True)
class StateInputs:
    """The places of tokens and states: the inputs of `StateStep`."""

    runs: Sequence[Run]
    tokens: Value
    sources: Value
    slots: Value
    rows: Value

    def read(self, ctx: Context, held: Value) -> list[Value]:
        """Return the states of each run's sequences: copies, so that a slot may be read and written in one step."""
        y = ctx.emit("gather", [held, self.sources], {"axis": 0})
        y = ctx.emit("collapse_shape", [y], {"groups": (2, *[1] * (held.spec.ndim - 2))})
        return [self._cut(ctx, y, run, at) for run, at in self._number_runs()]

    def write(self, ctx: Context, held: Value, new: Sequence[Value]) -> Value:
        """Return what a layer keeps, with the new states in their slots."""
        for (run, at), states in zip(self._number_runs(), new, strict=True):
            held = ctx.emit("paged_cache_update", [states, self._cut(ctx, self.slots, run, at), held])
        return held

    def _number_runs(self) -> list[tuple[Run, int]]:
        """Return each run, and the number of its first sequence."""
        return [(run, sum(other.count for other in self.runs[:i])) for i, run in enumerate(self.runs)]

    def _cut(self, ctx: Context, x: Value, run: Run, at: int) -> Value:
        """Return the rows of x [sequences, …] of a run."""
        if len(self.runs) == 1:
            return x
        return ctx.emit("slice", [x], {"starts": (at,), "ends": (at + run.count,), "axes": (0,)})

    def choose(self, made: Model, x: Value) -> Value:
        """Return the wanted rows."""
        (x,) = made.builder.emit("gather", [x, self.rows], {"axis": 0}, name="wanted")
        return x
