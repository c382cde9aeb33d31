"""A model of the Llama family as a graph: a few new tokens after those in its caches.

The parameters have the names of the GGUF file's tensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..dtypes import ACTIVATIONS, ALL_WEIGHTS, F32, names
from ..graph.ir import INPUT, Graph, Value
from ..graph.layer import Context, Layer
from ..graph.model import Model
from ..status import BadTensorDtype, BadTensorShape, InvalidArgument
from .architecture import Config
from .gguf import GGUF, quote_name

HISTORY = 64  # tokens that a repetition penalty looks back on
FREQUENCIES = "rope_freqs"  # the parameter that the configuration computes; no tensor of the file has it as it is


@dataclass(frozen=True)
class Sampling:
    """How the next token is drawn: the attributes of `random_sample`."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    penalty: float = 1.0
    seed: int = 0


@dataclass(frozen=True)
class TokenStep:
    """What a graph of the model computes: `tokens` new tokens, over caches of `length` positions and the dtype `cache`.

    Its result is the logits of the last token, or of all with `every`. With `sampling` the graph also draws the next
    token and leaves it, and its position, in its inputs `tokens` and `start`: run again, it computes the next step.
    `activations` is how activations enter products with quantised weights.
    """

    length: int
    tokens: int = 1
    cache: object = "F16"
    activations: str = "float"
    every: bool = False
    sampling: Sampling | None = None


def decoder(gguf: GGUF, config: Config, step: TokenStep) -> Model:
    """Return the graph of a file's model for a step.

    Inputs: `tokens` I64 [n], `start` I64 [1] (their first position), for each layer `blk.N.keys` and `blk.N.values` [1,
    length, heads, dim], and with a repetition penalty `history` I64 [1, HISTORY]. Results: logits F32 [1 or n,
    vocabulary]; with sampling also `tokens` and `start` as they are afterwards. InvalidArgument, BadTensorShape or
    BadTensorDtype name the layer and the tensor that the file lacks or has in another shape or type.
    """
    c, n, made = config, step.tokens, Model(config.architecture)
    emit = made.builder.emit
    tokens, start = made.input("tokens", (n,), "I64"), made.input("start", (1,), "I64")
    (count,) = emit("fill", [], {"value": n, "shape": (1,)}, name="count", dtypes={"T": "I64"})
    (lengths,) = emit("add", [start, count], name="lengths")
    positions = start
    if n > 1:
        (numbers,) = emit("iota", [], {"shape": (n,)}, name="positions", dtypes={"T": "I64"})
        (positions,) = emit("add", [numbers, start], name="positions")
    frequencies = made.builder.parameter(FREQUENCIES, (c.rotated // 2,))
    table = Table(gguf, (c.vocabulary, c.width))
    x = made.add(table, tokens, name="token_embd")
    for layer in range(c.layers):
        own = f"blk.{layer}"
        keys, values = (
            made.input(f"{own}.{name}", (1, step.length, c.kv_heads, dim), step.cache)
            for name, dim in (("keys", c.head_dim), ("values", c.value_dim))
        )
        place = positions, start, lengths, frequencies
        x = made.add(Attention(gguf, c, step.activations), x, keys, values, *place, name=own)
        x = made.add(FeedForward(gguf, c, step.activations), x, name=own)
    x = made.add(Norm(gguf, c.epsilon), x, name="output_norm")
    if n > 1 and not step.every:
        (x,) = emit("slice", [x], {"starts": (n - 1,), "ends": (n,), "axes": (0,)}, name="last")
    tied = None if "output.weight" in gguf.tensors else table.weight
    logits = made.add(Product(gguf, c.vocabulary, step.activations, tied=tied), x, name="output")
    made.output(logits)
    if step.sampling is not None:
        made.output(*_draw(made, step.sampling, logits, tokens, start, lengths))
    _check_all_used(gguf, {v.name for v in made.graph.parameters})
    return made


def _check_all_used(gguf: GGUF, used: set[str]) -> None:
    """Refuse tensors that are no parameters: the file's model would compute something else."""
    strange = [name for name in gguf.tensors if name not in used and name != f"{FREQUENCIES}.weight"]
    if strange:
        given = f"{len(strange)} tensors are not used: {', '.join(quote_name(n) for n in strange[:8])}"
        raise InvalidArgument("GGUF", given, allowed="the tensors of its architecture")


def _draw(
    made: Model, sampling: Sampling, logits: Value, tokens: Value, start: Value, lengths: Value
) -> Sequence[Value]:
    """Return the inputs `tokens` and `start`, updated with the token that is drawn and its position."""
    emit, rows = made.builder.emit, logits.spec.shape[0]
    history = made.input("history", (1, HISTORY), "I64") if sampling.penalty != 1 else None
    if rows > 1:
        (logits,) = emit("slice", [logits], {"starts": (rows - 1,), "ends": (rows,), "axes": (0,)}, name="last")
    (token,) = emit("random_sample", [logits, history, lengths], asdict(sampling), name="sample")
    at = {"count": 1, "y_offset": tokens.spec.shape[0] - 1}
    (drawn,) = emit("copy_slice", [token, tokens], at, name="tokens")
    (moved,) = emit("copy_slice", [lengths, start], {"count": 1}, name="start")
    return drawn, moved


def updated_inputs(graph: Graph) -> list[str]:
    """Return the names of the inputs that operators of a graph update: its state."""
    return list(dict.fromkeys(old.name for op in graph.ops for old, _ in op.updated if old.role == INPUT))


class _Weighted(Layer):
    """A layer whose parameters are tensors of a file: vectors in F32, matrices in the file's type."""

    def __init__(self, gguf: GGUF) -> None:
        self.gguf = gguf

    def parameter(self, ctx: Context, name: str, *shape: int) -> Value:
        """Return the parameter for the tensor of this layer that is called `name`."""
        full, where = f"{ctx.path}.{name}", f"GGUF, layer {ctx.path}"
        held, allowed = self.gguf.tensors.get(full), ALL_WEIGHTS if len(shape) == 2 else ACTIVATIONS
        if held is None:
            raise InvalidArgument(where, f"tensor {full} is missing", allowed=f"{list(shape)}")
        if held.shape != shape:
            raise BadTensorShape(where, f"tensor {full} is {list(held.shape)}", allowed=f"{list(shape)}")
        if held.type not in [d.name for d in allowed]:
            raise BadTensorDtype(where, f"tensor {full} is {held.type}", allowed=names(allowed))
        return ctx.parameter(name, shape, F32 if len(shape) == 1 else held.dtype)


class Table(_Weighted):
    """The rows of the embedding table, in F32; `weight` is the table once it is emitted."""

    weight: Value

    def __init__(self, gguf: GGUF, shape: tuple[int, int]) -> None:
        super().__init__(gguf)
        self.shape = shape

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width] for tokens [n]."""
        self.weight = self.parameter(ctx, "weight", *self.shape)
        return ctx.emit("embedding", [self.weight, *ctx.expect(inputs, 1)], dtypes={"T": F32})


class Norm(_Weighted):
    """rms_norm with a weight vector of the file."""

    def __init__(self, gguf: GGUF, epsilon: float) -> None:
        super().__init__(gguf)
        self.epsilon = epsilon

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        return ctx.emit("rms_norm", [x, self.parameter(ctx, "weight", ctx.dim(x, -1))], {"eps": self.epsilon})


class Product(_Weighted):
    """x wᵀ, plus a bias if the file has one or `bias` is true; w is a matrix of the file, or the one of `tied`."""

    def __init__(
        self, gguf: GGUF, outputs: int, activations: str, *, bias: bool = False, tied: Value | None = None
    ) -> None:
        super().__init__(gguf)
        self.outputs, self.activations, self.bias, self.tied = outputs, activations, bias, tied

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, outputs]."""
        (x,) = ctx.expect(inputs, 1)
        w = self.parameter(ctx, "weight", self.outputs, ctx.dim(x, -1)) if self.tied is None else self.tied
        how = {"lhs_quantization": self.activations if w.spec.dtype.block > 1 else "float"}
        y = ctx.emit("matmul_transposed", [x, w], how)
        if not self.bias and f"{ctx.path}.bias" not in self.gguf.tensors:
            return y
        return ctx.emit("bias_add", [y, self.parameter(ctx, "bias", self.outputs)])


class Attention(_Weighted):
    """x plus the attention of its heads to the tokens so far.

    Queries and keys are rotated by their positions; keys and values are put in their caches.
    """

    def __init__(self, gguf: GGUF, config: Config, activations: str) -> None:
        super().__init__(gguf)
        self.config, self.activations = config, activations

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x.

        The inputs are x [n, width], keys, values, positions [n], start [1], lengths [1] and frequencies.
        """
        x, keys, values, positions, start, lengths, frequencies = ctx.expect(inputs, 7)
        c = self.config
        normed = ctx.add(Norm(self.gguf, c.epsilon), x, name="attn_norm")
        q = self._rotate(ctx, self._heads(ctx, normed, "q", c.heads, c.head_dim), "q", positions, frequencies)
        k = self._rotate(ctx, self._heads(ctx, normed, "k", c.kv_heads, c.head_dim), "k", positions, frequencies)
        v = self._heads(ctx, normed, "v", c.kv_heads, c.value_dim)
        keys, values = (ctx.emit("cache_update", [new, start, held]) for new, held in ((k, keys), (v, values)))
        mixed = ctx.emit("attention", [q, keys, values, None, lengths], {"causal": True})
        flat = ctx.emit("collapse_shape", [mixed], {"groups": (2, 2)})
        return ctx.emit("add", [self._product(ctx, flat, "attn_output", c.width), x])

    def _product(self, ctx: Context, x: Value, name: str, outputs: int, bias: bool = False) -> Value:
        return ctx.add(Product(self.gguf, outputs, self.activations, bias=bias), x, name=name)

    def _heads(self, ctx: Context, x: Value, name: str, heads: int, dim: int) -> Value:
        y = self._product(ctx, x, f"attn_{name}", heads * dim, bias=self.config.variant.biases)
        shape = (1, x.spec.shape[0], heads, dim)
        return ctx.emit("expand_shape", [y], {"groups": (2, 2), "shape": shape})

    def _rotate(self, ctx: Context, x: Value, name: str, positions: Value, frequencies: Value) -> Value:
        c = self.config
        if c.variant.head_norms:
            x = ctx.add(Norm(self.gguf, c.epsilon), x, name=f"attn_{name}_norm")
        how: dict[str, Any] = {"pairing": c.variant.pairing, "dims": c.rotated, "magnitude": c.magnitude}
        return ctx.emit("rope", [x, positions, frequencies], how)


class FeedForward(_Weighted):
    """x + down(silu(gate x') · up x'), where x' is x normalised."""

    def __init__(self, gguf: GGUF, config: Config, activations: str) -> None:
        super().__init__(gguf)
        self.config, self.activations = config, activations

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x."""
        (x,) = ctx.expect(inputs, 1)
        c = self.config
        normed = ctx.add(Norm(self.gguf, c.epsilon), x, name="ffn_norm")
        gate, up = (self._product(ctx, normed, f"ffn_{name}", c.inner) for name in ("gate", "up"))
        return ctx.emit("add", [self._product(ctx, ctx.emit("silu_mul", [gate, up]), "ffn_down", c.width), x])

    def _product(self, ctx: Context, x: Value, name: str, outputs: int) -> Value:
        return ctx.add(Product(self.gguf, outputs, self.activations), x, name=name)
