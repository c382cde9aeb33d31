"""The operators as this namespace calls them: those of the devices, and what stands for them with complex arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ..dtypes import DType, dtype as dtype_of
from ..eager.functions import function as eager
from ..tensors import Tensor
from .complex_arrays import ARRAYS, CREATORS
from .complex_functions import FUNCTIONS
from .complex_parts import is_complex

COMPLEX: dict[str, Callable[..., Any]] = {**FUNCTIONS, **ARRAYS}


@cache
def function(name: str) -> Callable[..., Any]:
    """Return the eager function of an operator, which takes complex arrays, too, where COMPLEX or CREATORS has it."""
    compute = eager(name)
    if name in CREATORS:
        return _choose_by_dtype(compute, CREATORS[name])
    return _choose_by_arrays(compute, COMPLEX[name]) if name in COMPLEX else compute


def _choose_by_dtype(compute: Callable[..., Any], create: Callable[..., Any]) -> Callable[..., Any]:
    def choose(**options: Any) -> Any:
        wanted = options.get("dtype")
        of_complex = wanted is not None and (wanted if isinstance(wanted, DType) else dtype_of(wanted)).kind == "c"
        return (create if of_complex else compute)(**options)

    return choose


def _choose_by_arrays(compute: Callable[..., Any], of_complex: Callable[..., Any]) -> Callable[..., Any]:
    def choose(*args: Any, **options: Any) -> Any:
        for x in args:
            if x.__class__ is Tensor:
                if x.desc.dtype.kind == "c":
                    return of_complex(*args, **options)
            elif x.__class__ is list and any(map(is_complex, x)):
                return of_complex(*args, **options)
        return compute(*args, **options)

    return choose
