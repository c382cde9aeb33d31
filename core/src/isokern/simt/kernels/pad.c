/* pad: each line of y along its last dim is border, x, border; a line outside x is all border. The dims are in the
 * order of y's strides. */
#include "simt.h"
#include "move.h"
#include "padded.h"

IK_ENTRY(pad_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const padded line = place_of(p.y, p.x, p.low, last, at.line);
    const ik_index low = (ik_index)p.low.v[last], high = low + (line.inside ? p.x.shape[last] : 0);
    const ik_index first = low < at.begin ? at.begin
        : low > at.end                    ? at.end
                                          : low,
                   end = high < first ? first
        : high > at.end               ? at.end
                                      : high;
    const ik_index y_step = p.y.strides[last], x_step = p.x.strides[last];
    ik_fill_line(y + line.y, y_step, (IK_ELEMENT(y))p.value, at.begin, first);
    if (first < end)
        ik_move_line(y + line.y + first * y_step, y_step, x + line.x + (first - low) * x_step, x_step, 0, end - first);
    ik_fill_line(y + line.y, y_step, (IK_ELEMENT(y))p.value, end, at.end);
}

IK_ENTRY(pad_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const padded at = place_of(p.y, p.x, p.low, (int)p.y.ndim, IK_ITEM);
    y[at.y] = at.inside ? x[at.x] : (IK_ELEMENT(y))p.value;
}
