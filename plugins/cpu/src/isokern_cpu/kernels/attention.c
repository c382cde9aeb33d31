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
#include "attention_rows.h"

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
