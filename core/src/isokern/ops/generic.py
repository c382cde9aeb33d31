"""generic: a loop nest over tensors whose dims are loops, with a scalar expression as body.

Normal form of the stem, which the operators of `structured.py` share: every tensor has the loops as dims, first those
of y, then the reduced ones, along which y and init have stride 0 (as in `reduce`). Dims of each kind are merged. A
tensor has stride 0 along a loop that does not move it, and the sum of its strides along a loop of several of its dims.
Where nothing is reduced, an init that is present is one more input of the body, after the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..declare import Tolerance, declare
from ..declare.attributes import attrs, body, choice, text
from ..declare.normal_form import Descs, coalesce
from ..dtypes import COMPUTED, F64, FP8, I64, U64, DType, wider
from ..expr.stack_code import CODE_NAMES, INPUTS, float_of, words_of
from ..expr.tree import INTEGER_FUNCTIONS, SHARED_FUNCTIONS
from ..layout import TensorDesc
from ..status import BadTensorShape, InvalidArgument
from .generic_reference import nest_scale, run_nest
from .generic_samples import list_errors, list_samples
from .loop_maps import loops_of, over, parse_maps, sizes_of

COMBINES = ("none", "sum", "maximum", "minimum", "product")


def nest(y: TensorDesc, init: TensorDesc | None, ins: Sequence[TensorDesc], kept: int) -> tuple[Descs, Descs]:
    """Return (inputs, outputs) in normal form.

    All tensors are given over the loops, of which the first `kept` are the output's.
    """
    y_, *others = coalesce([_clear(y, kept), init, *ins])
    assert y_ is not None
    return others, [y_]


def _clear(d: TensorDesc, kept: int) -> TensorDesc:
    """Return y with stride 0 along reduced loops only; along a kept loop it becomes 1. init may repeat itself."""
    strides = [(s or 1) if i < kept else 0 for i, s in enumerate(d.strides)]
    return TensorDesc(d.dtype, d.shape, strides, d.offset)


def _normal_form(inputs: Descs, outputs: list[TensorDesc], values: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return all tensors over the loops: y's letters first, then the reduced ones; absent ones by stride 0."""
    init, *given = inputs
    ins = [d for d in given if d is not None]
    maps = parse_maps("generic", values["maps"], len(ins))
    sizes, loops = sizes_of("generic", maps, [d.shape for d in ins]), loops_of(maps)
    names = len(ins) + (1 if init is not None and values["combine"] == "none" else 0)
    check_body("generic", values["body"], names, find_widest(ins, outputs[0]))
    wide = [over(d, letters, loops, sizes) for d, letters in zip(ins, maps[0], strict=True)]
    out = maps[1]
    start = None if init is None else over(init, out, loops, sizes)
    return nest(over(outputs[0], out, loops, sizes), start, wide, len(out))


def _shapes(inputs: Sequence[Any], values: Mapping[str, Any]) -> list[tuple[int, ...]]:
    init, *ins = inputs
    maps = parse_maps("generic", values["maps"], len(ins))
    sizes = sizes_of("generic", maps, ins)
    y = tuple(sizes[c] for c in maps[1])
    if values["combine"] == "none" and len(loops_of(maps)) > len(y):
        raise InvalidArgument(
            "generic", f"maps {values['maps']!r} reduce without combine", allowed=", ".join(COMBINES[1:])
        )
    if init is None and values["combine"] != "none":
        given = f"combine={values['combine']} without init"
        raise InvalidArgument("generic", given, allowed="init, with which the terms are combined")
    if init is not None and init != y:
        raise BadTensorShape("generic", f"init is {list(init)}", allowed=f"{list(y)}, as y")
    return [y]


def _check(inputs: Sequence[TensorDesc | None], values: Mapping[str, Any]) -> None:
    read = len(inputs) - 1 + (1 if inputs[0] is not None and values["combine"] == "none" else 0)
    if read > INPUTS:
        raise InvalidArgument("generic", f"{read} tensors that the body may read", allowed=f"up to {INPUTS}")


def find_widest(ins: Sequence[TensorDesc], y: TensorDesc) -> DType:
    """Return the dtype among the inputs and a float y in whose compute type the body is computed."""
    found = ins[0].dtype
    for d in ins:
        found = wider(found, d.dtype)
    return wider(found, y.dtype) if y.dtype.kind == "f" else found


def check_body(where: str, text: str, names: int, element: DType) -> None:
    """Raise InvalidArgument if an expression has a name beyond x0 … x{names - 1}, or what its type lacks."""
    integer = element.compute in (I64, U64)
    for kind, name, value in body_parts(text):
        if kind == "input" and value >= names:
            known = ", ".join([f"x{i}" for i in range(names)])
            raise InvalidArgument(where, f"body has x{value}", allowed=known)
        reason = _find_misplaced(kind, name, value, integer)
        if reason:
            raise InvalidArgument(where, f"body has {reason} of {element.name}", allowed="what its type has")


def body_parts(body: str) -> list[tuple[str, str, Any]]:
    """Return (kind, name, value) of each part of an expression, in the order of its stack code.

    Parts are ("const", "", 2.0), ("input", "", 0), ("call", "exp", 0), ("other", "div", 0).
    """
    parts: list[tuple[str, str, Any]] = []
    code = iter(words_of(body))
    for word in code:
        name = CODE_NAMES[word & 255]
        if name == "const":
            parts.append(("const", "", float_of(next(code))))
        elif name == "input":
            parts.append(("input", "", word >> 8))
        elif name.startswith("fn_"):
            parts.append(("call", name[3:], 0))
        else:
            parts.append(("other", name, 0))
    return parts


def _find_misplaced(kind: str, name: str, value: Any, integer: bool) -> str:
    """Return what the compute type lacks for a part of an expression; an empty string if nothing."""
    if kind == "other" and name == "div" and integer:
        return "a quotient (take quotient(a, b))"
    if kind == "const" and integer and value % 1 != 0:  # not an integer, NaN, or infinite
        return f"the constant {value}"
    if kind == "call" and name not in SHARED_FUNCTIONS and (name in INTEGER_FUNCTIONS) != integer:
        return name
    return ""


def goes(types: Mapping[str, DType]) -> bool:
    """Return whether dtypes go together: a body that is computed in F64 is not rounded to a smaller float."""
    t, u = types["T"], types["U"]
    return t is not F64 or u.kind != "f" or u is F64


generic = declare(
    "generic",
    "GENR",
    "init?: U[*i], x...: T...[*s] -> y: U[*d]",
    {"T": (*COMPUTED, *FP8), "U": COMPUTED},
    combinations=goes,
    family="structured",
    doc=(
        "One loop nest (linalg.generic): y[out] = body(x0[…], x1[…], …), or init[out] combined with the body over all"
        " loops that the output lacks. `maps` gives each tensor a letter a dim, as einsum does ('ab,b->ab'); a letter"
        " is a loop, and an input that has it twice is read along its diagonal. Without combine, init is one more"
        " input, with y's letters, called by the next name (x1 for one input), so that a body can update y in place."
        " Inputs may have a dtype each: the body is computed in the widest compute type among theirs and that of a"
        " float y (F64, F32, U64, then I64). Inputs are converted to it as `cast` does, and so is the result to y's"
        " dtype. Sums are made in blocks (error grows with log2 of the length), products in any order, each in the"
        " compute type; a maximum or minimum with NaN is NaN."
    ),
    reference=run_nest,
    tolerance=Tolerance(1, nest_scale),
    attrs=attrs(
        "GEN1",
        text("maps", doc="a letter for each dim of each input, and of y: 'mk,nk->mn'"),
        body("body", doc="an expression of x0, x1, … in the language of elementwise rows"),
        choice("combine", COMBINES, "none", "how terms of loops that y lacks, and init, become one"),
    ),
    shapes=_shapes,
    check=_check,
    normal_form=_normal_form,
    aliases=("init",),
    flops=lambda i, o: float(max(o[0].numel, *(d.numel for d in i if d is not None))),
    samples=list_samples,
    errors=list_errors(),
)
