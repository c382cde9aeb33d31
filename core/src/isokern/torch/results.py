"""Results of a torch.fx graph: what each is, where it belongs, and how its axes lie there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..importing.emission import UnsupportedModel
from ..importing.operand import Array
from .importer import value_of
from .judging import sizes_of
from .library import library as torch


@dataclass(frozen=True)
class ModuleResult:
    """One result: a number or None, an argument, a known array, or output `index` of the program."""

    value: Any = None
    argument: int = -1
    known: Array | None = None
    index: int = -1
    order: tuple[int, ...] = ()  # of the axes in PyTorch's memory, the longest stride first
    kind: Any = None
    device: Any = None  # where PyTorch has it

    def allocate(self, shape: Sequence[int], device: Any) -> Any:
        """Return an empty tensor for it, with its axes in PyTorch's order."""
        if not self.order:
            return torch.empty(shape, dtype=self.kind, device=device)
        plain = torch.empty([shape[n] for n in self.order], dtype=self.kind, device=device)
        return plain.permute([self.order.index(n) for n in range(len(shape))])


def device_of(node: Any) -> Any:
    """Return where PyTorch has the result of a node."""
    return getattr(value_of(node), "device", None)


def order_of(val: Any, rank: int) -> tuple[int, ...]:
    """Return the axes from the longest stride in PyTorch's memory to the shortest; empty where they are in order."""
    if not isinstance(val, torch.Tensor) or rank < 2:
        return ()
    try:
        shape, strides = sizes_of(val.shape), sizes_of(val.stride())
    except UnsupportedModel:
        return ()
    moved = [n for n in range(rank) if shape[n] > 1]
    order = sorted(moved, key=lambda n: (-strides[n], n))
    if order == moved or 0 in [strides[n] for n in moved]:
        return ()
    ordered = iter(order)
    return tuple(next(ordered) if n in moved else n for n in range(rank))
