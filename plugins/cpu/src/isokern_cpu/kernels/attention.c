/* attention: y = softmax(score) v in one pass over the keys, where score = softcap(scale q kᵀ) + mask, and its other
 * forms: keys and values whose rows a table of pages names (paged_attention), queries of several sequences one after
 * another (varlen_attention, paged_attention_prefill), keys that are their own values (mla_attention).
 *
 * A row is a query of a head. The rows of all heads that share a head of k and v read its keys together:
 *
 *     for each batch, heads of k that are read together, tile of rows, part of the keys     a task
 *       for each sequence that the tile has rows of
 *         for each BLOCK of its keys, and each of the heads of k
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

/* Begin the sums of the rows of a head of k. */
static void begin_rows(const job *j, const scratch *r, const tile *t)
{
    for (int64_t i = 0; i < t->rows; i++) {
        const char *q = address_of(&j->q, j->of_q, t->b, t->query[i], t->head[i]);
        ik_load_f32(j->q.dtype, q, j->q.strides[3], j->d, r->q + i * j->q_row);
        r->max[i] = -INFINITE;
        r->total[i] = 0;
    }
    memset(r->sums, 0, (size_t)(t->rows * j->wide) * sizeof(float));
}

/* Turn the scores of the rows of a head of k into weights, for a block of n keys from key `at` of their sequence on. */
static void weigh_rows(
    const job *j, const scratch *r, const tile *t, const span *keys, int64_t at, int64_t n, range *seen)
{
    for (int64_t i = 0; i < t->rows; i++) {
        const range visible = find_visible(j, keys, t->query[i]);
        seen[i] = (range){ ik_max(visible.low - at, 0), ik_min(visible.high - at, n) };
        weigh(j, r, i, seen[i], find_addend(j, t, i, keys, at));
    }
}

/* Add a block of n keys to the sums of many rows. */
static void attend_many(const job *j, const scratch *r, const tile *t, const span *keys, int64_t at, int64_t n)
{
    range seen[MANY];
    block rows;
    read_block(j, &j->k, j->of_k, keys, t->group, at, n, r->converted, &rows);
    score_many(j, r, t->rows, &rows, n);
    weigh_rows(j, r, t, keys, at, n, seen);
    find_runs(j, &j->v, j->of_v, keys, t->group, at, n, &rows);
    add_values_many(j, r, t->rows, &rows, n, seen);
}

/* The same for few rows of each of a tile's heads of k. */
static void attend_few(
    const job *j, const scratch *r, const tile *t, const span *keys, int64_t at, int64_t n, bool first)
{
    const int64_t step = t->groups == 1 ? n : STEP, of_k = j->k.strides[2] * ik_itemsize(j->k.dtype),
                  of_v = j->v.strides[2] * ik_itemsize(j->v.dtype);
    range seen[FEW]; /* of all heads the same */
    block rows;
    find_runs(j, &j->v, j->of_v, keys, t->group, at, n, &rows);
    for (int64_t own = 0; own < t->groups; own++)
        prefetch_first(&rows, own * of_v, j->e * ik_itemsize(rows.dtype));
    read_block(j, &j->k, j->of_k, keys, t->group, at, n, r->converted, &rows);
    for (int64_t own = 0; own < t->groups && first; own++)
        prefetch_first(&rows, own * of_k, j->d * ik_itemsize(rows.dtype));
    for (int64_t key = 0; key < n; key += step)
        for (int64_t own = 0; own < t->groups; own++) {
            const scratch of_head = scratch_of_head(j, r, own);
            score_few(j, &of_head, t->rows, &rows, own * of_k, key, ik_min(key + step, n));
        }
    for (int64_t own = 0; own < t->groups; own++) {
        const scratch of_head = scratch_of_head(j, r, own);
        const tile one = tile_of_head(j, t, own);
        weigh_rows(j, &of_head, &one, keys, at, n, seen);
    }
    read_block(j, &j->v, j->of_v, keys, t->group, at, n, r->converted, &rows);
    for (int64_t key = 0; key < n; key += step)
        for (int64_t own = 0; own < t->groups; own++) {
            const scratch of_head = scratch_of_head(j, r, own);
            add_values_few(j, &of_head, t->rows, &rows, seen, own * of_v, key, ik_min(key + step, n));
        }
}

/* Compute the sums of a tile's rows over keys from .. to - 1 of their sequence. */
static void attend_keys(const job *j, const scratch *r, const tile *t, const span *keys, int64_t from, int64_t to)
{
    for (int64_t own = 0; own < t->groups; own++) {
        const scratch of_head = scratch_of_head(j, r, own);
        const tile one = tile_of_head(j, t, own);
        begin_rows(j, &of_head, &one);
    }
    for (int64_t at = from; at < to; at += BLOCK) {
        const int64_t n = ik_min(BLOCK, to - at);
        if (t->rows > FEW)
            attend_many(j, r, t, keys, at, n);
        else
            attend_few(j, r, t, keys, at, n, at == from);
    }
}

/* Write the results of a tile's rows, which are rows from `row` on of its task, or their part of them. */
static void end_rows(const job *j, const scratch *r, const tile *t, int64_t task, int64_t row)
{
    for (int64_t own = 0; own < t->groups; own++) {
        const scratch of_head = scratch_of_head(j, r, own);
        const tile one = tile_of_head(j, t, own);
        for (int64_t i = 0; i < t->rows; i++) {
            float *sums = of_head.sums + i * j->wide;
            if (j->parts == 1) {
                finish(j, &one, i, sums, of_head.max[i], of_head.total[i]);
            } else {
                float *partial = partial_of(j, task, own, row + i);
                partial[0] = of_head.max[i], partial[1] = of_head.total[i];
                memcpy(partial + 2, sums, (size_t)j->e * sizeof *sums);
            }
        }
    }
}

/* Run tasks begin .. end, numbered ((b * bundles + bundle) * tiles + tile) * parts + part. */
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
            end_rows(j, &r, &t, task, row);
        }
    }
}

/* Join the parts of tiles begin .. end, in order, to the first of them. */
static void join(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t number = begin; number < end; number++) {
        const tile whole = tile_at(j, number);
        for (int64_t own = 0; own < whole.groups; own++) {
            const tile t = tile_of_head(j, &whole, own);
            for (int64_t i = 0; i < t.rows; i++) {
                float *sums = partial_of(j, number * j->parts, own, i);
                for (int64_t part = 1; part < j->parts; part++) {
                    const float *other = partial_of(j, number * j->parts + part, own, i);
                    const float max = other[0] > sums[0] ? other[0] : sums[0], base = max == -INFINITE ? 0 : max;
                    const float mine = ik_exp_f32(sums[0] - base), theirs = ik_exp_f32(other[0] - base);
                    sums[0] = max;
                    for (int64_t c = 1; c < j->e + 2; c++)
                        sums[c] = sums[c] * mine + other[c] * theirs;
                }
                finish(j, &t, i, sums + 2, sums[0], sums[1]);
            }
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
    const int64_t work = ik_max(1, j.together * j.tile_rows * ik_max(1, j.s / j.parts) * (j.d + j.e));
    ik_parallel_for(tasks_of(&j), ik_max(1, (1 << 18) / work), attend, &j);
    if (j.parts > 1)
        ik_parallel_for(j.b * j.bundles * j.tiles, 4, join, &j);
    const int64_t bad = atomic_load(&j.bad_sequence);
    return bad == INT64_MAX ? IK_SUCCESS : report(&j, bad);
}
