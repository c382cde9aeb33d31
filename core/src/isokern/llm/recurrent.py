"""Layers of selective state spaces, Mamba and Mamba-2, which keep as much of a long text as of a short one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..backend import Device
from ..declare.decomposition import constant
from ..dtypes import I64
from ..graph.ir import Value
from ..graph.layer import Context
from ..tensors import Tensor, tensor
from .layers import Origin, Weighted, emitter, split
from .parts import Mixing, Recurrent
from .places import Run, StatePlaces

NO_STEP = -1e30  # softplus of it, and of it plus any bias, is 0: the state stays as it is


class StateLayer(Weighted):
    """x plus the state space of x normalized; its inputs are x, the last convolved elements, and the state.

    `kept` are both as they are afterwards, which have to be results of the graph.
    """

    kept: tuple[Value, ...] = ()

    def __init__(self, origin: Origin, places: StatePlaces) -> None:
        super().__init__(origin)
        self.places = places

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
        x, z = split(ctx, self.product(ctx, x, "ssm_in", 2 * c.inner), [c.inner, c.inner])
        convolved = self._convolve(ctx, x, conv)
        row = self.product(ctx, self._join_rows(ctx, convolved), "ssm_x", c.rank + 2 * c.state)
        parts = split(ctx, row, [c.rank, c.state, c.state])
        if c.even:
            parts = [ctx.emit("rms_norm", [part], {"eps": self.config.epsilon}) for part in parts]
        step = self.product(ctx, parts[0], "ssm_dt", c.inner)
        a, d = self.parameter(ctx, "ssm_a", c.inner, c.state, plain=True), self.parameter(ctx, "ssm_d", c.inner)
        made, last = [], []
        for run, before, y in zip(self.places.runs, self.places.read(ctx, state), convolved, strict=True):
            steps, *pair, gate = (self._channels(ctx, run, part) for part in (step, *parts[1:], z))
            steps = mask(ctx, run, "bdl,l->bdl", steps, NO_STEP)
            given = [y, steps, a, *pair, d, gate, None, before]
            scanned, after = ctx.emit_all("selective_scan", given, {"delta_softplus": True})
            made.append(scanned)
            last.append(after)
        self.kept = (*self.kept, self.places.write(ctx, state, last))
        return self._join_rows(ctx, made)

    def _mix_heads(self, ctx: Context, x: Value, conv: Value, state: Value, c: Recurrent) -> Value:
        """Return Mamba-2's [n, inner]: all of a token is one product, and a head has one decay."""
        e, n, shared = emitter(ctx), x.spec.shape[0], c.groups * c.state
        row = self.product(ctx, x, "ssm_in", c.inner + c.convolved + c.heads)
        z, x, step = split(ctx, row, [c.inner, c.convolved, c.heads])
        parts = split(ctx, self._join_rows(ctx, self._convolve(ctx, x, conv)), [c.inner, shared, shared])
        a, d = (e.collapse(self.parameter(ctx, f"ssm_{name}", c.heads, 1, plain=True), (2,)) for name in "ad")
        bias = self.parameter(ctx, "ssm_dt.bias", c.heads)
        made, last = [], []
        for run, before in zip(self.places.runs, self.places.read(ctx, state), strict=True):
            sequences = run.count, run.length
            heads, groups = (*sequences, c.heads, c.inner // c.heads), (*sequences, c.groups, c.state)
            shapes = (heads, groups, groups, heads, (*sequences, c.heads))
            y, b, k, gate, steps = (
                e.reshape(run.cut(ctx, part), shape) for part, shape in zip((*parts, z, step), shapes, strict=True)
            )
            given = [y, mask(ctx, run, "blh,l->blh", steps, NO_STEP), a, b, k, d, gate, bias, before]
            scanned, after = ctx.emit_all("ssd_scan", given, {"dt_softplus": True})
            made.append(e.reshape(scanned, (run.count * run.length, c.groups, c.inner // c.groups)))
            last.append(after)
        self.kept = (*self.kept, self.places.write(ctx, state, last))
        weight = self.parameter(ctx, "ssm_norm.weight", c.groups, c.inner // c.groups, plain=True)
        even = ctx.emit("rms_norm", [join(ctx, made)], {"eps": self.config.epsilon})
        return e.reshape(e.pointwise("x0 * x1", even, weight), (n, c.inner))

    def _convolve(self, ctx: Context, x: Value, conv: Value) -> list[Value]:
        """Return silu of x [n, channels], convolved with what came before, as [count, channels, length] of each run."""
        e, channels, before = emitter(ctx), x.spec.shape[1], conv.spec.shape[-1]
        w = self.parameter(ctx, "ssm_conv1d.weight", channels, before + 1, plain=True)
        bias = self.parameter(ctx, "ssm_conv1d.bias", channels)
        made, last = [], []
        for run, held in zip(self.places.runs, self.places.read(ctx, conv), strict=True):
            own = self._channels(ctx, run, x)
            y, kept = ctx.emit_all("causal_conv1d", [own, w, bias, held], {"activation": "silu"})
            if run.last is not None:
                ends = ctx.emit("add", [e.iota(before, I64, start=1), run.last])
                kept = e("gather", e("concat", held, own, axis=2), ends, axis=2)
            made.append(y)
            last.append(kept)
        self.kept = (*self.kept, self.places.write(ctx, conv, last))
        return made

    def _channels(self, ctx: Context, run: Run, x: Value) -> Value:
        """Return the rows of a run, of x [n, channels], as [count, channels, length]."""
        e, x = emitter(ctx), run.cut(ctx, x)
        if run.length == 1 < run.count:
            return e("expand_shape", x, groups=(1, 2), shape=(*x.spec.shape, 1))
        return e("expand_shape", e("transpose", x, axes=(1, 0)), groups=(2, 1), shape=(1, *reversed(x.spec.shape)))

    def _join_rows(self, ctx: Context, parts: Sequence[Value]) -> Value:
        """Return what each run has as [count, channels, length] as rows [n, channels]."""
        e = emitter(ctx)
        return join(
            ctx,
            [
                e.collapse(x, (1, 2)) if x.spec.shape[0] > 1 else e("transpose", e.collapse(x, (2, 1)), axes=(1, 0))
                for x in parts
            ],
        )


def mask(ctx: Context, run: Run, maps: str, x: Value, otherwise: float) -> Value:
    """Return x of a run with a different value for padding; x itself if there is none."""
    if run.real is None:
        return x
    return emitter(ctx).loop(maps, f"x0 if x1 > 0 else {constant(otherwise)}", x, run.real)


def join(ctx: Context, parts: Sequence[Value]) -> Value:
    """Return the rows of all runs; the part itself if there is only one."""
    return parts[0] if len(parts) == 1 else emitter(ctx)("concat", *parts, axis=0)


class LayerState:
    """A layer's summary of the tokens so far: tensors of fixed size, zero at the beginning."""

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
