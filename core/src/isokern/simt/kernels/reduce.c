/* reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min: y[k] = op over r of x[k, r], with the kept dims k
 * before the reduced dims r, along which y's strides are 0. One work-group per output; one item where outputs are many
 * and short, or are adjacent in memory.
 *
 * Where outputs are few, each is computed in parts, which the workspace holds as [part][output] and a second launch
 * joins in order. An output of no elements is a value that the host knows. */
#include "reductions.h"

IK_ENTRY(reduce_none)(IK_PARAMS)
{
    if (IK_ITEM < p.items)
        y[p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, IK_ITEM)] = (IK_ELEMENT(y))p.value;
}

IK_ENTRY(reduce)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const ik_index part = IK_TASK / p.outputs, output = IK_TASK - part * p.outputs;
    const ik_index begin = part * p.length, end = begin + p.length < p.d ? begin + p.length : p.d;
    const int kept = (int)p.kept, rank = (int)p.x.ndim;
    const ik_index from = p.x.offset + ik_offset_within(p.x, 0, kept, output);
    ik_fold f = ik_fold_none();
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        f = ik_fold_add(f, IK_LOAD(x, from + ik_offset_within(p.x, kept, rank, i)));
    f = ik_fold_group(f, scratch);
    if (IK_LANE == 0)
#ifdef PARTS
        ((IK_GLOBAL ik_fold *)workspace)[IK_TASK] = f;
#else
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, kept, output), result(f, p.d));
#endif
}
