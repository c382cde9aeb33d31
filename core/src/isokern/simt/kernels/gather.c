/* gather: y[p, i, q] = x[p, indices[i], q], for dims p before the axis, i of the indices and q after the axis. x, still along i, and the
 * indices, still along p and q, have y's shape.
 *
 * A negative index counts from the end. An index out of range writes zeros; a second entry, which reads the indices again, leaves the first
 * of them in the error words. */
/* launch
 * let(axis=attrs.axis % x.ndim, rows=x.shape[attrs.axis], step=x.strides[attrs.axis], given=indices)
 * let(after=axis + indices.ndim)
 * let(still=tensor(x, y.shape, [*x.strides[:axis], *[0] * indices.ndim, *x.strides[axis + 1:]], x.offset))
 * let(where=tensor(indices, y.shape, [*[0] * axis, *indices.strides, *[0] * (y.ndim - after)], indices.offset))
 * let(merged=coalesce([bits(y), bits(still), where]))
 * let(y=merged[0], x=merged[1], indices=merged[2], lines=merged[0].shape[-1] * 2 >= min(64, device.group))
 * gather_lines(when=lines and y.numel > 0, groups=pieces(y), local=256, rows=rows, step=step)
 * gather_elements(when=not lines, items=y.numel, rows=rows, step=step)
 * gather_check(when=given.numel > 0, groups=1, local=256, y=None, x=None, indices=given, rows=rows, count=given.numel)
 */
#include "simt.h"
#include "move.h"

/* The row that an index names, or -1. */
static IK_INLINE ik_index row_of(ik_i64 index, ik_i64 rows)
{
    const ik_i64 row = index < 0 ? index + rows : index;
    return row >= 0 && row < rows ? (ik_index)row : -1;
}

static IK_INLINE ik_index index_offset(IK_RECORD(ik_tensor) indices, int dims, ik_index i)
{
    return ik_place_of(indices, indices, dims, i).x;
}

IK_ENTRY(gather_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last]);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    const ik_index y_step = p.y.strides[last], x_step = p.x.strides[last], index_step = p.indices.strides[last];
    const ik_index first = index_offset(p.indices, last, at.line), step = (ik_index)p.step;
    if (index_step == 0) {
        const ik_index row = row_of(indices[first], p.rows);
        if (row < 0)
            ik_fill_line(y + line.y, y_step, 0, at.begin, at.end);
        else
            ik_move_line(y + line.y, y_step, x + line.x + row * step, x_step, at.begin, at.end);
        return;
    }
    for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP) {
        const ik_index row = row_of(indices[first + i * index_step], p.rows);
        IK_MOVED(y) value = 0;
        if (row >= 0)
            value = x[line.x + i * x_step + row * step];
        y[line.y + i * y_step] = value;
    }
}

IK_ENTRY(gather_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int dims = (int)p.y.ndim;
    const ik_place at = ik_place_of(p.y, p.x, dims, IK_ITEM);
    const ik_index row = row_of(indices[index_offset(p.indices, dims, IK_ITEM)], p.rows);
    IK_MOVED(y) value = 0;
    if (row >= 0)
        value = x[at.x + row * (ik_index)p.step];
    y[at.y] = value;
}

IK_ENTRY(gather_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    const int dims = (int)p.indices.ndim;
    const ik_index count = (ik_index)p.count;
    ik_index first = count;
    for (ik_index i = IK_LOCAL_ID; i < first; i += IK_GROUP)
        if (row_of(indices[index_offset(p.indices, dims, i)], p.rows) < 0)
            first = i;
    places[IK_LOCAL_ID] = first;
    for (int half_ = IK_GROUP / 2; half_ > 0; half_ /= 2) {
        IK_BARRIER();
        if (IK_LOCAL_ID < half_ && places[IK_LOCAL_ID + half_] < places[IK_LOCAL_ID])
            places[IK_LOCAL_ID] = places[IK_LOCAL_ID + half_];
    }
    if (IK_LOCAL_ID == 0 && places[0] < count && error[0] == 0) {
        error[0] = IK_OP_KIND;
        error[1] = places[0];
        error[2] = indices[index_offset(p.indices, dims, places[0])];
    }
}
