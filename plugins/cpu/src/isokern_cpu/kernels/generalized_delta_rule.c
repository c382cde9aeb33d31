/* generalized_delta_rule: S = diag(decay) S + b (a^T S) + k v^T, y = q^T S. This file includes itself, for float and
 * for double.
 *
 * The columns of S do not meet, so a task is some columns of one head of S, which stay in the worker's scratch for all
 * steps; each row of them is a few vectors. */
#ifndef IK_T
#include "convert.h"
#include "operators/generalized_delta_rule.h"

enum { COLUMNS = 32, VECTORS = 5 }; /* vectors of d: decay, a, b, k, q */

typedef struct job {
    const ik_tensor *ty, *tout, *tq, *tk, *tv, *tin, *tdecay, *ta, *tb;
    char *y, *out;
    const char *q, *k, *v, *in, *decay, *a, *b;
    int64_t t, h, g, d, e, shared, chunks;
    bool before;
    char *scratch;
    int64_t scratch_bytes;
} job;

/* The address of element [a, b, c, d] of a tensor. */
static const char *address_of(const ik_tensor *t, const char *x, int64_t a, int64_t b, int64_t c, int64_t d)
{ return x + (a * t->strides[0] + b * t->strides[1] + c * t->strides[2] + d * t->strides[3]) * ik_itemsize(t->dtype); }

static int64_t scratch_bytes(const ik_plan *plan)
{
    const int64_t d = plan->tensors[IK_GENERALIZED_DELTA_RULE_Q].shape[3];
    const int64_t size = ik_itemsize(plan->tensors[IK_GENERALIZED_DELTA_RULE_PRESENT_STATE].dtype);
    return ik_round_up((d * (COLUMNS + VECTORS) + VECTORS * 16) * size, 64);
}

#define IK_FILE "generalized_delta_rule.c"
#include "each_type.h"

IK_WORKSPACE(generalized_delta_rule) { return (uint64_t)(ik_threads() * scratch_bytes(plan)); }

IK_KERNEL(generalized_delta_rule)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    const ik_generalized_delta_rule_attrs *attrs = plan->attrs;
    job j = { .scratch = workspace, .scratch_bytes = scratch_bytes(plan), .before = attrs->read_before != 0 };
    j.ty = &t[IK_GENERALIZED_DELTA_RULE_Y], j.y = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_Y);
    j.tout = &t[IK_GENERALIZED_DELTA_RULE_PRESENT_STATE];
    j.out = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_PRESENT_STATE);
    j.tq = &t[IK_GENERALIZED_DELTA_RULE_Q], j.q = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_Q);
    j.tk = &t[IK_GENERALIZED_DELTA_RULE_K], j.k = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_K);
    j.tv = &t[IK_GENERALIZED_DELTA_RULE_V], j.v = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_V);
    j.tin = &t[IK_GENERALIZED_DELTA_RULE_PAST_STATE];
    j.in = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_PAST_STATE);
    j.tdecay = &t[IK_GENERALIZED_DELTA_RULE_DECAY], j.decay = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_DECAY);
    j.ta = &t[IK_GENERALIZED_DELTA_RULE_A], j.a = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_A);
    j.tb = &t[IK_GENERALIZED_DELTA_RULE_B], j.b = ik_ptr(plan, data, IK_GENERALIZED_DELTA_RULE_B);
    j.t = j.tq->shape[1], j.h = j.tq->shape[2], j.d = j.tq->shape[3], j.g = j.tv->shape[2], j.e = j.tv->shape[3];
    j.shared = j.g == 0 ? 0 : j.h / j.g;
    j.chunks = ik_ceil_div(j.e, COLUMNS);
    const int64_t tasks = j.tq->shape[0] * j.g * j.chunks, bytes = (j.t + 2) * (j.d + 1) * COLUMNS * 4;
    ik_parallel_for(tasks, 1 + IK_THREAD_BYTES / bytes, j.tout->dtype == IK_F64 ? tasks_f64 : tasks_f32, &j);
    return IK_SUCCESS;
}

#else

/* Element i of a vector of n, in the compute type, in `to`. */
static void IK_OF(fetch)(const ik_tensor *t, const char *from, int64_t n, int64_t step, IK_T *to)
{
    if (t->dtype == IK_F64)
        ik_load_f64(from, step, n, (double *)(void *)to);
    else
        ik_load_f32(t->dtype, from, step, n, (float *)(void *)to);
}

static void IK_OF(put)(const ik_tensor *t, const IK_T *from, int64_t n, char *to)
{
    if (t->dtype == IK_F64)
        ik_store_f64((const double *)(const void *)from, to, t->strides[3], n);
    else
        ik_store_f32(t->dtype, (const float *)(const void *)from, to, t->strides[3], n);
}

/* total += x^T S, of columns of S. */
static void IK_OF(read)(int64_t d, const IK_T *x, const IK_T *s, IK_T *total)
{
    for (int64_t i = 0; i < d; i++)
        for (int64_t c = 0; c < COLUMNS; c++)
            total[c] += x[i] * s[i * COLUMNS + c];
}

/* S = diag(decay) S + b seen + k v, of columns of S; without a decay, or without b, these are null. */
static void IK_OF(update)(
    int64_t d, const IK_T *decay, const IK_T *b, const IK_T *k, const IK_T *seen, const IK_T *v, IK_T *s)
{
    for (int64_t i = 0; i < d; i++) {
        IK_T *row = s + i * COLUMNS;
        const IK_T w = decay == NULL ? 1 : decay[i];
        if (b != NULL)
            for (int64_t c = 0; c < COLUMNS; c++)
                row[c] = w * row[c] + b[i] * seen[c] + k[i] * v[c];
        else
            for (int64_t c = 0; c < COLUMNS; c++)
                row[c] = w * row[c] + k[i] * v[c];
    }
}

/* y = q^T S, for the heads of q that share S. */
static void IK_OF(write)(
    const job *j, int64_t at, int64_t step, int64_t head, int64_t first, int64_t n, const IK_T *s, IK_T *q)
{
    for (int64_t i = head * j->shared; i < (head + 1) * j->shared; i++) {
        IK_T total[COLUMNS] = { 0 };
        IK_OF(fetch)(j->tq, address_of(j->tq, j->q, at, step, i, 0), j->d, j->tq->strides[3], q);
        IK_OF(read)(j->d, q, s, total);
        IK_OF(put)(j->ty, total, n, (char *)(uintptr_t)address_of(j->ty, j->y, at, step, i, first));
    }
}

static void IK_OF(tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const int64_t d = j->d;
    IK_T *s = (IK_T *)(void *)(j->scratch + worker * j->scratch_bytes), *decay = s + d * COLUMNS, *a = decay + d,
         *b = a + d, *k = b + d, *q = k + d;
    for (int64_t task = begin; task < end; task++) {
        const int64_t first = task % j->chunks * COLUMNS, head = task / j->chunks % j->g, at = task / j->chunks / j->g;
        const int64_t n = ik_min(COLUMNS, j->e - first);
        memset(s, 0, (size_t)(d * COLUMNS) * sizeof *s);
        for (int64_t i = 0; i < d; i++)
            IK_OF(fetch)(j->tin, address_of(j->tin, j->in, at, head, i, first), n, j->tin->strides[3], s + i * COLUMNS);
        for (int64_t step = 0; step < j->t; step++) {
            IK_T seen[COLUMNS] = { 0 }, v[COLUMNS] = { 0 };
            if (j->before)
                IK_OF(write)(j, at, step, head, first, n, s, q);
            if (j->decay != NULL)
                IK_OF(fetch)(
                    j->tdecay, address_of(j->tdecay, j->decay, at, step, head, 0), d, j->tdecay->strides[3], decay);
            if (j->a != NULL) {
                IK_OF(fetch)(j->ta, address_of(j->ta, j->a, at, step, head, 0), d, j->ta->strides[3], a);
                IK_OF(fetch)(j->tb, address_of(j->tb, j->b, at, step, head, 0), d, j->tb->strides[3], b);
                IK_OF(read)(d, a, s, seen);
            }
            IK_OF(fetch)(j->tk, address_of(j->tk, j->k, at, step, head, 0), d, j->tk->strides[3], k);
            IK_OF(fetch)(j->tv, address_of(j->tv, j->v, at, step, head, first), n, j->tv->strides[3], v);
            IK_OF(update)(d, j->decay == NULL ? NULL : decay, j->a == NULL ? NULL : b, k, seen, v, s);
            if (!j->before)
                IK_OF(write)(j, at, step, head, first, n, s, q);
        }
        for (int64_t i = 0; i < d; i++)
            IK_OF(put)(j->tout, s + i * COLUMNS, n, (char *)(uintptr_t)address_of(j->tout, j->out, at, head, i, first));
    }
}

#endif
