"""The epilogue of contractions: terms that are added to the sums, and an activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..dtypes import DType
from ..expr.tree import parse, substitute, to_text
from .attributes import choice
from .decomposition import LETTERS, Emitter, V, constant
from .registry import find

ACTIVATIONS = (
    "none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "relu6", "hardswish", "hardsigmoid",
)  # fmt: skip
ACTIVATION = choice("activation", ACTIVATIONS, "none", "applied last")


def activate(name: str, x: Any) -> Any:
    """Return the reference of an epilogue's activation."""
    return x if name == "none" else find(name).reference(x)


def finish(
    e: Emitter[V],
    product: V,
    terms: Sequence[tuple[V | None, str, float]],
    activation: str,
    dtype: DType,
    alpha: float = 1.0,
) -> V:
    """Emit activation(alpha · product + Σ coefficient · term) in the compute type, rounded once.

    Each of `terms` is (value, its letters, coefficient).
    """
    loops = LETTERS[: product.spec.ndim]
    body, given, letters = "x0" if alpha == 1 else f"x0 * {constant(alpha)}", [product], loops
    for term, own, coefficient in terms:
        if term is not None:
            factor = "" if coefficient == 1 else f" * {constant(coefficient)}"
            body, letters = f"{body} + x{len(given)}{factor}", f"{letters},{own}"
            given.append(term)
    if activation != "none":
        row = find(activation).scalar_expr
        assert row is not None
        if body != "x0":
            product = e.loop(f"{letters}->{loops}", body, *given)
        body, given, letters = to_text(substitute(row, {"x": parse("x0")})), [product], loops
    if body == "x0":
        return e.cast(product, dtype)
    return e.loop(f"{letters}->{loops}", body, *given, dtype=dtype)
