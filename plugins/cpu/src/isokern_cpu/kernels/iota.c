/* iota: y[…, i] = start + step i along the last dim; a tile is made once and then advanced by adding the span of a
 * tile. */
#include "walk.h"
#include "operators/iota.h"

typedef struct job {
    const ik_tensor *t;
    int64_t start, step;
    char *y;
} job;

/* Run tasks begin .. end, numbered row * tiles + tile. */
static void run(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_tensor *t = j->t;
    const int64_t last = t->ndim - 1, d = t->shape[last], tiles = ik_ceil_div(d, IK_TILE), size = ik_itemsize(t->dtype);
    const int32_t compute = ik_compute_of(t->dtype);
    union {
        float f32[IK_TILE];
        double f64[IK_TILE];
        int64_t i64[IK_TILE];
    } values;
    for (int64_t task = begin; task < end; task++) {
        int64_t row = task / tiles, at = task % tiles * IK_TILE, n = ik_min(IK_TILE, d - at),
                first = j->start + j->step * at;
        if (compute == IK_F32) /* every number is below 2^24, and so is every product */
            for (int32_t i = 0; i < (int32_t)n; i++)
                values.f32[i] = (float)((int32_t)first + (int32_t)j->step * i);
        else if (compute == IK_F64)
            for (int32_t i = 0; i < (int32_t)n; i++)
                values.f64[i] = (double)first + (double)((int32_t)j->step * i);
        else
            for (int64_t i = 0; i < n; i++)
                values.i64[i] = first + j->step * i;
        ik_store(compute, t->dtype, &values, j->y + (ik_row_offset(t, row, 1) + at * t->strides[last]) * size,
            t->strides[last], n);
    }
}

IK_SUPPORTED(iota)
{ return plan->tensors[0].ndim < 1 ? "a tensor of rank 0: the normal form has one dim at least" : NULL; }

IK_KERNEL(iota)
{
    IK_UNUSED;
    const ik_iota_attrs *attrs = plan->attrs;
    const ik_tensor *t = &plan->tensors[IK_IOTA_Y];
    job j = { t, attrs->start, attrs->step, ik_ptr(plan, data, IK_IOTA_Y) };
    int64_t d = t->shape[t->ndim - 1], tiles = ik_ceil_div(d, IK_TILE);
    if (ik_numel(t) == 0)
        return IK_SUCCESS;
    ik_parallel_for(
        ik_numel(t) / d * tiles, 1 + IK_THREAD_BYTES / (ik_min(d, IK_TILE) * ik_itemsize(t->dtype)), run, &j);
    return IK_SUCCESS;
}
