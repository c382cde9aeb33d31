"""Multi-head latent attention (DeepSeek-V2): keys and values of all heads are computed from one latent row a token."""

from __future__ import annotations

from ..dtypes import I64
from ..graph.ir import Value
from ..graph.layer import Context
from .layers import Attention, emitter, split


class LatentAttention(Attention):
    """Attention whose cache holds latents, if the file has the projections from them apart (attn_k_b, attn_v_b).

    A head's score is latent · (k_bᵀ q), plus that of the rotated parts, and its result v_b (Σ share · latent): queries
    and results are multiplied by the projections, not all keys and values. With attn_kv_b the cache holds those of all
    heads.
    """

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width]; the inputs are those of `Attention`."""
        x, keys, values, *turns = inputs
        c, latent, e, n = self.config, self.config.latent, emitter(ctx), x.spec.shape[0]
        assert latent is not None
        q, name = x, "attn_q"
        if latent.query_rank:
            q, name = self.norm(ctx, self.product(ctx, x, "attn_q_a", latent.query_rank), "attn_q_a_norm"), "attn_q_b"
        head = latent.plain + c.rotated
        q = e.reshape(self.product(ctx, q, name, c.heads * head), (1, n, c.heads, head))
        plain, turned = split(ctx, q, [latent.plain, c.rotated])
        turned = self.rotate(ctx, turned, turns)
        row, shared = split(
            ctx, self.product(ctx, x, "attn_kv_a_mqa", latent.rank + c.rotated), [latent.rank, c.rotated]
        )
        row = self.norm(ctx, row, "attn_kv_a_norm")
        shared = self.rotate(
            ctx, ctx.emit("expand_shape", [shared], {"groups": (3, 1), "shape": (1, n, 1, c.rotated)}), turns
        )
        if latent.absorbed:
            ids = e("iota", shape=(n, c.heads), axis=1, dtypes={"T": I64})
            k_b = self.parameter(ctx, "attn_k_b.weight", c.heads, latent.rank, latent.plain)
            v_b = self.parameter(ctx, "attn_v_b.weight", c.heads, latent.value, latent.rank)
            plain = e(
                "matmul_id", e.reshape(plain, (n, c.heads, latent.plain)), k_b, ids, **self.origin.quantization(k_b)
            )
            plain = e.reshape(plain, (1, n, c.heads, latent.rank))
            value = e.reshape(row, (1, n, 1, latent.rank))
            key = value
        else:
            both = self.product(ctx, row, "attn_kv_b", c.heads * (latent.plain + latent.value))
            key, value = split(
                ctx, e.reshape(both, (1, n, c.heads, latent.plain + latent.value)), [latent.plain, latent.value]
            )
            shared = e.repeat(shared, (1, n, c.heads, c.rotated))
        made = [e("concat", plain, turned, axis=3), e("concat", key, shared, axis=3), value]
        mixed = self.attend(ctx, made, keys, values)
        if latent.absorbed:
            mixed = e.reshape(mixed, (n, c.heads, latent.rank))
            mixed = e("matmul_id", mixed, v_b, ids, **self.origin.quantization(v_b))
        return self.product(ctx, e.reshape(mixed, (n, c.heads * latent.value)), "attn_output", c.width)
