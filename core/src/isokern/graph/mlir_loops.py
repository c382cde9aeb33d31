"""Primitives that MLIR has no operation for: recurrences as loops of scf, orders and random numbers as loop nests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, scf, tensor
from xdsl.dialects.builtin import DYNAMIC_INDEX, IndexType, IntegerAttr, TensorType, i64
from xdsl.dialects.linalg import ops as linalg
from xdsl.ir import Block, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from ..declare.decomposition import LETTERS
from ..dtypes import BOOL, I64, U32, U64, DType
from ..expr.tree import parse
from ..layout import TensorDesc
from .ir import Op
from .mlir_body import combine, compare, constant, convert, element_type, evaluate, select
from .mlir_tensors import (
    Operands,
    cast,
    collapse,
    element_of,
    empty,
    expand,
    fill,
    letter_dims,
    letter_map,
    nest,
    shape_of,
)

Step = Callable[[SSAValue, Sequence[SSAValue]], Sequence[SSAValue]]


def index(value: int) -> SSAValue:
    """Return a constant index."""
    return arith.ConstantOp(IntegerAttr(value, IndexType())).result


def repeat(count: int, carried: Sequence[SSAValue], step: Step) -> Sequence[SSAValue]:
    """Return the carried tensors after `count` calls of `step(i, carried)`, by one scf.for."""
    block = Block(arg_types=[IndexType(), *(v.type for v in carried)])
    with ImplicitBuilder(block):
        at, *values = block.args
        scf.YieldOp(*step(at, values))
    return scf.ForOp(index(0), index(count), index(1), list(carried), Region(block)).results


def _bounds(shape: Sequence[int], axis: int, at: SSAValue) -> tuple[list[SSAValue | int], list[int], list[int]]:
    sizes = [1 if i == axis else d for i, d in enumerate(shape)]
    return [at if i == axis else 0 for i in range(len(shape))], sizes, [1] * len(shape)


def pick(x: SSAValue, axis: int, at: SSAValue) -> SSAValue:
    """Return the slice of x at a place along an axis, without that axis."""
    shape = shape_of(x)
    rest = TensorType(element_of(x), [d for i, d in enumerate(shape) if i != axis])
    return tensor.ExtractSliceOp(x, *_bounds(shape, axis, at), rest).result


def put(x: SSAValue, part: SSAValue, axis: int, at: SSAValue) -> SSAValue:
    """Return x with the slice at a place along an axis replaced."""
    offsets, sizes, steps = _bounds(shape_of(x), axis, at)
    static = [0 if isinstance(o, int) else DYNAMIC_INDEX for o in offsets]
    return tensor.InsertSliceOp.get(part, x, sizes, static, steps, offsets=[at], result_type=x.type).result


def input_spec(op: Op, i: int) -> TensorDesc:
    """Return the description of an input that is present."""
    value = op.inputs[i]
    assert value is not None
    return value.spec


def emit_scan(op: Op, args: Operands) -> SSAValue:
    """Emit a loop over the steps, which carries the last value in the compute type, and y."""
    y, attrs = op.outputs[0].spec, op.attrs
    start, xs = (None, args) if op.inputs[0] is None else (args[0], args[1:])
    axis, compute, tree = attrs["axis"] % y.ndim, y.dtype.compute, parse(attrs["body"])
    whole = empty(y.dtype, y.shape)
    if 0 in y.shape:
        return whole
    rest = [d for i, d in enumerate(y.shape) if i != axis]
    state = fill(attrs["initial"], compute, rest) if start is None else cast(start, y.dtype, compute)
    same = AffineMap.identity(len(rest))

    def body(*given: SSAValue) -> SSAValue:
        *new, before, _ = given
        names = {f"x{i}": convert(v, y.dtype, compute) for i, v in enumerate(new)}
        return evaluate(tree, {**names, f"x{len(new)}": before}, compute)

    def step(t: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        before, made = carried
        at = arith.SubiOp(index(y.shape[axis] - 1), t).result if attrs["reverse"] else t
        given = [*(pick(x, axis, at) for x in xs), before]
        after = nest(given, [same] * (len(given) + 1), empty(compute, rest), body)
        shown = cast(before if attrs["exclusive"] else after, compute, y.dtype)
        return after, put(made, shown, axis, at)

    return repeat(y.shape[axis], [state, whole], step)[1]


def emit_scatter(op: Op, args: Operands) -> SSAValue:
    """Emit a loop over the indices, in their order; one that is out of range leaves y as it is."""
    x, indices, updates = args
    spec, picked = input_spec(op, 0), input_spec(op, 1)
    axis, word = op.attrs["axis"] % spec.ndim, op.attrs["reduction"]
    size, count = spec.shape[axis], picked.numel
    if 0 in (size, count, *spec.shape):
        return x
    flat = collapse(indices, [picked.ndim], [count]) if picked.ndim else expand(indices, [], [1])
    groups = [1] * axis + [picked.ndim] + [1] * (spec.ndim - axis - 1)
    shape = (*spec.shape[:axis], count, *spec.shape[axis + 1 :])
    if picked.ndim:
        given = collapse(updates, groups, shape)
    else:  # the axis is a dim of 1 next to another dim
        at = max(axis - 1, 0)
        given = expand(updates, [2 if i == at else 1 for i in range(spec.ndim - 1)], shape)
    rest = AffineMap.identity(spec.ndim - 1)

    def step(i: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        (y,) = carried
        at = convert(tensor.ExtractOp(flat, [i], element_type(picked.dtype)).result, picked.dtype, I64)
        length, zero = constant(size, I64), constant(0, I64)
        at = select(compare("<", at, zero, I64), combine("+", at, length, I64), at)
        known = compare("<", at, length, U64)  # as an unsigned number, a negative one is too large
        place = arith.IndexCastOp(select(known, at, zero), IndexType()).result

        def join(before: SSAValue, new: SSAValue, _: SSAValue) -> SSAValue:
            return select(known, _apply(word, before, new, spec.dtype), before)

        before = pick(y, axis, place)
        after = nest([before, pick(given, axis, i)], [rest] * 3, empty(spec.dtype, shape_of(before)), join)
        return (put(y, after, axis, place),)

    return repeat(count, [x], step)[0]


def _apply(word: str, before: SSAValue, new: SSAValue, dtype: DType) -> SSAValue:
    """Return the updated element: min and max keep a NaN, and of equal numbers the earlier."""
    if word == "none":
        return new
    if word in ("add", "mul"):
        wide = dtype.compute
        made = combine("+" if word == "add" else "*", convert(before, dtype, wide), convert(new, dtype, wide), wide)
        return convert(made, wide, dtype)
    takes = compare("<" if word == "min" else ">", new, before, dtype)
    if dtype.kind == "f":
        takes = arith.OrIOp(takes, compare("!=", new, new, dtype)).result
    return select(takes, new, before)


def emit_sort(op: Op, args: Operands) -> Sequence[SSAValue]:
    """Emit three loop nests: how many elements come before each one, and the element and its index of each place."""
    return _order(op, args[0], op.attrs["descending"])


def emit_topk(op: Op, args: Operands) -> Sequence[SSAValue]:
    """Emit the first places of the falling order."""
    return _order(op, args[0], descending=True)


def _order(op: Op, x: SSAValue, descending: bool) -> Sequence[SSAValue]:
    spec, places = input_spec(op, 0), op.outputs[0].spec.shape
    dtype, axis = spec.dtype, op.attrs["axis"] % spec.ndim
    loops = LETTERS[: spec.ndim] + "z"
    own, other = loops[:-1], loops[:-1].replace(loops[axis], "z")

    def comes_before(a: SSAValue, b: SSAValue) -> SSAValue:
        found = compare(">" if descending else "<", a, b, dtype)
        if dtype.kind != "f":
            return found
        largest, other = (a, b) if descending else (b, a)  # NaN counts as largest
        unordered = arith.AndIOp(compare("!=", largest, largest, dtype), compare("==", other, other, dtype))
        return arith.OrIOp(found, unordered.result).result

    def count(a: SSAValue, b: SSAValue, so_far: SSAValue) -> SSAValue:
        here, there = (linalg.IndexOp(i).result for i in (axis, spec.ndim))
        earlier = arith.CmpiOp(there, here, "ult").result
        tie = arith.XOrIOp(comes_before(a, b), constant(1, BOOL)).result
        first = arith.OrIOp(comes_before(b, a), arith.AndIOp(earlier, tie).result).result
        return select(first, combine("+", so_far, constant(1, I64), I64), so_far)

    maps = [letter_map(own, loops), letter_map(other, loops), letter_map(own, loops)]
    rank = nest([x, x], maps, fill(0, I64, spec.shape), count)

    def find(value: Callable[[SSAValue], SSAValue], out: SSAValue) -> SSAValue:
        def take(a: SSAValue, at: SSAValue, before: SSAValue) -> SSAValue:
            place = arith.IndexCastOp(linalg.IndexOp(axis).result, i64).result
            return select(compare("==", at, place, I64), value(a), before)

        return nest([x, rank], [letter_map(other, loops)] * 2 + [letter_map(own, loops)], out, take)

    where = find(lambda a: arith.IndexCastOp(linalg.IndexOp(spec.ndim).result, i64).result, fill(0, I64, places))
    return find(lambda a: a, fill(0, dtype, places)), where


def emit_random_bits(op: Op, args: Operands) -> SSAValue:
    """Emit Philox4x32-10 at each element, in integers of 64 bits."""
    (seed,), y = args, op.outputs[0].spec
    low = (1 << 32) - 1

    def number(value: int) -> SSAValue:
        return constant(value if value < 1 << 63 else value - (1 << 64), I64)

    def do(word: str, a: SSAValue, b: SSAValue | int) -> SSAValue:
        b = number(b) if isinstance(b, int) else b
        if word == ">>":
            return arith.ShRUIOp(a, b).result
        return combine(word, a, b, U64)

    def body(_: SSAValue) -> SSAValue:
        key, first = (tensor.ExtractOp(seed, [index(i)], element_type(U64)).result for i in (0, 1))
        at, step = number(0), 1
        for i in reversed(range(y.ndim)):
            here = arith.IndexCastOp(linalg.IndexOp(i).result, i64).result
            at, step = do("+", at, do("*", here, step)), step * y.shape[i]
        block = do("+", do(">>", at, 2), first)
        c = [do("bitand", block, low), do(">>", block, 32), number(0), number(0)]
        keys = [do("bitand", key, low), do(">>", key, 32)]
        for _round in range(10):
            a, b = do("*", c[0], 0xD2511F53), do("*", c[2], 0xCD9E8D57)
            mixed = [do("bitxor", do("bitxor", do(">>", b, 32), c[1]), keys[0])]
            mixed += [do("bitand", b, low), do("bitxor", do("bitxor", do(">>", a, 32), c[3]), keys[1])]
            c = [*mixed, do("bitand", a, low)]
            keys = [do("bitand", do("+", k, w), low) for k, w in zip(keys, (0x9E3779B9, 0xBB67AE85), strict=True)]
        word, found = do("bitand", at, 3), c[0]
        for i in (1, 2, 3):
            found = select(compare("==", word, number(i), I64), c[i], found)
        return convert(found, U64, U32)

    return nest([], [AffineMap.identity(y.ndim)], empty(y.dtype, y.shape), body)


def emit_generalized_delta_rule(op: Op, args: Operands) -> Sequence[SSAValue]:
    """Emit a loop over the steps, which carries the state and y."""
    inputs = iter(args)
    q, k, v, state, w, a, b = (None if at is None else next(inputs) for at in [*op.inputs, None, None, None][:7])
    assert q is not None and k is not None and v is not None and state is not None
    out, kept = (o.spec for o in op.outputs)
    dtype, wide = out.dtype, kept.dtype
    batch, steps, heads, d = shape_of(q)
    groups, e = shape_of(v)[2:]
    if 0 in (batch, steps, heads, groups, e) or d == 0:
        return fill(0, dtype, out.shape), state
    if w is not None:  # broadcast to the steps of k
        missing = 4 - len(shape_of(w))
        given = [1] * missing + list(shape_of(w))
        whole = (batch, steps, groups, d)
        dims = [
            AffineExpr.dimension(i + missing) if n > 1 or whole[i + missing] == 1 else AffineExpr.constant(0)
            for i, n in enumerate(given[missing:])
        ]
        w = nest([w], [AffineMap(4, 0, tuple(dims)), AffineMap.identity(4)], empty(dtype, whole), lambda x, _: x)

    def product(*factors: SSAValue) -> SSAValue:
        made = factors[0]
        for f in factors[1:]:
            made = combine("*", made, f, wide)
        return made

    def widen(x: SSAValue) -> SSAValue:
        return convert(x, dtype, wide)

    def add_up(x: SSAValue, s: SSAValue, total: SSAValue) -> SSAValue:
        return combine("+", total, product(widen(x), s), wide)

    def read(t: SSAValue, s: SSAValue, y: SSAValue) -> SSAValue:
        shared = expand(pick(q, 1, t), (1, 2, 1), (batch, groups, heads // groups, d))
        found = letter_dims("bgrd,bgde->bgre", [shared, s], fill(0, wide, (batch, groups, heads // groups, e)), add_up)
        return put(y, cast(collapse(found, (1, 2, 1), (batch, heads, e)), wide, dtype), 1, t)

    def step(t: SSAValue, carried: Sequence[SSAValue]) -> Sequence[SSAValue]:
        s, y = carried
        y = read(t, s, y) if op.attrs["read_before"] else y
        names, given, maps = ["k", "v"], [pick(k, 1, t), pick(v, 1, t)], "bgd,bge"
        if w is not None:
            names, given, maps = [*names, "w"], [*given, pick(w, 1, t)], maps + ",bgd"
        if a is not None and b is not None:
            seen = letter_dims("bgd,bgde->bge", [pick(a, 1, t), s], fill(0, wide, (batch, groups, e)), add_up)
            names, given, maps = [*names, "b", "seen"], [*given, pick(b, 1, t), seen], maps + ",bgd,bge"

        def update(*elements: SSAValue) -> SSAValue:
            *new, before, _ = elements
            at = {n: x if n == "seen" else widen(x) for n, x in zip(names, new, strict=True)}
            made = product(at["w"], before) if "w" in at else before
            made = combine("+", made, product(at["b"], at["seen"]), wide) if "b" in at else made
            return combine("+", made, product(at["k"], at["v"]), wide)

        s = letter_dims(f"{maps},bgde->bgde", [*given, s], empty(wide, kept.shape), update)
        return s, y if op.attrs["read_before"] else read(t, s, y)

    last, y = repeat(steps, [state, empty(dtype, out.shape)], step)
    return y, last
