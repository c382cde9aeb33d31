/* scatter: y = x, then y[p, indices[i], q] becomes updates[p, i, q], or is combined with it, for each i in order; for
 * dims p before the axis, i of the indices and q after the axis.
 *
 * An item owns a part of the rows of one (p, q). It reads all indices and applies those of its rows, so that the
 * updates of an element are applied in their order. Sums of integers do not depend on it: where there are few items,
 * each adds some of the updates up in a list of its own. A negative index counts from the end. An index out of range is
 * left out. */
#include "simt.h"
#include "gather.h"

/* Nothing is left to do where y is x itself; two tensors of one buffer need not be the same. */
IK_ENTRY(scatter_copy)(IK_PARAMS)
{
    if ((ik_u64)(y + p.y.offset) == (ik_u64)(x + p.x.offset))
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    ik_move_line(y + line.y, p.y.strides[last], x + line.x, p.x.strides[last], at.begin, at.end);
}

#ifdef REDUCTION
/* `b` joins `a`: sums and products of integers wrap; a NaN stays, and of equal numbers `a`. */
static IK_INLINE ik_c combine(ik_c a, ik_c b)
{
#if REDUCTION >= 3
    const int joins = REDUCTION == 3 ? b < a : b > a;
#ifdef IK_COMPUTE_FLOAT
    return joins || b != b ? b : a;
#else
    return joins ? b : a;
#endif
#elif defined(IK_COMPUTE_FLOAT)
    return REDUCTION == 1 ? a + b : a * b;
#else
    return (ik_c)(REDUCTION == 1 ? (ik_u64)a + (ik_u64)b : (ik_u64)a * (ik_u64)b);
#endif
}

IK_ENTRY(scatter_rows)(IK_PARAMS)
{
    if (IK_ITEM >= p.tasks)
        return;
    const int axis = (int)p.axis, after = axis + (int)p.indices.ndim;
    const ik_index columns = (ik_index)p.columns, inner = (ik_index)p.inner;
    const ik_index part = IK_ITEM / columns, column = IK_ITEM - part * columns;
    const ik_index outer = column / inner, q = column - outer * inner;
    const ik_index first = part * (ik_index)p.length, last = first + (ik_index)p.length;
    const ik_index to =
        p.y.offset + ik_offset_within(p.y, 0, axis, outer) + ik_offset_within(p.y, axis + 1, (int)p.y.ndim, q);
    const ik_index from = p.updates.offset + ik_offset_within(p.updates, 0, axis, outer)
        + ik_offset_within(p.updates, after, (int)p.updates.ndim, q);
    for (ik_index i = 0; i < p.count; i++) {
        const ik_index row = row_of(indices[index_offset(p.indices, (int)p.indices.ndim, i)], p.rows);
        if (row < first || row >= last)
            continue;
        const ik_index at = to + row * p.y.strides[axis], u = from + ik_offset_within(p.updates, axis, after, i);
#if REDUCTION == 0
        y[at] = updates[u];
#else
        IK_STORE(y, at, combine(IK_LOAD(y, at), IK_LOAD(updates, u)));
#endif
    }
}

/* An item adds up `length` updates of single elements in its list of all rows. */
IK_ENTRY(scatter_count)(IK_PARAMS)
{
    IK_GLOBAL ik_c *list = (IK_GLOBAL ik_c *)workspace + IK_GROUP_ID * (ik_index)p.rows;
    const int axis = (int)p.axis, after = axis + (int)p.indices.ndim;
    const ik_index begin = IK_GROUP_ID * (ik_index)p.length, left = (ik_index)p.count - begin,
                   end = begin + (left < p.length ? left : (ik_index)p.length);
    for (ik_index row = 0; row < p.rows; row++)
        list[row] = 0;
    for (ik_index i = begin; i < end; i++) {
        const ik_index row = row_of(indices[index_offset(p.indices, (int)p.indices.ndim, i)], p.rows);
        if (row >= 0)
            list[row] =
                combine(list[row], IK_LOAD(updates, p.updates.offset + ik_offset_within(p.updates, axis, after, i)));
    }
}

/* An item adds the lists' sums of a row to it. */
IK_ENTRY(scatter_lists)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    IK_GLOBAL const ik_c *list = (IK_GLOBAL const ik_c *)workspace + IK_ITEM;
    const ik_index at = p.y.offset + IK_ITEM * p.y.strides[(int)p.axis];
    ik_c sum = IK_LOAD(y, at);
    for (ik_index part = 0; part < p.parts; part++)
        sum = combine(sum, list[part * (ik_index)p.rows]);
    IK_STORE(y, at, sum);
}
#endif
