"""Functions of complex arrays in place of elementwise operators, by these operators' names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..eager.functions import function
from ..tensors import Tensor
from .complex_bodies import (
    ACOS,
    ACOSH,
    ASIN,
    ATANH,
    BINARY,
    COMPARISONS,
    POWER,
    PRODUCT,
    ROOT,
    SQRT,
    TESTS,
    UNARY,
    Bodies,
    swap,
)
from .complex_parts import (
    PART,
    compute,
    evaluate,
    evaluate_parts,
    is_complex,
    make_empty,
    meet,
    view_floats,
    view_parts,
)


def _apply(bodies: Bodies) -> Callable[[Tensor], Tensor]:
    return lambda x: compute(bodies, x)


def _combine(bodies: Bodies) -> Callable[[Any, Any], Tensor]:
    def apply(a: Any, b: Any) -> Tensor:
        if a.__class__ is Tensor and b.__class__ is Tensor and a.desc.dtype is b.desc.dtype:
            return compute(bodies, a, b)
        return compute(bodies, *meet(a, b))

    return apply


def _test(body: str) -> Callable[[Tensor], Tensor]:
    return lambda x: compute(body, x)


def _compare(body: str) -> Callable[..., Tensor]:
    def apply(a: Any, b: Any, out: Tensor | None = None) -> Tensor:
        if out is None:
            return compute(body, *meet(a, b))
        return evaluate(body, *(part for z in meet(a, b) for part in view_parts(z)), out=out)

    return apply


def _scale(mark: str) -> Callable[[Any, Any], Tensor]:
    """Return a product or quotient, of each part where the second operand is real."""
    whole = _combine(BINARY[{"*": "mul", "/": "div"}[mark]])

    def apply(a: Any, b: Any) -> Tensor:
        if b.__class__ is Tensor and is_complex(a) and b.desc.dtype is PART[a.desc.dtype]:
            return evaluate_parts((f"x {mark} u", f"y {mark} u"), *view_parts(a), b)
        return whole(a, b)

    return apply


def _work_on_floats(name: str) -> Callable[[Tensor], Tensor]:
    """Return an operator of each part for itself."""

    def apply(x: Tensor) -> Tensor:
        made = make_empty(x, x.shape)
        function(name)(view_floats(x), out=view_floats(made))
        return made

    return apply


def _abs(x: Tensor) -> Tensor:
    made: Tensor = function("hypot")(*view_parts(x))
    return made


def _sqrt(x: Tensor) -> Tensor:
    parts = view_parts(x)
    return evaluate_parts(SQRT, *parts, evaluate(ROOT, *parts))


def _invert(bodies: Bodies, swapped: bool = False) -> Callable[[Tensor], Tensor]:
    """Return an inverse function by the roots of 1 - z and 1 + z; with `swapped` parts of z, and so of the result."""

    def apply(z: Tensor) -> Tensor:
        x, y = view_parts(z)[::-1] if swapped else view_parts(z)
        roots = [_sqrt(evaluate_parts(shifted, x, y)) for shifted in (("1 - x", "-y"), ("1 + x", "y"))]
        parts = [part for root in roots for part in view_parts(root)]
        return evaluate_parts(bodies[::-1] if swapped else bodies, x, y, *parts)

    return apply


def power(base: Any, exponent: Any) -> Tensor:
    """Return the principal value of base to the power of exponent."""
    z, w = meet(base, exponent)
    log = FUNCTIONS["log"](z)
    product = evaluate_parts(PRODUCT, *view_parts(log), *view_parts(w))
    return evaluate_parts(POWER, *view_parts(product), *view_parts(w))


def integer_power(base: Tensor, exponent: int) -> Tensor:
    """Return base to the power of an integer, by products."""
    result = evaluate_parts(("1", "0"), *view_parts(base)) if exponent == 0 else None
    square, left = base, abs(exponent)
    while left:
        if left & 1:
            result = square if result is None else FUNCTIONS["mul"](result, square)
        left >>= 1
        square = FUNCTIONS["square"](square) if left else square
    assert result is not None
    return FUNCTIONS["reciprocal"](result) if exponent < 0 else result


FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: _apply(bodies) for name, bodies in UNARY.items()},
    **{name: _combine(bodies) for name, bodies in BINARY.items()},
    **{name: _test(body) for name, body in TESTS.items()},
    **{name: _compare(body) for name, body in COMPARISONS.items()},
    **{name: _work_on_floats(name) for name in ("neg", "round")},
    "abs": _abs,
    "acos": _invert(ACOS),
    "acosh": _invert(ACOSH),
    "asin": _invert(ASIN),
    "asinh": _invert(ASIN, swapped=True),
    "atan": _apply(swap(ATANH)),
    "div": _scale("/"),
    "mul": _scale("*"),
    "pow": power,
    "sqrt": _sqrt,
}
