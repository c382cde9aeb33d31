"""Nodes that work element by element, casts among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np

from ..dtypes import BOOL, F32, F64, I64, U8
from ..status import InvalidArgument
from .elements import NARROW, element_name, name_of, our_dtype
from .library import proto
from .narrow_floats import FORMATS, round_floats
from .node import Handler, Node, Operand, Output, dtype_of, is_float, row, shape_of

EXACT = 1 << 53  # integers up to there are floats
LARGEST = {"FLOAT8E4M3FN": 448.0, "FLOAT8E5M2": 57344.0}


def chain(kind: str) -> Callable[[Node], Operand]:
    """Return the handler of a node of any number of inputs, which is an operator of two in turn."""

    def handle(node: Node) -> Operand:
        found = node.x()
        for n in range(1, len(node.inputs)):
            found = node.emit(kind, found, node.x(n))
        return found

    return handle


def by_mode(attribute: str, kinds: dict[Any, str]) -> Handler:
    """Return the handler of a node that is one of several operators, by an attribute's value."""

    def handle(node: Node) -> Output:
        value = node.attrs[attribute]
        if value not in kinds:
            raise node.refuse(f"{attribute} {value!r}", ", ".join(map(str, kinds)))
        return node.emit(kinds[value], *node.tensors)

    return handle


def known_scalar(node: Node, i: int) -> float | None:
    """Return the one element of input i, where it is known, and the other input is a value with the result's dims."""
    number, other = node.tensor(i), node.tensor(1 - i)
    if not isinstance(number, np.ndarray) or isinstance(other, np.ndarray) or other is None or not is_float(other):
        return None
    if number.size != 1 or number.ndim > len(shape_of(other)) or dtype_of(number) is not dtype_of(other):
        return None
    return float(number.reshape(()))


def arithmetic(kind: str, right: tuple[str, int], left: tuple[str, int] | None) -> Handler:
    """Return the handler of an operator of two inputs, which has forms for a known number on the right or on the left.

    A form is an operator with the attribute `value`, and the sign of that.
    """

    def handle(node: Node) -> Output:
        for i, form in ((1, right), (0, left)):
            number = known_scalar(node, i) if form is not None else None
            if form is not None and number is not None:
                return node.emit(form[0], node.x(1 - i), value=form[1] * number)
        if kind == "div" and not is_float(node.x()):
            return node.emit("trunc_divide", *node.tensors)
        return node.emit(kind, *node.tensors)

    return handle


def one_way(handler: Handler) -> Handler:
    """Return the handler of an operator of two inputs that broadcast the second one, along `axis`, before version 7."""

    @wraps(handler)
    def handle(node: Node) -> Output | Sequence[Output]:
        if node.version >= 7:
            return handler(node)
        shape, other = node.shape(), node.shape(1)
        if not node.attrs.get("broadcast", 0):
            if shape != other:
                raise InvalidArgument(node.op_type, f"dims {list(shape)} and {list(other)}", allowed="the same")
            return handler(node)
        axis = node.axis(node.attrs.get("axis", len(shape) - len(other))) if other else 0
        spread = (*other, *[1] * (len(shape) - axis - len(other)))
        if len(spread) > len(shape) or np.broadcast_shapes(shape, spread) != shape:
            given = f"dims {list(other)} along axis {axis} of {list(shape)}"
            raise InvalidArgument(node.op_type, given, allowed="dims of the first input")
        node.inputs[1] = node.reshape(node.x(1), spread)
        return handler(node)

    return handle


def pow_(node: Node) -> Output:
    """Raise to a power of any type; the result has the base's. Integers are computed in F64, as far as it is exact."""
    base, exponent = node.x(), node.x(1)
    if is_float(base):
        if (number := known_scalar(node, 1)) is not None:
            return node.emit("square", base) if number == 2 else node.emit("pow_scalar", base, value=number)
        return node.emit("pow", base, node.cast(exponent, dtype_of(base)))
    found = node.emit("pow", node.cast(base, F64), node.cast(exponent, F64))
    return node.cast(found, dtype_of(base))


def mean(node: Node) -> Output:
    """Add all inputs and divide by their number."""
    return node.emit("scale", chain("add")(node), value=1 / len(node.inputs))


def is_inf(node: Node) -> Output:
    """Test for infinities of both signs, of one, or of none."""
    positive, negative = bool(node.attrs["detect_positive"]), bool(node.attrs["detect_negative"])
    if not positive and not negative:
        return node.full(node.shape(), 0, BOOL)
    kind = "isinf" if positive and negative else "isposinf" if positive else "isneginf"
    return node.emit(kind, node.x())


def clip(node: Node) -> Output:
    """Clamp between two optional bounds, which are scalars; attributes where they are known."""
    if node.version < 11:
        return node.emit("clip", node.x(), **{n: float(node.attrs[n]) for n in ("min", "max") if n in node.attrs})
    bounds = {"min": node.tensor(1), "max": node.tensor(2)}
    known = {name: float(b.reshape(())) for name, b in bounds.items() if isinstance(b, np.ndarray) and b.size == 1}
    largest = math.inf if is_float(node.x()) else EXACT  # NaN is not below either
    if len(known) == sum(b is not None for b in bounds.values()) and all(abs(v) <= largest for v in known.values()):
        return node.emit("clip", node.x(), **known) if known else node.x()
    return node.emit("clamp", *node.tensors)


def selu(node: Node) -> Output:
    """Return gamma times elu; the usual factors are an operator."""
    definition = {"alpha": 1.6732632423543772, "gamma": 1.0507009873554805}
    if all(abs(node.attrs[name] - value) < 1e-6 for name, value in definition.items()):
        return node.emit("selu", node.x())
    found = node.emit("elu", node.x(), alpha=node.attrs["alpha"])
    return node.emit("scale", found, value=node.attrs["gamma"])


def hard_sigmoid(node: Node) -> Output:
    """Return clip(alpha x + beta, 0, 1)."""
    line = node.emit("scale", node.x(), value=node.attrs["alpha"])
    line = node.emit("add_scalar", line, value=node.attrs["beta"])
    return node.emit("clip", line, min=0.0, max=1.0)


def cast_to(node: Node, name: str) -> Operand:
    """Cast to an element type by ONNX's rules: narrow integers wrap, floats of 8 bits saturate unless told not to."""
    x, source = node.x(), node.elements[0]
    if our_dtype(name).storage and not dtype_of(x).storage and node.attrs.get("saturate", 1):
        largest = float(LARGEST[name])  # beyond it, our cast makes NaN or infinity
        x = node.emit("clip", x if is_float(x) else node.cast(x, F32), min=-largest, max=largest)
    node.made = name if name in NARROW else None
    if name not in NARROW or source == name:
        return node.cast(x, our_dtype(name))
    if name in FORMATS:
        return round_floats(node, x, name, bool(node.attrs.get("saturate", 1)))
    return wrap(node, node.cast(x, I64) if is_float(x) else x, name)


def wrap(node: Node, x: Operand, name: str) -> Operand:
    """Return integers modulo the range of a narrow type, in the dtype that holds it."""
    _kind, held, low, high = NARROW[name]
    wide = node.cast(x, I64)
    span = node.full((), high - low + 1, I64)
    shifted = node.emit("sub", wide, node.full((), low, I64))
    return node.cast(node.emit("add", node.emit("remainder", shifted, span), node.full((), low, I64)), held)


def cast(node: Node) -> Output:
    """Cast to the type that an attribute names."""
    wanted = node.attrs["to"]
    if isinstance(wanted, str):  # before version 6
        wanted = dict(proto.TensorProto.DataType.items()).get(wanted.upper(), -1)
    return cast_to(node, element_name(node.op_type, wanted))


def cast_like(node: Node) -> Output:
    """Cast to the type of the second input."""
    like, narrow = node.x(1), node.elements[1]
    if narrow is not None:
        return cast_to(node, narrow)
    return cast_to(node, name_of(dtype_of(like)))


def bit_cast(node: Node) -> Output:
    """Take the bits as another type of the same size."""
    name = element_name(node.op_type, node.attrs["to"])
    if name in NARROW or node.elements[0] is not None:
        raise node.refuse(f"bits of {name}", "types of whole bytes")
    if BOOL in (dtype_of(node.x()), our_dtype(name)):  # one byte, 0 or 1
        if our_dtype(name) not in (U8, BOOL):
            raise node.refuse(f"bits of {dtype_of(node.x())} as {name}", "UINT8")
        return node.cast(node.x(), our_dtype(name))
    return node.emit("bit_cast", node.x(), to=our_dtype(name))


def prelu(node: Node) -> Output:
    """Scale what is negative; before version 7 a slope is a channel's, and later one that fits nothing else."""
    x, slope = node.x(), node.x(1)
    shape, given = shape_of(x), shape_of(slope)
    if len(shape) > 2 and given == (shape[1],) and (node.version < 7 or shape[1] not in (1, shape[-1])):
        slope = node.reshape(slope, (*given, *[1] * (len(shape) - 2)))
    if is_float(x):
        return node.emit("prelu", x, slope)
    negative = node.emit("less", x, node.full((), 0, dtype_of(x)))
    return node.emit("where", negative, node.emit("mul", x, slope), x)


def shrink(node: Node) -> Output:
    """Bring what is outside a range nearer to it, and make the rest 0; integers are truncated afterwards."""
    how = {name: float(node.attrs[name]) for name in ("lambd", "bias")}
    x = node.x()
    return node.cast(node.emit("shrink", x if is_float(x) else node.cast(x, F64), **how), dtype_of(x))


def identity(node: Node) -> Output:
    """Return the input itself."""
    return node.x()


def dropout(node: Node) -> Output | tuple[Output, ...]:
    """Return the input: a graph is for inference. The mask is all ones; before version 12, which says so, zeros."""
    if node.has(2) and bool(node.number(2)) and (not node.has(1) or node.number(1)):
        raise node.refuse("training_mode, which drops elements", "inference, or a ratio of 0")
    x = node.x()
    if not any(node.wanted[1:]):
        return x
    return x, node.full(node.shape(), int(node.version >= 12), dtype_of(x) if node.version < 10 else BOOL)


def swiglu(node: Node) -> Output:
    """Return silu of the first times the second; other factors of the sigmoid are a swish first."""
    alpha = float(node.attrs.get("alpha", 1.0))
    if alpha == 1.0 and len(node.inputs) == 2:
        return node.emit("silu_mul", node.x(), node.x(1))
    raise node.refuse(f"alpha {alpha}", "1")


SAME = """Abs Acos Acosh And:logical_and Asin Asinh Atan Atanh BitwiseAnd:bitwise_and BitwiseNot:bitwise_not
    BitwiseOr:bitwise_or BitwiseXor:bitwise_xor Ceil Cos Cosh Equal Erf Exp Floor Greater GreaterOrEqual:greater_equal
    HardSwish:hardswish IsNaN:isnan Less LessOrEqual:less_equal Log Mish Neg Not:logical_not Or:logical_or
     Reciprocal Relu Round Sigmoid Sign Sin Sinh Softplus Softsign Sqrt Tan Tanh Where Xor:logical_xor"""

ONE_WAY = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")  # before version 7
NODES: dict[str, Handler] = {
    **{theirs: row(ours or theirs.lower()) for theirs, _, ours in (word.partition(":") for word in SAME.split())},
    "BitCast": bit_cast,
    "BitShift": by_mode("direction", {"LEFT": "left_shift", "RIGHT": "right_shift"}),
    "Cast": cast,
    "CastLike": cast_like,
    "Celu": row("celu", alpha="alpha"),
    "Clip": clip,
    "Add": arithmetic("add", ("add_scalar", 1), ("add_scalar", 1)),
    "Div": arithmetic("div", ("div_scalar", 1), None),
    "Mul": arithmetic("mul", ("scale", 1), ("scale", 1)),
    "Sub": arithmetic("sub", ("add_scalar", -1), ("rsub_scalar", 1)),
    "Dropout": dropout,
    "Elu": row("elu", alpha="alpha"),
    "Gelu": by_mode("approximate", {"none": "gelu", "tanh": "gelu_tanh"}),
    "HardSigmoid": hard_sigmoid,
    "Identity": identity,
    "IsInf": is_inf,
    "LeakyRelu": row("leaky_relu", alpha="alpha"),
    "Max": chain("maximum"),
    "Mean": mean,
    "Min": chain("minimum"),
    "Mod": by_mode("fmod", {0: "remainder", 1: "fmod"}),
    "PRelu": prelu,
    "Pow": pow_,
    "Selu": selu,
    "Shrink": shrink,
    "Sum": chain("add"),
    "SwiGLU": swiglu,
    "Swish": row("swish", beta="alpha"),
    "ThresholdedRelu": row("thresholded_relu", alpha="alpha"),
}
NODES |= {name: one_way(NODES[name]) for name in ONE_WAY}
