/* generic and the operators that share its stem, on processors. With the kept loops k outside the reduced loops r:
 *
 *     generic_map       y[k] = body(x0[k], x1[k], …), of which the last may be init
 *     generic_reduce    y[k] = init[k] + Σ_r body(x0[k, r], x1[k, r], …), or the product, maximum or minimum instead
 *     generic_contract  y[k] = init[k] + Σ_r a[k, r] b[k, r] where that is a matrix product (nests.h)
 *
 * An item computes `taken` tiles of up to IK_TILE lanes, and the compiler vectorises the body over the lanes of a tile
 * (lanes.h). A lane is one output. The outputs of a tile are adjacent along the last kept loop or, with LISTED, where
 * that loop is short, adjacent in the order of all kept loops. With LINES, where outputs are few or their terms are
 * adjacent in memory, the lanes of a tile are instead terms of one output along the last loop, and are folded at the
 * end.
 *
 * Each lane adds up to FLUSH terms in the compute type, and then adds that to its sum with compensation of the rounding
 * error. Where a lane's sum leaves the range (ik_within), the whole tile is computed again, carefully: term by term,
 * with the terms that are too large added up apart (fold.h). With PARTS the terms of an output are shared among several
 * items; their folds lie in the workspace as [part][output], and generic_join joins them.
 *
 * Against the portable kernel (PoCL 3.0 with AVX2, two Zen 5 cores, busy): maps of 512^2 20 times as fast, batch_matmul
 * of 4 x 256^3 100, conv_2d_nchw_fchw of 64x56x56 3x3 100, poolings of 3x3 by 2 3 to 5. Against the C kernels of the
 * CPU plug-in, interleaved: maps 0.6 to 1.7, sums of rows 0.9, products 0.3 to 1.9 (as gemm.c: 140 GFLOP/s), poolings
 * 0.4 to 0.7 in caches and 1.6 to 3.7 from memory. */
#include "lanes.h"
#include "generic.h"

#if IK_IS_F16(y)
#define TO_TILE(i, v) IK_TO_TILE(tile, i, v)
#else
#define TO_TILE(i, v) PUT(tile.u.e, i, v)
#endif

#if defined(FOLD_MAXIMUM)
#define JOIN(a, b) IK_FN(maximum)(a, b)
#elif defined(FOLD_MINIMUM)
#define JOIN(a, b) IK_FN(minimum)(a, b)
#elif defined(FOLD_PRODUCT)
#define JOIN(a, b) ik_product(a, b)
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
            TO_TILE(i, IK_BODY);
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

/* Where an input's lanes are for the first term; the next tile of terms of a line and back to the first one; the next
 * term along a loop and back to the first one. */
#define START(x) \
    ik_index in_##x = at_##x + ik_along(p.y.shape + kept, p.x.strides + kept, inner + 1 - kept, run) \
        + chunk * IK_TILE * p.x.strides[last];
#define NEXT_CHUNK(x) in_##x += IK_TILE * p.x.strides[last];
#define FIRST_CHUNK(x) in_##x -= (chunks - 1) * IK_TILE * p.x.strides[last];
#define NEXT_TERM(x) in_##x += p.x.strides[loop];
#define FIRST_TERM(x) in_##x -= p.x.strides[loop] * p.y.shape[loop];

#if PARTS
#define FINISH(output, f, at_y, at_init) ((IK_GLOBAL ik_fold *)workspace)[part * (ik_index)p.outputs + (output)] = f
#else
#define FINISH(output, f, at_y, at_init) PUT(y, at_y, ik_fold_value(ik_fold_add(f, (ik_c)IK_LOAD(init, at_init)), 1))
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
    const int kept = (int)p.kept, last = (int)p.y.ndim - 1;
    const int lanes = LINES ? last : kept - 1;  /* the loop of the lanes */
    const int inner = LINES ? last - 1 : last; /* the last loop of the terms that each lane adds up */
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, task = IK_GROUP_ID - part * (ik_index)p.tasks;
    const ik_index begin = task * (ik_index)p.taken, end = min((ik_index)p.count, begin + (ik_index)p.taken);
    const ik_index from = part * (ik_index)p.length, to = min((ik_index)p.pieces, from + (ik_index)p.length);
    const ik_index length = p.y.shape[last], chunks = LINES ? (length + IK_TILE - 1) / IK_TILE : 1;
    /* By lane: the fold of the latest terms; of all before them the sum, its rounding error, and the sum of those that
     * are too large. */
    ik_c latest[IK_TILE] IK_ALIGNED, near[IK_TILE] IK_ALIGNED, low[IK_TILE] IK_ALIGNED, far[IK_TILE] IK_ALIGNED;
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
        int n = where.n, overflows = 0;
        IK_EACH_INPUT(FROM)
        FROM(y)
        FROM(init)
        IK_EACH_INPUT(LISTS)
        LISTS(y)
        LISTS(init)
        for (int careful = 0; careful <= overflows; careful++) {
            ik_index term[8], run = from / chunks, chunk = from - run * chunks;
            IK_EACH_INPUT(START)
            for (int loop = inner; loop >= kept; loop--) {
                term[loop] = run % p.y.shape[loop];
                run /= p.y.shape[loop];
            }
            for (int i = 0; i < where.n; i++) {
                latest[i] = ik_fold_none().near.high;
                near[i] = low[i] = far[i] = 0;
            }
            int unflushed = 0;
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
                        latest[i] = JOIN(latest[i], IK_BODY);
                    }
                }
#ifdef ADDS
                if (!careful && (++unflushed == FLUSH || piece + 1 == to)) {
                    for (int i = 0; i < where.n; i++) {
                        const ik_sum sum = ik_sum_add((ik_sum){ near[i], low[i] }, latest[i]);
                        near[i] = sum.high;
                        low[i] = sum.low;
                        latest[i] = 0;
                    }
                    unflushed = 0;
                }
#endif
                if (LINES && ++chunk < chunks) {
                    IK_EACH_INPUT(NEXT_CHUNK)
                    continue;
                }
                if (chunks > 1) {
                    IK_EACH_INPUT(FIRST_CHUNK)
                }
                chunk = 0;
                for (int loop = inner; loop >= kept; loop--) { /* odometer */
                    IK_EACH_INPUT(NEXT_TERM)
                    if (++term[loop] < p.y.shape[loop])
                        break;
                    IK_EACH_INPUT(FIRST_TERM)
                    term[loop] = 0;
                }
            }
#ifdef ADDS
            for (int i = 0; i < where.n && !careful; i++)
                overflows |= !ik_within(near[i]);
#endif
        }
        n = where.n;
#ifdef ADDS
        ik_c *const folded = near;
#else
        ik_c *const folded = latest;
#endif
#if LINES
        ik_fold f = ik_fold_none();
        f.near.high = fold_lanes(folded, n);
#ifdef ADDS
        f.near.low = fold_lanes(low, n);
        f.far.high = fold_lanes(far, n);
#endif
        FINISH(t, f, at_y, at_init);
#else
        if (PARTS || overflows) {
            for (int i = 0; i < n; i++) {
                ik_fold f = ik_fold_none();
                f.near.high = folded[i];
                f.near.low = low[i];
                f.far.high = far[i];
                FINISH(where.first + i, f, at_y + LANE_OFFSET(y), at_init + LANE_OFFSET(init));
            }
            continue;
        }
        for (int i = 0; i < n; i++) {
            const ik_c start = (ik_c)IK_LOAD(init, at_init + LANE_OFFSET(init));
#ifdef ADDS
            TO_TILE(i, ik_sum_value(ik_sum_add((ik_sum){ near[i], low[i] }, start)));
#else
            TO_TILE(i, JOIN(folded[i], start));
#endif
        }
        STORE(0);
#endif
    }
}

#ifdef TRANSPOSED
#include "nests.h"
#endif

IK_ENTRY(generic_left)(IK_PARAMS) { ik_left(IK_ARGUMENTS); }

IK_ENTRY(generic_contract)(IK_PARAMS) { ik_contract(IK_ARGUMENTS); }
