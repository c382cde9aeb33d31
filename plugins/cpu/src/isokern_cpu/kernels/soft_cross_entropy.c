/* soft_cross_entropy: the sum over c of target[i, c] * (ln sum of exp(x[i]) - x[i, c]) of each row, or the sum or mean
 * of these; a task is a row, whose x is read from memory once, in its own type.
 *
 * Made of other operators, x of 16 bits is cast first: the whole takes between a third and a half of that time, and of
 * F32 half. This file includes itself, for float and for double. */
#ifndef IK_T
#include "log_sums.h"
#include "operators/soft_cross_entropy.h"

typedef struct job {
    const ik_tensor *tx, *ttarget;
    const char *x, *target;
    double *terms;
} job;

#define IK_FILE "soft_cross_entropy.c"
#include "each_type.h"

IK_SUPPORTED(soft_cross_entropy)
{
    const bool dense = ik_classes_are_dense(&plan->tensors[IK_SOFT_CROSS_ENTROPY_X]);
    return dense ? NULL : "classes that do not lie along memory";
}

IK_WORKSPACE(soft_cross_entropy) { return (uint64_t)plan->tensors[IK_SOFT_CROSS_ENTROPY_X].shape[0] * sizeof(double); }

IK_KERNEL(soft_cross_entropy)
{
    IK_UNUSED;
    const ik_soft_cross_entropy_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors, *ty = &t[IK_SOFT_CROSS_ENTROPY_Y];
    const job j = { .tx = &t[IK_SOFT_CROSS_ENTROPY_X],
        .ttarget = &t[IK_SOFT_CROSS_ENTROPY_TARGET],
        .x = ik_ptr(plan, data, IK_SOFT_CROSS_ENTROPY_X),
        .target = ik_ptr(plan, data, IK_SOFT_CROSS_ENTROPY_TARGET),
        .terms = workspace };
    const int64_t rows = j.tx->shape[0], size = ik_itemsize(ty->dtype), row_bytes = 2 * j.tx->shape[1] * size;
    if (rows > 0)
        ik_parallel_for(rows, 1 + IK_THREAD_BYTES / (1 + row_bytes), ty->dtype == IK_F64 ? run_f64 : run_f32,
            (void *)(uintptr_t)&j);
    char *y = ik_ptr(plan, data, IK_SOFT_CROSS_ENTROPY_Y);
    double loss = 0, rest = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (attrs->reduction == IK_SOFT_CROSS_ENTROPY_NONE)
            ik_store_one(ty, y + i * ty->strides[0] * size, j.terms[i]);
        ik_add_double(&loss, &rest, j.terms[i], true);
    }
    loss = ik_join_double(loss, rest);
    if (attrs->reduction != IK_SOFT_CROSS_ENTROPY_NONE)
        ik_store_one(ty, y, attrs->reduction == IK_SOFT_CROSS_ENTROPY_MEAN ? loss / (double)rows : loss);
    return IK_SUCCESS;
}

#else

/* Rows begin .. end. */
static void IK_OF(run)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int32_t dtype = j->tx->dtype;
    const int64_t classes = j->tx->shape[1], size = ik_itemsize(dtype), step = j->ttarget->strides[1];
    IK_T scratch[IK_CHUNK] IK_ALIGNED, given[IK_TILE] IK_ALIGNED, made[IK_TILE] IK_ALIGNED;
    for (int64_t row = begin; row < end; row++) {
        const char *x = j->x + row * j->tx->strides[0] * size,
                   *target = j->target + row * j->ttarget->strides[0] * size;
        if (step == 1)
            ik_prefetch(target, ik_min(classes, IK_CHUNK) * size);
        const IK_T norm = (IK_T)IK_OF(ik_log_sum)(dtype, x, classes, scratch);
        double sum = 0, rest = 0;
        for (int64_t at = 0; at < classes; at += IK_TILE) {
            const int64_t n = ik_min(IK_TILE, classes - at);
            const IK_T *values = ik_fetch(dtype, x + at * size, 1, n, scratch),
                       *shares = ik_fetch(dtype, target + at * step * size, step, n, given);
            IK_VECTORISE for (int64_t i = 0; i < n; i++)
                made[i] = shares[i] == 0 ? 0 : (norm - values[i]) * shares[i];
            ik_add_double(&sum, &rest, IK_OF(ik_sum_of)(IK_SUM, n, made, 0), true);
        }
        j->terms[row] = ik_join_double(sum, rest);
    }
}

#endif
