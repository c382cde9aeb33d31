"""Emission: the ways in which a handler of a foreign operator emits ours, whatever it was read from."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from ..dtypes import DType, dtype
from ..status import NotImplementedOnDevice
from .operand import Operand, dtype_of, shape_of

SMALL = 1 << 12  # elements of a constant that is an array from the start


class UnsupportedModel(NotImplementedOnDevice):
    """A model has operators, or uses of them, that have no counterpart here; the message lists them all."""


class Emits(Protocol):
    """What emits: a `Draft`, or an importer that is one."""

    def emit(
        self, kind: str, inputs: Sequence[Operand | None], attrs: Mapping[str, Any], to: object = None
    ) -> tuple[Operand, ...]:
        """Emit an operator, or compute it where all inputs are known, and return its outputs."""


class Emission:
    """What nodes inherit: `importer` emits, and `op_type` is the foreign operator's name in messages."""

    op_type: str
    importer: Any  # of the type Emits; nodes name their own

    def emit(self, kind: str, *inputs: Operand | None, to: object = None, **attrs: Any) -> Operand:
        """Emit an operator of one output, of dtype `to` where that is free, and return it."""
        return self.emit_all(kind, *inputs, to=to, **attrs)[0]

    def emit_all(self, kind: str, *inputs: Operand | None, to: object = None, **attrs: Any) -> tuple[Operand, ...]:
        """Emit an operator and return all its outputs."""
        emits: Emits = self.importer
        return emits.emit(kind, inputs, attrs, to)

    def cast(self, x: Operand, to: object) -> Operand:
        """Return `x` in another dtype."""
        wanted = dtype(to)
        return x if dtype_of(x) is wanted else self.emit("cast", x, to=wanted)

    def reshape(self, x: Operand, shape: Sequence[int]) -> Operand:
        """Return `x` with other dims of as many elements."""
        return x if shape_of(x) == tuple(shape) else self.emit("reshape", x, shape=tuple(shape))

    def transpose(self, x: Operand, axes: Sequence[int]) -> Operand:
        """Return `x` with its axes in another order."""
        return x if list(axes) == list(range(len(axes))) else self.emit("transpose", x, axes=tuple(axes))

    def expand(self, x: Operand, shape: Sequence[int]) -> Operand:
        """Return `x` broadcast to other dims."""
        return x if shape_of(x) == tuple(shape) else self.emit("broadcast_to", x, shape=tuple(shape))

    def full(self, shape: Sequence[int], value: Any, to: DType) -> Operand:
        """Return a tensor of one value."""
        if 0 <= math.prod(shape) <= SMALL:
            return np.full(tuple(shape), value, to.numpy)
        if to.kind in "iu" and abs(int(value)) >= 1 << 53:  # more than the attribute's float holds
            return self.expand(np.asarray(value, to.numpy), shape)
        return self.emit("fill", value=float(value), shape=tuple(shape), to=to)

    def refuse(self, problem: str, allowed: str = "") -> UnsupportedModel:
        """Return the error for a use of the operator that has no counterpart."""
        return UnsupportedModel(self.op_type, problem, allowed=allowed)
