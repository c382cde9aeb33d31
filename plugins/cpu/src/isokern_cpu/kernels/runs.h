/* Runs of floats: sums, products and extremes in vector lanes, loads to the compute type (in place where possible), and
 * stores past the caches.
 *
 * The part after "typed" is compiled for float and for double. */
#ifndef IK_RUNS_H
#define IK_RUNS_H
#include "convert.h"

#define IK_ALIGNED __attribute__((aligned(64))) /* vectors that cross a cache line cost double */

enum { IK_SUM, IK_SQUARES, IK_MAX, IK_MIN, IK_PRODUCT };

/* n elements in the compute type: in place where possible, else converted into `scratch`. */
static inline const void *ik_fetch(int32_t dtype, const char *from, int64_t stride, int64_t n, void *scratch)
{
    if (stride == 1 && (dtype == IK_F32 || dtype == IK_F64))
        return from;
    if (dtype == IK_F64)
        ik_load_f64(from, stride, n, scratch);
    else
        ik_load_f32(dtype, from, stride, n, scratch);
    return scratch;
}

/* Where to compute at most IK_TILE results: in y itself, or in `scratch`, from which ik_put stores them. */
static inline void *ik_place(int32_t dtype, char *y, int64_t stride, bool stream, void *scratch)
{ return stride == 1 && !stream && (dtype == IK_F32 || dtype == IK_F64) ? y : scratch; }

static inline void ik_put(int32_t dtype, const void *from, char *y, int64_t stride, int64_t n, bool stream)
{
    if (from == y)
        return;
    if (stream && stride == 1) {
        uint16_t half[IK_TILE] IK_ALIGNED;
        if (dtype != ik_compute_of(dtype)) {
            ik_store_f32(dtype, from, half, 1, n);
            from = half;
        }
        ik_stream_copy(y, from, n * ik_itemsize(dtype));
    } else if (dtype == IK_F64) {
        ik_store_f64(from, y, stride, n);
    } else {
        ik_store_f32(dtype, from, y, stride, n);
    }
}

#define IK_FILE "runs.h"
#include "each_type.h"

#elif defined(IK_T) /* typed */

typedef IK_T IK_OF(ik_vector) __attribute__((vector_size(IK_VECTOR), aligned(sizeof(IK_T)), may_alias));

/* The n < lanes elements from x on, and `rest` in the lanes behind them. A masked load takes no detour through memory,
 * which cost a row of 10 elements half of its time. */
static inline __attribute__((always_inline)) IK_OF(ik_vector) IK_OF(ik_load_some)(const IK_T *x, int64_t n, IK_T rest)
{
    IK_OF(ik_vector) v = (IK_OF(ik_vector)){ 0 } + rest;
#if defined(__AVX512F__)
    const unsigned mask = (1u << n) - 1;
    if (sizeof(IK_T) == sizeof(float))
        v = (IK_OF(ik_vector))_mm512_mask_loadu_ps((__m512)v, (__mmask16)mask, x);
    else
        v = (IK_OF(ik_vector))_mm512_mask_loadu_pd((__m512d)v, (__mmask8)mask, x);
#else
    memcpy(&v, x, (size_t)n * sizeof *x);
#endif
    return v;
}

/* Sum of (x - shift), or of its square: blocks of 16 vectors in the compute type (at most 6 roundings each), then
 * blocks in double without loss, so that the error does not grow with n. */
static inline __attribute__((always_inline)) double IK_OF(ik_sum_of)(int what, int64_t n, const IK_T *x, IK_T shift)
{
    typedef IK_OF(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_T), BLOCK = 16 * LANES };
#define TERM(v) (what == IK_SUM ? (v) - shift : ((v) - shift) * ((v) - shift))
    double high[LANES] = { 0 }, low[LANES] = { 0 };
    for (int64_t at = 0; at < n; at += BLOCK) {
        int64_t i = at, end = ik_min(n, at + BLOCK);
        vector a = { 0 }, b = { 0 }, c = { 0 }, d = { 0 };
        for (; i + 4 * LANES <= end; i += 4 * LANES) {
            const vector *v = (const vector *)(x + i);
            a += TERM(v[0]);
            b += TERM(v[1]);
            c += TERM(v[2]);
            d += TERM(v[3]);
        }
        for (; i + LANES <= end; i += LANES)
            b += TERM(*(const vector *)(x + i));
        if (i < end)
            c += TERM(IK_OF(ik_load_some)(x + i, end - i, shift));
        a = (a + b) + (c + d);
#if defined(__AVX512F__)
        if (n <= BLOCK && sizeof(IK_T) == sizeof(float)) { /* one block: the sum that the loops below give */
            const __m512d low_half = _mm512_cvtps_pd(_mm512_castps512_ps256((__m512)a)),
                          high_half = _mm512_cvtps_pd(_mm512_extractf32x8_ps((__m512)a, 1));
            return _mm512_reduce_add_pd(_mm512_add_pd(low_half, high_half));
        }
#endif
        IK_T lane[LANES];
        memcpy(lane, &a, sizeof a);
        for (int k = 0; k < LANES; k++)
            ik_add_double(&high[k], &low[k], lane[k], sizeof(IK_T) == sizeof(double));
    }
#undef TERM
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++) {
            high[k] += high[k + half];
            low[k] += low[k + half];
        }
    return ik_join_double(high[0], low[0]);
}

/* The largest (or smallest) of n elements, a NaN where there is one; -Inf (or Inf) for n = 0. */
static inline __attribute__((always_inline)) IK_T IK_OF(ik_extreme_of)(int what, int64_t n, const IK_T *x)
{
    typedef IK_OF(ik_vector) vector;
    enum { LANES = IK_VECTOR / sizeof(IK_T) };
    const IK_T none = what == IK_MAX ? -(IK_T)__builtin_inf() : (IK_T)__builtin_inf();
    vector a = (vector){ 0 } + none, b = a, c = a, d = a;
    int64_t i = 0;
/* a where it is beyond b or NaN, else b: a comparison and a bitwise select, which compilers vectorise */
#define BEYOND(a, b) ((what == IK_MAX ? (a) > (b) : (a) < (b)) | ((a) != (a)))
#define SELECT(a, b) \
    ((vector)((BEYOND(a, b) & (__typeof__((a) > (b)))(a)) | (~BEYOND(a, b) & (__typeof__((a) > (b)))(b))))
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        const vector *v = (const vector *)(x + i);
        a = SELECT(a, v[0]);
        b = SELECT(b, v[1]);
        c = SELECT(c, v[2]);
        d = SELECT(d, v[3]);
    }
    for (; i + LANES <= n; i += LANES)
        b = SELECT(b, *(const vector *)(x + i));
    if (i < n) {
        const vector rest = IK_OF(ik_load_some)(x + i, n - i, none);
        c = SELECT(c, rest);
    }
    a = SELECT(a, b);
    c = SELECT(c, d);
    a = SELECT(a, c);
#undef SELECT
#undef BEYOND
    IK_T lane[LANES];
    memcpy(lane, &a, sizeof a);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] = what == IK_MAX ? IK_OF(ik_maximum)(lane[k], lane[k + half])
                                     : IK_OF(ik_minimum)(lane[k], lane[k + half]);
    return lane[0];
}

/* Product of a run; in double, so that products of float stay within the range for longer. */
static inline double IK_OF(ik_product_of)(int64_t n, const IK_T *x)
{
    enum { LANES = 16 };
    double lane[LANES];
    int64_t i = 0;
    for (int k = 0; k < LANES; k++)
        lane[k] = 1;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            lane[k] *= (double)x[i + k];
    for (int k = 0; i < n; i++, k++)
        lane[k] *= (double)x[i];
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int k = 0; k < half; k++)
            lane[k] *= lane[k + half];
    return lane[0];
}

/* y = x * factor * w; w may be null. */
static inline void IK_OF(ik_scale)(int64_t n, const IK_T *x, IK_T factor, const IK_T *w, IK_T *y)
{
    if (w == NULL) {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * factor;
    } else {
        IK_VECTORISE for (int64_t i = 0; i < n; i++)
            y[i] = x[i] * factor * w[i];
    }
}

#endif
