"""The operators: every module of this package declares some, and importing the package registers them all."""

from __future__ import annotations

import importlib
import pkgutil

from ..declare.operator import ErrorCase, Operator, Sample, Tolerance
from ..declare.registry import all_operators, by_kind, find
from ..garbage import hold_collections

__all__ = ["ErrorCase", "Operator", "Sample", "Tolerance", "all_operators", "by_kind", "find"]

with hold_collections():
    for _module in sorted(m.name for m in pkgutil.iter_modules(__path__)):
        importlib.import_module(f"{__name__}.{_module}")
