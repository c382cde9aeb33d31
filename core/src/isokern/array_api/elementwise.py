"""Elementwise functions of the array API standard, by tables of the operators that compute them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ..dtypes import BOOL, F32, F64
from ..eager.functions import function as eager
from ..status import BadTensorDtype, quote
from ..tensors import Tensor
from .complex_functions import integer_power as complex_integer_power
from .complex_parts import evaluate, view_part
from .dtypes import DEFAULT_FLOAT, astype, is_scalar
from .operands import as_array, as_scalar, common_shape, together
from .operators import COMPLEX, function
from .powers import integer_power

# The standard's name, the operator, and the kinds of dtypes that the standard lets it have
UNARY = {
    "abs": ("abs", "iufc"),
    "acos": ("acos", "fc"),
    "acosh": ("acosh", "fc"),
    "asin": ("asin", "fc"),
    "asinh": ("asinh", "fc"),
    "atan": ("atan", "fc"),
    "atanh": ("atanh", "fc"),
    "bitwise_invert": ("bitwise_not", "biu"),
    "ceil": ("ceil", "iuf"),
    "cos": ("cos", "fc"),
    "cosh": ("cosh", "fc"),
    "exp": ("exp", "fc"),
    "expm1": ("expm1", "fc"),
    "floor": ("floor", "iuf"),
    "isfinite": ("isfinite", "iufc"),
    "isinf": ("isinf", "iufc"),
    "isnan": ("isnan", "iufc"),
    "log": ("log", "fc"),
    "log10": ("log10", "fc"),
    "log1p": ("log1p", "fc"),
    "log2": ("log2", "fc"),
    "logical_not": ("logical_not", "b"),
    "negative": ("neg", "iufc"),
    "positive": ("copy", "iufc"),
    "reciprocal": ("reciprocal", "fc"),
    "round": ("round", "iufc"),
    "sign": ("sign", "iufc"),
    "signbit": ("signbit", "f"),
    "sin": ("sin", "fc"),
    "sinh": ("sinh", "fc"),
    "sqrt": ("sqrt", "fc"),
    "square": ("square", "iufc"),
    "tan": ("tan", "fc"),
    "tanh": ("tanh", "fc"),
    "trunc": ("trunc", "iuf"),
}
BINARY = {
    "add": ("add", "iufc"),
    "atan2": ("atan2", "f"),
    "bitwise_and": ("bitwise_and", "biu"),
    "bitwise_left_shift": ("left_shift", "iu"),
    "bitwise_or": ("bitwise_or", "biu"),
    "bitwise_right_shift": ("right_shift", "iu"),
    "bitwise_xor": ("bitwise_xor", "biu"),
    "copysign": ("copysign", "f"),
    "divide": ("div", "iufc"),
    "equal": ("equal", "biufc"),
    "floor_divide": ("floor_divide", "iuf"),
    "greater": ("greater", "iuf"),
    "greater_equal": ("greater_equal", "iuf"),
    "hypot": ("hypot", "f"),
    "less": ("less", "iuf"),
    "less_equal": ("less_equal", "iuf"),
    "logaddexp": ("logaddexp", "f"),
    "logical_and": ("logical_and", "b"),
    "logical_or": ("logical_or", "b"),
    "logical_xor": ("logical_xor", "b"),
    "maximum": ("maximum", "iuf"),
    "minimum": ("minimum", "iuf"),
    "multiply": ("mul", "iufc"),
    "nextafter": ("", "f"),
    "not_equal": ("not_equal", "biufc"),
    "pow": ("pow", "iufc"),
    "remainder": ("remainder", "iuf"),
    "subtract": ("sub", "iufc"),
}
_KINDS = {"b": "booleans", "i": "signed integers", "u": "unsigned integers", "f": "floats", "c": "complex numbers"}


def _check_kind(where: str, x: Tensor, kinds: str) -> None:
    if x.dtype.kind not in (*kinds,):
        raise BadTensorDtype(
            where, f"an array of {x.dtype}", allowed=", ".join(_KINDS[k] for k in kinds), hint="tensor.astype(…)"
        )


# Where the operator has no kernel for a kind that the standard names: (name, kind) → a function of the arrays


def _truth(value: bool, x: Tensor) -> Any:
    return function("fill")(value=float(value), shape=x.shape, dtype=BOOL, device=x.device)


def _negate_unsigned(x: Tensor) -> Any:
    return function("sub")(function("fill")(shape=x.shape, dtype=x.dtype, device=x.device), x)


_NEAR = "((x - remainder(x, y)) / y)"
_WHOLE = f"(floor({_NEAR}) + 1 if {_NEAR} - floor({_NEAR}) > 0.5 else floor({_NEAR}))"
_FOUND = f"({_WHOLE} if {_NEAR} - {_NEAR} == 0 and y - y == 0 else floor(x / y))"
_FLOOR_DIVIDE = f"(copysign({_FOUND}, x / y) if {_FOUND} == 0 else {_FOUND})"


def _divide_floats(a: Tensor, b: Tensor) -> Any:
    """Return a/b rounded down: (a - a mod b) / b is an integer but for rounding, which is taken back.

    Where that is not finite, the quotient itself says what the result is, as the standard's special cases do (a number
    by an infinity is ±0, where NumPy has -1 for different signs). The sign of a zero is the quotient's. In F32 and F64
    one loop does it; narrower floats are rounded after each step.
    """
    common_shape("floor_divide", a, b)  # or an error that names the function
    if a.dtype in (F32, F64):
        return evaluate(_FLOOR_DIVIDE, a, b)
    call = function
    quotient = call("div")(a, b)
    down = call("floor")(quotient)
    near = call("div")(call("sub")(a, call("remainder")(a, b)), b)
    whole = call("floor")(near)
    whole = call("where")(call("greater")(call("sub")(near, whole), 0.5), call("add")(whole, 1.0), whole)
    found = call("where")(call("logical_and")(call("isfinite")(near), call("isfinite")(b)), whole, down)
    return call("where")(call("equal")(found, 0.0), call("copysign")(found, quotient), found)


def _divide_integers(a: Tensor, b: Tensor) -> Any:
    """Return a/b in the default float, as Python and all other namespaces divide; the standard leaves it open."""
    return function("div")(*(astype(x, DEFAULT_FLOAT) if isinstance(x, Tensor) else float(x) for x in (a, b)))


def _next_after(a: Tensor, b: Tensor) -> Any:
    """Return the number next to a towards b: floats of one sign are ordered as their bits are."""
    call = function
    a, b = (x.broadcast_to(common_shape("nextafter", a, b)) for x in (a, b))
    bits = call("bit_cast")(a, dtype=f"I{8 * a.dtype.itemsize}")
    away = call("equal")(call("greater")(b, a), call("greater")(a, 0.0))
    moved = call("add")(bits, call("sub")(call("mul")(call("cast")(away, dtype=bits.dtype), 2), 1))
    stepped = call("bit_cast")(moved, dtype=a.dtype)
    one = call("bit_cast")(call("fill")(value=1.0, shape=a.shape, dtype=bits.dtype, device=a.device), dtype=a.dtype)
    stepped = call("where")(call("equal")(a, 0.0), call("copysign")(one, b), stepped)
    either = call("where")(call("equal")(a, b), b, stepped)
    lost = call("logical_or")(call("isnan")(a), call("isnan")(b))
    return call("where")(lost, call("add")(a, b), either)


SPECIAL: dict[tuple[str, str], Callable[..., Any]] = {
    **{(name, kind): function("copy") for name in ("ceil", "floor", "round", "trunc") for kind in "iu"},
    **{(name, kind): partial(_truth, name == "isfinite") for name in ("isfinite", "isinf", "isnan") for kind in "iu"},
    ("bitwise_invert", "b"): function("logical_not"),
    ("divide", "i"): _divide_integers,
    ("divide", "u"): _divide_integers,
    ("floor_divide", "f"): _divide_floats,
    ("negative", "u"): _negate_unsigned,
    ("nextafter", "f"): _next_after,
    ("pow", "i"): integer_power,
    ("pow", "u"): integer_power,
}


def _find(name: str, operator: str, kinds: str) -> dict[str, Callable[..., Any]]:
    """Return what computes a function for each kind of dtypes."""
    own = {k: COMPLEX[operator] if k == "c" else eager(operator) for k in kinds if (name, k) not in SPECIAL}
    return {k: own[k] if k in own else SPECIAL[name, k] for k in kinds}


def _declare_unary(name: str, operator: str, kinds: str) -> Callable[[Any], Any]:
    by_kind = _find(name, operator, kinds)

    def apply(x: Any, /) -> Any:
        held = x if x.__class__ is Tensor else as_array(name, x)
        compute = by_kind.get(held.dtype.kind)
        if compute is None:
            _check_kind(name, held, kinds)
        assert compute is not None
        return compute(held)

    return _set_name(apply, name, f"Return {name}(x) of each element; of {_list(kinds)}.")


def _declare_binary(name: str, operator: str, kinds: str) -> Callable[[Any, Any], Any]:
    by_kind = _find(name, operator, kinds)

    def apply(x1: Any, x2: Any, /) -> Any:
        a, b = x1, x2
        if a.__class__ is Tensor and b.__class__ in (int, float):
            b = as_scalar(name, b, a.desc.dtype, a.device)
        elif a.__class__ is not Tensor or b.__class__ is not Tensor or a.desc.dtype is not b.desc.dtype:
            a, b = together(name, x1, x2)
        compute = by_kind.get(a.dtype.kind)
        if compute is None:
            _check_kind(name, a, kinds)
        assert compute is not None
        return compute(a, b)

    return _set_name(apply, name, f"Return {name}(x1, x2) of elements of two arrays that broadcast; of {_list(kinds)}.")


def _list(kinds: str) -> str:
    return ", ".join(_KINDS[k] for k in kinds)


def _set_name(apply: Callable[..., Any], name: str, doc: str) -> Callable[..., Any]:
    apply.__name__ = apply.__qualname__ = name
    apply.__doc__ = doc
    return apply


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{name: _declare_unary(name, *row) for name, row in UNARY.items()},
    **{name: _declare_binary(name, *row) for name, row in BINARY.items()},
}


def pow(x1: Any, x2: Any, /) -> Tensor:
    """Return x1 to the power of x2, of integers, floats or complex numbers.

    The number 2 has the square, and other integers of a complex base have products.
    """
    if x1.__class__ is Tensor and x2.__class__ is int and x1.dtype.kind in "iufc":
        if x2 == 2:
            squared: Tensor = function("square")(x1)
            return squared
        if x1.dtype.kind == "c":
            return complex_integer_power(x1, x2)
    made: Tensor = FUNCTIONS["pow"](x1, x2)
    return made


def clip(x: Any, /, min: Any = None, max: Any = None) -> Tensor:
    """Return x limited to [min, max], numbers or arrays that broadcast to x, None being no limit; NaN stays NaN."""
    held = as_array("clip", x)
    _check_kind("clip", held, "iuf")
    made = held
    for name, limit in (("maximum", min), ("minimum", max)):
        if limit is None:
            continue
        if is_scalar(limit) and held.dtype.kind != "f" and isinstance(limit, float):
            raise BadTensorDtype("clip", f"{quote(limit)} for an array of {held.dtype}", allowed="an integer")
        other = limit if is_scalar(limit) else astype(as_array("clip", limit, held.device), held.dtype, copy=False)
        made = FUNCTIONS[name](made, other)
    result: Tensor = function("copy")(held) if made is held else made
    return result


def real(x: Any, /) -> Tensor:
    """Return the real part of each element: the view of complex numbers' parts, a copy of real numbers."""
    held = as_array("real", x)
    _check_kind("real", held, "iufc")
    found: Tensor = view_part(held, 0) if held.dtype.kind == "c" else function("copy")(held)
    return found


def imag(x: Any, /) -> Tensor:
    """Return the imaginary part of each element: the view of complex numbers' parts, zeros for real numbers."""
    held = as_array("imag", x)
    _check_kind("imag", held, "iufc")
    if held.dtype.kind == "c":
        return view_part(held, 1)
    made: Tensor = function("fill")(shape=held.shape, dtype=held.dtype, device=held.device)
    return made


def conj(x: Any, /) -> Tensor:
    """Return the conjugate of each element; a copy of real numbers."""
    held = as_array("conj", x)
    _check_kind("conj", held, "iufc")
    made: Tensor = COMPLEX["conj"](held) if held.dtype.kind == "c" else function("copy")(held)
    return made
