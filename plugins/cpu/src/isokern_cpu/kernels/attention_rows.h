/* The rows of attention and a block of keys: their scores, weights, sums of values, and results. */
#ifndef IK_ATTENTION_ROWS_H
#define IK_ATTENTION_ROWS_H
#include "attention_keys.h"

/* scores[row, key] = q[row] · k[key] for n keys. */
static void score_few(const job *j, const scratch *r, int64_t rows, keys_of place, int64_t n)
{
    const matrix keys = read_rows(j, j->tk, j->k, place, n, false, r->converted);
    for (int64_t c = 0, cols; c < n; c += cols) {
        cols = ik_min(4, n - c);
        if (keys.at == NULL) /* keys of one page at a time */
            cols = ik_min(cols, j->page - (place.first + c) % j->page);
        const char *key = keys.at != NULL ? keys.at + c * keys.step * ik_itemsize(keys.dtype)
                                          : row_of(j, j->tk, j->k, place.b, place.group, place.first + c);
        for (int64_t i = 0; i < rows; i += 4) {
            const int64_t tall = ik_min(4, rows - i), row = j->q_row, step = keys.step;
            const float *q = r->q + i * row;
            float *to = r->scores + i * BLOCK + c;
            switch (keys.dtype) {
            case IK_F16: dots_of_f32(IK_F16, tall, cols, j->d, q, row, key, step, to, BLOCK); break;
            case IK_BF16: dots_of_f32(IK_BF16, tall, cols, j->d, q, row, key, step, to, BLOCK); break;
            default: dots_of_f32(IK_F32, tall, cols, j->d, q, row, key, step, to, BLOCK);
            }
        }
    }
}

/* The same, a tile of rows × a panel of keys at a time. */
static void score_many(const job *j, const scratch *r, int64_t rows, keys_of place, int64_t n)
{
    const matrix keys = read_rows(j, j->tk, j->k, place, n, true, r->converted);
    for (int64_t c = 0; c < n; c += panel_width_f32)
        transpose_f32(IK_F32, keys.at + c * keys.step * (int64_t)sizeof(float), keys.step, j->d,
            ik_min(panel_width_f32, n - c), r->keys + c * j->d, panel_width_f32);
    for (int64_t i = 0; i < rows; i += IK_TILE_ROWS)
        for (int64_t c = 0; c < n; c += panel_width_f32) {
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
    const char *mask, *shown; /* null where there is none */
    float slope; /* of ALiBi */
    int64_t place; /* of the query, counted from the block's first key */
} addend;

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
        const int64_t step = j->tmask->strides[3];
        ik_load_f32(j->tmask->dtype, mask + low * step * ik_itemsize(j->tmask->dtype), step, high - low, added + low);
        for (int64_t c = low; c < high; c++)
            x[c] += added[c];
    }
    if (given.slope != 0)
        for (int64_t c = low; c < high; c++)
            x[c] -= given.slope * (float)(given.place < c ? c - given.place : given.place - c);
    if (given.shown != NULL)
        for (int64_t c = low; c < high; c++)
            x[c] = given.shown[c * j->tshown->strides[3]] != 0 ? x[c] : -INFINITE;
    const float before = r->max[i];
    float max = before, total = 0;
    for (int64_t c = low; c < high; c++)
        max = x[c] > max ? x[c] : max;
    const float base = max == -INFINITE ? 0 : max;
    IK_VECTORISE for (int64_t c = low; c < high; c++)
        x[c] = x[c] == -INFINITE ? 0 : ik_exp_f32(x[c] - base);
    for (int64_t c = low; c < high; c++)
        total += x[c];
    memset(x, 0, (size_t)low * sizeof *x);
    memset(x + high, 0, (size_t)(BLOCK - high) * sizeof *x);
    r->max[i] = max;
    const float rescale = before == max ? 1 : ik_exp_f32(before - base);
    r->total[i] = r->total[i] * rescale + total;
    if (rescale != 1)
        for (int64_t c = 0; c < j->wide; c++)
            r->sums[i * j->wide + c] *= rescale;
}

/* sums[row] += Σ weights[row, key] v[key] over n keys. A value that a row does not see may be infinite, so it is
 * replaced by zeros, not multiplied by 0. */
static void add_values_few(const job *j, const scratch *r, int64_t rows, keys_of place, int64_t n, const range *seen)
{
    const matrix values = read_rows(j, j->tv, j->v, place, n, false, r->converted);
    const int64_t size = ik_itemsize(values.dtype), step = values.step * size, whole = j->e / lanes_f32 * lanes_f32;
    const char *zeros = memset(r->values, 0, (size_t)j->wide * sizeof *r->values);
    for (int64_t c = 0; c < n; c += 4)
        for (int64_t i = 0; i < rows; i++) {
            const float *weights = r->scores + i * BLOCK + c;
            float *sums = r->sums + i * j->wide, rest[lanes_f32];
            const char *x[4];
            for (int64_t key = 0; key < 4; key++) {
                if (c + key < seen[i].low || c + key >= seen[i].high || (j->shown != NULL && weights[key] == 0))
                    x[key] = zeros;
                else if (values.at != NULL)
                    x[key] = values.at + (c + key) * step;
                else
                    x[key] = row_of(j, j->tv, j->v, place.b, place.group, place.first + c + key);
            }
            if (whole > 0) {
                switch (values.dtype) {
                case IK_F16: add_rows_f32(IK_F16, whole, weights, x, sums); break;
                case IK_BF16: add_rows_f32(IK_BF16, whole, weights, x, sums); break;
                default: add_rows_f32(IK_F32, whole, weights, x, sums);
                }
            }
            for (int64_t key = 0; key < 4 && whole < j->e; key++) {
                load_f32(values.dtype, x[key] + whole * size, 1, j->e - whole, rest);
                for (int64_t col = whole; col < j->e; col++)
                    sums[col] += weights[key] * rest[col - whole];
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
static void add_values_many(const job *j, const scratch *r, int64_t rows, keys_of place, int64_t n, const range *seen)
{
    const int64_t wide = j->wide;
    const matrix values = read_rows(j, j->tv, j->v, place, n, true, r->converted);
    bool all_seen = j->shown == NULL, multiply = true;
    for (int64_t i = 0; i < rows; i++)
        all_seen &= seen[i].low <= 0 && seen[i].high >= n;
    for (int64_t key = 0; key < n; key++) {
        const float *from = (const float *)(const void *)values.at + key * values.step;
        float *to = r->values + key * wide;
        multiply &= all_seen || is_finite(from, j->e);
        memcpy(to, from, (size_t)j->e * sizeof *to);
        memset(to + j->e, 0, (size_t)(wide - j->e) * sizeof *to);
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
    if (j->sinks != NULL) { /* one more key, without a value */
        float sink;
        const int64_t step = j->tsinks->strides[0];
        ik_load_f32(j->tsinks->dtype, j->sinks + t->head[i] * step * ik_itemsize(j->tsinks->dtype), step, 1, &sink);
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
    char *y = (char *)(uintptr_t)address_of(j->ty, j->y, t->b, t->query[i], t->head[i]);
    ik_store_f32(j->ty->dtype, sums, y, j->ty->strides[3], j->e);
    if (j->lse != NULL) {
        const float lse = total == 0 ? -INFINITE : max + ik_log_f32(total);
        memcpy((char *)(uintptr_t)address_of(j->tlse, j->lse, t->b, t->query[i], t->head[i]), &lse, sizeof lse);
    }
}
#endif
