/* reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min of x that is contiguous along its last reduced dim
 * (rows) or its last kept one (columns), by 16 bytes per thread.
 *
 * Rows: LANES threads per output, which are part of a warp or a whole block. Columns: a warp takes 32 packs of adjacent
 * outputs, and the warps of a block share the reduced elements in turn. Where that is too few blocks, each computes a
 * part, which the workspace holds as [part][output], and a second launch joins these. A block of the portable kernel
 * waits at barriers for each output, however little there is to add. */
#include "packs.h"
#include "reductions.h"

#if PARTS
#define FINISH(fold, part, output) ((ik_fold *)workspace)[(part) * (ik_index)p.outputs + (output)] = (fold)
#else
#define FINISH(fold, part, output) \
    IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), result(fold, p.d))
#endif
/* The distance of element i of the reduced dims from the first. */
#define ALONG(i) (STRAIGHT ? (i) * p.x.strides[(int)p.kept] : ik_offset_within(p.x, (int)p.kept, (int)p.x.ndim, i))

#if defined(IK_COMPUTE_F32) && defined(FOLD_SUM)
/* A sum may have terms beyond the range: where `near` would exceed 2^90, the terms go to `far`, a pack at a time. */
#define FAR
static IK_INLINE int is_near(ik_sum sum) { return ik_abs_f32(sum.high) <= 0x1p90f && ik_abs_f32(sum.low) <= 0x1p90f; }
#endif

/* Join a pack of x to one fold. */
template<class T> static IK_INLINE void add(ik_fold &f, pack<T> some)
{
#ifdef FAR
    ik_sum near = f.near;
#pragma unroll
    for (int e = 0; e < EACH; e++)
        near = ik_sum_add(near, LOAD_OF(x, some, e));
    if (is_near(near)) {
        f.near = near;
        return;
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        f.far = ik_sum_add(f.far, LOAD_OF(x, some, e) * 0x1p-64f);
#else
#pragma unroll
    for (int e = 0; e < EACH; e++)
        f = ik_fold_add(f, LOAD_OF(x, some, e));
#endif
}

/* Join a pack of x to as many folds. */
template<class T> static IK_INLINE void add_each(ik_fold (&f)[EACH], pack<T> some)
{
#ifdef FAR
    ik_sum near[EACH];
    int all = 1;
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        near[e] = ik_sum_add(f[e].near, LOAD_OF(x, some, e));
        all &= is_near(near[e]);
    }
#pragma unroll
    for (int e = 0; e < EACH; e++)
        if (all)
            f[e].near = near[e];
        else
            f[e].far = ik_sum_add(f[e].far, LOAD_OF(x, some, e) * 0x1p-64f);
#else
#pragma unroll
    for (int e = 0; e < EACH; e++)
        f[e] = ik_fold_add(f[e], LOAD_OF(x, some, e));
#endif
}

#if defined(LANES) && LANES <= 32
/* Join the folds of LANES threads of a warp, to the first of them. */
static IK_INLINE ik_fold over_lanes(ik_fold f)
{
#pragma unroll
    for (int left = LANES / 2; left > 0; left /= 2) {
        ik_fold other = ik_fold_none();
        other.near.high = IK_SHUFFLE_DOWN(f.near.high, left);
#if defined(IK_COMPUTE_FLOAT) && defined(FOLD_SUM)
        other.near.low = IK_SHUFFLE_DOWN(f.near.low, left);
#endif
#ifdef FAR
        other.far.high = IK_SHUFFLE_DOWN(f.far.high, left);
        other.far.low = IK_SHUFFLE_DOWN(f.far.low, left);
#endif
        f = ik_fold_join(f, other);
    }
    return f;
}
#endif

IK_ENTRY(reduce_rows)(IK_PARAMS)
{
#if LANES > 32
    IK_LOCAL_ARRAY(ik_c, scratch, 2 * IK_GROUP);
#endif
    const ik_index task = (IK_GROUP_ID * IK_GROUP + IK_LOCAL_ID) / LANES, outputs = (ik_index)p.outputs;
    const ik_index part = PARTS ? task / outputs : 0, output = task - part * outputs, lane = IK_LOCAL_ID % LANES;
    const ik_index begin = part * (ik_index)p.length,
                   left = (ik_index)p.d - begin < p.length ? (ik_index)p.d - begin : (ik_index)p.length;
    const ik_index end = output < outputs ? begin + left : begin;
    const auto *const from = x + p.x.offset + ik_offset_within(p.x, 0, (int)p.kept, output);
    ik_fold f = ik_fold_none();
    ik_index i = begin + lane * EACH;
#pragma unroll 4
    for (; i + EACH <= end; i += LANES * EACH)
        add(f, get(from + ALONG(i)));
    for (; i < end; i++) /* the end of a tensor that is one line */
        f = ik_fold_add(f, IK_PASTE(ik_load_, IK_TYPE_x)(from, i));
#if LANES > 32
    f = ik_fold_group(f, scratch);
#else
    f = over_lanes(f);
#endif
    if (lane == 0 && output < outputs)
        FINISH(f, part, output);
}

IK_ENTRY(reduce_columns)(IK_PARAMS)
{
    enum { WARPS = IK_GROUP / 32 };
    IK_LOCAL_ARRAY(ik_fold, scratch, IK_GROUP);
    const int last = (int)p.kept - 1, lane = IK_SUBGROUP_LANE, warp = IK_SUBGROUP_ID;
    const ik_index columns = p.x.shape[last], across = (columns + 32 * EACH - 1) / (32 * EACH);
    const ik_index part = IK_GROUP_ID / (ik_index)p.tiles, tile = IK_GROUP_ID - part * (ik_index)p.tiles;
    const ik_index other = tile / across, column = (tile - other * across) * 32 * EACH + lane * EACH;
    const ik_index begin = part * (ik_index)p.length,
                   left = (ik_index)p.d - begin < p.length ? (ik_index)p.d - begin : (ik_index)p.length;
    const ik_index end = column < columns ? begin + left : begin;
    const auto *const from = x + p.x.offset + ik_offset_within(p.x, 0, last, other) + column;
    ik_fold f[EACH];
#pragma unroll
    for (int e = 0; e < EACH; e++)
        f[e] = ik_fold_none();
#pragma unroll 4
    for (ik_index i = begin + warp; i < end; i += WARPS)
        add_each(f, get(from + ALONG(i)));
#pragma unroll
    for (int e = 0; e < EACH; e++) {
        scratch[IK_LOCAL_ID] = f[e];
        IK_BARRIER();
        if (warp == 0 && column < columns) {
            for (int w = 1; w < WARPS; w++)
                f[e] = ik_fold_join(f[e], scratch[w * 32 + lane]);
            FINISH(f[e], part, other * columns + column + e);
        }
        IK_BARRIER();
    }
}
