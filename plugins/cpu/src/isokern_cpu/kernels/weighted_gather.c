/* weighted_gather: y[a, o, b] = Σ_t weights[o, t] * x[a, indices[o, t], b], in the order of t and the compute type.
 *
 * The rows of x and the weights of y's rows are listed first; what does not count has no row, and the first index that
 * is out of range is reported at the end. Then vector lanes are b, or, where b is short, o: a row of x is widened, and
 * its elements are picked.
 *
 * Against a gather and a loop nest it takes between a twentieth and a fifth of the time; three fifths where y has a
 * few hundred elements. */
#ifndef IK_T
#include <stdatomic.h>

#include "runs.h"
#include "operators/weighted_gather.h"

enum { MIN_LANES = 8, PREFETCHED = 4096 }; /* elements of b from which on they are lanes; bytes that are prefetched */

typedef struct job {
    const ik_tensor *ty, *tx, *indices, *weights;
    char *y;
    const char *x, *index, *factor;
    int64_t size, a, n, b, o, t; /* bytes of an element, and dims */
    bool across; /* lanes are o */
    int64_t *row; /* [o, t]; where lanes are o, 32 bits each, [t, o] */
    void *weight; /* the same, in the compute type */
    char *wide; /* where lanes are o: a row of x for each thread */
    _Atomic int64_t first_bad; /* position in indices of the first index out of range */
} job;

static int64_t index_at(const job *j, int64_t o, int64_t t)
{ return ik_index_at(j->indices->dtype, j->index, o * j->indices->strides[0] + t * j->indices->strides[1]); }

/* The row that an index names, or -1; notes the first index that names none. */
static int64_t row_of(job *j, int64_t o, int64_t t)
{
    const int64_t given = index_at(j, o, t), row = given < 0 ? given + j->n : given, at = o * j->t + t;
    if (row >= 0 && row < j->n)
        return row;
    int64_t seen = atomic_load(&j->first_bad);
    while (at < seen && !atomic_compare_exchange_weak(&j->first_bad, &seen, at))
        ;
    return -1;
}

#define IK_FILE "weighted_gather.c"
#include "each_type.h"

static int64_t list_bytes(const ik_plan *plan)
{ return ik_round_up(8 * ik_numel(&plan->tensors[IK_WEIGHTED_GATHER_INDICES]), IK_ALIGNMENT); }

static bool goes_across(const ik_plan *plan)
{
    const int64_t *x = plan->tensors[IK_WEIGHTED_GATHER_X].shape;
    return x[2] < MIN_LANES && x[1] < INT32_MAX && list_bytes(plan) > 0;
}

IK_WORKSPACE(weighted_gather)
{
    const int64_t row = 8 * (plan->tensors[IK_WEIGHTED_GATHER_X].shape[1] + 1);
    return (uint64_t)(2 * list_bytes(plan) + (goes_across(plan) ? ik_round_up(row, IK_ALIGNMENT) * ik_threads() : 0));
}

IK_KERNEL(weighted_gather)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_WEIGHTED_GATHER_Y], *x = &plan->tensors[IK_WEIGHTED_GATHER_X];
    job j = { .ty = y,
        .tx = x,
        .indices = &plan->tensors[IK_WEIGHTED_GATHER_INDICES],
        .weights = &plan->tensors[IK_WEIGHTED_GATHER_WEIGHTS],
        .size = ik_itemsize(y->dtype),
        .a = x->shape[0],
        .n = x->shape[1],
        .b = x->shape[2],
        .o = y->shape[1],
        .across = goes_across(plan),
        .first_bad = INT64_MAX };
    const bool wide = y->dtype == IK_F64;
    j.t = j.indices->shape[1];
    j.index = ik_ptr(plan, data, IK_WEIGHTED_GATHER_INDICES);
    j.factor = ik_ptr(plan, data, IK_WEIGHTED_GATHER_WEIGHTS);
    j.y = ik_ptr(plan, data, IK_WEIGHTED_GATHER_Y);
    j.x = ik_ptr(plan, data, IK_WEIGHTED_GATHER_X);
    j.row = workspace, j.weight = (char *)workspace + list_bytes(plan);
    j.wide = (char *)workspace + 2 * list_bytes(plan);
    if (j.t > 0)
        ik_parallel_for(j.o, 1 + IK_THREAD_BYTES / (16 * j.t), wide ? list_f64 : list_f32, &j);
    ik_task *task = wide ? (j.across ? pick_f64 : add_f64) : j.across ? pick_f32 : add_f32;
    const int64_t work = (j.across ? j.o : j.b) * j.size * (1 + j.t);
    if (ik_numel(y) != 0)
        ik_parallel_for(j.a * (j.across ? j.b : j.o), 1 + IK_THREAD_BYTES / work, task, &j);
    const int64_t bad = atomic_load(&j.first_bad);
    return bad == INT64_MAX ? IK_SUCCESS : ik_bad_value(bad, index_at(&j, bad / j.t, bad % j.t));
}

#else

/* List the rows and weights of y's rows begin .. end. Where lanes are o, row n, which is 0, and the weight 0 stand for
 * what does not count. */
static void IK_OF(list)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    job *j = context;
    const int64_t *steps = j->weights->strides;
    const int32_t dtype = j->weights->dtype, compute = sizeof(IK_T) == 8 ? IK_F64 : IK_F32;
    IK_T *weight = j->weight;
    const char *from = j->factor + begin * steps[0] * j->size;
    if (j->across) {
        for (int64_t t = 0; t < j->t; t++) {
            IK_T *to = weight + t * j->o;
            int32_t *row = (int32_t *)(void *)j->row + t * j->o;
            ik_load(compute, dtype, from + t * steps[1] * j->size, steps[0], end - begin, to + begin);
            for (int64_t o = begin; o < end; o++) {
                const int64_t found = row_of(j, o, t);
                row[o] = (int32_t)(found < 0 || to[o] == 0 ? j->n : found);
                to[o] = found < 0 ? 0 : to[o];
            }
        }
        return;
    }
    for (int64_t o = begin; o < end; o++, from += steps[0] * j->size) {
        IK_T *to = weight + o * j->t;
        if (sizeof(IK_T) == (size_t)j->size)
            for (int64_t t = 0; t < j->t; t++)
                to[t] = ((const IK_T *)(const void *)from)[t * steps[1]];
        else
            ik_load(compute, dtype, from, steps[1], j->t, to);
        for (int64_t t = 0; t < j->t; t++) {
            const int64_t found = row_of(j, o, t);
            j->row[o * j->t + t] = to[t] == 0 ? -1 : found;
        }
    }
}

/* Pieces a * O + o: a row of y, whose lanes are b. The rows of the next piece are prefetched. */
static void IK_OF(add)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t *xs = j->tx->strides, *ys = j->ty->strides;
    const int64_t later = 1 + PREFETCHED / (1 + j->t * j->b * j->size);
    IK_T scratch[IK_TILE] IK_ALIGNED, sum[IK_TILE] IK_ALIGNED;
    for (int64_t i = begin; i < end; i++) {
        const int64_t a = i / j->o, o = i % j->o;
        const int64_t *row = j->row + o * j->t;
        const IK_T *weight = (const IK_T *)j->weight + o * j->t;
        const char *x = j->x + a * xs[0] * j->size;
        char *y = j->y + (a * ys[0] + o * ys[1]) * j->size;
        for (int64_t t = later * j->t; t < (later + 1) * j->t && o + later < j->o && xs[2] == 1; t++)
            if (row[t] >= 0)
                ik_prefetch(x + row[t] * xs[1] * j->size, ik_min(j->b, IK_TILE) * j->size);
        for (int64_t at = 0; at < j->b; at += IK_TILE) {
            const int64_t n = ik_min(IK_TILE, j->b - at);
            char *to = y + at * ys[2] * j->size;
            IK_T *out = ik_place(j->ty->dtype, to, ys[2], false, sum);
            bool first = true;
            for (int64_t t = 0; t < j->t; t++) {
                if (row[t] < 0)
                    continue;
                const IK_T w = weight[t];
                const IK_T *in = ik_fetch(j->tx->dtype, x + (row[t] * xs[1] + at * xs[2]) * j->size, xs[2], n, scratch);
                if (first) {
                    IK_VECTORISE for (int64_t k = 0; k < n; k++)
                        out[k] = w * in[k];
                } else {
                    IK_VECTORISE for (int64_t k = 0; k < n; k++)
                        out[k] += w * in[k];
                }
                first = false;
            }
            if (first)
                memset(out, 0, (size_t)n * sizeof *out);
            ik_put(j->ty->dtype, out, to, ys[2], n, false);
        }
    }
}

/* Pieces a * B + b: a column of y, whose lanes are o. */
static void IK_OF(pick)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const int64_t *xs = j->tx->strides, *ys = j->ty->strides;
    IK_T *wide = (IK_T *)(void *)(j->wide + worker * ik_round_up(8 * (j->n + 1), IK_ALIGNMENT));
    IK_T sum[IK_TILE] IK_ALIGNED;
    for (int64_t i = begin; i < end; i++) {
        const int64_t a = i / j->b, b = i % j->b;
        ik_load(sizeof *wide == 8 ? IK_F64 : IK_F32, j->tx->dtype, j->x + (a * xs[0] + b * xs[2]) * j->size, xs[1],
            j->n, wide);
        wide[j->n] = 0;
        for (int64_t at = 0; at < j->o; at += IK_TILE) {
            const int64_t n = ik_min(IK_TILE, j->o - at);
            char *to = j->y + (a * ys[0] + at * ys[1] + b * ys[2]) * j->size;
            IK_T *out = ik_place(j->ty->dtype, to, ys[1], false, sum);
            memset(out, 0, (size_t)n * sizeof *out);
            for (int64_t t = 0; t < j->t; t++) {
                const int32_t *row = (const int32_t *)(const void *)j->row + t * j->o + at;
                const IK_T *weight = (const IK_T *)j->weight + t * j->o + at;
                IK_VECTORISE for (int64_t k = 0; k < n; k++)
                    out[k] += weight[k] * wide[row[k]];
            }
            ik_put(j->ty->dtype, out, to, ys[1], n, false);
        }
    }
}

#endif
