/* rms_norm: y = x / sqrt(mean(x^2) + eps) * w. One work-group per row; one item per row where rows are short, several
 * groups per row where rows are few and long.
 *
 * PHASE 0 computes a row at once. Otherwise PHASE 1 leaves the sums of the row's parts in the workspace, and PHASE 2
 * writes the parts. */
/* launch
 * launch_rows(entry="rms_norm", y=y, values=2)
 */
#include "simt.h"
#include "group.h"

IK_ENTRY(rms_norm)(IK_PARAMS)
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
    ik_sum sum = ik_sum_none();
#if PHASE == 2
    IK_GLOBAL const ik_sum *const sums = (IK_GLOBAL const ik_sum *)workspace + row * p.parts;
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        sum = ik_sum_join(sum, sums[i]);
#else
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES) {
        const ik_c v = IK_LOAD(x, from + i * step);
        sum = ik_sum_add(sum, v * v);
    }
#endif
    sum = ik_group_sum(sum, scratch);
#if PHASE == 1
    if (IK_LANE == 0)
        ((IK_GLOBAL ik_sum *)workspace)[IK_TASK] = sum;
#else
    const ik_c factor = IK_FN(rsqrt)(ik_sum_value(sum) / (ik_c)d + p.attr_eps);
    const ik_index to = ik_offset(p.y, row * d);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES) {
        ik_c v = IK_LOAD(x, from + i * step) * factor;
#ifdef IK_HAS_w
        v *= IK_LOAD(w, p.w.offset + i * p.w.strides[(int)p.w.ndim - 1]);
#endif
        IK_STORE(y, to + i * p.y.strides[last], v);
    }
#endif
}
