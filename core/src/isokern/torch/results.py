"""Results of a torch.fx graph: the memory that each has its elements in, and the views that lead to them.

Eager PyTorch gives results that share memory with one another or with an argument, and whoever writes to one sees it
in the others. A result here is found as PyTorch finds it: the operators of the graph that make views are applied again,
to an argument, or to memory with the layout that PyTorch gives the tensor that they are views of.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from ..graph.ir import COMPUTED, Value
from ..importing.emission import UnsupportedModel
from ..importing.operand import Array, dtype_of, shape_of
from .elements import THEIRS
from .importer import ModuleImporter, attribute_of, value_of
from .judging import sizes_of
from .library import library as torch
from .node import is_operand

UNSAFE_VIEW = "aten::_unsafe_view"  # whose schema does not say that it shares memory


@dataclass(frozen=True)
class ViewStep:
    """An operator that makes a view of a tensor, or picks one of several, with its further arguments."""

    target: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any]

    def __call__(self, x: Any) -> Any:
        """Return the view of a tensor."""
        return self.target(x, *self.args, **self.named)


Steps: TypeAlias = "tuple[ViewStep, ...]"


def apply_steps(x: Any, steps: Steps) -> Any:
    """Return the view that steps lead to."""
    for step in steps:
        x = step(x)
    return x


@dataclass(frozen=True)
class ResultMemory:
    """Memory that each run allocates for results: the layout that it has in PyTorch, and what is written to it.

    That is the program's next output, or a known array, and it is written to the view that `steps` lead to: to all of
    the memory, unless a part of it is all that is read.
    """

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    kind: Any
    device: Any  # where PyTorch has it
    known: Array | None = None
    steps: Steps = ()

    def allocate(self, device: Any) -> Any:
        """Return a tensor of this layout, which holds nothing yet."""
        return torch.empty_strided(self.shape, self.strides, dtype=self.kind, device=device)


@dataclass(frozen=True)
class ModuleResult:
    """One result: a number or None, or a view of an argument, a constant of the graph, or memory that a run makes."""

    value: Any = None
    argument: int = -1
    constant: Any = None
    memory: int = -1
    steps: Steps = ()


def source_of(node: Any) -> Any:
    """Return the node whose memory a node's result is a part of; None for memory of its own.

    Its schema must say that an operator makes views or writes in place, and PyTorch's own tensors must share their
    memory: some operators make a view or a copy, as strides allow.
    """
    source = node.args[0] if node.op == "call_function" and node.args else None
    if not isinstance(source, torch.fx.Node):
        return None
    if node.target is operator.getitem:
        return source if source_of(source) is not None else None
    target = node.target
    if not isinstance(target, torch._ops.OpOverload):
        return None
    if not target.is_view and not target._schema.is_mutable and target._schema.name != UNSAFE_VIEW:
        return None
    mine, theirs = storage_of(value_of(node)), storage_of(value_of(source))
    return source if mine is not None and mine == theirs else None


def trace_back(x: Any, ends: Collection[Any] = ()) -> tuple[Any, list[Any]]:
    """Return the node whose memory a result is in, or one of `ends` before it, and the views from there to the result.

    A node that writes in place gives the tensor that it wrote to, and is no view of its own.
    """
    views: list[Any] = []
    while isinstance(x, torch.fx.Node) and x not in ends and (source := source_of(x)) is not None:
        if x.target is operator.getitem or not x.target._schema.is_mutable:
            views.insert(0, x)
        x = source
    return x, views


def storage_of(val: Any) -> int | None:
    """Return what names the memory of a dense tensor of PyTorch, or of the first of several; None for anything else."""
    first = val[0] if isinstance(val, (tuple, list)) and val else val
    dense = isinstance(first, torch.Tensor) and first.layout == torch.strided
    return int(first.untyped_storage()._cdata) if dense else None


def plan_results(
    importer: ModuleImporter, owner: Any, given: Sequence[Any]
) -> tuple[list[ResultMemory], list[ModuleResult]]:
    """Return the memory that each run allocates, and what each of the nodes and numbers is that a graph returns.

    The values that are written to that memory become outputs of the graph under construction.
    """
    inputs = [n for n in owner.graph.nodes if n.op == "placeholder"]
    traced = [_trace(importer, x) for x in given]
    readers = Counter(root for root, _ in traced)
    memories: dict[Any, ResultMemory] = {}
    results = []
    for x, (root, steps) in zip(given, traced, strict=True):
        if not isinstance(x, torch.fx.Node):
            results.append(ModuleResult(x))
        elif root.op == "placeholder":
            results.append(ModuleResult(argument=inputs.index(root), steps=tuple(map(_copy_if_needed, steps))))
        elif root.op == "get_attr":
            results.append(ModuleResult(constant=attribute_of(owner, root.target), steps=steps))
        elif not is_operand(importer.found[root]):
            results.append(ModuleResult(importer.found[root]))
        else:
            if root not in memories:
                alone = readers[root] == 1
                memories[root] = _plan_memory(importer, root, *((x, steps) if alone else (root, ())))
            results.append(ModuleResult(memory=list(memories).index(root), steps=steps))
    return list(memories.values()), results


def _trace(importer: ModuleImporter, x: Any) -> tuple[Any, Steps]:
    """Return the node whose memory a result is in, and the steps from there to it."""
    root, views = trace_back(x)
    return root, tuple(ViewStep(v.target, importer.resolve(v.args[1:]), importer.resolve(v.kwargs)) for v in views)


def _copy_if_needed(step: ViewStep) -> ViewStep:
    """Return a step that also takes an argument whose strides do not allow the view that was captured."""
    if step.target is torch.ops.aten.view.default:
        return ViewStep(torch.ops.aten.reshape.default, step.args, step.named)
    return step


def _plan_memory(importer: ModuleImporter, root: Any, written: Any, steps: Steps) -> ResultMemory:
    """Return the memory of a node's tensor, of which `written` is all that is read, and make that an output."""
    val, whole, part = value_of(root), importer.found[root], importer.found[written]
    shape, kind = shape_of(whole), THEIRS[dtype_of(whole)]
    strides = strides_of(val, shape)
    view = apply_steps(torch.empty_strided(shape, strides, dtype=kind, device="meta"), steps)
    if overlaps(view.shape, view.stride()):
        part, steps = whole, ()
    memory = ResultMemory(shape, strides, kind, device_of(root), steps=steps)
    if not isinstance(part, Value):
        return replace(memory, known=part)
    importer.builder.output(part if part.role == COMPUTED else importer.builder.emit("copy", [part])[0])
    return memory


def overlaps(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two elements may have one place, so that a tensor cannot be written element by element."""
    reach = 0
    for stride, dim in sorted((s, d) for d, s in zip(shape, strides, strict=True) if d > 1):
        if stride <= reach:
            return True
        reach += stride * (dim - 1)
    return False


def device_of(node: Any) -> Any:
    """Return where PyTorch has the result of a node."""
    return getattr(value_of(node), "device", None)


def strides_of(val: Any, shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides that PyTorch gives a tensor of this shape.

    Where they depend on open dims, the axes are dense and in the order that they have for the dims of the capture.
    """
    axes: Sequence[int] = range(len(shape))
    if isinstance(val, torch.Tensor) and len(shape) > 1:
        told = tuple(val.stride())
        if all(type(s) is int for s in (*val.shape, *told)) and not overlaps(shape, told):
            return told
        axes = _sort_axes(val)
    strides, count = [1] * len(shape), 1
    for axis in reversed(axes):
        strides[axis] = count
        count *= max(1, shape[axis])
    return tuple(strides)


def _sort_axes(val: Any) -> Sequence[int]:
    """Return the axes from the longest stride in PyTorch's memory to the shortest; those of one element stay."""
    rank = val.dim()
    try:
        shape, strides = sizes_of(val.shape), sizes_of(val.stride())
    except UnsupportedModel:
        return range(rank)
    moved = [n for n in range(rank) if shape[n] > 1]
    order = sorted(moved, key=lambda n: (-strides[n], n))
    if 0 in [strides[n] for n in moved]:
        return range(rank)
    ordered = iter(order)
    return [next(ordered) if n in moved else n for n in range(rank)]
