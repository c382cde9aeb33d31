/* attention and attention_lse: y = softmax(scale q kᵀ + mask) v for one query of one head, in one pass over the keys it
 * sees (online softmax, Milakov & Gimelshein 2018). One work-group per query of a head and chunk of columns of v: its
 * items compute the scores of a tile of keys, then each accumulates some columns.
 *
 * Where queries are few, the keys of each are split: each split leaves its maximum, total and columns in the workspace,
 * and a second entry joins them. A key of weight 0 contributes nothing, whatever its values. The other forms are the
 * same of keys and values whose rows a table of pages names (pages.h), of packed sequences (spans.h), and of keys that
 * are their own values. */
#include "blocks.h"
#include "group.h"
#ifdef IK_HAS_lengths
#define IK_GIVEN IK_ELEMENT(lengths)
#endif
#include "min.h"
#include "spans.h"

enum { TILE = IK_GROUP > 64 ? IK_GROUP : 64 };

/* The distance between elements of a head. */
#if defined(UNIT) && UNIT
#define STEP(t) 1
#else
#define STEP(t) p.t.strides[3]
#endif

/* Independent partial sums of an item: where it is alone in its group, a register's worth. */
enum { PARTS = IK_GROUP == 1 ? 16 : 4 };

/* Columns that an item computes: where a group has one item, no more than exist. */
#if IK_GROUP == 1
#define COLUMNS (e - column < EACH ? (int)(e - column) : EACH)
#else
#define COLUMNS EACH
#endif

/* The factor by which earlier sums shrink when the maximum rises. */
static IK_INLINE float rescale_factor(float before, float after)
{ return before == after ? 1.0f : ik_exp_f32(before - after); }

static IK_INLINE float scale_sum(float kept, float value) { return kept == 0.0f ? 0.0f : kept * value; }

/* A row's maximum and total with its head's sink, which has no value; by what its sums are multiplied. */
typedef struct {
    float maximum, total, factor;
} ik_ended;

static IK_INLINE ik_ended with_sink(float maximum, float total, float sink)
{
    ik_ended r;
    r.maximum = ik_maximum_f32(maximum, sink);
    const float kept = r.maximum == -IKM_INF_F32 ? 0.0f : rescale_factor(maximum, r.maximum);
    r.total = scale_sum(kept, total) + (sink == -IKM_INF_F32 ? 0.0f : ik_exp_f32(sink - r.maximum));
    r.factor = r.maximum == -IKM_INF_F32 ? 0.0f : IK_DIV_F32(kept, r.total);
    return r;
}

static IK_INLINE ik_ended without_sink(float maximum, float total)
{
    ik_ended r;
    r.maximum = maximum;
    r.total = total;
    r.factor = maximum == -IKM_INF_F32 ? 0.0f : IK_DIV_F32(1.0f, total);
    return r;
}

#ifdef IK_HAS_sinks
#define END(maximum, total, head) \
    with_sink(maximum, total, IK_LOAD(sinks, p.sinks.offset + (head) * p.sinks.strides[0]))
#else
#define END(maximum, total, head) without_sink(maximum, total)
#endif

IK_ENTRY(attention)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
    IK_LOCAL_ARRAY(float, weights, TILE);
#ifdef IK_HAS_block_table
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
#endif
    const ik_index heads = p.q.shape[2], d = p.q.shape[3], e = p.v.shape[3], splits = (ik_index)p.splits,
                   chunks = (ik_index)p.chunks;
    const ik_index task = IK_GROUP_ID / splits, split = IK_GROUP_ID - task * splits, query = task / chunks,
                   chunk = task - query * chunks;
    const ik_index line = query / heads, head = query - line * heads, batch = line / p.q.shape[1],
                   i = line - batch * p.q.shape[1];
    const ik_span keys = find_span(IK_ARGUMENTS, batch, i);
    const ik_index b = keys.b;
    const ik_i64 own = i + keys.shift;
    ik_i64 end = keys.length, begin = 0;
#ifdef IK_HAS_block_table
    end = group_min(wrong_page(p, block_table, b, end, IK_LOCAL_ID, IK_GROUP), places) < IK_PAGES ? 0 : end;
#endif
    if (p.attr_causal || p.attr_window > 0) {
        const ik_i64 behind = own + (p.attr_causal ? 1 : p.attr_window);
        end = behind < 0 ? 0 : behind < end ? behind : end;
        begin = p.attr_window > 0 && own + 1 > p.attr_window ? own + 1 - p.attr_window : 0;
        begin = begin < end ? begin : end;
    }
    const ik_i64 length = (end - begin + splits - 1) / splits, from = begin + split * length;
    const ik_index first = (ik_index)from, last = (ik_index)(from + length < end ? from + length : end);
    const float scale = p.attr_scale != 0 ? p.attr_scale : ik_rsqrt_f32((float)(d > 1 ? d : 1)), cap = p.attr_softcap;
    const ik_index q_at = p.q.offset + batch * p.q.strides[0] + i * p.q.strides[1] + head * p.q.strides[2];
    const ik_index group = head / (ik_index)p.share;
    const ik_index k_at = p.k.offset + IK_FIRST(k, b) + keys.from * p.k.strides[1] + group * p.k.strides[2],
                   v_at = p.v.offset + IK_FIRST(v, b) + keys.from * p.v.strides[1] + group * p.v.strides[2];
#ifdef IK_HAS_alibi
    const float slope = alibi[p.alibi.offset + head * p.alibi.strides[0]];
#endif
    const ik_index column = chunk * EACH * IK_GROUP + IK_LOCAL_ID;
    float acc[EACH], max_score = -IKM_INF_F32, total = 0;
    for (int c = 0; c < COLUMNS; c++)
        acc[c] = 0;
    for (ik_index tile = first; tile < last; tile += TILE) {
        const int count = last - tile < TILE ? (int)(last - tile) : TILE;
        float highest = -IKM_INF_F32;
        for (int t = IK_LOCAL_ID; t < count; t += IK_GROUP) {
            const ik_index key = k_at + IK_ROW_OF(k, tile + t);
            float score = 0;
            for (ik_index j = 0; j < d; j += IK_BLOCK) {
#if BLOCKS
                float given[IK_BLOCK];
                for (int u = 0; u < IK_BLOCK; u++)
                    given[u] = IK_LOAD(q, q_at + (j + u) * STEP(q));
                score += IK_PASTE(ik_dot_, IK_TYPE_k)(IK_BLOCK_AT(k, key + j), given);
#else
                float run[PARTS];
                for (int c = 0; c < PARTS; c++)
                    run[c] = 0;
                if (d - j >= IK_BLOCK)
                    for (int u = 0; u < IK_BLOCK; u += PARTS)
                        for (int c = 0; c < PARTS; c++)
                            run[c] = IK_FMA_F32(IK_LOAD(q, q_at + (j + u + c) * STEP(q)),
                                IK_LOAD(k, key + (j + u + c) * STEP(k)), run[c]);
                else
                    for (ik_index u = j; u < d; u++)
                        run[0] = IK_FMA_F32(IK_LOAD(q, q_at + u * STEP(q)), IK_LOAD(k, key + u * STEP(k)), run[0]);
                for (int apart = PARTS / 2; apart > 0; apart /= 2)
                    for (int c = 0; c < apart; c++)
                        run[c] += run[c + apart];
                score += run[0];
#endif
            }
            score *= scale;
            if (cap > 0)
                score = cap * ik_tanh_f32(IK_DIV_F32(score, cap));
#ifdef IK_HAS_mask
            score += IK_LOAD(mask,
                p.mask.offset + batch * p.mask.strides[0] + head * p.mask.strides[1] + i * p.mask.strides[2]
                    + (tile + t) * p.mask.strides[3]);
#endif
#ifdef IK_HAS_alibi
            score -= slope * (float)(own < tile + t ? tile + t - own : own - tile - t);
#endif
#ifdef IK_HAS_seen
            if (!seen[p.seen.offset + batch * p.seen.strides[0] + head * p.seen.strides[1] + i * p.seen.strides[2]
                    + (tile + t) * p.seen.strides[3]])
                score = -IKM_INF_F32;
#endif
            weights[t] = score;
            highest = ik_maximum_f32(highest, score);
        }
        const float above = ik_maximum_f32(max_score, ik_group_maximum(highest, scratch));
        if (above == -IKM_INF_F32)
            continue;
        const float kept = rescale_factor(max_score, above);
        max_score = above;
        total *= kept;
        for (int t = IK_LOCAL_ID; t < count; t += IK_GROUP) {
            const float weight = ik_exp_f32(weights[t] - max_score);
            weights[t] = weight;
            total += weight;
        }
        IK_BARRIER();
        for (int c = 0; c < COLUMNS; c++)
            acc[c] = scale_sum(kept, acc[c]);
        for (int t = 0; t < count; t++) {
            const float weight = weights[t];
            const ik_index value = v_at + IK_ROW_OF(v, tile + t);
            if (weight != 0.0f)
                for (int c = 0; c < COLUMNS; c++)
                    if (column + c * IK_GROUP < e)
                        acc[c] = IK_FMA_F32(weight, IK_LOAD(v, value + (column + c * IK_GROUP) * STEP(v)), acc[c]);
        }
        IK_BARRIER();
    }
    ik_sum sum = ik_sum_none();
    sum.high = total;
    total = ik_sum_value(ik_group_sum(sum, scratch));
#if SPLIT
    IK_GLOBAL float *const part = (IK_GLOBAL float *)(workspace + p.ends) + (ik_i64)(query * splits + split) * (2 + e);
    if (IK_LOCAL_ID == 0 && chunk == 0) {
        part[0] = max_score;
        part[1] = total;
    }
    for (int c = 0; c < COLUMNS; c++)
        if (column + c * IK_GROUP < e)
            part[2 + column + c * IK_GROUP] = acc[c];
#else
    const ik_ended ended = END(max_score, total, head);
    const ik_index to = p.y.offset + batch * p.y.strides[0] + i * p.y.strides[1] + head * p.y.strides[2];
    for (int c = 0; c < COLUMNS; c++)
        if (column + c * IK_GROUP < e)
            IK_STORE(y, to + (column + c * IK_GROUP) * p.y.strides[3], scale_sum(ended.factor, acc[c]));
#ifdef IK_HAS_lse
    if (IK_LOCAL_ID == 0 && chunk == 0)
        lse[p.lse.offset + batch * p.lse.strides[0] + i * p.lse.strides[1] + head * p.lse.strides[2]] =
            ended.maximum == -IKM_INF_F32 ? ended.maximum : ended.maximum + ik_log_f32(ended.total);
#endif
#endif
}

IK_ENTRY(attention_join)(IK_PARAMS)
{
    const ik_index e = (ik_index)p.e, width = e + 2, query = IK_GROUP_ID;
    IK_GLOBAL const float *const parts =
        (IK_GLOBAL const float *)(workspace + p.ends) + (ik_i64)query * (ik_index)p.splits * width;
    float max_score = -IKM_INF_F32, total = 0;
    for (int s = 0; s < p.splits; s++)
        max_score = ik_maximum_f32(max_score, parts[s * width]);
    if (max_score != -IKM_INF_F32)
        for (int s = 0; s < p.splits; s++)
            total += rescale_factor(parts[s * width], max_score) * parts[s * width + 1];
    const ik_ended ended = END(max_score, total, query % p.y.shape[2]);
    const ik_index to = p.y.offset + ik_offset_within(p.y, 0, 3, query);
    for (ik_index c = IK_LOCAL_ID; c < e; c += IK_GROUP) {
        float sum = 0;
        if (max_score != -IKM_INF_F32)
            for (int s = 0; s < p.splits; s++)
                sum += scale_sum(rescale_factor(parts[s * width], max_score), parts[s * width + 2 + c]);
        IK_STORE(y, to + c * p.y.strides[3], scale_sum(ended.factor, sum));
    }
#ifdef IK_HAS_lse
    if (IK_LOCAL_ID == 0)
        lse[ik_offset(p.lse, query)] =
            ended.maximum == -IKM_INF_F32 ? ended.maximum : ended.maximum + ik_log_f32(ended.total);
#endif
}

IK_ENTRY(attention_check)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
#ifdef IK_HAS_block_table
    report_pages(p, lengths, block_table, places, error);
#else
    report_outside(p.lengths, lengths, p.k.shape[1], places, error);
#endif
}
