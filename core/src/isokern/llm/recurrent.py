"""Layers of selective state spaces, Mamba and Mamba-2, which keep as much of a long text as of a short one."""

from __future__ import annotations

import numpy as np

from ..backend import Device
from ..graph.ir import Value
from ..graph.layer import Context
from ..tensors import Tensor, tensor
from .layers import Weighted, emitter, split
from .parts import Mixing, Recurrent


class StateLayer(Weighted):
    """x plus the state space of x normalised; its inputs are x, the last convolved elements, and the state.

    `kept` are both as they are afterwards, which have to be results of the graph.
    """

    kept: tuple[Value, ...] = ()

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x."""
        x, conv, state = ctx.expect(inputs, 3)
        normed = self.norm(ctx, x, self.config.form.before[0])
        mix = self._mix_selective if self.config.form.state == "selective" else self._mix_heads
        sizes = self.config.recurrent
        assert isinstance(sizes, Recurrent)
        return ctx.emit(
            "add", [self.product(ctx, mix(ctx, normed, conv, state, sizes), "ssm_out", self.config.width), x]
        )

    def _mix_selective(self, ctx: Context, x: Value, conv: Value, state: Value, c: Recurrent) -> Value:
        """Return Mamba's [n, inner]: a step, B and C for each token are products of what was convolved."""
        e, n = emitter(ctx), x.spec.shape[0]
        x, z = split(ctx, self.product(ctx, x, "ssm_in", 2 * c.inner), [c.inner, c.inner])
        y = self._convolve(ctx, x, conv)
        row = self.product(ctx, self._rows(ctx, y), "ssm_x", c.rank + 2 * c.state)
        parts = split(ctx, row, [c.rank, c.state, c.state])
        if c.even:
            parts = [ctx.emit("rms_norm", [part], {"eps": self.config.epsilon}) for part in parts]
        step = self.product(ctx, parts[0], "ssm_dt", c.inner)
        a = self.parameter(ctx, "ssm_a", c.inner, c.state, plain=True)
        given = [y, self._channels(ctx, step), a, *(self._channels(ctx, part) for part in parts[1:])]
        given += [self.parameter(ctx, "ssm_d", c.inner), self._channels(ctx, z)]
        made, last = ctx.emit_all("selective_scan", [*given, None, state], {"delta_softplus": True})
        self.keep(ctx, last, state)
        return e.reshape(self._rows(ctx, made), (n, c.inner))

    def _mix_heads(self, ctx: Context, x: Value, conv: Value, state: Value, c: Recurrent) -> Value:
        """Return Mamba-2's [n, inner]: all of a token is one product, and a head has one decay."""
        e, n, shared = emitter(ctx), x.spec.shape[0], c.groups * c.state
        row = self.product(ctx, x, "ssm_in", c.inner + c.convolved + c.heads)
        z, x, step = split(ctx, row, [c.inner, c.convolved, c.heads])
        parts = split(ctx, self._rows(ctx, self._convolve(ctx, x, conv)), [c.inner, shared, shared])
        heads, groups = (1, n, c.heads, c.inner // c.heads), (1, n, c.groups, c.state)
        y, b, k = (e.reshape(p, shape) for p, shape in zip(parts, (heads, groups, groups), strict=True))
        a, d = (e.collapse(self.parameter(ctx, f"ssm_{name}", c.heads, 1, plain=True), (2,)) for name in "ad")
        bias = self.parameter(ctx, "ssm_dt.bias", c.heads)
        given = [y, e.reshape(step, (1, n, c.heads)), a, b, k, d, e.reshape(z, heads), bias, state]
        made, last = ctx.emit_all("ssd_scan", given, {"dt_softplus": True})
        self.keep(ctx, last, state)
        weight = self.parameter(ctx, "ssm_norm.weight", c.groups, c.inner // c.groups, plain=True)
        split_ = e.reshape(made, (n, c.groups, c.inner // c.groups))
        even = ctx.emit("rms_norm", [split_], {"eps": self.config.epsilon})
        return e.reshape(e.pointwise("x0 * x1", even, weight), (n, c.inner))

    def _convolve(self, ctx: Context, x: Value, conv: Value) -> Value:
        """Return silu of x [n, channels], convolved with what came before, as [1, channels, n]."""
        channels = x.spec.shape[1]
        w = self.parameter(ctx, "ssm_conv1d.weight", channels, conv.spec.shape[2] + 1, plain=True)
        bias = self.parameter(ctx, "ssm_conv1d.bias", channels)
        given = [self._channels(ctx, x), w, bias, conv]
        y, kept = ctx.emit_all("causal_conv1d", given, {"activation": "silu"})
        self.keep(ctx, kept, conv)
        return y

    def keep(self, ctx: Context, new: Value, held: Value) -> None:
        """Put a state where the next step finds it."""
        start = ctx.emit("fill", [], {"value": 0, "shape": (1,)}, dtypes={"T": "I64"})
        self.kept = (*self.kept, ctx.emit("cache_update", [new, start, held]))

    def _channels(self, ctx: Context, x: Value) -> Value:
        """Return x [n, channels] as [1, channels, n]."""
        e = emitter(ctx)
        return e("expand_shape", e("transpose", x, axes=(1, 0)), groups=(2, 1), shape=(1, *reversed(x.spec.shape)))

    def _rows(self, ctx: Context, x: Value) -> Value:
        """Return x [1, channels, n] as [n, channels]."""
        e = emitter(ctx)
        return e("transpose", e.collapse(x, (2, 1)), axes=(1, 0))


class LayerState:
    """What a layer keeps of the tokens so far: tensors of fixed size, zero at the beginning."""

    def __init__(self, sizes: Recurrent | Mixing, device: Device) -> None:
        self.tensors: dict[str, Tensor] = {
            name: tensor(np.zeros(shape, np.float32), "F32", device=device) for name, shape in sizes.shapes.items()
        }
        self.current_pos = 0

    def take(self, n: int) -> int:
        """Count n tokens as seen, and return how many there were."""
        self.current_pos += n
        return self.current_pos - n

    def clear(self) -> None:
        """Begin again."""
        self.current_pos = 0
        for held in self.tensors.values():
            held.copy_from(np.zeros(held.shape, np.float32))

    def capacity_bytes(self) -> int:
        """Return the bytes of all tensors."""
        return sum(held.desc.nbytes for held in self.tensors.values())
