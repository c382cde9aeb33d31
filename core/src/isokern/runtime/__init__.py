"""Running graphs: memory plans, and the programs that a device runs."""

from .cache import Cache, CacheInfo, cache
from .check import Check, Checked
from .compiler import compile
from .dynamic import DynamicProgram
from .explain import Line, Slot
from .memory_plan import MemoryPlan, plan_memory
from .program import Program

__all__ = [
    "Cache", "CacheInfo", "Check", "Checked", "DynamicProgram", "Line", "MemoryPlan", "Program", "Slot", "cache",
    "compile", "plan_memory",
]  # fmt: skip
