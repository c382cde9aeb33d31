"""Draws of nodes that work element by element, or reduce axes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from draws import ABSENT, FLOATS, KINDS, Draw, Drawn, Recipe, i64
from onnx import TensorProto, helper

# Elementwise


def unary(low: float = -3, high: float = 3, **attrs: tuple[float, float]) -> Recipe:
    """Return the recipe of a node of one input, whose attributes are floats of a range."""

    def recipe(d: Draw) -> Drawn:
        named = {n: d.maybe(d.float(*r)) for n, r in attrs.items()}
        return Drawn([d.tensor(0, d.shape(0), low, high)], named)

    return recipe


def binary(low: float = -3, high: float = 3, **choices: Sequence[Any]) -> Recipe:
    """Return the recipe of a node of two inputs, which broadcast: before version 7 in one direction, along an axis."""

    def recipe(d: Draw) -> Drawn:
        shape = d.shape(0 if d.version >= 7 else 1)
        named: dict[str, Any] = {n: d.pick(v) for n, v in choices.items()}
        one, other = shape, d.like(shape)
        if "broadcast" in d.schema.attributes:
            kind = d.int(0, 2)
            other = shape
            if kind == 1:
                named["broadcast"], other = 1, shape[d.int(0, len(shape)) :]
            elif kind == 2:
                start = d.int(0, len(shape) - 1)
                end = d.int(start + 1, len(shape))
                named |= {"broadcast": 1, "axis": start}
                other = shape[start:end]
        elif d.chance(0.5):
            one, other = other, one
        a, b = d.tensor(0, one, low, high), d.tensor(1, other, low, high)
        if d.schema.name in ("Div", "Mod"):
            b = np.where(b == 0, np.ones_like(b), b)
        return Drawn([a, b], {n: v for n, v in named.items() if v is not None})

    return recipe


def power(d: Draw) -> Drawn:
    shape = d.shape()
    x = d.tensor(0, shape, 0.2, 2)
    y = d.tensor(1, d.like(shape) if d.version >= 7 else shape, 0, 1)
    if d.version < 7 and d.chance(0.5):
        return Drawn([x, d.tensor(1, shape[-1:], 0, 2)], {"broadcast": 1})
    return Drawn([x, y], loose=4)


def mod(d: Draw) -> Drawn:
    made = binary()(d)
    floats = np.asarray(made.inputs[0]).dtype.kind == "f"
    return Drawn(made.inputs, {"fmod": 1 if floats else d.maybe(d.int(0, 1))})


def variadic(d: Draw) -> Drawn:
    shape = d.shape(0 if d.version >= 8 else 1)
    return Drawn([d.tensor(0, d.like(shape) if d.version >= 8 else shape) for _ in range(d.int(1, 4))])


def where(d: Draw) -> Drawn:
    shape = d.shape()
    return Drawn([d.array(d.like(shape), np.bool_), d.tensor(1, d.like(shape)), d.tensor(1, shape)])


def clip(d: Draw) -> Drawn:
    x = d.tensor(0, d.shape(0))
    attributes = "min" in d.schema.attributes
    low, high = sorted(d.array((2,), x.dtype.type).tolist())
    held = (float(low), float(high)) if attributes else (np.asarray(low, x.dtype), np.asarray(high, x.dtype))
    return Drawn([x], {"min": d.maybe(held[0]), "max": d.maybe(held[1])})


def prelu(d: Draw) -> Drawn:
    shape = d.shape(2)
    slope = d.like(shape) if d.version >= 7 else (d.pick((1, shape[1])),)
    if d.version >= 7:
        slope = slope[-len(shape) :]
    return Drawn([d.tensor(0, shape), d.tensor(1, slope, 0.1, 1)])


def cast(d: Draw) -> Drawn:
    kinds = [KINDS[t] for t in d.schema.type_constraints[1].allowed_type_strs if t in KINDS]
    x = d.tensor(0, d.shape(0), 0 if d.chance(0.5) else -3, 3)
    to = d.pick(sorted(kinds, key=str))
    if x.dtype.kind == "f" and np.dtype(to).kind == "u":
        x = np.abs(x)
    number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    d.kinds[d.schema.outputs[0].type_str] = to
    return Drawn([x], {"to": TensorProto.DataType.Name(number) if d.version < 6 else number})


def cast_like(d: Draw) -> Drawn:
    x = d.tensor(0, d.shape(0), 0, 3)
    return Drawn([x, d.tensor(1, d.shape(0))])


def bit_cast(d: Draw) -> Drawn:
    x = d.tensor(0, d.shape(0), only=FLOATS)
    to = {2: np.int16, 4: np.int32, 8: np.uint64}[x.dtype.itemsize]
    return Drawn([x], {"to": helper.np_dtype_to_tensor_dtype(np.dtype(to))})


def gelu(d: Draw) -> Drawn:
    return Drawn([d.tensor(0, d.shape(0))], {"approximate": d.maybe(d.pick(["none", "tanh"]))}, loose=2)


def is_inf(d: Draw) -> Drawn:
    x = d.tensor(0, d.shape(), only=(np.float32, np.float64))
    x = np.where(x > 2, np.inf, np.where(x < -2, -np.inf, x)).astype(x.dtype)
    return Drawn([x], {n: d.maybe(d.int(0, 1)) for n in ("detect_negative", "detect_positive")})


def is_nan(d: Draw) -> Drawn:
    x = d.tensor(0, d.shape())
    return Drawn([np.where(x > 1, np.nan, x).astype(x.dtype)])


def dropout(d: Draw) -> Drawn:
    x = d.tensor(0, d.shape())
    ratio = d.float(0, 0.9)
    held = ratio if "ratio" in d.schema.attributes else np.asarray(ratio, np.float32)
    count = 2 if d.version >= 7 and d.chance(0.5) else 1
    return Drawn([x], {"ratio": d.maybe(held), "is_test": 1}, count)


# Reductions


def reduction(low: float = -3, high: float = 3) -> Recipe:
    """Return the recipe of a reduction, whose axes are an attribute or an input."""

    def recipe(d: Draw) -> Drawn:
        shape = d.shape(1)
        axes: Any = d.axes(len(shape))
        if "axes" not in d.schema.attributes:
            axes = d.pick([i64(*axes), i64(*axes), i64()])
        named = {"axes": d.maybe(axes), "keepdims": d.maybe(d.int(0, 1))}
        named["noop_with_empty_axes"] = d.maybe(d.int(0, 1), 0.3)
        return Drawn([d.tensor(0, shape, low, high)], named, loose=4)

    return recipe


def whole_numbers(d: Draw, shape: Sequence[int]) -> Any:
    """Return a tensor of whole numbers, so that some are equal."""
    x = d.tensor(0, shape)
    return np.round(x).astype(x.dtype)


def arg(d: Draw) -> Drawn:
    shape = d.shape()
    named = {"axis": d.maybe(d.axis(len(shape))), "keepdims": d.maybe(d.int(0, 1))}
    named["select_last_index"] = d.maybe(d.int(0, 1))
    return Drawn([whole_numbers(d, shape)], named)


def cumulative(d: Draw) -> Drawn:
    shape = d.shape()
    axis = np.asarray(d.axis(len(shape)), d.kind(1))
    named = {n: d.maybe(d.int(0, 1)) for n in ("exclusive", "reverse")}
    return Drawn([d.tensor(0, shape, -2, 2), axis], named, known=(1,), loose=4)


def soft(d: Draw) -> Drawn:
    shape = d.shape(2)
    return Drawn([d.tensor(0, shape)], {"axis": d.maybe(d.axis(len(shape)))})


def top_k(d: Draw) -> Drawn:
    shape = d.shape()
    axis = d.maybe(d.axis(len(shape)))
    k = d.int(1, shape[-1 if axis is None else axis])
    kind, count = d.kind(0), int(np.prod(shape))
    x = d.rng.permutation(count).reshape(shape).astype(kind)
    named = {"axis": axis, "k": k, "K": i64(k), "largest": d.maybe(d.int(0, 1)), "sorted": ABSENT}
    return Drawn([x], named, 2)


def lp_normalization(d: Draw) -> Drawn:
    shape = d.shape()
    return Drawn([d.tensor(0, shape, 0.5, 3)], {"axis": d.maybe(d.axis(len(shape))), "p": d.maybe(d.int(1, 2))})


RECIPES: dict[str, Recipe] = {
    **dict.fromkeys(
        [
            "Abs",
            "Asinh",
            "Atan",
            "Ceil",
            "Cos",
            "Cosh",
            "Erf",
            "Exp",
            "Floor",
            "HardSwish",
            "Identity",
            "Mish",
            "Neg",
            "Not",
            "Relu",
            "Round",
            "Sigmoid",
            "Sign",
            "Sin",
            "Sinh",
            "Size",
            "Softplus",
            "Softsign",
            "Tanh",
            "BitwiseNot",
            "NonZero",
        ],
        unary(),
    ),
    **dict.fromkeys(("Acos", "Asin", "Atanh"), unary(-0.95, 0.95)),
    **dict.fromkeys(("Log", "Sqrt", "Reciprocal"), unary(0.2, 4)),
    "Acosh": unary(1.1, 5),
    "Tan": unary(-1.2, 1.2),
    **dict.fromkeys(["Elu", "Celu", "ThresholdedRelu", "Swish"], unary(alpha=(0.2, 2))),
    "LeakyRelu": unary(alpha=(0.01, 0.5)),
    "Selu": unary(alpha=(0.2, 2), gamma=(0.5, 2)),
    "HardSigmoid": unary(alpha=(0.1, 0.5), beta=(0.2, 0.8)),
    "Shrink": unary(lambd=(0.2, 1), bias=(0, 0.5)),
    **dict.fromkeys(
        [
            "Add",
            "Sub",
            "Mul",
            "Div",
            "Equal",
            "Greater",
            "GreaterOrEqual",
            "Less",
            "LessOrEqual",
            "And",
            "Or",
            "Xor",
            "BitwiseAnd",
            "BitwiseOr",
            "BitwiseXor",
        ],
        binary(),
    ),
    "BitShift": binary(0, 1, direction=["LEFT", "RIGHT"]),
    **dict.fromkeys(["Max", "Min", "Sum", "Mean"], variadic),
    **dict.fromkeys(["ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"], reduction()),
    **dict.fromkeys(("ReduceSumSquare", "ReduceLogSumExp", "ReduceProd"), reduction(-2, 2)),
    "ReduceLogSum": reduction(0.4, 3),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("CumSum", "CumProd"), cumulative),
    **dict.fromkeys(("Softmax", "LogSoftmax", "Hardmax"), soft),
    "BitCast": bit_cast,
    "Cast": cast,
    "CastLike": cast_like,
    "Clip": clip,
    "Dropout": dropout,
    "Gelu": gelu,
    "IsInf": is_inf,
    "IsNaN": is_nan,
    "LpNormalization": lp_normalization,
    "Mod": mod,
    "PRelu": prelu,
    "Pow": power,
    "TopK": top_k,
    "Where": where,
}
