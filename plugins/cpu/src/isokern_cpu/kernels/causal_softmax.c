/* causal_softmax of rows [*b, m, s]: softmax of the first s - m + 1 + i elements of row i, zeros after them.
 *
 * A row of one chunk is read once and its exponentials stay in the buffer; a longer one is measured chunk by chunk and
 * its exponentials are computed again. This file includes itself, for float and for double. */
#ifndef IK_T
#include "exponentials.h"
#include "operators/causal_softmax.h"

typedef struct job {
    const ik_tensor *ty, *tx;
    const char *x;
    char *y;
    int64_t m, s, size;
    bool stream;
} job;

static int64_t count_visible(const job *j, int64_t row)
{ return ik_max(0, ik_min(j->s, j->s - j->m + 1 + row % j->m)); }

#define IK_FILE "causal_softmax.c"
#include "each_type.h"

IK_KERNEL(causal_softmax)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    job j = { .ty = &t[IK_CAUSAL_SOFTMAX_Y], .tx = &t[IK_CAUSAL_SOFTMAX_X], .size = ik_itemsize(t->dtype) };
    j.y = ik_ptr(plan, data, IK_CAUSAL_SOFTMAX_Y);
    j.x = ik_ptr(plan, data, IK_CAUSAL_SOFTMAX_X);
    j.m = t->shape[t->ndim - 2], j.s = t->shape[t->ndim - 1];
    int64_t n = ik_numel(t);
    if (n == 0)
        return IK_SUCCESS;
    j.stream = n * j.size >= IK_STREAM_BYTES && j.x != j.y;
    ik_parallel_for(n / j.s, IK_THREAD_BYTES / (j.s * j.size), t->dtype == IK_F64 ? rows_f64 : rows_f32, &j);
    return IK_SUCCESS;
}

#else

/* The maximum of n elements, and the sum of their exponentials relative to it; the exponentials are left in `e`. */
static ik_stat IK_OF(measure)(const job *j, const char *from, int64_t n, IK_T *e)
{
    const IK_T *x = ik_fetch(j->tx->dtype, from, j->tx->strides[j->tx->ndim - 1], n, e);
    IK_T max = IK_OF(ik_extreme_of)(IK_MAX, n, x);
    double sum = 0, low = 0;
    for (int64_t at = 0; at < n; at += IK_EXP_PIECE)
        ik_add_double(&sum, &low, IK_OF(ik_exp_run)(ik_min(n - at, IK_EXP_PIECE), x + at, max, e + at),
            sizeof(IK_T) == sizeof(double));
    return (ik_stat){ .a = max, .b = ik_join_double(sum, low) };
}

static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    ik_chunk buffer;
    IK_T *kept = (IK_T *)&buffer;
    IK_T scratch[IK_TILE] IK_ALIGNED;
    int64_t from = j->tx->strides[j->tx->ndim - 1], to = j->ty->strides[j->ty->ndim - 1];
    const char *x = j->x + ik_row_offset(j->tx, begin, 1) * j->size;
    for (int64_t row = begin; row < end; row++) {
        char *y = j->y + ik_row_offset(j->ty, row, 1) * j->size;
        const char *following = row + 1 < end ? j->x + ik_row_offset(j->tx, row + 1, 1) * j->size : x;
        int64_t n = count_visible(j, row), later = from == 1 && row + 1 < end ? count_visible(j, row + 1) : 0;
        ik_stat stat = { 0 };
        for (int64_t at = 0; at < n; at += IK_CHUNK) {
            ik_stat part = IK_OF(measure)(j, x + at * from * j->size, ik_min(n - at, IK_CHUNK), kept);
            if (at == 0)
                stat = part;
            else
                ik_exp_join(&stat, at, part, 0);
        }
        IK_T factor = (IK_T)(1 / stat.b), max = (IK_T)stat.a;
        for (int64_t at = 0; at < j->s; at += IK_TILE) {
            int64_t count = ik_min(j->s - at, IK_TILE), seen = ik_max(0, ik_min(n - at, count));
            IK_T *out = ik_place(j->ty->dtype, y + at * to * j->size, to, j->stream, scratch);
            const IK_T *e = kept + at;
            if (at < later) /* prefetching keeps memory busy while this cached row is written */
                ik_prefetch(following + at * j->size, ik_min(later - at, IK_TILE) * j->size);
            if (n > IK_CHUNK && seen > 0) {
                const IK_T *v = ik_fetch(j->tx->dtype, x + at * from * j->size, from, seen, scratch);
                IK_OF(ik_exp_run)(seen, v, max, scratch);
                e = scratch;
            }
            IK_VECTORISE for (int64_t i = 0; i < seen; i++)
                out[i] = e[i] * factor;
            memset(out + seen, 0, (size_t)(count - seen) * sizeof *out);
            ik_put(j->ty->dtype, out, y + at * to * j->size, to, count, j->stream);
        }
        x = following;
    }
    if (j->stream)
        ik_stream_fence();
}

#endif
