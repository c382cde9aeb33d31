"""Values of a GGUF file's metadata, checked to be of the type and range that a reader asks for."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..status import InvalidArgument
from .gguf import quote_name

# Keys of an architecture that say nothing of what is computed
UNUSED = ("pooling_type", "rope.scaling.finetuned", "tensor_data_layout")
MOST = 1 << 24  # the largest value of any size: a product of two larger ones might not be a valid size


class Metadata:
    """Metadata values by key, checked to be of the type that is asked for; `read` are those that were asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value of any type, or the default."""
        self.read.add(key)
        return self.values.get(key, default)

    def check_only(self, key: str, only: Any) -> None:
        """Refuse all values but the only one that Isokern can run."""
        value = self.get(key, only)
        if type(value) is not type(only) or value != only:
            raise self.wrong(key, f"{only}: Isokern can run no other")

    def check_all_read(self, own: str) -> None:
        """Refuse keys of the architecture that nothing here reads: the model would compute something else."""
        strange = [k for k in self.values if k.startswith(own) and k not in self.read]
        strange = [k for k in strange if k.removeprefix(own) not in UNUSED]
        if strange:
            named = ", ".join(quote_name(k) for k in strange[:8])
            raise InvalidArgument("GGUF", f"{len(strange)} keys are not known here: {named}", allowed="none of such")

    def text(self, key: str, default: str | None = None) -> str:
        """Return a string."""
        value = self.get(key, default)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def whole(self, key: str, default: int | None = None, least: int = 1) -> int:
        """Return an integer from `least` to MOST; a list of one integer, however often, stands for it."""
        value = self.get(key, default)
        if isinstance(value, np.ndarray) and value.dtype.kind in "iu" and len(set(value.tolist())) == 1:
            value = int(value[0])
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self.wrong(key, f"an integer from {least} to {MOST}")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        """Return a finite number from 0."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= sys.float_info.max:
            raise self.wrong(key, "a number from 0")
        return float(value)

    def wrong(self, key: str, allowed: str) -> InvalidArgument:
        """Return the error of a key that is missing or has another value."""
        value = self.values.get(key)
        found = "is missing" if value is None else f"is {quote_name(str(value))}"
        return InvalidArgument("GGUF", f"{key} {found}", allowed=allowed)
