/* cast: every plain element type to every other by the rules of isokern_cast.h. Integers whose low bits are kept are
 * treated as unsigned ones of their size, so that types that differ only in sign share a program. */
#include "conversions.h"
#include "place.h"

IK_ENTRY(cast_lines)(IK_PARAMS)
{
    const int last = (int)p.y.ndim - 1;
    const ik_piece at = ik_piece_of(p.y.shape[last], IK_GROUP_ID);
    const ik_place line = ik_place_of(p.y, p.x, last, at.line);
    const ik_index y_step = p.y.strides[last], x_step = p.x.strides[last];
    if (y_step == 1 && x_step == 1)
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
            MAKE(y, line.y + i, GIVEN(x, line.x + i));
    else
        for (ik_index i = at.begin + IK_LOCAL_ID; i < at.end; i += IK_GROUP)
            MAKE(y, line.y + i * y_step, GIVEN(x, line.x + i * x_step));
}

IK_ENTRY(cast_elements)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const ik_place at = ik_place_of(p.y, p.x, (int)p.y.ndim, IK_ITEM);
    MAKE(y, at.y, GIVEN(x, at.x));
}
