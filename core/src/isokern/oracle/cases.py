"""Cases: operator, dtypes, sample, layout, values, in-place input and variant, under a stable id.

An id reads `softmax/F32/x=3x5,axis=1/gaps/special@portable`: operator, type variables in the signature's order, the
sample, the layout, the kind of values, and the variant that is forced (without one, the device chooses).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..declare.operator import ErrorCase, Operator, Sample
from ..declare.samples import fits
from ..dtypes import DType


@dataclass(frozen=True)
class Case:
    """One call to try.

    `values` is drawn, special, special_2 (special values in the second operand) or out_of_range; error where create
    must refuse the call, and claim where only the device's answers at create are checked. `alias` is the input whose
    memory the output takes, `variant` the forced one, empty for the device's choice, and `quick` whether `--quick` runs
    the case. `relayed` says that other operators stand for this one: it has no kernel of its own, and `--turn` takes
    all its dtypes in turn.
    """

    operator: Operator
    types: tuple[DType, ...]
    sample: Sample
    layout: str = "contiguous"
    values: str = "drawn"
    alias: str = ""
    variant: str = ""
    quick: bool = False
    relayed: bool = False
    error: ErrorCase | None = None

    @property
    def problem_id(self) -> str:
        """The part of the id that fixes the values.

        Cases that share it share inputs and reference, unless the layout repeats elements.
        """
        return f"{self.operator.name}/{self.dtype}/{sample_text(self.sample)}/{self.values}"

    @property
    def dtype(self) -> str:
        """The dtypes of the type variables, as in the id."""
        return dtype_text(self.types)

    @property
    def id(self) -> str:
        """The stable id."""
        called = [sample_text(self.error or self.sample), "" if self.error else self.layout]
        where = self.alias and f"inplace:{self.alias}"
        parts = [self.operator.name, self.dtype, *([] if self.values == "claim" else called), where, self.values]
        return "/".join(p for p in parts if p) + (f"@{self.variant}" if self.variant else "")

    @property
    def calls(self) -> bool:
        """Whether the operator is called at all."""
        return self.values not in ("error", "claim")

    @property
    def bound_types(self) -> dict[str, DType]:
        """Type variable → dtype."""
        return dict(zip(self.operator.signature.types, self.types, strict=True))


@lru_cache(maxsize=4096)
def _text_of(shapes: str, attrs: str, outputs: str) -> str:
    return ",".join(p for p in (shapes, attrs, outputs and f"->{outputs}") if p) or "none"


def sample_text(sample: Sample | ErrorCase) -> str:
    """Return a sample as in an id: `x=3x5,axis=1`, and after `->` the outputs that are not inferred."""
    shapes = ",".join(
        f"{n}={'+'.join(map(_dims, s)) if isinstance(s, list) else _dims(s)}" for n, s in sample.shapes.items()
    )
    attrs = ",".join(f"{n}={_plain(v)}" for n, v in sample.attrs.items())
    outputs = ",".join(f"{n}={_dims(s)}" for n, s in sample.outputs.items())
    given = ",".join(f"{n}:{d.name}" for n, d in sample.dtypes.items()) if isinstance(sample, ErrorCase) else ""
    return _text_of(shapes, ",".join(p for p in (attrs, given) if p), outputs)


def dtype_text(types: Iterable[DType]) -> str:
    """Return the dtypes of the type variables as in an id: `F32`, `F32-I64`."""
    return "-".join(d.name for d in types) or "any"


def _dims(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _plain(value: Any) -> str:
    return "+".join(map(str, value)) or "()" if isinstance(value, (tuple, list)) else str(value)


def samples(operator: Operator, size: str, types: Mapping[str, DType]) -> list[Sample]:
    """Return the samples of a size that go with these dtypes, each once."""
    found = {sample_text(s): s for s in operator.samples() if s.size == size}
    return [s for s in found.values() if fits(operator, s, types)]
