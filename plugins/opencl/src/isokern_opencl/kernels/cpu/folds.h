/* The folds of `fold.h` over contiguous runs, by whole registers. */
#ifndef IK_FOLDS_H
#define IK_FOLDS_H
#include "rows.h"
#include "fold.h"

#ifdef FOLD_MAXIMUM
enum { LARGEST = 1 };
#else
enum { LARGEST = 0 };
#endif

static IK_INLINE ik_vec ik_lanes_fold(ik_vec a, ik_vec b)
{
#if defined(FOLD_MAXIMUM) || defined(FOLD_MINIMUM)
    return ik_lanes_extreme(a, b, LARGEST);
#elif defined(FOLD_PRODUCT)
    return a * b;
#else
    return a + b;
#endif
}

/* Join n contiguous elements to f. */
static IK_INLINE ik_fold ik_fold_run(ik_fold f, IK_GLOBAL const ik_t *x, ik_index n)
{
#if defined(FOLD_MAXIMUM) || defined(FOLD_MINIMUM)
    return ik_fold_add(f, ik_row_extreme(x, n, LARGEST));
#elif defined(FOLD_PRODUCT)
    ik_index i = 0;
    if (n >= IK_WIDTH) {
        ik_vec all = ik_vec_load(x);
        for (i = IK_WIDTH; n - i >= IK_WIDTH; i += IK_WIDTH)
            all *= ik_vec_load(x + i);
        ik_c lanes[IK_WIDTH] IK_ALIGNED;
        *(ik_vec *)lanes = all;
        for (int k = 0; k < IK_WIDTH; k++)
            f = ik_fold_add(f, lanes[k]);
    }
    for (; i < n; i++)
        f = ik_fold_add(f, ik_value(x + i));
    return f;
#else
    const ik_sum sum = ik_row_sum(x, n, 0, 0);
    if (ik_within(ik_sum_value(sum)))
        f.near = ik_sum_join(f.near, sum);
    else
        for (ik_index i = 0; i < n; i++)
            f = ik_fold_add(f, ik_value(x + i));
    return f;
#endif
}
#endif
