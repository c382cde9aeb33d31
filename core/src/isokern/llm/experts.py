"""Layers of experts: a router chooses some feed-forward networks for each token, and their results are added."""

from __future__ import annotations

from ..graph.ir import Value
from ..graph.layer import Context
from .layers import Product, Weighted, emit_network, emitter


class Mixture(Weighted):
    """The feed-forward networks of the experts that a router chooses for each token, and of a shared one."""

    def emit(self, ctx: Context, *inputs: Value) -> Value:
        """Return [n, width]."""
        (x,) = ctx.expect(inputs, 1)
        c, router, experts = self.config, self.config.form.router, self.config.experts
        assert router is not None and experts is not None
        logits = ctx.add(Product(self.origin, experts.count, bias=router.biases), x, name="ffn_gate_inp")
        given = [logits]
        if router.told and self.origin.has(f"{ctx.path}.exp_probs_b.bias"):
            given.append(self.parameter(ctx, "exp_probs_b.bias", experts.count))
        weights, ids = ctx.emit_all("topk_router", given, experts.how)
        halves = [self._experts(ctx, x, f"ffn_{name}_exps", experts.inner, ids) for name in ("gate", "up")]
        each = self._experts(ctx, ctx.emit(c.form.gate, halves), "ffn_down_exps", c.width, ids)
        y = ctx.emit("moe_sum", [each, weights])
        if not experts.shared:
            return y
        shared = emit_network(self, ctx, x, "_shexp", experts.shared)
        if router.shared == "gated":
            row = self.parameter(ctx, "ffn_gate_inp_shexp.weight", c.width)
            row = ctx.emit("expand_shape", [row], {"groups": (2,), "shape": (1, c.width)})
            open_ = ctx.emit("sigmoid", [ctx.emit("matmul_transposed", [x, row])])
            shared = emitter(ctx).pointwise("x0 * x1", shared, open_)
        return ctx.emit("add", [y, shared])

    def _experts(self, ctx: Context, x: Value, name: str, outputs: int, ids: Value) -> Value:
        """Return [n, used, outputs], the products with the chosen experts' matrices."""
        experts, router = self.config.experts, self.config.form.router
        assert experts is not None and router is not None
        w = self.parameter(ctx, f"{name}.weight", experts.count, outputs, ctx.dim(x, -1))
        y = ctx.emit("matmul_id", [x, w, ids], self.origin.quantization(w))
        if not router.biases:
            return y
        bias = self.parameter(ctx, f"{name}.bias", experts.count, outputs, plain=True)
        return ctx.emit("add_id", [y, bias, ids])
