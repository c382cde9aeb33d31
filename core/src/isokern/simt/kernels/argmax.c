/* argmax along the last dim: y = the first i with x[i] NaN, or else the first i with x[i] largest. A work-group an output; an item where
 * rows are short or lie beside each other in memory.
 *
 * Where outputs are few, each is made in parts, which the workspace holds as [part][output], and joined in order. */
/* launch
 * let(d=x.shape[-1], outputs=x.numel // max(1, x.shape[-1]))
 * let(beside=abs(x.strides[-2]) < abs(x.strides[-1]) and outputs >= 32)
 * let(alone=d <= 32 or beside)
 * let(wanted=ceil_div((2048 if alone else 8) * device.units, max(1, outputs)))
 * let(parts=max(1, min(wanted, d // (64 if alone else 4096))), length=ceil_div(d, parts), tasks=outputs * parts)
 * workspace(when=parts > 1, bytes=16 * tasks)
 * argmax(when=alone and parts == 1, items=tasks, ALONE=1, outputs=outputs, length=length)
 * argmax(when=alone and parts > 1, items=tasks, ALONE=1, PARTS=1, outputs=outputs, length=length)
 * argmax(when=not alone and parts == 1, groups=tasks, local=256, outputs=outputs, length=length)
 * argmax(when=not alone and parts > 1, groups=tasks, local=256, PARTS=1, outputs=outputs, length=length)
 * argmax_join(when=parts > 1, groups=outputs, local=64, outputs=outputs, parts=parts)
 */
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

IK_ENTRY(argmax_join)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, values, 1)
    IK_SCRATCH(ik_i64, places, 1)
    const ik_index output = IK_TASK;
    IK_GLOBAL const best *const parts = (IK_GLOBAL const best *)workspace;
    best b = best_of(0, -1);
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        b = better(b, parts[i * p.outputs + output]);
    b = group_best(b, values, places);
    if (IK_LANE == 0)
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.x.ndim - 1, output), b.at);
}
