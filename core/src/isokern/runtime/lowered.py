"""Kernels of decomposed calls, for operators that the device has no kernel for; and the policy for that.

It is used like other kernels. Its workspace is the arena of a memory plan, which has the scratch memory of the inner
calls at its beginning, and the values between them. It is of the default kind: that of a part is a wish.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from .. import settings
from ..backend import BASE_ALIGNMENT, Device, Kernel, Stream, Workspace
from ..backend.dispatch import choose
from ..backend.kernels import NativeStep, run_all
from ..declare.operator import Operator, Resolved
from ..declare.samples import describe, first_sample
from ..dtypes import DType
from ..graph.ir import Graph, Op, Value
from ..passes import choose_layouts, common_subexpressions, dead_code, fold_casts, run
from ..rewriting.conversion import convert, find_illegal, single
from ..rewriting.rewriter import State
from ..rewriting.target import Target
from ..status import InvalidArgument, NotImplementedOnDevice, quote
from .memory_plan import MemoryPlan, plan_memory

SETTING = "ISOKERN_ON_MISSING"
POLICIES = ("lower", "error")
# Loaded with this file and not when they run, which the first call of an operator would notice
PASSES = [made.__name__.rpartition(".")[2] for made in (common_subexpressions, fold_casts, choose_layouts, dead_code)]


def is_lowering(where: str, on_missing: str | None = None) -> bool:
    """Return whether an operator that a device has no kernel for is decomposed: `on_missing`, else the setting.

    InvalidArgument, in the name of `where`, for anything but the policies.
    """
    if on_missing is None:
        where, given, policy = "environment", f"{SETTING}=", settings.get(SETTING) or POLICIES[0]
    else:
        given, policy = "on_missing=", on_missing
    if not isinstance(policy, str) or policy not in POLICIES:
        raise InvalidArgument(where, f"{given}{quote(policy)}", allowed=" or ".join(POLICIES))
    return policy == "lower"


def find_fallback(
    operator: Operator, on_missing: str | None = None, variant: str | None = None
) -> type[LoweredKernel] | None:
    """Return the factory of kernels for calls that no variant takes; None if the policy refuses them.

    None also for an operator without a decomposition, and if one variant was asked for by name.
    """
    allowed = is_lowering(operator.name, on_missing)
    return LoweredKernel if allowed and operator.decompose is not None and variant is None else None


def decompose(device: Device, resolved: Resolved) -> Graph:
    """Return the parts of a call that the device has kernels for; inputs are named x0, x1, …

    NotImplementedOnDevice lists the parts that it has no kernel for. Nothing is compiled or built.
    """
    graph = single(resolved.operator, resolved.inputs, resolved.outputs, resolved.attrs)
    # A variant may have taken the operator and then failed to build
    target = Target.of_device(device).illegal(resolved.operator.name)
    parts = run(replace(convert(State(graph, {}), target, partial=True), target=target), PASSES).graph
    lacking = dict.fromkeys(f"{op.kind}: {why}" for op, why in find_illegal(parts, target))
    if lacking:
        raise NotImplementedOnDevice(resolved.operator.name, "; ".join(lacking))
    return parts


def check_kernels(graph: Graph, device: Device, target: Target) -> None:
    """Raise NotImplementedOnDevice if the device has no kernel for an operator of a graph."""
    lacking = dict.fromkeys(f"{op.kind} of {op.name or 'no layer'}: {why}" for op, why in find_illegal(graph, target))
    if lacking:
        given = f"{device.name} has no kernel for {len(lacking)} operators: {'; '.join(lacking)}"
        hint = "on_missing='lower' decomposes them into operators that the device has"
        raise NotImplementedOnDevice(graph.name, given, hint=hint)


def can_lower(device: Device, operator: Operator, types: Mapping[str, DType]) -> bool:
    """Return whether the policy and the device's kernels let an operator be decomposed.

    The device is asked about the parts of the first sample with these dtypes, as in `Device.supports`.
    """
    if find_fallback(operator) is None:
        return False
    sample = first_sample(operator, types)
    inputs, outputs = describe(operator, sample, types)
    try:
        decompose(device, operator.resolve(inputs, outputs, sample.attrs))
    except NotImplementedOnDevice:
        return False
    return True


class LoweredKernel(Kernel):
    """The kernels of an operator's parts, in order.

    NotImplementedOnDevice lists the parts that the device has no kernel for.
    """

    def __init__(self, device: Device, resolved: Resolved) -> None:
        self.graph, self.operator = decompose(device, resolved), resolved.operator
        early = not resolved.operator.aliases and not resolved.operator.inout
        made = plan_memory(self.graph, early=early)
        calls = [op for op in made.calls if any(v.spec.numel for v in op.outputs)]
        built: dict[tuple[Op, Resolved], Kernel] = {}
        self.kernels = _build(device, made, calls, built)
        spaces = [kernel.workspace for kernel in self.kernels]
        for space, op in zip(spaces, calls, strict=True):
            if space.size and BASE_ALIGNMENT % space.alignment:
                given = (
                    f"{op!r} needs a workspace aligned to {space.alignment}, and has one aligned to {BASE_ALIGNMENT}"
                )
                raise NotImplementedOnDevice(
                    resolved.operator.name, given, hint="run it as a graph: isokern.runtime.compile"
                )
        sizes = {op: space.size for op, space in zip(calls, spaces, strict=True)}
        if any(sizes.values()):
            made = plan_memory(self.graph, spaces=sizes, early=early)
            self.kernels = _build(device, made, calls, built)
            for kernel, op in zip(self.kernels, calls, strict=True):
                if kernel.workspace.size > sizes[op]:  # the values have moved, which may have changed what it needs
                    given = (
                        f"{op!r} needs {kernel.workspace.size} bytes of workspace in its place, and {sizes[op]} before"
                    )
                    raise NotImplementedOnDevice(
                        resolved.operator.name, given, hint="run it as a graph: isokern.runtime.compile"
                    )
        self.made_of = tuple(op.kind for op in made.calls)
        self.workspace = Workspace(made.arena, BASE_ALIGNMENT)
        outside = [*self.graph.outputs, *_match_inputs(resolved, self.graph)]
        self._handles = [[_place(made, v, outside) for v in _operands(op)] for op in calls]

    def launch(self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream) -> None:
        """Launch all kernels in order."""
        with raise_as(self.operator):
            run_all(
                [
                    partial(k.launch, given, workspace, workspace_bytes, stream)
                    for k, given in self._calls(handles, workspace)
                ]
            )

    def bind(
        self, handles: Sequence[Any], workspace: Any, workspace_bytes: int, stream: Stream, owned: Any
    ) -> Callable[[], None]:
        """Return a function that launches all kernels in order, each as cheaply as the backend can."""
        bound = [
            k.bind(given, workspace, workspace_bytes, stream, owned) for k, given in self._calls(handles, workspace)
        ]
        return partial(_run_named, self.operator, bound)

    def native_steps(self) -> list[NativeStep] | None:
        """Return the calls of C of all kernels in order."""
        steps: list[NativeStep] = []
        for kernel, places in zip(self.kernels, self._handles, strict=True):
            inner = kernel.native_steps()
            if inner is None:
                return None
            outer = [-2 if p is None else p for p in places]
            for call, plan, at, fail in inner:
                own = partial(_fail_named, self.operator, fail)
                steps.append((call, plan, tuple(p if p < 0 else outer[p] for p in at), own))
        return steps

    def _calls(self, handles: Sequence[Any], workspace: Any) -> Iterator[tuple[Kernel, list[Any]]]:
        """Yield each kernel with its handles."""
        for kernel, places in zip(self.kernels, self._handles, strict=True):
            yield kernel, [None if p is None else workspace if p < 0 else handles[p] for p in places]


@contextmanager
def raise_as(operator: Operator) -> Iterator[None]:
    """Raise the error of a bad value that a kernel of a part found as the operator's own."""
    try:
        yield
    except InvalidArgument as error:
        if error.found is None or not operator.device_error:
            raise
        raise operator.value_error(*error.found) from None


def _run_named(operator: Operator, calls: Sequence[Callable[[], None]]) -> None:
    with raise_as(operator):
        run_all(calls)


def _fail_named(operator: Operator, fail: Callable[[int], None], status: int) -> None:
    with raise_as(operator):
        fail(status)


def _build(
    device: Device, made: MemoryPlan, calls: Sequence[Op], built: dict[tuple[Op, Resolved], Kernel]
) -> list[Kernel]:
    """Return a kernel for each call: the one that was built for the same tensors, or a new one, which `built` gets."""
    kernels = []
    for op in calls:
        inputs = [None if v is None else made.desc(v) for v in op.declared]
        resolved = op.operator.resolve(inputs, [made.desc(v) for v in op.outputs], op.attrs)
        if (op, resolved) not in built:
            try:
                built[op, resolved] = choose(device, resolved)[1]
            except NotImplementedOnDevice as refused:
                raise NotImplementedOnDevice(op.name, f"{op.kind}: {refused.hint}") from None
        kernels.append(built[op, resolved])
    return kernels


def _operands(op: Op) -> list[Value | None]:
    """Return a call's outputs and all its inputs, None for absent ones, as its plan has them."""
    lacking = len(op.operator.operand_names(len(op.declared))) - len(op.declared)
    return [*op.outputs, *op.declared, *[None] * lacking]


def _match_inputs(resolved: Resolved, lowered: Graph) -> list[Value | None]:
    """Return the lowered graph's inputs in the order of the operator's inputs, None for absent ones."""
    names = {v.name: v for v in lowered.inputs}
    return [None if d is None else names[f"x{i}"] for i, d in enumerate(resolved.inputs)]


def _place(made: MemoryPlan, value: Value | None, outside: Sequence[Value | None]) -> int | None:
    """Return the index of the call's handle that a value is in, -1 for the workspace.

    It is 0 for a value without elements, which may be anywhere.
    """
    if value is None:
        return None
    root = made.root[value]
    if root in made.offset:
        return -1
    if root in outside:
        return outside.index(root)
    if value.spec.numel:
        given = f"{value!r} is a value between its parts that is not in a workspace"
        raise NotImplementedOnDevice(value.name, given, hint="run it as a graph: isokern.runtime.compile")
    return 0
