/* gather: y[p, i, q] = x[p, indices[i], q], for dims p before the axis, i of the indices and q after the axis. x, with
 * stride 0 along i, and the indices, with stride 0 along p and q, have y's shape.
 *
 * A negative index counts from the end. An index out of range writes zeros. */
#include "simt.h"
#include "gather.h"

IK_ENTRY(gather_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
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
        IK_ELEMENT(y) value = 0;
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
    IK_ELEMENT(y) value = 0;
    if (row >= 0)
        value = x[at.x + row * (ik_index)p.step];
    y[at.y] = value;
}
