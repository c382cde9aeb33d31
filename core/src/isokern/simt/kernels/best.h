/* The running result of argmax: the largest element and its place, the better of two such, and the launch that joins
 * parts, which the workspace holds as [part][output]. */
#ifndef IK_BEST_H
#define IK_BEST_H
#include "simt.h"
#include "group.h"

/* The largest element so far and its place, as 16 bytes; -1 where there is none. */
typedef struct {
    ik_c value;
#ifdef IK_COMPUTE_F32
    ik_i32 pad;
#endif
    ik_i64 at;
} best;

static IK_INLINE best best_of(ik_c value, ik_i64 at)
{
    best made;
#ifdef IK_COMPUTE_F32
    made.pad = 0;
#endif
    made.value = value;
    made.at = at;
    return made;
}

static IK_INLINE best better(best a, best b)
{
#ifdef IK_COMPUTE_FLOAT
    const int nan = a.value != a.value, other_nan = b.value != b.value;
    const int larger = nan != other_nan ? other_nan : b.value > a.value,
              as_large = nan ? other_nan : b.value == a.value;
#else
    const int larger = b.value > a.value, as_large = b.value == a.value;
#endif
    return b.at >= 0 && (a.at < 0 || larger || (as_large && b.at < a.at)) ? b : a;
}

#if IK_LANES == 1
#define group_best(b, values, places) (b)
#else
static IK_INLINE best group_best(best b, IK_LOCAL ik_c *values, IK_LOCAL ik_i64 *places)
{
    const int id = IK_LOCAL_ID;
    values[id] = b.value;
    places[id] = b.at;
    for (int left = IK_GROUP / 2; left > 0; left /= 2) {
        IK_BARRIER();
        if (id < left) {
            b = better(b, best_of(values[id + left], places[id + left]));
            values[id] = b.value;
            places[id] = b.at;
        }
    }
    return b; /* valid in the first item */
}
#endif

/* Join the parts of each output. */
IK_ENTRY(argmax_join)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, values, 1)
    IK_SCRATCH(ik_i64, places, 1)
    const ik_index output = IK_TASK;
    IK_GLOBAL const best *const parts = (IK_GLOBAL const best *)workspace;
    best b = best_of(0, -1);
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        b = better(b, parts[i * p.outputs + output]);
    b = group_best(b, values, places);
    if (IK_LANE == 0)
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.x.ndim - 1, output), b.at);
}
#endif
