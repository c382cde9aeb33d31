/* logsumexp: y[k] = ln sum over r of exp(x[k, r]), with the kept dims k before the reduced dims r, along which y's
 * strides are 0. One work-group per output; one item where outputs are many and short, or are adjacent in memory.
 *
 * Where outputs are few, each is computed in parts, which the workspace holds as [part][output] and a second launch
 * joins. */
#include "simt.h"
#include "logsumexp.h"

IK_ENTRY(logsumexp)(IK_PARAMS)
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
    ik_c max_value = IK_LOWEST;
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        max_value = IK_FN(maximum)(max_value, IK_LOAD(x, from + ik_offset_within(p.x, kept, rank, i)));
    max_value = ik_group_maximum(max_value, scratch);
    ik_sum sum = ik_sum_none();
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        sum = ik_sum_add(sum, IK_FN(exp)(IK_LOAD(x, from + ik_offset_within(p.x, kept, rank, i)) - max_value));
    sum = ik_group_sum(sum, scratch);
    if (IK_LANE == 0) {
#ifdef PARTS
        IK_GLOBAL ik_exp_part *const left = (IK_GLOBAL ik_exp_part *)workspace + IK_TASK;
        left->max_value = max_value;
        left->sum = sum;
#else
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, kept, output), ik_log_of_sum(max_value, sum));
#endif
    }
}
