/* softmax and log_softmax of rows: y = exp(x - m) / s and y = (x - m) - ln s, with m = max x and s = sum exp(x - m).
 * One work-group per row; one item per row where rows are short or adjacent in memory, several groups per row where
 * rows are few and long.
 *
 * PHASE 0 computes a row at once. Otherwise PHASE 1 leaves m and s of the row's parts in the workspace, and PHASE 2
 * joins these and writes the parts. */
/* launch
 * let(many=y.numel // max(1, y.shape[-1]) >= 256 * device.units, adjacent=abs(x.strides[-2]) < abs(x.strides[-1]))
 * launch_rows(entry="softmax", y=y, values=3, alone=adjacent and many)
 */
#include "simt.h"
#include "exponentials.h"

IK_ENTRY(softmax)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], row = IK_TASK / p.parts, part = IK_TASK - row * p.parts;
    const ik_index begin = part * p.length, end = begin + p.length < d ? begin + p.length : d;
    const ik_index from = ik_offset(p.x, row * d), step = p.x.strides[last];
    ik_c max_value = IK_LOWEST;
    ik_sum sum = ik_sum_none();
#if PHASE == 2
    IK_GLOBAL const ik_exp_part *const stats = (IK_GLOBAL const ik_exp_part *)workspace + row * p.parts;
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        max_value = IK_FN(maximum)(max_value, stats[i].max_value);
    max_value = ik_group_maximum(max_value, scratch);
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        sum = ik_sum_add(sum, ik_exp_rescale(stats[i].max_value, ik_sum_value(stats[i].sum), max_value));
#else
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        max_value = IK_FN(maximum)(max_value, IK_LOAD(x, from + i * step));
    max_value = ik_group_maximum(max_value, scratch);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES)
        sum = ik_sum_add(sum, IK_FN(exp)(IK_LOAD(x, from + i * step) - max_value));
#endif
    sum = ik_group_sum(sum, scratch);
#if PHASE == 1
    if (IK_LANE == 0) {
        IK_GLOBAL ik_exp_part *const stat = (IK_GLOBAL ik_exp_part *)workspace + IK_TASK;
        stat->max_value = max_value;
        stat->sum = sum;
    }
#else
#ifdef IK_OP_log_softmax
    const ik_c last_step = IK_FN(log)(ik_sum_value(sum));
#else
    const ik_c last_step = 1 / ik_sum_value(sum);
#endif
    const ik_index to = ik_offset(p.y, row * d);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES) {
        const ik_c v = IK_LOAD(x, from + i * step) - max_value;
#ifdef IK_OP_log_softmax
        IK_STORE(y, to + i * p.y.strides[last], v - last_step);
#else
        IK_STORE(y, to + i * p.y.strides[last], IK_FN(exp)(v) * last_step);
#endif
    }
#endif
}
