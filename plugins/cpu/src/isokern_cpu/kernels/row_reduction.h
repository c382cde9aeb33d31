/* The row reduction that softmax and the norms share: each row is measured, then written while it is in the caches.
 *
 * Chunks of a row have a fixed length and are joined in order, so that a result does not depend on the number of
 * threads. */
#ifndef IK_ROW_REDUCTION_H
#define IK_ROW_REDUCTION_H
#include "runs.h"

enum { IK_CHUNK = 4 * IK_TILE };

/* The statistics of one pass over a row; the operator defines the meaning of a and b. No more than two numbers, which
 * functions return in registers: a third cost causal_softmax 4 %. */
typedef struct ik_stat {
    double a, b;
} ik_stat;

typedef union ik_chunk {
    float f32[IK_CHUNK];
    double f64[IK_CHUNK];
} IK_ALIGNED ik_chunk;

enum { IK_LEAVES_X /* where x is not in the compute type already */, IK_LEAVES_RESULTS, IK_LEAVES_NOTHING };

/* y[row] = f(x[row], statistics of the whole row): `measure` reads a chunk and may leave values in the buffer; `join`
 * adds the statistics of `count` elements to those of the `before` ones; `write` computes at most IK_TILE elements of
 * row number `row` of y, from x, or from what measure left in the buffer where `kept` says so. All of them are in the
 * compute type.
 *
 * Where measuring is limited by computation, not by memory, `interleaved` is set and measure calls
 * ik_row_reduction_overlap as it goes (unless null): the previous row is then written, and the next one prefetched,
 * during the computation. */
typedef struct ik_row_reduction ik_row_reduction;
typedef struct ik_row_neighbours ik_row_neighbours;
struct ik_row_reduction {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    const void *operand[2]; /* contiguous, in the compute type; null where absent */
    int64_t rows, d, chunks, size;
    uint32_t kind;
    int32_t leaves; /* what of use measure leaves in the buffer */
    bool stream, interleaved;
    double eps;
    ik_stat *stats;
    ik_stat (*measure)(const ik_row_reduction *, const char *x, int64_t n, ik_chunk *, const ik_row_neighbours *);
    void (*join)(ik_stat *whole, int64_t before, ik_stat part, int64_t count);
    void (*write)(const ik_row_reduction *, int64_t row, int64_t at, int64_t n, const ik_stat *, const void *x, void *y,
        bool kept);
};

static inline const char *ik_row_reduction_x(const ik_row_reduction *r, int64_t row)
{ return r->x + ik_row_offset(r->tx, row, 1) * r->size; }

static inline char *ik_row_reduction_y(const ik_row_reduction *r, int64_t row)
{ return r->y + ik_row_offset(r->ty, row, 1) * r->size; }

/* Whether there are few long rows: their chunks are spread over the threads, in two passes. */
static inline bool ik_row_reduction_splits(int64_t rows, int64_t d) { return rows < 8 && d > IK_CHUNK; }

static inline bool ik_row_reduction_direct(const ik_tensor *t)
{ return (t->dtype == IK_F32 || t->dtype == IK_F64) && (t->strides[t->ndim - 1] == 1 || t->shape[t->ndim - 1] == 1); }

/* Bytes of the copy of tensor i, a row such as a weight: 0 where it is absent or in the compute type already. */
static inline uint64_t ik_row_operand_bytes(const ik_plan *plan, uint32_t i)
{
    const ik_tensor *t = &plan->tensors[i];
    if (!ik_present(plan, i) || ik_row_reduction_direct(t))
        return 0;
    return ik_round_up(t->shape[t->ndim - 1] * (t->dtype == IK_F64 ? 8 : 4), IK_ALIGNMENT);
}

/* Tensor i, contiguous and in the compute type: itself, or its copy at *scratch, which moves on; null where absent. */
static inline const void *ik_row_operand(const ik_plan *plan, void *const *data, uint32_t i, char **scratch)
{
    const uint64_t bytes = ik_row_operand_bytes(plan, i);
    if (bytes == 0)
        return ik_ptr(plan, data, i);
    void *to = *scratch;
    *scratch += bytes;
    const ik_tensor *t = &plan->tensors[i];
    return ik_fetch(t->dtype, ik_ptr(plan, data, i), t->strides[t->ndim - 1], t->shape[t->ndim - 1], to);
}

/* Workspace for the statistics of split rows, and for the operands that are not in the compute type already. */
static inline uint64_t ik_row_reduction_workspace(const ik_plan *plan)
{
    const ik_tensor *t = plan->tensors;
    int64_t d = t->shape[t->ndim - 1], rows = d == 0 ? 0 : ik_numel(t) / d;
    uint64_t bytes = ik_row_reduction_splits(rows, d)
        ? ik_round_up((uint64_t)(rows * ik_ceil_div(d, IK_CHUNK)) * sizeof(ik_stat), IK_ALIGNMENT)
        : 0;
    for (uint32_t i = 2; i < plan->tensor_count; i++)
        bytes += ik_row_operand_bytes(plan, i);
    return bytes;
}

/* The neighbours of the row that is measured; null at the ends. */
struct ik_row_neighbours {
    const char *next, *x;
    char *y;
    int64_t row; /* the number of the previous row */
    const ik_stat *stat;
    ik_chunk *buffer;
};

/* Write n elements of row number `row`, from number `at` on. The whole row is in the buffer if `buffered`. Unless null,
 * as many elements from `next` on are prefetched, which keeps memory busy while this cached row is written. Flat, since
 * softmax calls it for every 256 elements: from memory, calls of ik_put cost it 4 %. */
static inline __attribute__((flatten)) void ik_row_reduction_put(const ik_row_reduction *r, const char *x, char *y,
    int64_t row, int64_t at, int64_t n, const ik_stat *stat, const ik_chunk *buffer, bool buffered, const char *next)
{
    char scratch[IK_TILE * sizeof(double)] IK_ALIGNED;
    const int32_t dtype = r->tx->dtype;
    const int64_t stride = r->ty->strides[r->ty->ndim - 1];
    const bool kept =
        buffered && (r->leaves == IK_LEAVES_RESULTS || (r->leaves == IK_LEAVES_X && !ik_row_reduction_direct(r->tx)));
    const void *in = !kept ? ik_fetch(dtype, x, r->tx->strides[r->tx->ndim - 1], n, scratch)
        : dtype == IK_F64  ? (const void *)(buffer->f64 + at)
                           : buffer->f32 + at;
    if (next != NULL)
        ik_prefetch(next, n * r->size);
    void *out = ik_place(dtype, y, stride, r->stream, scratch);
    r->write(r, row, at, n, stat, in, out, kept);
    ik_put(dtype, out, y, stride, n, r->stream);
}

/* Write elements [at, at + n) of the previous row and prefetch those of the next: n is at most IK_TILE. */
static inline void ik_row_reduction_overlap(
    const ik_row_reduction *r, const ik_row_neighbours *b, int64_t at, int64_t n)
{
    if (b->next != NULL)
        ik_prefetch(b->next + at * r->size, n * r->size);
    if (b->y != NULL)
        ik_row_reduction_put(
            r, b->x + at * r->size, b->y + at * r->size, b->row, at, n, b->stat, b->buffer, true, NULL);
}

static inline void ik_row_reduction_interleave(const ik_row_reduction *r, int64_t begin, int64_t end)
{
    ik_chunk buffers[2];
    ik_stat stats[2];
    ik_row_neighbours neighbours = { .next = ik_row_reduction_x(r, begin) };
    for (int64_t row = begin; row < end; row++) {
        const char *x = neighbours.next;
        neighbours.next = row + 1 < end ? ik_row_reduction_x(r, row + 1) : NULL;
        stats[row % 2] = r->measure(r, x, r->d, &buffers[row % 2], &neighbours);
        neighbours = (ik_row_neighbours){ neighbours.next, x, ik_row_reduction_y(r, row), row, &stats[row % 2],
            &buffers[row % 2] };
    }
    for (int64_t at = 0; at < r->d; at += IK_TILE)
        ik_row_reduction_overlap(r, &neighbours, at, ik_min(r->d - at, IK_TILE));
}

static inline void ik_row_reduction_whole(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_row_reduction *r = context;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size, to = r->ty->strides[r->ty->ndim - 1] * r->size;
    if (r->interleaved && r->stream && r->chunks == 1 && step == r->size && to == r->size) {
        ik_row_reduction_interleave(r, begin, end);
        ik_stream_fence();
        return;
    }
    ik_chunk buffer;
    const char *x = ik_row_reduction_x(r, begin);
    for (int64_t row = begin; row < end; row++) {
        char *y = ik_row_reduction_y(r, row);
        const char *following = row + 1 < end ? ik_row_reduction_x(r, row + 1) : NULL;
        const char *next = r->chunks == 1 && step == r->size && !r->interleaved ? following : NULL;
        ik_stat stat = r->measure(r, x, ik_min(r->d, IK_CHUNK), &buffer, NULL);
        for (int64_t at = IK_CHUNK; at < r->d; at += IK_CHUNK) {
            int64_t n = ik_min(r->d - at, IK_CHUNK);
            r->join(&stat, at, r->measure(r, x + at * step, n, &buffer, NULL), n);
        }
        for (int64_t at = 0; at < r->d; at += IK_TILE)
            ik_row_reduction_put(r, x + at * step, y + at * to, row, at, ik_min(r->d - at, IK_TILE), &stat, &buffer,
                r->chunks == 1, next == NULL ? NULL : next + at * step);
        x = following;
    }
    if (r->stream)
        ik_stream_fence();
}

static inline void ik_row_reduction_measure(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_row_reduction *r = context;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size;
    ik_chunk buffer;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / r->chunks, at = i % r->chunks * IK_CHUNK;
        r->stats[i] = r->measure(r, ik_row_reduction_x(r, row) + at * step, ik_min(r->d - at, IK_CHUNK), &buffer, NULL);
    }
}

static inline void ik_row_reduction_write(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_row_reduction *r = context;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size, to = r->ty->strides[r->ty->ndim - 1] * r->size;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / r->chunks, first = i % r->chunks * IK_CHUNK, last = ik_min(r->d, first + IK_CHUNK);
        for (int64_t at = first; at < last; at += IK_TILE)
            ik_row_reduction_put(r, ik_row_reduction_x(r, row) + at * step, ik_row_reduction_y(r, row) + at * to, row,
                at, ik_min(last - at, IK_TILE), &r->stats[row * r->chunks], NULL, false, NULL);
    }
    if (r->stream)
        ik_stream_fence();
}

/* Set up what follows from the plan; the caller has set the functions and eps. False where there is nothing to do. */
static inline bool ik_row_reduction_set_up(ik_row_reduction *r, const ik_plan *plan, void *const *data, void *workspace)
{
    const ik_tensor *t = plan->tensors;
    r->ty = &t[0];
    r->tx = &t[1];
    r->d = t->shape[t->ndim - 1];
    r->rows = r->d == 0 ? 0 : ik_numel(t) / r->d;
    r->size = ik_itemsize(t->dtype);
    r->kind = plan->kind;
    if (r->rows == 0)
        return false;
    r->chunks = ik_ceil_div(r->d, IK_CHUNK);
    r->y = ik_ptr(plan, data, 0);
    r->x = ik_ptr(plan, data, 1);
    /* In place: the lines are in the cache already. */
    r->stream = r->rows * r->d * r->size >= IK_STREAM_BYTES && r->x != r->y;
    r->stats = workspace;
    char *scratch = workspace;
    if (ik_row_reduction_splits(r->rows, r->d))
        scratch += ik_round_up((uint64_t)(r->rows * r->chunks) * sizeof(ik_stat), IK_ALIGNMENT);
    for (uint32_t i = 2; i < plan->tensor_count && i < 4; i++)
        r->operand[i - 2] = ik_row_operand(plan, data, i, &scratch);
    return true;
}

static inline void ik_row_reduction_run(ik_row_reduction *r)
{
    if (!ik_row_reduction_splits(r->rows, r->d)) {
        ik_parallel_for(r->rows, IK_THREAD_BYTES / (r->d * r->size), ik_row_reduction_whole, r);
        return;
    }
    int64_t grain = IK_THREAD_BYTES / (IK_CHUNK * r->size);
    ik_parallel_for(r->rows * r->chunks, grain, ik_row_reduction_measure, r);
    for (int64_t row = 0; row < r->rows; row++)
        for (int64_t k = 1; k < r->chunks; k++)
            r->join(&r->stats[row * r->chunks], k * IK_CHUNK, r->stats[row * r->chunks + k],
                ik_min(r->d - k * IK_CHUNK, IK_CHUNK));
    ik_parallel_for(r->rows * r->chunks, grain, ik_row_reduction_write, r);
}

#endif
