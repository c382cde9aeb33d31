"""Running graphs: a plan of their memory, and the program that a device runs."""

from .cache import Cache, CacheInfo, cache
from .compiler import compile
from .dynamic import DynamicProgram
from .plan import Plan, plan
from .program import Program

__all__ = ["Cache", "CacheInfo", "DynamicProgram", "Plan", "Program", "cache", "compile", "plan"]
