/* attention in all its forms on processors, in one pass over the keys, 64 at a time. An item takes some queries that
 * share a head of k, and a part of the keys where there would be few items; packed queries one sequence after another.
 *
 * Queries are lanes: a vector holds one score of each of 16 queries, or NEAR = 4 partial sums of each of 4 queries, so
 * that maxima and totals are computed by vectors. An item's intermediate values lie in its scratch in the workspace, as
 * F32, the first three for each vector of queries:
 *
 *     queries [d / NEAR][16], maxima and totals [16], sums [16 / NEAR][e];
 *     keys [64][d], values [64][e], scores [64][16]
 *
 * A key of weight 0 contributes nothing, whatever its values.
 *
 * Against the portable kernel, interleaved (PoCL 3.0, AVX-512, two Zen 5 cores), 32 heads that share 8 heads of k, of
 * 128 elements each: one query and 4,096 keys of F32 5 times as fast, F16 and Q8_0 10, Q4_0 15; 512 causal ones of F32
 * 13, F16 20. Against the C kernels of the CPU plug-in: 1.1 to 1.4. */
#include "vectors.h"
#ifdef IK_HAS_lengths
#define IK_GIVEN IK_ELEMENT(lengths)
#endif
#include "min.h"
#include "spans.h"

enum {
    LANES = 16,
    KEYS = 64,
    QUERIES = LANES / NEAR, /* queries of a vector */
#ifdef __AVX512F__
    HIGH = QUERIES < 8 ? QUERIES : 8, /* rows of a tile */
#else
    HIGH = 4,
#endif
    MAX_VECTORS = 4 /* vectors of queries */
};

typedef IK_GLOBAL float *floats;
typedef IK_GLOBAL ik_floats16 *line;
typedef float4 four __attribute__((aligned(4)));

/* A sequence, a head of k, and some of the queries of the heads that share it, ordered by token. */
typedef struct {
    ik_index b, group, first, rows;
    int d, e;
    floats queries, maxima, totals, sums, keys, values, scores;
} task;

/* The last tokens come first, because they may see the most keys. */
static IK_INLINE task task_of(const ik_args *p, ik_index number, floats scratch)
{
    const ik_index groups = p->k.shape[2], lines = groups * p->q.shape[0], maximum = (ik_index)p->maximum;
    task t = {
        .b = number % lines / groups, .group = number % groups, .d = (int)p->q.shape[3], .e = (int)p->v.shape[3]
    };
    t.first = ((ik_index)p->tasks - 1 - number) / lines * maximum;
    t.rows = min(maximum, p->q.shape[1] * (ik_index)p->share - t.first);
    t.queries = scratch;
    t.maxima = t.queries + maximum * t.d;
    t.totals = t.maxima + maximum * NEAR;
    t.sums = t.totals + maximum * NEAR;
    t.keys = t.sums + maximum * t.e;
    t.values = t.keys + KEYS * t.d;
    t.scores = t.values + KEYS * t.e;
    return t;
}

/* The token of query r of a task; the query's offset in a tensor. */
static IK_INLINE ik_index token_of(const ik_args *p, task t, ik_index r) { return (t.first + r) / (ik_index)p->share; }
static IK_INLINE ik_index place_of(const ik_args *p, task t, ik_index r, ik_tensor x, int tokens, int heads)
{
    const ik_index share = (ik_index)p->share, token = token_of(p, t, r),
                   head = t.group * share + t.first + r - token * share;
    return x.offset + t.b * x.strides[0] + token * x.strides[tokens] + head * x.strides[heads];
}

/* The head of query r of a task. */
static IK_INLINE ik_index head_of(const ik_args *p, task t, ik_index r)
{ return t.group * (ik_index)p->share + (t.first + r) % (ik_index)p->share; }

/* The factor by which earlier sums shrink when the maximum rises. */
static IK_INLINE float rescale_factor(float before, float after)
{ return before == after ? 1.0f : ik_exp_f32(before - after); }

static IK_INLINE float scale_sum(float kept, float value) { return kept == 0.0f ? 0.0f : kept * value; }

/* Convert n rows of k or v, each at a distance from element `first`, to rows of `width` floats; returns whether all are
 * finite. */
static IK_INLINE int widen(
    IK_GLOBAL const IK_ELEMENT(k) * from, ik_index first, const ik_index *distances, int n, int width, floats to)
{
    float16 odd = 0;
    for (int i = 0; i < n; i++, to += width) {
        const ik_index at = first + distances[i];
#if BLOCKS
        for (int j = 0; j < width; j += IK_BLOCK) {
            const ik_unpacked x = IK_PASTE(ik_unpack_, IK_TYPE_k)(from + (ik_i64)((at + j) / IK_BLOCK) * IK_SIZE_k);
            *(line)(to + j) = x.low;
            *(line)(to + j + LANES) = x.high;
            odd += (x.low - x.low) + (x.high - x.high);
        }
#else
        for (int j = 0; j < width; j += LANES) {
            const float16 x = IK_PASTE(ik_vector_, IK_TYPE_k)(from + at + j);
            *(line)(to + j) = x;
            odd += x - x;
        }
#endif
    }
    int finite = 1;
    for (int u = 0; u < LANES; u++)
        finite &= ((const float *)&odd)[u] == 0;
    return finite;
}

/* Turn the scores of n keys into weights; update the maximum and total, and set the factors that earlier sums keep.
 * Lanes see keys [low, high). */
static IK_INLINE void weigh(floats scores, int n, int16 low, int16 high, line maximum, line total, float *kept)
{
    const float16 before = *maximum, none = -IKM_INF_F32;
    float16 above = before;
    for (int key = 0; key < n; key++) {
        const float16 x = (((int16)key >= low) & ((int16)key < high)) ? ((line)scores)[key] : none;
        above = ((x > above) | (x != x)) ? x : above;
        ((line)scores)[key] = x;
    }
    const float16 base = above == none ? (float16)0 : above;
    for (int key = 0; key < n; key++)
        ((line)scores)[key] -= base;
    IK_VECTORISE for (int i = 0; i < n * LANES; i++)
        scores[i] = ik_exp_f32(scores[i]);
    for (int u = 0; u < LANES; u++)
        kept[u] = rescale_factor(((const float *)&before)[u], ((const float *)&above)[u]);
    float16 sum = *total * *(const ik_floats16 *)kept;
    for (int key = 0; key < n; key++)
        sum += ((line)scores)[key];
    *maximum = above;
    *total = sum;
}

#ifdef IK_HAS_lse
#define LSE lse
#else
#define LSE 0
#endif

#ifdef IK_HAS_sinks
#define SINKS sinks
#define SINK(r) IK_LOAD(sinks, p->sinks.offset + head_of(p, t, r) * p->sinks.strides[0])
typedef IK_GLOBAL const IK_ELEMENT(sinks) * list;
#else
#define SINKS 0
#define SINK(r) -IKM_INF_F32
typedef IK_GLOBAL const float *list;
#endif

/* Write the outputs of a task from its sums; a head's sink is one more key, without a value. */
static IK_INLINE void finish(const ik_args *p, task t, IK_GLOBAL IK_ELEMENT(y) * y, floats lse, list sinks)
{
    for (int r = 0; r < t.rows; r++) {
        const ik_index to = place_of(p, t, r, p->y, 1, 2);
        const float sink = SINK(r), own = t.maxima[r * NEAR], maximum = ik_maximum_f32(own, sink),
                    kept = maximum == -IKM_INF_F32 ? 0.0f : rescale_factor(own, maximum),
                    more = sink == -IKM_INF_F32 ? 0.0f : ik_exp_f32(sink - maximum),
                    total = scale_sum(kept, t.totals[r * NEAR]) + more,
                    by = maximum == -IKM_INF_F32 ? 0.0f : IK_DIV_F32(kept, total);
        IK_VECTORISE for (int c = 0; c < t.e; c++)
            IK_STORE_AS(y, y, to + c, t.sums[r * t.e + c] * by);
#ifdef IK_HAS_lse
        lse[place_of(p, t, r, p->lse, 1, 2)] = maximum == -IKM_INF_F32 ? maximum : maximum + ik_log_f32(total);
#endif
    }
}

#pragma OPENCL FP_CONTRACT ON

/* One element in all lanes, or four adjacent ones repeated. */
static IK_INLINE float16 spread(IK_GLOBAL const float *x, const int near)
{
    if (near == 1)
        return (float16)(*x);
    const float4 x4 = *(IK_GLOBAL const four *)x;
    return (float16)(x4, x4, x4, x4);
}

/* to[i] += Σ_p a[i * a_row + p * a_step] b[p * b_row], or with `begin` =: HIGH vectors. */
static IK_INLINE void tile(
    const int begin, const int near, floats a, int a_row, int a_step, floats b, int b_row, int n, floats to, int to_row)
{
    float16 sum[HIGH];
#pragma unroll
    for (int i = 0; i < HIGH; i++)
        sum[i] = begin ? (float16)0 : *(line)(to + i * to_row);
#pragma nounroll
    for (int p = 0; p < n; p++) {
        const float16 x = *(line)(b + p * b_row);
#pragma unroll
        for (int i = 0; i < HIGH; i++)
            sum[i] += spread(a + i * a_row + p * a_step, near) * x;
    }
#pragma unroll
    for (int i = 0; i < HIGH; i++) {
        if (near == 4) { /* add a query's partial sums, and put the sum in each of its lanes */
            sum[i] += sum[i].s1032547698badcfe;
            sum[i] += sum[i].s23016745ab89efcd;
        }
        *(line)(to + i * to_row) = sum[i];
    }
}

/* Compute the sums of a task's rows, all of one sequence, over a part of its keys. */
static IK_INLINE void attend(IK_PASSED, const task t, const ik_span keys, const ik_index split)
{
    const int rows = (int)t.rows;
    const ik_index b = keys.b;
    const float scale = p.attr_scale != 0 ? p.attr_scale : ik_rsqrt_f32((float)max(p.q.shape[3], (ik_index)1)),
                cap = p.attr_softcap;
    int16 low[MAX_VECTORS], high[MAX_VECTORS];
    ik_i64 held = keys.length, first = 0, last = 0;
#ifdef IK_HAS_block_table
    held = wrong_page(p, block_table, b, held, 0, 1) < IK_PAGES ? 0 : held;
#endif
    for (int i = 0; i < p.maximum * NEAR; i++) {
        t.maxima[i] = -IKM_INF_F32;
        t.totals[i] = 0;
        ((int *)low)[i] = ((int *)high)[i] = 0;
    }
    for (int i = 0; i < p.maximum * t.e; i++)
        t.sums[i] = 0;
    for (int r = 0; r < rows; r++) {
        const ik_i64 after = token_of(&p, t, r) + keys.shift + 1,
                     from = p.attr_window > 0 ? max(after - p.attr_window, (ik_i64)0) : 0;
        first = r == 0 ? from : first;
        last = p.attr_causal ? after : p.attr_window > 0 ? min(after + p.attr_window - 1, held) : held;
        last = max(min(last, held), (ik_i64)0);
        for (int u = r * NEAR; u < (r + 1) * NEAR; u++) {
            ((int *)low)[u] = (int)(from - first);
            ((int *)high)[u] = (int)(last - first);
        }
        for (int j = 0; j < t.d; j += LANES) {
            const float16 x = IK_PASTE(ik_vector_, IK_TYPE_q)(q + place_of(&p, t, r, p.q, 1, 2) + j) * scale;
            const floats into = t.queries + r / QUERIES * QUERIES * t.d + r % QUERIES * NEAR;
            for (int u = 0; u < LANES; u++)
                into[(j + u) / NEAR * LANES + u % NEAR] = ((const float *)&x)[u];
        }
    }
    const ik_i64 count = last > first ? last - first : 0, end = count * (split + 1) / p.splits;
    for (ik_i64 at = count * split / p.splits; at < end; at += KEYS) {
        const int n = (int)min((ik_i64)KEYS, end - at);
        const ik_index key = (ik_index)(first + at);
        ik_index k_rows[KEYS], v_rows[KEYS];
        for (int i = 0; i < n; i++) {
            k_rows[i] = IK_ROW_OF(k, key + i);
            v_rows[i] = IK_ROW_OF(v, key + i);
        }
        widen(k, p.k.offset + IK_FIRST(k, b) + keys.from * p.k.strides[1] + t.group * p.k.strides[2], k_rows, n, t.d,
            t.keys);
        const int finite = widen(v, p.v.offset + IK_FIRST(v, b) + keys.from * p.v.strides[1] + t.group * p.v.strides[2],
            v_rows, n, t.e, t.values);
        for (int r = 0; r < rows; r += QUERIES) {
            const floats sums = t.sums + r * t.e;
            const int here = min(QUERIES, rows - r);
            float kept[LANES];
            for (int i = 0; i < n; i += HIGH) /* keys that do not exist are not seen */
                tile(1, NEAR, t.keys + i * t.d, t.d, NEAR, t.queries + r * t.d, LANES, t.d / NEAR, t.scores + i * LANES,
                    LANES);
            if (cap > 0) {
                IK_VECTORISE for (int i = 0; i < n * LANES; i++)
                    t.scores[i] = cap * ik_tanh_f32(IK_DIV_F32(t.scores[i], cap));
            }
#ifdef IK_HAS_mask
            for (int u = 0; u < here * NEAR; u++) {
                const ik_index added = place_of(&p, t, r + u / NEAR, p.mask, 2, 1) + key * p.mask.strides[3];
                for (int i = 0; i < n; i++)
                    t.scores[i * LANES + u] += IK_LOAD(mask, added + i * p.mask.strides[3]);
            }
#endif
#ifdef IK_HAS_alibi
            for (int u = 0; u < here * NEAR; u++) {
                const ik_index row = r + u / NEAR;
                const float slope = alibi[p.alibi.offset + head_of(&p, t, row) * p.alibi.strides[0]];
                const ik_i64 place = token_of(&p, t, row) + keys.shift - key;
                for (int i = 0; i < n; i++)
                    t.scores[i * LANES + u] -= slope * (float)(place < i ? i - place : place - i);
            }
#endif
#ifdef IK_HAS_seen
            for (int u = 0; u < here * NEAR; u++) {
                const ik_index shown = place_of(&p, t, r + u / NEAR, p.seen, 2, 1) + key * p.seen.strides[3];
                for (int i = 0; i < n; i++)
                    if (!seen[shown + i * p.seen.strides[3]])
                        t.scores[i * LANES + u] = -IKM_INF_F32;
            }
#endif
            const int16 from = low[r / QUERIES] - (int)at, to = high[r / QUERIES] - (int)at;
            weigh(t.scores, n, from, to, (line)(t.maxima + r * NEAR), (line)(t.totals + r * NEAR), kept);
            for (int i = 0; i < here; i++)
                for (int c = 0; c < t.e && kept[i * NEAR] != 1; c++)
                    sums[i * t.e + c] = scale_sum(kept[i * NEAR], sums[i * t.e + c]);
            for (int c = 0; c < t.e && finite; c += LANES)
                for (int i = 0; i < here; i += HIGH)
                    tile(0, 1, t.scores + i * NEAR, NEAR, LANES, t.values + c, t.e, n, sums + i * t.e + c, t.e);
            for (int i = 0; i < here && !finite; i++)
                for (int c = 0; c < n * t.e; c++)
                    sums[i * t.e + c % t.e] += scale_sum(t.scores[c / t.e * LANES + i * NEAR], t.values[c]);
        }
    }
}

IK_ENTRY(attention)(IK_PARAMS)
{
#ifdef IK_HAS_lengths
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    if (IK_GROUP_ID == 0)
#ifdef IK_HAS_block_table
        report_pages(p, lengths, block_table, places, error);
#else
        report_outside(p.lengths, lengths, p.k.shape[1], places, error);
#endif
#endif
    for (ik_index work = IK_GROUP_ID; work < p.tasks * p.splits; work += (ik_index)p.scratches) {
        const ik_index number = work / (ik_index)p.splits, split = work - number * (ik_index)p.splits;
        const task whole = task_of(&p, number, (floats)(workspace + p.ends) + IK_GROUP_ID * p.scratch);
        for (ik_index begin = 0; begin < whole.rows;) {
            task t = whole;
            t.first += begin;
            const ik_span keys = find_span(IK_ARGUMENTS, t.b, token_of(&p, t, 0));
            t.rows = (ik_index)min((ik_i64)(whole.rows - begin), keys.end * p.share - t.first);
            begin += t.rows;
            attend(IK_ARGUMENTS, t, keys, split);
            if (p.splits == 1)
                finish(&p, t, y, LSE, SINKS);
        }
    }
}

/* Join the parts of a task, in order. */
IK_ENTRY(attention_join)(IK_PARAMS)
{
    const floats scratches = (floats)(workspace + p.ends) + IK_GROUP_ID * p.splits * p.scratch;
    const task t = task_of(&p, IK_GROUP_ID, scratches);
    for (int split = 1; split < p.splits; split++) {
        const task more = task_of(&p, IK_GROUP_ID, scratches + split * p.scratch);
        for (int r = 0; r < t.rows; r++) {
            const float own = t.maxima[r * NEAR], other = more.maxima[r * NEAR], maximum = ik_maximum_f32(own, other);
            t.maxima[r * NEAR] = maximum;
            t.totals[r * NEAR] = t.totals[r * NEAR] * rescale_factor(own, maximum)
                + more.totals[r * NEAR] * rescale_factor(other, maximum);
            for (int c = r * t.e; c < (r + 1) * t.e; c++)
                t.sums[c] = scale_sum(rescale_factor(own, maximum), t.sums[c])
                    + scale_sum(rescale_factor(other, maximum), more.sums[c]);
        }
    }
    finish(&p, t, y, LSE, SINKS);
}
