/* causal_softmax: y = exp(x - m) / s over the keys that query i of n sees, those up to (number of keys) - n + i, and 0
 * for the others, with m the maximum and s the sum over the keys seen. One work-group per row; one item per row where
 * rows are short. */
/* launch
 * let(d=y.shape[-1], rows=y.numel // max(1, y.shape[-1]))
 * causal_softmax(when=d <= 32, items=rows, ALONE=1)
 * causal_softmax(when=d > 32, groups=rows, local=64 if d <= 512 else 256)
 */
#include "simt.h"
#include "group.h"

IK_ENTRY(causal_softmax)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const int last = (int)p.y.ndim - 1;
    const ik_index d = p.y.shape[last], queries = p.y.shape[last - 1], line = IK_TASK / queries,
                   query = IK_TASK - line * queries;
    const ik_index behind = queries - 1 - query, seen = behind < d ? d - behind : 0;
    const ik_index from = ik_offset(p.x, IK_TASK * d), step = p.x.strides[last], to = ik_offset(p.y, IK_TASK * d);
    ik_c row_max = IK_LOWEST;
    ik_sum sum = ik_sum_none();
    for (ik_index i = IK_LANE; i < seen; i += IK_LANES)
        row_max = IK_FN(maximum)(row_max, IK_LOAD(x, from + i * step));
    row_max = ik_group_maximum(row_max, scratch);
    for (ik_index i = IK_LANE; i < seen; i += IK_LANES)
        sum = ik_sum_add(sum, IK_FN(exp)(IK_LOAD(x, from + i * step) - row_max));
    sum = ik_group_sum(sum, scratch);
    const ik_c factor = 1 / ik_sum_value(sum);
    for (ik_index i = IK_LANE; i < d; i += IK_LANES)
        IK_STORE(
            y, to + i * p.y.strides[last], i < seen ? IK_FN(exp)(IK_LOAD(x, from + i * step) - row_max) * factor : 0);
}
