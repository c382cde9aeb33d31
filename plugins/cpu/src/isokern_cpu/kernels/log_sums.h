/* Logarithms of sums of exponentials of dense rows of any float type, each read once, for losses of classes. This file
 * includes itself, for float and for double. */
#ifndef IK_T
#ifndef IK_LOG_SUMS_H
#define IK_LOG_SUMS_H
#include "exponentials.h"

#define IK_FILE "log_sums.h"
#include "each_type.h"

/* Store a number of a float type. */
static inline void ik_store_one(const ik_tensor *t, char *y, double value)
{
    const float narrow = (float)value;
    if (t->dtype == IK_F64)
        ik_store_f64(&value, y, 1, 1);
    else
        ik_store_f32(t->dtype, &narrow, y, 1, 1);
}

/* Whether classes, axis 1, lie along memory. */
static inline bool ik_classes_are_dense(const ik_tensor *x)
{
    for (int32_t d = 2; d < x->ndim; d++)
        if (x->shape[d] != 1)
            return false;
    return x->strides[1] == 1 || x->shape[1] <= 1;
}
#endif

#else

/* ln sum of exp of n numbers; NaN where it is infinite, as exponentials below an infinity are. `scratch` has IK_CHUNK
 * numbers. As many bytes behind x are prefetched, since the next row lies there. */
static double IK_OF(ik_log_sum)(int32_t dtype, const char *x, int64_t n, IK_T *scratch)
{
    IK_T e[IK_EXP_PIECE] IK_ALIGNED;
    const int64_t size = ik_itemsize(dtype);
    ik_stat whole = { .a = -__builtin_inf(), .b = __builtin_nan("") };
    for (int64_t at = 0, count; at < n; at += count) {
        count = ik_min(IK_CHUNK, n - at);
        const char *from = x + at * size, *next = from + count * size;
        const IK_T *values = ik_fetch(dtype, from, 1, count, scratch),
                   max = IK_OF(ik_extreme_of)(IK_MAX, count, values);
        ik_stat part = { .a = (double)max };
        for (int64_t i = 0; i < count; i += IK_EXP_PIECE) {
            const int64_t some = ik_min(IK_EXP_PIECE, count - i);
            ik_prefetch(next + i * size, some * size);
            part.b += IK_OF(ik_exp_run)(some, values + i, max, e);
        }
        if (at == 0)
            whole = part;
        else
            ik_exp_join(&whole, at, part, count);
    }
    return whole.a + ik_log_f64(whole.b);
}

#endif
