/* The accumulator of a loop nest (`fold.h`), and the launch that joins parts, which the workspace holds as
 * [part][output]. */
#ifndef IK_GENERIC_H
#define IK_GENERIC_H
#include "simt.h"
#if defined(IK_COMBINE_maximum)
#define FOLD_MAXIMUM
#elif defined(IK_COMBINE_minimum)
#define FOLD_MINIMUM
#elif defined(IK_COMBINE_product)
#define FOLD_PRODUCT
#endif
#include "fold.h"

/* Store a result as element i of y, or of memory like it, converted as a cast does. */
#ifdef IK_COMPUTE_FLOAT
#include "conversions.h"
#define PUT(to, i, v) MAKE(to, i, v)
#else
#define PUT(to, i, v) IK_PASTE(ik_store_, IK_TYPE_y)(to, i, v)
#endif

IK_ENTRY(generic_join)(IK_PARAMS)
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
    if (IK_LANE == 0) {
        const ik_c start = (ik_c)IK_LOAD(init, p.init.offset + ik_offset_within(p.init, 0, (int)p.kept, output));
        PUT(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), ik_fold_value(ik_fold_add(f, start), 1));
    }
}
#endif
