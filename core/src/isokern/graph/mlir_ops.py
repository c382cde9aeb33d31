"""Each primitive as operations of linalg and tensor.

`EMITTERS` maps a primitive to a function of the operator and its operands that appends to the open block. Sums are
computed in the same type as in Isokern, and rounded at the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects import arith, tensor
from xdsl.dialects.builtin import DenseArrayBase, DenseIntElementsAttr, IndexType, TensorType, i64
from xdsl.dialects.linalg import ops as linalg
from xdsl.dialects.linalg.abstract_ops import PoolingOperation
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.irdl import irdl_op_definition

from ..declare.conversion import convert as converted
from ..declare.decomposition import LETTERS
from ..dtypes import F32, I64, U64, DType
from ..expr.tree import parse
from ..layout import TensorDesc
from ..ops import find
from ..ops.conv2d import pair
from ..ops.generic import find_widest
from ..ops.rearrange import slices
from .ir import Op
from .mlir_body import combine, compare, constant, convert, element_type, evaluate, select
from .mlir_loops import (
    emit_generalized_delta_rule,
    emit_random_bits,
    emit_scan,
    emit_scatter,
    emit_sort,
    emit_topk,
    input_spec,
)
from .mlir_recurrences import emit_recurrence
from .mlir_solvers import emit_bit_cast, emit_lu_factor, emit_solve_triangular
from .mlir_tensors import (
    Operands,
    Scalars,
    cast,
    collapse,
    empty,
    expand,
    extract_slice,
    fill,
    join,
    letter_dims,
    letter_map,
    nest,
    shape_of,
    tensor_type,
    with_ones,
)

Emit = Callable[[Op, Operands], SSAValue | Sequence[SSAValue]]  # a value for each output


@irdl_op_definition
class PoolingNchwSumOp(PoolingOperation):
    """The operation linalg.pooling_nchw_sum, which xDSL does not have."""

    name = "linalg.pooling_nchw_sum"

    @classmethod
    def get_hidden_region(cls, inputs: Sequence[SSAValue], outputs: Sequence[SSAValue]) -> Region:
        """Return the region that adds the input element (not the window's) to the sum so far."""

        @Builder.implicit_region(cls.body_arg_types((*inputs, *outputs)))
        def region(args: tuple[SSAValue, ...]) -> None:
            linalg.YieldOp(arith.AddfOp(args[0], args[2]))

        return region

    def get_default_indexing_maps(self) -> Sequence[AffineMap]:
        """Return the maps of the maximum."""
        # The argument is of another class, but the method reads none of its fields
        return linalg.PoolingNchwMaxOp.get_default_indexing_maps(self)  # type: ignore[arg-type]


def reduce(
    op: Op, init: SSAValue, make: Callable[[SSAValue, DType], SSAValue], compute: DType | None = None
) -> SSAValue:
    """Apply `make` to init, converted to the type of the sums, and convert the result to the output's dtype.

    The type of the sums is `compute`, or else the compute type of the operator's input 1. A sum over nothing is init.
    """
    if any(0 in v.spec.shape for v in op.given):
        return init
    out, compute = op.outputs[0].spec.dtype, compute or input_spec(op, 1).dtype.compute
    return cast(make(cast(init, out, compute), compute), compute, out)


def product(op: Op, at: tuple[int, int] = (1, 2)) -> Scalars:
    """Return the body of a sum of products of two inputs.

    Products and sum are in the compute type of the first one.
    """
    left, right = (input_spec(op, i).dtype for i in at)
    compute = left.compute

    def body(a: SSAValue, b: SSAValue, total: SSAValue) -> SSAValue:
        term = combine("*", convert(a, left, compute), convert(b, right, compute), compute)
        return combine("+", total, term, compute)

    return body


def _collapse(op: Op, args: Operands) -> SSAValue:
    groups, shape = op.attrs["groups"], op.outputs[0].spec.shape
    stays = [d for n, d in zip(groups, shape, strict=True) if n]
    return expand(collapse(args[0], join(groups), stays), with_ones(groups), shape)


def _expand(op: Op, args: Operands) -> SSAValue:
    groups, shape = op.attrs["groups"], op.outputs[0].spec.shape
    stays = [d for n, d in zip(groups, shape_of(args[0]), strict=True) if n]
    return expand(collapse(args[0], with_ones(groups), stays), join(groups), shape)


# Loop nests


def _generic(op: Op, args: Operands) -> SSAValue:
    start, ins = (None, args) if op.inputs[0] is None else (args[0], args[1:])
    maps, word, tree = op.attrs["maps"], op.attrs["combine"], parse(op.attrs["body"])
    y, sources = op.outputs[0].spec, [v.spec for v in op.inputs[1:] if v is not None]
    compute = find_widest(sources, y).compute
    dtypes = [*(s.dtype for s in sources), y.dtype]

    def term(given: Operands) -> SSAValue:
        values = {f"x{i}": convert(v, dtypes[i], compute) for i, v in enumerate(given)}
        return evaluate(tree, values, compute)

    if start is None:
        return letter_dims(maps, ins, empty(y.dtype, y.shape), lambda *a: convert(term(a[:-1]), compute, y.dtype))
    if word == "none":  # the body reads what the destination has
        return letter_dims(maps, ins, start, lambda *a: convert(term(a), compute, y.dtype))
    sign = {"sum": "+", "product": "*"}.get(word, word)

    def make(init: SSAValue, _: DType) -> SSAValue:
        return letter_dims(maps, ins, init, lambda *a: combine(sign, a[-1], term(a[:-1]), compute))

    return reduce(op, start, make, compute)


def _batch_matmul(op: Op, args: Operands) -> SSAValue:
    return reduce(op, args[0], lambda init, _: letter_dims("bmk,bkn->bmn", args[1:], init, product(op)))


def _matmul_transposed(op: Op, args: Operands) -> SSAValue:
    y, lead = op.outputs[0].spec, LETTERS[: op.outputs[0].spec.ndim - 1]
    start = fill(0, F32, y.shape)
    return cast(letter_dims(f"{lead}z,yz->{lead}y", args, start, product(op, (0, 1))), F32, y.dtype)


def _both(op: Op, name: str) -> DenseIntElementsAttr:
    return DenseIntElementsAttr.from_list(TensorType(i64, [2]), pair(op.kind, name, op.attrs[name]))


def _measure_reach(op: Op, x: SSAValue, kernel: Sequence[int], out: Sequence[int]) -> SSAValue:
    """Return x cut to the part that windows reach.

    linalg allows x to be longer, by what strides leave over at the end, but IREE 3.13 assumes that all of it is read.
    """
    steps, spread = (pair(op.kind, name, op.attrs[name]) for name in ("stride", "dilation"))
    reach = [(n - 1) * s + (k - 1) * d + 1 for n, s, k, d in zip(out[2:], steps, kernel, spread, strict=True)]
    shape = shape_of(x)
    sizes = [*shape[:2], *reach]
    return x if 0 in out or tuple(sizes) == shape else extract_slice(x, [0] * 4, sizes, [1] * 4)


def _conv(op: Op, args: Operands) -> SSAValue:
    init, x, w = args
    args = (init, _measure_reach(op, x, shape_of(w)[2:], shape_of(init)), w)
    if op.attrs["groups"] > 1:
        return reduce(op, args[0], lambda init, _: _grouped_conv(op, args, init))

    def make(init: SSAValue, compute: DType) -> SSAValue:
        given = [cast(args[i], input_spec(op, i).dtype, compute) for i in (1, 2)]
        return linalg.Conv2DNchwFchwOp(
            given, (init,), (init.type,), strides=_both(op, "stride"), dilations=_both(op, "dilation")
        ).results[0]

    return reduce(op, args[0], make)


def _grouped_conv(op: Op, args: Operands, init: SSAValue) -> SSAValue:
    """Emit a loop nest over n, group, filter of the group, h, w, channel of the group, kh, kw."""
    _, x, w = args
    groups = op.attrs["groups"]
    (n, f, oh, ow), (_, _, h, v), (_, c, kh, kw) = (shape_of(a) for a in (init, x, w))
    own = f // groups
    xs = expand(x, (1, 2, 1, 1), (n, groups, c, h, v))
    ws = expand(w, (2, 1, 1, 1), (groups, own, c, kh, kw))
    out = expand(init, (1, 2, 1, 1), (n, groups, own, oh, ow))
    d = [AffineExpr.dimension(i) for i in range(8)]
    (sh, sw), (dh, dw) = (pair(op.kind, name, op.attrs[name]) for name in ("stride", "dilation"))
    maps = [
        AffineMap(8, 0, (d[0], d[1], d[5], d[3] * sh + d[6] * dh, d[4] * sw + d[7] * dw)),
        AffineMap(8, 0, (d[1], d[2], d[5], d[6], d[7])),
        AffineMap(8, 0, tuple(d[:5])),
    ]
    return collapse(nest([xs, ws], maps, out, product(op)), (1, 2, 1, 1), (n, f, oh, ow))


def _pooling(kind: type[PoolingOperation]) -> Emit:
    """Return the emitter of a pooling.

    A maximum is computed in the output's type, which is the input's or a wider one, so it rounds nothing.
    """

    def emit(op: Op, args: Operands) -> SSAValue:
        def make(init: SSAValue, compute: DType) -> SSAValue:
            kernel = pair(op.kind, "kernel", op.attrs["kernel"])
            x = cast(_measure_reach(op, args[1], kernel, shape_of(init)), input_spec(op, 1).dtype, compute)
            window = empty(compute, kernel)
            return kind(
                (x, window), (init,), (init.type,), strides=_both(op, "stride"), dilations=_both(op, "dilation")
            ).results[0]

        return reduce(op, args[0], make, op.outputs[0].spec.dtype if kind is linalg.PoolingNchwMaxOp else None)

    return emit


def _iota(op: Op, args: Operands) -> SSAValue:
    y, attrs = op.outputs[0].spec, op.attrs

    def body(_: SSAValue) -> SSAValue:
        at = arith.IndexCastOp(linalg.IndexOp(attrs["axis"] % y.ndim), i64).result
        grown = combine("*", at, constant(attrs["step"], I64), I64)
        return convert(combine("+", grown, constant(attrs["start"], I64), I64), I64, y.dtype)

    return nest([], [AffineMap.identity(y.ndim)], empty(y.dtype, y.shape), body)


def _argmax(op: Op, args: Operands) -> SSAValue:
    """Emit two loop nests: the first finds the largest element, or NaN if there is one.

    The second finds the least index of an element that equals it (or is NaN).
    """
    (x,), spec = args, input_spec(op, 0)
    dtype, axis = spec.dtype, op.attrs["axis"] % spec.ndim
    loops = LETTERS[: spec.ndim]
    rest, shape = loops.replace(loops[axis], ""), [d for i, d in enumerate(spec.shape) if i != axis]
    every, kept = letter_map(loops, loops), letter_map(rest, loops)
    assert dtype.numpy is not None
    least = -math.inf if dtype.kind == "f" else int(np.iinfo(dtype.numpy).min)
    wide = dtype.compute

    def larger(a: SSAValue, most: SSAValue) -> SSAValue:
        found = combine("maximum", convert(a, dtype, wide), convert(most, dtype, wide), wide)
        return convert(found, wide, dtype)

    top = nest([x], [every, kept], fill(least, dtype, shape), larger)

    def first(a: SSAValue, most: SSAValue, before: SSAValue) -> SSAValue:
        at = arith.IndexCastOp(linalg.IndexOp(axis), i64).result
        found = compare("==", a, most, dtype)
        if dtype.kind == "f":
            found = arith.OrIOp(found, compare("!=", a, a, dtype)).result
        return select(found, combine("minimum", at, before, I64), before)

    index = nest([x, top], [every, kept, kept], fill(spec.shape[axis], I64, shape), first)
    if not op.attrs["keepdims"]:
        return index
    return expand(index, with_ones([int(i != axis) for i in range(spec.ndim)]), op.outputs[0].spec.shape)


# Movement


def _gather(op: Op, args: Operands) -> SSAValue:
    """Emit a gather; an index out of range gives zeros, as on a device, which also reports it."""
    (x, indices), y = args, op.outputs[0].spec
    spec, picked = input_spec(op, 0), input_spec(op, 1)
    axis = op.attrs["axis"] % spec.ndim
    size = spec.shape[axis]
    if 0 in (size, *y.shape):
        return fill(0, y.dtype, y.shape)
    loops = LETTERS[: y.ndim]

    def body(given: SSAValue, _: SSAValue) -> SSAValue:
        at = convert(given, picked.dtype, I64)
        zero, length = constant(0, I64), constant(size, I64)
        at = select(compare("<", at, zero, I64), combine("+", at, length, I64), at)
        known = compare("<", at, length, U64)  # as an unsigned number, a negative one is too large
        here = arith.IndexCastOp(select(known, at, zero), IndexType()).result
        before = [linalg.IndexOp(i).result for i in range(axis)]
        after = [linalg.IndexOp(i).result for i in range(axis + picked.ndim, y.ndim)]
        found = tensor.ExtractOp(x, [*before, here, *after], element_type(y.dtype)).result
        return select(known, found, constant(0, y.dtype))

    maps = [letter_map(loops[axis : axis + picked.ndim], loops), AffineMap.identity(y.ndim)]
    return nest([indices], maps, empty(y.dtype, y.shape), body)


def _slice(op: Op, args: Operands) -> SSAValue:
    starts, sizes, steps = zip(*slices(input_spec(op, 0).shape, op.attrs), strict=True)
    return extract_slice(args[0], starts, sizes, [max(1, s) for s in steps])


def _transpose(op: Op, args: Operands) -> SSAValue:
    y = op.outputs[0].spec
    if y.ndim == 0:
        return args[0]
    axes = [a % y.ndim for a in op.attrs["axes"]] or list(reversed(range(y.ndim)))
    order = DenseArrayBase.from_list(i64, axes)
    return linalg.TransposeOp(args[0], empty(y.dtype, y.shape), order).results[0]


def _concat(op: Op, args: Operands) -> SSAValue:
    y = op.outputs[0].spec
    return tensor.ConcatOp(args, op.attrs["axis"] % y.ndim, tensor_type(y.dtype, y.shape)).result


def _value(op: Op) -> Any:
    """Return the attribute `value`, converted as `cast` does."""
    assert op.outputs[0].spec.dtype.numpy is not None
    return converted(np.array(op.attrs["value"]), op.outputs[0].spec.dtype.numpy)


def _fill(op: Op, args: Operands) -> SSAValue:
    y = op.outputs[0].spec
    value = find("fill").reference(**{**op.attrs, "shape": ()}, out=[TensorDesc(y.dtype, ())])
    return fill(value[()], y.dtype, y.shape)


def _pad(op: Op, args: Operands) -> SSAValue:
    y, (x,) = op.outputs[0].spec, args
    low, high = op.attrs["low"], op.attrs["high"]
    if not any((*low, *high)):
        return x
    block = Block(arg_types=[IndexType()] * y.ndim)
    with ImplicitBuilder(block):
        tensor.YieldOp(constant(_value(op), y.dtype))
    return tensor.PadOp(x, (), (), Region(block), low, high, tensor_type(y.dtype, y.shape)).result


EMITTERS: dict[str, Emit] = {
    "argmax": _argmax,
    "batch_matmul": _batch_matmul,
    "bit_cast": emit_bit_cast,
    "cast": lambda op, args: cast(args[0], input_spec(op, 0).dtype, op.outputs[0].spec.dtype),
    "collapse_shape": _collapse,
    "concat": _concat,
    "conv_2d_nchw_fchw": _conv,
    "expand_shape": _expand,
    "fill": _fill,
    "gather": _gather,
    "generalized_delta_rule": emit_generalized_delta_rule,
    "generic": _generic,
    "gru_recurrence": emit_recurrence,
    "iota": _iota,
    "lstm_recurrence": emit_recurrence,
    "lu_factor": emit_lu_factor,
    "matmul_transposed": _matmul_transposed,
    "pad": _pad,
    "pooling_nchw_max": _pooling(linalg.PoolingNchwMaxOp),
    "pooling_nchw_sum": _pooling(PoolingNchwSumOp),
    "random_bits": emit_random_bits,
    "rearrange": lambda op, args: args[0],
    "rnn_recurrence": emit_recurrence,
    "scan": emit_scan,
    "scatter": emit_scatter,
    "slice": _slice,
    "solve_triangular": emit_solve_triangular,
    "sort": emit_sort,
    "topk": emit_topk,
    "transpose": _transpose,
}
