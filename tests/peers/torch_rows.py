"""What a comparison with PyTorch consists of: a row names a function of PyTorch, and calls ours in its signature."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

import isokern
from isokern.ops.aliases import ALIASES

NAMES = {
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int32, torch.int64, torch.uint8)
TRIED = (*FLOATS, *INTEGERS, torch.bool)
Sample = tuple[tuple[Any, ...], dict[str, Any]]  # arguments, and those by name
ANY: Any = object()  # stands for an output of PyTorch's that is not here


class Elsewhere(Exception):
    """The meaning of a sample is not here; the text says what is missing."""


class Recorder:
    """Our eager functions, on one device; `called` are the operators that were asked for."""

    def __init__(self) -> None:
        self.called: set[str] = set()
        self.device: Any = None

    def __getattr__(self, name: str) -> Callable[..., Any]:
        self.called.update(ALIASES.get(name, (name,)))
        return partial(getattr(isokern, name), device=self.device)


ik = Recorder()


@dataclass(frozen=True)
class Row:
    """A function of PyTorch: its OpInfo's name, or the function itself; `inputs` are beside the OpInfo's samples.

    `ours` are the operators that the row judges, `call` is made of them and takes what PyTorch's function takes.
    `share` is the least share of the samples that have to be compared: what a sample says that is not here raises
    Elsewhere. `special` is how many inputs take the numbers of SPECIAL in all pairs, but for those `apart`, at which
    the meanings differ. `slack` multiplies the relative error that is allowed.
    """

    name: str
    ours: str
    call: Callable[..., Any]
    share: float = 1.0
    dtypes: tuple[torch.dtype, ...] = ()
    special: int = 0
    apart: tuple[float, ...] = ()
    slack: float = 1.0
    inputs: Callable[[torch.dtype], Sequence[Sample]] | None = None
    function: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return self.name


def translate(value: Any, device: Any) -> Any:
    """Return PyTorch's tensors as ours, and its dtypes by our names, wherever they are in `value`."""
    if isinstance(value, torch.Tensor):
        return isokern.tensor(value.detach().numpy(), device=device)
    if isinstance(value, torch.dtype):
        return NAMES.get(value, str(value))
    if isinstance(value, (list, tuple)):
        return type(value)(translate(v, device) for v in value) if type(value) in (list, tuple) else tuple(value)
    return value


def flatten(result: Any) -> Iterator[Any]:
    """Yield the tensors of a result, or of a list or tuple of results."""
    if isinstance(result, (list, tuple)):
        for part in result:
            yield from flatten(part)
    else:
        yield result


# What calls have in common


def shape_of(x: Any) -> tuple[int, ...]:
    return tuple(getattr(x, "shape", ()))


def is_float(x: Any) -> bool:
    return bool(x.dtype.kind == "f")


def dims(x: Any, dim: Any) -> tuple[int, ...]:
    """Return PyTorch's dim argument as axes: all for None and for an empty list."""
    axes = (dim,) if isinstance(dim, int) else tuple(dim or ())
    return axes if x.ndim else ()


def lift(call: Callable[..., Any], x: Any, *more: Any, **attrs: Any) -> Any:
    """Call with a scalar as a vector of one element: PyTorch lets a scalar have a dim 0."""
    if x.ndim:
        return call(x, *more, **attrs)
    found = call(ik.reshape(x, shape=(1,)), *(m[None] if shape_of(m) == () else m for m in more), **attrs)
    return (
        [ik.reshape(f, shape=()) for f in flatten(found)] if isinstance(found, tuple) else ik.reshape(found, shape=())
    )


def wide(x: Any, dtype: str | None = None) -> Any:
    """Return the elements in the type of PyTorch's sums: of integers and truths I64."""
    wanted = dtype or (x.dtype.name if is_float(x) else "I64")
    return x if wanted == x.dtype.name else ik.cast(x, dtype=wanted)


def size(*values: int | Sequence[Any]) -> tuple[int, ...]:
    """Return a shape that is given as one sequence, or number by number."""
    return tuple(values[0]) if len(values) == 1 and not isinstance(values[0], int) else tuple(values)  # type: ignore


def pair(value: Any, count: int) -> tuple[int, ...]:
    """Return a number for each of `count` dims."""
    return (value,) * count if isinstance(value, int) else tuple(value) * (count if len(value) == 1 else 1)


def batched(x: Any, rank: int) -> tuple[Any, bool]:
    """Return x with a batch of one in front where PyTorch may leave it out, and whether it was."""
    return (x[None], True) if x.ndim == rank - 1 else (x, False)


def along(*given: Any, **more: Any) -> Callable[[torch.dtype], list[Sample]]:
    """Return samples of NaN and infinities along both dims of a matrix; `given` stand behind the dim, if it is given.

    A dim of None leaves it out.
    """

    def make(dtype: torch.dtype) -> list[Sample]:
        if not dtype.is_floating_point:
            return []
        x = torch.tensor(NANS, dtype=dtype)
        where = more.get("where", (0, 1))
        return [((x, *before(given, dim)), {k: v for k, v in more.items() if k != "where"}) for dim in where]

    def before(given: tuple[Any, ...], dim: int | None) -> tuple[Any, ...]:
        return (
            tuple(dim if v is DIM else v for v in given) if DIM in given else (*given, *(() if dim is None else (dim,)))
        )

    return make


def pairs(*columns: Sequence[float], **attrs: Any) -> Callable[[torch.dtype], list[Sample]]:
    """Return one sample of all choices of one number from each column."""

    def make(dtype: torch.dtype) -> list[Sample]:
        chosen = zip(*itertools.product(*columns), strict=True)
        return [(tuple(torch.tensor(c, dtype=dtype) for c in chosen), {"reduction": "none", **attrs})]

    return make


def extremes(count: int, divisor: bool = False, **attrs: Any) -> Callable[[torch.dtype], list[Sample]]:
    """Return one sample of all choices of the least and the largest integers, and of some between.

    A divisor is not 0, and not -1 either, by which the least integer has no quotient.
    """

    def make(dtype: torch.dtype) -> list[Sample]:
        if dtype.is_floating_point or dtype is torch.bool:
            return []
        limits = torch.iinfo(dtype)
        numbers = [
            limits.min,
            limits.min + 1,
            0,
            1,
            7,
            31,
            32,
            64,
            limits.max,
            *(() if dtype is torch.uint8 else (-1, -7)),
        ]
        columns = [numbers] * (count - divisor) + [[n for n in numbers if n not in (0, -1)]] * divisor
        chosen = zip(*itertools.product(*columns), strict=True)
        return [(tuple(torch.tensor(c, dtype=dtype) for c in chosen), dict(attrs))]

    return make


def both(*made: Callable[[torch.dtype], list[Sample]]) -> Callable[[torch.dtype], list[Sample]]:
    return lambda dtype: [sample for make in made for sample in make(dtype)]


DIM = "dim"  # stands for the dim among the arguments of `along`
NAN, INF = float("nan"), float("inf")
NANS = [
    [NAN, 1, -INF, 2, 0],
    [INF, -0.0, 2, NAN, NAN],
    [-INF, -INF, -INF, -INF, -INF],
    [1, 0, -0.0, 3, 3],
    [INF, 1, -INF, 4, 5],
]
SPECIAL = [
    np.nan,
    np.inf,
    -np.inf,
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    -2.5,
    3.0,
    -3.0,
    1e-40,
    1e38,
    -1e38,
    90.0,
    -90.0,
]
