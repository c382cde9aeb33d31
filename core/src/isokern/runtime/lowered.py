"""A kernel made of the operators that an operator consists of, where the device has none: `create(…, lower=True)`.

It is used like other kernels. Its workspace is the arena of a memory plan, which has the scratch memory of the inner
calls at its beginning, and the values between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend import BASE_ALIGNMENT, Device, Kernel, Stream, Workspace
from ..backend.dispatch import choose
from ..declare.operator import Resolved
from ..graph.ir import Graph, Op, Value
from ..passes import run
from ..rewriting.conversion import convert, single
from ..rewriting.rewriter import State
from ..rewriting.target import Target
from ..status import NotImplementedOnDevice
from .memory_plan import MemoryPlan, plan_memory

PASSES = "common_subexpressions,dead_code"


class LoweredKernel(Kernel):
    """The kernels of an operator's parts, in order.

    NotImplementedOnDevice lists the parts that the device has no kernel for.
    """

    def __init__(self, device: Device, resolved: Resolved) -> None:
        graph = single(resolved.operator, resolved.inputs, resolved.outputs, resolved.attrs)
        state = run(convert(State(graph, {}), Target.of_device(device)), PASSES)
        made = plan_memory(state.graph)
        calls = [op for op in made.calls if any(v.spec.numel for v in op.outputs)]
        spaces = [kernel.workspace for kernel in self._kernels(device, made, calls)]
        for space, op in zip(spaces, calls, strict=True):
            if space.size and (space.kind != "default" or BASE_ALIGNMENT % space.alignment):
                given = f"{op!r} needs {space.kind} memory aligned to {space.alignment}"
                raise NotImplementedOnDevice(
                    resolved.operator.name, given, hint="run it as a graph: isokern.runtime.compile"
                )
        made = plan_memory(state.graph, spaces={op: space.size for op, space in zip(calls, spaces, strict=True)})
        self.kernels = self._kernels(device, made, calls)
        self.graph: Graph = state.graph
        self.workspace = Workspace(made.arena, BASE_ALIGNMENT)
        outside = [*state.graph.outputs, *_match_inputs(graph, state.graph)]
        self._handles = [[_place(made, v, outside) for v in _operands(op)] for op in calls]

    @staticmethod
    def _kernels(device: Device, made: MemoryPlan, calls: Sequence[Op]) -> list[Kernel]:
        """Return a kernel for each call."""
        kernels = []
        for op in calls:
            inputs = [None if v is None else made.desc(v) for v in op.declared]
            outputs = [made.desc(v) for v in op.outputs]
            kernels.append(choose(device, op.operator.resolve(inputs, outputs, op.attrs))[1])
        return kernels

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Launch all kernels in order."""
        for kernel, places in zip(self.kernels, self._handles, strict=True):
            given = [None if p is None else workspace if p < 0 else handles[p] for p in places]
            kernel.launch(given, workspace, workspace_bytes, stream)


def _operands(op: Op) -> list[Value | None]:
    """Return a call's outputs and all its inputs, None where one is absent, as its plan has them."""
    lacking = len(op.operator.operand_names(len(op.declared))) - len(op.declared)
    return [*op.outputs, *op.declared, *[None] * lacking]


def _match_inputs(graph: Graph, lowered: Graph) -> list[Value | None]:
    """Return the lowered graph's inputs in the order of the operator's inputs, None where one is absent."""
    names = {v.name: v for v in lowered.inputs}
    return [None if v is None else names[v.name] for v in graph.ops[0].inputs]


def _place(made: MemoryPlan, value: Value | None, outside: Sequence[Value | None]) -> int | None:
    """Return the index of the call's handle that a value lies in, -1 for the workspace.

    It is 0 for a value without elements, which may lie anywhere.
    """
    if value is None:
        return None
    root = made.root[value]
    if root in made.offset:
        return -1
    if root in outside:
        return outside.index(root)
    if value.spec.numel:
        given = f"{value!r} lies between its parts, and not in a workspace"
        raise NotImplementedOnDevice(value.name, given, hint="run it as a graph: isokern.runtime.compile")
    return 0
