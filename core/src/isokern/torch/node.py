"""AtenNode: what a handler of an ATen operator sees, its arguments by name, and the ways to emit.

A handler takes a node and returns its results. Arguments are operands (values of the graph under construction, or
arrays), lists of them, or what Python has; dims are numbers, since each set of dims has a graph of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from ..dtypes import DType
from ..graph.ir import Value
from ..importing.draft import Draft
from ..importing.emission import Emission
from ..importing.operand import Operand, dtype_of, is_float, shape_of
from ..status import InvalidArgument
from .elements import THEIRS, our_dtype
from .library import library as torch

__all__ = [
    "AtenNode",
    "Handler",
    "Operand",
    "Result",
    "dtype_of",
    "is_float",
    "is_operand",
    "result_dtype",
    "row",
    "shape_of",
]

Result: TypeAlias = "Operand | Sequence[Operand | None] | None"
Handler: TypeAlias = "Callable[[AtenNode], Result]"


def is_operand(x: object) -> bool:
    """Return whether an argument is a tensor."""
    return isinstance(x, (Value, np.ndarray))


def result_dtype(*given: Any) -> DType:
    """Return the dtype to which PyTorch promotes tensors and numbers."""
    stand_ins = [torch.empty((0,) * len(shape_of(x)), dtype=THEIRS[dtype_of(x)]) if is_operand(x) else x for x in given]
    found = torch.result_type(*stand_ins[:2])
    for more in stand_ins[2:]:
        found = torch.promote_types(found, more.dtype if isinstance(more, torch.Tensor) else found)
    return our_dtype("result_type", found)


@dataclass
class AtenNode(Emission):
    """A node: `args` are by the names of the operator's schema, complete; `dtype` is that of the first result.

    `read` are the results that anything reads, None where there is but one; `plain` says whether the first tensor lies
    contiguous in PyTorch's memory, from its beginning, and `sole` whether nothing else reads it.
    """

    op_type: str
    args: Mapping[str, Any]
    importer: Draft
    dtype: DType | None = None
    read: frozenset[int] | None = None
    plain: bool = False
    sole: bool = False

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Return an argument, or a default where the overload does not have it."""
        return self.args.get(name, default)

    def tensor(self, name: str = "self") -> Operand:
        """Return an argument that is a tensor."""
        found: Operand = self.args[name]
        if not is_operand(found):
            raise InvalidArgument(self.op_type, f"{name} is {found!r}", allowed="a tensor")
        return found

    @property
    def x(self) -> Operand:
        """The first argument."""
        return self.tensor(next(iter(self.args)))

    @property
    def shape(self) -> tuple[int, ...]:
        """The dims of the first argument."""
        return shape_of(self.x)

    @property
    def rank(self) -> int:
        """The rank of the first argument."""
        return len(self.shape)

    @property
    def operands(self) -> list[Any]:
        """The arguments that are tensors or absent ones, up to the first of another kind."""
        found = []
        for value in self.args.values():
            if value is not None and not is_operand(value):
                break
            found.append(value)
        return found

    def reads(self, i: int) -> bool:
        """Return whether anything reads result i."""
        return self.read is None or i in self.read

    @property
    def wanted(self) -> DType:
        """The dtype of the first result."""
        assert self.dtype is not None
        return self.dtype

    def ints(self, name: str, count: int = 0) -> tuple[int, ...]:
        """Return a list of numbers; with `count`, one number stands for all."""
        found = self.args[name]
        found = (int(found),) if isinstance(found, (int, float)) else tuple(int(v) for v in found)
        return found * count if count and len(found) == 1 else found

    def axis(self, given: int, rank: int | None = None) -> int:
        """Return an axis counted from the front; a scalar has an axis 0."""
        rank = max(1, self.rank if rank is None else rank)
        if not -rank <= given < rank:
            raise InvalidArgument(self.op_type, f"dim {given}", allowed=f"{-rank} to {rank - 1}")
        return int(given) % rank

    def axes(self, name: str = "dim") -> tuple[int, ...]:
        """Return axes: all for None and for an empty list."""
        given = self.args.get(name)
        listed = [given] if isinstance(given, int) else list(given or [])
        return tuple(self.axis(a) for a in listed) if listed and self.rank else tuple(range(self.rank))

    def operand(self, x: Any, to: DType) -> Operand:
        """Return a number or a tensor as an operand of a dtype."""
        if is_operand(x):
            return self.cast(x, to)
        wide = np.asarray(x)  # integers wrap, as PyTorch's do
        return wide.astype(to.numpy) if to.kind != "u" else (wide.astype(np.int64).astype(to.numpy))

    def number(self, x: Any) -> float | int | bool | None:
        """Return an argument that is a number, or a scalar whose element is known; else None."""
        if isinstance(x, np.ndarray) and x.ndim == 0:
            found: float | int | bool = x.item()
            return found
        return x if isinstance(x, (int, float, bool)) else None

    def lift(self, kind: str, x: Operand, **attrs: Any) -> tuple[Operand, ...]:
        """Emit an operator along an axis, of a scalar as of a vector of one element: PyTorch lets it have a dim 0."""
        if shape_of(x):
            return self.emit_all(kind, x, **attrs)
        return tuple(self.reshape(y, ()) for y in self.emit_all(kind, self.reshape(x, (1,)), **attrs))

    def resolve(self, shape: Sequence[int], count: int) -> tuple[int, ...]:
        """Return dims with -1 replaced."""
        known = math.prod(d for d in shape if d != -1)
        return tuple((count // known if known else 0) if d == -1 else int(d) for d in shape)


def row(kind: str, **names: str) -> Handler:
    """Return the handler of a node that is one operator here; `names` are its attributes and what they are called."""

    def handle(node: AtenNode) -> Result:
        return node.emit(kind, *node.operands, **{ours: node[theirs] for ours, theirs in names.items()})

    return handle
