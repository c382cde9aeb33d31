"""What exported operators are made of: tensors, loop nests, casts, reshapes and slices, as operations of linalg and tensor.

Every function appends to the block of the `ImplicitBuilder` that is open. Every loop nest has one result, since xDSL does not read back a
`linalg.generic` that prints two.
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
from ..ops.generic import loops_of, parse_maps
from .mlir_body import constant, convert, element_type

Operands = Sequence[SSAValue]
Scalars = Callable[..., SSAValue]


def tensor_type(dtype: DType, shape: Sequence[int]) -> TensorType[Attribute]:
    """The MLIR type of a tensor."""
    return TensorType(element_type(dtype), shape)


def shape_of(x: SSAValue) -> tuple[int, ...]:
    """The dims of a tensor."""
    assert isinstance(x.type, TensorType)
    return x.type.get_shape()


def empty(dtype: DType, shape: Sequence[int]) -> SSAValue:
    """A tensor that holds anything."""
    return tensor.EmptyOp((), tensor_type(dtype, shape)).tensor


def fill(value: float, dtype: DType, shape: Sequence[int]) -> SSAValue:
    """A tensor of one value."""
    start = empty(dtype, shape)
    return linalg.FillOp((constant(value, dtype),), (start,)).results[0]


def nest(ins: Operands, maps: Sequence[AffineMap], out: SSAValue, body: Scalars) -> SSAValue:
    """A linalg.generic: the maps of the inputs and of `out`, and a function of the elements. A loop that `out` lacks is reduced.

    A loop that never runs leaves `out` as it is: IREE 3.13 divides by the length of such a one.
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
    """The MLIR type of a tensor's elements."""
    assert isinstance(x.type, TensorType)
    element: Attribute = x.type.get_element_type()
    return element


def letter_map(letters: str, loops: str) -> AffineMap:
    """The map of a tensor that has a letter a dim."""
    return AffineMap(len(loops), 0, tuple(AffineExpr.dimension(loops.index(c)) for c in letters))


def letter_dims(maps: str, ins: Operands, out: SSAValue, body: Scalars) -> SSAValue:
    """A loop nest whose maps are letters, as those of `generic`."""
    given, letters = parse_maps("export", maps, len(ins))
    loops = loops_of((given, letters))
    return nest(ins, [letter_map(m, loops) for m in (*given, letters)], out, body)


def cast(x: SSAValue, source: DType, target: DType) -> SSAValue:
    """Element by element; itself where the dtype is the same."""
    if source is target:
        return x
    shape = shape_of(x)
    same = AffineMap.identity(len(shape))
    return nest([x], [same, same], empty(target, shape), lambda a, _: convert(a, source, target))


# Reshapes: tensor.collapse_shape and tensor.expand_shape have no group of 0 dims, so a dim of 1 that comes or goes alone joins a neighbour


def _group(groups: Sequence[int]) -> ArrayAttr[ArrayAttr[IntegerAttr]]:
    ends = np.cumsum(groups, dtype=int)
    runs = [range(end - n, end) for n, end in zip(groups, ends, strict=True)]
    return ArrayAttr([ArrayAttr([IntegerAttr(int(i), i64) for i in run]) for run in runs])


def join(groups: Sequence[int]) -> list[int]:
    """Dims in the finer shape of each dim that stays, where 0 stands for a dim of 1 that only the coarser shape has."""
    return [n for n in groups if n]


def with_ones(groups: Sequence[int]) -> list[int]:
    """Dims in the coarser shape of each dim that stays: itself and the 1s behind it, the first one those before it too."""
    stays = [i for i, n in enumerate(groups) if n]
    starts = [0, *stays[1:]] if stays else []
    return [end - start for start, end in zip(starts, [*stays[1:], len(groups)] if stays else [], strict=True)]


def collapse(x: SSAValue, groups: Sequence[int], shape: Sequence[int]) -> SSAValue:
    """x with runs of dims made one."""
    if all(n == 1 for n in groups) and len(groups) == len(shape_of(x)):
        return x
    made = TensorType(element_of(x), shape)
    how = {"reassociation": _group(groups)}
    return SSAValue.get(tensor.CollapseShapeOp.build(operands=[x], result_types=[made], properties=how))


def expand(x: SSAValue, groups: Sequence[int], shape: Sequence[int]) -> SSAValue:
    """x with dims made several."""
    if all(n == 1 for n in groups) and len(groups) == len(shape):
        return x
    made = TensorType(element_of(x), shape)
    if not groups:  # xDSL takes no reassociation of rank 0 to another
        maps = [AffineMap(len(shape), 0, ()), AffineMap.identity(len(shape))]
        return nest([x], maps, tensor.EmptyOp((), made).tensor, lambda a, _: a)
    return tensor.ExpandShapeOp(x, (), _group(groups), shape, made).result


def extract_slice(x: SSAValue, starts: Sequence[int], sizes: Sequence[int], steps: Sequence[int]) -> SSAValue:
    """A part of x; all of it is x itself. Nothing of it may begin behind its end, where tensor.extract_slice may not."""
    if tuple(sizes) == shape_of(x):
        return x
    if 0 in sizes:
        return tensor.EmptyOp((), TensorType(element_of(x), sizes)).tensor
    return tensor.ExtractSliceOp.from_static_parameters(x, starts, sizes, steps).result
