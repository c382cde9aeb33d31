"""Running graphs: memory plans, and the programs that a device runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .cache import Cache, CacheInfo, cache
from .compiler import compile
from .dynamic import DynamicProgram
from .explain import Line, Location
from .memory_plan import MemoryPlan, plan_memory
from .program import Program

if TYPE_CHECKING:
    from .check import Check, Checked

__all__ = [
    "Cache",
    "CacheInfo",
    "Check",
    "Checked",
    "DynamicProgram",
    "Line",
    "Location",
    "MemoryPlan",
    "Program",
    "cache",
    "compile",
    "plan_memory",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name not in ("Check", "Checked"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import check  # with the oracle, which programs do not need

    return getattr(check, name)
