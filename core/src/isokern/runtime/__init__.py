"""Running graphs: memory plans, and the programs that a device runs."""

from .cache import Cache, CacheInfo, cache
from .check import Check, Checked
from .compiler import compile
from .dynamic import DynamicProgram
from .explain import Line, Location
from .memory_plan import MemoryPlan, plan_memory
from .program import Program

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
