/* topk: the k largest of each row, largest first, equal ones in the order of their places, NaN as largest. One
 * work-group per row.
 *
 * The row's keys are written to the workspace. The key of the k-th largest is found by counting, digit by digit; the
 * places of the elements above it, and of the first that equal it, are collected and sorted by merging: an element's
 * place in the merged run is its place in its own run plus its place in the other one, found by bisection. */
#include "keys.h"

typedef int ik_measure;
static IK_INLINE ik_u64 weight_of(ik_key key, ik_measure each) { return (ik_u64)each; }

#include "select.h"

IK_ENTRY(topk)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_u64, bins, BINS * IK_GROUP);
    const int last = (int)p.x.ndim - 1;
    const ik_index n = p.x.shape[last], k = (ik_index)p.k, row = IK_GROUP_ID;
    IK_GLOBAL ik_u8 *const space = workspace + (ik_i64)row * p.row;
    IK_GLOBAL ik_key *const keys = (IK_GLOBAL ik_key *)space;
    IK_GLOBAL ik_i64 *places = (IK_GLOBAL ik_i64 *)(space + p.keys),
                     *sorted = (IK_GLOBAL ik_i64 *)(space + p.keys + 8 * p.k);
    const ik_index from = p.x.offset + ik_offset_within(p.x, 0, last, row), step = p.x.strides[last];
    for (ik_index i = IK_LOCAL_ID; i < n; i += IK_GROUP)
        keys[i] = ik_key_of(x[from + i * step]);
    IK_BARRIER_GLOBAL();
    const ik_threshold threshold = ik_group_threshold(keys, n, 1, (ik_u64)k, bins);
    ik_group_collect(keys, n, threshold.key, (ik_u64)k - threshold.before, places, bins);
    for (ik_index run = 1; run < k; run *= 2) {
        IK_BARRIER_GLOBAL();
        for (ik_index i = IK_LOCAL_ID; i < k; i += IK_GROUP)
            sorted[ik_merged_place(keys, places, k, run, i)] = places[i];
        IK_GLOBAL ik_i64 *const other = places;
        places = sorted;
        sorted = other;
    }
    IK_BARRIER_GLOBAL();
    const ik_index to = p.y.offset + ik_offset_within(p.y, 0, last, row),
                   index_to = p.indices.offset + ik_offset_within(p.indices, 0, last, row);
    for (ik_index i = IK_LOCAL_ID; i < k; i += IK_GROUP) {
        const ik_index place = (ik_index)places[i];
        y[to + i * p.y.strides[last]] = x[from + place * step];
        indices[index_to + i * p.indices.strides[last]] = place;
    }
}
