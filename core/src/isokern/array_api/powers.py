"""Integer powers by repeated squaring: the operator `pow` is of floats, which do not hold every integer."""

from __future__ import annotations

from ..eager.functions import function
from ..tensors import Tensor


def integer_power(base: Tensor, exponent: Tensor) -> Tensor:
    """Return base to the power of exponent, modulo the dtype's range; 1 / base⁻ⁿ rounded towards 0 for negative n.

    The number of squarings is the length of the largest exponent in bits, which the host asks for.
    """
    call = function
    if not base.desc.numel or not exponent.desc.numel:
        made: Tensor = call("mul")(base, exponent)
        return made
    element, where = base.dtype, call("where")
    negative = None
    if element.kind == "i":
        negative = call("less")(exponent, 0)
        exponent = call("abs")(exponent)
    largest = max(int(call("reduce_max")(exponent).item()), 0)
    zero = call("mul")(call("bitwise_and")(exponent, 0), base)  # of the shape that both broadcast to
    result = call("add")(zero, 1)
    square, left = base, exponent
    for at in range(largest.bit_length()):
        odd = call("equal")(call("bitwise_and")(left, 1), 1)
        result = where(odd, call("mul")(result, square), result)
        if at + 1 < largest.bit_length():
            square, left = call("mul")(square, square), call("right_shift")(left, 1)
    if negative is None:
        powers: Tensor = result
        return powers
    unit = call("equal")(call("abs")(base), 1)
    small: Tensor = where(negative, where(unit, result, zero), result)
    return small
