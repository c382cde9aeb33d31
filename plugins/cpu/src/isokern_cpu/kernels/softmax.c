/* softmax and log_softmax of rows: y = exp(x - m) / s and y = (x - m) - ln s, with m = max x and s = sum exp(x - m).
 *
 * A row of one chunk is read once and its exponentials are kept in the buffer; a longer one is measured chunk by chunk, each against its
 * own maximum, and its exponentials are taken again. Rows that lie across memory go side by side, a column of the tile each. This file includes itself, for float and for double. */
#ifndef IK_REAL
#include "rows.h"

enum { PIECE = 256, COLUMNS = 128 };

/* s against the maximum `whole`. A chunk of nothing but -Inf (s is NaN) counts for nothing beside others. */
static double rescale(ik_stat part, double whole)
{
    return part.a == whole ? part.b : part.a == -__builtin_inf() ? 0 : part.b * ik_exp_f64(part.a - whole);
}

static void join(ik_stat *whole, int64_t before, ik_stat part, int64_t count)
{
    (void)before, (void)count;
    double most = ik_maximum_f64(whole->a, part.a);
    *whole = (ik_stat){ most, rescale(*whole, most) + rescale(part, most) };
}

/* e = exp(x - most), where x <= most, or NaN; returns the sum of at most PIECE of them, while they are in L1. */
static double exp_run_f64(int64_t n, const double *x, double most, double *e)
{
    IK_VECTORISE
    for (int64_t i = 0; i < n; i++)
        e[i] = ik_exp_f64(x[i] - most);
    return ik_sum_of_f64(IK_SUM, n, e, 0);
}

#if defined(__AVX512F__)
/* ik_exp_f32's steps by the instructions that round and that scale by 2^n (subnormals too), without an upper bound: softmax of rows in
 * L2 gains 1.4 times, from memory 1.3 times on one thread. */
static double exp_run_f32(int64_t n, const float *x, float most, float *e)
{
    const __m512 shift = _mm512_set1_ps(most), bound = _mm512_set1_ps(-120.0f);
    __m512 sum = _mm512_setzero_ps(); /* 16 roundings at most */
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        __m512 d = _mm512_max_ps(bound, _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), shift)); /* a NaN, second, stays */
        __m512 t = _mm512_roundscale_ps(_mm512_mul_ps(d, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m512 r = _mm512_fnmadd_ps(t, _mm512_set1_ps(1.42860677e-6f), _mm512_fnmadd_ps(t, _mm512_set1_ps(0.693145752f), d));
        __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(1.39246916e-3f), _mm512_set1_ps(8.36709049e-3f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(4.16666009e-2f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.16666539f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
        q = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
        __m512 y = _mm512_maskz_scalef_ps(mask, _mm512_add_ps(_mm512_set1_ps(1.0f), q), t);
        _mm512_mask_storeu_ps(e + i, mask, y);
        sum = _mm512_add_ps(sum, y);
    }
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sum)), high = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sum), 1)));
    return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
}
#else
static double exp_run_f32(int64_t n, const float *x, float most, float *e)
{
    IK_VECTORISE
    for (int64_t i = 0; i < n; i++)
        e[i] = ik_exp_f32(x[i] - most);
    return ik_sum_of_f32(IK_SUM, n, e, 0);
}
#endif

/* Whether the rows lie beside each other in memory, and not along it. */
static bool across(const ik_tensor *t)
{
    return t->strides[t->ndim - 1] != 1 && t->strides[t->ndim - 2] == 1 && t->shape[t->ndim - 2] >= 8;
}

#define IK_REAL float
#define IK_TYPED(name) name##_f32
#include "softmax.c"
#undef IK_REAL
#undef IK_TYPED
#define IK_REAL double
#define IK_TYPED(name) name##_f64
#include "softmax.c"
#undef IK_REAL
#undef IK_TYPED

IK_WORKSPACE(softmax) { return ik_rows_workspace(plan); }

IK_KERNEL(softmax)
{
    IK_UNUSED;
    bool wide = plan->tensors[0].dtype == IK_F64;
    ik_rows r = { .measure = wide ? measure_f64 : measure_f32, .join = join, .write = wide ? write_f64 : write_f32, .interleaved = true };
    if (!ik_rows_prepare(&r, plan, data, workspace))
        return IK_SUCCESS;
    int64_t width = r.ty->shape[r.ty->ndim - 2], tiles = (width + COLUMNS - 1) / COLUMNS;
    if (!across(r.tx) || !across(r.ty))
        ik_rows_run(&r);
    else
        ik_parallel_for(r.rows / width * tiles, IK_THREAD_BYTES / (r.d * ik_min(width, COLUMNS) * r.size), wide ? columns_f64 : columns_f32, &r);
    return IK_SUCCESS;
}

#else

static ik_stat IK_TYPED(measure)(const ik_rows *r, const char *from, int64_t n, ik_chunk *buffer, const ik_beside *beside)
{
    IK_REAL *e = (IK_REAL *)buffer;
    const IK_REAL *x = IK_TYPED(ik_fetch)(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, e);
    IK_REAL most = IK_TYPED(ik_extreme_of)(IK_MAX, n, x);
    double sum = 0, low = 0;
    for (int64_t at = 0; at < n; at += PIECE) { /* memory works while exponentials are computed */
        int64_t m = ik_min(n - at, PIECE);
        if (beside != NULL)
            ik_rows_beside(r, beside, at, m);
        ik_add_double(&sum, &low, IK_TYPED(exp_run)(m, x + at, most, e + at), true);
    }
    return (ik_stat){ most, ik_join_double(sum, low) };
}

static void IK_TYPED(write)(const ik_rows *r, const char *from, char *to, int64_t at, int64_t n, const ik_stat *stat, ik_chunk *buffer, bool kept, const char *ahead)
{
    (void)ahead;
    IK_REAL room[IK_TILE] IK_ALIGNED, most = (IK_REAL)stat->a;
    int64_t stride = r->ty->strides[r->ty->ndim - 1];
    IK_REAL *y = IK_TYPED(ik_place)(r->ty->dtype, to, stride, r->stream, room);
    const IK_REAL *e = (const IK_REAL *)buffer + at;
    if (r->kind == IK_OP_LOG_SOFTMAX || !kept) {
        const IK_REAL *x = IK_TYPED(ik_fetch)(r->tx->dtype, from, r->tx->strides[r->tx->ndim - 1], n, room);
        if (r->kind == IK_OP_SOFTMAX) {
            IK_TYPED(exp_run)(n, x, most, room);
            e = room;
        } else {
            IK_REAL log_sum = (IK_REAL)ik_log_f64(stat->b);
            IK_VECTORISE
            for (int64_t i = 0; i < n; i++)
                y[i] = (x[i] - most) - log_sum;
        }
    }
    if (r->kind == IK_OP_SOFTMAX) {
        IK_REAL factor = (IK_REAL)(1 / stat->b);
        IK_VECTORISE
        for (int64_t i = 0; i < n; i++)
            y[i] = e[i] * factor;
    }
    IK_TYPED(ik_put)(r->ty->dtype, y, to, stride, n, r->stream);
}

/* Task number: outer row * tiles + tile, a tile being at most COLUMNS rows that are neighbours in memory. */
static void IK_TYPED(columns)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_rows *r = context;
    IK_REAL room[COLUMNS] IK_ALIGNED, most[COLUMNS] IK_ALIGNED, last[COLUMNS] IK_ALIGNED;
    double sum[COLUMNS] IK_ALIGNED, low[COLUMNS] IK_ALIGNED;
    int64_t width = r->ty->shape[r->ty->ndim - 2], tiles = (width + COLUMNS - 1) / COLUMNS;
    int64_t step = r->tx->strides[r->tx->ndim - 1] * r->size, to = r->ty->strides[r->ty->ndim - 1] * r->size;
    for (int64_t task = begin; task < end; task++) {
        int64_t first = task % tiles * COLUMNS, row = task / tiles * width + first, n = ik_min(width - first, COLUMNS);
        const char *x = ik_rows_x(r, row);
        char *y = ik_rows_y(r, row);
        for (int64_t k = 0; k < n; k++) {
            most[k] = -(IK_REAL)__builtin_inf();
            sum[k] = low[k] = 0;
        }
        for (int64_t i = 0; i < r->d; i++) {
            const IK_REAL *v = IK_TYPED(ik_fetch)(r->tx->dtype, x + i * step, 1, n, room);
            IK_VECTORISE
            for (int64_t k = 0; k < n; k++)
                most[k] = IK_TYPED(ik_maximum)(most[k], v[k]);
        }
        for (int64_t i = 0; i < r->d; i++) {
            const IK_REAL *v = IK_TYPED(ik_fetch)(r->tx->dtype, x + i * step, 1, n, room);
            IK_VECTORISE
            for (int64_t k = 0; k < n; k++)
                room[k] = IK_TYPED(ik_exp)(v[k] - most[k]);
            IK_VECTORISE
            for (int64_t k = 0; k < n; k++)
                ik_add_double(&sum[k], &low[k], (double)room[k], sizeof(IK_REAL) == sizeof(double));
        }
        for (int64_t k = 0; k < n; k++) {
            double all = ik_join_double(sum[k], low[k]);
            last[k] = (IK_REAL)(r->kind == IK_OP_SOFTMAX ? 1 / all : ik_log_f64(all));
        }
        for (int64_t i = 0; i < r->d; i++) {
            const IK_REAL *v = IK_TYPED(ik_fetch)(r->tx->dtype, x + i * step, 1, n, room);
            if (r->kind == IK_OP_SOFTMAX) {
                IK_VECTORISE
                for (int64_t k = 0; k < n; k++)
                    room[k] = IK_TYPED(ik_exp)(v[k] - most[k]) * last[k];
            } else {
                IK_VECTORISE
                for (int64_t k = 0; k < n; k++)
                    room[k] = (v[k] - most[k]) - last[k];
            }
            IK_TYPED(ik_put)(r->ty->dtype, room, y + i * to, 1, n, false);
        }
    }
}

#endif
