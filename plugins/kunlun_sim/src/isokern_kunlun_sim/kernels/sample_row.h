/* A row of logits distributed over the cores of a cluster, and where top_k and top_p end it.
 *
 * Each core has a slice of the row, which stays in local memory if it fits; otherwise it is read and penalised again
 * for each pass. Nothing is sorted: the key of the logit at the threshold, by count or by weight, is found four bits
 * at a time, from sums over all cores. Of equal logits at the threshold, those with the lowest indices stay. */
#ifndef IK_XPU_SAMPLE_ROW_H
#define IK_XPU_SAMPLE_ROW_H
#include "checked.h"

#include "isokern_sample.h"

enum {
    TILE = 1024,
    BINS = 16,
    BITS = 4,
    HISTORY = 64,
    FINE = -2 /* of a row that has a token; else the index of a NaN, or -1 */
};

typedef unsigned long long u64;

struct sample_params {
    long long seed, step, tokens, past; /* past: entries of a row's history */
    long long rows, logit, entry;       /* logit, entry: steps along a row of logits and of history */
    long long top_k;
    float temperature, top_p, min_p, penalty;
    int token; /* the dtype of the history */
};

/* What the cores exchange. */
struct sample_shared {
    u64 bins[IK_CORES][BINS], totals[BINS];
    u64 sums[IK_CORES];
    long long found[IK_CORES], nan[IK_CORES];
    float max_logit[IK_CORES];
};

/* A threshold in the order of logits: those with a larger key stay, and of those with this key the first `take` by
 * index. */
struct sample_threshold {
    unsigned key;
    u64 take, above; /* above: the sum, of ones or of weights, over larger keys */
};

/* A row, and this core's slice of it. */
struct sample_row {
    const sample_params &p;
    float *tile;
    char *entries;
    unsigned *seen; /* a bit for each logit of the tile: set once it has been penalised */
    int dtype;
    long long begin, end;
    float top, factor;
    bool loaded = false;

    /* Load logits [at, at + n) into the tile. */
    inline __device__ void load(
        __global_ptr__ const char *logits, __global_ptr__ const char *history, long long at, int n)
    {
        const int size = ik_itemsize(dtype);
        ik_fetch_run(logits + at * p.logit * size, p.logit, n, size, ik_narrow_end(tile, n, 4, size));
        mfence();
        ik_widen_f32(dtype, tile, n);
        for (int i = 0; i < TILE / 32; i++)
            seen[i] = 0;
        for (long long h = 0; history != nullptr && h < p.past; h += HISTORY) {
            const int m = (int)ik_min(HISTORY, p.past - h);
            ik_fetch_run(history + h * p.entry * ik_itemsize(p.token), p.entry, m, ik_itemsize(p.token), entries);
            mfence();
            for (int i = 0; i < m; i++) {
                const long long token = ik_index_at(p.token, entries, i);
                const int place = token >= at && token < at + n ? (int)(token - at) : -1;
                if (place < 0 || (seen[place / 32] >> place % 32 & 1))
                    continue;
                seen[place / 32] |= 1u << place % 32;
                tile[place] = ik_sample_penalised(tile[place], p.penalty);
            }
        }
        for (int i = 0; i < n; i++)
            tile[i] += 0.0f;
    }

    /* Call visit(index, logit) for all of the slice, in order, until it returns true. */
    template <class Visit>
    inline __device__ void each(__global_ptr__ const char *logits, __global_ptr__ const char *history, Visit visit)
    {
        for (long long at = begin; at < end; at += TILE) {
            const int n = (int)ik_min(TILE, end - at);
            if (!loaded)
                load(logits, history, at, n);
            loaded = end - begin <= TILE;
            for (int i = 0; i < n; i++)
                if (visit(at + i, tile[i]))
                    return;
        }
    }

    inline __device__ u64 weight(float logit) const { return ik_sample_weight(logit, top, factor); }
};

/* The logit of a key. */
static inline __device__ float logit_of(unsigned key) { return ik_float(key & 0x80000000u ? key & 0x7fffffffu : ~key); }

/* By the whole cluster: the sum of what each core found. */
static inline __device__ u64 sum_of_cores(u64 own, __shared_ptr__ sample_shared *shared)
{
    u64 sum = 0;
    shared->sums[core_id()] = own;
    mfence_sm();
    sync_cluster();
    for (int core = 0; core < core_num(); core++)
        sum += shared->sums[core];
    sync_cluster();
    return sum;
}

/* By the whole cluster: the key at which the sum of ones, or of weights, over the order of logits reaches `target`. */
static inline __device__ sample_threshold find_threshold(sample_row &row, bool by_weight, u64 target,
    __global_ptr__ const char *logits, __global_ptr__ const char *history, __shared_ptr__ sample_shared *shared)
{
    __local__ u64 bins[BINS];
    sample_threshold threshold = {};
    for (int shift = 32 - BITS; shift >= 0; shift -= BITS) {
        const unsigned known = shift == 32 - BITS ? 0 : ~0u << (shift + BITS);
        for (int b = 0; b < BINS; b++)
            bins[b] = 0;
        row.each(logits, history, [&](long long, float logit) {
            const unsigned key = ik_sample_key(logit);
            if ((key & known) == threshold.key)
                bins[key >> shift & (BINS - 1)] += by_weight ? row.weight(logit) : 1;
            return false;
        });
        for (int b = 0; b < BINS; b++)
            shared->bins[core_id()][b] = bins[b];
        mfence_sm();
        sync_cluster();
        for (int b = core_id(); b < BINS; b += core_num()) {
            u64 total = 0;
            for (int core = 0; core < core_num(); core++)
                total += shared->bins[core][b];
            shared->totals[b] = total;
        }
        mfence_sm();
        sync_cluster();
        int b = BINS - 1;
        for (; b > 0 && threshold.above + shared->totals[b] < target; b--)
            threshold.above += shared->totals[b];
        threshold.key |= (unsigned)b << shift;
    }
    sync_cluster(); /* before the totals are written again */
    return threshold;
}

/* The threshold by top_k, then by top_p. */
static inline __device__ sample_threshold choose_threshold(sample_row &row, __global_ptr__ const char *logits,
    __global_ptr__ const char *history, __shared_ptr__ sample_shared *shared)
{
    const sample_params &p = row.p;
    const u64 share = ik_sample_fraction(p.top_p);
    sample_threshold threshold = { 0, 0, 0 };
    u64 sum = 0;
    if (p.top_k > 0 && p.top_k < p.tokens) {
        threshold = find_threshold(row, false, (u64)p.top_k, logits, history, shared);
        threshold.take = (u64)p.top_k - threshold.above;
    }
    if (share >> 32 != 0)
        return threshold;
    row.each(logits, history, [&](long long, float logit) {
        sum += ik_sample_key(logit) > threshold.key ? row.weight(logit) : 0;
        return false;
    });
    sum = sum_of_cores(sum, shared) + (threshold.take != 0 ? threshold.take * row.weight(logit_of(threshold.key)) : 0);
    const u64 asked = ik_sample_share(sum, share), target = asked != 0 ? asked : 1; /* the first logit always stays */
    threshold = find_threshold(row, true, target, logits, history, shared);
    const u64 weight = row.weight(logit_of(threshold.key));
    threshold.take = (target - threshold.above + weight - 1) / weight;
    return threshold;
}
#endif
