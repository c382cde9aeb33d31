/* The accumulator of a reduction (`fold.h`), its result, and the launch that joins parts, which the workspace holds as
 * [part][output]. */
#ifndef IK_REDUCTIONS_H
#define IK_REDUCTIONS_H
#include "simt.h"
#if defined(IK_OP_reduce_max)
#define FOLD_MAXIMUM
#elif defined(IK_OP_reduce_min)
#define FOLD_MINIMUM
#elif defined(IK_OP_reduce_prod)
#define FOLD_PRODUCT
#endif
#include "fold.h"

static IK_INLINE ik_c result(ik_fold f, ik_i64 d)
{
#ifdef IK_OP_reduce_mean
    return ik_fold_value(f, (ik_c)d);
#else
    return ik_fold_value(f, 1);
#endif
}

/* Join the parts of each output. */
IK_ENTRY(reduce_join)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    const ik_index output = IK_TASK;
    IK_GLOBAL const ik_fold *const parts = (IK_GLOBAL const ik_fold *)workspace;
    ik_fold f = ik_fold_none();
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        f = ik_fold_join(f, parts[i * p.outputs + output]);
    f = ik_fold_group(f, scratch);
    if (IK_LANE == 0)
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), result(f, p.d));
}
#endif
