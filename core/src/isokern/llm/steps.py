"""The inputs and results of a decoder's graph, which computes the next tokens of one sequence, or of many in pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..graph.ir import Value
from ..graph.layer import Context
from ..graph.model import Model
from ..status import InvalidArgument
from .places import Kept, KeyPlaces, Run, wrong_step

SPAN = 64  # tokens of a prompt that are computed at once


@dataclass(frozen=True)
class TokenStep:
    """Up to `tokens` new tokens of one sequence, over caches of `length` positions and the dtype `cache`.

    Inputs: `tokens` I64 [n], `start` I64 [1] (their first position), for more than one token `last` I64 [1] (the index
    of the last that is one: what is behind it is computed, but nothing depends on it), for each layer `blk.N.keys` and
    `blk.N.values` [1, length, heads, dim]. The result is the logits of the last token, or of all with `every`.

    A layer with a window keeps that many positions and 2 · SPAN more. If that is less than `length`, there may be
    SPAN new tokens at most, and a further input is `base` I64 [1], the first position that such layers have.
    """

    length: int
    tokens: int = 1
    cache: object = "F16"
    activations: str = "float"
    every: bool = False

    def count_kept(self, window: int) -> int:
        """Return how many positions a layer with a window keeps; 0 without a window."""
        return min(self.length, window + 2 * SPAN) if window else self.length

    def begin(self, made: Model, windows: Sequence[int]) -> KeyPlaces:
        """Emit the inputs, except those of layers, which have these windows."""
        emit, n = made.builder.emit, self.tokens
        short = any(self.count_kept(window) < self.length for window in windows)
        if short and n > SPAN:
            raise InvalidArgument("TokenStep", f"tokens={n}", allowed=f"up to {SPAN} over caches of windows")
        tokens, start = made.input("tokens", (n,), "I64"), made.input("start", (1,), "I64")
        (count,) = emit("fill", [], {"value": n, "shape": (1,)}, name="count", dtypes={"T": "I64"})
        (lengths,) = emit("add", [start, count], name="lengths")
        positions, last = start, None
        if n > 1:
            last = made.input("last", (1,), "I64")
            (numbers,) = emit("iota", [], {"shape": (n,)}, name="positions", dtypes={"T": "I64"})
            (positions,) = emit("add", [numbers, start], name="positions")
        near = (start, lengths)
        if short:
            base = made.input("base", (1,), "I64")
            near = (emit("sub", [start, base], name="near")[0], emit("sub", [lengths, base], name="near")[0])
        return _OneSequence(self, tokens, positions, (start, lengths), near, last)

    def keep(self, heads: int, widths: Mapping[str, int], window: int) -> Kept:
        """Return the shape and the dtype of a layer's cache of keys and of values."""
        length = self.count_kept(window)
        return {name: ((1, length, heads, width), self.cache) for name, width in widths.items()}

    def keep_states(self, shapes: Mapping[str, tuple[int, ...]]) -> Kept:
        """Return the shape and the dtype of a layer's states."""
        return {name: (shape, "F32") for name, shape in shapes.items()}


@dataclass(frozen=True)
class _OneSequence:
    """The places of one sequence's new tokens.

    `whole` are the first one's place [1] and the number of keys [1] in a cache of all positions, `near` those in a
    cache of a window. `last` [1] is the index of the last token, if there are several.
    """

    step: TokenStep
    tokens: Value
    positions: Value
    whole: tuple[Value, Value]
    near: tuple[Value, Value]
    last: Value | None

    def store(self, ctx: Context, new: Sequence[Value], kept: Sequence[Value]) -> list[Value]:
        """Return the kept keys and values, with the new ones behind."""
        start, _ = self._find(kept)
        return [ctx.emit("cache_update", [x, start, y]) for x, y in zip(new, kept, strict=True)]

    def _find(self, kept: Sequence[Value]) -> tuple[Value, Value]:
        """Return the place of the new tokens in a layer's cache, and how many keys it has with them."""
        return self.near if kept[0].spec.shape[1] < self.step.length else self.whole

    def attend(
        self, ctx: Context, q: Value, kept: Sequence[Value], sinks: Value | None, how: Mapping[str, Any]
    ) -> Value:
        """Return the attention of the new q to the kept keys and values."""
        given = [q, *kept, None, self._find(kept)[1]] + ([] if sinks is None else [None, sinks])
        return ctx.emit("attention", given, {"causal": True, **how})

    @property
    def runs(self) -> Sequence[Run]:
        """The sequence, all of whose tokens count if a model has states."""
        return [Run(0, 1, self.step.tokens)]

    def read(self, ctx: Context, held: Value) -> list[Value]:
        """Return the sequence's state."""
        return [held]

    def write(self, ctx: Context, held: Value, new: Sequence[Value]) -> Value:
        """Return the new state, for the next step."""
        start = ctx.emit("fill", [], {"value": 0, "shape": (1,)}, dtypes={"T": "I64"})
        return ctx.emit("cache_update", [*new, start, held])

    def choose(self, made: Model, x: Value) -> Value:
        """Return the last row, or all."""
        if self.last is not None and not self.step.every:
            (x,) = made.builder.emit("gather", [x, self.last], {"axis": 0}, name="last")
        return x


@dataclass(frozen=True)
class BatchStep:
    """`tokens` new tokens of up to `sequences` sequences, one after another, over a cache of pages.

    The cache has `pages` pages of `page` positions each, of the dtype `cache`, and a sequence up to `length` positions.
    Inputs: `tokens` and `positions` I64 [n]; `slots` I64 [n], the places of their keys and values, page · `page` + row,
    negative for padding; `table` I64 [sequences, pages of one], `lengths` I64 [sequences] and `starts` I64
    [sequences + 1], as `paged_attention_prefill` has them; `rows` I64 [`rows`], the tokens whose logits are wanted; and
    for each layer `blk.N.keys` and `blk.N.values` [pages, page, heads, dim]. The result is logits [rows, vocabulary].

    Where `near` is not 0, layers with a window have so many pages, and two inputs of their own: `near_slots`, and
    `near_table`, in which pages before what the window shows may be any.
    """

    length: int
    tokens: int
    rows: int
    sequences: int
    pages: int
    page: int
    cache: object = "F16"
    activations: str = "float"
    near: int = 0

    def begin(self, made: Model, windows: Sequence[int]) -> KeyPlaces:
        """Emit the inputs, except those of layers, which have these windows."""
        n, b = self.tokens, self.sequences
        each = -(-self.length // self.page)
        shapes = {"tokens": (n,), "positions": (n,), "slots": (n,), "table": (b, each), "lengths": (b,)}
        shapes |= {"starts": (b + 1,), "rows": (self.rows,)}
        if self.near:
            shapes |= {"near_slots": (n,), "near_table": (b, each)}
        return _Packed(self, **{name: made.input(name, shape, "I64") for name, shape in shapes.items()})

    def keep(self, heads: int, widths: Mapping[str, int], window: int) -> Kept:
        """Return the shape and the dtype of a layer's cache of keys and of values."""
        pages = self.near if window and self.near else self.pages
        return {name: ((pages, self.page, heads, width), self.cache) for name, width in widths.items()}

    def keep_states(self, shapes: Mapping[str, tuple[int, ...]]) -> Kept:
        """Raise InvalidArgument: pages are of keys and values."""
        raise wrong_step(self, "states")


@dataclass(frozen=True)
class _Packed:
    """The places of packed tokens: the inputs of `BatchStep`."""

    step: BatchStep
    tokens: Value
    positions: Value
    slots: Value
    table: Value
    lengths: Value
    starts: Value
    rows: Value
    near_slots: Value | None = None
    near_table: Value | None = None

    def _find(self, kept: Sequence[Value]) -> tuple[Value, Value]:
        """Return the slots and the table of a layer's cache."""
        if self.near_slots is None or self.near_table is None or kept[0].spec.shape[0] == self.step.pages:
            return self.slots, self.table
        return self.near_slots, self.near_table

    def store(self, ctx: Context, new: Sequence[Value], kept: Sequence[Value]) -> list[Value]:
        """Return the kept keys and values, with the new ones in their slots."""
        flat = [ctx.emit("collapse_shape", [x], {"groups": (2, 1, 1)}) for x in new]
        slots, _ = self._find(kept)
        return [ctx.emit("paged_cache_update", [x, slots, y]) for x, y in zip(flat, kept, strict=True)]

    def attend(
        self, ctx: Context, q: Value, kept: Sequence[Value], sinks: Value | None, how: Mapping[str, Any]
    ) -> Value:
        """Return the attention of the new q to the kept keys and values."""
        q = ctx.emit("collapse_shape", [q], {"groups": (2, 1, 1)})
        given = [q, *kept, self._find(kept)[1], self.lengths, self.starts] + ([] if sinks is None else [sinks])
        y = ctx.emit("paged_attention_prefill", given, {"causal": True, **how})
        return ctx.emit("expand_shape", [y], {"groups": (2, 1, 1), "shape": (1, *y.spec.shape)})

    def choose(self, made: Model, x: Value) -> Value:
        """Return the wanted rows."""
        (x,) = made.builder.emit("gather", [x, self.rows], {"axis": 0}, name="wanted")
        return x
