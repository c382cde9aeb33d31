/* causal_conv1d: y[b, c, l] = activation(bias[c] + Σ_i w[c, i] * z[b, c, l + i]), z being the state and then x, and the
 * last k - 1 elements of z as the new state.
 *
 * Vector lanes are positions, of a row that goes through a window of a tile. Where rows are short, as in generation,
 * which adds one position at a time, lanes are channels.
 *
 * Against a concat, a convolution and a slice it takes a tenth of the time for one position, and two thirds for rows of
 * hundreds, most of which silu takes. */
#ifndef IK_T
#include "runs.h"
#include "activations.h"
#include "operators/causal_conv1d.h"

/* LONG: positions from which on they are lanes; LANES: channels otherwise, of filters of up to SHORT elements */
enum { LONG = 16, LANES = 256, SHORT = 16 };

typedef struct job {
    const ik_tensor *ty, *tn, *tx, *tw, *tb, *ts;
    char *y, *next;
    const char *x, *w, *bias, *state;
    char *workspace;
    int64_t size, wide, c, l, k, blocks, slice; /* bytes of an element, and in the compute type; dims; of channels */
    int64_t activation;
} job;

#define IK_FILE "causal_conv1d.c"
#include "each_type.h"

static job describe(const ik_plan *plan)
{
    const ik_tensor *t = plan->tensors, *x = &t[IK_CAUSAL_CONV1D_X], *w = &t[IK_CAUSAL_CONV1D_W];
    job j = { .ty = &t[IK_CAUSAL_CONV1D_Y],
        .tn = &t[IK_CAUSAL_CONV1D_NEW_STATE],
        .tx = x,
        .tw = w,
        .tb = &t[IK_CAUSAL_CONV1D_BIAS],
        .ts = &t[IK_CAUSAL_CONV1D_STATE],
        .size = ik_itemsize(x->dtype),
        .wide = x->dtype == IK_F64 ? 8 : 4,
        .c = x->shape[1],
        .l = x->shape[2],
        .k = w->shape[1] };
    j.blocks = j.l < LONG && j.k <= SHORT ? ik_ceil_div(j.c, LANES) : 0;
    const int64_t values = j.blocks > 0 ? (2 * j.k + j.l + 1) * LANES : 2 * j.k + IK_TILE;
    j.slice = ik_round_up(values * j.wide, IK_ALIGNMENT);
    return j;
}

IK_WORKSPACE(causal_conv1d)
{
    const job j = describe(plan);
    return j.tx->shape[0] * j.c == 0 ? 0 : (uint64_t)(j.slice * ik_threads());
}

IK_KERNEL(causal_conv1d)
{
    IK_UNUSED;
    job j = describe(plan);
    const int64_t rows = j.tx->shape[0] * j.c;
    if (rows == 0)
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_CAUSAL_CONV1D_Y), j.next = ik_ptr(plan, data, IK_CAUSAL_CONV1D_NEW_STATE);
    j.x = ik_ptr(plan, data, IK_CAUSAL_CONV1D_X), j.w = ik_ptr(plan, data, IK_CAUSAL_CONV1D_W);
    j.bias = ik_ptr(plan, data, IK_CAUSAL_CONV1D_BIAS), j.state = ik_ptr(plan, data, IK_CAUSAL_CONV1D_STATE);
    j.workspace = workspace;
    j.activation = ((const ik_causal_conv1d_attrs *)plan->attrs)->activation;
    const int64_t work = (j.l + 1) * j.k * j.wide * (j.blocks > 0 ? LANES : 1);
    ik_task *task = j.wide == 8 ? (j.blocks > 0 ? channels_f64 : rows_f64) : j.blocks > 0 ? channels_f32 : rows_f32;
    ik_parallel_for(j.blocks > 0 ? j.tx->shape[0] * j.blocks : rows, 1 + IK_THREAD_BYTES / work, task, &j);
    return IK_SUCCESS;
}

#else

enum { IK_OF(COMPUTE) = sizeof(IK_T) == 8 ? IK_F64 : IK_F32 };

/* Load n elements of a tensor from `from` on; zeros where it is absent. */
static void IK_OF(bring)(const job *j, const char *from, int64_t step, int64_t n, IK_T *to)
{
    if (from == NULL)
        memset(to, 0, (size_t)n * sizeof *to);
    else
        ik_load(IK_OF(COMPUTE), j->tx->dtype, from, step, n, to);
}

static const char *IK_OF(place)(const job *j, const char *base, int64_t offset)
{ return base == NULL ? NULL : base + offset * j->size; }

/* Pieces b * C + c: one row. */
static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const int64_t *xs = j->tx->strides, *ys = j->ty->strides, *ns = j->tn->strides, *ss = j->ts->strides,
                  before = j->k - 1;
    IK_T *w = (IK_T *)(void *)(j->workspace + worker * j->slice), *z = w + j->k, sum[IK_TILE] IK_ALIGNED;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / j->c, c = i % j->c;
        IK_T bias;
        IK_OF(bring)(j, IK_OF(place)(j, j->bias, c * j->tb->strides[0]), 1, 1, &bias);
        IK_OF(bring)(j, j->w + c * j->tw->strides[0] * j->size, j->tw->strides[1], j->k, w);
        if (before > 0)
            IK_OF(bring)(j, IK_OF(place)(j, j->state, b * ss[0] + c * ss[1]), ss[2], before, z);
        const char *x = j->x + (b * xs[0] + c * xs[1]) * j->size;
        char *y = j->y + (b * ys[0] + c * ys[1]) * j->size;
        for (int64_t at = 0; at < j->l; at += IK_TILE) {
            const int64_t n = ik_min(IK_TILE, j->l - at);
            IK_OF(bring)(j, x + at * xs[2] * j->size, xs[2], n, z + before);
            if (j->k == 4) {
                const IK_T w0 = w[0], w1 = w[1], w2 = w[2], w3 = w[3];
                IK_VECTORISE for (int64_t p = 0; p < n; p++)
                    sum[p] = bias + w0 * z[p] + w1 * z[p + 1] + w2 * z[p + 2] + w3 * z[p + 3];
            } else {
                IK_VECTORISE for (int64_t p = 0; p < n; p++)
                    sum[p] = bias + w[0] * z[p];
                for (int64_t q = 1; q < j->k; q++) {
                    IK_VECTORISE for (int64_t p = 0; p < n; p++)
                        sum[p] += w[q] * z[p + q];
                }
            }
            IK_OF(ik_activate)(j->activation, n, sum);
            ik_put(j->ty->dtype, sum, y + at * ys[2] * j->size, ys[2], n, false);
            memmove(z, z + n, (size_t)before * sizeof *z);
        }
        if (before > 0)
            ik_store(IK_OF(COMPUTE), j->tn->dtype, z, j->next + (b * ns[0] + c * ns[1]) * j->size, ns[2], before);
    }
}

/* Pieces b * blocks + block: some channels. Their elements at one position, or of one place of the filters, are lines.
 */
static void IK_OF(channels)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    const int64_t *xs = j->tx->strides, *ys = j->ty->strides, *ns = j->tn->strides, *ss = j->ts->strides;
    const int64_t *ws = j->tw->strides, before = j->k - 1;
    IK_T *w = (IK_T *)(void *)(j->workspace + worker * j->slice), *z = w + j->k * LANES,
         *bias = z + (before + j->l) * LANES, sum[LANES] IK_ALIGNED;
    for (int64_t i = begin; i < end; i++) {
        const int64_t b = i / j->blocks, c = i % j->blocks * LANES, n = ik_min(LANES, j->c - c);
        IK_OF(bring)(j, IK_OF(place)(j, j->bias, c * j->tb->strides[0]), j->tb->strides[0], n, bias);
        for (int64_t q = 0; q < j->k; q++)
            IK_OF(bring)(j, j->w + (c * ws[0] + q * ws[1]) * j->size, ws[0], n, w + q * LANES);
        for (int64_t q = 0; q < before; q++)
            IK_OF(bring)(j, IK_OF(place)(j, j->state, b * ss[0] + c * ss[1] + q * ss[2]), ss[1], n, z + q * LANES);
        for (int64_t l = 0; l < j->l; l++) {
            const IK_T *line = z + l * LANES;
            IK_OF(bring)(j, j->x + (b * xs[0] + c * xs[1] + l * xs[2]) * j->size, xs[1], n, z + (before + l) * LANES);
            memcpy(sum, bias, (size_t)n * sizeof *sum);
            for (int64_t q = 0; q < j->k; q++) {
                const IK_T *factor = w + q * LANES, *value = line + q * LANES;
                IK_VECTORISE for (int64_t p = 0; p < n; p++)
                    sum[p] += factor[p] * value[p];
            }
            IK_OF(ik_activate)(j->activation, n, sum);
            char *y = j->y + (b * ys[0] + c * ys[1] + l * ys[2]) * j->size;
            ik_put(j->ty->dtype, sum, y, ys[1], n, false);
        }
        for (int64_t q = 0; q < before; q++)
            ik_store(IK_OF(COMPUTE), j->tn->dtype, z + (j->l + q) * LANES,
                j->next + (b * ns[0] + c * ns[1] + q * ns[2]) * j->size, ns[1], n);
    }
}

#endif
