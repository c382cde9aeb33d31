/* The rows of a tile and a block of keys: their scores, weights, sums of values, and results. */
#ifndef IK_ATTENTION_ROWS_H
#define IK_ATTENTION_ROWS_H
#include "attention_keys.h"
#include "exponentials.h"

enum { DISTANCE = 8 }; /* rows from the one that is read to the one that is prefetched */

/* Prefetch 4 rows, DISTANCE rows behind row c of a run: the rows of a head are far apart, so that no processor does it
 * unasked. One query of 4,096 keys takes two thirds of the time. Inlined: gcc drops calls of functions that only
 * prefetch. */
static inline __attribute__((always_inline)) void prefetch_rows(
    const block *rows, const run *some, int64_t c, int64_t bytes)
{
    const int64_t step = rows->step * ik_itemsize(rows->dtype);
    for (int64_t i = c + DISTANCE; i < c + DISTANCE + 4; i++) {
        if (i < some->n || rows->count == 1) /* behind a block that is one run, the next one begins */
            ik_prefetch(some->at + i * step, bytes);
        else if (some + 1 < rows->runs + rows->count)
            ik_prefetch(some[1].at + (i - some->n) * step, bytes);
    }
}

/* scores[row, key] = q[row] · k[key] for the keys of a block. */
static void score_few(const job *j, const scratch *r, int64_t rows, const block *keys)
{
    const int64_t step = keys->step, size = ik_itemsize(keys->dtype), row = j->q_row;
    for (const run *some = keys->runs; some < keys->runs + keys->count; some++)
        for (int64_t c = 0; c < some->n; c += 4) {
            const int64_t cols = ik_min(4, some->n - c);
            const char *key = some->at + c * step * size;
            prefetch_rows(keys, some, c, j->d * size);
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

/* sums[row] += Σ weights[row, key] v[key] over the keys of a block. A value that a row does not see may be infinite, so
 * it is replaced by zeros, not multiplied by 0. */
static void add_values_few(const job *j, const scratch *r, int64_t rows, const block *values, const range *seen)
{
    const int64_t size = ik_itemsize(values->dtype), step = values->step * size, whole = j->e / lanes_f32 * lanes_f32;
    const char *zeros = memset(r->values, 0, (size_t)j->wide * sizeof *r->values);
    for (const run *some = values->runs; some < values->runs + values->count; some++)
        for (int64_t c = some->first; c < some->first + some->n; c += 4) {
            prefetch_rows(values, some, c - some->first, j->e * size);
            for (int64_t i = 0; i < rows; i++) {
                const int64_t low = seen[i].low, high = ik_min(seen[i].high, some->first + some->n);
                const float *of_row = r->scores + i * BLOCK;
                float *sums = r->sums + i * j->wide, rest[lanes_f32];
                const char *x[4];
                float weights[4]; /* behind the run are those of other keys, or of another row */
                for (int64_t key = 0; key < 4; key++) {
                    const bool in = c + key >= low && c + key < high;
                    weights[key] = in ? of_row[c + key] : 0;
                    x[key] = in ? some->at + (c - some->first + key) * step : zeros;
                }
                for (int64_t key = 0; key < 4 && j->seen.t != NULL; key++)
                    x[key] = weights[key] == 0 ? zeros : x[key];
                if (whole > 0) {
                    switch (values->dtype) {
                    case IK_F16: add_rows_f32(IK_F16, whole, weights, x, sums); break;
                    case IK_BF16: add_rows_f32(IK_BF16, whole, weights, x, sums); break;
                    default: add_rows_f32(IK_F32, whole, weights, x, sums);
                    }
                }
                for (int64_t key = 0; key < 4 && whole < j->e; key++) {
                    load_f32(values->dtype, x[key] + whole * size, 1, j->e - whole, rest);
                    for (int64_t col = whole; col < j->e; col++)
                        sums[col] += weights[key] * rest[col - whole];
                }
            }
        }
}

typedef uint32_t __attribute__((may_alias)) float_bits;

static bool is_finite(const float *x, int64_t n)
{
    const float_bits *bits = (const float_bits *)x;
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; i++)
        bad |= (bits[i] & 0x7f800000u) == 0x7f800000u;
    return bad == 0;
}

/* The same, a tile of rows × a panel of values at a time; key by key where a value is not finite and some row does not
 * see all keys. */
static void add_values_many(
    const job *j, const scratch *r, int64_t rows, const block *given, int64_t n, const range *seen)
{
    const int64_t wide = j->wide;
    bool all_seen = j->seen.t == NULL, multiply = true;
    for (int64_t i = 0; i < rows; i++)
        all_seen &= seen[i].low <= 0 && seen[i].high >= n;
    convert_block(&j->v, given, wide, r->values);
    for (int64_t key = 0; key < n; key++) {
        float *values = r->values + key * wide;
        multiply &= all_seen || is_finite(values, j->e);
        memset(values + j->e, 0, (size_t)(wide - j->e) * sizeof *values);
    }
    if (!multiply) {
        for (int64_t i = 0; i < rows; i++)
            for (int64_t key = seen[i].low; key < seen[i].high; key++)
                for (int64_t c = 0; c < wide && r->scores[i * BLOCK + key] != 0; c++)
                    r->sums[i * wide + c] += r->scores[i * BLOCK + key] * r->values[key * wide + c];
        return;
    }
    for (int64_t i = 0; i < rows; i += IK_TILE_ROWS)
        for (int64_t c = 0; c < wide; c += panel_width_f32) {
            float *sums = r->sums + i * wide + c;
            const ik_tile t = { .k = n,
                .a = r->scores + i * BLOCK,
                .a_row = BLOCK,
                .a_step = 1,
                .b = r->values + c,
                .b_step = wide,
                .from = sums,
                .from_row = wide,
                .to = sums,
                .to_row = wide };
            tile_f32(ik_min(IK_TILE_ROWS, rows - i), 2, &t);
        }
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
