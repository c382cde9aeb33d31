"""Program: a graph compiled for a device, run with one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..backend import BASE_ALIGNMENT, Device, Recording
from ..buffer import Buffer
from ..descriptor import Descriptor, create
from ..graph.builder import told_of
from ..graph.ir import Graph, Op, Value, spec_text
from ..graph.model import Model
from ..lowering import DEFAULT, State, run as run_passes
from ..plugins import device as find_device
from ..status import BadTensorShape, InvalidArgument
from ..tensors import Tensor, tensor
from .plan import Plan, plan

Feeds = Mapping[str, Any] | Sequence[Any]


def compile(
    model: Model | Graph,
    device: str | Device | None = None,
    *,
    parameters: Mapping[str, Any] | None = None,
    passes: str | Sequence[str] = DEFAULT,
    reuse: bool = True,
) -> Program:
    """The program of a model on a device: variants chosen, memory planned and allocated, parameters there, every call bound.

    `parameters` are a model's own by default. `passes` are done to the graph before (`isokern.lowering`); "" for none. With `reuse` false no memory is shared. Raises the typed errors of create, with the operator's name in
    front, and NotImplementedOnDevice where the device lacks one; then nothing stays allocated.
    """
    if isinstance(model, Model) and parameters is None:
        model.complete()
        parameters = model.parameters
    graph = model.graph if isinstance(model, Model) else model
    state = run_passes(State(graph, parameters or {}), passes)
    return Program(plan(state.graph, reuse), find_device(device), state.parameters)


@dataclass(frozen=True)
class Line:
    """What `Program.explain` says of one operator: bytes are of all its operands, `memory` where its outputs lie."""

    name: str
    kind: str
    variant: str
    outputs: str
    nbytes: int
    workspace: int
    memory: str


class Program:
    """A graph on a device. `inputs` and `outputs` are the device tensors that a run reads and leaves its results in, by their names' order.

    `arena_bytes` are the activations', `workspace_bytes` the scratch memory's, `naive_bytes` what both would be if nothing shared memory.
    """

    def __init__(self, made: Plan, device: Device, parameters: Mapping[str, Any]) -> None:
        self.plan, self.graph, self.device = made, made.graph, device
        self._recording: Recording | None = None
        self._buffers: list[Buffer] = []
        self._spaces: dict[str, Buffer] = {}
        self._tensors: dict[Value, Tensor] = {}
        self._calls: list[Callable[[], None]] = []
        self.descriptors: dict[Op, Descriptor] = {}
        try:
            self._describe()
            self._allocate(parameters)
            self._keep_constraints()
            self._bind()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory; the program is not run again."""
        self._calls.clear()
        self._recording = None
        for buffer in [*self._buffers, *self._spaces.values()]:
            buffer.close()

    # Making

    def _describe(self) -> None:
        desc = self.plan.desc
        for op in self.plan.calls:
            with told_of(op.name):
                self.descriptors[op] = create(
                    op.kind,
                    [None if v is None else desc(v) for v in op.inputs],
                    [desc(v) for v in op.outputs],
                    device=self.device,
                    **op.attrs,
                )

    def _allocate(self, parameters: Mapping[str, Any]) -> None:
        memory = self.device.memory
        for value in self.graph.parameters:
            if value.name not in parameters:
                raise InvalidArgument(
                    self.graph.name, f"parameter {value.name} is not given", allowed=spec_text(value.spec)
                )
            given = parameters[value.name]
            held = given if isinstance(given, Tensor) else tensor(given, value.spec.dtype, device=self.device)
            if held.desc != value.spec or held.device is not self.device:
                raise BadTensorShape(
                    self.graph.name,
                    f"parameter {value.name} is {spec_text(held.desc)} on {held.device.name}",
                    allowed=f"{spec_text(value.spec)} on {self.device.name}",
                )
            self._tensors[value] = held
            if held is not given:
                self._buffers.append(held.buffer)
        arena = memory.alloc(self.plan.arena, alignment=BASE_ALIGNMENT, empty=True) if self.plan.arena else None
        self._buffers += [] if arena is None else [arena]
        for value in self.graph.values.values():
            root = self.plan.root[value]
            if value in self._tensors:
                continue
            if arena is not None and root in self.plan.offset:
                self._tensors[value] = Tensor(self.plan.desc(value), arena)
            elif root is not value and root in self._tensors:
                self._tensors[value] = Tensor(value.spec, self._tensors[root].buffer)
            else:
                nbytes = value.spec.dtype.nbytes(max(0, value.spec.extent[1]))
                buffer = memory.alloc(nbytes, value.spec.dtype, alignment=BASE_ALIGNMENT)
                self._buffers.append(buffer)
                self._tensors[value] = Tensor(value.spec, buffer)
        needs = [d.workspace for d in self.descriptors.values() if d.workspace.size]
        for kind in dict.fromkeys(n.kind for n in needs):
            size = max(n.size for n in needs if n.kind == kind)
            alignment = max(n.alignment for n in needs if n.kind == kind)
            self._spaces[kind] = memory.alloc(size, kind=kind, alignment=alignment, empty=True)

    def _keep_constraints(self) -> None:
        """InvalidArgument where memory is not as an operator's constraints ask; what layouts alone can tell is verified before."""
        for op in self.graph.ops:
            for constraint in op.constraints:
                value = op.inputs[constraint.operand]
                assert value is not None
                span, amount = self._tensors[value].span, max(1, constraint.amount)
                astray = constraint.kind == "aligned" and span[0] % amount
                if astray or (constraint.kind == "alias" and span != self._tensors[op.outputs[0]].span):
                    given = f"{constraint}: {value!r} lies at {span[0]:#x}"
                    raise InvalidArgument(f"{self.graph.name}: {op!r}", given, allowed="memory that keeps it")

    def _bind(self) -> None:
        stream = self.device.default_stream
        for op, descriptor in self.descriptors.items():
            space = self._spaces[descriptor.workspace.kind] if descriptor.workspace.size else None
            inputs = [None if v is None else self._tensors[v] for v in op.inputs]
            outputs = [self._tensors[v] for v in op.outputs]
            with told_of(op.name):
                self._calls.append(descriptor.bind(inputs, outputs, workspace=space, stream=stream))

    # Running

    @property
    def inputs(self) -> list[Tensor]:
        """What a run reads, in the order of the graph's inputs: write there, then `replay`."""
        return [self._tensors[v] for v in self.graph.inputs]

    @property
    def outputs(self) -> list[Tensor]:
        """Where a run leaves its results."""
        return [self._tensors[v] for v in self.graph.outputs]

    def capture(self) -> Recording:
        """All calls as one recording of the device; made once."""
        if not self._calls and self.plan.calls:
            raise InvalidArgument(self.graph.name, "the program is closed", hint="compile it again")
        if self._recording is None:
            with self.device.default_stream.capture() as recording:
                for call in self._calls:
                    call()
            self._recording = recording
        return self._recording

    def replay(self) -> None:
        """Run with what `inputs` hold; the results are in `outputs` when the device's default stream gets there."""
        self.capture().replay()

    def run(self, feeds: Feeds | None = None, *, out: Sequence[Tensor] | None = None) -> Any:
        """The results, NumPy arrays (one, or a tuple of several), for what is fed: by name, or in the order of the inputs.

        Feeds are arrays, anything of DLPack, or tensors of any device. `out` are tensors that take the results instead, and are returned.
        """
        fed = self._fed(feeds)
        for value, given in fed.items():
            self._feed(value, given)
        self.replay()
        self.device.synchronize()
        if out is None:
            found: list[Any] = [np.array(t.numpy()) for t in self.outputs]
        else:
            if len(out) != len(self.outputs):
                raise InvalidArgument(self.graph.name, f"out has {len(out)} tensors", allowed=str(len(self.outputs)))
            found = [given.copy_from(t) for given, t in zip(out, self.outputs, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    def _fed(self, feeds: Feeds | None) -> dict[Value, Any]:
        known = {v.name: v for v in self.graph.inputs}
        if feeds is None:
            feeds = {}
        if not isinstance(feeds, Mapping):
            if not isinstance(feeds, (list, tuple)):
                feeds = [feeds]
            if len(feeds) != len(known):
                allowed = f"{len(known)}: {', '.join(known) or 'none'}"
                raise InvalidArgument(self.graph.name, f"{len(feeds)} feeds", allowed=allowed)
            feeds = dict(zip(known, feeds, strict=True))
        strange, missing = [n for n in feeds if n not in known], [n for n in known if n not in feeds]
        if strange or missing:
            given = f"feeds {', '.join(map(repr, feeds)) or 'nothing'}"
            raise InvalidArgument(self.graph.name, given, allowed=", ".join(known) or "none: it has no inputs")
        return {known[name]: given for name, given in feeds.items()}

    def _feed(self, value: Value, given: Any) -> None:
        with told_of(f"{self.graph.name}, input {value.name}"):
            shape = tuple(getattr(given, "shape", np.shape(given)))
            if shape != value.spec.shape:
                raise BadTensorShape("run", f"shape {list(shape)}", allowed=spec_text(value.spec))
            self._tensors[value].copy_from(given)

    # Telling

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena of activations."""
        return self.plan.arena

    @property
    def workspace_bytes(self) -> int:
        """Bytes of the scratch memory that all calls share."""
        return sum(b.nbytes for b in self._spaces.values())

    @property
    def naive_bytes(self) -> int:
        """Bytes of all activations and workspaces, each in memory of its own."""
        return self.plan.naive + sum(d.workspace_size for d in self.descriptors.values())

    def explain(self) -> list[Line]:
        """A line for each operator, in order."""
        lines = []
        for op in self.graph.ops:
            descriptor = self.descriptors.get(op)
            where = [self._memory(op, v) for v in op.outputs]
            nbytes = sum(v.spec.nbytes for v in (*op.outputs, *op.given)) if descriptor is not None else 0
            lines.append(
                Line(
                    op.name,
                    op.kind,
                    "(nothing to do)" if descriptor is None else descriptor.variant,
                    ", ".join(spec_text(v.spec) for v in op.outputs),
                    nbytes,
                    0 if descriptor is None else descriptor.workspace_size,
                    ", ".join(where),
                )
            )
        return lines

    def _memory(self, op: Op, value: Value) -> str:
        root = self.plan.root[value]
        text = f"arena+{self.plan.offset[root]}" if root in self.plan.offset else "its own"
        if op in self.plan.in_place and root is not value:
            return f"{text}, in place of %{self.plan.in_place[op].vid}"
        return f"{text}, is %{root.vid}" if root is not value else text
