/* The accumulator of a reduction (`fold.h`), and its result. */
#ifndef IK_REDUCTIONS_H
#define IK_REDUCTIONS_H
#include "simt.h"
#if defined(IK_OP_reduce_max)
#define FOLD_MAXIMUM
#elif defined(IK_OP_reduce_min)
#define FOLD_MINIMUM
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
#endif
