/* attention: y = softmax(score) v in one pass over the keys, where score = softcap(scale q kᵀ) + mask; paged_attention:
 * the same, of keys and values whose rows a table of pages names.
 *
 * A row is a query of a head. The rows of all heads that share a head of k and v read its keys together:
 *
 *     for each sequence, head of k, tile of rows, part of the keys     a task
 *         for each BLOCK of keys
 *             scores[row, key] = q[row] · k[key]
 *             weights = exp(scores - max), where max is the row's largest score so far;
 *                 total and sums, which were made with an earlier max, are multiplied by exp(earlier max - max)
 *             total[row] += Σ_key weights[row, key]
 *             sums[row] += Σ_key weights[row, key] v[key]
 *         y[row] = sums[row] / total[row]
 *
 * Keys are divided into parts only where there would be too few tasks; `join` then adds the parts up. Keys that no row
 * of the task sees are not read. Few rows are computed as dot products with keys and sums of values in place; many, as
 * register tiles (gemm_tile.h) over packed blocks. */
#include <stdatomic.h>

#include "blocks.h"
#include "gemm_core.h"
#include "operators/attention.h"
#include "operators/attention_lse.h"
#include "operators/paged_attention.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "gemm_dots.h"
#undef IK_T
#undef IK_OF

#define INFINITE __builtin_inff()

enum {
    BLOCK = 64, /* keys that are processed at one time */
    FEW = 8, /* rows that are not worth packing keys for */
    MANY = 2 * IK_TILE_ROWS, /* rows of a tile if there are more */
    PART = 512 /* keys of a part at least */
};

typedef struct job {
    /* those that are absent are null */
    const ik_tensor *ty, *tlse, *tq, *tk, *tv, *tmask, *tlengths, *tshown, *tsinks, *talibi, *ttable;
    char *y, *lse;
    const char *q, *k, *v, *mask, *lengths, *shown, *sinks, *alibi, *table;
    int64_t page; /* keys of a page; 0 where keys are not in pages */
    int64_t b, m, h, d, s, g, e; /* the dims of the signature: q[b, m, h, d], k[b, s, g, d], v[b, s, g, e] */
    int64_t shared; /* heads of q for each head of k */
    int64_t rows, tiles, tile_rows, parts; /* of a sequence and a head of k */
    int64_t q_row, wide; /* d and e, rounded up to whole vectors and panels */
    bool packed; /* many rows */
    float scale, softcap;
    int64_t window;
    bool causal;
    char *thread_scratch, *partial; /* partial: for each task, its rows' max, total and sums */
    int64_t scratch_bytes, partial_bytes;
    _Atomic int64_t bad_sequence; /* the first one whose length is out of range */
} job;

/* The scratch of a thread. */
typedef struct scratch {
    float *q; /* [tile_rows, q_row] */
    float *scores; /* [tile_rows, BLOCK]: scores, then weights */
    float *sums; /* [tile_rows, wide] */
    float *max, *total; /* [tile_rows] */
    float *keys; /* [BLOCK / panel_width][d, panel_width]: packed keys */
    float *values; /* [BLOCK, wide]: packed values */
    float *converted; /* [BLOCK, d or e]: keys or values as F32 */
} scratch;

static job job_of(const ik_plan *plan)
{
    const ik_attention_attrs *attrs = plan->attrs;
    const bool with_lse = plan->kind == IK_OP_ATTENTION_LSE;
    const uint32_t in = with_lse ? 2 : 1;
    const ik_tensor *t = plan->tensors;
    job j = { .ty = &t[0], .tq = &t[in], .tk = &t[in + 1], .tv = &t[in + 2] };
    j.tlse = with_lse ? &t[1] : NULL;
    const bool paged = plan->kind == IK_OP_PAGED_ATTENTION;
    j.tmask = !paged && ik_present(plan, in + 3) ? &t[in + 3] : NULL;
    j.tlengths = ik_present(plan, in + 4) ? &t[in + 4] : NULL;
    j.tshown = !paged && ik_present(plan, in + 5) ? &t[in + 5] : NULL;
    j.tsinks = ik_present(plan, in + (paged ? 5 : 6)) ? &t[in + (paged ? 5 : 6)] : NULL;
    j.talibi = ik_present(plan, in + (paged ? 6 : 7)) ? &t[in + (paged ? 6 : 7)] : NULL;
    j.ttable = paged ? &t[in + 3] : NULL;
    j.page = paged ? j.tk->shape[1] : 0;
    j.b = j.tq->shape[0], j.m = j.tq->shape[1], j.h = j.tq->shape[2], j.d = j.tq->shape[3];
    j.s = paged ? j.page * j.ttable->shape[1] : j.tk->shape[1], j.g = j.tk->shape[2], j.e = j.tv->shape[3];
    j.shared = j.g == 0 ? 0 : j.h / j.g;
    j.rows = j.m * j.shared;
    j.packed = j.rows > FEW;
    j.tile_rows = j.packed ? MANY : FEW;
    j.tiles = ik_ceil_div(j.rows, j.tile_rows);
    const int64_t tasks = j.b * j.g * j.tiles, wanted = 2 * ik_threads();
    j.parts = tasks == 0 || tasks >= wanted ? 1 : ik_max(1, ik_min(ik_ceil_div(wanted, tasks), j.s / PART));
    j.q_row = ik_round_up(j.d, 16);
    j.wide = ik_round_up(ik_max(j.e, 1), panel_width_f32);
    j.scale = attrs->scale != 0 ? (float)attrs->scale : (float)(1 / ik_sqrt_f64((double)ik_max(j.d, 1)));
    j.softcap = (float)attrs->softcap;
    j.window = attrs->window;
    j.causal = attrs->causal != 0;
    const int64_t for_rows = j.tile_rows * (j.q_row + BLOCK + j.wide) + 2 * ik_round_up(j.tile_rows, 16),
                  for_keys = BLOCK * (j.d + j.wide + ik_max(j.d, j.e));
    j.scratch_bytes = ik_round_up((for_rows + for_keys) * (int64_t)sizeof(float), 64);
    j.partial_bytes = j.parts == 1 ? 0 : ik_round_up(j.tile_rows * (j.wide + 2) * (int64_t)sizeof(float), 64);
    atomic_init(&j.bad_sequence, INT64_MAX);
    return j;
}

static int64_t tasks_of(const job *j) { return j->b * j->g * j->tiles * j->parts; }

static scratch scratch_of(const job *j, int32_t worker)
{
    scratch r = { .q = (float *)(void *)(j->thread_scratch + worker * j->scratch_bytes) };
    r.scores = r.q + j->tile_rows * j->q_row;
    r.sums = r.scores + j->tile_rows * BLOCK;
    r.max = r.sums + j->tile_rows * j->wide;
    r.total = r.max + ik_round_up(j->tile_rows, 16);
    r.keys = r.total + ik_round_up(j->tile_rows, 16);
    r.values = r.keys + BLOCK * j->d;
    r.converted = r.values + BLOCK * j->wide;
    return r;
}

/* Some rows of a sequence and a head of k: row i of the tile is that of query[i] and head[i]. */
typedef struct tile {
    int64_t b, group, rows;
    int64_t query[MANY], head[MANY];
} tile;

static tile tile_at(const job *j, int64_t number)
{
    const int64_t first = number % j->tiles * j->tile_rows;
    tile t = {
        .b = number / j->tiles / j->g, .group = number / j->tiles % j->g, .rows = ik_min(j->tile_rows, j->rows - first)
    };
    for (int64_t i = 0; i < t.rows; i++) {
        t.query[i] = (first + i) / j->shared;
        t.head[i] = t.group * j->shared + (first + i) % j->shared;
    }
    return t;
}

/* The address of element [a, b, c, 0] of a tensor; of a run of blocks where these are quantised. */
static const char *address_of(const ik_tensor *t, const char *x, int64_t a, int64_t b, int64_t c)
{ return x + ik_bytes(t->dtype, a * t->strides[0] + b * t->strides[1] + c * t->strides[2]); }

static int64_t given_length(const job *j, int64_t b)
{ return ik_index_at(j->tlengths->dtype, j->lengths, b * j->tlengths->strides[0]); }

static int64_t page_at(const job *j, int64_t b, int64_t number)
{ return ik_index_at(j->ttable->dtype, j->table, b * j->ttable->strides[0] + number * j->ttable->strides[1]); }

/* The first entry of a sequence's table that names no page and has keys before the length; -1 where all do. */
static int64_t wrong_page(const job *j, int64_t b, int64_t length)
{
    for (int64_t i = 0; j->page != 0 && i * j->page < length; i++)
        if (page_at(j, b, i) < 0 || page_at(j, b, i) >= j->tk->shape[0])
            return i;
    return -1;
}

/* Key or value `key` of a sequence and a head of k: its row. */
static const char *row_of(const job *j, const ik_tensor *t, const char *x, int64_t b, int64_t group, int64_t key)
{
    if (j->page == 0)
        return address_of(t, x, b, key, group);
    const int64_t number = key / j->page;
    return address_of(t, x, page_at(j, b, number), key - number * j->page, group);
}

/* The number of keys of a sequence. */
static int64_t length_of(job *j, int64_t b)
{
    if (j->lengths == NULL)
        return j->s;
    const int64_t length = given_length(j, b);
    if (length >= 0 && length <= j->s && wrong_page(j, b, length) < 0)
        return length;
    int64_t first = atomic_load(&j->bad_sequence);
    while (b < first && !atomic_compare_exchange_weak(&j->bad_sequence, &first, b))
        ;
    return 0;
}

/* Keys low .. high - 1. */
typedef struct range {
    int64_t low, high;
} range;

/* The keys that a query of a sequence with `length` keys sees; the last query is at the last key. */
static range find_visible(const job *j, int64_t length, int64_t query)
{
    const int64_t place = length - j->m + query, behind = j->causal ? 1 : j->window > 0 ? j->window : length + j->m;
    return (range){ .low = j->window > 0 ? ik_max(0, place - j->window + 1) : 0,
        .high = ik_max(0, ik_min(length, place + behind)) };
}

/* Keys of a sequence and a head of k, from `first` on. */
typedef struct keys_of {
    int64_t b, group, first;
} keys_of;

/* Rows of keys or values, `step` elements apart; in pages where `at` is null. */
typedef struct matrix {
    int32_t dtype;
    const char *at;
    int64_t step;
} matrix;

/* Read n keys or values: in place where they are contiguous floats, of F32 if `widen`; else converted into `to`. */
static matrix read_rows(
    const job *j, const ik_tensor *t, const char *x, keys_of place, int64_t n, bool widen, float *to)
{
    const int64_t width = t->shape[3];
    if (t->strides[3] == 1
        && (t->dtype == IK_F32 || (!widen && ik_itemsize(t->dtype) > 1 && ik_has_vectors(t->dtype)))) {
        const bool one = j->page == 0 || place.first % j->page + n <= j->page;
        if (one || !widen)
            return (matrix){ t->dtype, one ? row_of(j, t, x, place.b, place.group, place.first) : NULL, t->strides[1] };
    }
    for (int64_t i = 0; i < n; i++) {
        const char *row = row_of(j, t, x, place.b, place.group, place.first + i);
        if (ik_is_blocks(t->dtype))
            ik_dequantize_run(t->dtype, width, row, to + i * width);
        else
            ik_load_f32(t->dtype, row, t->strides[3], width, to + i * width);
    }
    return (matrix){ IK_F32, (const char *)to, width };
}

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

/* Run tasks begin .. end, numbered ((b * g + group) * tiles + tile) * parts + part. */
static void attend(void *context, int64_t begin, int64_t end, int32_t worker)
{
    job *j = context;
    const scratch r = scratch_of(j, worker);
    for (int64_t task = begin; task < end; task++) {
        const tile t = tile_at(j, task / j->parts);
        const int64_t part = task % j->parts, length = length_of(j, t.b);
        const int64_t low = find_visible(j, length, t.query[0]).low,
                      keys = ik_max(0, find_visible(j, length, t.query[t.rows - 1]).high - low),
                      from = low + keys * part / j->parts, to = low + keys * (part + 1) / j->parts;
        for (int64_t i = 0; i < t.rows; i++) {
            const char *q = address_of(j->tq, j->q, t.b, t.query[i], t.head[i]);
            ik_load_f32(j->tq->dtype, q, j->tq->strides[3], j->d, r.q + i * j->q_row);
            r.max[i] = -INFINITE;
            r.total[i] = 0;
        }
        memset(r.sums, 0, (size_t)(t.rows * j->wide) * sizeof(float));
        for (int64_t at = from; at < to; at += BLOCK) {
            const int64_t n = ik_min(BLOCK, to - at);
            range seen[MANY];
            const keys_of place = { t.b, t.group, at };
            (j->packed ? score_many : score_few)(j, &r, t.rows, place, n);
            for (int64_t i = 0; i < t.rows; i++) {
                const range visible = find_visible(j, length, t.query[i]);
                addend given = { .place = length - j->m + t.query[i] - at };
                if (j->mask != NULL)
                    given.mask = address_of(j->tmask, j->mask, t.b, t.head[i], t.query[i])
                        + at * j->tmask->strides[3] * ik_itemsize(j->tmask->dtype);
                if (j->shown != NULL)
                    given.shown =
                        address_of(j->tshown, j->shown, t.b, t.head[i], t.query[i]) + at * j->tshown->strides[3];
                if (j->alibi != NULL)
                    memcpy(&given.slope, j->alibi + t.head[i] * j->talibi->strides[0] * (int64_t)sizeof(float),
                        sizeof given.slope);
                seen[i] = (range){ ik_max(visible.low - at, 0), ik_min(visible.high - at, n) };
                weigh(j, &r, i, seen[i], given);
            }
            (j->packed ? add_values_many : add_values_few)(j, &r, t.rows, place, n, seen);
        }
        for (int64_t i = 0; i < t.rows; i++) {
            float *sums = r.sums + i * j->wide;
            if (j->parts == 1) {
                finish(j, &t, i, sums, r.max[i], r.total[i]);
            } else {
                float *partial = (float *)(void *)(j->partial + task * j->partial_bytes) + i * (j->wide + 2);
                partial[0] = r.max[i], partial[1] = r.total[i];
                memcpy(partial + 2, sums, (size_t)j->e * sizeof *sums);
            }
        }
    }
}

/* Join the parts of tiles begin .. end, in order, to the first of them. */
static void join(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t number = begin; number < end; number++) {
        const tile t = tile_at(j, number);
        char *parts = j->partial + number * j->parts * j->partial_bytes;
        for (int64_t i = 0; i < t.rows; i++) {
            float *sums = (float *)(void *)parts + i * (j->wide + 2);
            for (int64_t part = 1; part < j->parts; part++) {
                const float *other = (const float *)(void *)(parts + part * j->partial_bytes) + i * (j->wide + 2);
                const float max = other[0] > sums[0] ? other[0] : sums[0], base = max == -INFINITE ? 0 : max;
                const float own = ik_exp_f32(sums[0] - base), theirs = ik_exp_f32(other[0] - base);
                sums[0] = max;
                for (int64_t c = 1; c < j->e + 2; c++)
                    sums[c] = sums[c] * own + other[c] * theirs;
            }
            finish(j, &t, i, sums + 2, sums[0], sums[1]);
        }
    }
}

IK_SUPPORTED(attention)
{
    const uint32_t in = plan->kind == IK_OP_ATTENTION_LSE ? 2 : 1;
    if (plan->tensors[in].dtype == IK_F64)
        return "F64";
    const job j = job_of(plan);
    if (j.page != 0 && j.packed && !ik_is_blocks(j.tk->dtype)) /* 20.2 ms, here 23.9: 64 queries, 1,024 keys, twice */
        return "many queries, which are faster with the pages gathered";
    return NULL;
}

IK_WORKSPACE(attention)
{
    const job j = job_of(plan);
    return tasks_of(&j) == 0 ? 0 : (uint64_t)(ik_threads() * j.scratch_bytes + tasks_of(&j) * j.partial_bytes);
}

IK_KERNEL(attention)
{
    IK_UNUSED;
    job j = job_of(plan);
    const uint32_t in = j.tlse != NULL ? 2 : 1;
    j.y = ik_ptr(plan, data, 0);
    j.lse = j.tlse != NULL ? ik_ptr(plan, data, 1) : NULL;
    j.q = ik_ptr(plan, data, in), j.k = ik_ptr(plan, data, in + 1), j.v = ik_ptr(plan, data, in + 2);
    j.lengths = ik_ptr(plan, data, in + 4);
    j.mask = j.tmask != NULL ? ik_ptr(plan, data, in + 3) : NULL;
    j.table = j.ttable != NULL ? ik_ptr(plan, data, in + 3) : NULL;
    j.shown = j.tshown != NULL ? ik_ptr(plan, data, in + 5) : NULL;
    j.sinks = j.tsinks != NULL ? ik_ptr(plan, data, (uint32_t)(j.tsinks - plan->tensors)) : NULL;
    j.alibi = j.talibi != NULL ? ik_ptr(plan, data, (uint32_t)(j.talibi - plan->tensors)) : NULL;
    j.thread_scratch = workspace;
    j.partial = (char *)workspace + ik_threads() * j.scratch_bytes;
    if (tasks_of(&j) == 0)
        return IK_SUCCESS;
    const int64_t work = ik_max(1, j.tile_rows * ik_max(1, j.s / j.parts) * (j.d + j.e));
    ik_parallel_for(tasks_of(&j), ik_max(1, (1 << 18) / work), attend, &j);
    if (j.parts > 1)
        ik_parallel_for(j.b * j.g * j.tiles, 4, join, &j);
    const int64_t bad = atomic_load(&j.bad_sequence);
    if (bad == INT64_MAX)
        return IK_SUCCESS;
    const int64_t length = given_length(&j, bad), wrong = length <= j.s ? wrong_page(&j, bad, length) : -1;
    return wrong < 0 ? ik_bad_value(bad, length)
                     : ik_bad_value(bad * j.ttable->shape[1] + wrong, page_at(&j, bad, wrong));
}
