"""Operators that work element by element: arithmetic, comparisons, activations, casts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtypes import BOOL, F64, DType
from .elements import our_dtype
from .node import AtenNode, Handler, Operand, Result, dtype_of, is_float, is_operand, result_dtype, row, shape_of

LIMIT = 1 << 53  # integers up to there are attributes


def unary(kind: str) -> Handler:
    """Return the handler of a function of one tensor, of which PyTorch has floats for integers."""

    def handle(node: AtenNode) -> Result:
        return node.emit(kind, node.cast(node.x, node.wanted))

    return handle


def whole(kind: str) -> Handler:
    """Return the handler of a rounding, which leaves integers as they are."""

    def handle(node: AtenNode) -> Result:
        if node.get("decimals"):
            raise node.refuse(f"decimals {node['decimals']}", "0")
        return node.emit(kind, node.x) if is_float(node.x) else node.x

    return handle


def test(kind: str, of_integers: bool) -> Handler:
    """Return the handler of a test of floats, whose answer for integers is known."""

    def handle(node: AtenNode) -> Result:
        return node.emit(kind, node.x) if is_float(node.x) else node.full(node.shape, of_integers, BOOL)

    return handle


def promote(node: AtenNode) -> tuple[Operand, Operand]:
    """Return two arguments in the dtype to which they are promote."""
    a, b = list(node.args.values())[:2]
    to = result_dtype(a, b)
    return node.operand(a, to), node.operand(b, to)


def binary(kind: str, of_integers: str = "", of_truths: str = "") -> Handler:
    """Return the handler of a function of two arguments, either of which may be a number."""

    def handle(node: AtenNode) -> Result:
        a, b = list(node.args.values())[:2]
        own = {"b": of_truths, "f": ""}.get(node.wanted.kind, of_integers)
        return node.emit(own or kind, node.operand(a, node.wanted), node.operand(b, node.wanted))

    return handle


def compare(kind: str) -> Handler:
    """Return the handler of a comparison, in the dtype to which both sides are promote."""

    def handle(node: AtenNode) -> Result:
        return node.emit(kind, *promote(node))

    return handle


def logical(kind: str) -> Handler:
    """Return the handler of a function of truths, of each argument in its own dtype."""

    def handle(node: AtenNode) -> Result:
        truths = [node.cast(x, BOOL) if is_operand(x) else np.asarray(bool(x)) for x in node.args.values()]
        return node.emit(kind, *truths)

    return handle


def add(node: AtenNode) -> Result:
    """Add; alpha times the second."""
    a, b = list(node.args.values())[:2]
    return _sum(node, a, b, 1)


def sub(node: AtenNode) -> Result:
    """Subtract alpha times the second."""
    a, b = list(node.args.values())[:2]
    return _sum(node, a, b, -1)


def rsub(node: AtenNode) -> Result:
    """Subtract alpha times the first from the second."""
    a, b = list(node.args.values())[:2]
    alpha, number = node.get("alpha", 1), node.number(b)
    if number is not None and alpha == 1 and node.wanted.kind == "f":
        return node.emit("rsub_scalar", node.operand(a, node.wanted), value=float(number))
    return node.emit("sub", node.operand(b, node.wanted), _scale(node, a, alpha))


def _scale(node: AtenNode, x: Any, alpha: Any) -> Operand:
    operand = node.operand(x, node.wanted)
    if alpha == 1:
        return operand
    if is_float(operand):
        return node.emit("scale", operand, value=float(alpha))
    return node.emit("mul", operand, node.operand(alpha, node.wanted))


def _sum(node: AtenNode, a: Any, b: Any, sign: int) -> Result:
    to, alpha = node.wanted, node.get("alpha", 1)
    number = node.number(b)
    if number is not None and to.kind == "f" and is_operand(a) and not isinstance(a, np.ndarray):
        return node.emit("add_scalar", node.operand(a, to), value=float(sign * alpha * number))
    if (number := node.number(a)) is not None and to.kind == "f" and sign == 1 and alpha == 1:
        return node.emit("add_scalar", node.operand(b, to), value=float(number))
    if to is BOOL:
        if sign != 1:
            raise node.refuse("a difference of truths", "numbers")
        return node.emit("logical_or", node.operand(a, to), node.operand(b if alpha else False, to))
    return node.emit("add" if sign == 1 else "sub", node.operand(a, to), _scale(node, b, alpha))


def mul(node: AtenNode) -> Result:
    """Multiply; truths by and."""
    (a, b), to = list(node.args.values())[:2], node.wanted
    for x, y in ((a, b), (b, a)):
        number = node.number(y)
        if number is not None and to.kind == "f" and is_operand(x) and not isinstance(x, np.ndarray):
            return node.emit("scale", node.operand(x, to), value=float(number))
    return node.emit("logical_and" if to is BOOL else "mul", node.operand(a, to), node.operand(b, to))


def div(node: AtenNode) -> Result:
    """Divide: true, towards zero or towards minus infinity."""
    (a, b), to, mode = list(node.args.values())[:2], node.wanted, node.get("rounding_mode")
    number = node.number(b)
    if to.kind != "f":
        kind = {"trunc": "trunc_divide", "floor": "floor_divide"}[mode]
        return node.emit(kind, *(node.operand(x, to) for x in (a, b)))
    if number and is_operand(a) and not isinstance(a, np.ndarray):
        y = node.emit("div_scalar", node.operand(a, to), value=float(number))
    else:
        y = node.emit("div", node.operand(a, to), node.operand(b, to))
    if mode == "floor":  # not the floor of a rounded quotient: that of what fmod leaves
        x, d = node.operand(a, to), node.operand(b, to)
        whole_ = node.emit("round", node.emit("div", node.emit("sub", x, node.emit("remainder", x, d)), d))
        return whole_ if number else node.emit("where", node.emit("equal", d, node.full((), 0, to)), y, whole_)
    return y if mode is None else node.emit("trunc", y)


def floor_divide(node: AtenNode) -> Result:
    """Divide towards minus infinity."""
    return div(AtenNode(node.op_type, {**node.args, "rounding_mode": "floor"}, node.importer, node.dtype))


def pow_(node: AtenNode) -> Result:
    """Raise to a power; integers in F64 as far as it is exact."""
    (a, b), to = list(node.args.values())[:2], node.wanted
    number = node.number(b)
    if to.kind == "f":
        if number is not None and is_operand(a):
            x = node.operand(a, to)
            if number == 2:
                return node.emit("square", x)
            return node.emit("sqrt", x) if number == 0.5 else node.emit("pow_scalar", x, value=float(number))
        return node.emit("pow", node.operand(a, to), node.operand(b, to))
    if number == 2:
        return node.emit("square", node.operand(a, to))
    if isinstance(number, int) and 0 <= number <= 64:  # by squares, which wrap as PyTorch's do
        found: Operand = node.full(node.shape, 1, to)
        for digit in f"{number:b}":
            found = node.emit("square", found)
            found = node.emit("mul", found, node.operand(a, to)) if digit == "1" else found
        return found
    raise node.refuse(f"integers to the power {b if number is not None else 'of a tensor'}", "numbers from 0 to 64")


def clamp(node: AtenNode) -> Result:
    """Clamp between numbers or tensors, either of which may be absent."""
    to = node.wanted
    x, limits = node.operand(node.x, to), [node.get("min"), node.get("max")]
    numbers = [None if v is None else node.number(v) for v in limits]
    given = [n for v, n in zip(limits, numbers, strict=True) if v is not None]
    most = math.inf if to.kind == "f" else LIMIT  # NaN is not below either
    if all(n is not None and not abs(n) > most for n in given):
        low, high = (default if n is None else n for n, default in zip(numbers, (-math.inf, math.inf), strict=True))
        if to.kind in "iu":  # a limit beyond the type is none
            assert to.numpy is not None
            info = np.iinfo(to.numpy)
            low, high = (-math.inf if low <= info.min else low), (math.inf if high >= info.max else high)
        return node.emit("clip", x, min=float(low), max=float(high))
    found = x
    for kind, limit in zip(("maximum", "minimum"), limits, strict=True):
        found = found if limit is None else node.emit(kind, found, node.operand(limit, to))
    return found


def where(node: AtenNode) -> Result:
    """Choose between two arguments."""
    a, b = node["self"], node["other"]
    return node.emit(
        "where", node.cast(node["condition"], BOOL), node.operand(a, node.wanted), node.operand(b, node.wanted)
    )


def masked_fill(node: AtenNode) -> Result:
    """Put a value where a mask is true."""
    x, value = node.x, node["value"]
    filled = node.operand(value, dtype_of(x))
    return node.emit("where", node.cast(node["mask"], BOOL), filled, x)


def to_dtype(node: AtenNode) -> Result:
    """Cast; the device and the memory's order do not matter here."""
    wanted = node.get("dtype")
    return node.cast(node.x, dtype_of(node.x) if wanted is None else our_dtype(node.op_type, wanted))


def bit_cast(node: AtenNode) -> Result:
    """Take the bits as another type of the same size."""
    to = our_dtype(node.op_type, node["dtype"])
    if to is dtype_of(node.x):
        return node.x
    if to.itemsize != dtype_of(node.x).itemsize or BOOL in (to, dtype_of(node.x)):
        raise node.refuse(f"bits of {dtype_of(node.x)} as {to}", "types of one size")
    return node.emit("bit_cast", node.x, to=to)


def identity(node: AtenNode) -> Result:
    """Return the tensor itself: nothing is updated in place here."""
    return node.x


def copy(node: AtenNode) -> Result:
    """Return the second tensor in the dtype and the dims of the first."""
    return node.expand(node.cast(node["src"], dtype_of(node.x)), node.shape)


def gelu(node: AtenNode) -> Result:
    """Return gelu, by erf or by tanh."""
    return node.emit("gelu" if node.get("approximate", "none") == "none" else "gelu_tanh", node.x)


def softplus(node: AtenNode) -> Result:
    """Return softplus with a slope; above a threshold PyTorch's is the line itself, which in F32 it is from 20 on."""
    beta, threshold = float(node.get("beta", 1)), float(node.get("threshold", 20))
    x = node.x
    line = x if beta == 1 else node.emit("scale", x, value=beta)
    y = node.emit("softplus", line)
    y = y if beta == 1 else node.emit("div_scalar", y, value=beta)
    if threshold >= 20 and dtype_of(x) is not F64:
        return y
    return node.emit("where", node.emit("greater", line, node.operand(threshold, dtype_of(x))), x, y)


def elu(node: AtenNode) -> Result:
    """Return elu; selu where its factors are those."""
    alpha, scale, inner = (float(node.get(n, 1)) for n in ("alpha", "scale", "input_scale"))
    if abs(alpha - 1.6732632423543772) < 1e-6 and abs(scale - 1.0507009873554805) < 1e-6 and inner == 1:
        return node.emit("selu", node.x)
    if scale != 1 or inner != 1:
        raise node.refuse(f"scale {scale} and input_scale {inner}", "1 and 1")
    return node.emit("elu", node.x, alpha=alpha)


def hardtanh(node: AtenNode) -> Result:
    """Clamp between two numbers."""
    return clamp(
        AtenNode(
            node.op_type, {"self": node.x, "min": node["min_val"], "max": node["max_val"]}, node.importer, node.dtype
        )
    )


def glu(node: AtenNode) -> Result:
    """Multiply one half of an axis by the sigmoid of the other."""
    axis = node.axis(node.get("dim", -1))
    half = node.shape[axis] // 2
    value, gate = (node.emit("slice", node.x, starts=(i,), ends=(i + half,), axes=(axis,)) for i in (0, half))
    return node.emit("sigmoid_mul", gate, value)


def prelu(node: AtenNode) -> Result:
    """Scale what is negative by a slope for each channel, axis 1."""
    weight = node["weight"]
    count = math.prod(shape_of(weight))
    dims = (1, count, *[1] * (node.rank - 2)) if node.rank > 1 else (count,) if node.rank else ()
    slope = weight if len(shape_of(weight)) == node.rank else node.reshape(weight, dims)
    return node.emit("prelu", node.x, slope)


def nan_to_num(node: AtenNode) -> Result:
    """Replace what is no finite number; by default infinities by the largest numbers."""
    if not is_float(node.x):
        return node.x
    kind = dtype_of(node.x).numpy
    assert kind is not None
    most = float(np.finfo(kind).max) if kind.kind == "f" else 3.3895313892515355e38  # of BF16
    low, high = node.get("neginf"), node.get("posinf")
    low, high = -most if low is None else low, most if high is None else high
    return node.emit("nan_to_num", node.x, nan=float(node.get("nan") or 0), posinf=high, neginf=low)


def lerp(node: AtenNode) -> Result:
    """Return a + weight (b - a)."""
    return node.emit("lerp", node.x, node["end"], node.operand(node["weight"], node.wanted))


def addc(kind: str) -> Handler:
    """Return the handler of addcmul or addcdiv."""

    def handle(node: AtenNode) -> Result:
        x, a, b = (node.cast(node[n], node.wanted) for n in ("self", "tensor1", "tensor2"))
        return node.emit(kind, x, a, b, value=float(node.get("value", 1)))

    return handle


def isclose(node: AtenNode) -> Result:
    """Return whether two tensors are near each other."""
    if node.get("equal_nan"):
        raise node.refuse("equal_nan", "False")
    return node.emit("isclose", *promote(node), rtol=float(node.get("rtol", 1e-5)), atol=float(node.get("atol", 1e-8)))


def bitwise(kind: str, of_truths: str) -> Handler:
    """Return the handler of a function of bits, which of truths is one of truths."""

    def handle(node: AtenNode) -> Result:
        to: DType = node.wanted
        given = [node.operand(x, to) for x in list(node.args.values())]
        return node.emit(of_truths if to is BOOL and kind == "bitwise_not" else kind, *given)

    return handle


def neg(node: AtenNode) -> Result:
    """Return the opposite; of unsigned integers 0 minus them, which wraps."""
    if dtype_of(node.x).kind == "u":
        return node.emit("sub", node.full((), 0, dtype_of(node.x)), node.x)
    return node.emit("neg", node.x)


def square(node: AtenNode) -> Result:
    """Return the square."""
    return node.emit("square", node.x)


def sign(node: AtenNode) -> Result:
    """Return the sign; that of NaN is 0 in PyTorch."""
    if dtype_of(node.x) is BOOL:
        return node.x
    if not is_float(node.x):
        return node.emit("sign", node.x)
    y = node.emit("sign", node.x)
    return node.emit("where", node.emit("isnan", node.x), node.full((), 0, dtype_of(node.x)), y)


def signbit(node: AtenNode) -> Result:
    """Return whether numbers have a minus."""
    if is_float(node.x):
        return node.emit("signbit", node.x)
    if dtype_of(node.x).kind != "i":
        return node.full(node.shape, 0, BOOL)
    return node.emit("less", node.x, node.full((), 0, dtype_of(node.x)))


def abs_(node: AtenNode) -> Result:
    """Return the magnitude."""
    return node.x if dtype_of(node.x) is BOOL else node.emit("abs", node.x)


UNARY = """acos acosh asin asinh atan atanh cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 lgamma log log10
    log1p log2 rad2deg reciprocal rsqrt sigmoid sin sinc sinh sqrt tan tanh"""
FLOATS = "hardsigmoid hardswish mish relu6 selu silu tanhshrink"
COMPARISONS = {
    "eq": "equal",
    "ge": "greater_equal",
    "gt": "greater",
    "le": "less_equal",
    "lt": "less",
    "ne": "not_equal",
}
BINARY = "atan2 copysign fmod hypot logaddexp logaddexp2 remainder xlogy"

NODES: dict[str, Handler] = {
    **{name: unary(name) for name in UNARY.split()},
    **{name: row(name) for name in FLOATS.split()},
    **{name: compare(kind) for name, kind in COMPARISONS.items()},
    **{name: binary(name) for name in BINARY.split()},
    **{name: whole(name) for name in ("ceil", "floor", "round", "trunc", "frac")},
    **{name: logical(name) for name in ("logical_and", "logical_not", "logical_or", "logical_xor")},
    "_prelu_kernel": prelu,
    "_to_copy": to_dtype,
    "abs": abs_,
    "add": add,
    "addcdiv": addc("addcdiv"),
    "addcmul": addc("addcmul"),
    "alias": identity,
    "bitwise_and": bitwise("bitwise_and", "logical_and"),
    "bitwise_left_shift": binary("left_shift"),
    "bitwise_not": bitwise("bitwise_not", "logical_not"),
    "bitwise_or": bitwise("bitwise_or", "logical_or"),
    "bitwise_right_shift": binary("right_shift"),
    "bitwise_xor": bitwise("bitwise_xor", "logical_xor"),
    "celu": row("celu", alpha="alpha"),
    "clamp": clamp,
    "clamp_max": clamp,
    "clamp_min": clamp,
    "clone": identity,
    "contiguous": identity,
    "convert_element_type": to_dtype,
    "copy": copy,
    "detach": identity,
    "div": div,
    "elu": elu,
    "floor_divide": floor_divide,
    "fmax": binary("fmax", "maximum", "logical_or"),
    "fmin": binary("fmin", "minimum", "logical_and"),
    "gelu": gelu,
    "glu": glu,
    "hardshrink": row("hardshrink", lambd="lambd"),
    "hardtanh": hardtanh,
    "isclose": isclose,
    "isfinite": test("isfinite", True),
    "isinf": test("isinf", False),
    "isnan": test("isnan", False),
    "isneginf": test("isneginf", False),
    "isposinf": test("isposinf", False),
    "leaky_relu": row("leaky_relu", alpha="negative_slope"),
    "lerp": lerp,
    "lift_fresh_copy": identity,
    "log_sigmoid": row("log_sigmoid"),
    "log_sigmoid_forward": lambda node: [node.emit("log_sigmoid", node.x), None],
    "masked_fill": masked_fill,
    "maximum": binary("maximum", of_truths="logical_or"),
    "minimum": binary("minimum", of_truths="logical_and"),
    "mul": mul,
    "nan_to_num": nan_to_num,
    "neg": neg,
    "pow": pow_,
    "prelu": prelu,
    "relu": lambda node: node.emit("relu", node.x) if is_float(node.x) else node.emit("clip", node.x, min=0.0),
    "rsub": rsub,
    "sgn": sign,
    "sign": sign,
    "signbit": signbit,
    "softplus": softplus,
    "softshrink": row("softshrink", lambd="lambd"),
    "square": square,
    "sub": sub,
    "threshold": row("threshold", threshold="threshold", value="value"),
    "to": to_dtype,
    "view_dtype": bit_cast,
    "where": where,
}
