/* concat: every input is moved into its part of the output along the axis, one launch per input. */
#include "simt.h"
#include "move.h"

IK_ENTRY(concat_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    ik_move_line(y + line.y, p.y.strides[last], x + line.x, p.x.strides[last], at.begin, at.end);
}

IK_ENTRY(concat_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, IK_ITEM);
    y[at.y] = x[at.x];
}
