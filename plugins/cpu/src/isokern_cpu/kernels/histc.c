/* histc: how many elements of x lie in each of some equal bins. This file includes itself, for float and for double.
 *
 * Against a loop over x and a scatter of ones to a table, it takes a sixth of the time. */
#ifndef IK_T
#include "counts.h"
#include "operators/histc.h"

typedef struct job {
    ik_counts counts; /* a bin more than there are, for what is in none */
    const char *x;
    ik_lanes lanes;
    double low, high, scale;
} job;

#define IK_FILE "histc.c"
#include "each_type.h"

static ik_counts counts_of(const ik_plan *plan)
{
    const ik_histc_attrs *attrs = plan->attrs;
    return ik_counts_of(attrs->bins + 1, ik_numel(&plan->tensors[IK_HISTC_X]));
}

IK_WORKSPACE(histc)
{
    const ik_counts counts = counts_of(plan);
    return ik_counts_bytes(&counts);
}

/* A count as a float, of which the last bit is set where it was rounded down, so that rounding it again to fewer bits
 * gives what rounding once gives. */
static float narrow(uint64_t count)
{
    int32_t shift = 0;
    bool rest = false;
    for (; count >> 24 != 0; count >>= 1, shift++)
        rest |= count & 1;
    return (float)(count | rest) * (float)(UINT64_C(1) << shift);
}

IK_KERNEL(histc)
{
    IK_UNUSED;
    const ik_tensor *ty = &plan->tensors[IK_HISTC_Y], *tx = &plan->tensors[IK_HISTC_X];
    const ik_histc_attrs *attrs = plan->attrs;
    job j = { .counts = counts_of(plan),
        .x = ik_ptr(plan, data, IK_HISTC_X),
        .lanes = ik_lanes_of(tx, ik_compute_of(tx->dtype), 0, tx->ndim),
        .low = attrs->min,
        .high = attrs->max,
        .scale = (double)attrs->bins / (attrs->max - attrs->min) };
    j.counts.table = workspace;
    if (j.counts.n > 0) {
        ik_counts_clear(&j.counts);
        ik_counts_run(&j.counts, ik_itemsize(tx->dtype), tx->dtype == IK_F64 ? count_f64 : count_f32, &j);
        ik_counts_join(&j.counts);
    }
    char *y = ik_ptr(plan, data, IK_HISTC_Y);
    for (int64_t i = 0; i < attrs->bins; i++) {
        char *to = y + i * ty->strides[0] * ik_itemsize(ty->dtype);
        const uint64_t count = ik_counts_sum(&j.counts, i);
        const float made = ty->dtype == IK_F32 ? (float)count : narrow(count);
        if (ty->dtype == IK_F64)
            *(double *)(void *)to = (double)count;
        else
            ik_store_f32(ty->dtype, &made, to, 1, 1);
    }
    return IK_SUCCESS;
}

#else

/* Count elements begin .. end. */
static void IK_OF(count)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const IK_T low = (IK_T)j->low, high = (IK_T)j->high, scale = (IK_T)j->scale;
    const int32_t none = (int32_t)j->counts.length - 1;
    IK_T wide[IK_COUNT_TILE];
    int32_t number[IK_COUNT_TILE + 1];
    for (int64_t at = begin; at < end; at += IK_COUNT_TILE) {
        const int64_t n = ik_min(IK_COUNT_TILE, end - at);
        const char *place = ik_lanes_in_place(&j->lanes, (char *)(uintptr_t)j->x, at, n);
        const IK_T *given = place != NULL ? (const IK_T *)(const void *)place : wide;
        if (place == NULL)
            ik_lanes_load(&j->lanes, j->x, at, n, wide);
        IK_VECTORISE for (int64_t i = 0; i < n; i++) {
            const bool inside = (given[i] >= low) & (given[i] <= high);
            const IK_T bin = (inside ? given[i] - low : 0) * scale; /* truncation is floor, from 0 on */
            const IK_T last = (IK_T)(none - 1);
            number[i] = inside ? (int32_t)(bin < last ? bin : last) : none;
        }
        ik_count(&j->counts, worker, number, n);
    }
}

#endif
