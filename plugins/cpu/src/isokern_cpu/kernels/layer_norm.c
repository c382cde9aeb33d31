/* layer_norm of rows: y = (x - mean) / sqrt(var + eps) * w + bias, the variance from a second pass over each chunk in
 * cache.
 *
 * Chunks are joined by the method of Chan, Golub & LeVeque (1979). This file includes itself, for float and for
 * double. */
#ifndef IK_T
#include "row_reduction.h"
#include "operators/layer_norm.h"

/* a: mean; b: sum of squared deviations from it */
static void join(ik_stat *whole, int64_t before, ik_stat part, int64_t count)
{
    double all = (double)(before + count), delta = part.a - whole->a;
    whole->a += delta * (double)count / all;
    whole->b += part.b + delta * delta * ((double)before * (double)count / all);
}

#define IK_FILE "layer_norm.c"
#include "each_type.h"

IK_WORKSPACE(layer_norm) { return ik_row_reduction_workspace(plan); }

IK_KERNEL(layer_norm)
{
    IK_UNUSED;
    const ik_layer_norm_attrs *attrs = plan->attrs;
    bool wide = plan->tensors[0].dtype == IK_F64;
    ik_row_reduction r = { .eps = attrs->eps,
        .measure = wide ? measure_f64 : measure_f32,
        .join = join,
        .write = wide ? write_f64 : write_f32 };
    if (ik_row_reduction_set_up(&r, plan, data, workspace))
        ik_row_reduction_run(&r);
    return IK_SUCCESS;
}

#else

static ik_stat IK_OF(measure)(
    const ik_row_reduction *r, const char *from, int64_t n, ik_chunk *buffer, const ik_row_neighbours *neighbours)
{
    (void)neighbours;
    const IK_T *x = ik_fetch(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, buffer);
    double mean = IK_OF(ik_sum_of)(IK_SUM, n, x, 0) / (double)n;
    return (ik_stat){ mean, IK_OF(ik_sum_of)(IK_SQUARES, n, x, (IK_T)mean) };
}

static void IK_OF(write)(
    const ik_row_reduction *r, int64_t at, int64_t n, const ik_stat *stat, const void *from, void *to, bool kept)
{
    (void)kept;
    const IK_T *x = from, *w = r->operand[0], *bias = r->operand[1];
    IK_T *y = to, mean = (IK_T)stat->a, factor = (IK_T)(1 / ik_sqrt_f64(stat->b / (double)r->d + r->eps));
    if (w == NULL && bias == NULL) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * factor;
    } else if (bias == NULL) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * factor * w[at + i];
    } else if (w == NULL) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * factor + bias[at + i];
    } else {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * factor * w[at + i] + bias[at + i];
    }
}

#endif
