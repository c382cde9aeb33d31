"""The parts of exported operators, as operations of linalg and tensor.

They are tensors, loop nests, casts, reshapes and slices. Every function appends to the block of the `ImplicitBuilder`
that is open. Every loop nest has one result, since xDSL does not read back a `linalg.generic` that prints two.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import tensor
from xdsl.dialects.builtin import AffineMapAttr, ArrayAttr, IntegerAttr, TensorType, i64
from xdsl.dialects.linalg import ops as linalg
from xdsl.dialects.linalg.attrs import IteratorTypeAttr
from xdsl.ir import Attribute, Block, Region, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from ..dtypes import DType
from ..ops.loop_maps import loops_of, parse_maps
from .mlir_body import constant, convert, element_type

Operands = Sequence[SSAValue]
Scalars = Callable[..., SSAValue]


def tensor_type(dtype: DType, shape: Sequence[int]) -> TensorType[Attribute]:
    """Return the MLIR type of a tensor."""
    return TensorType(element_type(dtype), shape)


def shape_of(x: SSAValue) -> tuple[int, ...]:
    """Return the dims of a tensor."""
    assert isinstance(x.type, TensorType)
    return x.type.get_shape()


def empty(dtype: DType, shape: Sequence[int]) -> SSAValue:
    """Return a tensor of undefined content."""
    return tensor.EmptyOp((), tensor_type(dtype, shape)).tensor


def fill(value: float, dtype: DType, shape: Sequence[int]) -> SSAValue:
    """Return a tensor of one value."""
    start = empty(dtype, shape)
    return linalg.FillOp((constant(value, dtype),), (start,)).results[0]


def nest(ins: Operands, maps: Sequence[AffineMap], out: SSAValue, body: Scalars) -> SSAValue:
    """Return a linalg.generic, from the maps of the inputs and of `out` and a function of the elements.

    A loop that `out` lacks is reduced. A loop that never runs leaves `out` as it is, without a linalg.generic: IREE
    3.13 divides by the length of such a loop.
    """
    if any(0 in shape_of(x) for x in (*ins, out)):
        return out
    kept = {e.position for e in maps[-1].results if isinstance(e, AffineDimExpr)}
    kinds = [
        IteratorTypeAttr.parallel() if i in kept else IteratorTypeAttr.reduction() for i in range(maps[-1].num_dims)
    ]
    block = Block(arg_types=[element_of(x) for x in (*ins, out)])
    with ImplicitBuilder(block):
        linalg.YieldOp(body(*block.args))
    made = linalg.GenericOp(ins, (out,), Region(block), [AffineMapAttr(m) for m in maps], ArrayAttr(kinds), (out.type,))
    return made.results[0]


def element_of(x: SSAValue) -> Attribute:
    """Return the MLIR type of a tensor's elements."""
    assert isinstance(x.type, TensorType)
    element: Attribute = x.type.get_element_type()
    return element


def letter_map(letters: str, loops: str) -> AffineMap:
    """Return the map of a tensor that has one letter for each dim."""
    return AffineMap(len(loops), 0, tuple(AffineExpr.dimension(loops.index(c)) for c in letters))


def letter_dims(maps: str, ins: Operands, out: SSAValue, body: Scalars) -> SSAValue:
    """Return a loop nest whose maps are letters, as those of `generic`."""
    given, letters = parse_maps("export", maps, len(ins))
    loops = loops_of((given, letters))
    return nest(ins, [letter_map(m, loops) for m in (*given, letters)], out, body)


def cast(x: SSAValue, source: DType, target: DType) -> SSAValue:
    """Convert element by element; x itself if the dtype is the same."""
    if source is target:
        return x
    shape = shape_of(x)
    same = AffineMap.identity(len(shape))
    return nest([x], [same, same], empty(target, shape), lambda a, _: convert(a, source, target))


# Reshapes: tensor.collapse_shape and tensor.expand_shape have no group of 0 dims, so a dim of 1 that is added or
# removed alone joins an adjacent one


def _group(groups: Sequence[int]) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    ends = np.cumsum(groups, dtype=int)
    runs = [range(end - n, end) for n, end in zip(groups, ends, strict=True)]
    return ArrayAttr([ArrayAttr([IntegerAttr(int(i), i64) for i in run]) for run in runs])


def join(groups: Sequence[int]) -> list[int]:
    """Return how many dims of the finer shape each dim that stays has.

    In `groups`, 0 stands for a dim of 1 that only the coarser shape has.
    """
    return [n for n in groups if n]


def with_ones(groups: Sequence[int]) -> list[int]:
    """Return how many dims of the coarser shape each dim that stays has: itself and the 1s after it.

    The first one has the 1s before it too.
    """
    stays = [i for i, n in enumerate(groups) if n]
    starts = [0, *stays[1:]] if stays else []
    return [end - start for start, end in zip(starts, [*stays[1:], len(groups)] if stays else [], strict=True)]


def collapse(x: SSAValue, groups: Sequence[int], shape: Sequence[int]) -> SSAValue:
    """Return x with each group of dims merged into one."""
    if all(n == 1 for n in groups) and len(groups) == len(shape_of(x)):
        return x
    made = TensorType(element_of(x), shape)
    how = {"reassociation": _group(groups)}
    return SSAValue.get(tensor.CollapseShapeOp.build(operands=[x], result_types=[made], properties=how))


def expand(x: SSAValue, groups: Sequence[int], shape: Sequence[int]) -> SSAValue:
    """Return x with each dim split into a group of dims."""
    if all(n == 1 for n in groups) and len(groups) == len(shape):
        return x
    made = TensorType(element_of(x), shape)
    if not groups:  # xDSL accepts no reassociation from rank 0 to another rank
        maps = [AffineMap(len(shape), 0, ()), AffineMap.identity(len(shape))]
        return nest([x], maps, tensor.EmptyOp((), made).tensor, lambda a, _: a)
    return tensor.ExpandShapeOp(x, (), _group(groups), shape, made).result


def extract_slice(x: SSAValue, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> SSAValue:
    """Return a part of x, or x itself if the part is all of it.

    An empty part is made without tensor.extract_slice, whose offsets may not be beyond the end of x.
    """
    if tuple(sizes) == shape_of(x):
        return x
    if 0 in sizes:
        return tensor.EmptyOp((), TensorType(element_of(x), sizes)).tensor
    return tensor.ExtractSliceOp.from_static_parameters(x, starts, sizes, steps).result
