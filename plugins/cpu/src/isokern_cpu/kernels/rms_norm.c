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
    const IK_T *x = ik_fetch(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, buffer);
    return (ik_stat){ .a = IK_OF(ik_sum_of)(IK_SQUARES, n, x, 0), .b = 0 };
}

static void IK_OF(write)(const ik_row_reduction *r, int64_t row, int64_t at, int64_t n, const ik_stat *stat,
    const void *x, void *y, bool kept)
{
    (void)row, (void)kept;
    const IK_T *w = r->operand[0];
    IK_OF(ik_scale)(n, x, (IK_T)(1 / ik_sqrt_f64(stat->a / (double)r->d + r->eps)), w == NULL ? NULL : w + at, y);
}

#endif
