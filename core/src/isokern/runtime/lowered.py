"""A call that a device has no kernel for, made of the operators that its operator consists of: `create(…, lower=True)`.

It is a kernel like others. Its workspace holds the scratch memory of the calls inside it, and behind that all values between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..backend import BASE_ALIGNMENT, Device, Kernel, Stream, Workspace
from ..dispatch import choose
from ..graph.ir import Graph, Op, Value
from ..layout import TensorDesc
from ..lowering import State, run
from ..lowering.conversion import Target, convert, single
from ..ops.declaration import Resolved
from ..status import NotImplementedOnDevice
from .plan import Plan, plan

PASSES = "common_subexpressions,dead_code"


class LoweredKernel(Kernel):
    """The kernels of an operator's parts, in order. NotImplementedOnDevice lists the parts that the device has none for."""

    def __init__(self, device: Device, resolved: Resolved) -> None:
        graph = single(resolved.operator, resolved.inputs, resolved.outputs, resolved.attrs)
        state = run(convert(State(graph, {}), Target.of_device(device), full=True), PASSES)
        made = plan(state.graph)
        calls = [op for op in made.calls if any(v.spec.numel for v in op.outputs)]
        spaces = [kernel.workspace for kernel in self._kernels(device, made, calls, 0)]
        for space, op in zip(spaces, calls, strict=True):
            if space.size and (space.kind != "default" or BASE_ALIGNMENT % space.alignment):
                given = f"{op!r} needs {space.kind} memory aligned to {space.alignment}"
                raise NotImplementedOnDevice(
                    resolved.operator.name, given, hint="run it as a graph: isokern.runtime.compile"
                )
        first = -(-max((s.size for s in spaces), default=0) // BASE_ALIGNMENT) * BASE_ALIGNMENT
        self.kernels = self._kernels(device, made, calls, first)
        self.graph: Graph = state.graph
        self.workspace = Workspace(first + made.arena, BASE_ALIGNMENT)
        outside = [*state.graph.outputs, *_given(graph, state.graph)]
        self._handles = [[_place(made, v, outside) for v in (*op.outputs, *op.inputs)] for op in calls]

    @staticmethod
    def _kernels(device: Device, made: Plan, calls: Sequence[Op], first: int) -> list[Kernel]:
        """A kernel for each call, values between them from byte `first` of the workspace."""

        def desc(value: Value | None) -> TensorDesc | None:
            if value is None:
                return None
            plain = made.desc(value)
            if made.root[value] not in made.offset:
                return plain
            shift = first // plain.dtype.itemsize * plain.dtype.block
            return TensorDesc(plain.dtype, plain.shape, plain.strides, plain.offset + shift)

        kernels = []
        for op in calls:
            outputs = [d for d in map(desc, op.outputs) if d is not None]
            kernels.append(choose(device, op.operator.resolve([desc(v) for v in op.inputs], outputs, op.attrs))[1])
        return kernels

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """All calls in order."""
        for kernel, places in zip(self.kernels, self._handles, strict=True):
            given = [None if p is None else workspace if p < 0 else handles[p] for p in places]
            kernel.launch(given, workspace, workspace_bytes, stream)


def _given(graph: Graph, lowered: Graph) -> list[Value | None]:
    """The lowered graph's inputs in the positions of the operator's, None where one is absent."""
    names = {v.name: v for v in lowered.inputs}
    return [None if v is None else names[v.name] for v in graph.ops[0].inputs]


def _place(made: Plan, value: Value | None, outside: Sequence[Value | None]) -> int | None:
    """Which handle of the call a value lies in: its position there, -1 for the workspace; any where it has no elements."""
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
