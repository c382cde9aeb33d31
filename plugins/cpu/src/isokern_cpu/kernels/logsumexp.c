/* logsumexp: y[k] = ln sum over r of exp(x[k, r]), the kept dims k before the reduced dims r; the work is divided by
 * reduction_dims.h, and x is read once.
 *
 * Exponentials are taken of x less a shift: of a run, its maximum; across memory, of a few rows. A sum's shift changes
 * only where a maximum is more than 1 above it, so that what rescaling rounds away decays as fast as the sum did. Where
 * a shift is not finite (nothing but -Inf, Inf, NaN), it is the result. This file includes itself, for float and for
 * double. */
#ifndef IK_T
#include "exponentials.h"
#include "reduction_dims.h"
#include "operators/logsumexp.h"

enum { WIDTH = IK_TILE / 4, NARROW = WIDTH, BRIEF = 32, ROWS = 16, FEW = 64 };

typedef struct job {
    ik_reduction dims;
    char *y;
    const char *x;
    int32_t dtype;
    int64_t size;
    ik_stat *parts; /* [chunks][outputs]: a shift and a sum */
} job;

/* A shift that a maximum raises. NaN stays. */
static inline __attribute__((always_inline)) double raise_shift(double shift, double max)
{ return (shift != shift) | (max <= shift + 1) ? shift : max; }

/* How a sum changes with its shift; one whose shift is -Inf is 0. */
static inline double rescale(ik_stat part, double shift)
{ return part.a == -__builtin_inf() ? 0 : part.a == shift ? part.b : part.b * ik_exp_f64(part.a - shift); }

static void join(ik_stat *whole, ik_stat part)
{
    const double shift = raise_shift(whole->a, part.a);
    *whole = (ik_stat){ .a = shift, .b = rescale(*whole, shift) + rescale(part, shift) };
}

static inline __attribute__((always_inline)) double finish(double shift, double sum)
{ return shift - shift == 0 ? shift + ik_log_f64(sum) : shift; }

static void store_one(const job *j, int64_t output, ik_stat stat)
{
    char *to = j->y + ik_reduction_y(&j->dims, output) * j->size;
    const double y = finish(stat.a, stat.b);
    const float narrow = (float)y;
    if (j->dtype == IK_F64)
        ik_store_f64(&y, to, 1, 1);
    else
        ik_store_f32(j->dtype, &narrow, to, 1, 1);
}

static const void *fetch(const void *context, const char *from, int64_t step, int64_t n, void *scratch)
{ return ik_fetch(((const job *)context)->dtype, from, step, n, scratch); }

#define IK_FILE "logsumexp.c"
#include "each_type.h"

static void join_parts(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t o = begin; o < end; o++) {
        ik_stat stat = j->parts[o];
        for (int64_t c = 1; c < j->dims.chunks; c++)
            join(&stat, j->parts[c * j->dims.outputs + o]);
        store_one(j, o, stat);
    }
}

IK_WORKSPACE(logsumexp)
{
    ik_reduction d;
    const bool some = ik_reduction_of(plan, WIDTH, NARROW, BRIEF, &d);
    return some && d.chunks > 1 ? (uint64_t)(d.chunks * d.outputs) * sizeof(ik_stat) : 0;
}

IK_KERNEL(logsumexp)
{
    IK_UNUSED;
    const ik_tensor *x = &plan->tensors[IK_LOGSUMEXP_X];
    job j = { .dtype = x->dtype, .size = ik_itemsize(x->dtype), .parts = workspace };
    if (!ik_reduction_of(plan, WIDTH, NARROW, BRIEF, &j.dims))
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_LOGSUMEXP_Y);
    j.x = ik_ptr(plan, data, IK_LOGSUMEXP_X);
    const int64_t outputs = j.dims.outputs, chunks = j.dims.chunks;
    if (j.dims.length == 0) {
        for (int64_t o = 0; o < outputs; o++)
            store_one(&j, o, (ik_stat){ .a = -__builtin_inf() });
        return IK_SUCCESS;
    }
    if (j.dtype == IK_F64)
        ik_reduction_run(&j.dims, j.size, rows_f64, columns_f64, &j);
    else
        ik_reduction_run(&j.dims, j.size, rows_f32, columns_f32, &j);
    if (chunks > 1)
        ik_parallel_for(outputs, IK_THREAD_BYTES / (chunks * (int64_t)sizeof(ik_stat)), join_parts, &j);
    return IK_SUCCESS;
}

#else

/* The maximum of a run of at most IK_CHUNK elements, and the sum of exponentials below it. As many elements from `next`
 * on, of `size` bytes each, are prefetched, which keeps memory busy while exponentials are computed. */
static ik_stat IK_OF(measure)(int64_t n, const IK_T *x, const char *next, int64_t size)
{
    IK_T e[IK_EXP_PIECE] IK_ALIGNED;
    const IK_T max = IK_OF(ik_extreme_of)(IK_MAX, n, x);
    double sum = 0, low = 0;
    for (int64_t at = 0; at < n; at += IK_EXP_PIECE) {
        const int64_t m = ik_min(n - at, IK_EXP_PIECE);
        ik_prefetch(next + at * size, m * size);
        ik_add_double(&sum, &low, IK_OF(ik_exp_run)(m, x + at, max, e), sizeof(IK_T) == sizeof(double));
    }
    return (ik_stat){ .a = max, .b = ik_join_double(sum, low) };
}

/* The shift and the sum of an output's elements from number `at` on, `left` of them; x: its first element. */
static ik_stat IK_OF(sum_run)(const job *j, const char *x, int64_t at, int64_t left, IK_T *scratch)
{
    const ik_reduction *d = &j->dims;
    if (d->reduced == 1 && d->step[1][0] == 1 && left <= IK_CHUNK) {
        const char *from = x + at * j->size;
        return IK_OF(measure)(left, ik_fetch(j->dtype, from, 1, left, scratch), from + left * j->size, j->size);
    }
    ik_reduction_place p = ik_reduction_at(d, at);
    ik_stat stat = { .a = -__builtin_inf() };
    for (int64_t n; left > 0; left -= n) {
        const IK_T *values =
            ik_reduction_next(d, &p, x, j->size, sizeof *values, left, IK_CHUNK, fetch, j, (char *)scratch, &n);
        join(&stat, IK_OF(measure)(n, values, x + p.offset * j->size, j->size));
    }
    return stat;
}

/* Run tasks begin .. end, numbered output * chunks + chunk. Where outputs have one chunk, the logarithms of some that
 * are neighbours are taken together. */
static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_reduction *d = &j->dims;
    IK_T scratch[IK_CHUNK] IK_ALIGNED, shift[FEW] IK_ALIGNED, y[FEW] IK_ALIGNED;
    double sum[FEW] IK_ALIGNED;
    for (int64_t task = begin, n; task < end; task += n) {
        const int64_t output = task / d->chunks, chunk = task % d->chunks, at = chunk * d->per_chunk;
        const char *x = j->x + ik_reduction_x(d, output) * j->size;
        n = d->chunks > 1 ? 1 : ik_min(ik_min(FEW, end - task), d->columns_dim - output % d->columns_dim);
        for (int64_t k = 0; k < n; k++, x += d->column_step * j->size) {
            const ik_stat stat = IK_OF(sum_run)(j, x, at, ik_min(d->length - at, d->per_chunk), scratch);
            if (d->chunks > 1)
                j->parts[chunk * d->outputs + output] = stat;
            shift[k] = (IK_T)stat.a, sum[k] = stat.b;
        }
        if (d->chunks > 1)
            continue;
        IK_VECTORISE for (int64_t k = 0; k < n; k++)
            y[k] = (IK_T)finish((double)shift[k], sum[k]);
        ik_put(j->dtype, y, j->y + ik_reduction_y(d, output) * j->size, d->column_to, n, false);
    }
}

/* The shifts and sums of a tile of columns. */
typedef struct IK_OF(tile) {
    IK_T shift[WIDTH] IK_ALIGNED, max[WIDTH] IK_ALIGNED, sum[WIDTH] IK_ALIGNED, scratch[ROWS][WIDTH] IK_ALIGNED;
    double high[WIDTH] IK_ALIGNED, low[WIDTH] IK_ALIGNED;
} IK_OF(tile);

/* Raise the shifts of n columns by their new maxima, which become what is subtracted: a shift, or 0 where it is
 * -Inf. */
static inline void IK_OF(raise_shifts)(IK_OF(tile) * t, int64_t n)
{
    const IK_T lowest = -(IK_T)__builtin_inf();
    int32_t stay = 1;
    IK_VECTORISE for (int64_t k = 0; k < n; k++)
        stay &= t->max[k] <= t->shift[k] + 1 && t->shift[k] > lowest;
    if (!stay) {
        IK_VECTORISE for (int64_t k = 0; k < n; k++) {
            const double before = (double)t->shift[k], shift = raise_shift(before, (double)t->max[k]),
                         factor = ik_exp_f64(before - shift);
            t->high[k] = t->shift[k] == lowest ? 0 : t->high[k] * factor;
            t->low[k] = t->shift[k] == lowest ? 0 : t->low[k] * factor;
            t->shift[k] = (IK_T)shift;
        }
    }
    IK_VECTORISE for (int64_t k = 0; k < n; k++) {
        t->max[k] = t->shift[k] == lowest ? 0 : t->shift[k];
        t->sum[k] = 0;
    }
}

/* Leave the parts of a tile's columns, or store their results. */
static void IK_OF(leave)(const job *j, const ik_reduction_tile *tile, IK_OF(tile) * t)
{
    const ik_reduction *d = &j->dims;
    for (int64_t k = 0; k < tile->width; k++) {
        ik_stat stat = { (double)t->shift[k], ik_join_double(t->high[k], t->low[k]) };
        for (int64_t of = k + tile->width; of < tile->width * d->group; of += tile->width)
            join(&stat, (ik_stat){ (double)t->shift[of], ik_join_double(t->high[of], t->low[of]) });
        t->shift[k] = (IK_T)stat.a, t->high[k] = stat.b;
        if (d->chunks > 1)
            j->parts[tile->chunk * d->outputs + tile->output + k] = stat;
    }
    if (d->chunks > 1)
        return;
    IK_VECTORISE for (int64_t k = 0; k < tile->width; k++)
        t->sum[k] = (IK_T)finish((double)t->shift[k], t->high[k]);
    ik_put(j->dtype, t->sum, j->y + ik_reduction_y(d, tile->output) * j->size, d->column_to, tile->width, false);
}

/* Run tasks begin .. end, each a tile of columns. Narrow outputs treat `group` rows as one, and are joined at the
 * end. */
static void IK_OF(columns)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const ik_reduction *d = &j->dims;
    IK_OF(tile) t;
    for (int64_t task = begin; task < end; task++) {
        const ik_reduction_tile tile = ik_reduction_tile_of(d, task);
        int64_t width = tile.width, all = width * d->group, at = tile.chunk * d->per_chunk,
                left = ik_min(d->length - at, d->per_chunk);
        const char *x = j->x + ik_reduction_x(d, tile.output) * j->size;
        ik_reduction_place p = ik_reduction_at(d, at);
        for (int64_t k = 0; k < all; k++) {
            t.shift[k] = -(IK_T)__builtin_inf();
            t.high[k] = t.low[k] = 0;
        }
        while (left > 0) {
            int64_t rows = 0, n[ROWS];
            const IK_T *v[ROWS];
            for (int64_t k = 0; k < all; k++)
                t.max[k] = -(IK_T)__builtin_inf();
            for (; rows < ROWS && left > 0; rows++) {
                const int64_t some = ik_min(ik_min(left, ik_reduction_left(d, &p)), d->group);
                n[rows] = some * width;
                const IK_T *some_x = v[rows] =
                    ik_fetch(j->dtype, x + p.offset * j->size, d->column_step, n[rows], t.scratch[rows]);
                ik_reduction_advance(d, &p, some);
                left -= some;
                IK_VECTORISE for (int64_t k = 0; k < n[rows]; k++)
                    t.max[k] = IK_OF(ik_maximum)(t.max[k], some_x[k]);
            }
            IK_OF(raise_shifts)(&t, all);
            for (int64_t r = 0; r < rows; r++) {
                if (left > 0)
                    ik_prefetch(x + (p.offset + r * d->step[1][d->reduced - 1] * d->group) * j->size, n[r] * j->size);
                const IK_T *some_x = v[r];
                IK_VECTORISE for (int64_t k = 0; k < n[r]; k++)
                    t.sum[k] += IK_OF(ik_exp)(some_x[k] - t.max[k]);
            }
            IK_VECTORISE for (int64_t k = 0; k < all; k++)
                ik_add_double(&t.high[k], &t.low[k], (double)t.sum[k], sizeof(IK_T) == sizeof(double));
        }
        IK_OF(leave)(j, &tile, &t);
    }
}

#endif
