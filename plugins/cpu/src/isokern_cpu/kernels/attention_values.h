/* The rows of a tile and a block of values: the sums of these, weighted. */
#ifndef IK_ATTENTION_VALUES_H
#define IK_ATTENTION_VALUES_H
#include "attention_rows.h"

#if defined(__AVX512F__)
enum { ADDED_ROWS = 4, ADDED_VECS = 4 }; /* whose sums are registers while the values of a run are read */
#else
enum { ADDED_ROWS = 2, ADDED_VECS = 4 };
#endif

/* sums[row] += Σ weights[row, key] v[key] over keys low .. high - 1 of a run, each `offset` bytes behind, for `rows`
 * rows and `vecs` vectors of columns from column `at` on; both are constants. */
static inline __attribute__((always_inline)) void add_run(const int32_t dtype, const int rows, const int vecs,
    const job *j, const scratch *r, int64_t row, const block *values, const run *some, int64_t offset, int64_t low,
    int64_t high, int64_t at)
{
    const int64_t size = ik_itemsize(dtype), step = values->step * size;
    const float *weights = r->scores + row * BLOCK;
    const char *x = some->at + offset + (low - some->first) * step + at * size;
    float *sums = r->sums + row * j->wide + at;
    ik_f32s sum[ADDED_ROWS][ADDED_VECS], value[ADDED_VECS];
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[i][v] = *(const loose_f32 *)(sums + i * j->wide + v * lanes_f32);
    for (int64_t key = low; key < high; key++, x += step) {
        if (row == 0 && at == 0 && key % 4 == 0)
            prefetch_rows(values, some, key - some->first, offset, j->e * size);
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            value[v] = widen_f32(dtype, x + v * lanes_f32 * size);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) {
            const ik_f32s weight = splat_f32(weights + i * BLOCK + key);
#pragma GCC unroll 4
            for (int v = 0; v < vecs; v++)
                sum[i][v] = fma_f32(weight, value[v], sum[i][v]);
        }
    }
#pragma GCC unroll 4
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            *(loose_f32 *)(sums + i * j->wide + v * lanes_f32) = sum[i][v];
}

/* The same for all whole vectors of columns. */
static inline __attribute__((always_inline)) void add_columns(const int32_t dtype, const int rows, const job *j,
    const scratch *r, int64_t row, const block *values, const run *some, int64_t offset, int64_t low, int64_t high)
{
    int64_t at = 0;
    for (; at + ADDED_VECS * lanes_f32 <= j->e; at += ADDED_VECS * lanes_f32)
        add_run(dtype, rows, ADDED_VECS, j, r, row, values, some, offset, low, high, at);
    for (; at + lanes_f32 <= j->e; at += lanes_f32)
        add_run(dtype, rows, 1, j, r, row, values, some, offset, low, high, at);
}

#define ADD_TYPE(name) \
    static __attribute__((noinline)) void add_##name(const job *j, const scratch *r, int64_t row, int64_t rows, \
        const block *values, const run *some, int64_t offset, int64_t low, int64_t high) \
    { \
        if (rows == 4) \
            add_columns(IK_##name, ADDED_ROWS, j, r, row, values, some, offset, low, high); \
        else if (rows == 2) \
            add_columns(IK_##name, 2, j, r, row, values, some, offset, low, high); \
        else \
            add_columns(IK_##name, 1, j, r, row, values, some, offset, low, high); \
    }
ADD_TYPE(F32)
ADD_TYPE(F16)
ADD_TYPE(BF16)
#undef ADD_TYPE

/* The same for the columns behind the last whole vector. */
static void add_last_columns(const job *j, const scratch *r, int64_t row, const block *values, const run *some,
    int64_t offset, int64_t low, int64_t high)
{
    const int64_t size = ik_itemsize(values->dtype), whole = j->e / lanes_f32 * lanes_f32;
    float *sums = r->sums + row * j->wide, rest[lanes_f32];
    for (int64_t key = low; key < high && whole < j->e; key++) {
        const char *x = some->at + offset + ((key - some->first) * values->step + whole) * size;
        load_f32(values->dtype, x, 1, j->e - whole, rest);
        for (int64_t c = whole; c < j->e; c++)
            sums[c] += r->scores[row * BLOCK + key] * rest[c - whole];
    }
}

/* Add the values from .. to - 1 of a block, each `offset` bytes behind, to the sums of few rows. Keys that a row does
 * not see are left out, for a value may be infinite; so are those of weight 0 where a mask says which keys are seen. */
static void add_values_few(const job *j, const scratch *r, int64_t rows, const block *values, const range *seen,
    int64_t offset, int64_t from, int64_t to)
{
    for (const run *some = values->runs; some < values->runs + values->count; some++)
        for (int64_t i = 0, tall; i < rows; i += tall) {
            const int64_t low = ik_max(ik_max(seen[i].low, from), some->first),
                          high = ik_min(ik_min(seen[i].high, to), some->first + some->n);
            for (tall = 1; j->seen.t == NULL && i + tall < rows && tall < ADDED_ROWS; tall++)
                if (seen[i + tall].low != seen[i].low || seen[i + tall].high != seen[i].high)
                    break;
            tall = tall == 3 ? 2 : tall;
            for (int64_t key = low, end; key < high; key = end) {
                end = high;
                if (j->seen.t != NULL) {
                    while (key < high && r->scores[i * BLOCK + key] == 0)
                        key++;
                    for (end = key; end < high && r->scores[i * BLOCK + end] != 0;)
                        end++;
                }
                switch (values->dtype) {
                case IK_F16: add_F16(j, r, i, tall, values, some, offset, key, end); break;
                case IK_BF16: add_BF16(j, r, i, tall, values, some, offset, key, end); break;
                default: add_F32(j, r, i, tall, values, some, offset, key, end);
                }
                for (int64_t row = i; row < i + tall; row++)
                    add_last_columns(j, r, row, values, some, offset, key, end);
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

/* Add the values of a block to the sums of many rows, a tile of rows × a panel of values at a time; key by key where a
 * value is not finite and some row does not see all keys. */
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
#endif
