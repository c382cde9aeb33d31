/* The running result of argmax: the largest element and its place, and the better of two such. */
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
#endif
