/* attention: softmax(scale q kᵀ + mask) v in one pass over the keys, BLOCK of them at a time.
 *
 * A task is a sequence, a head of k and v, some of the queries of the heads that share it, and, where there would be
 * too few tasks, a part of the keys; the parts are joined afterwards. Few queries are computed as dot products with
 * keys and sums of values in place; many as register tiles over a packed block. Keys that no query of the task sees are
 * not read. */
#include <stdatomic.h>

#include "blocks.h"
#include "gemm_core.h"
#include "operators/attention.h"
#include "operators/attention_lse.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "gemm_dots.h"
#undef IK_T
#undef IK_OF

#define INFINITE __builtin_inff()

enum { BLOCK = 64, FEW = 8, MANY = 2 * IK_TILE_ROWS, PART = 512 };

typedef struct job {
    const ik_tensor *ty, *tq, *tk, *tv, *tmask;
    char *y, *lse;
    const char *q, *k, *v, *mask;
    const char *lengths;
    int32_t lengths_dtype;
    int64_t lengths_step, lse_steps[3];
    int64_t b, m, h, d, s, g, e, shared; /* shared: heads of q for each head of k */
    /* Per sequence and head of k: queries, tiles of up to `max` of them, parts of the keys. */
    int64_t rows, tiles, max, parts;
    float scale, softcap;
    int64_t window;
    bool causal, packed;
    char *thread_scratch, *partial;
    int64_t scratch_bytes, partial_bytes;
    _Atomic int64_t wrong; /* the first sequence whose length is out of range */
} job;

/* The scratch of a task: queries, scores, sums, a packed block of keys and one of values. */
typedef struct scratch {
    float *q, *scores, *sums, *keys, *values, *wide, *max, *total;
} scratch;

static int64_t wide_of(int64_t e) { return ik_round_up(ik_max(e, 1), panel_width_f32); }

static int64_t floats_of(const job *j)
{
    const int64_t packed = BLOCK * (j->d + wide_of(j->e)) + BLOCK * ik_max(j->d, wide_of(j->e));
    return j->max * (ik_round_up(j->d, 16) + BLOCK + wide_of(j->e) + 32) + packed + 64;
}

static job job_of(const ik_plan *plan)
{
    const ik_attention_attrs *attrs = plan->attrs;
    const uint32_t in = plan->kind == IK_OP_ATTENTION_LSE ? 2 : 1;
    job j = {
        .ty = &plan->tensors[0], .tq = &plan->tensors[in], .tk = &plan->tensors[in + 1], .tv = &plan->tensors[in + 2]
    };
    j.tmask = ik_present(plan, in + 3) ? &plan->tensors[in + 3] : NULL;
    j.b = j.tq->shape[0], j.m = j.tq->shape[1], j.h = j.tq->shape[2], j.d = j.tq->shape[3];
    j.s = j.tk->shape[1], j.g = j.tk->shape[2], j.e = j.tv->shape[3];
    j.shared = j.g == 0 ? 0 : j.h / j.g;
    j.rows = j.m * j.shared;
    j.packed = j.rows > FEW;
    j.max = j.packed ? MANY : FEW;
    j.tiles = ik_ceil_div(j.rows, j.max);
    const int64_t tasks = j.b * j.g * j.tiles, wanted = 2 * ik_threads();
    j.parts = tasks == 0 || tasks >= wanted ? 1 : ik_max(1, ik_min(ik_ceil_div(wanted, tasks), j.s / PART));
    j.scale = attrs->scale != 0 ? (float)attrs->scale : (float)(1 / ik_sqrt_f64((double)ik_max(j.d, 1)));
    j.softcap = (float)attrs->softcap;
    j.window = attrs->window;
    j.causal = attrs->causal != 0;
    j.scratch_bytes = ik_round_up(4 * floats_of(&j), 64);
    j.partial_bytes = j.parts == 1 ? 0 : ik_round_up(4 * j.max * (wide_of(j.e) + 2), 64);
    atomic_init(&j.wrong, INT64_MAX);
    return j;
}

static int64_t tasks_of(const job *j) { return j->b * j->g * j->tiles * j->parts; }

static scratch scratch_of(const job *j, int32_t worker)
{
    float *at = (float *)(void *)(j->thread_scratch + worker * j->scratch_bytes);
    const int64_t wide = wide_of(j->e);
    scratch r = { .q = at };
    r.scores = r.q + j->max * ik_round_up(j->d, 16);
    r.sums = r.scores + j->max * BLOCK;
    r.max = r.sums + j->max * wide;
    r.total = r.max + ik_round_up(j->max, 16);
    r.keys = r.total + ik_round_up(j->max, 16);
    r.values = r.keys + BLOCK * j->d;
    r.wide = r.values + BLOCK * wide;
    return r;
}

/* The number of keys of a sequence. */
static int64_t length_of(job *j, int64_t b)
{
    if (j->lengths == NULL)
        return j->s;
    const int64_t length = ik_index_at(j->lengths_dtype, j->lengths, b * j->lengths_step);
    if (length >= 0 && length <= j->s)
        return length;
    int64_t seen = atomic_load(&j->wrong);
    while (b < seen && !atomic_compare_exchange_weak(&j->wrong, &seen, b))
        ;
    return 0;
}

/* The range of keys [*low, *high) that query i of a sequence with `length` keys sees. */
static void find_visible(const job *j, int64_t length, int64_t i, int64_t *low, int64_t *high)
{
    const int64_t place = length - j->m + i;
    *high = j->causal ? ik_max(0, ik_min(length, place + 1)) : length;
    *low = j->window > 0 ? ik_max(0, place - j->window + 1) : 0;
}

/* Rows of `n` keys or values from `at` as F32: in place if they are F32 already, else converted into `to`. */
static const float *floats_at(const ik_tensor *t, const char *from, int64_t n, float *to, int64_t *row)
{
    const int64_t width = t->shape[3];
    if (t->dtype == IK_F32 && t->strides[3] == 1) {
        *row = t->strides[1];
        return (const float *)(const void *)from;
    }
    *row = width;
    for (int64_t i = 0; i < n; i++)
        if (ik_is_blocks(t->dtype))
            ik_dequantize_run(t->dtype, width, from + ik_bytes(t->dtype, i * t->strides[1]), to + i * width);
        else
            ik_load_f32(
                t->dtype, from + i * t->strides[1] * ik_itemsize(t->dtype), t->strides[3], width, to + i * width);
    return to;
}

/* scores[r, key] = q[r] · k[key] for n keys. */
static void score(const job *j, const scratch *r, int64_t rows, const char *k, int64_t n)
{
    const int64_t q_row = ik_round_up(j->d, 16);
    const bool lies = j->tk->strides[3] == 1 && !ik_is_blocks(j->tk->dtype);
    if (!j->packed && lies) {
        const int64_t row = j->tk->strides[1], size = ik_itemsize(j->tk->dtype);
        for (int64_t c = 0; c < n; c += 4)
            for (int64_t i = 0; i < rows; i += 4) {
                const int64_t tall = ik_min(4, rows - i), cols = ik_min(4, n - c);
                float *to = r->scores + i * BLOCK + c;
                const float *q = r->q + i * q_row;
                switch (j->tk->dtype) {
                case IK_F16: dots_of_f32(IK_F16, tall, cols, j->d, q, q_row, k + c * row * size, row, to, BLOCK); break;
                case IK_BF16:
                    dots_of_f32(IK_BF16, tall, cols, j->d, q, q_row, k + c * row * size, row, to, BLOCK);
                    break;
                default: dots_of_f32(IK_F32, tall, cols, j->d, q, q_row, k + c * row * size, row, to, BLOCK);
                }
            }
        return;
    }
    int64_t row;
    const float *keys = floats_at(j->tk, k, n, r->wide, &row);
    if (!j->packed) {
        for (int64_t c = 0; c < n; c += 4)
            for (int64_t i = 0; i < rows; i += 4)
                dots_of_f32(IK_F32, ik_min(4, rows - i), ik_min(4, n - c), j->d, r->q + i * q_row, q_row,
                    (const char *)(keys + c * row), row, r->scores + i * BLOCK + c, BLOCK);
        return;
    }
    for (int64_t c = 0; c < n; c += panel_width_f32)
        transpose_f32(IK_F32, (const char *)(keys + c * row), row, j->d, ik_min(panel_width_f32, n - c),
            r->keys + c * j->d, panel_width_f32);
    for (int64_t i = 0; i < rows; i += IK_TILE_ROWS)
        for (int64_t c = 0; c < n; c += panel_width_f32) {
            ik_tile t = { .k = j->d,
                .a = r->q + i * q_row,
                .a_row = q_row,
                .a_step = 1,
                .b = r->keys + c * j->d,
                .b_step = panel_width_f32 };
            t.to = r->scores + i * BLOCK + c, t.to_row = BLOCK;
            tile_f32(ik_min(IK_TILE_ROWS, rows - i), 2, &t);
        }
}

/* The range, among n keys, of those that a row sees. */
typedef struct range {
    int64_t low, high;
} range;

typedef uint32_t __attribute__((may_alias)) float_bits;

/* sums[r] += Σ scores[r, key] v[key] over n keys. A value that a row does not see may be infinite, so it is skipped,
 * not multiplied by 0. */
static void add_values(const job *j, const scratch *r, int64_t rows, const char *v, int64_t n, const range *seen)
{
    const int64_t wide = wide_of(j->e);
    int64_t row;
    const float *values;
    if (j->packed) {
        bool partly = false; /* some row does not see all keys */
        uint32_t odd = 0;
        for (int64_t i = 0; i < rows; i++)
            partly |= seen[i].low > 0 || seen[i].high < n;
        values = floats_at(j->tv, v, n, r->wide, &row);
        for (int64_t i = 0; i < n; i++) {
            const float_bits *bits = (const float_bits *)(values + i * row);
            for (int64_t c = 0; partly && c < j->e; c++)
                odd |= (bits[c] & 0x7f800000u) == 0x7f800000u;
            memcpy(r->values + i * wide, values + i * row, (size_t)j->e * sizeof *values);
            memset(r->values + i * wide + j->e, 0, (size_t)(wide - j->e) * sizeof *values);
        }
        for (int64_t i = 0; i < rows && odd; i++)
            for (int64_t key = seen[i].low; key < seen[i].high; key++)
                for (int64_t c = 0; c < wide; c++)
                    r->sums[i * wide + c] += r->scores[i * BLOCK + key] * r->values[key * wide + c];
        if (odd)
            return;
        for (int64_t i = 0; i < rows; i += IK_TILE_ROWS)
            for (int64_t c = 0; c < wide; c += panel_width_f32) {
                ik_tile t = {
                    .k = n, .a = r->scores + i * BLOCK, .a_row = BLOCK, .a_step = 1, .b = r->values + c, .b_step = wide
                };
                t.from = t.to = r->sums + i * wide + c, t.from_row = t.to_row = wide;
                tile_f32(ik_min(IK_TILE_ROWS, rows - i), 2, &t);
            }
        return;
    }
    const bool lies = j->tv->strides[3] == 1 && !ik_is_blocks(j->tv->dtype);
    values = lies ? (const float *)(const void *)v : floats_at(j->tv, v, n, r->wide, &row);
    const int32_t dtype = lies ? j->tv->dtype : IK_F32;
    const int64_t step = (lies ? j->tv->strides[1] : row) * ik_itemsize(dtype), whole = j->e / lanes_f32 * lanes_f32,
                  size = ik_itemsize(dtype);
    const char *at = (const char *)values, *zeros = memset(r->keys, 0, (size_t)wide * sizeof(float));
    for (int64_t c = 0; c < n; c += 4)
        for (int64_t i = 0; i < rows; i++) {
            float *sums = r->sums + i * wide, four[4] = { 0 }, rest[lanes_f32];
            const char *x[4];
            if (c >= seen[i].low && c + 4 <= seen[i].high)
                for (int64_t key = 0; key < 4; key++)
                    four[key] = r->scores[i * BLOCK + c + key], x[key] = at + (c + key) * step;
            else
                for (int64_t key = 0; key < 4; key++) {
                    const bool there = c + key >= seen[i].low && c + key < seen[i].high;
                    four[key] = there ? r->scores[i * BLOCK + c + key] : 0;
                    x[key] = there ? at + (c + key) * step : zeros;
                }
            if (whole > 0) {
                switch (dtype) {
                case IK_F16: add_rows_f32(IK_F16, whole, four, x, sums); break;
                case IK_BF16: add_rows_f32(IK_BF16, whole, four, x, sums); break;
                default: add_rows_f32(IK_F32, whole, four, x, sums);
                }
            }
            for (int64_t key = 0; key < 4 && whole < j->e; key++) {
                load_f32(dtype, x[key] + whole * size, 1, j->e - whole, rest);
                for (int64_t col = whole; col < j->e; col++)
                    sums[col] += four[key] * rest[col - whole];
            }
        }
}

/* Turn the scores of a row into weights, and update its running maximum and sum; keys before `low` and from `high` on
 * are not seen. */
static void weigh(const job *j, const scratch *r, int64_t i, int64_t n, int64_t low, int64_t high, const char *mask)
{
    float *x = r->scores + i * BLOCK, other[BLOCK];
    const int64_t wide = wide_of(j->e);
    low = ik_max(low, 0), high = ik_min(high, n);
    if (low >= high) {
        memset(x, 0, (size_t)n * sizeof *x);
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
        ik_load_f32(j->tmask->dtype, mask + low * step * ik_itemsize(j->tmask->dtype), step, high - low, other + low);
        for (int64_t c = low; c < high; c++)
            x[c] += other[c];
    }
    float max = r->max[i], before = max;
    for (int64_t c = low; c < high; c++)
        max = x[c] > max ? x[c] : max;
    const float base = max == -INFINITE ? 0 : max;
    float total = 0;
    IK_VECTORISE for (int64_t c = low; c < high; c++)
        x[c] = x[c] == -INFINITE ? 0 : ik_exp_f32(x[c] - base);
    for (int64_t c = low; c < high; c++)
        total += x[c];
    memset(x, 0, (size_t)low * sizeof *x);
    memset(x + high, 0, (size_t)(n - high) * sizeof *x);
    r->max[i] = max;
    const float kept = before == max ? 1 : ik_exp_f32(before - base);
    r->total[i] = r->total[i] * kept + total;
    if (kept != 1)
        for (int64_t c = 0; c < wide; c++)
            r->sums[i * wide + c] *= kept;
}

/* Write the result of a row from its sums. */
static void finish(const job *j, int64_t b, int64_t i, int64_t head, float *sums, float max, float total)
{
    const float by = total == 0 ? 0 : 1 / total;
    for (int64_t c = 0; c < j->e; c++)
        sums[c] = total == 0 ? 0 : sums[c] * by;
    const int64_t *steps = j->ty->strides, at = b * steps[0] + i * steps[1] + head * steps[2];
    ik_store_f32(j->ty->dtype, sums, j->y + at * ik_itemsize(j->ty->dtype), steps[3], j->e);
    if (j->lse != NULL) {
        float lse = total == 0 ? -INFINITE : max + ik_log_f32(total);
        memcpy(j->lse + (b * j->lse_steps[0] + i * j->lse_steps[1] + head * j->lse_steps[2]) * 4, &lse, 4);
    }
}

/* Run tasks begin .. end, numbered ((b * g + group) * tiles + tile) * parts + part. */
static void attend(void *context, int64_t begin, int64_t end, int32_t worker)
{
    job *j = context;
    const scratch r = scratch_of(j, worker);
    const int64_t q_row = ik_round_up(j->d, 16), wide = wide_of(j->e);
    for (int64_t task = begin; task < end; task++) {
        const int64_t part = task % j->parts, tile = task / j->parts % j->tiles,
                      group = task / j->parts / j->tiles % j->g, b = task / j->parts / j->tiles / j->g;
        const int64_t first = tile * j->max, rows = ik_min(j->max, j->rows - first), length = length_of(j, b);
        int64_t low, high, unused;
        find_visible(j, length, first / j->shared, &low, &unused);
        find_visible(j, length, (first + rows - 1) / j->shared, &unused, &high);
        const int64_t keys = ik_max(0, high - low), from = low + keys * part / j->parts,
                      to = low + keys * (part + 1) / j->parts;
        for (int64_t i = 0; i < rows; i++) {
            const int64_t row = first + i, *steps = j->tq->strides;
            const int64_t at =
                b * steps[0] + row / j->shared * steps[1] + (group * j->shared + row % j->shared) * steps[2];
            ik_load_f32(j->tq->dtype, j->q + at * ik_itemsize(j->tq->dtype), steps[3], j->d, r.q + i * q_row);
            r.max[i] = -INFINITE;
            r.total[i] = 0;
        }
        memset(r.sums, 0, (size_t)(rows * wide) * sizeof(float));
        for (int64_t at = from; at < to; at += BLOCK) {
            const int64_t n = ik_min(BLOCK, to - at);
            range seen[MANY];
            score(j, &r, rows,
                j->k
                    + ik_bytes(
                        j->tk->dtype, b * j->tk->strides[0] + at * j->tk->strides[1] + group * j->tk->strides[2]),
                n);
            for (int64_t i = 0; i < rows; i++) {
                const int64_t query = (first + i) / j->shared, head = group * j->shared + (first + i) % j->shared;
                find_visible(j, length, query, &low, &high);
                const char *mask = NULL;
                if (j->mask != NULL)
                    mask = j->mask
                        + (b * j->tmask->strides[0] + head * j->tmask->strides[1] + query * j->tmask->strides[2]
                              + at * j->tmask->strides[3])
                            * ik_itemsize(j->tmask->dtype);
                seen[i] = (range){ ik_max(low - at, 0), ik_min(high - at, n) };
                weigh(j, &r, i, n, low - at, high - at, mask);
            }
            add_values(j, &r, rows,
                j->v
                    + ik_bytes(
                        j->tv->dtype, b * j->tv->strides[0] + at * j->tv->strides[1] + group * j->tv->strides[2]),
                n, seen);
        }
        float *partial = (float *)(void *)(j->partial + task * j->partial_bytes);
        for (int64_t i = 0; i < rows; i++)
            if (j->parts == 1)
                finish(j, b, (first + i) / j->shared, group * j->shared + (first + i) % j->shared, r.sums + i * wide,
                    r.max[i], r.total[i]);
            else {
                float *row = partial + i * (wide + 2);
                row[0] = r.max[i], row[1] = r.total[i];
                memcpy(row + 2, r.sums + i * wide, (size_t)j->e * sizeof *row);
            }
    }
}

/* Join the parts of a task, in order. */
static void join(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t wide = wide_of(j->e);
    for (int64_t task = begin; task < end; task++) {
        const int64_t tile = task % j->tiles, group = task / j->tiles % j->g, b = task / j->tiles / j->g;
        const int64_t first = tile * j->max, rows = ik_min(j->max, j->rows - first);
        for (int64_t i = 0; i < rows; i++) {
            float *sums = (float *)(void *)(j->partial + task * j->parts * j->partial_bytes) + i * (wide + 2);
            for (int64_t part = 1; part < j->parts; part++) {
                const float *other =
                    (const float *)(const void *)(j->partial + (task * j->parts + part) * j->partial_bytes)
                    + i * (wide + 2);
                const float max = other[0] > sums[0] ? other[0] : sums[0], base = max == -INFINITE ? 0 : max;
                const float own = ik_exp_f32(sums[0] - base), theirs = ik_exp_f32(other[0] - base);
                sums[0] = max;
                sums[1] = sums[1] * own + other[1] * theirs;
                for (int64_t c = 2; c < j->e + 2; c++)
                    sums[c] = sums[c] * own + other[c] * theirs;
            }
            finish(
                j, b, (first + i) / j->shared, group * j->shared + (first + i) % j->shared, sums + 2, sums[0], sums[1]);
        }
    }
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
    const bool with_lse = plan->kind == IK_OP_ATTENTION_LSE;
    const uint32_t in = with_lse ? 2 : 1;
    j.y = ik_ptr(plan, data, 0);
    j.q = ik_ptr(plan, data, in), j.k = ik_ptr(plan, data, in + 1), j.v = ik_ptr(plan, data, in + 2),
    j.mask = ik_ptr(plan, data, in + 3);
    j.lengths = ik_ptr(plan, data, in + 4);
    if (j.lengths != NULL) {
        j.lengths_dtype = plan->tensors[in + 4].dtype;
        j.lengths_step = plan->tensors[in + 4].strides[0];
    }
    if (with_lse) {
        j.lse = ik_ptr(plan, data, 1);
        memcpy(j.lse_steps, plan->tensors[1].strides, sizeof j.lse_steps);
    }
    j.thread_scratch = workspace;
    j.partial = (char *)workspace + ik_threads() * j.scratch_bytes;
    if (tasks_of(&j) == 0)
        return IK_SUCCESS;
    const int64_t work = ik_max(1, j.max * ik_max(1, j.s / j.parts) * (j.d + j.e));
    ik_parallel_for(tasks_of(&j), ik_max(1, (1 << 18) / work), attend, &j);
    if (j.parts > 1)
        ik_parallel_for(j.b * j.g * j.tiles, 4, join, &j);
    const int64_t wrong = atomic_load(&j.wrong);
    return wrong == INT64_MAX ? IK_SUCCESS
                              : ik_bad_value(wrong, ik_index_at(j.lengths_dtype, j.lengths, wrong * j.lengths_step));
}
