/* The activations of epilogues, over contiguous runs of the compute type, in place.
 *
 * Most are the loops that core prints from their expressions. Those of sigmoid and silu spend half of their
 * instructions on the range of exp and on making its powers of two, which AVX-512 has an instruction for. */
#ifndef IK_ACTIVATIONS_H
#define IK_ACTIVATIONS_H
#include "convert.h"

#include "elementwise_activations.h"

#ifndef IK_NO_F32
enum { IK_ACTIVATE_SILU = 4, IK_ACTIVATE_SIGMOID = 5 }; /* as every operator with an epilogue numbers them */

#if defined(__AVX512F__)
/* e^x for x <= 0, as ik_exp_f32 computes it, but for the powers of two. */
static inline __attribute__((always_inline)) __m512 exp_negative(__m512 x)
{
    const __m512 low = _mm512_max_ps(_mm512_set1_ps(-104.5f), x); /* a NaN stays */
    const __m512 magic = _mm512_set1_ps(12582912.0f), /* 1.5 * 2^23: a sum with it is rounded to an integer */
        n = _mm512_sub_ps(_mm512_fmadd_ps(low, _mm512_set1_ps(1.44269504f), magic), magic),
                 part = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), low),
                 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), part);
    __m512 q = _mm512_fmadd_ps(r, _mm512_set1_ps(1.39246916e-3f), _mm512_set1_ps(8.36709049e-3f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(4.16666009e-2f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.16666539f));
    q = _mm512_fmadd_ps(q, r, _mm512_set1_ps(0.5f));
    q = _mm512_fmadd_ps(q, _mm512_mul_ps(r, r), r);
    return _mm512_scalef_ps(_mm512_add_ps(q, _mm512_set1_ps(1)), n);
}

/* The sigmoid of x, times x with `silu`. */
static inline __attribute__((always_inline)) __m512 sigmoid_of(const bool silu, __m512 x)
{
    if (silu) /* below, the result is -0, and -Inf would become a NaN */
        x = _mm512_max_ps(_mm512_set1_ps(-10000), x);
    const __m512 one = _mm512_set1_ps(1), part = exp_negative(_mm512_or_ps(x, _mm512_set1_ps(-0.0f)));
    const __m512 above = _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, _mm512_setzero_ps(), _CMP_GE_OQ), part, one);
    return _mm512_div_ps(silu ? _mm512_mul_ps(x, above) : above, _mm512_add_ps(one, part));
}

static inline __attribute__((always_inline)) void run_sigmoid(const bool silu, int64_t n, float *x)
{
    for (; n >= 16; n -= 16, x += 16)
        _mm512_storeu_ps(x, sigmoid_of(silu, _mm512_loadu_ps(x)));
    const __mmask16 rest = (__mmask16)((1u << n) - 1);
    if (n > 0)
        _mm512_mask_storeu_ps(x, rest, sigmoid_of(silu, _mm512_maskz_loadu_ps(rest, x)));
}
#endif

static __attribute__((noinline, unused)) void ik_activate_f32(int64_t activation, int64_t n, float *x)
{
#if defined(__AVX512F__)
    if (activation == IK_ACTIVATE_SILU)
        run_sigmoid(true, n, x);
    else if (activation == IK_ACTIVATE_SIGMOID)
        run_sigmoid(false, n, x);
    else
#endif
        activate_f32(activation, n, x);
}
#endif

#ifndef IK_NO_F64
static inline __attribute__((unused)) void ik_activate_f64(int64_t activation, int64_t n, double *x)
{ activate_f64(activation, n, x); }
#endif

#endif
