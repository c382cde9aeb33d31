"""What the namespace says of itself: devices, dtypes and capabilities."""

from __future__ import annotations

from typing import Any

from ..backend import Device
from ..backend.capabilities import support
from ..backend.discovery import device as find_device, devices as find_devices
from ..dtypes import DType
from ..layout import MAX_RANK
from ..ops import find
from .complex_parts import PART
from .dtypes import DEFAULT_COMPLEX, DEFAULT_FLOAT, DEFAULT_INTEGER, DTYPES, isdtype


class Info:
    """Answers about the namespace, as the standard's inspection API asks."""

    def capabilities(self) -> dict[str, Any]:
        """Return what is optional in the standard: masks, shapes that follow from data, and the largest rank."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": MAX_RANK}

    def default_device(self) -> Device:
        """Return the device of arrays that are made without one."""
        return find_device(None)

    def default_dtypes(self, *, device: Any = None) -> dict[str, DType]:
        """Return the dtypes of Python's numbers, and of indices."""
        numbers = {"real floating": DEFAULT_FLOAT, "complex floating": DEFAULT_COMPLEX, "integral": DEFAULT_INTEGER}
        return {**numbers, "indexing": DEFAULT_INTEGER}

    def devices(self) -> list[Device]:
        """Return every device that is available."""
        return find_devices()

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, DType]:
        """Return the dtypes of a kind by their names, or all: those that the device compares, or the parts of which."""
        answers = support(find_device(device), find("equal"))
        return {
            name: d
            for name, d in DTYPES.items()
            if (kind is None or isdtype(d, kind)) and answers.get((PART.get(d, d),), "not declared") is None
        }


def __array_namespace_info__() -> Info:  # noqa: N807  # the standard's name
    """Return what can be asked of the namespace."""
    return Info()
