/* attention: y = softmax(score) v in one pass over the keys, where score = softcap(scale q kᵀ) + mask, and its other
 * forms: keys and values whose rows a table of pages names (paged_attention), queries of several sequences one after
 * another (varlen_attention, paged_attention_prefill), keys that are their own values (mla_attention).
 *
 * A row is a query of a head. The rows of all heads that share a head of k and v read its keys together:
 *
 *     for each batch, head of k, tile of rows, part of the keys     a task
 *       for each sequence that the tile has rows of
 *         for each BLOCK of its keys
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
#include "attention_values.h"

/* What is added to the scores of row i of a tile, of a sequence's keys from `at` on. */
static addend find_addend(const job *j, const tile *t, int64_t i, const span *keys, int64_t at)
{
    addend r = { .place = t->query[i] + keys->shift - at };
    if (j->mask.t != NULL)
        r.mask = address_of(j->mask.t, j->mask.at, t->b, t->head[i], t->query[i])
            + at * j->mask.t->strides[3] * ik_itemsize(j->mask.t->dtype);
    if (j->seen.t != NULL)
        r.seen = address_of(j->seen.t, j->seen.at, t->b, t->head[i], t->query[i]) + at * j->seen.t->strides[3];
    if (j->alibi.t != NULL)
        memcpy(&r.slope, j->alibi.at + t->head[i] * j->alibi.t->strides[0] * (int64_t)sizeof(float), sizeof r.slope);
    return r;
}

/* Compute the sums of a tile's rows over keys from .. to - 1 of their sequence. */
static void attend_keys(const job *j, const scratch *r, const tile *t, const span *keys, int64_t from, int64_t to)
{
    const bool many = t->rows > FEW;
    for (int64_t i = 0; i < t->rows; i++) {
        const char *q = address_of(&j->q, j->of_q, t->b, t->query[i], t->head[i]);
        ik_load_f32(j->q.dtype, q, j->q.strides[3], j->d, r->q + i * j->q_row);
        r->max[i] = -INFINITE;
        r->total[i] = 0;
    }
    memset(r->sums, 0, (size_t)(t->rows * j->wide) * sizeof(float));
    for (int64_t at = from; at < to; at += BLOCK) {
        const int64_t n = ik_min(BLOCK, to - at);
        range seen[MANY];
        block rows;
        if (!many) {
            find_runs(j, &j->v, j->of_v, keys, t->group, at, n, &rows);
            prefetch_first(&rows, j->e * ik_itemsize(rows.dtype));
        }
        read_block(j, &j->k, j->of_k, keys, t->group, at, n, r->converted, &rows);
        if (many) {
            score_many(j, r, t->rows, &rows, n);
        } else {
            if (at == from)
                prefetch_first(&rows, j->d * ik_itemsize(rows.dtype));
            score_few(j, r, t->rows, &rows);
        }
        for (int64_t i = 0; i < t->rows; i++) {
            const range visible = find_visible(j, keys, t->query[i]);
            seen[i] = (range){ ik_max(visible.low - at, 0), ik_min(visible.high - at, n) };
            weigh(j, r, i, seen[i], find_addend(j, t, i, keys, at));
        }
        if (many) {
            find_runs(j, &j->v, j->of_v, keys, t->group, at, n, &rows);
            add_values_many(j, r, t->rows, &rows, n, seen);
        } else {
            read_block(j, &j->v, j->of_v, keys, t->group, at, n, r->converted, &rows);
            add_values_few(j, r, t->rows, &rows, seen);
        }
    }
}

/* Run tasks begin .. end, numbered ((b * g + group) * tiles + tile) * parts + part. */
static void attend(void *context, int64_t begin, int64_t end, int32_t worker)
{
    job *j = context;
    const scratch r = scratch_of(j, worker);
    for (int64_t task = begin; task < end; task++) {
        const tile whole = tile_at(j, task / j->parts);
        const int64_t part = task % j->parts;
        for (int64_t row = 0, rows; row < whole.rows; row += rows) {
            const span keys = find_span(j, &whole, row);
            rows = keys.rows;
            const tile t = rows_of(&whole, row, row + rows);
            const int64_t low = find_visible(j, &keys, t.query[0]).low,
                          n = ik_max(0, find_visible(j, &keys, t.query[rows - 1]).high - low);
            attend_keys(j, &r, &t, &keys, low + n * part / j->parts, low + n * (part + 1) / j->parts);
            for (int64_t i = 0; i < rows; i++) {
                float *sums = r.sums + i * j->wide;
                if (j->parts == 1) {
                    finish(j, &t, i, sums, r.max[i], r.total[i]);
                } else {
                    float *partial =
                        (float *)(void *)(j->partial + task * j->partial_bytes) + (row + i) * (j->wide + 2);
                    partial[0] = r.max[i], partial[1] = r.total[i];
                    memcpy(partial + 2, sums, (size_t)j->e * sizeof *sums);
                }
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

IK_SUPPORTED(attention) { return plan->tensors[find_form(plan->kind)->q].dtype == IK_F64 ? "F64" : NULL; }

IK_WORKSPACE(attention)
{
    const job j = job_of(plan);
    if (tasks_of(&j) == 0)
        return 0;
    return (uint64_t)(j.ends_bytes + ik_threads() * j.scratch_bytes + tasks_of(&j) * j.partial_bytes);
}

/* Report a sequence whose length is out of range, or one of whose pages is. */
static ik_status report(const job *j, int64_t bad)
{
    const int64_t length = number_at(j->lengths, bad), wrong = length <= j->s ? wrong_page(j, bad, length) : -1;
    return wrong < 0 ? ik_bad_value(bad, length)
                     : ik_bad_value(bad * j->table.t->shape[1] + wrong, page_at(j, bad, wrong));
}

IK_KERNEL(attention)
{
    IK_UNUSED;
    const form *f = find_form(plan->kind);
    job j = job_of(plan);
    j.to = ik_ptr(plan, data, 0);
    j.lse = f->lse != 0 ? ik_ptr(plan, data, f->lse) : NULL;
    j.of_q = ik_ptr(plan, data, f->q), j.of_k = ik_ptr(plan, data, f->k), j.of_v = ik_ptr(plan, data, f->v);
    j.mask = operand_at(plan, data, f->mask), j.seen = operand_at(plan, data, f->seen);
    j.lengths = operand_at(plan, data, f->lengths), j.table = operand_at(plan, data, f->table);
    j.sinks = operand_at(plan, data, f->sinks), j.alibi = operand_at(plan, data, f->alibi);
    j.starts = operand_at(plan, data, f->starts), j.key_starts = operand_at(plan, data, f->key_starts);
    if (tasks_of(&j) == 0)
        return IK_SUCCESS;
    j.ends = workspace;
    j.key_ends = j.ends + ik_max(0, j.sequences);
    j.thread_scratch = (char *)workspace + j.ends_bytes;
    j.partial = j.thread_scratch + ik_threads() * j.scratch_bytes;
    if (j.starts.t != NULL)
        find_ends(j.starts, j.sequences, j.ends);
    if (j.key_starts.t != NULL)
        find_ends(j.key_starts, j.sequences, j.key_ends);
    for (int64_t b = 0; b < j.sequences && j.lengths.t != NULL; b++)
        length_of(&j, b); /* those without queries, too */
    const int64_t work = ik_max(1, j.tile_rows * ik_max(1, j.s / j.parts) * (j.d + j.e));
    ik_parallel_for(tasks_of(&j), ik_max(1, (1 << 18) / work), attend, &j);
    if (j.parts > 1)
        ik_parallel_for(j.b * j.g * j.tiles, 4, join, &j);
    const int64_t bad = atomic_load(&j.bad_sequence);
    return bad == INT64_MAX ? IK_SUCCESS : report(&j, bad);
}
