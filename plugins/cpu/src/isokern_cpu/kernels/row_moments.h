/* The mean of a row, and the sum of the squared deviations from it, for the norms that subtract a mean. The sum of a
 * chunk is that of a second pass over it in cache; chunks are joined as by Chan, Golub & LeVeque (1979). */
#ifndef IK_ROW_MOMENTS_H
#define IK_ROW_MOMENTS_H
#include "row_reduction.h"

/* a: mean; b: sum of squared deviations from it */
static inline void ik_join_moments(ik_stat *whole, int64_t before, ik_stat part, int64_t count)
{
    double all = (double)(before + count), delta = part.a - whole->a;
    whole->a += delta * (double)count / all;
    whole->b += part.b + delta * delta * ((double)before * (double)count / all);
}

#define IK_FILE "row_moments.h"
#include "each_type.h"

#elif defined(IK_T)

static inline ik_stat IK_OF(ik_measure_moments)(
    const ik_row_reduction *r, const char *from, int64_t n, ik_chunk *buffer, const ik_row_neighbours *neighbours)
{
    (void)neighbours;
    const IK_T *x = ik_fetch(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, buffer);
    double mean = IK_OF(ik_sum_of)(IK_SUM, n, x, 0) / (double)n;
    return (ik_stat){ .a = mean, .b = IK_OF(ik_sum_of)(IK_SQUARES, n, x, (IK_T)mean) };
}

#endif
