"""Factors of matrices and triangular systems as loops of scf, a column at a step; and elements of the same bits."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from xdsl.dialects import arith, math, tensor
from xdsl.dialects.builtin import DenseArrayBase, IndexType, TensorType, i64
from xdsl.dialects.linalg import ops as linalg
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from ..dtypes import I64, DType
from .ir import Op
from .mlir_body import combine, compare, constant, element_type, select
from .mlir_loops import index, pick, put, repeat
from .mlir_tensors import Operands, collapse, element_of, empty, expand, fill, letter_dims, letter_map, nest, shape_of


def emit_bit_cast(op: Op, args: Operands) -> SSAValue:
    """Emit a loop nest that reads the bits of each element as another type."""
    y, (x,) = op.outputs[0].spec, args
    to = element_type(y.dtype)
    same = AffineMap.identity(y.ndim)
    if x.type == (made := empty(y.dtype, y.shape)).type:  # MLIR's integers have no sign
        return x
    return nest([x], [same, same], made, lambda v, _: arith.BitcastOp(v, to).result)


def _flatten(x: SSAValue, kept: int) -> SSAValue:
    """Return x with one dim in front of the last `kept`."""
    shape = shape_of(x)
    lead, rest = shape[: len(shape) - kept], shape[len(shape) - kept :]
    if not lead:
        return expand(x, [2, *[1] * (kept - 1)], (1, *rest))
    return collapse(x, [len(lead), *[1] * kept], (prod(lead), *rest))


def _spread(x: SSAValue, shape: Sequence[int]) -> SSAValue:
    """Return x, as `_flatten` returns it, in a shape again."""
    kept = len(shape_of(x)) - 1
    lead = len(shape) - kept
    if not lead:
        return collapse(x, [2, *[1] * (kept - 1)], shape)
    return expand(x, [lead, *[1] * kept], shape)


def _at(x: SSAValue, *places: SSAValue, dtype: DType) -> SSAValue:
    return tensor.ExtractOp(x, list(places), element_type(dtype)).result


def _same(a: SSAValue, b: SSAValue) -> SSAValue:
    return arith.CmpiOp(a, b, "eq").result


def _choose_pivots(lu: SSAValue, k: SSAValue, dtype: DType) -> SSAValue:
    """Return the row of each matrix's pivot: the first NaN from row k on, or the first largest magnitude."""
    count, n = shape_of(lu)[:2]
    column = pick(lu, 2, k)

    def from_k() -> tuple[SSAValue, SSAValue]:
        row = linalg.IndexOp(1).result
        return row, arith.CmpiOp(row, k, "uge").result

    def larger(v: SSAValue, most: SSAValue) -> SSAValue:
        found = combine("maximum", math.AbsFOp(v).results[0], most, dtype)
        return select(from_k()[1], found, most)

    most = letter_dims("bi->b", [column], fill(-1, dtype, (count,)), larger)

    def first(v: SSAValue, top: SSAValue, before: SSAValue) -> SSAValue:
        row, below = from_k()
        here = compare("==", math.AbsFOp(v).results[0], top, dtype)
        here = arith.AndIOp(arith.OrIOp(here, compare("!=", v, v, dtype)).result, below).result
        return select(here, combine("minimum", _number(row), before, I64), before)

    return letter_dims("bi,b->b", [column, most], fill(n, I64, (count,)), first)


def emit_lu_factor(op: Op, args: Operands) -> Sequence[SSAValue]:
    """Emit a loop over the columns: pivots, an exchange of rows, the quotients, and what they take from the rest."""
    spec, dtype = op.outputs[0].spec, op.outputs[0].spec.dtype
    if spec.numel == 0:
        return [args[0], *(empty(I64, o.spec.shape) for o in op.outputs[1:])]
    lu = _flatten(args[0], 2)
    count, n, _ = shape_of(lu)
    order = nest([], [AffineMap.identity(2)], empty(I64, (count, n)), lambda _: _number(linalg.IndexOp(1).result))

    def exchange(x: SSAValue, pivots: SSAValue, k: SSAValue, element: DType) -> SSAValue:
        def body(pivot: SSAValue, _: SSAValue) -> SSAValue:
            b, i, *rest = (linalg.IndexOp(d).result for d in range(len(shape_of(x))))
            at = arith.IndexCastOp(pivot, IndexType()).result
            source = select(_same(i, k), at, select(_same(i, at), k, i))
            return _at(x, b, source, *rest, dtype=element)

        letters = "bij"[: len(shape_of(x))]
        maps = [letter_map("b", letters), letter_map(letters, letters)]
        return nest([pivots], maps, empty(element, shape_of(x)), body)

    def eliminate(x: SSAValue, k: SSAValue) -> SSAValue:
        def body(v: SSAValue, _: SSAValue) -> SSAValue:
            b, i, j = (linalg.IndexOp(d).result for d in range(3))
            pivot, left, above = (_at(x, b, *at, dtype=dtype) for at in ((k, k), (i, k), (k, j)))
            none = compare("==", pivot, constant(0, dtype), dtype)
            quotient = select(none, left, combine("/", left, pivot, dtype))
            rest = combine("-", v, combine("*", quotient, above, dtype), dtype)
            below, right = (arith.CmpiOp(at, k, "ugt").result for at in (i, j))
            changed = select(right, rest, select(_same(j, k), quotient, v))
            return select(below, changed, v)

        return letter_dims("bij->bij", [x], empty(dtype, shape_of(x)), body)

    def step(k: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        lu, pivots, order = carried
        at = _choose_pivots(lu, k, dtype)
        return eliminate(exchange(lu, at, k, dtype), k), put(pivots, at, 1, k), exchange(order, at, k, I64)

    found = repeat(n, [lu, fill(0, I64, (count, n)), order], step)
    return [_spread(v, o.spec.shape) for v, o in zip(found, op.outputs, strict=True)]


def _number(at: SSAValue) -> SSAValue:
    return arith.IndexCastOp(at, i64).result


def _turn(x: SSAValue) -> SSAValue:
    """Return the matrices of x[b, p, q] transposed."""
    b, p, q = shape_of(x)
    made = tensor.EmptyOp((), TensorType(element_of(x), (b, q, p))).tensor
    return linalg.TransposeOp(x, made, DenseArrayBase.from_list(i64, [0, 2, 1])).results[0]


def emit_solve_triangular(op: Op, args: Operands) -> SSAValue:
    """Emit a loop over the unknowns, each of which is taken from the equations that follow."""
    spec, attrs = op.outputs[0].spec, op.attrs
    if spec.numel == 0:
        return args[1]
    a, x = (_flatten(v, 2) for v in args)
    lower = attrs["lower"] == attrs["left"]
    if not attrs["left"]:
        a, x = _turn(a), _turn(x)
    dtype, n = spec.dtype, shape_of(a)[1]

    def step(s: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (x,) = carried
        i = s if lower else arith.SubiOp(index(n - 1), s).result
        row, column = pick(x, 1, i), pick(a, 2, i)
        if not attrs["unit_diagonal"]:
            diagonal = pick(column, 1, i)
            made = empty(dtype, shape_of(row))
            row = letter_dims("bq,b->bq", [row, diagonal], made, lambda v, d, _: combine("/", v, d, dtype))

        def take(v: SSAValue, c: SSAValue, known: SSAValue, _: SSAValue) -> SSAValue:
            open_ = arith.CmpiOp(linalg.IndexOp(1).result, i, "ugt" if lower else "ult").result
            return select(open_, combine("-", v, combine("*", c, known, dtype), dtype), v)

        x = letter_dims("bpq,bp,bq->bpq", [x, column, row], empty(dtype, shape_of(x)), take)
        return (put(x, row, 1, i),)

    (x,) = repeat(n, [x], step)
    return _spread(x if attrs["left"] else _turn(x), spec.shape)
