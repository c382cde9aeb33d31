"""Cases: operator, dtypes, sample, layout, values, in-place input and variant, under a stable id.

An id reads `softmax/F32/x=3x5,axis=1/gaps/special@portable`: operator, type variables in the signature's order, the
sample, the layout, the kind of values, and the variant that is forced (without one, the device chooses).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ..declare.operator import ErrorCase, Operator, Sample
from ..declare.samples import fits
from ..dtypes import DType


@dataclass(frozen=True)
class Case:
    """One call to try.

    `values` is drawn, special, special_2 (special values in the second operand), special_slices (whole slices of them),
    nan_ and an input's name (it is NaN alone) or out_of_range; error where create must refuse the call, and claim where
    only the device's answers at create are checked. `alias` is the input whose memory the output takes, `variant` the
    forced one, empty for the device's choice, and `quick` whether `--quick` runs the case.
    """

    operator: Operator
    types: tuple[DType, ...]
    sample: Sample
    layout: str = "contiguous"
    values: str = "drawn"
    alias: str = ""
    variant: str = ""
    quick: bool = False
    error: ErrorCase | None = None

    @property
    def problem_id(self) -> str:
        """The part of the id that fixes the values.

        Cases that share it share inputs and reference, unless the layout repeats elements.
        """
        return f"{self.operator.name}/{self.dtype}/{self.sample.text}/{self.values}"

    @property
    def dtype(self) -> str:
        """The dtypes of the type variables, as in the id."""
        return dtype_text(self.types)

    @cached_property
    def id(self) -> str:
        """The stable id."""
        called = [(self.error or self.sample).text, "" if self.error else self.layout]
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


def dtype_text(types: Iterable[DType]) -> str:
    """Return the dtypes of the type variables as in an id: `F32`, `F32-I64`."""
    return "-".join(d.name for d in types) or "any"


def samples(operator: Operator, size: str, types: Mapping[str, DType]) -> list[Sample]:
    """Return the samples of a size that go with these dtypes, each once."""
    found = {s.text: s for s in operator.samples() if s.size == size and fits(operator, s, types)}
    return list(found.values())
