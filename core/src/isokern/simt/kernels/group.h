/* Sums and extremes: first of one item's elements, then, in local memory, of the items that work on one task.
 *
 * The items of a task are a work-group or, where a launch defines ALONE, one item, which waits for nothing:
 *     task IK_TASK, item IK_LANE of IK_LANES, local memory IK_SCRATCH(type, name, values per item).
 *
 * Every item of a group calls the group's functions and gets the result. The order of the additions is fixed, so the
 * result is the same on every run. */
#ifndef IK_GROUP_H
#define IK_GROUP_H
#include "isokern_int.h"
#include "isokern_math.h"

#ifdef ALONE
#define IK_TASK IK_ITEM
#else
#define IK_TASK IK_GROUP_ID
#endif

/* A sum and its accumulated rounding error (compensated summation), so that long sums stay accurate. Integers wrap. */
typedef struct {
    ik_c high, low;
} ik_sum;

/* Knuth's TwoSum */
static IK_INLINE ik_sum ik_sum_add(ik_sum sum, ik_c value)
{
#ifdef IK_COMPUTE_FLOAT
    const ik_c high = sum.high + value, part = high - sum.high;
    sum.low += (sum.high - (high - part)) + (value - part);
    sum.high = high;
#else
    sum.high = (ik_c)((ik_u64)sum.high + (ik_u64)value);
#endif
    return sum;
}

static IK_INLINE ik_sum ik_sum_join(ik_sum a, ik_sum b)
{
    a = ik_sum_add(a, b.high);
    a.low += b.low;
    return a;
}

/* Where the sum is not finite, `low` is NaN and is ignored. */
static IK_INLINE ik_c ik_sum_value(ik_sum sum)
{
#ifdef IK_COMPUTE_FLOAT
    return sum.low == sum.low ? sum.high + sum.low : sum.high;
#else
    return sum.high;
#endif
}

static IK_INLINE ik_sum ik_sum_none(void)
{
    ik_sum none;
    none.high = none.low = 0;
    return none;
}

static IK_INLINE ik_c ik_product(ik_c a, ik_c b)
{
#ifdef IK_COMPUTE_FLOAT
    return a * b;
#else
    return (ik_c)((ik_u64)a * (ik_u64)b); /* wraps */
#endif
}

#if defined(ALONE) || IK_GROUP == 1
#define IK_LANE 0
#define IK_LANES 1
#define IK_SCRATCH(type, name, count)
#define ik_group_sum(sum, scratch) (sum)
#define ik_group_maximum(value, scratch) (value)
#define ik_group_minimum(value, scratch) (value)
#define ik_group_product(value, scratch) (value)
#else
#define IK_LANE IK_LOCAL_ID
#define IK_LANES IK_GROUP
#define IK_SCRATCH(type, name, count) IK_LOCAL_ARRAY(type, name, (count) * IK_GROUP);

/* A prelude with sub-groups defines IK_SUBGROUP (items of one, a power of two), IK_SUBGROUP_ID, IK_SUBGROUP_LANE and
 * IK_SHUFFLE_DOWN(value, lanes), the value of the item that many lanes further. Each sub-group is then reduced to its
 * first item without a barrier, and `scratch` holds one value per sub-group. */
#ifdef IK_SHUFFLE_DOWN
#define IK_PARTS (IK_GROUP / IK_SUBGROUP)
#define IK_PART IK_SUBGROUP_ID
#else
#define IK_PARTS IK_GROUP
#define IK_PART IK_LOCAL_ID
#endif

/* The sum over the group; `scratch` holds 2 values per item. */
static IK_INLINE ik_sum ik_group_sum(ik_sum sum, IK_LOCAL ik_c *scratch)
{
    const int id = IK_LOCAL_ID;
#ifdef IK_SHUFFLE_DOWN
    for (int left = IK_SUBGROUP / 2; left > 0; left /= 2) {
        ik_sum other;
        other.high = IK_SHUFFLE_DOWN(sum.high, left);
        other.low = IK_SHUFFLE_DOWN(sum.low, left);
        sum = ik_sum_join(sum, other);
    }
    if (IK_SUBGROUP_LANE == 0)
#endif
    {
        scratch[IK_PART] = sum.high;
        scratch[IK_GROUP + IK_PART] = sum.low;
    }
#ifdef IK_SHUFFLE_DOWN
    IK_BARRIER();
    if (id < IK_PARTS) {
        sum.high = scratch[id];
        sum.low = scratch[IK_GROUP + id];
    }
#endif
    for (int left = IK_PARTS / 2; left > 0; left /= 2) {
        IK_BARRIER();
        if (id < left) {
            ik_sum other;
            other.high = scratch[id + left];
            other.low = scratch[IK_GROUP + id + left];
            sum = ik_sum_join(sum, other);
            scratch[id] = sum.high;
            scratch[IK_GROUP + id] = sum.low;
        }
    }
    IK_BARRIER();
    sum.high = scratch[0];
    sum.low = scratch[IK_GROUP];
    IK_BARRIER();
    return sum;
}

enum { IK_JOIN_MINIMUM, IK_JOIN_MAXIMUM, IK_JOIN_PRODUCT };

static IK_INLINE ik_c ik_join_two(int how, ik_c a, ik_c b)
{
    return how == IK_JOIN_PRODUCT ? ik_product(a, b)
        : how == IK_JOIN_MAXIMUM  ? IK_FN(maximum)(a, b)
                                  : IK_FN(minimum)(a, b);
}

/* The largest or smallest value of the group, NaN where there is one, or the product of all; `scratch` holds a value
 * per item. */
static IK_INLINE ik_c ik_group_join(int how, ik_c value, IK_LOCAL ik_c *scratch)
{
    const int id = IK_LOCAL_ID;
#ifdef IK_SHUFFLE_DOWN
    for (int left = IK_SUBGROUP / 2; left > 0; left /= 2) {
        const ik_c other = IK_SHUFFLE_DOWN(value, left);
        value = ik_join_two(how, value, other);
    }
    if (IK_SUBGROUP_LANE == 0)
#endif
        scratch[IK_PART] = value;
#ifdef IK_SHUFFLE_DOWN
    IK_BARRIER();
    if (id < IK_PARTS)
        value = scratch[id];
#endif
    for (int left = IK_PARTS / 2; left > 0; left /= 2) {
        IK_BARRIER();
        if (id < left) {
            const ik_c other = scratch[id + left];
            value = ik_join_two(how, value, other);
            scratch[id] = value;
        }
    }
    IK_BARRIER();
    value = scratch[0];
    IK_BARRIER();
    return value;
}

static IK_INLINE ik_c ik_group_maximum(ik_c value, IK_LOCAL ik_c *scratch)
{ return ik_group_join(IK_JOIN_MAXIMUM, value, scratch); }
static IK_INLINE ik_c ik_group_minimum(ik_c value, IK_LOCAL ik_c *scratch)
{ return ik_group_join(IK_JOIN_MINIMUM, value, scratch); }
static IK_INLINE ik_c ik_group_product(ik_c value, IK_LOCAL ik_c *scratch)
{ return ik_group_join(IK_JOIN_PRODUCT, value, scratch); }
#endif
#endif
