"""Descriptor: an operator described for a device once, run many times: create → workspace_size → calculate."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import numpy as np

from .. import debug
from ..backend import (
    Buffer,
    Device,
    Kernel,
    PackedLayout,
    Stream,
    Workspace,
    array_at,
    check_stream,
    current_stream,
    running_stream,
)
from ..backend.buffer_view import Facts, facts_of
from ..backend.dispatch import Candidate, choose, consider, say_parts
from ..backend.hints import NONE, check_hints
from ..backend.kernels import NativeStep
from ..cabi.plan import Plan
from ..declare.operator import Operator, Resolved
from ..layout import TensorDesc
from ..status import (
    BadTensorDtype,
    BadTensorShape,
    BadTensorStrides,
    InsufficientWorkspace,
    InvalidArgument,
    NotImplementedOnDevice,
)
from ..tensors import Tensor
from .prepack import pack_constant, packed_desc

Tensors = Sequence[Tensor | None] | Tensor
WorkspaceArgument = Buffer | Literal["auto"] | None
Fallback = Callable[[Device, Resolved], Kernel]
_NOTHING = Workspace()
OVERLAP_WORK = 100_000  # steps of NumPy's exact test: milliseconds


class Descriptor:
    """An operator bound to layouts, attributes and a device.

    It is immutable: many threads may `calculate` with different tensors at once. `variant` is the kernel variant that
    runs, `considered` every candidate with its answer. If no variant takes the call, `fallback`, if given, makes its
    kernel (see `isokern.create`), and `made_of` names the operators that run. `aliasable` are the places of the inputs
    that an output may be, behind the outputs.
    """

    def __init__(
        self,
        device: Device,
        resolved: Resolved,
        variant: str | None = None,
        prepacked: Collection[str] = (),
        hints: Mapping[str, str] = NONE,
        fallback: Fallback | None = None,
    ) -> None:
        self.operator = resolved.operator
        self.device = device
        self.inputs, self.outputs, self.attrs = resolved.inputs, resolved.outputs, resolved.attrs
        self._prepacked = self._constants(prepacked)
        self.plan, self._kernel, self.considered = self._choose(
            resolved, variant, check_hints(resolved.operator.name, hints), fallback
        )
        self.closed = False
        self._empty = all(d.numel == 0 for d in self.outputs)
        layouts = self._kernel.packed_layouts
        self._descs = tuple(
            packed_desc(layouts[i], d) if i in layouts and d is not None else d
            for i, d in enumerate((*self.outputs, *self.inputs))
        )
        self._expected = [None if d is None else facts_of(d, device.memory) for d in self._descs]
        self._space = _NOTHING if self._empty else self._kernel.workspace
        self._needs_space = self._space.size > 0
        self._output_positions = range(len(self.outputs))
        self.aliasable = self._alias_positions()
        if debug.LEVEL and self.made_of:
            debug.say(f"{self!r}: {say_parts(self.made_of)}, with {self._space.size} bytes of workspace")

    @classmethod
    def of(
        cls,
        operator: Operator,
        inputs: Sequence[TensorDesc | None],
        outputs: Sequence[TensorDesc] | None = None,
        *,
        device: Device,
        dtypes: Mapping[str, Any] | None = None,
        variant: str | None = None,
        prepacked: Collection[str] = (),
        hints: Mapping[str, str] = NONE,
        fallback: Fallback | None = None,
        **attrs: Any,
    ) -> Descriptor:
        """Describe a call of one operator; see `isokern.create`."""
        outs = operator.infer(inputs, attrs, dtypes) if outputs is None else outputs
        return cls(device, operator.resolve(inputs, outs, attrs), variant, prepacked, hints, fallback)

    def _choose(
        self, resolved: Resolved, variant: str | None, hints: Mapping[str, str], fallback: Fallback | None
    ) -> tuple[Plan, Kernel, list[Candidate]]:
        try:
            return choose(self.device, resolved, variant, tuple(self._prepacked.values()), hints)
        except NotImplementedOnDevice as error:
            if fallback is None:
                raise
            refused = error
        plan, _, answers = consider(self.device, resolved)
        try:
            kernel = fallback(self.device, resolved)
        except NotImplementedOnDevice as lacking:
            hint = f"{refused.hint}; lowered: {lacking.problem}"
            raise NotImplementedOnDevice(refused.where, refused.problem, hint=hint) from None
        return plan, kernel, [*answers, Candidate("lowered", -1, None, chosen=True)]

    def _constants(self, names: Collection[str]) -> dict[str, int]:
        """Return the position in the plan's table of each input that is to be prepacked."""
        allowed = self.operator.constants
        listed = [names] if isinstance(names, str) or not isinstance(names, Iterable) else list(names)
        for name in listed:
            if not isinstance(name, str) or name not in allowed:
                raise InvalidArgument(
                    self.operator.name, f"prepacked={names!r}", allowed=f"of {', '.join(allowed) or 'no input'}"
                )
        order = [o.name for o in self.operator.signature.inputs]
        return {name: len(self.outputs) + order.index(name) for name in listed}

    def _alias_positions(self) -> frozenset[int]:
        """Return the positions in `_descs` of inputs that an output may be."""
        names = self.operator.operand_names(len(self.inputs))
        return frozenset(len(self.outputs) + i for i, n in enumerate(names) if n in self.operator.aliases)

    @property
    def facts(self) -> list[Facts | None]:
        """The facts by which the tensors of a call are compared, outputs first; None for an absent one."""
        return self._expected

    @property
    def variant(self) -> str:
        """The name of the kernel variant that runs."""
        return next(c.variant for c in self.considered if c.chosen)

    @property
    def made_of(self) -> tuple[str, ...]:
        """The operators that run in place of one that the device has no kernel for, in order; else empty."""
        return self._kernel.made_of

    @property
    def workspace(self) -> Workspace:
        """The exact size in bytes, alignment and memory kind of the scratch memory that a call needs."""
        return self._space

    @property
    def workspace_size(self) -> int:
        """The exact bytes of scratch memory that a call needs; 0 if it needs none."""
        return self._space.size

    def alloc_workspace(self) -> Buffer | None:
        """Allocate the `workspace` of a call, of the size, alignment and kind it needs; None if a call needs none.

        Its content is undefined. Calls that do not overlap may share it.
        """
        need = self._space
        if need.size == 0:
            return None
        return self.device.memory.alloc(need.size, kind=need.kind, alignment=need.alignment, empty=True)

    @property
    def packed_layouts(self) -> dict[str, PackedLayout]:
        """The packed layouts of the inputs to be prepacked; those that the kernel takes as they are have none."""
        return {
            name: self._kernel.packed_layouts[at]
            for name, at in self._prepacked.items()
            if at in self._kernel.packed_layouts
        }

    def prepack(self, name: str, tensor: Tensor, *, into: Buffer | None = None, stream: Stream | None = None) -> Tensor:
        """Return the tensor to call with as input `name`: `tensor` in the kernel's packed layout.

        `name` is one of those that `create` was given as `prepacked`. The result is `tensor` itself if the kernel has
        no packed layout for it (`packed_layouts`). Otherwise it is packed once, counted in `device.prepack_cache`, and
        found again while it is in use, for the same tensor, by any descriptor that wants this layout; where `into` is a
        buffer, it is packed into that each time. It does not follow later writes to `tensor`. It is complete when this
        returns.
        """
        used = current_stream(self.device) if stream is None else stream
        check_stream(self.operator.name, used, self.device)
        at = self._prepacked.get(name)
        if at is None:
            hint = f"create the descriptor with prepacked=[{name!r}]" if name in self.operator.constants else ""
            given = f"{name} is not one that it was created to have prepacked"
            raise InvalidArgument(self.operator.name, given, allowed=", ".join(self._prepacked) or "none", hint=hint)
        desc = self.inputs[at - len(self.outputs)]
        expected = None if desc is None else facts_of(desc, self.device.memory)
        if not isinstance(tensor, Tensor) or not tensor.facts.same(expected) or not tensor.buffer.alive:
            self._wrong_tensor(at, tensor, desc)
        if at not in self._kernel.packed_layouts:
            return tensor
        if used.recording is not None:
            raise InvalidArgument(self.operator.name, "the stream is capturing", hint=f"prepack {name} before")
        return pack_constant(self._kernel, at, tensor, used, self.operator.name, into)

    def why(self) -> list[Candidate]:
        """Return every variant that was considered and its answer, best first."""
        return list(self.considered)

    def calculate(
        self, inputs: Tensors, outputs: Tensors, *, workspace: WorkspaceArgument = None, stream: Stream | None = None
    ) -> None:
        """Enqueue the call on `stream` (the thread's current one by default).

        `inputs` and `outputs` have the layouts given at create. `workspace` has at least `workspace_size` bytes (see
        `alloc_workspace`), of which the first are used; "auto" is memory that this thread's calls on the stream share,
        with no others (`Stream.scratch`). Nothing is written before everything is checked.
        """
        if stream is None:
            stream = current_stream(self.device)
        else:
            check_stream(self.operator.name, stream, self.device)
        if workspace is not None and isinstance(workspace, str):
            self._check_word(workspace)
            workspace = stream.scratch(self._space)
        tensors, handles = self._check(inputs, outputs, workspace)
        if self._empty:
            return
        space, nbytes = (None, 0) if workspace is None else (workspace.handle, self._space.size)
        if stream.recording is not None:
            stream.recording.owned.append((self, tensors, handles, workspace, space))
        if debug.LEVEL < 2:
            self._kernel.launch(handles, space, nbytes, stream)
        else:
            start = time.perf_counter()
            self._kernel.launch(handles, space, nbytes, stream)
            stream.synchronize()
            self._report(time.perf_counter() - start)

    def repeater(self) -> Callable[[Sequence[Tensor | None]], None]:
        """Return a function that makes the call with new outputs: of tensors (outputs first) of the facts of `create`.

        It needs not check what is known of such: only whether a buffer is closed. Workspaces are "auto".
        """
        device, launch, need, outputs = self.device, self._kernel.launcher(), self._space, len(self.outputs)
        nbytes, count = need.size, 0 if self._empty else len(self._expected)

        def run(tensors: Sequence[Tensor | None]) -> None:
            stream = running_stream(device)
            handles: Sequence[Any]
            try:  # an absent input has no buffer, a closed buffer no handle
                if len(tensors) == 3:  # written out, which takes half as long
                    a, b, c = tensors
                    handles = a.buffer.handle, b.buffer.handle, c.buffer.handle  # type: ignore[union-attr]
                else:
                    handles = [t.buffer.handle for t in tensors]  # type: ignore[union-attr]
            except AttributeError:
                stream = None
            if stream is None or debug.LEVEL >= 2 or len(tensors) != count:
                self.calculate(tensors[outputs:], tensors[:outputs], workspace="auto")
            elif nbytes:
                launch(handles, stream.scratch(need).handle, nbytes, stream)  # type: ignore[union-attr]
            else:
                launch(handles, None, 0, stream)

        return run

    def native_steps(self) -> list[NativeStep] | None:
        """Return the C calls of which a call is a sequence (`Kernel.native_steps`); None if it is not."""
        return None if self._empty else self._kernel.native_steps()

    def _report(self, seconds: float) -> None:
        """Print what ISOKERN_DEBUG shows of a call that took `seconds`."""
        moved = sum(d.nbytes for d in (*self.inputs, *self.outputs) if d is not None)
        debug.say(f"{self!r} {seconds * 1e6:.1f} us {moved / max(seconds, 1e-9) / 1e9:.2f} GB/s")
        if debug.LEVEL >= 3:
            for c in self.considered:
                debug.say(f"  {c.variant} (priority {c.priority}): {c.reason or 'chosen'}")

    def bind(
        self, inputs: Tensors, outputs: Tensors, *, workspace: WorkspaceArgument = None, stream: Stream | None = None
    ) -> Callable[[], None]:
        """Return a function that runs the call on exactly these buffers, checked once.

        It costs about one foreign call. It keeps the descriptor and the memory alive, closed or not; the contents may
        change between calls. With "auto" it has a workspace of its own, since any thread may call it.
        """
        if stream is None:
            stream = current_stream(self.device)
        else:
            check_stream(self.operator.name, stream, self.device)
        if workspace is not None and isinstance(workspace, str):
            self._check_word(workspace)
            workspace = self.alloc_workspace()
        tensors, handles = self._check(inputs, outputs, workspace)
        if self._empty:
            return lambda: None
        space, nbytes = (None, 0) if workspace is None else (workspace.handle, self._space.size)
        return self._kernel.bind(handles, space, nbytes, stream, (self, tensors, handles, workspace, space))

    def close(self) -> None:
        """Release the kernel; later calls are errors. Bound calls and recordings keep what they need."""
        self.closed = True

    def __enter__(self) -> Descriptor:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ins = ", ".join("-" if d is None else str(d) for d in self.inputs)
        return f"<descriptor {self.operator.name}({ins}) on {self.device.name} by {self.variant}>"

    # Checks of a call. Every `calculate` pays for the path without errors, so it is short

    def _check(
        self, inputs: Tensors, outputs: Tensors, workspace: Buffer | None
    ) -> tuple[Sequence[Tensor | None], list[Any]]:
        """Return all tensors (outputs first) and their handles, or raise the typed error of whatever is wrong."""
        try:
            outs = (outputs,) if outputs.__class__ is Tensor else outputs
            tensors: Any = (*outs, inputs) if inputs.__class__ is Tensor else (*outs, *inputs)
        except TypeError:
            self._wrong_call(inputs, outputs)
        if self.closed:
            raise InvalidArgument(self.operator.name, "the descriptor is closed", hint="create a new one")
        if len(tensors) != len(self._expected):
            tensors = self._complete(tensors)
        try:
            given = [t.facts for t in tensors]
            handles = [t.buffer.handle for t in tensors]
        except AttributeError:  # an absent input, something that is not a tensor, or a closed buffer
            given, handles = self._inspect(tensors)
        if given != self._expected:  # equal facts are one object, so this compares identities
            self._inspect(tensors)
        for o in self._output_positions:
            out = tensors[o]
            if not out.buffer.writable:
                raise InvalidArgument(
                    self.operator.name, f"output {self._name(o)} is read-only memory", hint="give a writable tensor"
                )
            start, end = out.span
            for other in tensors[o + 1 :]:
                if other is not None:
                    low, high = other.span
                    if low < end and start < high:
                        self._check_overlap(o, tensors)
                        break
        if self._needs_space or workspace is not None:
            self._check_workspace(tensors, workspace)
        return tensors, handles

    def _wrong_call(self, inputs: Any, outputs: Any) -> NoReturn:
        """Raise the error that says which argument of a call is not a sequence of tensors."""
        name, given = ("inputs", inputs) if isinstance(outputs, (Tensor, list, tuple)) else ("outputs", outputs)
        raise InvalidArgument(
            self.operator.name, f"{name} is a {type(given).__name__}", allowed="a tensor or a list of tensors"
        )

    def _name(self, position: int) -> str:
        outputs, at = self.operator.signature.outputs, position - len(self.outputs)
        if at < 0:
            return outputs[position].name
        names = self.operator.operand_names(len(self.inputs))
        variadic = names[at] in [o.name for o in self.operator.signature.inputs if o.variadic]
        return f"{names[at]}[{at - names.index(names[at])}]" if variadic else names[at]

    def _complete(self, tensors: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        """Add trailing optional inputs that were absent at create, which may be left out, as None."""
        missing = self._descs[len(tensors) :]
        if len(tensors) > len(self._descs) or any(d is not None for d in missing):
            raise InvalidArgument(
                self.operator.name,
                f"{len(tensors)} tensors are given",
                allowed=f"{len(self.inputs)} inputs and {len(self.outputs)} outputs",
            )
        return (*tensors, *[None] * len(missing))

    def _inspect(self, tensors: Sequence[Any]) -> tuple[list[Any], list[Any]]:
        """Return facts and handles, None for what is absent; raise the typed error of the first wrong tensor."""
        facts: list[Any] = []
        handles: list[Any] = []
        for position, (t, expected) in enumerate(zip(tensors, self._expected, strict=True)):
            absent = t is None and expected is None
            handle = None if absent or t.__class__ is not Tensor else getattr(t.buffer, "handle", None)
            if not absent and (handle is None or not t.facts.same(expected)):
                self._wrong_tensor(position, t, self._descs[position])
            facts.append(expected)
            handles.append(handle)
        return facts, handles

    def _wrong_tensor(self, position: int, given: Any, desc: TensorDesc | None) -> None:
        """Raise the error that says what is wrong with the tensor at `position`, which has to be as `desc` says."""
        where, name = self.operator.name, self._name(position)
        if desc is None:
            raise InvalidArgument(
                where, f"{name} is given, and was absent at create", hint="create a descriptor with it"
            )
        if given is None:
            raise InvalidArgument(where, f"{name} is missing", allowed=str(desc))
        if not isinstance(given, Tensor):
            raise InvalidArgument(
                where,
                f"{name} is a {type(given).__name__}",
                allowed="an isokern.Tensor",
                hint="wrap it: isokern.from_numpy(array)",
            )
        if given.device is not self.device:
            raise InvalidArgument(
                where,
                f"{name} is on {given.device.name}",
                allowed=self.device.name,
                hint="move it: tensor.to_device(…)",
            )
        if not given.buffer.alive:
            raise InvalidArgument(where, f"the buffer of {name} is closed", hint="allocate a new one")
        for differs, error, fact in (
            (given.dtype is not desc.dtype, BadTensorDtype, f"dtype {given.dtype}"),
            (given.shape != desc.shape, BadTensorShape, f"shape {list(given.shape)}"),
            (given.desc != desc, BadTensorStrides, f"strides {given.strides} and offset {given.desc.offset}"),
        ):
            if differs:
                raise error(
                    where,
                    f"{name} has {fact}",
                    allowed=f"{desc} with strides {desc.strides} and offset {desc.offset}, as at create",
                )

    def _check_overlap(self, output: int, tensors: Sequence[Tensor | None]) -> None:
        """Refuse tensors that share an element with an output, unless the operator allows them to.

        Called for tensors whose byte ranges meet the output's.
        """
        a = tensors[output]
        assert a is not None
        for position in range(output + 1, len(tensors)):
            b = tensors[position]
            if b is None or a.desc.numel == 0 or b.desc.numel == 0:
                continue
            same = (a.buffer is b.buffer and a.desc is b.desc) or _elements(a) == _elements(b)
            if position in self.aliasable and (same or self.operator.inout):
                continue
            if _overlap(a, b):
                may = self.operator.aliases
                allowed = f"output exactly on {' or '.join(may)}, or no shared element" if may else "no shared element"
                names = f"{self._name(output)} and {self._name(position)}"
                raise InvalidArgument(self.operator.name, f"{names} overlap", allowed=allowed)

    def _check_word(self, given: str) -> None:
        if given != "auto":
            allowed = "'auto', an isokern Buffer, or None"
            raise InvalidArgument(self.operator.name, f"workspace={given!r}", allowed=allowed)

    def _check_workspace(self, tensors: Sequence[Tensor | None], given: Buffer | None) -> None:
        need, where, wrong = self._space, self.operator.name, ""
        if given is None:
            wrong = "no workspace is given"
        elif not isinstance(given, Buffer):
            wrong = f"the workspace is a {type(given).__name__}"
        elif not given.alive or not given.writable:
            wrong = f"the workspace is {'read-only' if given.alive else 'closed'}"
        elif given.memory is not self.device.memory:
            wrong = f"the workspace is on {given.device.name}"
        elif given.nbytes < need.size:
            wrong = f"the workspace has {given.nbytes} bytes"
        elif need.size and (given.kind != need.kind or given.address % need.alignment):
            wrong = f"the workspace is {given.kind} memory at {given.address:#x}"
        if wrong or given is None:
            raise InsufficientWorkspace(
                where,
                wrong,
                allowed=f"{need.size} bytes of {need.kind} memory on {self.device.name}, aligned to {need.alignment}",
                hint="give what descriptor.alloc_workspace() returns, or workspace='auto'",
            )
        end = given.address + need.size  # the bytes that the kernel may use, however many are given
        for position, t in enumerate(tensors):
            if t is not None and t.desc.numel and need.size and t.span[0] < end and given.address < t.span[1]:
                raise InvalidArgument(
                    where, f"the workspace overlaps {self._name(position)}", allowed="memory of its own"
                )


def _elements(t: Tensor) -> tuple[Any, ...]:
    """Return what two tensors over the same elements have in common, whichever buffers they are in."""
    steps = [s for d, s in zip(t.shape, t.strides, strict=True) if d > 1]
    return t.dtype, t.shape, steps, t.buffer.address * t.dtype.block + t.desc.offset * t.dtype.itemsize


def _overlap(a: Tensor, b: Tensor) -> bool:
    """Return whether the tensors share an element.

    True also where strides are so odd that the exact answer would take long.
    """
    try:
        # `max_work` may be any number of steps
        return bool(np.shares_memory(_skeleton(a), _skeleton(b), max_work=OVERLAP_WORK))  # type: ignore[arg-type]
    except np.exceptions.TooHardError:
        return True


def _skeleton(t: Tensor) -> Any:
    """Return an array over the tensor's addresses that is never read: for NumPy's exact overlap test."""
    desc, size = (t.desc, t.dtype.itemsize) if t.dtype.block == 1 else (t.desc.raw, 1)
    strides = tuple(s * size for s in desc.strides)
    return array_at(t.buffer.address + desc.offset * size, desc.shape, f"|V{size}", owner=None, strides=strides)
