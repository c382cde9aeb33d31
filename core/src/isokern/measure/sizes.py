"""Which samples of an operator are timed at a size; the huge ones are made from the large ones."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..declare.operator import Operator, Sample
from ..declare.samples import describe, fits, principal
from ..dtypes import DType
from ..layout import TensorDesc
from ..status import BadTensorShape

SIZES = ("small", "medium", "large", "huge")
WIDE = {"medium": 1, "large": 16}  # how often the leading dim of the wide sample, where none of the size is declared
HUGE = 1 << 28  # bytes of operands: several times the last-level cache of any processor
PRODUCTS = (4, 8)  # factors of every dim of a large matrix product: 1024³ becomes 4096³ and 8192³
PICKED = ("indices", "updates")  # operands that grow with the others, although their dims have other names
EXTENTS = ("count", "ends", "shape")  # attributes that end where the leading dim does, or begin with it
MADE = ("rows", "stop", "length")  # the same for operators without inputs


def samples(op: Operator, size: str, element: DType | None = None) -> list[Sample]:
    """Return the samples of that size that are worth timing.

    Most small samples are corner cases: of those only the largest is worth it.
    """
    types = types_for(op, element or principal(op)[1][0])
    if size == "huge":
        return [made for s in samples(op, "large", element) for made in huge(op, s, types)]
    fitting = [s for s in op.samples() if fits(op, s, types)]
    found = [s for s in fitting if s.size == size]
    if not found and size in WIDE:
        found = [replace(_longer(op, s, WIDE[size]), size=size) for s in fitting if s.size == "wide"]
    if size != "small" or not found:
        return found
    return [max(found, key=lambda s: sum(d.nbytes for d in _present(op, s, types)))]


def types_for(op: Operator, element: DType) -> dict[str, DType]:
    """Choose a dtype for each type variable: `element` for the principal one.

    Those of the others that may be `element` are that too where the operator limits combinations and allows this one,
    else the first of their dtypes that is another.
    """
    name, _ = principal(op)
    alike = {n: element if element in allowed else allowed[0] for n, allowed in op.signature.types.items()}
    if op.combinations is not None and op.combinations(alike):
        return alike
    others = {
        n: next((d for d in allowed if d is not element), allowed[0]) for n, allowed in op.signature.types.items()
    }
    return {**others, name: element}


def bytes_moved(op: Operator, inputs: Sequence[TensorDesc | None], outputs: Sequence[TensorDesc]) -> int:
    """Return the bytes that a call has to read and write.

    These are all operands; but of an operand that is only moved, no more is read than is written.
    """
    written = sum(d.nbytes for d in outputs)
    read = [d.nbytes for d in inputs if d is not None]
    return written + sum(min(n, written) if op.family == "movement" else n for n in read)


def huge(op: Operator, sample: Sample, types: Mapping[str, DType]) -> list[Sample]:
    """Return huge samples made from a large one.

    They are matrix products of thousands squared, or have so long a leading dim that a call moves at least `HUGE`
    bytes. Where the leading dim cannot grow alone, the large one stands for it.
    """
    if op.stem == "gemm":
        grown = [{n: tuple(d * f for d in shape) for n, shape in sample.shapes.items()} for f in PRODUCTS]
        return [replace(sample, shapes=shapes, size="huge") for shapes in grown]
    # Weights do not grow
    try:
        once, twice = (bytes_moved(op, *describe(op, _longer(op, sample, n), types)) for n in (1, 2))
    except BadTensorShape:  # a dim without its name depends on it
        return [replace(sample, size="huge")]
    if once == twice:  # an attribute says how much is made
        return [replace(sample, size="huge")]
    return [_longer(op, sample, 1 + max(0, math.ceil((HUGE - once) / (twice - once))))]


def _longer(op: Operator, sample: Sample, times: int) -> Sample:
    """Return the sample with its leading dim `times` as long.

    This is the leading dim of the first operand, and of each whose leading dim has the same name in the signature.
    """

    if "maps" in sample.attrs:
        return replace(sample, shapes=_lengthen_loop(sample, times), size="huge")

    def long(value: Any) -> Any:
        if isinstance(value, list):
            return [long(v) for v in value]
        return (times * value[0], *value[1:]) if isinstance(value, tuple) else times * value

    leading = {o.name: o.dims[0] for o in op.signature.inputs if o.name in sample.shapes and o.dims}  # not of scalars
    leading = {name: dim for name, dim in leading.items() if not dim.isdigit()}
    extents = EXTENTS if leading else (*EXTENTS, *MADE)
    first = next(iter(leading.values()), None)
    return replace(
        sample,
        shapes={n: long(s) if leading.get(n, "") == first or n in PICKED else s for n, s in sample.shapes.items()},
        attrs={n: long(v) if n in extents else v for n, v in sample.attrs.items()},
        outputs={n: long(s) for n, s in sample.outputs.items()},
        size="huge",
    )


def _lengthen_loop(sample: Sample, times: int) -> dict[str, Any]:
    """Return the shapes of a loop nest whose first loop is `times` as long."""
    ins, _, out = sample.attrs["maps"].partition("->")
    first, *_ = letters = ins.split(",")

    def long(shape: Sequence[int], names: str) -> tuple[int, ...]:
        return tuple(times * d if c == first[0] else d for c, d in zip(names, shape, strict=True))

    grown: dict[str, Any] = {"x": [long(s, names) for s, names in zip(sample.shapes["x"], letters, strict=True)]}
    return grown | ({"init": long(sample.shapes["init"], out)} if "init" in sample.shapes else {})


def _present(op: Operator, sample: Sample, types: Mapping[str, DType]) -> list[TensorDesc]:
    inputs, outputs = describe(op, sample, types)
    return [d for d in (*inputs, *outputs) if d is not None]
