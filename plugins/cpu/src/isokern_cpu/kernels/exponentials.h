/* Exponentials of rows relative to their maximum, and joining the sums of chunks with different maxima: code that the
 * softmaxes share. */
#ifndef IK_EXPONENTIALS_H
#define IK_EXPONENTIALS_H
#include "row_reduction.h"

enum { IK_EXP_PIECE = 256 };

/* Rescale s to the maximum `whole`. A chunk of nothing but -Inf (s is NaN) adds nothing to other chunks. */
static inline double ik_exp_rescale(ik_stat part, double whole)
{ return part.a == whole ? part.b : part.a == -__builtin_inf() ? 0 : part.b * ik_exp_f64(part.a - whole); }

static inline void ik_exp_join(ik_stat *whole, int64_t before, ik_stat part, int64_t count)
{
    (void)before, (void)count;
    double max = ik_maximum_f64(whole->a, part.a);
    *whole = (ik_stat){ .a = max, .b = ik_exp_rescale(*whole, max) + ik_exp_rescale(part, max) };
}

/* e = exp(x - max), where x <= max, or NaN; returns the sum of at most IK_EXP_PIECE exponentials while they are in
 * L1. */
static inline double ik_exp_run_f64(int64_t n, const double *x, double max, double *e)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        e[i] = ik_exp_f64(x[i] - max);
    return ik_sum_of_f64(IK_SUM, n, e, 0);
}

#if defined(__AVX512F__)
/* The steps of ik_exp_f32 by the instructions that round and that scale by 2^n (subnormals too), without an upper
 * bound: softmax of rows gains 1.4 times in L2, and 1.3 times from memory on one thread. */
static inline double ik_exp_run_f32(int64_t n, const float *x, float max, float *e)
{
    const __m512 shift = _mm512_set1_ps(max), bound = _mm512_set1_ps(-120.0f);
    __m512 sum = _mm512_setzero_ps(); /* 16 roundings at most */
    for (int64_t i = 0; i < n; i += 16) {
        __mmask16 mask = n - i >= 16 ? 0xffff : (__mmask16)((1u << (n - i)) - 1);
        /* The second operand: a NaN stays. */
        __m512 d = _mm512_max_ps(bound, _mm512_sub_ps(_mm512_maskz_loadu_ps(mask, x + i), shift));
        __m512 t = _mm512_roundscale_ps(
            _mm512_mul_ps(d, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
        __m512 r =
            _mm512_fnmadd_ps(t, _mm512_set1_ps(1.42860677e-6f), _mm512_fnmadd_ps(t, _mm512_set1_ps(0.693145752f), d));
        __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(1.39246916e-3f), _mm512_set1_ps(8.36709049e-3f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(4.16666009e-2f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.16666539f));
        q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
        q = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
        __m512 y = _mm512_maskz_scalef_ps(mask, _mm512_add_ps(_mm512_set1_ps(1.0f), q), t);
        _mm512_mask_storeu_ps(e + i, mask, y);
        sum = _mm512_add_ps(sum, y);
    }
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(sum)),
            high = _mm512_cvtps_pd(_mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(sum), 1)));
    return _mm512_reduce_add_pd(_mm512_add_pd(low, high));
}
#else
static inline double ik_exp_run_f32(int64_t n, const float *x, float max, float *e)
{
    IK_VECTORISE for (int64_t i = 0; i < n; i++)
        e[i] = ik_exp_f32(x[i] - max);
    return ik_sum_of_f32(IK_SUM, n, e, 0);
}
#endif

#endif
