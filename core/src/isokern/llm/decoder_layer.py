"""One layer of a decoder, as its architecture has it: norms, attention, and a feed-forward network or experts."""

from __future__ import annotations

from ..graph.ir import Value
from ..graph.layer import Context
from .architectures import RESIDUAL
from .experts import Mixture
from .latent import LatentAttention
from .layers import Attention, FeedForward, Origin, Weighted, multiply
from .places import KeyPlaces
from .ropes import Rope


class DecoderLayer(Weighted):
    """One layer of a decoder: attention and a feed-forward network, each added to x."""

    def __init__(self, origin: Origin, layer: int, places: KeyPlaces, rope: Rope | None) -> None:
        super().__init__(origin)
        kind, experts = LatentAttention if self.config.latent else Attention, self.config.experts
        self.attention = kind(origin, layer, places, rope)
        self.feed_forward = FeedForward(origin) if experts is None or layer < experts.dense else Mixture(origin)

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return a value of the shape of x; the inputs are those of `Attention`."""
        x, *rest = inputs
        form = self.config.form
        normed = self.norm(ctx, x, form.before[0])
        given = normed
        if form.second_norm and self.origin.has(f"{ctx.path}.attn_norm_2.weight"):
            given = self.norm(ctx, x, "attn_norm_2")
        mixed = self.norm(ctx, ctx.apply(self.attention, [given, *rest]), form.after[0])
        x = ctx.emit("add", [self._scale(ctx, mixed), x])
        if not self.config.parallel:
            normed = self.norm(ctx, x, form.before[1])
        made = self.norm(ctx, ctx.apply(self.feed_forward, [normed]), form.after[1])
        return ctx.emit("add", [self._scale(ctx, made), x])

    def _scale(self, ctx: Context, x: Value) -> Value:
        return multiply(ctx, x, self.config.scales.get(RESIDUAL, 1.0))
