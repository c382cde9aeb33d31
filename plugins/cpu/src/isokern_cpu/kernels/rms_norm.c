/* rms_norm of rows: y = x / sqrt(mean(x^2) + eps) * w. This file includes itself, for float and for double. */
#ifndef IK_T
#include "row_reduction.h"
#include "operators/rms_norm.h"

static void join(ik_stat *whole, int64_t before, ik_stat part, int64_t count)
{
    (void)before, (void)count;
    whole->a += part.a;
}

#define IK_FILE "rms_norm.c"
#include "each_type.h"

IK_WORKSPACE(rms_norm) { return ik_row_reduction_workspace(plan); }

IK_KERNEL(rms_norm)
{
    IK_UNUSED;
    const ik_rms_norm_attrs *attrs = plan->attrs;
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
    const IK_T *x = IK_OF(ik_fetch)(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, (IK_T *)buffer);
    return (ik_stat){ IK_OF(ik_sum_of)(IK_SQUARES, n, x, 0), 0 };
}

static void IK_OF(write)(const ik_row_reduction *r, const char *from, char *to, int64_t at, int64_t n,
    const ik_stat *stat, ik_chunk *buffer, bool kept, const char *next)
{
    IK_T scratch[IK_TILE] IK_ALIGNED;
    int64_t from_stride = r->tx->strides[r->tx->ndim - 1], stride = r->ty->strides[r->ty->ndim - 1];
    const IK_T *x = (const IK_T *)buffer + at, *w = r->operand[0];
    if (!kept || (from_stride == 1 && r->tx->dtype != IK_F16 && r->tx->dtype != IK_BF16))
        x = IK_OF(ik_fetch)(r->tx->dtype, from, from_stride, n, scratch);
    if (next != NULL) /* prefetching keeps memory busy while this cached row is written */
        ik_prefetch(next, n * r->size);
    IK_T *y = IK_OF(ik_place)(r->ty->dtype, to, stride, r->stream, scratch);
    IK_T factor = (IK_T)(1 / ik_sqrt_f64(stat->a / (double)r->d + r->eps));
    if (w == NULL) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * factor;
    } else {
        w += at;
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * factor * w[i];
    }
    IK_OF(ik_put)(r->ty->dtype, y, to, stride, n, r->stream);
}

#endif
