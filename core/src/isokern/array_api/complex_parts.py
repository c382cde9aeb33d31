"""Complex arrays as the floats that they lie in: views of their parts, and bodies that are computed from parts.

A complex number is two floats side by side, the real part first, as in C99, NumPy and DLPack. No kernel knows them:
what moves elements works on the floats, and what computes has an expression for each part.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache, partial
from typing import Any

from ..dtypes import BOOL, C64, C128, F32, F64, DType
from ..eager.calls import cached_descriptor
from ..eager.functions import function
from ..eager.quick import join
from ..eager.repeated import Call, calls_of, keep
from ..layout import TensorDesc, broadcast_shapes
from ..ops import find
from ..status import BadTensorDtype, BadTensorShape
from ..tensors import Tensor, empty
from .complex_bodies import Bodies

PART = {C64: F32, C128: F64}  # the dtype of the parts
WHOLE = {part: whole for whole, part in PART.items()}
_LETTERS = "abcdefgh"  # of the loops, as many as a tensor may have dims
_NAMES = ("x", "y", "u", "v", "p", "q", "r", "s")  # of the inputs in a body


def is_complex(x: Any) -> bool:
    """Return whether a value is a complex tensor."""
    return isinstance(x, Tensor) and x.desc.dtype.kind == "c"


def view_part(x: Tensor, at: int) -> Tensor:
    """Return the view of the real (0) or the imaginary (1) parts."""
    return x.derive(_describe_part, at)


def _describe_part(desc: TensorDesc, at: int) -> TensorDesc:
    first = 2 * desc.offset + (at if desc.numel else 0)
    return TensorDesc(PART[desc.dtype], desc.shape, [2 * s for s in desc.strides], first)


def view_parts(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the views of the real and of the imaginary parts."""
    return view_part(x, 0), view_part(x, 1)


def view_floats(x: Tensor) -> Tensor:
    """Return the view of the floats, with the parts along a further last dim."""
    return x.derive(_describe_floats, ())


def _describe_floats(desc: TensorDesc, given: tuple[()]) -> TensorDesc:
    return TensorDesc(PART[desc.dtype], (*desc.shape, 2), (*(2 * s for s in desc.strides), 1), 2 * desc.offset)


def view_planes(x: Tensor) -> Tensor:
    """Return the view of the floats, with the parts along a further first dim."""
    floats = view_floats(x)
    return floats.permute((x.ndim, *range(x.ndim)))


def view_complex(floats: Tensor) -> Tensor:
    """Return the complex view of floats whose last dim, of 2 and contiguous, has the parts."""
    return floats.derive(_describe_complex, ())


def _describe_complex(desc: TensorDesc, given: tuple[()]) -> TensorDesc:
    *strides, last = desc.strides if desc.numel else (*(0,) * (desc.ndim - 1), 1)
    if desc.shape[-1] != 2 or last != 1 or desc.offset % 2 or any(s % 2 for s in strides):
        raise BadTensorShape("complex", f"{desc}", allowed="floats whose last dim is a real and an imaginary part")
    shape = desc.shape[:-1]
    halves = [s // 2 for s in strides] if desc.numel else None
    return TensorDesc(WHOLE[desc.dtype], shape, halves, desc.offset // 2)


def make_empty(like: Tensor, shape: Sequence[int], dtype: DType | None = None) -> Tensor:
    """Return a complex tensor of undefined content on the device of another one."""
    return empty(tuple(shape), like.dtype if dtype is None else dtype, device=like.device)


def join_parts(real: Tensor, imag: Tensor) -> Tensor:
    """Return a complex tensor of copies of its parts."""
    made = make_empty(real, real.shape, WHOLE[real.dtype])
    for part, target in zip((real, imag), view_parts(made), strict=True):
        function("copy")(part, out=target)
    return made


def to_complex(x: Tensor, dtype: DType) -> Tensor:
    """Return a tensor in a complex dtype: real numbers with imaginary parts of 0."""
    if x.dtype is dtype:
        return x
    made = make_empty(x, x.shape, dtype)
    if is_complex(x):
        function("cast")(view_floats(x), out=view_floats(made))
        return made
    real, imag = view_parts(made)
    function("copy" if x.dtype is PART[dtype] else "cast")(x, out=real)
    function("fill")(out=imag)
    return made


def meet(*values: Any) -> list[Tensor]:
    """Return tensors and numbers, one of them a complex tensor, as complex tensors of the widest of their dtypes."""
    like = values[0].desc.dtype if values[0].__class__ is Tensor else None
    if like in PART and all(v.__class__ is Tensor and v.desc.dtype is like for v in values):
        return [*values]
    given = [v for v in values if isinstance(v, Tensor)]
    wide = any(v.dtype in (C128, F64) for v in given)
    first = next(v for v in given if is_complex(v))
    dtype = C128 if wide else C64
    return [to_complex(v, dtype) if isinstance(v, Tensor) else fill_complex(v, (), dtype, first.device) for v in values]


def fill_complex(value: Any, shape: Sequence[int], dtype: DType, device: Any) -> Tensor:
    """Return a complex tensor of one value."""
    made = empty(tuple(shape), dtype, device=device)
    number = complex(value)
    for part, target in zip((number.real, number.imag), view_parts(made), strict=True):
        function("fill")(value=part, out=target)
    return made


@cache
def _write_body(text: str) -> str:
    """Return a body with the inputs' names of `generic` for x, y, u, v, p, q, r and s."""
    return re.sub(r"\b([xyuvpqrs])\b", lambda found: f"x{_NAMES.index(found[0])}", text)


def _meet_shapes(parts: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the shape to which all parts broadcast."""
    shape: tuple[int, ...] | None = parts[0].shape
    for part in parts[1:]:
        if shape is not None and shape != part.shape:
            shape = broadcast_shapes(shape, part.shape)
    if shape is None:
        given = ", ".join(str(part.shape) for part in parts[::2])
        raise BadTensorShape("complex", f"shapes {given}", allowed="dims that are equal or 1")
    return shape


def _write_loop(body: str, rank: int, count: int) -> dict[str, str]:
    """Return the attributes of `generic` for a loop over all dims of as many parts."""
    letters = _LETTERS[:rank]
    return {"maps": f"{','.join([letters] * count)}->{letters}", "body": _write_body(body)}


def evaluate(body: str, *parts: Tensor, out: Tensor | None = None, dtype: Any = None) -> Tensor:
    """Return a body of x, y, u, v, p, q, r and s, the given floats in this order, which broadcast: in one loop."""
    shape = _meet_shapes(parts)
    wide = [part if part.shape == shape else part.broadcast_to(shape) for part in parts]
    options = {"out": out} if out is not None else {"dtype": dtype or parts[0].dtype}
    made: Tensor = function("generic")(None, wide, **_write_loop(body, len(shape), len(parts)), **options)
    return made


def evaluate_parts(bodies: tuple[str, str], *parts: Tensor, shape: Sequence[int] | None = None) -> Tensor:
    """Return the complex tensor whose real and imaginary parts two bodies compute."""
    made = make_empty(parts[0], _meet_shapes(parts) if shape is None else shape, WHOLE[parts[0].dtype])
    for body, target in zip(bodies, view_parts(made), strict=True):
        evaluate(body, *parts, out=target)
    return made


OWNER = "complex"  # of the calls that are kept
_calls = calls_of(OWNER)


def compute(bodies: Bodies | str, *values: Tensor) -> Tensor:
    """Return what bodies compute of the parts of complex tensors: a complex tensor by two, one of booleans by one.

    The loops of a call that was made before are one call where the device can do that.
    """
    key = bodies, *[v.facts for v in values]
    known = _calls.get(key)
    if known is not None:
        found: Tensor = known(values)
        return found
    made = _compute(bodies, values)
    keep(OWNER, key, _join_loops(bodies, values, made))
    return made


def _compute(bodies: Bodies | str, values: Sequence[Tensor]) -> Tensor:
    parts = [part for v in values for part in view_parts(v)]
    return evaluate(bodies, *parts, dtype=BOOL) if isinstance(bodies, str) else evaluate_parts(bodies, *parts)


def _join_loops(bodies: Bodies | str, values: Sequence[Tensor], made: Tensor) -> Call:
    """Return the loops as a function of the values; `made` is what it returned for some like them."""
    parts = [part for v in values for part in view_parts(v)]
    inputs = [None, *(part.broadcast_to(made.shape).desc for part in parts)]
    places = [-2, *(1 + at // 2 for at in range(len(parts)))]
    texts, targets = ((bodies,), (made,)) if isinstance(bodies, str) else (bodies, view_parts(made))
    calls = []
    for text, target in zip(texts, targets, strict=True):
        loop = _write_loop(text, made.ndim, len(parts))
        descriptor = cached_descriptor(find("generic"), made.device, inputs, [target.desc], loop)
        calls.append((descriptor, [0, *places]))
    return join(calls, [made.facts, *(v.facts for v in values)], partial(_compute, bodies))


def square_magnitudes(x: Tensor) -> Tensor:
    """Return |z|² of each element, of real numbers, too."""
    made: Tensor = evaluate("x * x + y * y", *view_parts(x)) if is_complex(x) else function("square")(x)
    return made


def check_real(where: str, x: Tensor) -> None:
    """Raise BadTensorDtype for complex numbers where only real ones have a meaning."""
    if is_complex(x):
        raise BadTensorDtype(where, f"an array of {x.dtype}", allowed="real numbers", hint="real(x), imag(x), abs(x)")
