/* layer_norm of rows: y = (x - mean) / sqrt(var + eps) * w + bias, the variance from a second pass over each chunk in
 * cache. This file includes itself, for float and for double. */
#ifndef IK_T
#include "row_moments.h"
#include "operators/layer_norm.h"

#define IK_FILE "layer_norm.c"
#include "each_type.h"

IK_WORKSPACE(layer_norm) { return ik_row_reduction_workspace(plan); }

IK_KERNEL(layer_norm)
{
    IK_UNUSED;
    const ik_layer_norm_attrs *attrs = plan->attrs;
    bool wide = plan->tensors[0].dtype == IK_F64;
    ik_row_reduction r = { .eps = attrs->eps,
        .measure = wide ? ik_measure_moments_f64 : ik_measure_moments_f32,
        .join = ik_join_moments,
        .write = wide ? write_f64 : write_f32 };
    if (ik_row_reduction_set_up(&r, plan, data, workspace))
        ik_row_reduction_run(&r);
    return IK_SUCCESS;
}

#else

static void IK_OF(write)(const ik_row_reduction *r, int64_t row, int64_t at, int64_t n, const ik_stat *stat,
    const void *from, void *to, bool kept)
{
    (void)row, (void)kept;
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
