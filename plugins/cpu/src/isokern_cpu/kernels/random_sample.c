/* random_sample: a token drawn from each row of logits, by the integer arithmetic of isokern_sample.h.
 *
 * Tokens are ordered by logit, largest first, equal ones by index; a leading part of that order is identified by its
 * last entry (select.h). A few tokens are found by a heap and weighed in a list. Where many are kept, all tokens are
 * weighed; the end of the leading part is found by a histogram of the weights' exponents, and then bit by bit among the
 * entries of one bin. */
#include <stdatomic.h>

#include "runs.h"
#include "select.h"
#include "isokern_sample.h"
#include "operators/random_sample.h"

enum { FEW = 1024, RUN = 64, BINS = 1024, BIN_SHIFT = 19 }; /* bin: -z 2^24 >> 19 for z > -32, else BINS */

typedef struct job {
    const ik_tensor *ty, *tl, *th, *ts;
    const char *logits;
    int64_t *y;
    const char *history, *steps; /* null where absent */
    const ik_random_sample_attrs *attrs;
    char *workspace;
    int64_t rows, v, kept, slot_bytes; /* kept: number of tokens that top_k keeps */
    float factor;
    _Atomic int64_t first_bad; /* first row with a bad value */
} job;

/* The row in progress; all members but l are used only where many tokens are kept. */
typedef struct row {
    int64_t number, v;
    float *l, top, factor;
    uint32_t *w, *bin_w; /* weights of all tokens, and of the bin's entries */
    uint64_t *bin;       /* entries of one bin */
} row;

/* Load the logits in F32, penalised and without -0, and their maximum: NaN where there is one. */
static void load(const job *j, row *r)
{
    int64_t stride = j->tl->strides[j->tl->ndim - 1], size = ik_itemsize(j->tl->dtype);
    const char *x = j->logits + ik_row_offset(j->tl, r->number, 1) * size;
    for (int64_t at = 0; at < r->v; at += IK_TILE) {
        int64_t n = ik_min(r->v - at, IK_TILE);
        float *l = r->l + at;
        const float *from = ik_fetch(j->tl->dtype, x + at * stride * size, stride, n, l);
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            l[i] = from[i] + 0.0f;
    }
    int64_t past = j->history == NULL ? 0 : j->th->shape[j->th->ndim - 1];
    for (int64_t i = 0; i < past; i++) {
        int64_t token = ik_index_at(
            j->th->dtype, j->history, ik_row_offset(j->th, r->number, 1) + i * j->th->strides[j->th->ndim - 1]);
        if (token < 0 || token >= r->v)
            continue;
        float l; /* read again from the logits: a token may be in the history twice */
        ik_load_f32(j->tl->dtype, x + token * stride * size, 1, 1, &l);
        r->l[token] = ik_sample_penalised(l, (float)j->attrs->penalty) + 0.0f;
    }
    r->top = ik_extreme_of_f32(IK_MAX, r->v, r->l);
}

static bool usable(const row *r) { return r->top > -IKM_INF_F32; }

/* For n tokens of the row in a list, largest first: the number that top_p keeps, at least one. */
static int64_t count_kept(const job *j, const uint32_t *w, int64_t n)
{
    uint64_t total = 0, before = 0;
    for (int64_t i = 0; i < n; i++)
        total += w[i];
    uint64_t target = ik_sample_share(total, ik_sample_fraction((float)j->attrs->top_p));
    int64_t kept = 0;
    for (; kept < n && (kept == 0 || before < target); kept++)
        before += w[kept];
    return kept;
}

static uint64_t draw(const job *j, const row *r, uint64_t total)
{
    int64_t step =
        j->steps == NULL ? j->attrs->step : ik_index_at(j->ts->dtype, j->steps, ik_row_offset(j->ts, r->number, 1));
    return ik_sample_high(ik_sample_philox((uint64_t)j->attrs->seed, (uint32_t)r->number, (uint64_t)step), total);
}

static uint32_t min_weight_of(const job *j, const row *r)
{
    uint64_t max_weight = ik_sample_weight(r->top, r->top, r->factor);
    return (uint32_t)(max_weight * ik_sample_fraction((float)j->attrs->min_p) >> 32);
}

static int64_t sample_few(const job *j, const row *r)
{
    uint64_t list[FEW];
    uint32_t w[FEW], keys[IK_TILE] IK_ALIGNED;
    for (int64_t at = 0; at < r->v; at += IK_TILE) {
        int64_t n = ik_min(r->v - at, IK_TILE);
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            keys[i] = ik_sample_key(r->l[at + i]);
        ik_offer_u32(list, j->kept, keys, n, at);
    }
    ik_sort_heap_u32(list, j->kept);
    for (int64_t i = 0; i < j->kept; i++)
        w[i] = ik_sample_weight(r->l[ik_index_of_u32(list[i])], r->top, r->factor);
    int64_t n = count_kept(j, w, j->kept), kept = 0;
    uint64_t total = 0, min_weight = min_weight_of(j, r), summed = 0;
    for (int64_t i = 0; i < n; i++)
        if (w[i] >= min_weight) {
            total += w[i];
            list[kept++] = list[i] << 32 | w[i]; /* by index, starting with the largest */
        }
    ik_heapify_u32(list, kept);
    ik_sort_heap_u32(list, kept);
    uint64_t at = draw(j, r, total);
    for (int64_t i = 0; i < kept - 1; i++) {
        summed += (uint32_t)list[i];
        if (summed > at)
            return ik_index_of_u32(list[i] >> 32);
    }
    return ik_index_of_u32(list[kept - 1] >> 32);
}

/* For each bin, the number of its tokens and their total weight. */
typedef struct histogram {
    int64_t count[BINS + 1];
    uint64_t weight[BINS + 1];
} histogram;

static void find_bins(const row *r, int64_t at, int64_t n, uint16_t *bins)
{
    const float *l = r->l + at, top = r->top, factor = r->factor;
    IK_VECTORISE for (int64_t i = 0; i < n; i++) {
        const float z = l[i] == top ? 0.0f : (l[i] - top) * factor, near = z > -32.0f ? z : -32.0f;
        bins[i] = (uint16_t)((int32_t)(near * -16777216.0f) >> BIN_SHIFT);
    }
}

static void weigh(const row *r)
{
    IK_VECTORISE for (int64_t i = 0; i < r->v; i++)
        r->w[i] = ik_sample_weight(r->l[i], r->top, r->factor);
}

static void fill(const row *r, histogram *h)
{
    uint16_t bins[IK_TILE] IK_ALIGNED;
    memset(h, 0, sizeof *h);
    for (int64_t at = 0; at < r->v; at += IK_TILE) {
        int64_t n = ik_min(r->v - at, IK_TILE);
        find_bins(r, at, n, bins);
        for (int64_t i = 0; i < n; i++) {
            h->count[bins[i]]++;
            h->weight[bins[i]] += r->w[at + i];
        }
    }
}

/* Gather the entries of a bin and their counts: their weight, or one each. */
static int64_t gather_bin(const row *r, uint16_t which, bool weight)
{
    uint16_t bins[IK_TILE] IK_ALIGNED = { 0 };
    int64_t count = 0;
    for (int64_t at = 0; at < r->v; at += IK_TILE) {
        int64_t n = ik_min(r->v - at, IK_TILE);
        find_bins(r, at, n, bins);
        for (int64_t first = 0; first < n; first += RUN) {
            uint16_t found = 0;
            for (int64_t i = first; i < first + RUN; i++) /* entries beyond n are not looked at again */
                found |= bins[i] == which;
            for (int64_t i = first; i < ik_min(n, first + RUN) && found != 0; i++)
                if (bins[i] == which) {
                    r->bin[count] = ik_entry_of_u32(ik_sample_key(r->l[at + i]), at + i);
                    r->bin_w[count++] = weight ? r->w[at + i] : 1;
                }
        }
    }
    return count;
}

/* The total count of the entries above `entry`. */
static uint64_t above(const row *r, int64_t n, uint64_t entry)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += r->bin[i] > entry ? r->bin_w[i] : 0;
    return sum;
}

/* The last entry before which the total count is below `target`, 0 where all are kept; `target` is from 1 to the count
 * of all. */
static uint64_t find_cutoff(const row *r, const histogram *h, bool weight, uint64_t target)
{
    uint64_t before = 0;
    int64_t which = 0;
    for (; which < BINS; which++) {
        uint64_t part = weight ? h->weight[which] : (uint64_t)h->count[which];
        if (before + part >= target)
            break;
        before += part;
    }
    if (which == BINS) /* it makes no difference whether tokens of weight zero are kept */
        return 0;
    int64_t n = gather_bin(r, (uint16_t)which, weight);
    uint64_t all = r->bin[0], any = r->bin[0];
    for (int64_t i = 1; i < n; i++)
        all &= r->bin[i], any |= r->bin[i];
    uint64_t cutoff = all; /* the bits that differ are found from the highest down; lower bits are taken as ones */
    for (uint64_t bit = UINT64_C(1) << 63; bit != 0; bit >>= 1)
        if ((any & ~all & bit) != 0 && before + above(r, n, cutoff | (any & (bit - 1))) >= target)
            cutoff |= bit;
    return cutoff;
}

/* The total weight of the tokens of [at, at + n) that are at or above the cutoff and weigh at least `min_weight`. */
static uint64_t kept_weight(const row *r, uint64_t cutoff, uint32_t min_weight, int64_t at, int64_t n)
{
    const uint32_t key = ik_key_of_u32(cutoff), last = (uint32_t)ik_index_of_u32(cutoff);
    uint64_t sum = 0;
    for (int64_t i = at; i < at + n; i++) {
        const uint32_t k = ik_sample_key(r->l[i]);
        const bool kept = ((k > key) | ((k == key) & ((uint32_t)i <= last))) & (r->w[i] >= min_weight);
        sum += kept ? r->w[i] : 0;
    }
    return sum;
}

static uint64_t kept_total(const row *r, uint64_t cutoff, uint32_t min_weight)
{
    uint64_t total = 0;
    for (int64_t at = 0; at < r->v; at += IK_TILE)
        total += kept_weight(r, cutoff, min_weight, at, ik_min(r->v - at, IK_TILE));
    return total;
}

static int64_t sample_many(const job *j, const row *r)
{
    histogram h;
    uint64_t cutoff = 0, share = ik_sample_fraction((float)j->attrs->top_p);
    weigh(r);
    if (j->kept < r->v || share >> 32 == 0)
        fill(r, &h);
    if (j->kept < r->v)
        cutoff = find_cutoff(r, &h, false, (uint64_t)j->kept);
    if (share >> 32 == 0) {
        uint64_t target = ik_sample_share(kept_total(r, cutoff, 0), share);
        cutoff = find_cutoff(r, &h, true, target == 0 ? 1 : target);
    }
    uint32_t min_weight = min_weight_of(j, r);
    uint64_t at = draw(j, r, kept_total(r, cutoff, min_weight)), summed = 0;
    int64_t first = 0;
    for (;; first += IK_TILE) {
        uint64_t part = kept_weight(r, cutoff, min_weight, first, ik_min(r->v - first, IK_TILE));
        if (summed + part > at || first + IK_TILE >= r->v)
            break;
        summed += part;
    }
    for (int64_t i = first; i < r->v; i++) {
        summed += kept_weight(r, cutoff, min_weight, i, 1);
        if (summed > at)
            return i;
    }
    return 0;
}

static row row_of(const job *j, int64_t number, int32_t worker)
{
    char *scratch = j->workspace + (j->rows <= ik_threads() ? number : worker) * j->slot_bytes;
    int64_t part = ik_round_up((uint64_t)j->v * sizeof(float), IK_ALIGNMENT);
    void *at[] = { scratch, scratch + part, scratch + 2 * part, scratch + 3 * part };
    return (
        row){ .number = number, .v = j->v, .l = at[0], .w = at[1], .bin_w = at[2], .bin = at[3], .factor = j->factor };
}

static void rows(void *context, int64_t begin, int64_t end, int32_t worker)
{
    job *j = context;
    for (int64_t number = begin; number < end; number++) {
        row r = row_of(j, number, worker);
        load(j, &r);
        int64_t token = 0, seen = atomic_load(&j->first_bad);
        if (!usable(&r))
            while (number < seen && !atomic_compare_exchange_weak(&j->first_bad, &seen, number))
                ;
        else if (j->attrs->temperature == 0)
            while (r.l[token] != r.top)
                token++;
        else
            token = j->kept <= FEW ? sample_few(j, &r) : sample_many(j, &r);
        j->y[ik_row_offset(j->ty, number, 1)] = token;
    }
}

static bool set_up(const ik_plan *plan, job *j)
{
    const ik_tensor *t = plan->tensors, *l = &t[IK_RANDOM_SAMPLE_LOGITS];
    *j = (job){ .ty = t, .tl = l, .attrs = plan->attrs, .v = l->shape[l->ndim - 1], .first_bad = INT64_MAX };
    j->rows = ik_numel(t);
    j->kept = j->attrs->top_k == 0 ? j->v : ik_min(j->attrs->top_k, j->v);
    j->factor = ik_sample_factor((float)j->attrs->temperature);
    bool many = j->kept > FEW && j->attrs->temperature != 0;
    uint64_t part = ik_round_up((uint64_t)j->v * sizeof(float), IK_ALIGNMENT);
    j->slot_bytes = (int64_t)(many ? 3 * part + ik_round_up((uint64_t)j->v * sizeof(uint64_t), IK_ALIGNMENT) : part);
    return j->rows > 0 && j->v > 0;
}

IK_SUPPORTED(random_sample)
{
    const ik_tensor *l = &plan->tensors[IK_RANDOM_SAMPLE_LOGITS];
    return l->shape[l->ndim - 1] > UINT32_MAX ? "more than 2^32 - 1 logits in a row" : NULL;
}

IK_WORKSPACE(random_sample)
{
    job j;
    return set_up(plan, &j) ? (uint64_t)(ik_min(j.rows, ik_threads()) * j.slot_bytes) : 0;
}

IK_KERNEL(random_sample)
{
    IK_UNUSED;
    job j;
    if (!set_up(plan, &j))
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_RANDOM_SAMPLE_Y);
    j.logits = ik_ptr(plan, data, IK_RANDOM_SAMPLE_LOGITS);
    j.history = ik_ptr(plan, data, IK_RANDOM_SAMPLE_HISTORY);
    j.steps = ik_ptr(plan, data, IK_RANDOM_SAMPLE_STEPS);
    j.workspace = workspace;
    if (j.history != NULL)
        j.th = &plan->tensors[IK_RANDOM_SAMPLE_HISTORY];
    if (j.steps != NULL)
        j.ts = &plan->tensors[IK_RANDOM_SAMPLE_STEPS];
    ik_parallel_for(j.rows, IK_THREAD_BYTES / (j.v * (int64_t)sizeof(float)), rows, &j);
    int64_t bad = atomic_load(&j.first_bad), at = 0;
    if (bad == INT64_MAX)
        return IK_SUCCESS;
    row r = row_of(&j, bad, 0);
    load(&j, &r);
    while (r.top != r.top && r.l[at] == r.l[at])
        at++;
    return ik_bad_value(bad, r.top != r.top ? at : -1);
}
