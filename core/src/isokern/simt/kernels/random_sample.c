/* random_sample: sample a token of each row by the steps of isokern/ops/random_sample.py; isokern_sample.h has the
 * operations that round. One work-group per row.
 *
 * The first entry leaves in the workspace each row's logits, as keys of the same order, the largest of them, and
 * whether the row is valid. For a temperature of 0, another entry takes the first of the largest; else, where top_k
 * cuts, one leaves the places and keys of the tokens that remain. The tokens that top_p keeps are found by digits of
 * the keys: all above a threshold and the first of those at it. The last entry reports the first invalid row. */
/* launch
 * let(v=logits.shape[-1], rows=logits.numel // max(1, v), remaining=attrs.top_k if 0 < attrs.top_k < v else 0)
 * let(keys=ceil_div(4 * v, 8) * 8, row=keys + 16 * remaining, group=64 if v <= 1024 else 256)
 * let(draws=attrs.temperature != 0, cuts=draws and remaining > 0)
 * workspace(when=rows > 0, bytes=(16 + row) * rows)
 * random_sample_keys(groups=rows, local=group, rows=rows, row=row)
 * random_sample_greedy(when=not draws, groups=rows, local=group, rows=rows, row=row)
 * random_sample_top_k(when=cuts, groups=rows, local=group, rows=rows, remaining=remaining, keys=keys, row=row)
 * random_sample(when=draws, groups=rows, local=group, rows=rows, remaining=remaining, keys=keys, row=row)
 * random_sample_report(when=rows > 0, groups=1, local=256, rows=rows)
 */
#include "isokern_sample.h"
#include "simt.h"
#include "min.h"

/* Each element counts 1, or the weight of its logit. */
typedef ik_u32 ik_key;
typedef struct {
    int weighed;
    float top, factor;
} ik_measure;

static IK_INLINE ik_u64 weight_of(ik_key key, IK_RECORD(ik_measure) m)
{ return m.weighed ? ik_sample_weight(ik_float(key & 0x80000000u ? key ^ 0x80000000u : ~key), m.top, m.factor) : 1; }

#include "select.h"

#define NO_NUMBER UINT32_MAX /* the key of NaN */
#define NOTHING 0x007fffffu  /* the key of -inf */
#define RIGHT (-2)           /* a row's status: this, or the place of NaN, or -1 where nothing is above -inf */

/* The state of a row. */
typedef struct {
    ik_i64 status;
    ik_u64 top; /* the largest key */
} row_state;

#define STATES ((IK_GLOBAL row_state *)workspace)
#define SPACE (workspace + 16 * p.rows + (ik_i64)IK_GROUP_ID * p.row)

/* An item writes the keys of the tokens whose numbers it owns, so it penalises them without waiting for other items. */
IK_ENTRY(random_sample_keys)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_u64, bins, BINS * IK_GROUP);
    const int last = (int)p.logits.ndim - 1, id = IK_LOCAL_ID;
    const ik_index row = IK_GROUP_ID, n = p.logits.shape[last];
    const ik_index from = p.logits.offset + ik_offset_within(p.logits, 0, last, row), step = p.logits.strides[last];
    IK_GLOBAL ik_key *const keys = (IK_GLOBAL ik_key *)SPACE;
    for (ik_index i = id; i < n; i += IK_GROUP)
        keys[i] = ik_key_of_float(IK_LOAD(logits, from + i * step));
#ifdef IK_HAS_history
    const ik_index past = p.history.offset + ik_offset_within(p.history, 0, last, row);
    for (ik_index i = 0; i < p.history.shape[last]; i++) {
        const ik_i64 token = history[past + i * p.history.strides[last]];
        if (token >= 0 && token < n && (int)(token & (IK_GROUP - 1)) == id)
            keys[token] =
                ik_key_of_float(ik_sample_penalised(IK_LOAD(logits, from + (ik_index)token * step), p.attr_penalty));
    }
#endif
    ik_u64 wrong = 0, top = 0; /* places counted from the end: the first one is the largest */
    for (ik_index i = id; i < n; i += IK_GROUP) {
        wrong = keys[i] == NO_NUMBER && wrong == 0 ? (ik_u64)(n - i) : wrong;
        top = keys[i] > top ? keys[i] : top;
    }
    wrong = ik_group_max(wrong, bins);
    top = ik_group_max(top, bins);
    if (id == 0) {
        STATES[row].status = wrong ? n - (ik_i64)wrong : top <= NOTHING ? -1 : RIGHT;
        STATES[row].top = top;
    }
}

IK_ENTRY(random_sample_top_k)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_u64, bins, BINS * IK_GROUP);
    const ik_index n = p.logits.shape[(int)p.logits.ndim - 1];
    IK_GLOBAL const ik_key *const keys = (IK_GLOBAL const ik_key *)SPACE;
    IK_GLOBAL ik_i64 *const places = (IK_GLOBAL ik_i64 *)(SPACE + p.keys);
    IK_GLOBAL ik_key *const left = (IK_GLOBAL ik_key *)(SPACE + p.keys + 8 * p.remaining);
    const ik_measure each = { 0, 0, 0 };
    const ik_threshold threshold = ik_group_threshold(keys, n, each, (ik_u64)p.remaining, bins);
    ik_group_collect(keys, n, threshold.key, (ik_u64)p.remaining - threshold.before, places, bins);
    IK_BARRIER_GLOBAL();
    for (ik_index i = IK_LOCAL_ID; i < p.remaining; i += IK_GROUP)
        left[i] = keys[places[i]];
}

IK_ENTRY(random_sample_greedy)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_u64, bins, BINS * IK_GROUP);
    const int last = (int)p.logits.ndim - 1, id = IK_LOCAL_ID;
    const ik_index row = IK_GROUP_ID, n = p.logits.shape[last];
    IK_GLOBAL const ik_key *const keys = (IK_GLOBAL const ik_key *)SPACE;
    const ik_key top = (ik_key)STATES[row].top;
    ik_u64 first = 0; /* counted from the end */
    for (ik_index i = id; i < n && first == 0; i += IK_GROUP)
        first = keys[i] == top ? (ik_u64)(n - i) : 0;
    first = ik_group_max(first, bins);
    if (id == 0)
        y[p.y.offset + ik_offset_within(p.y, 0, last, row)] = STATES[row].status == RIGHT ? n - (ik_index)first : 0;
}

/* No item returns early: an invalid row has no elements, and its result is 0. */
IK_ENTRY(random_sample)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_u64, bins, BINS * IK_GROUP);
    const int last = (int)p.logits.ndim - 1, id = IK_LOCAL_ID;
    const ik_index row = IK_GROUP_ID, to = p.y.offset + ik_offset_within(p.y, 0, last, row);
    const int right = STATES[row].status == RIGHT;
    const ik_index n = !right ? 0 : p.remaining > 0 ? (ik_index)p.remaining : p.logits.shape[last];
    IK_GLOBAL const ik_i64 *const places = (IK_GLOBAL const ik_i64 *)(SPACE + p.keys);
    IK_GLOBAL const ik_key *const keys =
        (IK_GLOBAL const ik_key *)(SPACE + (p.remaining > 0 ? p.keys + 8 * p.remaining : 0));
    const ik_u64 top = STATES[row].top;
    ik_measure m;
    m.weighed = 1;
    m.top = ik_float((ik_key)top & 0x80000000u ? (ik_key)top ^ 0x80000000u : ~(ik_key)top);
    m.factor = ik_sample_factor(p.attr_temperature);
    ik_key at = 0; /* the keys above `at` are kept, and the first `ties` that equal it */
    ik_u64 ties = UINT64_MAX;
    const ik_u64 share = ik_sample_fraction(p.attr_top_p);
    if (share >> 32 == 0) {
        ik_u64 sum = 0;
        for (ik_index i = id; i < n; i += IK_GROUP)
            sum += weight_of(keys[i], m);
        const ik_u64 wanted = ik_sample_share(ik_group_running(sum, bins).all, share), target = wanted > 0 ? wanted : 1;
        const ik_threshold threshold = ik_group_threshold(keys, n, m, target, bins);
        const ik_u64 each = weight_of(threshold.key, m);
        at = threshold.key;
        ties = each > 0 ? (target - threshold.before + each - 1) / each : UINT64_MAX;
    }
    const ik_u64 enough = weight_of((ik_key)top, m) * ik_sample_fraction(p.attr_min_p) >> 32;
    const ik_index length = (n + IK_GROUP - 1) / IK_GROUP, begin = id * length,
                   end = begin + length < n ? begin + length : n;
    ik_u64 equal = 0, kept = 0;
    for (ik_index i = begin; i < end; i++)
        equal += keys[i] == at;
    const ik_u64 earlier = ik_group_running(equal, bins).before;
    equal = earlier;
    for (ik_index i = begin; i < end; i++) {
        const ik_u64 w = weight_of(keys[i], m);
        kept += keys[i] >= at && (keys[i] > at || equal < ties) && w >= enough ? w : 0;
        equal += keys[i] == at;
    }
    const ik_running drawn = ik_group_running(kept, bins);
#ifdef IK_HAS_steps
    const ik_i64 count = steps[p.steps.offset + ik_offset_within(p.steps, 0, last, row)];
#else
    const ik_i64 count = p.attr_step;
#endif
    const ik_u64 mark = ik_sample_high(ik_sample_philox((ik_u64)p.attr_seed, (ik_u32)row, (ik_u64)count), drawn.all);
    if (!right && id == 0)
        y[to] = 0;
    if (drawn.before <= mark && mark < drawn.before + kept) {
        ik_u64 running_sum = drawn.before;
        equal = earlier;
        ik_index i = begin;
        for (; i < end; i++) { /* stops before `end` */
            const ik_u64 w = weight_of(keys[i], m);
            running_sum += keys[i] >= at && (keys[i] > at || equal < ties) && w >= enough ? w : 0;
            equal += keys[i] == at;
            if (running_sum > mark)
                break;
        }
        y[to] = p.remaining > 0 ? places[i] : i;
    }
}

IK_ENTRY(random_sample_report)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_index, places, IK_GROUP);
    ik_index wrong = (ik_index)p.rows;
    for (ik_index i = IK_LOCAL_ID; i < wrong; i += IK_GROUP)
        if (STATES[i].status != RIGHT)
            wrong = i;
    wrong = group_min(wrong, places);
    if (IK_LOCAL_ID == 0 && wrong < p.rows)
        ik_report(error, wrong, STATES[wrong].status);
}
