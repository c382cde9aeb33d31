/* generic and the operators that share its stem, on processors.
 *
 * The body runs over lanes (lanes.h), which are adjacent outputs, listed where rows are short, or terms of one output
 * ("lines"). Sums are computed in the compute type, some terms at a time, with compensation of rounding errors; where
 * one leaves the range, its lanes are recomputed with the terms that are too large added up apart (fold.h). Few outputs
 * are computed in parts, and joined. Sums of products that are matrix products are computed in register tiles
 * (nests.h).
 *
 * Against the portable kernel (PoCL 3.0 with AVX2, two Zen 5 cores, busy): maps of 512^2 20 times as fast, batch_matmul
 * of 4 x 256^3 100, conv_2d_nchw_fchw of 64x56x56 3x3 100, poolings of 3x3 by 2 3 to 5. Against the C kernels of the
 * CPU plug-in, interleaved: maps 0.6 to 1.7, sums of rows 0.9, products 0.3 to 1.9 (as gemm.c: 140 GFLOP/s), poolings
 * 0.4 to 0.7 in caches and 1.6 to 3.7 from memory. */
#if defined(IK_COMBINE_maximum)
#define FOLD_MAXIMUM
#elif defined(IK_COMBINE_minimum)
#define FOLD_MINIMUM
#endif
#include "lanes.h"
#include "fold.h"

#if defined(FOLD_MAXIMUM)
#define JOIN(a, b) IK_FN(maximum)(a, b)
#elif defined(FOLD_MINIMUM)
#define JOIN(a, b) IK_FN(minimum)(a, b)
#elif defined(IK_COMPUTE_FLOAT)
#define JOIN(a, b) ((a) + (b))
#define ADDS
#else
#define JOIN(a, b) (ik_c)((ik_u64)(a) + (ik_u64)(b))
#endif

IK_ENTRY(generic_map)(IK_PARAMS)
{
    const int kept = (int)p.kept, lanes = kept - 1;
    const ik_index begin = IK_GROUP_ID * (ik_index)p.taken, end = min((ik_index)p.count, begin + (ik_index)p.taken);
    ik_tile tile IK_ALIGNED;
    IK_EACH_INPUT(STORAGE)
    SCRATCH(y)
    for (ik_index t = begin; t < end; t++) {
        const ik_place where = ik_place_of(p.y, kept, (ik_index)p.outputs, t);
        const int n = where.n;
        IK_EACH_INPUT(FROM)
        FROM(y)
        IK_EACH_INPUT(LISTS)
        LISTS(y)
        IK_EACH_INPUT(IN)
        IK_EACH_INPUT(FETCH)
        IK_VECTORISE for (int i = 0; i < n; i++) {
            IK_EACH_INPUT(VALUE)
            IK_TO_TILE(tile, i, IK_BODY);
        }
        STORE((int)p.stream);
    }
}

/* Fold all lanes into the first one. */
static IK_INLINE ik_c fold_lanes(ik_c *lane, int n)
{
    for (; n > 1; n -= n / 2)
        for (int i = 0; i < n / 2; i++)
            lane[i] = JOIN(lane[i], lane[n - n / 2 + i]);
    return lane[0];
}

/* Where an input's lanes are for the first term, and for the next. */
#define START(x) \
    ik_index in_##x = at_##x + ik_along(p.y.shape + kept, p.x.strides + kept, inner + 1 - kept, run) \
        + chunk * IK_TILE * p.x.strides[last];
#define CHUNK(x) in_##x += IK_TILE * p.x.strides[last];
#define AGAIN(x) in_##x -= (chunks - 1) * IK_TILE * p.x.strides[last];
#define NEXT(x) in_##x += p.x.strides[loop];
#define BACK(x) in_##x -= p.x.strides[loop] * p.y.shape[loop];

#if PARTS
#define FINISH(output, f, at_y, at_init) ((IK_GLOBAL ik_fold *)workspace)[part * (ik_index)p.outputs + (output)] = f
#else
#define FINISH(output, f, at_y, at_init) \
    IK_STORE(y, at_y, ik_fold_value(ik_fold_add(f, (ik_c)IK_LOAD(init, at_init)), 1))
#endif

/* The offsets of lanes of y and of init, whose strides, unlike those of the inputs, are not in STEPS. */
#if LISTED
#define LANE_OFFSET(x) list_##x[i]
#else
#define LANE_OFFSET(x) (i * p.x.strides[lanes])
#endif

IK_ENTRY(generic_reduce)(IK_PARAMS)
{
    enum { FLUSH = 32 }; /* terms that are added before their sum is added with compensation */
    const int kept = (int)p.kept, last = (int)p.y.ndim - 1, lanes = LINES ? last : kept - 1,
              inner = LINES ? last - 1 : last;
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, task = IK_GROUP_ID - part * (ik_index)p.tasks;
    const ik_index begin = task * (ik_index)p.taken, end = min((ik_index)p.count, begin + (ik_index)p.taken);
    const ik_index from = part * (ik_index)p.length, to = min((ik_index)p.pieces, from + (ik_index)p.length);
    const ik_index length = p.y.shape[last], chunks = LINES ? (length + IK_TILE - 1) / IK_TILE : 1;
    ik_c some[IK_TILE] IK_ALIGNED, near[IK_TILE] IK_ALIGNED, low[IK_TILE] IK_ALIGNED, far[IK_TILE] IK_ALIGNED;
    ik_tile tile IK_ALIGNED;
    IK_EACH_INPUT(STORAGE)
    SCRATCH(y)
    SCRATCH(init)
    for (ik_index t = begin; t < end; t++) {
#if LINES
        const ik_place where = { t, t, 0, kept, (int)min((ik_index)IK_TILE, length) };
#else
        const ik_place where = ik_place_of(p.y, kept, (ik_index)p.outputs, t);
#endif
        int n = where.n, bad = 0;
        IK_EACH_INPUT(FROM)
        FROM(y)
        FROM(init)
        IK_EACH_INPUT(LISTS)
        LISTS(y)
        LISTS(init)
        for (int careful = 0; careful <= bad; careful++) {
            ik_index term[8], run = from / chunks, chunk = from - run * chunks;
            IK_EACH_INPUT(START)
            for (int loop = inner; loop >= kept; loop--) {
                term[loop] = run % p.y.shape[loop];
                run /= p.y.shape[loop];
            }
            for (int i = 0; i < where.n; i++) {
                some[i] = ik_fold_none().near.high;
                near[i] = low[i] = far[i] = 0;
            }
            int waiting = 0;
            for (ik_index piece = from; piece < to; piece++) {
                if (LINES)
                    n = chunk + 1 < chunks ? IK_TILE : (int)(length - chunk * IK_TILE);
                IK_EACH_INPUT(FETCH)
#ifdef ADDS
                if (careful) {
                    for (int i = 0; i < n; i++) {
                        IK_EACH_INPUT(VALUE)
                        ik_fold f = { { near[i], low[i] }, { far[i], 0 } };
                        f = ik_fold_add(f, IK_BODY);
                        near[i] = f.near.high;
                        low[i] = f.near.low;
                        far[i] = ik_sum_value(f.far);
                    }
                } else
#endif
                {
                    IK_VECTORISE for (int i = 0; i < n; i++) {
                        IK_EACH_INPUT(VALUE)
                        some[i] = JOIN(some[i], IK_BODY);
                    }
                }
#ifdef ADDS
                if (!careful && (++waiting == FLUSH || piece + 1 == to)) {
                    for (int i = 0; i < where.n; i++) {
                        const ik_c all = near[i] + some[i], of_some = all - near[i];
                        low[i] += (near[i] - (all - of_some)) + (some[i] - of_some);
                        near[i] = all;
                        some[i] = 0;
                    }
                    waiting = 0;
                }
#endif
                if (LINES && ++chunk < chunks) {
                    IK_EACH_INPUT(CHUNK)
                    continue;
                }
                if (chunks > 1) {
                    IK_EACH_INPUT(AGAIN)
                }
                chunk = 0;
                for (int loop = inner; loop >= kept; loop--) { /* odometer */
                    IK_EACH_INPUT(NEXT)
                    if (++term[loop] < p.y.shape[loop])
                        break;
                    IK_EACH_INPUT(BACK)
                    term[loop] = 0;
                }
            }
#ifdef ADDS
            for (int i = 0; i < where.n && !careful; i++)
                bad |= !ik_within(near[i]);
#endif
        }
        n = where.n;
#ifdef ADDS
        ik_c *const made = near;
#else
        ik_c *const made = some;
#endif
#if LINES
        ik_fold f = ik_fold_none();
        f.near.high = fold_lanes(made, n);
#ifdef ADDS
        f.near.low = fold_lanes(low, n);
        f.far.high = fold_lanes(far, n);
#endif
        FINISH(t, f, at_y, at_init);
#else
        if (PARTS || bad) {
            for (int i = 0; i < n; i++) {
                ik_fold f = ik_fold_none();
                f.near.high = made[i];
                f.near.low = low[i];
                f.far.high = far[i];
                FINISH(where.first + i, f, at_y + LANE_OFFSET(y), at_init + LANE_OFFSET(init));
            }
            continue;
        }
        for (int i = 0; i < n; i++) {
            const ik_c start = (ik_c)IK_LOAD(init, at_init + LANE_OFFSET(init));
#ifdef ADDS
            const ik_c all = near[i] + start, of_start = all - near[i],
                       rest = low[i] + ((near[i] - (all - of_start)) + (start - of_start));
            /* Where the sum is not finite, the rest is NaN and is ignored. */
            IK_TO_TILE(tile, i, rest == rest ? all + rest : all);
#else
            IK_TO_TILE(tile, i, JOIN(made[i], start));
#endif
        }
        STORE(0);
#endif
    }
}

IK_ENTRY(generic_join)(IK_PARAMS)
{
    const ik_index output = IK_ITEM;
    if (output >= (ik_index)p.items)
        return;
    IK_GLOBAL const ik_fold *const parts = (IK_GLOBAL const ik_fold *)workspace;
    ik_fold f = ik_fold_none();
    for (ik_index i = 0; i < (ik_index)p.parts; i++)
        f = ik_fold_join(f, parts[i * (ik_index)p.outputs + output]);
    const ik_c start = (ik_c)IK_LOAD(init, p.init.offset + ik_offset_within(p.init, 0, (int)p.kept, output));
    IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), ik_fold_value(ik_fold_add(f, start), 1));
}

#ifdef TRANSPOSED
#include "nests.h"
#endif

IK_ENTRY(generic_left)(IK_PARAMS) { ik_left(IK_ARGUMENTS); }

IK_ENTRY(generic_contract)(IK_PARAMS) { ik_contract(IK_ARGUMENTS); }
