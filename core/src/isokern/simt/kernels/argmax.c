/* argmax along the last dim: y = the first i with x[i] NaN, or else the first i with x[i] largest. One work-group per
 * output; one item where rows are short or adjacent in memory.
 *
 * Where outputs are few, each is computed in parts, which the workspace holds as [part][output] and a second launch
 * joins in order. */
#include "best.h"

IK_ENTRY(argmax)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, values, 1)
    IK_SCRATCH(ik_i64, places, 1)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const int last = (int)p.x.ndim - 1;
    const ik_index d = p.x.shape[last], part = IK_TASK / p.outputs, output = IK_TASK - part * p.outputs;
    const ik_index begin = part * p.length, end = begin + p.length < d ? begin + p.length : d;
    const ik_index from = ik_offset(p.x, output * d), step = p.x.strides[last];
    best b = best_of(0, -1);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        b = better(b, best_of(IK_LOAD(x, from + i * step), i));
    b = group_best(b, values, places);
    if (IK_LANE == 0)
#ifdef PARTS
        ((IK_GLOBAL best *)workspace)[IK_TASK] = b;
#else
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, last, output), b.at);
#endif
}
