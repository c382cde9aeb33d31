/* Copying a strided block of elements into another of the same shape, on which every data movement is built.
 *
 * Only the element's size matters. A block is reduced to few dims (outermost first by the steps of y), and then copied
 * in one of two ways: by lines along y's innermost dim (copied, filled or gathered), or by tiles where the contiguous
 * dim of x is not that of y. Short runs have a way of their own (short_runs.h). */
#ifndef IK_MOVE_H
#define IK_MOVE_H
#include "short_runs.h"
#include "transpose.h"

enum { IK_MOVE_BUFFER = 1 << 14, IK_FILL_BYTES = 4096, IK_PREFETCH = 2048, IK_STREAM_LINE = 128, IK_SHORT = 8 };

/* Prefetch lines that will be read next. The hardware follows a run by itself, but not from one short run to the
 * next. */
static inline void ik_prefetch_near(const char *x, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i += 64)
        __builtin_prefetch(x + i);
}

/* Copy a line while prefetching the next one. */
static inline void ik_copy_and_prefetch(char *y, const char *x, int64_t bytes, const char *next, bool stream)
{
    int64_t part = ik_min(bytes, IK_PREFETCH + (-(intptr_t)y & 63));
    for (int64_t at = 0; at < bytes; at += part, part = ik_min(IK_PREFETCH, bytes - at)) {
        ik_prefetch_near(next + at, part);
        if (stream)
            ik_stream_copy(y + at, x + at, part);
        else
            memcpy(y + at, x + at, (size_t)part);
    }
}

static inline void ik_move_dim(ik_block *b, int32_t from, int32_t to)
{
    int64_t n = b->shape[from], ys = b->ys[from], xs = b->xs[from];
    for (int32_t i = from; i > to; i--)
        b->shape[i] = b->shape[i - 1], b->ys[i] = b->ys[i - 1], b->xs[i] = b->xs[i - 1];
    for (int32_t i = from; i < to; i++)
        b->shape[i] = b->shape[i + 1], b->ys[i] = b->ys[i + 1], b->xs[i] = b->xs[i + 1];
    b->shape[to] = n, b->ys[to] = ys, b->xs[to] = xs;
}

/* Tiles pay where x has a dim with a smaller step than that along y's innermost dim. */
static inline void ik_choose_tiles(ik_block *b)
{
    int32_t last = b->ndim - 1, best = last;
    for (int32_t i = 0; i < last && b->xs[last] != 0; i++)
        if (b->xs[i] != 0 && ik_magnitude(b->xs[i]) < ik_magnitude(b->xs[best]))
            best = i;
    b->transposed = best != last;
    if (!b->transposed)
        return;
    ik_move_dim(b, best, last - 1);
    int64_t columns = b->shape[last - 1], rows = b->shape[last], line = 64 / b->size;
    bool buffered = b->stream && !b->whole_lines;
    b->tile_columns = ik_min(columns, ik_max(buffered ? 2 * line : 4 * line, 1024 / rows));
    b->tile_rows = ik_min(rows, ik_max(buffered ? ik_min(8 * line, 128) : line, 1024 / columns));
}

/* Lines of few elements, such as windows, are walked side by side: along a longer dim of which x has a run. */
static inline void ik_choose_line(ik_block *b)
{
    const int32_t last = b->ndim - 1;
    for (int32_t i = last - 1; i >= 0 && b->shape[last] <= IK_SHORT; i--)
        if (b->xs[i] == b->size && b->shape[i] >= 2 * IK_SHORT) {
            ik_move_dim(b, i, last);
            b->stream = b->whole_lines = false;
            return;
        }
}

/* A block that copies y = x for `ndim` dims of `shape`; strides in elements of `size` bytes, those of x may be zero. */
static inline ik_block ik_block_of(
    int64_t size, int32_t ndim, const int64_t *shape, void *y, const int64_t *ys, const void *x, const int64_t *xs)
{
    ik_block b = { .y = y, .x = x, .size = size, .count = 1 };
    for (int32_t i = 0; i < ndim; i++) {
        b.count *= shape[i];
        if (shape[i] == 1)
            continue;
        int64_t to = ys[i] * size, from = xs[i] * size;
        if (to < 0 && shape[i] > 0) { /* walk y upwards */
            b.y += (shape[i] - 1) * to, b.x += (shape[i] - 1) * from;
            to = -to, from = -from;
        }
        int32_t at = b.ndim++;
        b.shape[at] = shape[i], b.ys[at] = to, b.xs[at] = from;
        while (at > 0 && b.ys[at] > b.ys[at - 1])
            ik_move_dim(&b, at, at - 1), at--;
    }
    int32_t merged = 0;
    for (int32_t i = 1; i < b.ndim; i++) {
        if (b.ys[merged] == b.ys[i] * b.shape[i] && b.xs[merged] == b.xs[i] * b.shape[i])
            b.shape[merged] *= b.shape[i];
        else
            b.shape[++merged] = b.shape[i];
        b.ys[merged] = b.ys[i], b.xs[merged] = b.xs[i];
    }
    if (b.ndim == 0) {
        b.shape[0] = 1, b.ys[0] = b.xs[0] = size;
        merged = 0;
    }
    b.ndim = merged + 1;
    int64_t run = b.shape[merged] * size;
    if (b.ndim > 1 && b.ys[merged] == size && b.xs[merged] == size && (run == 2 || run == 4 || run == 8 || run == 16)) {
        b.ndim = merged; /* a short run becomes one larger element */
        b.count /= b.shape[merged];
        b.size = run;
    }
    int64_t line = b.shape[b.ndim - 1] * b.size;
    b.whole_lines = ((uintptr_t)b.y | (uint64_t)line) % 64 == 0;
    for (int32_t i = 0; i < b.ndim - 1; i++)
        b.whole_lines &= b.ys[i] % 64 == 0;
    b.stream =
        b.count * b.size >= IK_STREAM_BYTES && b.ys[b.ndim - 1] == b.size && (b.whole_lines || line >= IK_STREAM_LINE);
    if (b.count == 0)
        return b;
    ik_choose_runs(&b);
    if (b.runs == 0)
        ik_choose_tiles(&b);
    if (b.runs == 0 && !b.transposed)
        ik_choose_line(&b);
    return b;
}

/* Write n elements of value *x one after the other. */
static inline void ik_fill_line(int64_t size, int64_t n, char *y, const char *x, bool stream)
{
    char pattern[IK_FILL_BYTES + 64] __attribute__((aligned(64)));
    int64_t bytes = n * size, period = ik_min((bytes + 63) / 64 * 64 + 64, (int64_t)sizeof pattern);
    memcpy(pattern, x, (size_t)size);
    for (int64_t have = size; have < period; have *= 2)
        memcpy(pattern + have, pattern, (size_t)ik_min(have, period - have));
    int64_t head = ik_min(bytes, -(intptr_t)y & 63);
    memcpy(y, pattern, (size_t)head);
    const char *from = pattern + head % size;
    for (int64_t at = head; at < bytes; at += IK_FILL_BYTES) {
        int64_t part = ik_min(IK_FILL_BYTES, bytes - at);
        if (stream)
            ik_stream_copy(y + at, from, part);
        else
            memcpy(y + at, from, (size_t)part);
    }
}

static inline __attribute__((always_inline)) void ik_move_elements(
    int64_t size, int64_t n, char *y, int64_t ys, const char *x, int64_t xs)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        memcpy(y + i * ys, x + i * xs, (size_t)size);
}

/* Copy a line of n elements; steps in bytes. */
static inline void ik_move_line(int64_t size, int64_t n, char *y, int64_t ys, const char *x, int64_t xs, bool stream)
{
    if (ys == size && xs == size) {
        if (stream)
            ik_stream_copy(y, x, n * size);
        else
            memcpy(y, x, (size_t)(n * size));
        return;
    }
    if (ys == size && xs == 0 && n * size > 64) {
        ik_fill_line(size, n, y, x, stream);
        return;
    }
    switch (size) {
    case 1: ik_move_elements(1, n, y, ys, x, xs); return;
    case 2: ik_move_elements(2, n, y, ys, x, xs); return;
    case 4:
        if (ys == 4 && xs == -4)
            ik_move_elements(4, n, y, 4, x, -4);
        else
            ik_move_elements(4, n, y, ys, x, xs);
        return;
    case 8: ik_move_elements(8, n, y, ys, x, xs); return;
    default: ik_move_elements(16, n, y, ys, x, xs);
    }
}

/* Copy elements begin to end, counted in the block's order. */
static inline void ik_move_lines(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_block *b = context;
    int64_t index[IK_MAX_RANK], yo = 0, xo = 0;
    int32_t last = b->ndim - 1;
    int64_t rest = begin, line = b->shape[last] * b->size;
    bool runs = b->ys[last] == b->size && b->xs[last] == b->size && last > 0 && line >= 128 && line <= 4 * IK_PREFETCH;
    int64_t prefetch =
        runs && b->count * b->size >= IK_STREAM_BYTES ? b->xs[last - 1] * ik_ceil_div(IK_PREFETCH, line) : 0;
    for (int32_t d = last; d >= 0; d--) {
        index[d] = rest % b->shape[d];
        rest /= b->shape[d];
        yo += index[d] * b->ys[d], xo += index[d] * b->xs[d];
    }
    for (int64_t left = end - begin;;) {
        int64_t n = ik_min(left, b->shape[last] - index[last]);
        if (prefetch != 0)
            ik_copy_and_prefetch(b->y + yo, b->x + xo, n * b->size, b->x + xo + prefetch, b->stream);
        else
            ik_move_line(b->size, n, b->y + yo, b->ys[last], b->x + xo, b->xs[last], b->stream);
        left -= n;
        if (left == 0)
            break;
        yo -= index[last] * b->ys[last], xo -= index[last] * b->xs[last];
        index[last] = 0;
        for (int32_t d = last - 1; d >= 0; d--) { /* advance the indices, innermost dim first */
            yo += b->ys[d], xo += b->xs[d];
            if (++index[d] < b->shape[d])
                break;
            yo -= index[d] * b->ys[d], xo -= index[d] * b->xs[d];
            index[d] = 0;
        }
    }
    if (b->stream)
        ik_stream_fence();
}

static inline int64_t ik_tile_count(const ik_block *b)
{
    int64_t n = ik_ceil_div(b->shape[b->ndim - 2], b->tile_columns) * ik_ceil_div(b->shape[b->ndim - 1], b->tile_rows);
    for (int32_t d = 0; d < b->ndim - 2; d++)
        n *= b->shape[d];
    return n;
}

/* Copy one tile. Where it cannot be stored by whole lines, it is assembled in L1 and its parts of y's lines are
 * streamed. */
static inline void ik_move_tile(const ik_block *b, int64_t columns, int64_t rows, char *y, const char *x)
{
    int32_t l = b->ndim - 1, p = l - 1;
    int64_t size = b->size;
    char buffer[IK_MOVE_BUFFER] __attribute__((aligned(64)));
    if (!b->stream || b->whole_lines || rows * size < 128 || rows * columns * size > IK_MOVE_BUFFER) {
        bool stream = b->stream && b->whole_lines && rows * size % 64 == 0;
        ik_transpose(size, columns, rows, y, b->ys[p], b->ys[l], x, b->xs[p], b->xs[l], stream);
        return;
    }
    ik_transpose(size, columns, rows, buffer, rows * size, size, x, b->xs[p], b->xs[l], false);
    for (int64_t i = 0; i < columns; i++)
        ik_stream_copy(y + i * b->ys[p], buffer + i * rows * size, rows * size);
}

/* Copy tiles begin to end; tiles along y's lines are consecutive. */
static inline void ik_move_tiles(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_block *b = context;
    int32_t l = b->ndim - 1, p = l - 1;
    int64_t across = ik_ceil_div(b->shape[l], b->tile_rows), down = ik_ceil_div(b->shape[p], b->tile_columns);
    for (int64_t tile = begin; tile < end; tile++) {
        int64_t row = tile % across * b->tile_rows, column = tile / across % down * b->tile_columns,
                rest = tile / across / down;
        int64_t rows = ik_min(b->tile_rows, b->shape[l] - row), columns = ik_min(b->tile_columns, b->shape[p] - column);
        char *y = b->y + row * b->ys[l] + column * b->ys[p];
        const char *x = b->x + row * b->xs[l] + column * b->xs[p];
        for (int32_t d = p - 1; d >= 0; d--) {
            y += rest % b->shape[d] * b->ys[d], x += rest % b->shape[d] * b->xs[d];
            rest /= b->shape[d];
        }
        ik_move_tile(b, columns, rows, y, x);
    }
    if (b->stream)
        ik_stream_fence();
}

/* Copy the whole block in the caller's thread. */
static inline void ik_move_here(ik_block *b)
{
    if (b->count == 0)
        return;
    if (b->runs != 0)
        ik_move_runs(b, 0, ik_run_pieces(b), 0);
    else if (b->transposed)
        ik_move_tiles(b, 0, ik_tile_count(b), 0);
    else
        ik_move_lines(b, 0, b->count, 0);
}

/* Copy the whole block, by all threads where it is large enough. */
static inline void ik_move(ik_block *b)
{
    if (b->count == 0)
        return;
    if (b->runs != 0)
        ik_parallel_for(ik_run_pieces(b), ik_ceil_div(IK_THREAD_BYTES, b->piece * b->run * b->runs), ik_move_runs, b);
    else if (b->transposed)
        ik_parallel_for(
            ik_tile_count(b), ik_ceil_div(IK_THREAD_BYTES, b->tile_rows * b->tile_columns * b->size), ik_move_tiles, b);
    else
        ik_parallel_for(b->count, ik_max(IK_THREAD_BYTES / b->size, 1), ik_move_lines, b);
}

#endif
