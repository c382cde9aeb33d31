/* The accumulator of reductions and poolings: a sum, or with FOLD_PRODUCT a product, or with FOLD_MAXIMUM or
 * FOLD_MINIMUM an extreme, NaN where a term is NaN. */
#ifndef IK_FOLD_H
#define IK_FOLD_H
#include "group.h"
#if !defined(FOLD_MAXIMUM) && !defined(FOLD_MINIMUM) && !defined(FOLD_PRODUCT)
#define FOLD_SUM
#endif

/* A product or an extreme is near.high. A sum in F32 is near + far * 2^64: `far` adds up, scaled by 2^-64, the terms
 * that might overflow on the way. */
typedef struct {
    ik_sum near, far;
} ik_fold;

static IK_INLINE ik_fold ik_fold_none(void)
{
    ik_fold none;
    none.near = none.far = ik_sum_none();
#if defined(FOLD_MAXIMUM)
    none.near.high = IK_LOWEST;
#elif defined(FOLD_MINIMUM)
    none.near.high = IK_LARGEST;
#elif defined(FOLD_PRODUCT)
    none.near.high = 1;
#endif
    return none;
}

static IK_INLINE ik_fold ik_fold_add(ik_fold f, ik_c value)
{
#if defined(FOLD_MAXIMUM)
    f.near.high = IK_FN(maximum)(f.near.high, value);
#elif defined(FOLD_MINIMUM)
    f.near.high = IK_FN(minimum)(f.near.high, value);
#elif defined(FOLD_PRODUCT)
    f.near.high = ik_product(f.near.high, value);
#elif defined(IK_COMPUTE_F32)
    if (ik_abs_f32(value) <= 0x1p90f) /* 2^33 of these stay below 2^124 */
        f.near = ik_sum_add(f.near, value);
    else
        f.far = ik_sum_add(f.far, value * 0x1p-64f);
#else
    f.near = ik_sum_add(f.near, value);
#endif
    return f;
}

static IK_INLINE ik_fold ik_fold_join(ik_fold a, ik_fold b)
{
#ifndef FOLD_SUM
    a = ik_fold_add(a, b.near.high);
#else
    a.near = ik_sum_join(a.near, b.near);
    a.far = ik_sum_join(a.far, b.far);
#endif
    return a;
}

/* Join the folds of the items of the group; `scratch` holds 2 values per item. */
#if IK_LANES == 1
#define ik_fold_group(f, scratch) (f)
#else
static IK_INLINE ik_fold ik_fold_group(ik_fold f, IK_LOCAL ik_c *scratch)
{
#if defined(FOLD_MAXIMUM)
    f.near.high = ik_group_maximum(f.near.high, scratch);
#elif defined(FOLD_MINIMUM)
    f.near.high = ik_group_minimum(f.near.high, scratch);
#elif defined(FOLD_PRODUCT)
    f.near.high = ik_group_product(f.near.high, scratch);
#else
    f.near = ik_group_sum(f.near, scratch);
#ifdef IK_COMPUTE_F32
    f.far = ik_group_sum(f.far, scratch);
#endif
#endif
    return f;
}
#endif

/* The value of a fold: the product, the extreme, or the sum divided by `count`, which is 1 except for a mean. */
static IK_INLINE ik_c ik_fold_value(ik_fold f, ik_c count)
{
#ifndef FOLD_SUM
    return f.near.high;
#elif !defined(IK_COMPUTE_F32)
    return ik_sum_value(f.near) / count;
#else
    const ik_c near = ik_sum_value(f.near) / count, far = ik_sum_value(f.far);
    return far == 0 ? near : (far / count + near * 0x1p-64f) * 0x1p64f;
#endif
}
#endif
