/* iota: y[..., i] = start + step * i along the last dim, one item per element. */
/* launch
 * let(y=coalesce([y], 1)[0])
 * iota(items=y.numel)
 */
#include "simt.h"

IK_ENTRY(iota)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_index row = IK_ITEM / p.y.shape[last], i = IK_ITEM - row * p.y.shape[last];
    const ik_index to = p.y.offset + ik_offset_within(p.y, 0, last, row) + i * p.y.strides[last];
    const ik_u64 number = (ik_u64)p.attr_start + (ik_u64)p.attr_step * (ik_u64)i; /* a product may be out of range */
    IK_STORE(y, to, (ik_c)(ik_i64)number);
}
