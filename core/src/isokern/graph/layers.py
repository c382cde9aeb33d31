"""Layers: the parts of a model.

Each emits declared operators into the graph, with parameters of its own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..status import BadTensorShape, InvalidArgument
from .ir import Value
from .layer import Context, Layer

Pair = int | Sequence[int]


class Operation(Layer):
    """One operator without parameters, by the name and the attributes of its declaration."""

    def __init__(self, kind: str, **attrs: Any) -> None:
        self.kind, self.attrs = kind, attrs

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Emit the operator and return its one output."""
        return ctx.emit(self.kind, inputs, self.attrs)


class ReLU(Operation):
    """max(x, 0)."""

    def __init__(self) -> None:
        super().__init__("relu")


class GELU(Operation):
    """The Gaussian error linear unit, exact or by tanh."""

    def __init__(self, approximate: bool = False) -> None:
        super().__init__("gelu_tanh" if approximate else "gelu")


class SiLU(Operation):
    """x sigmoid(x)."""

    def __init__(self) -> None:
        super().__init__("silu")


class Add(Operation):
    """a + b, broadcast."""

    def __init__(self) -> None:
        super().__init__("add")


class Softmax(Operation):
    """Softmax along an axis."""

    def __init__(self, axis: int = -1) -> None:
        super().__init__("softmax", axis=axis)


class Flatten(Operation):
    """The dims from `start_axis` to `end_axis` merged into one."""

    def __init__(self, start_axis: int = 1, end_axis: int = -1) -> None:
        super().__init__("flatten", start_axis=start_axis, end_axis=end_axis)


class MaxPool2d(Operation):
    """The largest element of each window of [n, c, h, w]; the default stride is the kernel's size."""

    def __init__(self, kernel: Pair, stride: Pair | None = None, padding: Pair = 0, dilation: Pair = 1) -> None:
        steps = () if stride is None else _pair(stride)
        super().__init__(
            "max_pool2d", kernel=_pair(kernel), stride=steps, padding=_pair(padding), dilation=_pair(dilation)
        )


class AvgPool2d(Operation):
    """The mean of each window of [n, c, h, w]."""

    def __init__(
        self, kernel: Pair, stride: Pair | None = None, padding: Pair = 0, count_include_pad: bool = False
    ) -> None:
        steps = () if stride is None else _pair(stride)
        where = {"kernel": _pair(kernel), "stride": steps, "padding": _pair(padding)}
        super().__init__("avg_pool2d", **where, count_include_pad=count_include_pad)


class AdaptiveAvgPool2d(Operation):
    """The mean of each of `output_size` windows of [n, c, h, w]."""

    def __init__(self, output_size: Pair) -> None:
        super().__init__("adaptive_avg_pool2d", output_size=_pair(output_size))


class Linear(Layer):
    """x wᵀ + bias along the last dim: weight [outputs, inputs], bias [outputs]."""

    def __init__(self, outputs: int, *, bias: bool = True) -> None:
        self.outputs, self.bias = outputs, bias

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return […, outputs]."""
        (x,) = ctx.expect(inputs, 1)
        k = ctx.dim(x, -1)
        w = ctx.parameter("weight", (self.outputs, k), x.spec.dtype, scale=1 / math.sqrt(max(1, k)))
        b = ctx.parameter("bias", (self.outputs,), x.spec.dtype, scale=0) if self.bias else None
        return ctx.emit("linear", [x, w, b])


class Conv2d(Layer):
    """A convolution of [n, c, h, w]: weight [channels, c / groups, kh, kw], bias [channels]."""

    def __init__(
        self,
        channels: int,
        kernel: Pair,
        *,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        self.channels, self.kernel, self.bias = channels, _pair(kernel), bias
        self.attrs = {"stride": _pair(stride), "padding": _pair(padding), "dilation": _pair(dilation), "groups": groups}

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, channels, oh, ow]."""
        (x,) = ctx.expect(inputs, 1)
        c, groups = ctx.dim(x, 1, rank=4), self.attrs["groups"]
        if not isinstance(groups, int) or groups < 1 or c % groups:
            raise InvalidArgument("conv2d", f"groups={groups} of {c} channels", allowed="a divisor of the channels")
        shape = (self.channels, c // groups, *self.kernel)
        w = ctx.parameter("weight", shape, x.spec.dtype, scale=1 / math.sqrt(max(1, math.prod(shape[1:]))))
        b = ctx.parameter("bias", (self.channels,), x.spec.dtype, scale=0) if self.bias else None
        return ctx.emit("conv2d", [x, w, b], self.attrs)


class BatchNorm(Layer):
    """Normalization of each channel by the statistics of training: mean, variance, weight and bias are [c]."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a tensor of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        c = (ctx.dim(x, 1),)
        begins = {"running_mean": 0, "running_var": 1, "weight": 1, "bias": 0}
        held = [ctx.parameter(name, c, x.spec.dtype, scale=0, shift=value) for name, value in begins.items()]
        return ctx.emit("batch_norm", [x, *held], {"eps": self.eps})


class LayerNorm(Layer):
    """Normalization of each row by its mean and variance; weight and bias have the last dim."""

    def __init__(self, eps: float = 1e-5) -> None:
        self.eps = eps

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a tensor of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        d = (ctx.dim(x, -1),)
        w = ctx.parameter("weight", d, x.spec.dtype, scale=0, shift=1)
        b = ctx.parameter("bias", d, x.spec.dtype, scale=0)
        return ctx.emit("layer_norm", [x, w, b], {"eps": self.eps})


class RMSNorm(Layer):
    """Each row divided by the root of its mean square; the weight has the last dim."""

    def __init__(self, eps: float = 1e-6) -> None:
        self.eps = eps

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a tensor of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        w = ctx.parameter("weight", (ctx.dim(x, -1),), x.spec.dtype, scale=0, shift=1)
        return ctx.emit("rms_norm", [x, w], {"eps": self.eps})


class Embedding(Layer):
    """Rows of a table [count, width], selected by I64 indices."""

    def __init__(self, count: int, width: int, dtype: object = "F32") -> None:
        self.count, self.width, self.dtype = count, width, dtype

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return […, width]."""
        (indices,) = ctx.expect(inputs, 1)
        table = ctx.parameter("weight", (self.count, self.width), self.dtype, scale=1)
        return ctx.emit("embedding", [table, indices], dtypes={"T": self.dtype})


class SwiGLU(Layer):
    """The feed-forward part of Llama: down(silu(gate x) · up x), without biases."""

    def __init__(self, inner: int) -> None:
        self.inner = inner

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a tensor of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        gate = ctx.add(Linear(self.inner, bias=False), x, name="gate")
        up = ctx.add(Linear(self.inner, bias=False), x, name="up")
        return ctx.add(Linear(ctx.dim(x, -1), bias=False), ctx.emit("silu_mul", [gate, up]), name="down")


class RotaryAttention(Layer):
    """Causal attention of x [b, s, d] with rotary positions.

    `heads` of queries share `kv_heads` of keys and values. Heads are `head_dim` wide, by default d / heads; positions
    begin at `start_pos`.
    """

    def __init__(
        self,
        heads: int,
        kv_heads: int | None = None,
        *,
        head_dim: int | None = None,
        theta: float = 10000.0,
        pairing: str = "half",
        start_pos: int = 0,
        bias: bool = False,
    ) -> None:
        self.heads, self.kv_heads, self.head_dim, self.bias = heads, kv_heads or heads, head_dim, bias
        self.rope = {"theta": theta, "pairing": pairing, "start_pos": start_pos}

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a tensor of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        d = ctx.dim(x, -1, rank=3)
        if self.heads % self.kv_heads or (self.head_dim is None and d % self.heads):
            given = f"{self.heads} heads of queries, {self.kv_heads} of keys, of {d} elements"
            allowed = "heads that divide the elements, and heads of keys that divide them"
            raise InvalidArgument("rotary_attention", given, allowed=allowed)
        width = self.head_dim or d // self.heads
        q, k, v = (
            self._heads(ctx, x, heads, width, name)
            for name, heads in (("q", self.heads), ("k", self.kv_heads), ("v", self.kv_heads))
        )
        q, k = (ctx.emit("rope", [t], self.rope) for t in (q, k))
        mixed = ctx.emit("attention", [q, k, v], {"causal": True})
        flat = ctx.emit("collapse_shape", [mixed], {"groups": (1, 1, 2)})
        return ctx.add(Linear(d, bias=False), flat, name="o")

    def _heads(self, ctx: Context, x: Value, heads: int, width: int, name: str) -> Value:
        flat = ctx.add(Linear(heads * width, bias=self.bias), x, name=name)
        shape = (*x.spec.shape[:2], heads, width)
        return ctx.emit("expand_shape", [flat], {"groups": (1, 1, 2), "shape": shape})


class Sequential(Layer):
    """Layers in sequence; each takes the result of the one before."""

    def __init__(self, *layers: Layer) -> None:
        self.layers = layers

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return the result of the last layer."""
        (x,) = ctx.expect(inputs, 1)
        for n, layer in enumerate(self.layers):
            x = ctx.add(layer, x, name=str(n))
        return x


class Residual(Layer):
    """x + layer(x), or shortcut(x) + layer(x)."""

    def __init__(self, layer: Layer, shortcut: Layer | None = None) -> None:
        self.layer, self.shortcut = layer, shortcut

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return the sum."""
        (x,) = ctx.expect(inputs, 1)
        beside = x if self.shortcut is None else ctx.add(self.shortcut, x, name="shortcut")
        y = ctx.add(self.layer, x, name="layer")
        if y.spec.shape != beside.spec.shape:
            raise BadTensorShape(
                "residual", f"{y!r} added to {beside!r}", allowed="one shape", hint="give it a shortcut"
            )
        return ctx.emit("add", [y, beside])


def _pair(given: Pair) -> tuple[int, ...]:
    return (given, given) if isinstance(given, int) else tuple(given)
