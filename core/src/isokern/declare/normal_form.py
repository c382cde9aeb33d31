"""Normal forms: the layouts in which an operator's kernels read its tensors.

Kernels never see axes, transposition flags or broadcasting rules: those have become strides when a plan is made. Every
normal form has rank 1 or more, and dims that step together are merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..layout import TensorDesc
from ..status import InvalidArgument

Descs = list[TensorDesc | None]
NormalForm = Callable[[Descs, list[TensorDesc], Mapping[str, Any]], tuple[Descs, Descs]]


def pointwise(inputs: Descs, outputs: list[TensorDesc], attrs: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return all tensors in the first output's shape, their dims ordered by its strides and merged.

    Inputs are broadcast to that shape.
    """
    shape = outputs[0].shape
    return split(coalesce([*outputs, *(None if d is None else d.broadcast_to(shape) for d in inputs)]), len(outputs))


def as_given(inputs: Descs, outputs: list[TensorDesc], attrs: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the tensors unchanged: the kernels read the signature's own dims."""
    return list(inputs), list(outputs)


def rows(inputs: Descs, outputs: list[TensorDesc], attrs: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return the normal form of `x[*b, d]`: leading dims merged, the last one kept.

    Operands of lower rank stay as they are.
    """
    rank = outputs[0].ndim
    full = [d for d in (*outputs, *inputs) if d is not None and d.ndim == rank]
    merged = iter(coalesce(full, keep=1))
    every = [next(merged) if d is not None and d.ndim == rank else d for d in (*outputs, *inputs)]
    return split(every, len(outputs))


def along_axis(inputs: Descs, outputs: list[TensorDesc], attrs: Mapping[str, Any]) -> tuple[Descs, Descs]:
    """Return rows along `attrs['axis']`: that axis is moved last in every tensor of full rank, then `rows` applies."""
    first = outputs[0]
    axis = attrs["axis"] % first.ndim
    order = [a for a in range(first.ndim) if a != axis] + [axis]
    return rows([None if d is None else d.permute(order) for d in inputs], [d.permute(order) for d in outputs], attrs)


def axis_of(where: str, axis: int, rank: int, what: str = "axis") -> int:
    """Return `axis` counted from the front, or raise InvalidArgument with the range."""
    if not -rank <= axis < rank:
        allowed = f"{-rank}..{rank - 1}" if rank else "rank 1 or more"
        raise InvalidArgument(where, f"{what} {axis} is out of range for rank {rank}", allowed=allowed)
    return axis % rank


def split(descs: Sequence[TensorDesc | None], outputs: int) -> tuple[Descs, Descs]:
    """Return (inputs, outputs) of a list that has the outputs first."""
    return list(descs[outputs:]), list(descs[:outputs])


def coalesce(descs: Sequence[TensorDesc | None], keep: int = 0, *, in_order: bool = False) -> Descs:
    """Return tensors of one shape with their dims merged where all of them step together.

    The dims are first ordered by the strides of the first tensor, unless `in_order`. The last `keep` dims stay as they
    are. Dims of 1 are dropped, but at least one dim remains besides the kept ones.
    """
    given = [d for d in descs if d is not None]
    shape = given[0].shape[: given[0].ndim - keep]
    axes = [i for i, d in enumerate(shape) if d != 1]
    if not in_order:
        axes.sort(key=lambda i: tuple(-abs(d.strides[i]) for d in given))
    merged: list[tuple[int, list[int]]] = []  # (dim, stride of each tensor)
    for i in axes:
        steps = [d.strides[i] for d in given]
        if merged and all(outer == inner * shape[i] for outer, inner in zip(merged[-1][1], steps, strict=True)):
            merged[-1] = (merged[-1][0] * shape[i], steps)
        else:
            merged.append((shape[i], steps))
    if not merged:
        merged = [(1, [1] * len(given))]
    result: Descs = []
    position = 0
    for d in descs:
        if d is None:
            result.append(None)
            continue
        tail = d.ndim - keep
        dims = [dim for dim, _ in merged] + list(d.shape[tail:])
        strides = [steps[position] for _, steps in merged] + list(d.strides[tail:])
        result.append(TensorDesc(d.dtype, dims, strides, d.offset))
        position += 1
    return result
