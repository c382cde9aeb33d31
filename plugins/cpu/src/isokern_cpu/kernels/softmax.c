/* softmax and log_softmax of rows: y = exp(x - m) / s and y = (x - m) - ln s, with m = max x and s = sum exp(x - m).
 *
 * A row of one chunk is read once and its exponentials stay in the buffer; a longer one is measured chunk by chunk,
 * each relative to its own maximum, and its exponentials are computed again. Rows that lie across memory are processed
 * together, a column of the tile each. This file includes itself, for float and for double. */
#ifndef IK_T
#include "row_reduction.h"
#include "exponentials.h"
#include "operators/log_softmax.h"
#include "operators/softmax.h"

enum { PIECE = IK_EXP_PIECE, COLUMNS = 128 };

/* Whether neighbouring elements in memory belong to different rows. */
static bool across(const ik_tensor *t)
{ return t->strides[t->ndim - 1] != 1 && t->strides[t->ndim - 2] == 1 && t->shape[t->ndim - 2] >= 8; }

#define IK_FILE "softmax.c"
#include "each_type.h"

IK_WORKSPACE(softmax) { return ik_row_reduction_workspace(plan); }

IK_KERNEL(softmax)
{
    IK_UNUSED;
    bool wide = plan->tensors[0].dtype == IK_F64;
    ik_row_reduction r = { .measure = wide ? measure_f64 : measure_f32,
        .join = ik_exp_join,
        .write = wide ? write_f64 : write_f32,
        .leaves = plan->kind == IK_OP_SOFTMAX ? IK_LEAVES_RESULTS : IK_LEAVES_NOTHING,
        .interleaved = true };
    if (!ik_row_reduction_set_up(&r, plan, data, workspace))
        return IK_SUCCESS;
    int64_t width = r.ty->shape[r.ty->ndim - 2], tiles = ik_ceil_div(width, COLUMNS);
    if (!across(r.tx) || !across(r.ty))
        ik_row_reduction_run(&r);
    else
        ik_parallel_for(r.rows / width * tiles, IK_THREAD_BYTES / (r.d * ik_min(width, COLUMNS) * r.size),
            wide ? columns_f64 : columns_f32, &r);
    return IK_SUCCESS;
}

#else

static ik_stat IK_OF(measure)(
    const ik_row_reduction *r, const char *from, int64_t n, ik_chunk *buffer, const ik_row_neighbours *neighbours)
{
    IK_T *e = (IK_T *)buffer;
    const IK_T *x = ik_fetch(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, e);
    IK_T max = IK_OF(ik_extreme_of)(IK_MAX, n, x);
    double sum = 0, low = 0;
    for (int64_t at = 0; at < n; at += PIECE) { /* prefetching keeps memory busy while exponentials are computed */
        int64_t m = ik_min(n - at, PIECE);
        if (neighbours != NULL)
            ik_row_reduction_overlap(r, neighbours, at, m);
        ik_add_double(&sum, &low, IK_OF(ik_exp_run)(m, x + at, max, e + at), true);
    }
    return (ik_stat){ .a = max, .b = ik_join_double(sum, low) };
}

static void IK_OF(write)(const ik_row_reduction *r, int64_t row, int64_t at, int64_t n, const ik_stat *stat,
    const void *from, void *to, bool kept)
{
    (void)row, (void)at;
    const IK_T *x = from, max = (IK_T)stat->a; /* x: the exponentials if they were kept */
    IK_T *y = to;
    if (r->kind == IK_OP_LOG_SOFTMAX) {
        IK_T log_sum = (IK_T)ik_log_f64(stat->b);
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = (x[i] - max) - log_sum;
        return;
    }
    if (!kept)
        IK_OF(ik_exp_run)(n, x, max, y);
    IK_OF(ik_scale)(n, kept ? x : y, (IK_T)(1 / stat->b), NULL, y);
}

/* Run tasks begin .. end, numbered outer row * tiles + tile, a tile being at most COLUMNS rows that are neighbours in
 * memory. */
static void IK_OF(columns)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_row_reduction *r = context;
    IK_T scratch[COLUMNS] IK_ALIGNED, max[COLUMNS] IK_ALIGNED, last[COLUMNS] IK_ALIGNED;
    double sum[COLUMNS] IK_ALIGNED, low[COLUMNS] IK_ALIGNED;
    int64_t width = r->ty->shape[r->ty->ndim - 2], tiles = ik_ceil_div(width, COLUMNS);
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size, to = r->ty->strides[r->ty->ndim - 1] * r->size;
    for (int64_t task = begin; task < end; task++) {
        int64_t first = task % tiles * COLUMNS, row = task / tiles * width + first, n = ik_min(width - first, COLUMNS);
        const char *x = ik_row_reduction_x(r, row);
        char *y = ik_row_reduction_y(r, row);
        for (int64_t k = 0; k < n; k++) {
            max[k] = -(IK_T)__builtin_inf();
            sum[k] = low[k] = 0;
        }
        for (int64_t i = 0; i < r->d; i++) {
            const IK_T *v = ik_fetch(r->tx->dtype, x + i * step, 1, n, scratch);
            IK_VECTORISE for (int64_t k = 0; k < n; k++)
                max[k] = IK_OF(ik_maximum)(max[k], v[k]);
        }
        for (int64_t i = 0; i < r->d; i++) {
            const IK_T *v = ik_fetch(r->tx->dtype, x + i * step, 1, n, scratch);
            IK_VECTORISE for (int64_t k = 0; k < n; k++)
                scratch[k] = IK_OF(ik_exp)(v[k] - max[k]);
            IK_VECTORISE for (int64_t k = 0; k < n; k++)
                ik_add_double(&sum[k], &low[k], (double)scratch[k], sizeof(IK_T) == sizeof(double));
        }
        for (int64_t k = 0; k < n; k++) {
            double all = ik_join_double(sum[k], low[k]);
            last[k] = (IK_T)(r->kind == IK_OP_SOFTMAX ? 1 / all : ik_log_f64(all));
        }
        for (int64_t i = 0; i < r->d; i++) {
            const IK_T *v = ik_fetch(r->tx->dtype, x + i * step, 1, n, scratch);
            if (r->kind == IK_OP_SOFTMAX) {
                IK_VECTORISE for (int64_t k = 0; k < n; k++)
                    scratch[k] = IK_OF(ik_exp)(v[k] - max[k]) * last[k];
            } else {
                IK_VECTORISE for (int64_t k = 0; k < n; k++)
                    scratch[k] = (v[k] - max[k]) - last[k];
            }
            ik_put(r->ty->dtype, scratch, y + i * to, 1, n, false);
        }
    }
}

#endif
