/* gather: y[p, i, q] = x[p, indices[i], q], for dims p before the axis, i of the indices and q after the axis. x, with
 * stride 0 along i, and the indices, with stride 0 along p and q, have y's shape.
 *
 * A negative index counts from the end. An index out of range writes zeros; a second entry, which reads the indices
 * again, writes the first such one to the error words. Where indices are many, each of its groups leaves its first
 * wrong index in the workspace, and a third entry picks the first of these. */
#include "simt.h"
#include "move.h"
#include "indices.h"

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

IK_ENTRY(gather_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    const ik_index begin = IK_GROUP_ID * (ik_index)p.length, left = (ik_index)p.count - begin;
    const ik_index first =
        first_wrong(p, indices, begin, begin + (left < p.length ? left : (ik_index)p.length), places);
#ifdef PARTS
    if (IK_LOCAL_ID == 0)
        ((IK_GLOBAL ik_index *)workspace)[IK_GROUP_ID] = first < begin + p.length ? first : (ik_index)p.count;
#else
    report(p, indices, first, p.count, error);
#endif
}

IK_ENTRY(gather_report)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    ik_index first = (ik_index)p.count;
    for (ik_index i = IK_LOCAL_ID; i < p.parts; i += IK_GROUP) {
        const ik_index place = ((IK_GLOBAL const ik_index *)workspace)[i];
        first = place < first ? place : first;
    }
    report(p, indices, group_min(first, places), p.count, error);
}
