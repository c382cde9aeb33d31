"""Layers of several branches a token, Gemma 3n's: one is computed, the others are predicted and corrected (AltUp).

Branches are one value [branches, n, width]. A layer predicts all of them by a mixture, computes attention and a
feed-forward network of the active one, and corrects the others by how far it was from its prediction. A low-rank
product (LAuReL) runs parallel to attention, and the layer's own embedding of each token is added after it.
"""

from __future__ import annotations

from ..dtypes import F32, I64
from ..graph.ir import Value
from ..graph.layer import Context, Layer
from ..graph.model import Model
from .layers import Attention, Norm, Origin, Product, Table, Weighted, emitter, multiply
from .parts import AltUp
from .places import KeyPlaces
from .ropes import Rope

FLOOR = 1e-5  # added to the mean square that a branch is divided by


class AltUpWeighted(Weighted):
    """A layer of a model with branches."""

    @property
    def altup(self) -> AltUp:
        """The sizes of branches."""
        assert self.config.altup is not None
        return self.config.altup

    def take(self, ctx: Context, x: Value, branch: int) -> Value:
        """Return one branch [n, width]."""
        e = emitter(ctx)
        return e.collapse(e("slice", x, starts=(branch,), ends=(branch + 1,), axes=(0,)), (2, 1))

    def project(self, ctx: Context, x: Value) -> Value:
        """Return the products [n, branches - 1, width] of a row, or of rows of their own, with a matrix of each."""
        e, width, more = emitter(ctx), self.config.width, self.altup.count - 1
        ids = e("iota", shape=(x.spec.shape[0], more), axis=1, dtypes={"T": I64})
        w = self.parameter(ctx, "weight", more, width, width)
        return e("matmul_id", x, w, ids, **self.origin.quantization(w))

    def mean_square(self, ctx: Context, x: Value) -> Value:
        """Return the mean square of the last dim of x [n, d] or [n, branches, d]."""
        letters = "abc"[: x.spec.ndim]
        squares = emitter(ctx).loop(f"{letters}->{letters[:-1]}", "x0 * x0", x, combine="sum")
        return multiply(ctx, squares, 1 / x.spec.shape[-1])

    def level(self, ctx: Context, x: Value, like: Value) -> Value:
        """Return rows x [n, branches - 1, width] with the root mean square that the row of `like` [n, width] has."""
        own, other = self.mean_square(ctx, x), self.mean_square(ctx, like)
        body = f"x0 * sqrt(x1) / sqrt(maximum(x2, {FLOOR}))"
        return emitter(ctx).loop("abc,a,ab->abc", body, x, other, own)


class Spread(AltUpWeighted):
    """The branches of embeddings x [n, width]: x, and its products with a matrix each, as large as x."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [branches, n, width]."""
        (x,) = ctx.expect(inputs, 1)
        e = emitter(ctx)
        more = e.loop("abc->bac", "x0", self.level(ctx, self.project(ctx, x), x))
        return e("concat", e.reshape(x, (1, *x.spec.shape)), more, axis=0)


class Merge(AltUpWeighted):
    """The mean of the first branch and of products of the others, which are as large as it."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width]."""
        (x,) = ctx.expect(inputs, 1)
        e, count = emitter(ctx), self.altup.count
        first = self.take(ctx, x, 0)
        others = e.loop("abc->bac", "x0", e("slice", x, starts=(1,), ends=(count,), axes=(0,)))
        others = self.level(ctx, self.project(ctx, others), first)
        total = e.loop("abc->ac", "x0", others, combine="sum", init=first)
        return multiply(ctx, total, 1 / count)


class TokenRows(Norm):
    """What each layer gets of each token: a row of a table, and one of a product of its embedding, which is normed."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, layers, inner] of the table's rows and the products, both [n, layers · inner]."""
        e, c = emitter(ctx), self.config
        assert c.altup is not None
        shape = (inputs[0].spec.shape[0], c.layers, c.altup.inner)
        row, product = (e.reshape(x, shape) for x in ctx.expect(inputs, 2))
        normed = super().emit(ctx, multiply(ctx, product, c.width**-0.5))
        return e.pointwise(f"(x0 * {c.altup.inner**0.5!r} + x1) * {0.5**0.5!r}", row, normed)


class KnownTokens(Layer):
    """Tokens below a number; 0 in place of the others."""

    def __init__(self, count: int) -> None:
        self.count = count

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return tokens of the shape of those given."""
        (tokens,) = ctx.expect(inputs, 1)
        return emitter(ctx).loop("a->a", f"x0 if x0 < {self.count} else 0", tokens)


def add_rows(made: Model, origin: Origin, tokens: Value, x: Value) -> Value:
    """Return what each layer gets [n, layers, inner] of tokens [n] and their embeddings [n, width].

    The table may have fewer rows than there are tokens: the others (images, sounds) get the first one.
    """
    c = origin.config
    assert c.altup is not None
    wide = c.layers * c.altup.inner
    held = origin.gguf.tensors.get("per_layer_token_embd.weight")
    count = min(held.shape[0], c.vocabulary) if held is not None and len(held.shape) == 2 else c.vocabulary
    if count < c.vocabulary:
        tokens = made.apply(KnownTokens(count), [tokens], "per_layer_token_embd")
    row = made.add(Table(origin, count, wide), tokens, name="per_layer_token_embd")
    product = made.add(Product(origin, wide), x, name="per_layer_model_proj")
    return made.add(TokenRows(origin), row, product, name="per_layer_proj_norm")


class AltUpLayer(AltUpWeighted):
    """One layer: its inputs are the branches, rows of the tables [n, layers, inner], and those of `Attention`."""

    def __init__(self, origin: Origin, layer: int, places: KeyPlaces, rope: Rope | None) -> None:
        super().__init__(origin)
        self.layer, self.attention = layer, Attention(origin, layer, places, rope)

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return the branches [branches, n, width]."""
        x, rows, *rest = inputs
        e, form, active = emitter(ctx), self.config.form, self.altup.active
        width, count = self.config.width, self.altup.count
        router = (
            self.parameter(ctx, "altup_router_norm.weight", width),
            self.parameter(ctx, "altup_router.weight", count, width),
        )
        predicted = self._predict(ctx, x, router)
        now = self.take(ctx, predicted, active)
        normed = self.norm(ctx, now, form.before[0])
        mixed = self.norm(ctx, ctx.apply(self.attention, [normed, *rest]), form.after[0])
        beside = e.pointwise("x0 + x1", normed, self._laurel(ctx, normed))
        mixed = e.pointwise(f"(x0 + x1 + x2) * {0.5**0.5!r}", now, mixed, beside)
        made = self.norm(ctx, self._network(ctx, self.norm(ctx, mixed, form.before[1])), form.after[1])
        corrected = self._correct(ctx, predicted, now, e.pointwise("x0 + x1", mixed, made), router)
        first = self.take(ctx, corrected, active)
        more = self._enter(ctx, first, rows)
        numbers = e.cast(e.iota(count, I64), F32)
        return e.loop("abc,bc,a->abc", "x0 + (x1 if x2 > 0 else 0)", corrected, more, numbers)

    def _route(self, ctx: Context, x: Value, router: tuple[Value, Value]) -> Value:
        """Return [n, branches], of which predictions and corrections are products; `router` are norm and matrix."""
        weight, matrix = router
        normed = ctx.emit(self.config.form.norm, [x, weight], {"eps": self.config.epsilon})
        scaled = multiply(ctx, normed, 1 / self.config.width)
        routed = ctx.add(Product(self.origin, self.altup.count, tied=matrix), scaled, name="altup_router")
        return ctx.emit("tanh", [routed])

    def _predict(self, ctx: Context, x: Value, router: tuple[Value, Value]) -> Value:
        """Return all branches, each with a mixture of all added."""
        e, count = emitter(ctx), self.altup.count
        route = self._route(ctx, self.take(ctx, x, self.altup.active), router)
        shares = self.product(ctx, route, "altup_predict_coef", count * count)
        shares = e.reshape(shares, (shares.spec.shape[0], count, count))
        return e.loop("pab,acp->cab", "x0 * x1", x, shares, combine="sum", init=x)

    def _correct(self, ctx: Context, predicted: Value, now: Value, made: Value, router: tuple[Value, Value]) -> Value:
        """Return all predictions, moved by shares of how far the active one was from what was made."""
        shares = self.product(ctx, self._route(ctx, made, router), "altup_correct_coef", self.altup.count)
        body = "x0 + (x1 - x2) * (x3 + 1)"
        return emitter(ctx).loop("cab,ab,ab,ac->cab", body, predicted, made, now, shares)

    def _laurel(self, ctx: Context, x: Value) -> Value:
        """Return the normalized low-rank product of x, which has two matrices."""
        left = self.origin.gguf.tensors.get(f"{ctx.path}.laurel_l.weight")
        rank = left.shape[0] if left is not None and len(left.shape) == 2 else 1  # the file alone says so
        low = self.product(ctx, x, "laurel_l", rank)
        return self.norm(ctx, self.product(ctx, low, "laurel_r", self.config.width), "laurel_post_norm")

    def _network(self, ctx: Context, x: Value) -> Value:
        """Return the feed-forward network; if it is sparse, only gates far above the mean of a token's are open."""
        e, inner, far = emitter(ctx), self.config.inner, self.altup.sparsity[self.layer]
        gate, up = (self.product(ctx, x, f"ffn_{name}", inner) for name in ("gate", "up"))
        if far > 0:
            mean = multiply(ctx, e.loop("ab->a", "x0", gate, combine="sum"), 1 / inner)
            spread = self.mean_square(ctx, e.loop("ab,a->ab", "x0 - x1", gate, mean))
            gate = e.loop("ab,a,a->ab", f"maximum(x0 - (x1 + sqrt(x2) * {far!r}), 0)", gate, mean, spread)
        return self.product(ctx, ctx.emit(self.config.form.gate, [gate, up]), "ffn_down", self.config.width)

    def _enter(self, ctx: Context, x: Value, rows: Value) -> Value:
        """Return what the layer's own row of each token adds to the branches."""
        scaled = emitter(ctx).pointwise(
            "x0 * x1", x, self.parameter(ctx, "altup_correct_scale.weight", self.config.width)
        )
        gate = self.product(ctx, scaled, "inp_gate", self.altup.inner)
        own = self._own(ctx, rows)
        made = ctx.emit(self.config.form.gate, [gate, own])
        return self.norm(ctx, self.product(ctx, made, "proj", self.config.width), "post_norm")

    def _own(self, ctx: Context, rows: Value) -> Value:
        """Return this layer's rows [n, inner]."""
        e = emitter(ctx)
        part = e("slice", rows, starts=(self.layer,), ends=(self.layer + 1,), axes=(1,))
        return e.collapse(part, (1, 2))
