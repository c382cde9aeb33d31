/* iota: y[…, i] = start + step i along the last dim, in integers of 64 bits, and of 32 where these hold every number of
 * the call: the latter become floats several times as fast. */
#include "walk.h"
#include "operators/iota.h"

typedef struct job {
    const ik_tensor *t;
    int64_t start, step;
    bool small; /* every number is below 2^24 */
    char *y;
} job;

static inline bool is_small(int64_t x) { return -(1 << 24) < x && x < 1 << 24; }

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
        if (compute == IK_F32 && j->small)
            for (int32_t i = 0; i < (int32_t)n; i++)
                values.f32[i] = (float)((int32_t)first + (int32_t)j->step * i);
        else if (compute == IK_F32)
            for (int64_t i = 0; i < n; i++)
                values.f32[i] = (float)(first + j->step * i);
        else if (compute == IK_F64 && j->small)
            for (int32_t i = 0; i < (int32_t)n; i++)
                values.f64[i] = (double)((int32_t)first + (int32_t)j->step * i);
        else if (compute == IK_F64)
            for (int64_t i = 0; i < n; i++)
                values.f64[i] = (double)(first + j->step * i);
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
    if (ik_numel(t) == 0)
        return IK_SUCCESS;
    const int64_t d = t->shape[t->ndim - 1], tiles = ik_ceil_div(d, IK_TILE);
    const bool small = is_small(attrs->start) && is_small(attrs->start + attrs->step * (d - 1));
    job j = { t, attrs->start, attrs->step, small, ik_ptr(plan, data, IK_IOTA_Y) };
    ik_parallel_for(
        ik_numel(t) / d * tiles, 1 + IK_THREAD_BYTES / (ik_min(d, IK_TILE) * ik_itemsize(t->dtype)), run, &j);
    return IK_SUCCESS;
}
