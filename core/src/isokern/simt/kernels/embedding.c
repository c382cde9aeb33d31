/* embedding: y[i, q] = table[indices[i], q], in the type of y. table, with stride 0 along i, and the indices, with
 * stride 0 along q, have y's shape.
 *
 * A negative index counts from the end. An index out of range writes zeros; a second entry, which reads the indices
 * again, writes the first such one to the error words. */
#include "blocks.h"
#include "indices.h"

IK_ENTRY(embedding)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const ik_place line = ik_place_of(p.y, p.table, last, at.line);
    const ik_index y_step = p.y.strides[last], step = p.table.strides[last];
    const ik_index row = row_of(indices[index_offset(p.indices, last, at.line)], p.rows),
                   from = line.x + row * (ik_index)p.step;
    if (row < 0)
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
            IK_STORE(y, line.y + i * y_step, 0.0f);
    else
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
            IK_STORE(y, line.y + i * y_step, IK_LOAD(table, from + i * step));
}

IK_ENTRY(embedding_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    report(p, indices, first_wrong(p, indices, 0, (ik_index)p.count, places), p.count, error);
}
