"""The places that a step's graph gives its layers: which tokens are new, and where their keys or states are.

A step says what the inputs and the caches are; the layers are the same for all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from ..graph.ir import Value
from ..graph.layer import Context
from ..graph.model import Model
from ..status import InvalidArgument

Kept = Mapping[str, tuple[tuple[int, ...], object]]
"""The shape and the dtype of what a layer keeps, by name."""


class Places(Protocol):
    """The new tokens of a step: `tokens` is I64 [n]."""

    @property
    def tokens(self) -> Value:
        """The tokens' ids."""

    def choose(self, made: Model, x: Value) -> Value:
        """Return the rows of x [n, width] whose logits are wanted."""


@runtime_checkable
class KeyPlaces(Places, Protocol):
    """The places of the new tokens in caches of keys and values: `positions` is I64 [n]."""

    @property
    def positions(self) -> Value:
        """Their places in their sequences."""

    def store(self, ctx: Context, new: Sequence[Value], kept: Sequence[Value]) -> list[Value]:
        """Return the kept keys and values, which the new k and v [1, n, heads, dim] have joined."""

    def attend(
        self, ctx: Context, q: Value, kept: Sequence[Value], sinks: Value | None, how: Mapping[str, Any]
    ) -> Value:
        """Return the attention [1, n, heads, dim] of the new q to keys and values that the new ones have joined."""


@dataclass(frozen=True)
class Run:
    """`count` sequences with `length` tokens each, one after another, from row `start` on.

    If there is `last` I64 [1], it is the index of the last valid token, and `real` F32 [length] is 1 up to it and 0
    after it: padding must not change a state. There is one sequence then.
    """

    start: int
    count: int
    length: int
    last: Value | None = None
    real: Value | None = None

    def cut(self, ctx: Context, x: Value) -> Value:
        """Return the rows [count · length, …] of this run; x itself if these are all."""
        n = self.count * self.length
        if n == x.spec.shape[0]:
            return x
        return ctx.emit("slice", [x], {"starts": (self.start,), "ends": (self.start + n,), "axes": (0,)})


@runtime_checkable
class StatePlaces(Places, Protocol):
    """The sequences of the new tokens, and where their states are."""

    @property
    def runs(self) -> Sequence[Run]:
        """The sequences, in the order of the tokens."""

    def read(self, ctx: Context, held: Value) -> list[Value]:
        """Return the states [count, …] of each run before the new tokens, of those that a layer keeps."""

    def write(self, ctx: Context, held: Value, new: Sequence[Value]) -> Value:
        """Return what a layer keeps, in which the states of each run are the new ones."""


class Step(Protocol):
    """The inputs and results of a graph; a sequence has up to `length` positions."""

    @property
    def length(self) -> int:
        """The positions that a sequence may have."""

    @property
    def activations(self) -> str:
        """The dtype of activations in products with quantized weights."""

    def begin(self, made: Model, windows: Sequence[int]) -> Places:
        """Emit the inputs, except those of layers, which have these windows."""

    def keep(self, heads: int, widths: Mapping[str, int], window: int) -> Kept:
        """Return the shape and the dtype of a layer's cache of keys and of values, whose heads have these widths.

        The layer sees `window` positions, or with 0 all.
        """

    def keep_states(self, shapes: Mapping[str, tuple[int, ...]]) -> Kept:
        """Return the shape and the dtype of a layer's states, of which one sequence has these shapes [1, …]."""


def wrong_step(step: object, lacks: str) -> InvalidArgument:
    """Return the error of a step over what a model does not have."""
    return InvalidArgument(type(step).__name__, f"a model with {lacks}", allowed="the kind of step that keeps these")
