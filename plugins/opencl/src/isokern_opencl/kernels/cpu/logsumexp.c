/* logsumexp: y[k] = ln sum over r of exp(x[k, r]), with the kept dims k before the reduced dims r, read once.
 *
 * An item takes some outputs, by runs of the last reduced dim, or 2,048 outputs of the last kept dim, some at a time.
 * Where there would be few items, each takes a part, which the workspace holds as [part][output]. A sum's shift changes
 * only where a maximum is more than 1 above it, so that what rescaling rounds away decays as fast as the sum did. */
#include "rows.h"
#include "logsumexp.h"
#include "row_exponentials.h"

enum { COLUMNS = 2048, SOME = 256, ROWS = 16 };

#if PARTS
#define FINISH(part, output, all) ((IK_GLOBAL ik_exp_part *)workspace)[(part) * (ik_index)p.outputs + (output)] = all
#else
#define FINISH(part, output, all) \
    IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, (int)p.kept, output), ik_log_of_sum((all).max_value, (all).sum))
#endif

/* A shift that a maximum raises. NaN stays. */
static IK_INLINE ik_c raise_shift(ik_c shift, ik_c max_value)
{ return (shift != shift) | (max_value <= shift + 1) ? shift : max_value; }

static IK_INLINE ik_exp_part join(ik_exp_part all, ik_c max_value, ik_c sum)
{
    const ik_c shift = raise_shift(all.max_value, max_value),
               factor = all.max_value == shift ? 1 : IK_FN(exp)(all.max_value - shift);
    if (all.max_value == IK_LOWEST) {
        all.sum = ik_sum_none();
    } else {
        all.sum.high *= factor;
        all.sum.low *= factor;
    }
    all.max_value = shift;
    all.sum = ik_sum_add(all.sum, ik_exp_rescale(max_value, sum, shift));
    return all;
}

static IK_INLINE ik_exp_part nothing(void)
{
    ik_exp_part none;
    none.max_value = IK_LOWEST;
    none.sum = ik_sum_none();
    return none;
}

/* Load n <= SOME elements, `step` apart. */
static IK_INLINE void load(IK_GLOBAL const ik_t *from, ik_index step, int n, ik_c *to)
{
    if (step != 1) {
        for (int i = 0; i < n; i++)
            to[i] = ik_value(from + i * step);
        return;
    }
#if IK_IS_F16(y)
    ik_widen_f16(from, to, n);
#else
    IK_VECTORISE for (int i = 0; i < n; i++)
        to[i] = ik_value(from + i);
#endif
}

/* Join the n elements of a run, `step` apart. */
static IK_INLINE ik_exp_part join_run(ik_exp_part all, IK_GLOBAL const ik_t *x, ik_index step, ik_index n)
{
    ik_c e[SOME] IK_ALIGNED;
    if (step == 1) {
        const ik_c max_value = ik_row_extreme(x, n, 1);
        ik_sum sum = ik_sum_none();
        for (ik_index i = 0; i < n; i += SOME)
            sum = ik_sum_add(sum, exponentials(x + i, (int)(n - i < SOME ? n - i : SOME), max_value, e));
        return join(all, max_value, ik_sum_value(sum));
    }
    for (ik_index i = 0; i < n; i += SOME) {
        const int m = (int)(n - i < SOME ? n - i : SOME);
        ik_c max_value = IK_LOWEST, sum = 0;
        load(x + i * step, step, m, e);
        for (int k = 0; k < m; k++)
            max_value = IK_FN(maximum)(max_value, e[k]);
        IK_VECTORISE for (int k = 0; k < m; k++)
            e[k] = IK_FN(exp)(e[k] - max_value);
        for (int k = 0; k < m; k++)
            sum += e[k];
        all = join(all, max_value, sum);
    }
    return all;
}

IK_ENTRY(logsumexp_rows)(IK_PARAMS)
{
    const int kept = (int)p.kept, last = (int)p.x.ndim - 1;
    const ik_index n = p.x.shape[last], per_run = (n + IK_RUN - 1) / IK_RUN, taken = p.taken, outputs = p.outputs,
                   step = p.x.strides[last];
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, first = (IK_GROUP_ID - part * (ik_index)p.tasks) * taken;
    const ik_index begin = part * (ik_index)p.length,
                   end = (ik_index)p.pieces - begin < (ik_index)p.length ? (ik_index)p.pieces
                                                                         : begin + (ik_index)p.length;
    for (ik_index output = first; output < outputs && output < first + taken; output++) {
        IK_GLOBAL const ik_t *from = x + p.x.offset + ik_offset_within(p.x, 0, kept, output);
        ik_exp_part all = nothing();
        for (ik_index piece = begin; piece < end; piece++) {
            const ik_index run = piece / per_run, at = (piece - run * per_run) * IK_RUN;
            const ik_index count = n - at < IK_RUN ? n - at : IK_RUN;
            all = join_run(all, from + ik_offset_within(p.x, kept, last, run) + at * step, step, count);
        }
        FINISH(part, output, all);
    }
}

/* The sums of neighbouring columns, and some rows of them. */
typedef struct {
    ik_c shift[SOME] IK_ALIGNED, top[SOME] IK_ALIGNED, sum[SOME] IK_ALIGNED;
    ik_c high[SOME] IK_ALIGNED, low[SOME] IK_ALIGNED, row[ROWS][SOME] IK_ALIGNED;
} columns;

/* Add m rows of n columns. */
static IK_INLINE void add_rows(columns *c, int m, int n)
{
    IK_VECTORISE for (int k = 0; k < n; k++)
        c->top[k] = c->row[0][k];
    for (int r = 1; r < m; r++) IK_VECTORISE
        for (int k = 0; k < n; k++)
            c->top[k] = IK_FN(maximum)(c->top[k], c->row[r][k]);
    IK_VECTORISE for (int k = 0; k < n; k++) {
        const ik_c before = c->shift[k], shift = raise_shift(before, c->top[k]),
                   factor = before == IK_LOWEST ? 0
            : before == shift                   ? 1
                                                : IK_FN(exp)(before - shift);
        c->high[k] *= factor;
        c->low[k] *= factor;
        c->shift[k] = shift;
        c->top[k] = shift == IK_LOWEST ? 0 : shift;
        c->sum[k] = 0;
    }
    for (int r = 0; r < m; r++) IK_VECTORISE
        for (int k = 0; k < n; k++)
            c->sum[k] += IK_FN(exp)(c->row[r][k] - c->top[k]);
    IK_VECTORISE for (int k = 0; k < n; k++) { /* Knuth's TwoSum */
        const ik_c high = c->high[k] + c->sum[k], part = high - c->high[k];
        c->low[k] += (c->high[k] - (high - part)) + (c->sum[k] - part);
        c->high[k] = high;
    }
}

IK_ENTRY(logsumexp_columns)(IK_PARAMS)
{
    columns c;
    const int kept = (int)p.kept, rank = (int)p.x.ndim;
    const ik_index width = p.x.shape[kept - 1], step = p.x.strides[kept - 1], blocks = (width + COLUMNS - 1) / COLUMNS;
    const ik_index part = IK_GROUP_ID / (ik_index)p.tasks, task = IK_GROUP_ID - part * (ik_index)p.tasks;
    const ik_index outer = task / blocks, first = (task - outer * blocks) * COLUMNS;
    const ik_index begin = part * (ik_index)p.length,
                   end = (ik_index)p.d - begin < (ik_index)p.length ? (ik_index)p.d : begin + (ik_index)p.length;
    for (ik_index column = first; column < width && column < first + COLUMNS; column += SOME) {
        const ik_index output = outer * width + column;
        const int n = (int)(width - column < SOME ? width - column : SOME);
        IK_GLOBAL const ik_t *from = x + p.x.offset + ik_offset_within(p.x, 0, kept, output);
        for (int k = 0; k < n; k++) {
            c.shift[k] = IK_LOWEST;
            c.high[k] = c.low[k] = 0;
        }
        for (ik_index at = begin; at < end; at += ROWS) {
            const int m = end - at < ROWS ? (int)(end - at) : ROWS;
            for (int i = 0; i < m; i++)
                load(from + ik_offset_within(p.x, kept, rank, at + i), step, n, c.row[i]);
            add_rows(&c, m, n);
        }
        for (int k = 0; k < n; k++) {
            ik_exp_part all;
            all.max_value = c.shift[k];
            all.sum.high = c.high[k];
            all.sum.low = c.low[k];
            FINISH(part, output + k, all);
        }
    }
}
