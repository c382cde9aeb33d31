/* The result of logsumexp, and the launch that joins parts, which the workspace holds as [part][output]. */
#ifndef IK_LOGSUMEXP_H
#define IK_LOGSUMEXP_H
#include "exponentials.h"

/* ln sum exp of a whole row: its maximum where that is not finite, as a sum relative to it is NaN. */
static IK_INLINE ik_c ik_log_of_sum(ik_c max_value, ik_sum sum)
{ return max_value - max_value == 0 ? max_value + IK_FN(log)(ik_sum_value(sum)) : max_value; }

IK_ENTRY(logsumexp_join)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const ik_index output = IK_TASK;
    IK_GLOBAL const ik_exp_part *const parts = (IK_GLOBAL const ik_exp_part *)workspace;
    ik_c max_value = IK_LOWEST;
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        max_value = IK_FN(maximum)(max_value, parts[i * p.outputs + output].max_value);
    max_value = ik_group_maximum(max_value, scratch);
    ik_sum sum = ik_sum_none();
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES) {
        const ik_exp_part some = parts[i * p.outputs + output];
        sum = ik_sum_add(sum, ik_exp_rescale(some.max_value, ik_sum_value(some.sum), max_value));
    }
    sum = ik_group_sum(sum, scratch);
    if (IK_LANE == 0)
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), ik_log_of_sum(max_value, sum));
}
#endif
