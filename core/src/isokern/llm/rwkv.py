"""Layers of RWKV-7 (Peng et al. 2025): a matrix for each head in place of keys, and mixtures with the token before.

A low-rank product has two matrices and a constant, w1, w2 and w0 of its letter.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..graph.ir import Value
from ..graph.layer import Context
from .layers import Origin, emitter
from .parts import Mixing
from .places import StatePlaces
from .recurrent import StateLayer, join, mask

GROUP_EPSILON = 64e-5  # in the norm of a head's result
LEAST = 1e-12  # the least length that keys are divided by
DECAY = -0.6065306597126334  # -exp(-1/2): a state keeps at least 0.545 of itself


class MixingLayer(StateLayer):
    """x plus time mixing, plus channel mixing; its inputs are x, the last token's rows [1, 2, width], and the state.

    `first` are the values of the first layer, with which those of the others are mixed; None in the first.
    """

    def __init__(self, origin: Origin, places: StatePlaces, first: Value | None) -> None:
        super().__init__(origin, places)
        self.first = first

    @property
    def sizes(self) -> Mixing:
        """The sizes of the layer."""
        assert isinstance(self.config.recurrent, Mixing)
        return self.config.recurrent

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x."""
        x, shift, state = ctx.expect(inputs, 3)
        e, (time, channel) = emitter(ctx), self.config.form.before
        before = self.places.read(ctx, shift)
        normed = self.norm(ctx, x, time)
        last = [self._last(ctx, normed)]
        x = ctx.emit("add", [self._mix_time(ctx, normed, self._before(ctx, normed, before, 0), state), x])
        normed = self.norm(ctx, x, channel)
        last.append(self._last(ctx, normed))
        x = ctx.emit("add", [self._mix_channels(ctx, normed, self._before(ctx, normed, before, 1)), x])
        pairs = [e("concat", *pair, axis=1) for pair in zip(*last, strict=True)]
        self.kept = (*self.kept, self.places.write(ctx, shift, pairs))
        return x

    def _last(self, ctx: Context, x: Value) -> list[Value]:
        """Return the rows of the last token [count, 1, width] of each run's sequences."""
        e, made = emitter(ctx), []
        for run in self.places.runs:
            y = run.cut(ctx, x)
            if run.last is not None:
                y = e("gather", y, run.last, axis=0)
            elif run.length > 1:
                y = e("slice", y, starts=(run.length - 1,), ends=(run.length,), axes=(0,))
            made.append(e.reshape(y, (run.count, 1, self.config.width)))
        return made

    def _before(self, ctx: Context, x: Value, shift: Sequence[Value], which: int) -> Value:
        """Return for each row of x that of the token before."""
        e, made = emitter(ctx), []
        for run, held in zip(self.places.runs, shift, strict=True):
            y, n = run.cut(ctx, x), run.length
            kept = e.collapse(e("slice", held, starts=(which,), ends=(which + 1,), axes=(1,)), (2, 1))
            if n > 1:
                kept = e("concat", kept, e("slice", y, starts=(0,), ends=(n - 1,), axes=(0,)), axis=0)
            made.append(kept)
        return join(ctx, made)

    def _mix_time(self, ctx: Context, x: Value, before: Value, state: Value) -> Value:
        """Return [n, width]: each head's state decays, forgets what a key stands for, and stores a value for it."""
        e, c, width, n = emitter(ctx), self.sizes, self.config.width, x.spec.shape[0]
        count, split_ = (6 if c.gate_rank else 5), (1, n, c.heads, width // c.heads)
        shares = self.parameter(ctx, "time_mix_lerp_fused.weight", count, 1, 1, width, plain=True)
        shares = e.collapse(shares, (3, 1))
        mixed = e.loop("ab,ab,cb->cab", "x0 + (x1 - x0) * x2", x, before, shares)
        parts = [e.collapse(e("slice", mixed, starts=(i,), ends=(i + 1,), axes=(0,)), (2, 1)) for i in range(count)]
        r, k, v = (
            self.product(ctx, parts[i], f"time_mix_{name}", width)
            for i, name in ((0, "receptance"), (2, "key"), (3, "value"))
        )
        if self.first is None:
            self.first = v
        else:
            share = self._adapt(ctx, parts[3], "v", c.value_rank)
            v = e.pointwise("x0 + (x1 - x0) / (1 + exp(-x2))", v, self.first, share)
        decay = e.pointwise(f"exp({DECAY!r} / (1 + exp(-x0)))", self._adapt(ctx, parts[1], "w", c.decay_rank, "tanh"))
        rate = ctx.emit("sigmoid", [self._adapt(ctx, parts[4], "a", c.rate_rank)])
        key, factor = (self.parameter(ctx, f"time_mix_k_{name}.weight", width) for name in "ka")
        removed = e.reshape(e.pointwise("x0 * x1", k, key), split_)
        length = e.loop("abcd->abc", "x0 * x0", removed, combine="sum")
        removed = e.loop("abcd,abc->abcd", f"x0 / maximum(sqrt(x1), {LEAST})", removed, length)
        k = e.pointwise("x0 * (1 + (x1 - 1) * x2)", k, rate, factor)
        r, k, v, decay, rate = (e.reshape(p, split_) for p in (r, k, v, decay, rate))
        given = [r, k, v, decay, e.pointwise("-x0", removed), e.pointwise("x0 * x1", removed, rate)]
        made = self._apply_rule(ctx, given, state)
        weight, bias = (self.parameter(ctx, f"time_mix_ln.{name}", width) for name in ("weight", "bias"))
        how = {"groups": c.heads, "eps": GROUP_EPSILON}
        made = ctx.emit("group_norm", [made, weight, bias], how)
        bonus = e.reshape(self.parameter(ctx, "time_mix_r_k.weight", width), split_[2:])
        bonus = e.loop("abcd,abcd,cd->abc", "x0 * x1 * x2", r, k, bonus, combine="sum")
        made = e.reshape(e.loop("abcd,abc,abcd->abcd", "x0 + x1 * x2", e.reshape(made, split_), bonus, v), (n, width))
        if c.gate_rank:
            low = ctx.emit("sigmoid", [self.product(ctx, parts[5], "time_mix_g1", c.gate_rank)])
            made = e.pointwise("x0 * x1", made, self.product(ctx, low, "time_mix_g2", width))
        return self.product(ctx, made, "time_mix_output", width)

    def _apply_rule(self, ctx: Context, parts: Sequence[Value], state: Value) -> Value:
        """Return what the states of all heads give [n, width], of rows [1, n, heads, dim]; the states go on."""
        e, width, made, last = emitter(ctx), self.config.width, [], []
        rest = (None, 0.0, None, 1.0, None, 0.0)  # in place of k, the decay and b, for padding
        for run, before in zip(self.places.runs, self.places.read(ctx, state), strict=True):
            shape = (run.count, run.length, *parts[0].spec.shape[2:])
            flat = [e.reshape(part, (part.spec.shape[1], width)) for part in parts]
            own = [e.reshape(run.cut(ctx, part), shape) for part in flat]
            r, k, v, *others = (
                x if other is None else mask(ctx, run, "blhd,l->blhd", x, other)
                for x, other in zip(own, rest, strict=True)
            )
            y, after = ctx.emit_all("generalized_delta_rule", [r, k, v, before, *others])
            made.append(e.reshape(y, (run.count * run.length, width)))
            last.append(after)
        self.kept = (*self.kept, self.places.write(ctx, state, last))
        return join(ctx, made)

    def _adapt(self, ctx: Context, x: Value, letter: str, rank: int, between: str = "") -> Value:
        """Return the product of low rank of a letter, plus its constant."""
        low = self.product(ctx, x, f"time_mix_{letter}1", rank)
        low = ctx.emit(between, [low]) if between else low
        full = self.product(ctx, low, f"time_mix_{letter}2", self.config.width)
        return ctx.emit("bias_add", [full, self.parameter(ctx, f"time_mix_{letter}0.weight", self.config.width)])

    def _mix_channels(self, ctx: Context, x: Value, before: Value) -> Value:
        """Return the feed-forward network of x, of which each channel is mixed with that of the token before."""
        e, width = emitter(ctx), self.config.width
        share = e.collapse(self.parameter(ctx, "channel_mix_lerp_k.weight", 1, 1, width, plain=True), (3,))
        mixed = e.loop("ab,ab,b->ab", "x0 + (x1 - x0) * x2", x, before, share)
        wide = e.pointwise(
            "maximum(x0, 0) * maximum(x0, 0)", self.product(ctx, mixed, "channel_mix_key", self.sizes.inner)
        )
        return self.product(ctx, wide, "channel_mix_value", width)
