"""The parts of a decoder's layer, whose parameters are a file's tensors: norms, products, attention, feed-forward.

The parts of a layer are data (`isokern.llm.architectures`). Parameters have the names of the GGUF file's tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..declare.decomposition import Emitter, constant
from ..dtypes import ACTIVATIONS, ALL_WEIGHTS, F32, DType, names
from ..graph.ir import Value
from ..graph.layer import Context, Layer
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .architecture import Config
from .architectures import SCORES_CAP, TEMPERATURE
from .gguf import GGUF
from .places import KeyPlaces
from .ropes import Rope


@dataclass(frozen=True)
class Origin:
    """What all layers of a model are made from: the file, its configuration, and how products take activations."""

    gguf: GGUF
    config: Config
    activations: str

    def has(self, name: str) -> bool:
        """Return whether the file has a tensor."""
        return name in self.gguf.tensors

    def quantization(self, w: Value) -> dict[str, Any]:
        """Return how products with a matrix take activations, as attributes."""
        return {"lhs_quantization": self.activations if w.spec.dtype.block > 1 else "float"}


class Weighted(Layer):
    """A layer whose parameters are tensors of a file: vectors in F32, matrices in the file's type."""

    def __init__(self, origin: Origin) -> None:
        self.origin, self.config = origin, origin.config

    def parameter(self, ctx: Context, name: str, *shape: int, plain: bool = False) -> Value:
        """Return the parameter for the tensor of this layer that is called `name`; `plain` ones become F32."""
        plain = plain or len(shape) == 1
        full, where = f"{ctx.path}.{name}", f"GGUF, layer {ctx.path}"
        held, allowed = self.origin.gguf.tensors.get(full), ACTIVATIONS if plain else ALL_WEIGHTS
        if held is None:
            raise InvalidArgument(where, f"tensor {full} is missing", allowed=f"{list(shape)}")
        if held.shape != shape:
            raise BadTensorShape(where, f"tensor {full} is {list(held.shape)}", allowed=f"{list(shape)}")
        if held.type not in [d.name for d in allowed]:
            raise BadTensorDtype(where, f"tensor {full} is {held.type}", allowed=names(allowed))
        return ctx.parameter(name, shape, F32 if plain else held.dtype)

    def product(self, ctx: Context, x: Value, name: str, outputs: int) -> Value:
        """Return x times the matrix of this layer that is called `name`."""
        return ctx.add(Product(self.origin, outputs, bias=name in self.config.form.biases), x, name=name)

    def norm(self, ctx: Context, x: Value, name: str) -> Value:
        """Return x, normalized; x itself if the layer does not have this norm."""
        return ctx.add(Norm(self.origin), x, name=name) if name else x


class Table(Weighted):
    """The rows of a table, in F32; `weight` is the table once it is emitted."""

    weight: Value

    def __init__(self, origin: Origin, rows: int, width: int | None = None) -> None:
        super().__init__(origin)
        self.rows, self.width = rows, width or origin.config.width

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width] for indices [n]."""
        self.weight = self.parameter(ctx, "weight", self.rows, self.width)
        return ctx.emit("embedding", [self.weight, *ctx.expect(inputs, 1)], dtypes={"T": F32})


class Norm(Weighted):
    """The architecture's norm over the last dim, with a weight vector of the file, and a bias if it has biases."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        given = [x, self.parameter(ctx, "weight", ctx.dim(x, -1))]
        if self.config.form.norm_biases:
            given.append(self.parameter(ctx, "bias", ctx.dim(x, -1)))
        return ctx.emit(self.config.form.norm, given, {"eps": self.config.epsilon})


class Product(Weighted):
    """x wᵀ, plus a bias if the file has one or `bias` is true; w is a matrix of the file, or the one of `tied`."""

    def __init__(self, origin: Origin, outputs: int, *, bias: bool = False, tied: Value | None = None) -> None:
        super().__init__(origin)
        self.outputs, self.bias, self.tied = outputs, bias, tied

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, outputs]."""
        (x,) = ctx.expect(inputs, 1)
        w = self.parameter(ctx, "weight", self.outputs, ctx.dim(x, -1)) if self.tied is None else self.tied
        y = ctx.emit("matmul_transposed", [x, w], self.origin.quantization(w))
        if not self.bias and not self.origin.has(f"{ctx.path}.bias"):
            return y
        return ctx.emit("bias_add", [y, self.parameter(ctx, "bias", self.outputs)])


class Scaled(Layer):
    """x times a factor, and if there is a cap, cap · tanh(that / cap)."""

    def __init__(self, factor: float, cap: float = 0.0) -> None:
        self.factor, self.cap = factor, cap

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        x = multiply(ctx, x, self.factor)
        return ctx.emit("softcap", [x], {"cap": self.cap}) if self.cap else x


class Sum(Layer):
    """The sum of two values."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of both."""
        return ctx.emit("add", ctx.expect(inputs, 2))


class Attention(Weighted):
    """The attention of x's heads to the tokens so far.

    Queries and keys are rotated by their positions; keys and values are put in their caches, and `kept` are these as
    they are then. A layer that sees those of another one is given what this one kept.
    """

    kept: Sequence[Value] = ()

    def __init__(self, origin: Origin, layer: int, places: KeyPlaces, rope: Rope | None) -> None:
        super().__init__(origin)
        self.layer, self.places, self.rope = layer, places, rope

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width].

        The inputs are x [n, width], keys and values, and, if the layer has rope, its frequencies.
        """
        x, keys, values, *turns = inputs
        c = self.config
        sizes = [(c.heads, c.head_dim), (c.kv_heads, c.head_dim), (c.kv_heads, c.value_dim)]
        if c.source(self.layer) != self.layer:
            sizes = sizes[:1]
        if self.origin.has(f"{ctx.path}.attn_qkv.weight"):
            fused = self.product(ctx, x, "attn_qkv", sum(heads * dim for heads, dim in sizes))
            flat = split(ctx, fused, [heads * dim for heads, dim in sizes])
        else:
            flat = None
        made = []
        for i, (name, (heads, dim)) in enumerate(zip("qkv", sizes, strict=False)):
            y = self.product(ctx, x, f"attn_{name}", heads * dim) if flat is None else flat[i]
            y = self._heads(ctx, y, name, heads, dim)
            y = self.rotate(ctx, y, turns) if name != "v" else y
            made.append(self._temper(ctx, y) if name == "q" else y)
        mixed = self.attend(ctx, made, keys, values)
        return self.product(ctx, ctx.emit("collapse_shape", [mixed], {"groups": (2, 2)}), "attn_output", c.width)

    def attend(self, ctx: Context, made: Sequence[Value], keys: Value, values: Value) -> Value:
        """Return the attention of the new q to the caches, to which the new k and v are added, if there are some."""
        c = self.config
        sinks = self.parameter(ctx, "attn_sinks.weight", c.heads) if c.form.sinks else None
        how: dict[str, Any] = {}
        if c.windows[self.layer]:
            how["window"] = c.windows[self.layer]
        if c.scale != made[0].spec.shape[3] ** -0.5:
            how["scale"] = c.scale
        if c.scales.get(SCORES_CAP):
            how["softcap"] = c.scales[SCORES_CAP]
        self.kept = self.places.store(ctx, made[1:], [keys, values]) if len(made) > 1 else [keys, values]
        return self.places.attend(ctx, made[0], self.kept, sinks, how)

    def _heads(self, ctx: Context, y: Value, name: str, heads: int, dim: int) -> Value:
        """Return y [n, heads · dim] as [1, n, heads, dim], with the norm of q and k."""
        kind = self.config.form.head_norms if name != "v" else ""
        own = f"attn_{name}_norm"
        if kind == "row":
            y = self.norm(ctx, y, own)
        shape = (1, y.spec.shape[0], heads, dim)
        y = ctx.emit("expand_shape", [y], {"groups": (2, 2), "shape": shape})
        if kind == "head":
            return self.norm(ctx, y, own)
        if name == "v" and self.config.altup is not None:
            return ctx.emit("rms_norm", [y], {"eps": self.config.epsilon})
        if kind == "heads" and self.origin.has(f"{ctx.path}.{own}.weight"):
            weight = self.parameter(ctx, f"{own}.weight", heads, dim, plain=True)
            even = ctx.emit(self.config.form.norm, [y], {"eps": self.config.epsilon})
            return emitter(ctx).pointwise("x0 * x1", even, weight)
        return y

    def _temper(self, ctx: Context, q: Value) -> Value:
        """Return queries [1, n, heads, dim] times a factor of their positions, if the model has a temperature."""
        c = self.config
        if not c.stretch:
            return q
        e = emitter(ctx)
        turn = e.cast(e.loop("a->a", f"quotient(x0, {c.stretch})", self.places.positions), F32)
        factor = f"1 + {constant(c.scales[TEMPERATURE])} * log(1 + x0)"
        return e.loop("abcd,b->abcd", "x0 * x1", q, e.loop("a->a", factor, turn))

    def rotate(self, ctx: Context, x: Value, turns: Sequence[Value]) -> Value:
        """Return x [1, n, heads, dim], rotated if the layer has rope."""
        if self.rope is None:
            return x
        c = self.config
        how: dict[str, Any] = {"pairing": c.form.pairing, "dims": c.rotated, "magnitude": self.rope.magnitude}
        return ctx.emit("rope", [x, self.places.positions, *turns], how)


class FeedForward(Weighted):
    """down(gate(gate x, up x)), or down(gate(up x)) if the gate is a function of one."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width]."""
        (x,) = ctx.expect(inputs, 1)
        c = self.config
        return emit_network(self, ctx, x, "", c.inner, c.form.fused_gate)


def emit_network(layer: Weighted, ctx: Context, x: Value, suffix: str, inner: int, fused: bool = False) -> Value:
    """Return the feed-forward network of the tensors whose names end in `suffix`."""
    gate = layer.config.form.gate
    if fused:
        halves = split(ctx, layer.product(ctx, x, f"ffn_up{suffix}", 2 * inner), [inner, inner])
    elif gate in ("gelu", "gelu_tanh"):
        halves = [layer.product(ctx, x, f"ffn_up{suffix}", inner)]
    else:
        halves = [layer.product(ctx, x, f"ffn_{name}{suffix}", inner) for name in ("gate", "up")]
    return layer.product(ctx, ctx.emit(gate, halves), f"ffn_down{suffix}", layer.config.width)


def emitter(ctx: Context) -> Emitter[Value]:
    """Return an emitter of loop nests in a layer."""

    def emit(
        kind: str, inputs: Sequence[Value | None], attrs: Mapping[str, Any], dtypes: Mapping[str, DType] | None
    ) -> Sequence[Value]:
        return ctx.emit_all(kind, inputs, attrs, dtypes=dtypes)

    return Emitter(emit)


def multiply(ctx: Context, x: Value, factor: float) -> Value:
    """Return x times a number; x itself for 1."""
    return x if factor == 1 else emitter(ctx).pointwise(f"x0 * {constant(factor)}", x)


def split(ctx: Context, x: Value, widths: Sequence[int]) -> list[Value]:
    """Return parts of x along the last dim, one after the other: views."""
    ends = [sum(widths[: i + 1]) for i in range(len(widths))]
    last, pairs = x.spec.ndim - 1, zip(ends, widths, strict=True)
    return [ctx.emit("slice", [x], {"starts": (end - w,), "ends": (end,), "axes": (last,)}) for end, w in pairs]
