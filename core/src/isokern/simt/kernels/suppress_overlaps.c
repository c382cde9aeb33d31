/* suppress_overlaps: of boxes in the order of their scores, those that no better one overlaps; a work-group a group.
 * The flags are those in `keep`, which every box that stays clears of the boxes behind it that it overlaps. */
/* launch
 * let(groups=keep.shape[0] if keep.numel > 0 else 0, n=keep.shape[1])
 * suppress_overlaps(groups=groups, local=64 if n <= 128 else 256, length=n)
 */
#include "simt.h"
#include "isokern_math.h"

#ifdef IK_COMPUTE_F32
#define DIVIDE(a, b) IK_DIV_F32(a, b)
#else
#define DIVIDE(a, b) ((a) / (b))
#endif
#define CORNER(i, r) IK_LOAD(boxes, from + (i) * p.boxes.strides[1] + (r) * p.boxes.strides[2])
#define KEEP(i) keep[to + (i) * p.keep.strides[1]]

static IK_INLINE ik_c shared_side(ik_c a0, ik_c a1, ik_c b0, ik_c b1)
{
    const ik_c side = (a1 < b1 ? a1 : b1) - (a0 > b0 ? a0 : b0);
    return side > 0 ? side : (ik_c)0;
}

IK_ENTRY(suppress_overlaps)(IK_PARAMS)
{
    const ik_index n = (ik_index)p.length, group = IK_GROUP_ID;
    const ik_index to = p.keep.offset + group * p.keep.strides[0], from = p.boxes.offset + group * p.boxes.strides[0],
                   flags = p.valid.offset + group * p.valid.strides[0];
    const ik_c threshold = (ik_c)p.attr_iou_threshold;
    for (ik_index i = IK_LOCAL_ID; i < n; i += IK_GROUP)
        KEEP(i) = valid[flags + i * p.valid.strides[1]];
    ik_i64 left = p.attr_limit == 0 ? n : p.attr_limit;
    ik_index i = 0;
    for (; i < n && left > 0; i++) {
        IK_BARRIER_GLOBAL();
        if (KEEP(i)) {
            const ik_c a0 = CORNER(i, 0), a1 = CORNER(i, 1), b0 = CORNER(i, 2), b1 = CORNER(i, 3);
            const ik_c area = (b0 - a0) * (b1 - a1);
            left--;
            for (ik_index k = i + 1 + IK_LOCAL_ID; k < n; k += IK_GROUP) {
                const ik_c c0 = CORNER(k, 0), c1 = CORNER(k, 1), d0 = CORNER(k, 2), d1 = CORNER(k, 3);
                const ik_c shared = shared_side(a0, b0, c0, d0) * shared_side(a1, b1, c1, d1);
                const ik_c other = (d0 - c0) * (d1 - c1), total = area + other;
                if (DIVIDE(shared, total - shared) > threshold)
                    KEEP(k) = 0;
            }
        }
    }
    IK_BARRIER_GLOBAL();
    for (i += IK_LOCAL_ID; i < n; i += IK_GROUP)
        KEEP(i) = 0;
}
