/* reduce_sum, reduce_mean, reduce_prod, reduce_max, reduce_min of floats: y[k] = op over r of x[k, r], with the kept
 * dims k before the reduced dims r.
 *
 * Where the last reduced dim is contiguous, an item takes some outputs, by whole registers; where the last kept dim is,
 * 2,048 adjacent outputs. Where there would be few items, each takes a part, which the workspace holds as
 * [part][output].
 *
 * 4096 x 4096 on PoCL (2 cores, AVX-512), against a group or item of portable code per output: sums of rows 50 times as
 * fast, of columns 30 times, of all 70 times (F32; F64: 5, 20, 5), maxima 15, 50 and 25 times. */
#include "reductions.h"
#include "folds.h"

enum { COLUMNS = 2048, ROWS = 16 };

#if PARTS
#define FINISH(part, output, f) ((IK_GLOBAL ik_fold *)workspace)[(part) * (ik_index)p.outputs + (output)] = f
#else
#define FINISH(part, output, f) IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), result(f, p.d))
#endif

IK_ENTRY(reduce_rows)(IK_PARAMS)
{
    const int kept = (int)p.kept, last = (int)p.x.ndim - 1;
    const ik_index n = p.x.shape[last], per_run = (n + IK_RUN - 1) / IK_RUN, taken = p.taken, outputs = p.outputs;
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, first = (IK_GROUP_ID - part * (ik_index)p.tasks) * taken;
    const ik_index begin = part * (ik_index)p.length,
                   end = (ik_index)p.pieces - begin < (ik_index)p.length ? (ik_index)p.pieces
                                                                         : begin + (ik_index)p.length;
    for (ik_index output = first; output < outputs && output < first + taken; output++) {
        IK_GLOBAL const ik_t *from = x + p.x.offset + ik_offset_within(p.x, 0, kept, output);
        ik_fold f = ik_fold_none();
        for (ik_index piece = begin; piece < end; piece++) {
            const ik_index run = piece / per_run, at = (piece - run * per_run) * IK_RUN;
            f = ik_fold_run(f, from + ik_offset_within(p.x, kept, last, run) + at, n - at < IK_RUN ? n - at : IK_RUN);
        }
        FINISH(part, output, f);
    }
}

/* Add up `m` rows in registers, and add the result with compensation of rounding errors. */
static IK_INLINE void add_rows(IK_GLOBAL const ik_t *const *row, int m, int k, ik_vec *high, ik_vec *low)
{
    ik_vec some = ik_vec_load(row[0] + k);
    for (int i = 1; i < m; i++)
        some = ik_lanes_fold(some, ik_vec_load(row[i] + k));
    const ik_vec all = ik_lanes_fold(*high, some);
#ifdef FOLD_SUM
    const ik_vec of_some = all - *high;
    *low += (*high - (all - of_some)) + (some - of_some);
#endif
    *high = all;
}

IK_ENTRY(reduce_columns)(IK_PARAMS)
{
    const int kept = (int)p.kept, rank = (int)p.x.ndim;
    const ik_index width = p.x.shape[kept - 1], blocks = (width + COLUMNS - 1) / COLUMNS;
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, task = IK_GROUP_ID - part * (ik_index)p.tasks;
    const ik_index outer = task / blocks, column = (task - outer * blocks) * COLUMNS, first = outer * width + column;
    const int n = (int)(width - column < COLUMNS ? width - column : COLUMNS), whole = n / IK_WIDTH * IK_WIDTH;
    const ik_index begin = part * (ik_index)p.length,
                   end = (ik_index)p.d - begin < (ik_index)p.length ? (ik_index)p.d : begin + (ik_index)p.length;
    IK_GLOBAL const ik_t *from = x + p.x.offset + ik_offset_within(p.x, 0, kept, first), *row[ROWS];
    ik_c high[COLUMNS] IK_ALIGNED, low[COLUMNS] IK_ALIGNED;
    for (int k = 0; k < whole; k++) {
        high[k] = ik_fold_none().near.high;
        low[k] = 0;
    }
    for (ik_index at = begin; at < end; at += ROWS) {
        const int m = end - at < ROWS ? (int)(end - at) : ROWS;
        for (int i = 0; i < m; i++)
            row[i] = from + ik_offset_within(p.x, kept, rank, at + i);
        for (int k = 0; k < whole; k += IK_WIDTH)
            if (m == ROWS)
                add_rows(row, ROWS, k, (ik_vec *)(high + k), (ik_vec *)(low + k));
            else
                add_rows(row, m, k, (ik_vec *)(high + k), (ik_vec *)(low + k));
    }
    for (int k = 0; k < n; k++) {
        ik_fold f = ik_fold_none();
        int done = k < whole;
        if (done) {
            f.near.high = high[k];
            f.near.low = low[k];
        }
#ifdef FOLD_SUM
        if (done && !ik_within(ik_sum_value(f.near))) {
            f = ik_fold_none();
            done = 0;
        }
#endif
        if (!done)
            for (ik_index i = begin; i < end; i++)
                f = ik_fold_add(f, ik_value(from + k + ik_offset_within(p.x, kept, rank, i)));
        FINISH(part, first + k, f);
    }
}
