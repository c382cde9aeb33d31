/* rms_norm: y = x / sqrt(mean(x^2) + eps) * w, a work-group a row. */
/* launch
 * let(rows=y.numel // max(1, y.shape[-1]))
 * rms_norm(groups=rows, local=128, length=y.shape[-1])
 */
#include "simt.h"
#include "group.h"
#include "isokern_math.h"

IK_ENTRY(rms_norm)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_c, scratch, IK_GROUP);
    const int last = (int)p.y.ndim - 1;
    const ik_index n = p.length, row = IK_GROUP_ID * n;
    const ik_index from = ik_offset(p.x, row), to = ik_offset(p.y, row);
    ik_c sum = 0;
    for (ik_index i = IK_LOCAL_ID; i < n; i += IK_GROUP) {
        const ik_c v = IK_LOAD(x, from + i * p.x.strides[last]);
        sum += v * v;
    }
    const ik_c mean = ik_group_sum(sum, scratch) / (ik_c)n;
    const ik_c factor = IK_FN(rsqrt)(mean + p.attr_eps);
    for (ik_index i = IK_LOCAL_ID; i < n; i += IK_GROUP) {
        ik_c v = IK_LOAD(x, from + i * p.x.strides[last]) * factor;
#ifdef IK_HAS_w
        v *= IK_LOAD(w, p.w.offset + i * p.w.strides[(int)p.w.ndim - 1]);
#endif
        IK_STORE(y, to + i * p.y.strides[last], v);
    }
}
