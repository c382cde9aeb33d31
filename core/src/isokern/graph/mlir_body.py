"""The scalar part of MLIR export, as operations of arith and math.

It has the dtype conversions by Isokern's rules, and the language of scalar expressions. Every function appends to the
block of the `ImplicitBuilder` that is open. Integers are signless, as in MLIR: the operation has the sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from math import log

import numpy as np
from xdsl.dialects import arith, math
from xdsl.dialects.builtin import (
    BFloat16Type,
    Float16Type,
    Float32Type,
    Float64Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
)
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import irdl_op_definition

from ..dtypes import BF16, BOOL, F16, F32, F64, I64, U64, DType
from ..expr.evaluate import constant as numpy_constant
from ..expr.tree import Expr

Float = Float64Type | Float32Type | Float16Type | BFloat16Type
Make = Callable[..., Operation]
_FLOATS: dict[DType, Float] = {F64: Float64Type(), F32: Float32Type(), F16: Float16Type(), BF16: BFloat16Type()}


def float_type(dtype: DType) -> Float:
    """Return the MLIR type of a float dtype."""
    return _FLOATS[dtype]


def has_element_type(dtype: DType) -> bool:
    """Return whether MLIR has a type for the elements."""
    return dtype in _FLOATS or dtype.kind in "iub"


def integer_type(dtype: DType) -> IntegerType:
    """Return the MLIR type of an integer dtype; a BOOL is one bit."""
    return IntegerType(1 if dtype is BOOL else 8 * dtype.itemsize)


def element_type(dtype: DType) -> Float | IntegerType:
    """Return the MLIR type of an element."""
    return float_type(dtype) if dtype.kind == "f" else integer_type(dtype)


def constant(value: float, dtype: DType) -> SSAValue:
    """Return a constant, rounded to the dtype as NumPy does."""
    if dtype.kind != "f":
        return arith.ConstantOp(IntegerAttr(int(value), integer_type(dtype))).result
    assert dtype.numpy is not None
    with np.errstate(over="ignore"):
        rounded = float(np.float64(value).astype(dtype.numpy))
    return arith.ConstantOp(FloatAttr(rounded, float_type(dtype))).result


def select(test: SSAValue, yes: SSAValue, no: SSAValue) -> SSAValue:
    """Return `yes if test else no`."""
    return arith.SelectOp(test, yes, no).result


_INTEGER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_FLOAT = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}


def compare(sign: str, a: SSAValue, b: SSAValue, dtype: DType) -> SSAValue:
    """Return a comparison as one bit; with NaN only `!=` is true."""
    if dtype.kind == "f":
        return arith.CmpfOp(a, b, _FLOAT[sign]).result
    word = {"==": "eq", "!=": "ne"}.get(sign) or f"{'s' if dtype.kind == 'i' else 'u'}{_INTEGER[sign]}"
    return arith.CmpiOp(a, b, word).result


# Conversion, as in ops/cast.py


def convert(x: SSAValue, source: DType, target: DType) -> SSAValue:
    """Return x in another dtype.

    Float to integer truncates, saturates and maps NaN to 0; integer to integer wraps; anything to BOOL is `!= 0`.
    """
    if source is target:
        return x
    if target is BOOL:
        return compare("!=", x, constant(0, source), source)
    if source.kind == "f":
        return _of_float(x, source, target)
    if target.kind == "f":
        signed = arith.SIToFPOp if source.kind == "i" else arith.UIToFPOp
        if target.itemsize > 2:
            return signed(x, float_type(target)).result
        return _narrow(signed(x, float_type(F64)).result, F64, target)  # rounds once, up to 2^53
    return _resize(x, source, target)


def _of_float(x: SSAValue, source: DType, target: DType) -> SSAValue:
    if target.kind != "f":
        return _saturate(x, source, target)
    if target.itemsize > source.itemsize:
        return arith.ExtFOp(x, float_type(target)).result
    if target.itemsize == source.itemsize:  # F16 and BF16
        return _narrow(arith.ExtFOp(x, float_type(F32)).result, F32, target)
    return _narrow(x, source, target)


def _narrow(x: SSAValue, source: DType, target: DType) -> SSAValue:
    return arith.TruncFOp(x, float_type(target)).result


def _resize(x: SSAValue, source: DType, target: DType) -> SSAValue:
    before, after = integer_type(source), integer_type(target)
    if before == after:
        return x
    if before.width.data > after.width.data:
        return arith.TruncIOp(x, after).result
    return (arith.ExtSIOp if source.kind == "i" else arith.ExtUIOp)(x, after).result


def _saturate(x: SSAValue, source: DType, target: DType) -> SSAValue:
    """Convert a float to an integer, saturating.

    fptosi and fptoui give poison outside the target's range, so only values inside it reach them.
    """
    if source.itemsize == 2:
        x, source = arith.ExtFOp(x, float_type(F32)).result, F32
    assert target.numpy is not None and source.numpy is not None
    limits, zero = np.iinfo(target.numpy), constant(0, source)
    low, high = int(limits.min), int(limits.max) + 1  # high is a power of two: exact in each float
    exact = int(source.numpy.type(low - 1)) == low - 1  # then low - 0.5, which truncates to low, is inside too
    above = compare(">" if exact else ">=", x, constant(low - 1 if exact else low, source), source)
    inside = arith.AndIOp(above, compare("<", x, constant(high, source), source)).result
    safe = select(inside, x, zero)
    wide = U64 if target is U64 else I64
    to = arith.FPToUIOp if wide is U64 else arith.FPToSIOp
    if wide is U64:  # fptoui of a negative number is poison, even of -0.5
        safe = select(compare(">", safe, zero, source), safe, zero)
    made = _resize(to(safe, integer_type(wide)).result, wide, target)
    most, least, none = (constant(v, target) for v in (int(limits.max), low, 0))
    beyond = select(compare(">", x, zero, source), most, select(compare("<", x, zero, source), least, none))
    return select(inside, made, beyond)


# The language of scalar expressions


@irdl_op_definition
class RemFOp(arith.FloatingPointLikeBinaryOperation):
    """arith.remf, C's fmod, which xDSL lacks."""

    name = "arith.remf"


_UNARY: dict[str, Make] = {
    "exp": math.ExpOp,
    "exp2": math.Exp2Op,
    "expm1": math.ExpM1Op,
    "log": math.LogOp,
    "log2": math.Log2Op,
    "log1p": math.Log1pOp,
    "sin": math.SinOp,
    "cos": math.CosOp,
    "tan": math.TanOp,
    "asin": math.AsinOp,
    "acos": math.AcosOp,
    "atan": math.AtanOp,
    "sinh": math.SinhOp,
    "cosh": math.CoshOp,
    "tanh": math.TanhOp,
    "asinh": math.AsinhOp,
    "acosh": math.AcoshOp,
    "atanh": math.AtanhOp,
    "erf": math.ErfOp,
    "sqrt": math.SqrtOp,
    "rsqrt": math.RsqrtOp,
    "cbrt": math.CbrtOp,
    "floor": math.FloorOp,
    "ceil": math.CeilOp,
    "trunc": math.TruncOp,
    "rint": math.RoundEvenOp,
    "abs": math.AbsFOp,
}
_BINARY: dict[str, Make] = {
    "minimum": arith.MinimumfOp,
    "maximum": arith.MaximumfOp,
    "copysign": math.CopySignOp,
    "+": arith.AddfOp,
    "-": arith.SubfOp,
    "*": arith.MulfOp,
    "/": arith.DivfOp,
    "fmod": RemFOp,
}
_INTEGERS: dict[str, tuple[Make, Make]] = {  # for I64, and for U64
    "+": (arith.AddiOp, arith.AddiOp),
    "-": (arith.SubiOp, arith.SubiOp),
    "*": (arith.MuliOp, arith.MuliOp),
    "minimum": (arith.MinSIOp, arith.MinUIOp),
    "maximum": (arith.MaxSIOp, arith.MaxUIOp),
    "bitand": (arith.AndIOp, arith.AndIOp),
    "bitor": (arith.OrIOp, arith.OrIOp),
    "bitxor": (arith.XOrIOp, arith.XOrIOp),
}


def combine(word: str, a: SSAValue, b: SSAValue, compute: DType) -> SSAValue:
    """Combine two numbers by an operation of the language.

    It is an arithmetic sign, minimum or maximum (NaN if either operand is), bitand and so on.
    """
    if compute.kind == "f":
        return _result(_BINARY[word](a, b))
    return _result(_INTEGERS[word][compute is U64](a, b))


def _result(op: Operation) -> SSAValue:
    return op.results[0]


def _sign(x: SSAValue, compute: DType) -> SSAValue:
    """Return -1, 1, or x itself if it is neither below nor above 0: 0, -0 or NaN."""
    zero = constant(0, compute)
    low = constant(-1, compute) if compute is not U64 else zero
    below = select(compare("<", x, zero, compute), low, x)
    return select(compare(">", x, zero, compute), constant(1, compute), below)


def _quotient(a: SSAValue, b: SSAValue, compute: DType) -> SSAValue:
    """Return the quotient rounded down; division by 0 gives 0.

    Division by -1 is a subtraction from 0, since the least number has no opposite.
    """
    zero, one = constant(0, compute), constant(1, compute)
    none = compare("==", b, zero, compute)
    if compute is U64:
        return select(none, zero, arith.DivUIOp(a, select(none, one, b)).result)
    opposite = compare("==", b, constant(-1, compute), compute)
    safe = select(arith.OrIOp(none, opposite).result, one, b)
    found = arith.FloorDivSIOp(a, safe).result
    return select(none, zero, select(opposite, arith.SubiOp(zero, a).result, found))


def _power(x: SSAValue, y: SSAValue, compute: DType) -> SSAValue:
    """Return x to the power y, computed from |x|, since IREE has no power of a negative number.

    An odd exponent keeps the sign of x; a fractional exponent of a negative finite x gives NaN.
    """
    zero, one = constant(0, compute), constant(1, compute)
    size = _result(math.AbsFOp(x))
    # 1 to any power is 1, to ∞ and NaN too
    size = select(compare("==", size, one, compute), one, _result(math.PowFOp(size, y)))
    halved = combine("*", y, constant(0.5, compute), compute)
    broken, odd = (compare("!=", v, _result(math.FloorOp(v)), compute) for v in (y, halved))
    below = compare("<", x, zero, compute)
    finite = compare(">", x, constant(float("-inf"), compute), compute)
    odd = arith.AndIOp(odd, arith.XOrIOp(broken, constant(1, BOOL))).result
    signed = select(odd, combine("copysign", size, x, compute), size)
    invalid = arith.AndIOp(arith.AndIOp(below, finite), broken).result
    found = select(invalid, constant(float("nan"), compute), signed)
    return select(compare("==", y, zero, compute), one, found)


def _fmod(a: SSAValue, b: SSAValue, compute: DType) -> SSAValue:
    """Return the remainder with a's sign."""
    if compute.kind == "f":
        return combine("fmod", a, b, compute)
    found = _remainder(a, b, compute)
    return found if compute is U64 else _move(found, a, b, "-", compute)


def _remainder(a: SSAValue, b: SSAValue, compute: DType) -> SSAValue:
    """Return the remainder with b's sign; a zero of floats also has it."""
    if compute.kind != "f":
        return combine("-", a, combine("*", _quotient(a, b, compute), b, compute), compute)
    found = combine("fmod", a, b, compute)
    signed = combine("copysign", found, b, compute)
    return select(compare("==", found, constant(0, compute), compute), signed, _move(found, b, b, "+", compute))


def _move(found: SSAValue, sign: SSAValue, b: SSAValue, by: str, compute: DType) -> SSAValue:
    """Return a remainder moved by b if it is not 0 and lacks the sign of `sign`."""
    zero = constant(0, compute)
    below, wanted = (compare("<", v, zero, compute) for v in (found, sign))
    wrong = arith.AndIOp(arith.XOrIOp(below, wanted).result, compare("!=", found, zero, compute)).result
    return select(wrong, combine(by, found, b, compute), found)


def _shift(make: Make) -> Callable[[SSAValue, SSAValue, DType], SSAValue]:
    """Return a shift; MLIR leaves counts of 64 and more open."""

    def shift(a: SSAValue, b: SSAValue, compute: DType) -> SSAValue:
        few = compare("<", b, constant(64, U64), U64)
        sign = select(compare("<", a, constant(0, compute), compute), constant(-1, I64), constant(0, I64))
        sign = sign if compute is I64 and make is arith.ShRUIOp else constant(0, compute)
        moved = _result(make(arith.XOrIOp(a, sign).result, select(few, b, constant(0, compute))))
        return arith.XOrIOp(select(few, moved, constant(0, compute)), sign).result

    return shift


# For e^(a^2) erfc a = u G(1 - u), u = 2k / (a + k): k, the largest a, what splits a product exactly, G's coefficients
_ERFC = {
    F32: (
        1.5,
        10.5,
        4097.0,
        [
            0.321585417,
            -0.16928336,
            0.025207635,
            0.0159233063,
            -0.00271160156,
            -0.00315835327,
            -0.000245977513,
            0.000610335788,
            0.000245430419,
            -5.82612411e-05,
            -4.72365973e-05,
        ],
    ),
    F64: (
        2.5,
        27.5,
        134217729.0,
        [
            0.2108063640611436,
            -0.16093036988782977,
            0.09078282332961615,
            -0.034250229049208714,
            0.0056723100265648205,
            0.001678608860454961,
            -0.0009637571081591928,
            -8.784165266549966e-05,
            0.00014053878317394546,
            1.1661552897422088e-05,
            -2.252121320075454e-05,
            -3.906387857444623e-06,
            3.6498740133525043e-06,
            1.3506486239426485e-06,
            -4.691009584229347e-07,
            -3.920897962573095e-07,
            3.414783294683841e-09,
            8.910309940156533e-08,
            2.238833311166249e-08,
            -1.3720362321798085e-08,
            -6.890512453092713e-09,
            9.762614710024112e-10,
            7.888197750156515e-10,
        ],
    ),
}


def _erfc(x: SSAValue, compute: DType) -> SSAValue:
    """Return erfc x as isokern_math.h has it: IREE links no erfc, and 1 - erf x cancels."""
    k, most, split, coefficients = _ERFC[compute]

    def do(word: str, a: SSAValue, b: SSAValue | float) -> SSAValue:
        return combine(word, a, constant(b, compute) if isinstance(b, float) else b, compute)

    a = do("minimum", _result(math.AbsFOp(x)), most)
    wide = do("*", a, split)
    head = do("-", wide, do("-", wide, a))  # with so few bits that its square is exact (Veltkamp)
    u = do("/", constant(2 * k, compute), do("+", a, k))
    t, g = do("-", constant(1.0, compute), u), constant(coefficients[-1], compute)
    for c in reversed(coefficients[:-1]):
        g = do("+", do("*", g, t), c)
    rest = do("*", do("-", head, a), do("+", head, a))
    power = do("*", _result(math.ExpOp(do("*", do("*", head, head), -1.0))), _result(math.ExpOp(rest)))
    y = do("*", do("*", power, g), u)
    return select(compare("<", x, constant(0, compute), compute), do("-", constant(2.0, compute), y), y)


_PAIRS: dict[str, Callable[[SSAValue, SSAValue, DType], SSAValue]] = {
    "quotient": _quotient,
    "pow": _power,
    "fmod": _fmod,
    "remainder": _remainder,
    "shift_left": _shift(arith.ShLIOp),
    "shift_right": _shift(arith.ShRUIOp),
}


def call(name: str, args: Sequence[SSAValue], compute: DType) -> SSAValue:
    """Return a named function of the language applied to its arguments."""
    first = args[0]
    if len(args) == 2:
        return _PAIRS.get(name, partial(combine, name))(first, args[1], compute)
    if name == "sign":
        return _sign(first, compute)
    if name == "erfc":
        return _erfc(first, compute)
    if name == "log10":  # IREE links no log10f
        return combine("*", _result(math.LogOp(first)), constant(1 / log(10), compute), compute)
    if name == "bitnot":
        return arith.XOrIOp(first, constant(-1, compute)).result
    if name == "abs" and compute.kind != "f":
        return first if compute is U64 else _result(math.AbsIOp(first))
    return _result(_UNARY[name](first))


def evaluate(tree: Expr, values: Mapping[str, SSAValue], compute: DType) -> SSAValue:
    """Evaluate an expression on values of the compute type, in that type; a condition gives 1 or 0."""

    def number(node: Expr) -> SSAValue:
        if node.kind == "const":
            return constant(numpy_constant(node.value, np.dtype(compute.numpy)).item(), compute)
        if node.kind == "name":
            return values[node.value]
        if node.kind == "neg":
            x = number(node.args[0])
            return arith.NegfOp(x).result if compute.kind == "f" else combine("-", constant(0, compute), x, compute)
        if node.kind == "arith":
            a, b = map(number, node.args)
            return combine(node.value, a, b, compute)
        if node.kind == "select":
            test, yes, no = node.args
            return select(condition(test), number(yes), number(no))
        if node.kind == "call" and node.value != "isnan":
            return call(node.value, [number(a) for a in node.args], compute)
        return select(condition(node), constant(1, compute), constant(0, compute))

    def condition(node: Expr) -> SSAValue:
        if node.kind == "compare":
            a, b = map(number, node.args)
            return compare(node.value, a, b, compute)
        if node.kind in ("and", "or"):
            join = arith.AndIOp if node.kind == "and" else arith.OrIOp
            return reduce(lambda a, b: join(a, b).result, map(condition, node.args))
        if node.kind == "not":
            return arith.XOrIOp(condition(node.args[0]), constant(1, BOOL)).result
        if node.kind == "call" and node.value == "isnan":
            x = number(node.args[0])
            return compare("!=", x, x, compute)
        return compare("!=", number(node), constant(0, compute), compute)

    return number(tree)
