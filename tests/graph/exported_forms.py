"""The ways in which exporters write activations, norms and attention with small operators, drawn at random."""

from __future__ import annotations

import math

import numpy as np

from isokern.graph import Builder


class Writer:
    """A graph under construction from random choices; `known` are its parameters."""

    def __init__(self, seed, dtype="F32"):
        self.random = np.random.default_rng(seed)
        self.b, self.dtype, self.known = Builder(f"form {seed}"), dtype, {}

    def one_of(self, *forms):
        """Return what one of the functions gives."""
        return forms[self.random.integers(len(forms))]()

    def op(self, kind, *inputs, **attrs):
        """Emit an operator of one output."""
        return self.b.emit(kind, inputs, attrs)[0]

    def both(self, kind, x, y):
        """Emit an operator whose operands may stand in either order."""
        return self.op(kind, *((x, y) if self.random.integers(2) else (y, x)))

    def input(self, *shape):
        """Declare an input."""
        return self.b.input(f"x{len(self.b.values)}", shape, self.dtype)

    def number(self, value, shape=()):
        """Return a parameter of one number, or of many."""
        name = f"p{len(self.known)}"
        self.known[name] = np.broadcast_to(np.float32(value), shape).copy()
        return self.b.parameter(name, shape, self.dtype)

    def vector(self, *shape):
        """Return a parameter of random numbers."""
        name = f"p{len(self.known)}"
        self.known[name] = self.random.standard_normal(shape).astype(np.float32)
        return self.b.parameter(name, shape, self.dtype)

    def times(self, x, value):
        """Multiply by a number."""
        return self.one_of(
            lambda: self.op("scale", x, value=value),
            lambda: self.op("div_scalar", x, value=1 / value),
            lambda: self.both("mul", x, self.number(value)),
            lambda: self.op("div", x, self.number(1 / value, (1,))),
        )

    def plus(self, x, value):
        """Add a number."""
        return self.one_of(
            lambda: self.op("add_scalar", x, value=value),
            lambda: self.both("add", x, self.number(value)),
            lambda: self.op("sub", x, self.number(-value)),
        )

    def squared(self, x):
        """Multiply by itself."""
        return self.one_of(
            lambda: self.op("square", x),
            lambda: self.op("mul", x, x),
            lambda: self.op("pow_scalar", x, value=2.0),
            lambda: self.op("pow", x, self.number(2)),
        )

    # Activations

    def gelu(self, x):
        """x · Φ(x) by erf."""
        gate = self.plus(self.op("erf", self.times(x, math.sqrt(0.5))), 1.0)
        return self.one_of(
            lambda: self.times(self.both("mul", x, gate), 0.5),
            lambda: self.both("mul", self.times(x, 0.5), gate),
            lambda: self.both("mul", x, self.times(gate, 0.5)),
        )

    def gelu_tanh(self, x):
        """The approximation by tanh, with the cube as a power or as products."""
        cube = self.one_of(
            lambda: self.op("pow_scalar", x, value=3.0),
            lambda: self.both("mul", x, self.squared(x)),
        )
        inside = self.times(self.both("add", x, self.times(cube, 0.044715)), math.sqrt(2 / math.pi))
        return self.both("mul", self.times(x, 0.5), self.plus(self.op("tanh", inside), 1.0))

    def silu(self, x):
        """x · sigmoid(x)."""
        return self.both("mul", x, self.op("sigmoid", x))

    def quick_gelu(self, x):
        """x · sigmoid(1.702 x)."""
        return self.both("mul", x, self.op("sigmoid", self.times(x, 1.702)))

    def hardswish(self, x):
        """x · clip(x + 3, 0, 6) / 6."""
        gate = self.op("clip", self.plus(x, 3.0), min=0.0, max=6.0)
        return self.one_of(
            lambda: self.times(self.both("mul", x, gate), 1 / 6), lambda: self.both("mul", x, self.times(gate, 1 / 6))
        )

    def hardsigmoid(self, x):
        """clip(x / 6 + 1/2, 0, 1)."""
        return self.op("clip", self.plus(self.times(x, 1 / 6), 0.5), min=0.0, max=1.0)

    # Norms

    def over_root(self, n, eps):
        """n / sqrt(mean(n²) + eps)."""
        rank = n.spec.ndim
        mean = self.op("reduce_mean", self.squared(n), axes=(self.random.choice([-1, rank - 1]),), keepdims=True)
        above = self.one_of(
            lambda: self.op("add_scalar", mean, value=eps), lambda: self.both("add", mean, self.number(eps))
        )
        return self.one_of(
            lambda: self.op("div", n, self.op("sqrt", above)),
            lambda: self.both("mul", n, self.op("rsqrt", above)),
            lambda: self.both("mul", n, self.op("reciprocal", self.op("sqrt", above))),
            lambda: self.both("mul", n, self.op("div", self.number(1), self.op("sqrt", above))),
            lambda: self.op("div", n, self.op("pow_scalar", above, value=0.5)),
        )

    def weighted(self, y, bias):
        """y, perhaps times a weight, and perhaps plus a bias."""
        d = y.spec.shape[-1]

        def shape():
            return self.one_of(lambda: (d,), lambda: (1,) * (y.spec.ndim - 1) + (d,))

        if self.random.integers(3):
            y = self.both("mul", y, self.vector(*shape()))
        if bias and self.random.integers(3):
            y = self.one_of(
                lambda: self.both("add", y, self.vector(*shape())), lambda: self.op("bias_add", y, self.vector(d))
            )
        return y

    def layer_norm(self, x):
        """A layer_norm of the last dim."""
        mean = self.op("reduce_mean", x, axes=(-1,), keepdims=True)
        return self.weighted(self.over_root(self.op("sub", x, mean), 1e-5), bias=True)

    def rms_norm(self, x):
        """An rms_norm of the last dim."""
        return self.weighted(self.over_root(x, 1e-6), bias=False)

    def group_norm(self, x, groups):
        """A norm of groups of channels, as a norm of a view with weights of 1, or by small operators."""
        n, c, *sides = x.spec.shape
        flat = self.op("reshape", x, shape=(n, groups, x.spec.numel // (n * groups)))
        made = self.one_of(
            lambda: self.op("instance_norm", flat, self.number(1, (groups,)), self.number(0, (groups,)), eps=1e-5),
            lambda: self.op("instance_norm", flat, eps=1e-5),
            lambda: self.over_root(self.op("sub", flat, self.op("reduce_mean", flat, axes=(-1,), keepdims=True)), 1e-5),
        )
        wide = (c, *[1] * len(sides))
        y = self.both("mul", self.op("reshape", made, shape=x.spec.shape), self.vector(*wide))
        return self.one_of(
            lambda: y,
            lambda: self.both("add", y, self.vector(1, *wide)),
            lambda: self.op("bias_add", y, self.vector(c), axis=1),
        )

    # Rotary positions

    def tables(self, batch, steps, pairs, known):
        """Cosines and sines [batch, steps, 2 pairs] of positions, which are known or an input of integers."""
        freqs = 10000.0 ** -(np.arange(pairs) / pairs)
        self.known["freqs"] = freqs.astype(np.float32)
        freqs = self.b.parameter("freqs", (pairs,), "F32")
        if known:
            self.known["positions"] = np.arange(batch * steps, dtype=np.float32).reshape(batch, steps)
            positions = self.b.parameter("positions", (batch, steps), "F32")
        else:
            positions = self.b.emit("cast", [self.b.input("at", (batch, steps), "I64")], dtypes={"T": "F32"})[0]

        def wide(value, *shape):
            return self.op("reshape", value, shape=shape)

        flat, row = wide(positions, batch * steps, 1), wide(freqs, 1, pairs)
        column = wide(freqs, pairs, 1)
        angles = self.one_of(
            lambda: self.both("mul", wide(positions, batch, steps, 1), freqs),
            lambda: self.op("matmul", flat, row),
            lambda: self.op("transpose", self.op("matmul", column, wide(positions, 1, batch * steps)), axes=(1, 0)),
        )
        angles = wide(angles, batch, steps, pairs)
        both = self.op("concat", angles, angles, axis=int(self.random.choice([-1, 2])))
        factor = float(self.random.choice([1.0, 1.25]))
        return [self.op("scale", self.op(kind, both), value=factor) for kind in ("cos", "sin")]

    def rope(self, x, tables, heads):
        """x [b, heads, s, d] or [b, s, heads, d] turned by tables: `heads` is the dim of heads."""
        d = x.spec.shape[-1]
        b, s = tables[0].spec.shape[:2]
        cos, sin = (self.op("reshape", t, shape=(b, 1, s, d) if heads == 1 else (b, s, 1, d)) for t in tables)
        first = self.op("slice", x, starts=(0,), ends=(d // 2,), axes=(3,))
        second = self.op("slice", x, starts=(d // 2,), ends=(d,), axes=(3,))
        turned = self.op("concat", self.op("neg", second), first, axis=3)
        return self.both("add", self.both("mul", x, cos), self.both("mul", turned, sin))

    # Attention

    def repeated(self, x, times):
        """Heads [b, g, s, d], each as often as the queries have it."""
        b, g, s, d = x.spec.shape
        wide = self.op("broadcast_to", self.op("reshape", x, shape=(b, g, 1, s, d)), shape=(b, g, times, s, d))
        return self.op("reshape", wide, shape=(b, g * times, s, d))

    def attention(self, batch, heads, queries, keys, d, e):
        """Attention with its factor and its mask in one of their forms; `heads` 0 is none."""
        lead = (batch, heads) if heads else (batch,)
        rank, factor = len(lead) + 2, d**-0.5
        q, v = self.input(*lead, queries, d), self.input(*lead, keys, e)
        last = (*range(rank - 2), rank - 1, rank - 2)
        k = self.one_of(
            lambda: self.op("transpose", self.input(*lead, keys, d), axes=last), lambda: self.input(*lead, d, keys)
        )
        where = self.random.integers(4)
        if where == 0:
            q = self.times(q, factor)
        elif where == 1:
            q, k = self.times(q, factor**0.5), self.times(k, factor**0.5)
        scores = self.op("matmul", q, k)
        if where == 2:
            scores = self.times(scores, factor)
        masks = [(keys,), (queries, keys), (*([1] * len(lead)), queries, keys), (*lead, 1, keys)]
        shape = masks[self.random.integers(len(masks))]
        mask = self.random.integers(4)
        if mask == 1:
            scores = self.both("add", scores, self.input(*shape))
        elif mask == 2:
            low = self.number(self.random.choice([-3e38, -np.inf]))
            open_ = self.op("less", self.input(*shape), self.number(0.5))
            scores = self.op("where", open_, scores, low)
        elif mask == 3:
            closed = self.op("greater", self.input(*shape), self.number(0.5))
            scores = self.op("where", closed, self.number(-3.4e38), scores)
        shares = self.op("softmax", scores, axis=int(self.random.choice([-1, rank - 1])))
        if self.random.integers(2):
            shares = self.op("where", self.op("isnan", shares), self.number(0), shares)
        return self.op("matmul", shares, v)
