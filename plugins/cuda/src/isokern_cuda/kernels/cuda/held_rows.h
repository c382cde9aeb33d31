/* Contiguous rows, with LANES threads per row, which are part of a warp or a whole block: they read x once and keep it
 * in registers, PER packs each, pack `i` of them at element IK_AT(i). */
#ifndef IK_HELD_ROWS_H
#define IK_HELD_ROWS_H
#include "packs.h"
#include "group.h"

#define ROW ((IK_GROUP_ID * IK_GROUP + IK_LOCAL_ID) / LANES)
#define IK_AT(i) (((ik_index)(i) * LANES + IK_LOCAL_ID % LANES) * EACH)

/* Reductions over the threads of a row, with the result in all of them; `scratch` holds 2 values per thread. */
#if LANES > 32
#define row_sum ik_group_sum
#define row_maximum ik_group_maximum
#else
static IK_INLINE ik_sum row_sum(ik_sum sum, ik_c *scratch)
{
    for (int left = LANES / 2; left > 0; left /= 2) {
        const ik_sum other = { IK_SHUFFLE_DOWN(sum.high, left), IK_SHUFFLE_DOWN(sum.low, left) };
        sum = ik_sum_join(sum, other);
    }
    ik_c *const shared = scratch + IK_LOCAL_ID / LANES * 2;
    if (IK_LOCAL_ID % LANES == 0) {
        shared[0] = sum.high;
        shared[1] = sum.low;
    }
    IK_BARRIER();
    sum.high = shared[0];
    sum.low = shared[1];
    IK_BARRIER();
    return sum;
}

static IK_INLINE ik_c row_maximum(ik_c value, ik_c *scratch)
{
    for (int left = LANES / 2; left > 0; left /= 2)
        value = IK_FN(maximum)(value, IK_SHUFFLE_DOWN(value, left));
    ik_c *const shared = scratch + IK_LOCAL_ID / LANES;
    if (IK_LOCAL_ID % LANES == 0)
        *shared = value;
    IK_BARRIER();
    value = *shared;
    IK_BARRIER();
    return value;
}
#endif

/* The part of a row that a thread holds, in the compute type; nothing beyond the row's end. */
struct held_row {
    ik_c v[PER][EACH];
    ik_index d;

    template <class T>
    IK_INLINE void read(const T *from, ik_index length)
    {
        d = length;
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d) {
                const auto some = get(from + IK_AT(i));
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    v[i][j] = LOAD_OF(x, some, j);
            }
    }

    /* visit(element) for each element held */
    template <class F>
    IK_INLINE void each(F visit)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d)
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    visit(v[i][j]);
    }

    /* visit(element, the element of another line of x's dtype at its place) for each element held */
    template <class T, class F>
    IK_INLINE void with(const T *line, F visit)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d) {
                const auto some = get(line + IK_AT(i));
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    visit(v[i][j], LOAD_OF(x, some, j));
            }
    }

    template <class T>
    IK_INLINE void write(T *to)
    {
#pragma unroll
        for (int i = 0; i < PER; i++)
            if (IK_AT(i) < d) {
                auto made = pack_of(to);
#pragma unroll
                for (int j = 0; j < EACH; j++)
                    STORE_OF(y, made, j, v[i][j]);
                put(to + IK_AT(i), made);
            }
    }
};
#endif
