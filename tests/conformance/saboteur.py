"""What a saboteur is: it stands before the kernels of a device and does one thing wrong."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from isokern.backend import Workspace
from isokern.cabi.plan import Plan
from isokern.declare.operator import Resolved
from isokern.layout import TensorDesc
from isokern.oracle.layouts import elements

Array = np.ndarray[Any, Any]


def memory(address: int, nbytes: int) -> Array:
    """Return the bytes at an address as an array, to be corrupted."""
    return np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)


class Call:
    """One launch as a saboteur sees it."""

    def __init__(self, plan: Plan, handles: Sequence[Any], workspace: Any, nbytes: int, need: int) -> None:
        self.plan, self.handles, self.workspace, self.nbytes = plan, list(handles), workspace, nbytes
        self.need = need  # bytes of workspace that the kernel asked for
        self.given = list(handles)  # the handles before prepacked ones were replaced by unpacked copies

    def tensor(self, position: int) -> Array:
        """Return the elements of a tensor of the plan (outputs first), in place."""
        desc = self.plan.table[position]
        assert desc is not None
        return elements(memory(self.handles[position], desc.byte_range[1]), desc)

    @property
    def out(self) -> Array:
        return self.tensor(0)

    @property
    def out_desc(self) -> TensorDesc:
        desc = self.plan.table[0]
        assert desc is not None
        return desc


class Saboteur:
    """A saboteur that does nothing wrong; each defect overrides one or more methods."""

    operators: tuple[str, ...] = ("add", "exp", "softmax", "matmul", "copy")

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def plan(self, plan: Plan) -> Plan:
        """Return the plan with which the kernel is built."""
        return plan

    def supported(self, plan: Plan, answer: str | None) -> str | None:
        return answer

    def workspace(self, need: Workspace) -> Workspace:
        return need

    def packed(self, source: int, target: int, nbytes: int) -> None:
        """Corrupt a constant after it was brought into a packed layout."""

    def launch(self, call: Call, run: Callable[[Call], None]) -> None:
        run(call)
        self.after(call)

    def after(self, call: Call) -> None:
        """Corrupt the result."""


def changed(plan: Plan, table: Sequence[TensorDesc | None] | None = None, **attrs: Any) -> Plan:
    """Return the plan with another table or other attributes."""
    resolved = Resolved(plan.operator, (), (), tuple(plan.table if table is None else table), {**plan.attrs, **attrs})
    return Plan(resolved)
