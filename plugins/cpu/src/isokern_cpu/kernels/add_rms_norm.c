/* add_rms_norm of rows: sum = x + residual, rounded to its type, and y = sum / sqrt(mean(sum^2) + eps) * w.
 *
 * The sums of a row stay in the caches in the compute type until they are normalised; for a row that is too long they
 * are read back from the output. This file includes itself, for float and for double. */
#ifndef IK_T
#include "row_reduction.h"
#include "operators/add_rms_norm.h"

/* PIECE: elements prefetched at once; with a whole tile, streams of stores break up. */
enum { KEPT = 16 * IK_TILE, PIECE = 128 };

typedef struct job {
    const ik_tensor *ty, *ts, *tx, *tr;
    char *y, *s;
    const char *x, *residual;
    const void *w; /* contiguous, in the compute type; null where absent */
    int64_t d, size;
    double eps;
    bool stream_y, stream_s;
} job;

static int64_t step(const ik_tensor *t) { return t->strides[t->ndim - 1]; }
static int64_t row_bytes(const job *j, const ik_tensor *t, int64_t row) { return ik_row_offset(t, row, 1) * j->size; }

#define IK_FILE "add_rms_norm.c"
#include "each_type.h"

IK_WORKSPACE(add_rms_norm) { return ik_row_operand_bytes(plan, IK_ADD_RMS_NORM_W); }

IK_KERNEL(add_rms_norm)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    const ik_add_rms_norm_attrs *attrs = plan->attrs;
    job j = { .ty = &t[IK_ADD_RMS_NORM_Y],
        .ts = &t[IK_ADD_RMS_NORM_SUM],
        .tx = &t[IK_ADD_RMS_NORM_X],
        .tr = &t[IK_ADD_RMS_NORM_RESIDUAL] };
    j.y = ik_ptr(plan, data, IK_ADD_RMS_NORM_Y);
    j.s = ik_ptr(plan, data, IK_ADD_RMS_NORM_SUM);
    j.x = ik_ptr(plan, data, IK_ADD_RMS_NORM_X);
    j.residual = ik_ptr(plan, data, IK_ADD_RMS_NORM_RESIDUAL);
    j.d = t->shape[t->ndim - 1], j.size = ik_itemsize(t->dtype), j.eps = attrs->eps;
    int64_t n = ik_numel(t);
    if (n == 0)
        return IK_SUCCESS;
    char *scratch = workspace;
    j.w = ik_row_operand(plan, data, IK_ADD_RMS_NORM_W, &scratch);
    bool large = n * j.size >= IK_STREAM_BYTES; /* in place: the lines are in the cache already */
    j.stream_y = large && j.y != j.x && j.y != j.residual;
    j.stream_s = large && j.s != j.x && j.s != j.residual && j.d <= KEPT;
    ik_parallel_for(n / j.d, IK_THREAD_BYTES / (2 * j.d * j.size), t->dtype == IK_F64 ? rows_f64 : rows_f32, &j);
    return IK_SUCCESS;
}

#else

/* Compute n sums, write them to `s`, and leave them in the compute type in `sums`. */
static void IK_OF(add)(const job *j, const char *x, const char *residual, char *s, int64_t n, IK_T *sums)
{
    IK_T scratch[2][IK_TILE] IK_ALIGNED;
    const IK_T *a = ik_fetch(j->tx->dtype, x, step(j->tx), n, scratch[0]),
               *b = ik_fetch(j->tr->dtype, residual, step(j->tr), n, scratch[1]);
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        sums[i] = a[i] + b[i];
    if (j->ts->dtype == ik_compute_of(j->ts->dtype)) {
        ik_put(j->ts->dtype, sums, s, step(j->ts), n, j->stream_s);
        return;
    }
    uint16_t half[IK_TILE] IK_ALIGNED;
    ik_store_f32(j->ts->dtype, (const void *)sums, half, 1, n);
    ik_load_f32(j->ts->dtype, half, 1, n, (void *)sums);
    if (step(j->ts) != 1)
        ik_store_f32(j->ts->dtype, (const void *)sums, s, step(j->ts), n);
    else if (j->stream_s)
        ik_stream_copy(s, half, n * j->size);
    else
        memcpy(s, half, (size_t)(n * j->size));
}

static void IK_OF(scale)(const job *j, const IK_T *sums, IK_T factor, int64_t at, char *to, int64_t n)
{
    IK_T scratch[IK_TILE] IK_ALIGNED;
    IK_T *y = ik_place(j->ty->dtype, to, step(j->ty), j->stream_y, scratch);
    const IK_T *w = j->w;
    IK_OF(ik_scale)(n, sums, factor, w == NULL ? NULL : w + at, y);
    ik_put(j->ty->dtype, y, to, step(j->ty), n, j->stream_y);
}

static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    IK_T kept[KEPT] IK_ALIGNED, scratch[IK_TILE] IK_ALIGNED;
    bool keep = j->d <= KEPT;
    for (int64_t row = begin; row < end; row++) {
        const char *x = j->x + row_bytes(j, j->tx, row), *residual = j->residual + row_bytes(j, j->tr, row);
        char *y = j->y + row_bytes(j, j->ty, row), *s = j->s + row_bytes(j, j->ts, row);
        bool more = row + 1 < end;
        const char *next_x = more && step(j->tx) == 1 ? j->x + row_bytes(j, j->tx, row + 1) : NULL;
        const char *next_residual = more && step(j->tr) == 1 ? j->residual + row_bytes(j, j->tr, row + 1) : NULL;
        double squares = 0, low = 0;
        for (int64_t at = 0; at < j->d; at += IK_TILE) {
            int64_t n = ik_min(j->d - at, IK_TILE);
            IK_T *sums = keep ? kept + at : scratch;
            IK_OF(add)(j, x + at * step(j->tx) * j->size, residual + at * step(j->tr) * j->size,
                s + at * step(j->ts) * j->size, n, sums);
            ik_add_double(&squares, &low, IK_OF(ik_sum_of)(IK_SQUARES, n, sums, 0), sizeof(IK_T) == sizeof(double));
        }
        IK_T factor = (IK_T)(1 / ik_sqrt_f64(ik_join_double(squares, low) / (double)j->d + j->eps));
        for (int64_t at = 0; at < j->d; at += PIECE) {
            int64_t n = ik_min(j->d - at, PIECE);
            const IK_T *sums =
                keep ? kept + at : ik_fetch(j->ts->dtype, s + at * step(j->ts) * j->size, step(j->ts), n, scratch);
            if (next_x != NULL) /* prefetching keeps memory busy while this cached row is written */
                ik_prefetch(next_x + at * j->size, n * j->size);
            if (next_residual != NULL)
                ik_prefetch(next_residual + at * j->size, n * j->size);
            IK_OF(scale)(j, sums, factor, at, y + at * step(j->ty) * j->size, n);
        }
    }
    if (j->stream_y || j->stream_s)
        ik_stream_fence();
}

#endif
