"""A context: the memory of one run of a program, and the calls that are bound to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..backend import BASE_ALIGNMENT, Buffer, Recording, Stream
from ..call.descriptor import Descriptor
from ..graph.builder import error_context
from ..graph.ir import PARAMETER, Op, Value
from ..status import InvalidArgument
from ..tensors import Tensor
from .cache import Recipe
from .packed import Key

Call = Callable[[], None]


class RunContext:
    """The memory of one run of a program: its inputs, its results, and all values between them.

    All contexts share the parameters. `tensors` are by value; `calls` by operator, in order, bound to `stream`. Inputs
    in `given` are in the caller's memory. Tensors in packed layouts, which kernels read instead of parameters, are
    taken from `prepacked`, or added to it.
    """

    def __init__(
        self,
        recipe: Recipe,
        stream: Stream,
        parameters: Mapping[str, Tensor],
        given: Mapping[str, Tensor],
        prepacked: dict[Key, Tensor],
    ) -> None:
        self.recipe, self.memory_plan, self.graph, self.device = (
            recipe,
            recipe.memory_plan,
            recipe.memory_plan.graph,
            recipe.device,
        )
        self.stream = stream
        self.tensors: dict[Value, Tensor] = {
            v: parameters[v.name] for v in self.graph.parameters if v.name in parameters
        }
        self.tensors |= {v: given[v.name] for v in self.graph.inputs if v.name in given}
        self.calls: dict[Op, Call] = {}
        self.buffers: list[Buffer] = []
        self.spaces: dict[str, Buffer] = {}
        self.arena: Buffer | None = None
        self.recording: Recording | None = None
        self._prepacked = prepacked
        self._parts: dict[tuple[Value, int], Buffer] = {}
        try:
            self._allocate()
            self._keep_constraints()
            self._pack()
            self._bind()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory."""
        self.recording = self.arena = None
        self.calls.clear()
        self.tensors.clear()
        for part in self._parts.values():
            part.close()
        for buffer in [*self.buffers, *self.spaces.values()]:
            buffer.close()

    @property
    def nbytes(self) -> int:
        """Bytes of its memory: arena, workspace, inputs and results."""
        return sum(b.nbytes for b in (*self.buffers, *self.spaces.values()))

    def capture(self) -> Recording:
        """Return all calls as one recording of the device; it is made once."""
        if self.recording is None:
            with self.stream.capture() as recording:
                for call in self.calls.values():
                    call()
            self.recording = recording
        return self.recording

    def _allocate(self) -> None:
        memory, descs = self.device.memory, self.recipe.descs
        arena = (
            memory.alloc(self.memory_plan.arena, alignment=BASE_ALIGNMENT, empty=True)
            if self.memory_plan.arena
            else None
        )
        self.buffers += [] if arena is None else [arena]
        self.arena = arena
        for value in self.graph.values.values():
            root = self.memory_plan.root[value]
            if value in self.tensors or value.role == PARAMETER:  # there in a packed layout alone
                continue
            if arena is not None and root in self.memory_plan.offset:
                self.tensors[value] = Tensor(descs[value], self._part(value, arena))
            elif root is not value and root in self.tensors:
                self.tensors[value] = Tensor(value.spec, self.tensors[root].buffer)
            else:
                nbytes = value.spec.dtype.nbytes(max(0, value.spec.extent[1]))
                buffer = memory.alloc(nbytes, value.spec.dtype, alignment=BASE_ALIGNMENT)
                self.buffers.append(buffer)
                self.tensors[value] = Tensor(value.spec, buffer)
        apart = [d for op, d in self.recipe.descriptors.items() if op not in self.memory_plan.spaces]
        copies = (d for of_one in self.recipe.copies.values() for d in of_one)
        needs = [d.workspace for d in (*apart, *copies) if d.workspace.size]
        for kind in dict.fromkeys(n.kind for n in needs):
            size = max(n.size for n in needs if n.kind == kind)
            alignment = max(n.alignment for n in needs if n.kind == kind)
            self.spaces[kind] = memory.alloc(size, kind=kind, alignment=alignment, empty=True)

    def _part(self, value: Value, arena: Buffer) -> Buffer:
        """Return the buffer of a value in the arena: a part of the arena's, if the memory has parts."""
        if not self.device.memory.parts:
            return arena
        plan, dtype = self.memory_plan, value.spec.dtype
        root, start = plan.root[value], plan.starts.get(value, 0)
        if (root, start) not in self._parts:
            whole, skipped = max(0, root.spec.dtype.nbytes(root.spec.extent[1])), dtype.nbytes(start)
            part = self.device.memory.part(arena, plan.offset[root] + skipped, whole - skipped)
            self._parts[root, start] = part
        return self._parts[root, start]

    def _keep_constraints(self) -> None:
        """Raise InvalidArgument if an operator's constraints do not hold for its memory.

        Constraints that layouts alone decide are verified before.
        """
        for op in self.graph.ops:
            for constraint in op.constraints:
                value = op.inputs[constraint.operand]
                assert value is not None
                span, amount = self.tensors[value].span, max(1, constraint.amount)
                misaligned = constraint.kind == "aligned" and value.spec.numel and span[0] % amount
                if misaligned or (constraint.kind == "alias" and span != self.tensors[op.outputs[0]].span):
                    given = f"{constraint}: {value!r} is at {span[0]:#x}"
                    raise InvalidArgument(f"{self.graph.name}: {op!r}", given, allowed="memory that keeps it")

    def _pack(self) -> None:
        """Bring parameters into the packed layouts that kernels read, if they are not there.

        The largest come first: while one is packed, its own bytes may also be in memory, and then the others are not
        there yet.
        """
        todo: dict[Key, tuple[Op, Descriptor, str, Tensor]] = {}
        for op, descriptor in self.recipe.descriptors.items():
            layouts = descriptor.packed_layouts
            names = op.operator.operand_names(len(op.declared)) if layouts else ()
            for value, name in zip(op.declared, names, strict=False):
                if value is not None and name in layouts and (value.name, layouts[name]) not in self._prepacked:
                    todo[value.name, layouts[name]] = op, descriptor, name, self.tensors[value]
        for key, (op, descriptor, name, tensor) in sorted(todo.items(), key=lambda one: -one[1][3].desc.nbytes):
            with error_context(op.name):
                self._prepacked[key] = descriptor.prepack(name, tensor, stream=self.stream)

    def _bind(self) -> None:
        stream, copies = self.stream, self.recipe.copies
        for op, descriptor in self.recipe.descriptors.items():
            inputs = self._operands(op, descriptor)
            space = self.arena if op in self.memory_plan.spaces else self._space(descriptor)
            outputs = [self.tensors[v] for v in op.outputs]
            with error_context(op.name):
                call = descriptor.bind(inputs, outputs, workspace=space, stream=stream)
                pairs = zip(copies.get(op, ()), self.memory_plan.copies.get(op, ()), strict=True)
                before = [
                    d.bind(self.tensors[a], self.tensors[b], workspace=self._space(d), stream=stream)
                    for d, (a, b) in pairs
                ]
                self.calls[op] = _in_order([*before, call]) if before else call

    def _space(self, descriptor: Descriptor) -> Buffer | None:
        return self.spaces[descriptor.workspace.kind] if descriptor.workspace.size else None

    def _operands(self, op: Op, descriptor: Descriptor) -> list[Tensor | None]:
        """Return the tensors that a call reads, a prepacked parameter in its packed layout."""
        layouts, inputs = descriptor.packed_layouts, list[Tensor | None]()
        for value, name in zip(op.declared, op.operator.operand_names(len(op.declared)), strict=False):
            if value is None or name not in layouts:
                inputs.append(None if value is None else self.tensors[value])
                continue
            inputs.append(self._prepacked[value.name, layouts[name]])
        return inputs


def _in_order(calls: Sequence[Call]) -> Call:
    def every() -> None:
        for call in calls:
            call()

    return every
