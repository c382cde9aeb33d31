/* Copying a block that reads short runs of x, such as windows: [outer dims, along, inner dims], where `along` and what
 * is behind it are one run of y. It is written from its beginning to its end, every run by one store that may be wider
 * than the run: what it writes behind is written again by the next one.
 *
 * Windows of 3 by 3 floats take a quarter of the time of nine walks along y, an element at a time; rows of 3 floats out
 * of 5, a fifth of the time of copies of a run each. */
#ifndef IK_SHORT_RUNS_H
#define IK_SHORT_RUNS_H
#include "convert.h"

typedef struct ik_block {
    char *y;
    const char *x;
    int64_t size, count;     /* bytes of an element (1, 2, 4, 8, 16), number of elements */
    int32_t ndim;            /* at least 1 */
    bool transposed, stream; /* transposed: in tiles over the last two dims; stream: past the caches */
    bool whole_lines;        /* every line of y begins and ends with a cache line */
    int64_t shape[IK_MAX_RANK], ys[IK_MAX_RANK], xs[IK_MAX_RANK]; /* steps in bytes */
    /* Size of a tile in the last two dims, where transposed. */
    int64_t tile_columns, tile_rows;
    /* Where by short runs: bytes of a run, runs of each element of the dim `along`, and how many of these, at most, are
     * a piece of work. Else 0 runs. */
    int64_t run, runs, piece;
    int32_t along;
} ik_block;

enum { IK_SHORT_RUNS = 64, IK_SHORT_BYTES = 64, IK_SHORT_PIECE = 1 << 12 };

/* Runs pay where several elements are one, or where what is read overlaps. */
static inline void ik_choose_runs(ik_block *b)
{
    const int32_t last = b->ndim - 1;
    int32_t d = last;
    int64_t run = b->size, runs = 1;
    if (b->ys[last] == b->size && b->xs[last] == b->size)
        run *= b->shape[d--];
    if (d < 0 || b->ys[d] != run || run > IK_SHORT_BYTES)
        return;
    const int32_t inner = d;
    for (int64_t n; d > 0 && b->xs[d] >= 0 && b->xs[d - 1] > 0; d--, runs = n) {
        n = runs * b->shape[d];
        if (n > IK_SHORT_RUNS || b->ys[d - 1] != run * n)
            break;
    }
    if (b->xs[d] <= 0)
        return;
    bool pays = inner < last;
    for (int32_t i = d; i <= inner && runs > 1; i++)
        pays |= b->xs[i] > 0 && b->xs[i] < run;
    if (!pays)
        return;
    b->run = run, b->runs = runs, b->along = d;
    b->piece = ik_min(b->shape[d], ik_max(1, IK_SHORT_PIECE / (run * runs)));
    b->stream = b->count * b->size >= IK_STREAM_BYTES;
}

/* Copy the runs of n places, of which each has `few`; every store has `width` bytes. */
static inline __attribute__((always_inline)) void ik_copy_few(const int64_t width, const int64_t few, int64_t run,
    const int64_t *offset, int64_t n, char *y, const char *x, int64_t step)
{
    int64_t own[4]; /* not read again after each store */
    memcpy(own, offset, (size_t)few * sizeof *own);
    for (; n > 0; n--, x += step, y += few * run) {
#pragma GCC unroll 4
        for (int64_t r = 0; r < few; r++)
            memcpy(y + r * run, x + own[r], (size_t)width);
    }
}

static inline __attribute__((always_inline)) void ik_copy_runs(const int64_t width, int64_t run, int64_t runs,
    const int64_t *offset, int64_t n, char *y, const char *x, int64_t step)
{
    if (runs == 1)
        ik_copy_few(width, 1, run, offset, n, y, x, step);
    else if (runs == 2)
        ik_copy_few(width, 2, run, offset, n, y, x, step);
    else if (runs == 3)
        ik_copy_few(width, 3, run, offset, n, y, x, step);
    else
        for (; n > 0; n--, x += step)
            for (int64_t r = 0; r < runs; r++, y += run)
                memcpy(y, x + offset[r], (size_t)width);
}

/* Copy the runs of n places, each by two stores within it. */
static inline __attribute__((always_inline)) void ik_copy_runs_exactly(const int64_t half, int64_t run, int64_t runs,
    const int64_t *offset, int64_t n, char *y, const char *x, int64_t step)
{
    for (; n > 0; n--, x += step)
        for (int64_t r = 0; r < runs; r++, y += run) {
            memcpy(y, x + offset[r], (size_t)half);
            memcpy(y + run - half, x + offset[r] + run - half, (size_t)half);
        }
}

/* Copy n places; a run has more than half of `width` bytes. The last places are such that a wider run would be beyond
 * what the others read or write. */
static inline __attribute__((always_inline)) void ik_copy_places(const int64_t width, int64_t run, int64_t runs,
    const int64_t *offset, int64_t n, char *y, const char *x, int64_t step)
{
    const int64_t over = width - run, behind = ik_max(ik_ceil_div(over, step), ik_ceil_div(over, run * runs)),
                  many = ik_max(0, n - behind);
    ik_copy_runs(width, run, runs, offset, many, y, x, step);
    ik_copy_runs_exactly(width / 2, run, runs, offset, n - many, y + many * run * runs, x + many * step, step);
}

/* Copy pieces begin to end; those along one line are consecutive. */
static inline void ik_move_runs(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_block *b = context;
    const int32_t along = b->along;
    const int64_t run = b->run, runs = b->runs, step = b->xs[along], pieces = ik_ceil_div(b->shape[along], b->piece);
    int64_t offset[IK_SHORT_RUNS];
    char buffer[IK_SHORT_PIECE + IK_SHORT_BYTES] __attribute__((aligned(64)));
    for (int64_t r = 0; r < runs; r++) {
        offset[r] = 0;
        int64_t rest = r;
        for (int32_t d = b->ndim - 1 - (run != b->size); d > along; d--) {
            offset[r] += rest % b->shape[d] * b->xs[d];
            rest /= b->shape[d];
        }
    }
    for (int64_t i = begin; i < end; i++) {
        const int64_t at = i % pieces * b->piece, n = ik_min(b->piece, b->shape[along] - at);
        int64_t rest = i / pieces;
        char *y = b->y + at * run * runs;
        const char *x = b->x + at * step;
        for (int32_t d = along - 1; d >= 0; d--) {
            y += rest % b->shape[d] * b->ys[d], x += rest % b->shape[d] * b->xs[d];
            rest /= b->shape[d];
        }
        char *to = b->stream ? buffer : y;
        if (run > 32)
            ik_copy_places(64, run, runs, offset, n, to, x, step);
        else if (run > 16)
            ik_copy_places(32, run, runs, offset, n, to, x, step);
        else if (run > 8)
            ik_copy_places(16, run, runs, offset, n, to, x, step);
        else if (run > 4)
            ik_copy_places(8, run, runs, offset, n, to, x, step);
        else
            ik_copy_places(4, run, runs, offset, n, to, x, step);
        if (b->stream)
            ik_stream_copy(y, buffer, n * run * runs);
    }
    if (b->stream)
        ik_stream_fence();
}

/* How many pieces a block by short runs has. */
static inline int64_t ik_run_pieces(const ik_block *b)
{
    int64_t n = ik_ceil_div(b->shape[b->along], b->piece);
    for (int32_t d = 0; d < b->along; d++)
        n *= b->shape[d];
    return n;
}
#endif
