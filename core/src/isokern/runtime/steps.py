"""What checking and explaining ask of a program: its parts, and its operators one after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ..backend import Device
from ..call.descriptor import Descriptor
from ..graph.ir import Graph, Op, Value
from .plan import Plan


class Steps(Protocol):
    """A program whose operators can be run alone, and whose values can be read; see `Program` for each."""

    graph: Graph
    plan: Plan
    device: Device
    descriptors: dict[Op, Descriptor]

    def calls(self) -> Mapping[Op, Callable[[], None]]:
        """The bound call of each operator that is run, in order."""

    def step(self, op: Op) -> None:
        """Run one operator alone, and wait for it."""

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        """A copy of what the memory of a value holds now."""

    def replay(self) -> None:
        """Run with what the inputs hold."""
