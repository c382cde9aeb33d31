/* The rows of a tile and a block of keys: their scores, weights and results. */
#ifndef IK_ATTENTION_ROWS_H
#define IK_ATTENTION_ROWS_H
#include "attention_keys.h"
#include "exponentials.h"

/* Prefetch 4 rows, `distance` rows behind row c of a run: the rows of a head are far apart, so that no processor does
 * it unasked. One query of 4,096 keys takes two thirds of the time. Inlined: gcc drops calls of functions that only
 * prefetch. */
static inline __attribute__((always_inline)) void prefetch_rows(
    const block *rows, const run *some, int64_t c, int64_t offset, int64_t bytes)
{
    const int64_t step = rows->step * ik_itemsize(rows->dtype);
    for (int64_t i = c + rows->distance; i < c + rows->distance + 4; i++) {
        if (i < some->n || rows->count == 1) /* behind a block that is one run, the next one begins */
            ik_prefetch(some->at + offset + i * step, bytes);
        else if (some + 1 < rows->runs + rows->count)
            ik_prefetch(some[1].at + offset + (i - some->n) * step, bytes);
    }
}

/* Prefetch the rows of a block that `prefetch_rows` comes too late for. */
static inline __attribute__((always_inline)) void prefetch_first(const block *rows, int64_t offset, int64_t bytes)
{
    const int64_t step = rows->step * ik_itemsize(rows->dtype);
    for (int64_t i = 0; i < ik_min(rows->distance, rows->runs->n); i++)
        ik_prefetch(rows->runs->at + offset + i * step, bytes);
}

/* scores[row, key] = q[row] · k[key] for keys low .. high - 1 of a block, each `offset` bytes behind. */
static void score_few(
    const job *j, const scratch *r, int64_t rows, const block *keys, int64_t offset, int64_t low, int64_t high)
{
    const int64_t step = keys->step, size = ik_itemsize(keys->dtype), row = j->q_row;
    for (const run *some = keys->runs; some < keys->runs + keys->count; some++) {
        const int64_t end = ik_min(some->n, high - some->first);
        for (int64_t c = ik_max(0, low - some->first); c < end; c += 4) {
            const int64_t cols = ik_min(4, end - c);
            const char *key = some->at + offset + c * step * size;
            prefetch_rows(keys, some, c, offset, j->d * size);
            for (int64_t i = 0; i < rows; i += 4) {
                const int64_t tall = ik_min(4, rows - i);
                const float *q = r->q + i * row;
                float *to = r->scores + i * BLOCK + some->first + c;
                switch (keys->dtype) {
                case IK_F16: dots_of_f32(IK_F16, tall, cols, j->d, q, row, key, step, to, BLOCK); break;
                case IK_BF16: dots_of_f32(IK_BF16, tall, cols, j->d, q, row, key, step, to, BLOCK); break;
                default: dots_of_f32(IK_F32, tall, cols, j->d, q, row, key, step, to, BLOCK);
                }
            }
        }
    }
}

/* Pack keys as panels whose columns they are. */
static void pack_keys(const block *keys, int64_t d, float *to)
{
    const int64_t size = ik_itemsize(keys->dtype);
    for (const run *some = keys->runs; some < keys->runs + keys->count; some++)
        for (int64_t c = 0, cols; c < some->n; c += cols) {
            const int64_t at = some->first + c, col = at % panel_width_f32;
            cols = ik_min(some->n - c, panel_width_f32 - col);
            for (int64_t p = 0; p < d; p += IK_BLOCK_K)
                transpose_f32(keys->dtype, some->at + (c * keys->step + p) * size, keys->step,
                    ik_min(IK_BLOCK_K, d - p), cols, to + (at - col) * d + p * panel_width_f32 + col, panel_width_f32);
        }
}

/* The same, a tile of rows × a panel of keys at a time. */
static void score_many(const job *j, const scratch *r, int64_t rows, const block *keys, int64_t n)
{
    pack_keys(keys, j->d, r->keys);
    for (int64_t c = 0; c < n; c += panel_width_f32)
        for (int64_t i = 0; i < rows; i += IK_TILE_ROWS) {
            const ik_tile t = { .k = j->d,
                .a = r->q + i * j->q_row,
                .a_row = j->q_row,
                .a_step = 1,
                .b = r->keys + c * j->d,
                .b_step = panel_width_f32,
                .to = r->scores + i * BLOCK + c,
                .to_row = BLOCK };
            tile_f32(ik_min(IK_TILE_ROWS, rows - i), 2, &t);
        }
}

/* What is added to the scores of a row, of keys from the first of the block on. */
typedef struct addend {
    const char *mask, *seen; /* null where there is none */
    float slope; /* of ALiBi */
    int64_t place; /* of the query, counted from the block's first key */
} addend;

/* Return the largest of some scores and of `from`; NaN is not larger. */
static inline float find_max(int64_t n, const float *x, float from)
{
    enum { LANES = 16 }; /* one chain of comparisons would take as long as both products */
    float top[LANES];
    int64_t c = 0;
    for (int64_t l = 0; l < LANES; l++)
        top[l] = from;
    for (; c + LANES <= n; c += LANES)
        for (int64_t l = 0; l < LANES; l++)
            top[l] = x[c + l] > top[l] ? x[c + l] : top[l];
    for (; c < n; c++)
        top[0] = x[c] > top[0] ? x[c] : top[0];
    for (int64_t l = 1; l < LANES; l++)
        top[0] = top[l] > top[0] ? top[l] : top[0];
    return top[0];
}

/* Replace scores by exp(score - base), which is 0 of -Inf, and return the sum. Fewer than a vector holds are added in
 * order: the lanes of one would add them in pairs, and so round otherwise than scalar code. */
static inline float exp_scores(int64_t n, float *x, float base)
{
    const double whole = ik_exp_run_f32(n, x, base, x);
    float total = 0;
    for (int64_t c = 0; c < n && n < 16; c++)
        total += x[c];
    return n < 16 ? total : (float)whole;
}

/* Turn the scores of a row into weights, 0 for keys that it does not see, and update its maximum, total and sums. */
static void weigh(const job *j, const scratch *r, int64_t i, range seen, addend given)
{
    const char *mask = given.mask;
    float *x = r->scores + i * BLOCK, added[BLOCK];
    const int64_t low = seen.low, high = seen.high;
    if (low >= high) {
        memset(x, 0, BLOCK * sizeof *x);
        return;
    }
    for (int64_t c = low; c < high; c++)
        x[c] *= j->scale;
    if (j->softcap != 0) {
        IK_VECTORISE for (int64_t c = low; c < high; c++)
            x[c] = j->softcap * ik_tanh_f32(x[c] / j->softcap);
    }
    if (mask != NULL) {
        const int64_t step = j->mask.t->strides[3];
        const int32_t dtype = j->mask.t->dtype;
        ik_load_f32(dtype, mask + low * step * ik_itemsize(dtype), step, high - low, added + low);
        for (int64_t c = low; c < high; c++)
            x[c] += added[c];
    }
    if (given.slope != 0)
        for (int64_t c = low; c < high; c++)
            x[c] -= given.slope * (float)(given.place < c ? c - given.place : given.place - c);
    if (given.seen != NULL)
        for (int64_t c = low; c < high; c++)
            x[c] = given.seen[c * j->seen.t->strides[3]] != 0 ? x[c] : -INFINITE;
    const float before = r->max[i], max = find_max(high - low, x + low, before);
    const float base = max == -INFINITE ? 0 : max;
    const float total = exp_scores(high - low, x + low, base);
    memset(x, 0, (size_t)low * sizeof *x);
    memset(x + high, 0, (size_t)(BLOCK - high) * sizeof *x);
    r->max[i] = max;
    const float rescale = before == max ? 1 : ik_exp_f32(before - base);
    r->total[i] = r->total[i] * rescale + total;
    if (rescale != 1)
        for (int64_t c = 0; c < j->wide; c++)
            r->sums[i * j->wide + c] *= rescale;
}

/* Write the result of a row, sums / total, and the logarithm of the sum of exponentials. */
static void finish(const job *j, const tile *t, int64_t i, float *sums, float max, float total)
{
    if (j->sinks.t != NULL) { /* one more key, without a value */
        float sink;
        const ik_tensor *sinks = j->sinks.t;
        ik_load_f32(
            sinks->dtype, j->sinks.at + t->head[i] * sinks->strides[0] * ik_itemsize(sinks->dtype), 1, 1, &sink);
        const float above = sink > max ? sink : max, base = above == -INFINITE ? 0 : above;
        const float rescale = max == above ? 1 : ik_exp_f32(max - base);
        total = total * rescale + (sink == -INFINITE ? 0 : ik_exp_f32(sink - base));
        for (int64_t c = 0; c < j->e; c++)
            sums[c] *= rescale;
        max = above;
    }
    const float by = total == 0 ? 0 : 1 / total;
    for (int64_t c = 0; c < j->e; c++)
        sums[c] = total == 0 ? 0 : sums[c] * by;
    char *y = (char *)(uintptr_t)address_of(&j->y, j->to, t->b, t->query[i], t->head[i]);
    ik_store_f32(j->y.dtype, sums, y, j->y.strides[3], j->e);
    if (j->lse != NULL) {
        const float lse = total == 0 ? -INFINITE : max + ik_log_f32(total);
        memcpy((char *)(uintptr_t)address_of(j->tlse, j->lse, t->b, t->query[i], t->head[i]), &lse, sizeof lse);
    }
}
#endif
