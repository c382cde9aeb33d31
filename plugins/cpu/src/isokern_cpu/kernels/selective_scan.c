/* selective_scan: h = e^(s a) h + s b u and y = (Σ c h + d u) silu(z), with steps s. This file includes itself, for
 * float and for double.
 *
 *     for each sequence, CHANNELS of it                          a task
 *         for each TIME steps
 *             b and c as [time, state], which all of these channels read
 *             for each channel: s, then h and y step by step; a vector lane is a number of the state
 *
 * So no state of a sequence but the last is in memory. */
#ifndef IK_T
#include "convert.h"
#include "operators/selective_scan.h"

enum { CHANNELS = 8, TIME = 64, LANES = 16 };

typedef struct job {
    const ik_plan *plan;
    void *const *data;
    int64_t channels, length, state, padded, blocks; /* padded: state in whole LANES */
    bool softplus;
    char *scratch;
    int64_t scratch_bytes;
} job;

static bool given(const job *j, uint32_t number) { return ik_present(j->plan, number); }

/* The address of element [a, b, c] of a tensor of the plan; of fewer dims, the last ones are 0. */
static char *address_of(const job *j, uint32_t number, int64_t a, int64_t b, int64_t c)
{
    const ik_tensor *t = &j->plan->tensors[number];
    const int64_t at[3] = { a, b, c };
    int64_t offset = 0;
    for (int32_t i = 0; i < t->ndim; i++)
        offset += at[i] * t->strides[i];
    return (char *)ik_ptr(j->plan, j->data, number) + offset * ik_itemsize(t->dtype);
}

static job job_of(const ik_plan *plan)
{
    const ik_tensor *last = &plan->tensors[IK_SELECTIVE_SCAN_LAST], *u = &plan->tensors[IK_SELECTIVE_SCAN_U];
    job j = { .plan = plan, .channels = u->shape[1], .length = u->shape[2], .state = last->shape[2] };
    j.padded = ik_round_up(j.state, LANES);
    j.blocks = ik_ceil_div(j.channels, CHANNELS);
    j.softplus = ((const ik_selective_scan_attrs *)plan->attrs)->delta_softplus != 0;
    const int64_t elements = (2 * TIME + 2 * CHANNELS) * j.padded, wide = u->dtype == IK_F64 ? 8 : 4;
    j.scratch_bytes = ik_round_up(elements * wide, 64);
    return j;
}

#define IK_FILE "selective_scan.c"
#include "each_type.h"

IK_WORKSPACE(selective_scan) { return (uint64_t)(ik_threads() * job_of(plan).scratch_bytes); }

IK_KERNEL(selective_scan)
{
    IK_UNUSED;
    job j = job_of(plan);
    j.data = data, j.scratch = workspace;
    const ik_tensor *u = &plan->tensors[IK_SELECTIVE_SCAN_U];
    const int64_t bytes = CHANNELS * (j.length + 1) * (j.padded + LANES) * 32; /* an exponential is worth 8 elements */
    ik_parallel_for(
        u->shape[0] * j.blocks, 1 + IK_THREAD_BYTES / ik_max(1, bytes), u->dtype == IK_F64 ? tasks_f64 : tasks_f32, &j);
    return IK_SUCCESS;
}

#else

static void IK_OF(fetch)(const job *j, uint32_t number, int64_t a, int64_t b, int64_t c, int64_t n, IK_T *to)
{
    const ik_tensor *t = &j->plan->tensors[number];
    const int64_t step = t->strides[t->ndim - 1];
    if (t->dtype == IK_F64)
        ik_load_f64(address_of(j, number, a, b, c), step, n, (double *)(void *)to);
    else
        ik_load_f32(t->dtype, address_of(j, number, a, b, c), step, n, (float *)(void *)to);
}

static void IK_OF(put)(const job *j, uint32_t number, int64_t a, int64_t b, int64_t c, int64_t n, const IK_T *from)
{
    const ik_tensor *t = &j->plan->tensors[number];
    const int64_t step = t->strides[t->ndim - 1];
    if (t->dtype == IK_F64)
        ik_store_f64((const double *)(const void *)from, address_of(j, number, a, b, c), step, n);
    else
        ik_store_f32(t->dtype, (const float *)(const void *)from, address_of(j, number, a, b, c), step, n);
}

/* The single element [channel] of a vector; 0 where it is absent. */
static IK_T IK_OF(scalar)(const job *j, uint32_t number, int64_t channel)
{
    IK_T value = 0;
    if (given(j, number))
        IK_OF(fetch)(j, number, channel, 0, 0, 1, &value);
    return value;
}

/* b or c of `n` steps from `at` on, as [time, padded]. */
static void IK_OF(fetch_states)(const job *j, uint32_t number, int64_t sequence, int64_t at, int64_t n, IK_T *to)
{
    IK_T run[TIME];
    for (int64_t i = 0; i < j->padded; i++) {
        if (i < j->state)
            IK_OF(fetch)(j, number, sequence, i, at, n, run);
        else
            memset(run, 0, sizeof run);
        for (int64_t t = 0; t < n; t++)
            to[t * j->padded + i] = run[t];
    }
}

/* silu */
static inline IK_T IK_OF(gate)(IK_T z)
{
    const IK_T e = IK_OF(ik_exp)(-IK_OF(ik_abs)(z));
    return z < -10000 ? (IK_T)-0.0 : z * (z >= 0 ? 1 : e) / (1 + e);
}

/* n steps of one channel: y is Σ c h. */
static void IK_OF(scan)(const job *j, int64_t n, const IK_T *steps, const IK_T *u, const IK_T *a, const IK_T *b,
    const IK_T *c, IK_T *restrict h, IK_T *restrict y)
{
    for (int64_t t = 0; t < n; t++) {
        IK_T sum[LANES] = { 0 };
        for (int64_t base = 0; base < j->padded; base += LANES) {
            const int64_t at = t * j->padded + base;
            IK_VECTORISE for (int64_t i = 0; i < LANES; i++) {
                const IK_T factor = IK_OF(ik_exp)(steps[t] * a[base + i]), term = steps[t] * b[at + i] * u[t];
                h[base + i] = factor * h[base + i] + term;
                sum[i] += base + i < j->state ? h[base + i] * c[at + i] : 0; /* an infinite step times 0 is NaN */
            }
        }
        for (int64_t apart = LANES / 2; apart > 0; apart /= 2)
            for (int64_t i = 0; i < apart; i++)
                sum[i] += sum[i + apart];
        y[t] = sum[0];
    }
}

static void IK_OF(tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    IK_T *b = (IK_T *)(void *)(j->scratch + worker * j->scratch_bytes), *c = b + TIME * j->padded,
         *h = c + TIME * j->padded, *a = h + CHANNELS * j->padded;
    for (int64_t task = begin; task < end; task++) {
        const int64_t sequence = task / j->blocks, first = task % j->blocks * CHANNELS,
                      count = ik_min(CHANNELS, j->channels - first);
        if (j->padded > 0) /* without a state there is no scratch memory */
            memset(h, 0, (size_t)(2 * CHANNELS * j->padded) * sizeof *h);
        for (int64_t i = 0; i < count; i++) {
            IK_OF(fetch)(j, IK_SELECTIVE_SCAN_A, first + i, 0, 0, j->state, a + i * j->padded);
            if (given(j, IK_SELECTIVE_SCAN_INIT))
                IK_OF(fetch)(j, IK_SELECTIVE_SCAN_INIT, sequence, first + i, 0, j->state, h + i * j->padded);
        }
        for (int64_t at = 0; at < j->length; at += TIME) {
            const int64_t n = ik_min(TIME, j->length - at);
            IK_OF(fetch_states)(j, IK_SELECTIVE_SCAN_B, sequence, at, n, b);
            IK_OF(fetch_states)(j, IK_SELECTIVE_SCAN_C, sequence, at, n, c);
            for (int64_t i = 0; i < count; i++) {
                IK_T u[TIME], steps[TIME], y[TIME], z[TIME];
                IK_OF(fetch)(j, IK_SELECTIVE_SCAN_U, sequence, first + i, at, n, u);
                IK_OF(fetch)(j, IK_SELECTIVE_SCAN_DELTA, sequence, first + i, at, n, steps);
                if (given(j, IK_SELECTIVE_SCAN_BIAS)) {
                    const IK_T bias = IK_OF(scalar)(j, IK_SELECTIVE_SCAN_BIAS, first + i);
                    IK_VECTORISE for (int64_t t = 0; t < n; t++)
                        steps[t] += bias;
                }
                if (j->softplus) IK_VECTORISE
                    for (int64_t t = 0; t < n; t++)
                        steps[t] =
                            IK_OF(ik_maximum)(steps[t], 0) + IK_OF(ik_log1p)(IK_OF(ik_exp)(-IK_OF(ik_abs)(steps[t])));
                IK_OF(scan)(j, n, steps, u, a + i * j->padded, b, c, h + i * j->padded, y);
                if (given(j, IK_SELECTIVE_SCAN_D)) {
                    const IK_T d = IK_OF(scalar)(j, IK_SELECTIVE_SCAN_D, first + i);
                    IK_VECTORISE for (int64_t t = 0; t < n; t++)
                        y[t] += d * u[t];
                }
                if (given(j, IK_SELECTIVE_SCAN_Z)) {
                    IK_OF(fetch)(j, IK_SELECTIVE_SCAN_Z, sequence, first + i, at, n, z);
                    IK_VECTORISE for (int64_t t = 0; t < n; t++)
                        y[t] *= IK_OF(gate)(z[t]);
                }
                IK_OF(put)(j, IK_SELECTIVE_SCAN_Y, sequence, first + i, at, n, y);
            }
        }
        for (int64_t i = 0; i < count; i++)
            IK_OF(put)(j, IK_SELECTIVE_SCAN_LAST, sequence, first + i, 0, j->state, h + i * j->padded);
    }
}

#endif
