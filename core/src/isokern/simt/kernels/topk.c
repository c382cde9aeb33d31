/* topk: the k largest of each row, largest first, equal ones in the order of their places, NaN as largest. One
 * work-group per row.
 *
 * The row's keys are written to the workspace. The key of the k-th largest is found by counting, digit by digit; the
 * places of the elements above it, and of the first that equal it, are collected and sorted by merging: an element's
 * place in the merged run is its place in its own run plus its place in the other one, found by bisection. */
/* launch
 * let(n=x.shape[-1], k=y.shape[-1], rows=y.numel // max(1, y.shape[-1]))
 * let(wide=4 if x.dtype.kind == "f" or x.dtype.itemsize == 4 else 8)
 * let(keys=ceil_div(n * wide, 8) * 8)
 * workspace(when=y.numel > 0, bytes=(keys + 16 * k) * rows)
 * topk(when=y.numel > 0, groups=rows, local=64 if n <= 1024 else 256, k=k, row=keys + 16 * k, keys=keys)
 */
#include "simt.h"

#if defined(IK_COMPUTE_F32)
typedef ik_u32 ik_key;
#define KEY(v) ik_key_of_float(v)
#elif IK_SIZE_x == 4
typedef ik_u32 ik_key;
#define KEY(v) ((ik_u32)(v) ^ 0x80000000u)
#else
typedef ik_u64 ik_key;
#define KEY(v) ((ik_u64)(v) ^ (ik_u64)1 << 63)
#endif
typedef int ik_measure;
static IK_INLINE ik_u64 weight_of(ik_key key, ik_measure each) { return (ik_u64)each; }

#include "select.h"

/* The number of places, in a run ordered by falling keys, whose keys are above this one or, where `equal`, not below
 * it. */
static IK_INLINE ik_index before(
    IK_GLOBAL const ik_key *keys, IK_GLOBAL const ik_i64 *places, ik_index count, ik_key key, int equal)
{
    ik_index low = 0, high = count;
    while (low < high) {
        const ik_index middle = low + (high - low) / 2;
        if (keys[places[middle]] > key || (equal && keys[places[middle]] == key))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

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
        keys[i] = KEY(IK_LOAD(x, from + i * step));
    IK_BARRIER_GLOBAL();
    const ik_threshold threshold = ik_group_threshold(keys, n, 1, (ik_u64)k, bins);
    ik_group_collect(keys, n, threshold.key, (ik_u64)k - threshold.before, places, bins);
    for (ik_index run = 1; run < k; run *= 2) {
        IK_BARRIER_GLOBAL();
        for (ik_index i = IK_LOCAL_ID; i < k; i += IK_GROUP) {
            const ik_index left = i / (2 * run) * (2 * run), middle = left + run < k ? left + run : k,
                           right = middle + run < k ? middle + run : k;
            const ik_key key = keys[places[i]];
            const ik_index others = i < middle ? before(keys, places + middle, right - middle, key, 0)
                                               : before(keys, places + left, middle - left, key, 1);
            sorted[(i < middle ? i : i - middle + left) + others] = places[i];
        }
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
