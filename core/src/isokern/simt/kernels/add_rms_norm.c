/* add_rms_norm: sum = x + residual, y = sum / sqrt(mean(sum^2) + eps) * w, computed from the sum as it was rounded. One
 * work-group per row; one item per row where rows are short, several groups per row where rows are few and long.
 *
 * PHASE 0 computes a row at once. Otherwise PHASE 1 writes the sum and leaves the sums of squares of the row's parts in
 * the workspace, and PHASE 2 writes y. An item reads back only what it or an earlier launch wrote. */
/* launch
 * tensors(y, total, x, residual, w)
 * launch_rows(entry="add_rms_norm", y=y, values=2)
 */
#include "simt.h"
#include "group.h"

IK_ENTRY(add_rms_norm)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], row = IK_TASK / p.parts, part = IK_TASK - row * p.parts;
    const ik_index begin = part * p.length, end = begin + p.length < d ? begin + p.length : d;
    const ik_index held = ik_offset(p.total, row * d), step = p.total.strides[last];
    ik_sum squares = ik_sum_none();
#if PHASE == 2
    IK_GLOBAL const ik_sum *const others = (IK_GLOBAL const ik_sum *)workspace + row * p.parts;
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        squares = ik_sum_join(squares, others[i]);
#else
    const ik_index a = ik_offset(p.x, row * d), b = ik_offset(p.residual, row * d);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES) {
        IK_STORE(total, held + i * step,
            IK_LOAD(x, a + i * p.x.strides[last]) + IK_LOAD(residual, b + i * p.residual.strides[last]));
        const ik_c v = IK_LOAD(total, held + i * step);
        squares = ik_sum_add(squares, v * v);
    }
#endif
    squares = ik_group_sum(squares, scratch);
#if PHASE == 1
    if (IK_LANE == 0)
        ((IK_GLOBAL ik_sum *)workspace)[IK_TASK] = squares;
#else
    const ik_c factor = IK_FN(rsqrt)(ik_sum_value(squares) / (ik_c)d + p.attr_eps);
    const ik_index to = ik_offset(p.y, row * d);
    for (ik_index i = begin + IK_LANE; i < end; i += IK_LANES) {
        ik_c v = IK_LOAD(total, held + i * step) * factor;
#ifdef IK_HAS_w
        v *= IK_LOAD(w, p.w.offset + i * p.w.strides[(int)p.w.ndim - 1]);
#endif
        IK_STORE(y, to + i * p.y.strides[last], v);
    }
#endif
}
