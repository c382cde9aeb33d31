"""The protocol by which checking and explaining access a program: its parts, and its operators one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from ..backend import Device
from ..call.descriptor import Descriptor
from ..graph.ir import Graph, Op, Value
from ..tensors import Tensor
from .memory_plan import MemoryPlan


class Inspectable(Protocol):
    """A program whose operators can be run alone, and whose values can be read; `Program` describes each method."""

    graph: Graph
    memory_plan: MemoryPlan
    device: Device
    descriptors: dict[Op, Descriptor]
    parameters: dict[str, Tensor]

    def calls(self) -> Mapping[Op, Callable[[], None]]:
        """Return the bound call of each operator that is run, in order."""

    def step(self, op: Op) -> None:
        """Run one operator alone, and wait for it."""

    def read(self, value: Value) -> np.ndarray[Any, Any]:
        """Return a copy of the current content of a value's memory."""

    def read_parameters(self) -> Mapping[Value, np.ndarray[Any, Any]]:
        """Return what `read` gives of every parameter."""

    def replay(self) -> None:
        """Run on the current content of the inputs."""
