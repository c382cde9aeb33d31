/* quantize: rows of floats to blocks; dequantize: blocks to floats. Rows are cut into tiles. */
#include "runs.h"
#include "blocks.h"
#include "operators/quantize.h"

enum { TILE = IK_TILE }; /* a multiple of IK_GROUP */

typedef struct job {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    int64_t d, tiles; /* elements of a row; tiles of a row */
    bool stream;
} job;

/* Find tile number `at`: its first element in both tensors; returns its length. */
static int64_t find(const job *j, int64_t at, const char **x, char **y)
{
    int64_t row = at / j->tiles, first = at % j->tiles * TILE;
    *x = j->x + ik_bytes(j->tx->dtype, ik_row_offset(j->tx, row, 1) + first * j->tx->strides[j->tx->ndim - 1]);
    *y = j->y + ik_bytes(j->ty->dtype, ik_row_offset(j->ty, row, 1) + first * j->ty->strides[j->ty->ndim - 1]);
    return ik_min(TILE, j->d - first);
}

static void quantize(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    float scratch[TILE] IK_ALIGNED;
    char blocks[TILE / 32 * 37] IK_ALIGNED; /* Q8_K has the largest */
    for (int64_t at = begin; at < end; at++) {
        const char *from;
        char *y;
        int64_t n = find(j, at, &from, &y);
        const float *x = ik_fetch(j->tx->dtype, from, j->tx->strides[j->tx->ndim - 1], n, scratch);
        ik_quantize_run(j->ty->dtype, n, x, j->stream ? blocks : y);
        if (j->stream)
            ik_stream_copy(y, blocks, ik_bytes(j->ty->dtype, n));
    }
    if (j->stream)
        ik_stream_fence();
}

static void dequantize(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    float scratch[TILE] IK_ALIGNED;
    for (int64_t at = begin; at < end; at++) {
        const char *x;
        char *to;
        int64_t n = find(j, at, &x, &to), stride = j->ty->strides[j->ty->ndim - 1];
        float *y = ik_place(j->ty->dtype, to, stride, j->stream, scratch);
        ik_dequantize_run(j->tx->dtype, n, x, y);
        ik_put(j->ty->dtype, y, to, stride, n, j->stream);
    }
    if (j->stream)
        ik_stream_fence();
}

/* Whether rows follow one another in memory, along the last of the leading dims. */
static bool dense(const ik_tensor *t)
{ return t->ndim == 2 && t->strides[1] == 1 && (t->strides[0] == t->shape[1] || t->shape[0] == 1); }

IK_KERNEL(quantize)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    job j = {
        .ty = &t[0], .tx = &t[1], .y = ik_ptr(plan, data, 0), .x = ik_ptr(plan, data, 1), .d = t->shape[t->ndim - 1]
    };
    int64_t n = ik_numel(t), rows = n == 0 ? 0 : n / j.d,
            floats = ik_bytes(t[plan->kind == IK_OP_QUANTIZE].dtype, TILE);
    if (dense(&t[0]) && dense(&t[1]))
        rows = rows != 0, j.d = n;
    j.tiles = ik_ceil_div(j.d, TILE);
    j.stream = ik_bytes(t->dtype, n) >= IK_STREAM_BYTES;
    ik_parallel_for(rows * j.tiles, IK_THREAD_BYTES / (j.d < TILE ? floats * j.d / TILE : floats),
        plan->kind == IK_OP_QUANTIZE ? quantize : dequantize, &j);
    return IK_SUCCESS;
}
