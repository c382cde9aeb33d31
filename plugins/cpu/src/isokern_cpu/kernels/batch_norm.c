/* batch_norm of [c, *rest]: y = (x - mean) * (w / sqrt(var + eps)) + bias, with mean, factor and bias per channel.
 *
 * The factors are computed once, in the compute type. Runs go along the last of the rest dims, or across the channels
 * where those are adjacent in memory. This file includes itself, for float and for double. */
#ifndef IK_T
#include "runs.h"
#include "operators/batch_norm.h"

enum { PIECE = 16 * IK_TILE };

typedef struct job {
    const ik_tensor *ty, *tx;
    char *y;
    const char *x;
    int64_t size, run, outer, pieces; /* a run of `run` elements at each of `outer` places, cut into pieces */
    int32_t dim;              /* the dim along which runs go: 0 is the channels */
    bool stream;
    const void *mean, *factor, *bias; /* [c] in the compute type */
} job;

/* Offset of run number `at`, and its channel (0 where runs go across the channels). */
static int64_t run_offset(const ik_tensor *t, int32_t dim, int64_t at, int64_t *channel)
{
    int64_t offset = 0;
    *channel = 0;
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        if (i == dim)
            continue;
        if (i == 0)
            *channel = at % t->shape[0];
        offset += at % t->shape[i] * t->strides[i];
        at /= t->shape[i];
    }
    return offset;
}

#define IK_FILE "batch_norm.c"
#include "each_type.h"

static uint64_t channel_bytes(const ik_plan *plan)
{
    return ik_round_up(
        (uint64_t)plan->tensors[0].shape[0] * (plan->tensors[0].dtype == IK_F64 ? sizeof(double) : sizeof(float)),
        IK_ALIGNMENT);
}

IK_WORKSPACE(batch_norm) { return 3 * channel_bytes(plan); }

IK_KERNEL(batch_norm)
{
    IK_UNUSED;
    const ik_batch_norm_attrs *attrs = plan->attrs;
    const ik_tensor *t = plan->tensors;
    int64_t n = ik_numel(&t[0]), bytes = (int64_t)channel_bytes(plan);
    if (n == 0)
        return IK_SUCCESS;
    job j = { .ty = &t[0], .tx = &t[1], .size = ik_itemsize(t->dtype), .dim = t->ndim - 1 };
    j.y = ik_ptr(plan, data, IK_BATCH_NORM_Y);
    j.x = ik_ptr(plan, data, IK_BATCH_NORM_X);
    if (t[1].strides[j.dim] != 1 && t[1].strides[0] == 1 && t[0].strides[0] == 1)
        j.dim = 0;
    if (t[0].shape[j.dim] == 1 && t[0].shape[0] > 1)
        j.dim = 0;
    j.run = t[0].shape[j.dim];
    j.outer = n / j.run;
    j.stream = n * j.size >= IK_STREAM_BYTES && j.x != j.y;
    j.mean = workspace;
    j.factor = (char *)workspace + bytes;
    j.bias = (char *)workspace + 2 * bytes;
    (t->dtype == IK_F64 ? set_up_f64 : set_up_f32)(plan, data, attrs->eps, workspace, bytes);
    j.pieces = ik_ceil_div(j.run, PIECE);
    ik_parallel_for(j.outer * j.pieces, IK_THREAD_BYTES / (ik_min(j.run, PIECE) * j.size),
        t->dtype == IK_F64 ? runs_f64 : runs_f32, &j);
    return IK_SUCCESS;
}

#else

/* Tensor i, of [c], in the compute type; `absent` for every channel where the tensor is absent. */
static void IK_OF(channels)(const ik_plan *plan, void *const *data, uint32_t i, IK_T absent, IK_T *to)
{
    int64_t c = plan->tensors[0].shape[0];
    if (ik_present(plan, i)) {
        const IK_T *from = ik_fetch(plan->tensors[i].dtype, ik_ptr(plan, data, i), plan->tensors[i].strides[0], c, to);
        if (from != to)
            memcpy(to, from, (size_t)c * sizeof *to);
        return;
    }
    for (int64_t k = 0; k < c; k++)
        to[k] = absent;
}

static void IK_OF(set_up)(const ik_plan *plan, void *const *data, double eps, void *workspace, int64_t bytes)
{
    IK_T *mean = workspace, *factor = (IK_T *)(void *)((char *)workspace + bytes),
         *bias = (IK_T *)(void *)((char *)workspace + 2 * bytes);
    IK_OF(channels)(plan, data, IK_BATCH_NORM_VAR, 0, mean);
    IK_OF(channels)(plan, data, IK_BATCH_NORM_W, 1, factor);
    IK_OF(channels)(plan, data, IK_BATCH_NORM_BIAS, 0, bias);
    for (int64_t k = 0; k < plan->tensors[0].shape[0]; k++)
        factor[k] = (IK_T)((double)factor[k] / ik_sqrt_f64((double)mean[k] + eps));
    IK_OF(channels)(plan, data, IK_BATCH_NORM_MEAN, 0, mean);
}

static void IK_OF(runs)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    IK_T scratch[IK_TILE] IK_ALIGNED;
    int64_t from = j->tx->strides[j->dim], to = j->ty->strides[j->dim];
    for (int64_t i = begin; i < end; i++) {
        int64_t channel, place = i / j->pieces, first = i % j->pieces * PIECE, last = ik_min(j->run, first + PIECE);
        const char *x = j->x + run_offset(j->tx, j->dim, place, &channel) * j->size;
        char *y = j->y + run_offset(j->ty, j->dim, place, &channel) * j->size;
        for (int64_t at = first; at < last; at += IK_TILE) {
            int64_t n = ik_min(last - at, IK_TILE);
            const IK_T *in = ik_fetch(j->tx->dtype, x + at * from * j->size, from, n, scratch);
            IK_T *out = ik_place(j->ty->dtype, y + at * to * j->size, to, j->stream, scratch);
            const IK_T *mean = (const IK_T *)j->mean + channel, *factor = (const IK_T *)j->factor + channel,
                       *bias = (const IK_T *)j->bias + channel;
            if (j->dim == 0) {
                mean += at, factor += at, bias += at;
                IK_VECTORISE for (int64_t k = 0; k < n; k++)
                    out[k] = (in[k] - mean[k]) * factor[k] + bias[k];
            } else {
                IK_T m = *mean, f = *factor, b = *bias;
                IK_VECTORISE for (int64_t k = 0; k < n; k++)
                    out[k] = (in[k] - m) * f + b;
            }
            ik_put(j->ty->dtype, out, y + at * to * j->size, to, n, j->stream);
        }
    }
    if (j->stream)
        ik_stream_fence();
}

#endif
