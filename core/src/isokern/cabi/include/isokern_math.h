/* The library's own scalar functions, in the common subset of C11, OpenCL C 1.2 and CUDA C++.
 *
 * Every function but the remainders is branch-free and calls nothing but IK_SQRT_*, so that a plain loop over it
 * vectorises (gcc 12, SSE2 upwards, with -ffp-contract=off -fno-trapping-math -fno-math-errno). Special values follow
 * C11 Annex F; minimum and maximum follow NumPy. "N ULP" is the largest error measured, rounded up, with and without
 * FMA; the coefficients are our own minimax fits (Remez with mpmath). The bounds hold with IEEE arithmetic: no
 * contraction (OpenCL: `#pragma OPENCL FP_CONTRACT OFF`), no fast-math, IK_DIV_F32 and IK_SQRT_F32 correctly rounded.
 * On a device that flushes subnormals, subnormal arguments and results are zero.
 *
 * A prelude may define any IK_ macro below before it includes this file; IK_NO_F64 leaves out the F64 half. Names that
 * begin with ikm_ are private. */
#ifndef ISOKERN_MATH_H
#define ISOKERN_MATH_H

#ifndef IK_INLINE
#define IK_INLINE inline __attribute__((always_inline))
#endif
#ifndef IK_UINT32
#define IK_UINT32 unsigned int
#endif
#ifndef IK_UINT64
#ifdef __OPENCL_VERSION__
#define IK_UINT64 ulong
#else
#define IK_UINT64 unsigned long long
#endif
#endif
#ifndef IK_F32_BITS
static IK_INLINE IK_UINT32 ikm_f32_bits(float x)
{
    union {
        float f;
        IK_UINT32 u;
    } pun;
    pun.f = x;
    return pun.u;
}
#define IK_F32_BITS(x) ikm_f32_bits(x)
#endif
#ifndef IK_BITS_F32
static IK_INLINE float ikm_bits_f32(IK_UINT32 u)
{
    union {
        IK_UINT32 u;
        float f;
    } pun;
    pun.u = u;
    return pun.f;
}
#define IK_BITS_F32(u) ikm_bits_f32(u)
#endif
#ifndef IK_FMA_F32 /* a prelude with its own IK_FMA_F32 defines IK_FMA_ROUNDS_ONCE as 1 where that rounds once */
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define IK_FMA_F32(a, b, c) __builtin_fmaf(a, b, c)
#define IK_FMA_ROUNDS_ONCE 1
#else
#define IK_FMA_F32(a, b, c) ((a) * (b) + (c))
#define IK_FMA_ROUNDS_ONCE 0
#endif
#endif
#ifndef IK_SQRT_F32
#define IK_SQRT_F32(x) __builtin_sqrtf(x)
#endif
#ifndef IK_DIV_F32
#define IK_DIV_F32(a, b) ((a) / (b))
#endif

#define IKM_INF_F32 IK_BITS_F32(0x7f800000u)
#define IKM_NAN_F32 IK_BITS_F32(0x7fc00000u)
#define IKM_SIGN_F32 0x80000000u

/* ---- F32: signs, comparisons, rounding (exact) ---- */

static IK_INLINE float ik_abs_f32(float x) { return IK_BITS_F32(IK_F32_BITS(x) & 0x7fffffffu); }

static IK_INLINE float ik_copysign_f32(float x, float y)
{ return IK_BITS_F32((IK_F32_BITS(x) & 0x7fffffffu) | (IK_F32_BITS(y) & IKM_SIGN_F32)); }

static IK_INLINE float ik_sign_f32(float x) { return x > 0.0f ? 1.0f : (x < 0.0f ? -1.0f : (x == 0.0f ? 0.0f : x)); }

static IK_INLINE float ik_isnan_f32(float x) { return x != x ? 1.0f : 0.0f; }

static IK_INLINE float ik_minimum_f32(float x, float y) { return x != x ? x : (x < y ? x : y); }

static IK_INLINE float ik_maximum_f32(float x, float y) { return x != x ? x : (x > y ? x : y); }

static IK_INLINE float ik_sqrt_f32(float x) { return IK_SQRT_F32(x); }

/* 1.5 ULP */
static IK_INLINE float ik_rsqrt_f32(float x) { return IK_DIV_F32(1.0f, IK_SQRT_F32(x)); }

/* Adding 2^23 leaves no fraction bits; the rounding mode, to nearest even, does the rounding. */
static IK_INLINE float ik_rint_f32(float x)
{
    float a = ik_abs_f32(x);
    float r = (a + 8388608.0f) - 8388608.0f;
    return ik_copysign_f32(a < 8388608.0f ? r : a, x);
}

static IK_INLINE float ik_trunc_f32(float x)
{
    float a = ik_abs_f32(x);
    float r = ik_abs_f32(ik_rint_f32(x));
    return ik_copysign_f32(r > a ? r - 1.0f : r, x);
}

static IK_INLINE float ik_floor_f32(float x)
{
    float r = ik_rint_f32(x);
    return ik_copysign_f32(r > x ? r - 1.0f : r, x);
}

static IK_INLINE float ik_ceil_f32(float x)
{
    float r = ik_rint_f32(x);
    return ik_copysign_f32(r < x ? r + 1.0f : r, x);
}

/* ---- F32: exponentials ---- */

/* x = n ln2 + r (Cody & Waite); t carries n + 254 in its low nine bits. */
typedef struct {
    float r, t;
} ikm_exp_arg_f32;

static IK_INLINE ikm_exp_arg_f32 ikm_exp_reduce_f32(float x)
{
    ikm_exp_arg_f32 k;
    float n;
    k.t = IK_FMA_F32(x, 1.44269504f, 12583166.0f);
    n = k.t - 12583166.0f;
    k.r = IK_FMA_F32(n, -1.42860677e-6f, IK_FMA_F32(n, -0.693145752f, x));
    return k;
}

/* e^r - 1 = r + r^2 Q(r), |r| <= ln2/2 */
static IK_INLINE float ikm_expm1_poly_f32(float r)
{
    float q = IK_FMA_F32(r, 1.99283109e-4f, 1.39334588e-3f);
    q = IK_FMA_F32(q, r, 8.33322387e-3f);
    q = IK_FMA_F32(q, r, 4.16664854e-2f);
    q = IK_FMA_F32(q, r, 0.166666672f);
    q = IK_FMA_F32(q, r, 0.5f);
    return IK_FMA_F32(q, r * r, r);
}

/* p 2^(m - 254) in two factors, so that the only rounding is that of a subnormal result */
static IK_INLINE float ikm_scale_f32(float p, IK_UINT32 m)
{
    IK_UINT32 part = m >> 1;
    return p * IK_BITS_F32(part << 23) * IK_BITS_F32((m - part) << 23);
}

/* 1.5 ULP; 2^n (1 + r + r^2 Q(r)), Q of degree 4 */
static IK_INLINE float ik_exp_f32(float x)
{
    float c = x > 89.0f ? 89.0f : x;
    ikm_exp_arg_f32 k = ikm_exp_reduce_f32(c < -104.5f ? -104.5f : c);
    float q = IK_FMA_F32(k.r, 1.39246916e-3f, 8.36709049e-3f);
    q = IK_FMA_F32(q, k.r, 4.16666009e-2f);
    q = IK_FMA_F32(q, k.r, 0.16666539f);
    q = IK_FMA_F32(q, k.r, 0.5f);
    q = IK_FMA_F32(q, k.r * k.r, k.r);
    return ikm_scale_f32(1.0f + q, IK_F32_BITS(k.t) & 511u);
}

/* 2^r = 1 + r Q(r), |r| <= 1/2 */
static IK_INLINE float ikm_exp2_poly_f32(float r)
{
    float q = IK_FMA_F32(r, 1.54446199e-4f, 1.33914256e-3f);
    q = IK_FMA_F32(q, r, 9.61809885e-3f);
    q = IK_FMA_F32(q, r, 5.55035919e-2f);
    q = IK_FMA_F32(q, r, 0.240226507f);
    q = IK_FMA_F32(q, r, 0.693147182f);
    return IK_FMA_F32(q, r, 1.0f);
}

/* 1.5 ULP; 2^n (1 + r Q(r)), n = rint x */
static IK_INLINE float ik_exp2_f32(float x)
{
    float c = x > 128.5f ? 128.5f : x;
    float t;
    c = c < -151.0f ? -151.0f : c;
    t = c + 12583166.0f;
    return ikm_scale_f32(ikm_exp2_poly_f32(c - (t - 12583166.0f)), IK_F32_BITS(t) & 511u);
}

/* 1.5 ULP; 2^n (e^r - 1) + (2^n - 1), halved because 2^n overflows for n = 128 */
static IK_INLINE float ik_expm1_f32(float x)
{
    float c = x > 89.0f ? 89.0f : x;
    ikm_exp_arg_f32 k = ikm_exp_reduce_f32(c < -18.0f ? -18.0f : c);
    float s = IK_BITS_F32(((IK_F32_BITS(k.t) & 511u) - 128u) << 23);
    float y = 2.0f * IK_FMA_F32(ikm_expm1_poly_f32(k.r), s, s - 0.5f);
    return ik_abs_f32(x) < 1e-8f ? x : ik_copysign_f32(y, x);
}

/* ---- F32: logarithms ---- */

/* x = 2^e (1 + f), 1 + f in [sqrt(1/2), sqrt(2)); x > 0 and finite */
typedef struct {
    float e, f;
} ikm_log_arg_f32;

static IK_INLINE ikm_log_arg_f32 ikm_log_reduce_f32(float x)
{
    ikm_log_arg_f32 k;
    float tiny = x < 1.17549435e-38f ? 23.0f : 0.0f;
    float s = x < 1.17549435e-38f ? x * 8388608.0f : x;
    IK_UINT32 u = IK_F32_BITS(s) + (0x3f800000u - 0x3f3504f3u);
    k.e = (float)(int)(u >> 23) - 127.0f - tiny;
    k.f = IK_BITS_F32((u & 0x7fffffu) + 0x3f3504f3u) - 1.0f;
    return k;
}

/* log(1 + f) - f = f^3 P(f) - f^2/2 */
static IK_INLINE float ikm_log_poly_f32(float f)
{
    float p = IK_FMA_F32(f, 6.89039454e-2f, -0.117859647f);
    float z = f * f;
    p = IK_FMA_F32(p, f, 0.118789136f);
    p = IK_FMA_F32(p, f, -0.123857416f);
    p = IK_FMA_F32(p, f, 0.14218463f);
    p = IK_FMA_F32(p, f, -0.166691706f);
    p = IK_FMA_F32(p, f, 0.200022236f);
    p = IK_FMA_F32(p, f, -0.249999866f);
    p = IK_FMA_F32(p, f, 0.333333105f);
    return IK_FMA_F32(z * f, p, -0.5f * z);
}

/* 0 -> -Inf, below 0 -> NaN, Inf and NaN stay */
static IK_INLINE float ikm_log_special_f32(float y, float x)
{
    float s = x < IKM_INF_F32 ? y : x;
    float bad = x == 0.0f ? -IKM_INF_F32 : IKM_NAN_F32;
    return x > 0.0f ? s : bad;
}

static IK_INLINE float ikm_log_join_f32(float e, float f)
{
    float y = IK_FMA_F32(e, 1.42860677e-6f, ikm_log_poly_f32(f)) + f;
    return IK_FMA_F32(e, 0.693145752f, y);
}

/* 1 ULP; e ln2 (Cody & Waite) + log(1 + f), P of degree 8 */
static IK_INLINE float ik_log_f32(float x)
{
    ikm_log_arg_f32 k = ikm_log_reduce_f32(x);
    return ikm_log_special_f32(ikm_log_join_f32(k.e, k.f), x);
}

/* the upper 12 bits: a product of two such numbers is exact */
static IK_INLINE float ikm_head_f32(float x) { return IK_BITS_F32(IK_F32_BITS(x) & 0xfffff000u); }

/* 1.5 ULP; f log2(e) in two parts */
static IK_INLINE float ik_log2_f32(float x)
{
    ikm_log_arg_f32 k = ikm_log_reduce_f32(x);
    float h = ikm_head_f32(k.f);
    float low = IK_FMA_F32(k.f - h, 1.44238281f, k.f * 3.12228396e-4f);
    low = IK_FMA_F32(ikm_log_poly_f32(k.f), 1.44269504f, low);
    return ikm_log_special_f32((k.e + h * 1.44238281f) + low, x);
}

/* 2 ULP; f log10(e) in two parts */
static IK_INLINE float ik_log10_f32(float x)
{
    ikm_log_arg_f32 k = ikm_log_reduce_f32(x);
    float h = ikm_head_f32(k.f);
    float low = IK_FMA_F32(k.f - h, 0.434204102f, k.f * 9.03803375e-5f);
    low = IK_FMA_F32(ikm_log_poly_f32(k.f), 0.434294482f, low);
    low = IK_FMA_F32(k.e, 4.60503907e-6f, low);
    return ikm_log_special_f32(IK_FMA_F32(k.e, 0.301025391f, h * 0.434204102f) + low, x);
}

/* log(1 + x) + e2 ln2 for x >= 0 or x > -1; the rounding error of 1 + x (Knuth's TwoSum) is added to f */
static IK_INLINE float ikm_log1p_f32(float x, float e2)
{
    float u = 1.0f + x;
    float v = u - 1.0f;
    float c = (1.0f - (u - v)) + (x - v);
    IK_UINT32 b = IK_F32_BITS(u) + (0x3f800000u - 0x3f3504f3u);
    float e = (float)(int)(b >> 23) - 127.0f;
    float m = IK_BITS_F32((b & 0x7fffffu) + 0x3f3504f3u);
    float s = IK_BITS_F32((254u << 23) - (b & 0x7f800000u));
    float f = (m - 1.0f) + (e < 64.0f ? c * s : 0.0f);
    return ikm_log_join_f32(e + e2, f);
}

/* 1.5 ULP; 1 + x in two floats */
static IK_INLINE float ik_log1p_f32(float x)
{
    float y = ikm_log1p_f32(x, 0.0f);
    float s = x < IKM_INF_F32 ? y : x;
    float bad = x == -1.0f ? -IKM_INF_F32 : IKM_NAN_F32;
    return x > -1.0f ? ik_copysign_f32(s, x) : bad;
}

/* ---- F32: hyperbolic functions ---- */

/* e^a / 2 for 0 <= a, Inf from 89.4 on */
static IK_INLINE float ikm_half_exp_f32(float a)
{
    ikm_exp_arg_f32 k = ikm_exp_reduce_f32(a > 90.0f ? 90.0f : a);
    return ikm_scale_f32(1.0f + ikm_expm1_poly_f32(k.r), (IK_F32_BITS(k.t) & 511u) - 1u);
}

/* 2 ULP; below 1 a + a^3 P(a^2), then E - 1/(4E), E = e^a / 2 */
static IK_INLINE float ik_sinh_f32(float x)
{
    float a = ik_abs_f32(x);
    float z = a * a;
    float h = ikm_half_exp_f32(a);
    float p = IK_FMA_F32(z, 2.78392577e-6f, 1.98426351e-4f);
    p = IK_FMA_F32(p, z, 8.33331142e-3f);
    p = IK_FMA_F32(p, z, 0.166666672f);
    p = IK_FMA_F32(p, z * a, a);
    return ik_copysign_f32(a < 1.0f ? p : h - IK_DIV_F32(0.25f, h), x);
}

/* 1.5 ULP; E + 1/(4E), E = e^a / 2 */
static IK_INLINE float ik_cosh_f32(float x)
{
    float h = ikm_half_exp_f32(ik_abs_f32(x));
    return h + IK_DIV_F32(0.25f, h);
}

/* 1.5 ULP; below 0.6 a + a^3 P(a^2), then 1 - 2/(e^2a + 1) */
static IK_INLINE float ik_tanh_f32(float x)
{
    float a = ik_abs_f32(x);
    float z = a * a;
    ikm_exp_arg_f32 k = ikm_exp_reduce_f32(a > 10.0f ? 20.0f : a + a);
    float s = IK_BITS_F32(((IK_F32_BITS(k.t) & 511u) - 127u) << 23);
    float big = 1.0f - IK_DIV_F32(2.0f, IK_FMA_F32(ikm_expm1_poly_f32(k.r), s, s) + 1.0f);
    float p = IK_FMA_F32(z, -5.8961357e-3f, 2.0797668e-2f);
    p = IK_FMA_F32(p, z, -5.37845977e-2f);
    p = IK_FMA_F32(p, z, 0.133319363f);
    p = IK_FMA_F32(p, z, -0.333332986f);
    p = IK_FMA_F32(p, z * a, a);
    return ik_copysign_f32(a < 0.6f ? p : big, x);
}

/* sqrt(1 + a^2) - 1: where FMA rounds once, from the root and the rounding errors of 1 + a^2 and of the root, instead
 * of a division */
static IK_INLINE float ikm_hypot1_f32(float a)
{
#if IK_FMA_ROUNDS_ONCE
    float w = IK_FMA_F32(a, a, 1.0f);
    float s = IK_SQRT_F32(w);
    float rest = IK_FMA_F32(a, a, 1.0f - w) + IK_FMA_F32(-s, s, w);
    return (s - 1.0f) + (a < 1.0f ? 0.5f * rest : 0.0f);
#else
    float z = a * a;
    return IK_DIV_F32(z, 1.0f + IK_SQRT_F32(1.0f + z));
#endif
}

/* 2 ULP; log1p(a + sqrt(1 + a^2) - 1), for large a log(2a) */
static IK_INLINE float ik_asinh_f32(float x)
{
    float a = ik_abs_f32(x);
    float t = a + ikm_hypot1_f32(a);
    float y = ikm_log1p_f32(a > 1e9f ? a : t, a > 1e9f ? 1.0f : 0.0f);
    return ik_copysign_f32(a < IKM_INF_F32 ? y : a, x);
}

/* 2 ULP; log1p(t + sqrt(2t + t^2)), t = x - 1, for large x log(2x) */
static IK_INLINE float ik_acosh_f32(float x)
{
    float t = x - 1.0f;
    float u = t + IK_SQRT_F32(IK_FMA_F32(t, t, t + t));
    float y = ikm_log1p_f32(x > 1e9f ? x : u, x > 1e9f ? 1.0f : 0.0f);
    float s = x < IKM_INF_F32 ? y : x;
    return x >= 1.0f ? s : IKM_NAN_F32;
}

/* 2.5 ULP; log1p(2a / (1 - a)) / 2 */
static IK_INLINE float ik_atanh_f32(float x)
{
    float a = ik_abs_f32(x);
    float t = a > 1.0f ? IKM_NAN_F32 : IK_DIV_F32(a + a, 1.0f - a);
    float y = 0.5f * ikm_log1p_f32(t, 0.0f);
    return ik_copysign_f32(t < IKM_INF_F32 ? y : t, x);
}

/* ---- F32: trigonometric functions ---- */

/* |x| = q pi/2 + r, |r| <= pi/4, q mod 4; every finite x (Payne & Hanek 1983): |x| is I + F 2^-32 times 2^(32 j), and
 * the words of 1/(2 pi) that can change the angle are chosen by j. T is the angle in turns, 64 bits after the point. */
typedef struct {
    float r;
    IK_UINT32 q;
} ikm_trig_arg_f32;

/* |x| < IK_NEAR_F32: pi/2 in three floats (Cody & Waite 1980) where FMA rounds once; elsewhere only q = 0. For a run of
 * such numbers ik_<function>_near_f32 gives the same bits of sin, cos and tan at a lower cost. */
#if IK_FMA_ROUNDS_ONCE
#define IK_NEAR_F32 65536.0f
static IK_INLINE ikm_trig_arg_f32 ikm_trig_near_f32(float x)
{
    ikm_trig_arg_f32 k;
    float a = ik_abs_f32(x);
    float t = IK_FMA_F32(a, 0.636619747f, 12582912.0f); /* rounded to an integer: 1.5 * 2^23 has no fraction bits */
    float q = t - 12582912.0f;
    k.q = IK_F32_BITS(t) & 3u;
    k.r = IK_FMA_F32(q, -1.57079637f, a);
    k.r = IK_FMA_F32(q, 4.37113883e-8f, k.r);
    k.r = IK_FMA_F32(q, 1.71512451e-15f, k.r);
    return k;
}
#else
#define IK_NEAR_F32 0.785398163f
static IK_INLINE ikm_trig_arg_f32 ikm_trig_near_f32(float x)
{
    ikm_trig_arg_f32 k;
    k.r = ik_abs_f32(x);
    k.q = 0u;
    return k;
}
#endif

static IK_INLINE ikm_trig_arg_f32 ikm_trig_reduce_f32(float x)
{
    ikm_trig_arg_f32 k, n = ikm_trig_near_f32(x);
    float a = ik_abs_f32(x);
    IK_UINT32 j1 = 0u - (IK_UINT32)(a >= 4294967296.0f);
    IK_UINT32 j2 = 0u - (IK_UINT32)(a >= 1.84467441e19f);
    IK_UINT32 j3 = 0u - (IK_UINT32)(a >= 7.92281625e28f);
    float s = IK_BITS_F32(0x3f000000u - (0x10000000u & j1) - (0x10000000u & j2) - (0x10000000u & j3));
    IK_UINT32 v0 = (j1 & 0x517cc1b7u) ^ (j2 & (0x517cc1b7u ^ 0x27220a94u)) ^ (j3 & (0x27220a94u ^ 0xfe13abe8u));
    IK_UINT32 v1 = 0x517cc1b7u ^ (j1 & (0x517cc1b7u ^ 0x27220a94u)) ^ (j2 & (0x27220a94u ^ 0xfe13abe8u))
        ^ (j3 & (0xfe13abe8u ^ 0xfa9a6ee0u));
    IK_UINT32 v2 = 0x27220a94u ^ (j1 & (0x27220a94u ^ 0xfe13abe8u)) ^ (j2 & (0xfe13abe8u ^ 0xfa9a6ee0u))
        ^ (j3 & (0xfa9a6ee0u ^ 0x6db14accu));
    IK_UINT32 v3 = 0xfe13abe8u ^ (j1 & (0xfe13abe8u ^ 0xfa9a6ee0u)) ^ (j2 & (0xfa9a6ee0u ^ 0x6db14accu))
        ^ (j3 & (0x6db14accu ^ 0x9e21c820u));
    IK_UINT32 finite = 0u - (IK_UINT32)(a < IKM_INF_F32);
    IK_UINT32 near = 0u - (IK_UINT32)(a < IK_NEAR_F32);
    float b = IK_BITS_F32(IK_F32_BITS(a) & finite) * s;
    int whole = (int)b;
    IK_UINT32 i = (IK_UINT32)whole;
    IK_UINT32 f = (IK_UINT32)(int)((b - (float)whole) * 33554432.0f) << 7;
    IK_UINT64 t = ((IK_UINT64)(i * v1 + f * v0) << 32) + (IK_UINT64)i * v2 + (IK_UINT64)f * v1;
    IK_UINT32 hi, mid;
    float rest;
    t += (((IK_UINT64)i * v3) >> 32) + (((IK_UINT64)f * v2) >> 32);
    hi = (IK_UINT32)(t >> 32) + 0x20000000u;
    k.q = (n.q & near) | ((hi >> 30) & ~near);
    hi = (hi & 0x3fffffffu) - 0x20000000u;
    mid = (hi + 0x10000u) & 0xfffe0000u; /* 13 bits, exact times the head of 2 pi */
    rest = IK_FMA_F32((float)(int)((IK_UINT32)t >> 8), 5.96046448e-8f, (float)(int)(hi - mid));
    rest = IK_FMA_F32((float)(int)mid, 4.50598814e-13f, rest * 1.46291808e-9f);
    rest = IK_FMA_F32((float)(int)mid, 1.46246748e-9f, rest);
    k.r = IK_BITS_F32((IK_F32_BITS(n.r) & near) | (IK_F32_BITS(rest) & ~near) | ~finite);
    return k;
}

/* sin r = r + r^3 S(r^2), |r| <= pi/4 */
static IK_INLINE float ikm_sin_poly_f32(float r)
{
    float z = r * r;
    float p = IK_FMA_F32(z, -1.95184053e-4f, 8.3321901e-3f);
    p = IK_FMA_F32(p, z, -0.166666552f);
    return IK_FMA_F32(p, z * r, r);
}

/* cos r = 1 - r^2/2 + r^4 C(r^2) */
static IK_INLINE float ikm_cos_poly_f32(float r)
{
    float z = r * r;
    float p = IK_FMA_F32(z, 2.44306739e-5f, -1.38873013e-3f);
    p = IK_FMA_F32(p, z, 4.16666456e-2f);
    return IK_FMA_F32(p, z * z, IK_FMA_F32(z, -0.5f, 1.0f));
}

/* sin x from |x| reduced: sin r or cos r by quadrant */
static IK_INLINE float ikm_sin_of_f32(ikm_trig_arg_f32 k, float x)
{
    float s = ikm_sin_poly_f32(k.r);
    float c = ikm_cos_poly_f32(k.r);
    IK_UINT32 flip = ((k.q & 2u) << 30) ^ (IK_F32_BITS(x) & IKM_SIGN_F32);
    return IK_BITS_F32(IK_F32_BITS((k.q & 1u) ? c : s) ^ flip);
}

/* cos x from |x| reduced: cos r or sin r by quadrant */
static IK_INLINE float ikm_cos_of_f32(ikm_trig_arg_f32 k)
{
    float s = ikm_sin_poly_f32(k.r);
    float c = ikm_cos_poly_f32(k.r);
    IK_UINT32 flip = ((k.q + 1u) & 2u) << 30;
    return IK_BITS_F32(IK_F32_BITS((k.q & 1u) ? s : c) ^ flip);
}

/* tan x from |x| reduced: sin r / cos r or -cos r / sin r */
static IK_INLINE float ikm_tan_of_f32(ikm_trig_arg_f32 k, float x)
{
    float s = ikm_sin_poly_f32(k.r);
    float c = ikm_cos_poly_f32(k.r);
    float y = IK_DIV_F32((k.q & 1u) ? -c : s, (k.q & 1u) ? s : c);
    return IK_BITS_F32(IK_F32_BITS(y) ^ (IK_F32_BITS(x) & IKM_SIGN_F32));
}

/* 2 ULP, every finite x */
static IK_INLINE float ik_sin_f32(float x) { return ikm_sin_of_f32(ikm_trig_reduce_f32(x), x); }
static IK_INLINE float ik_sin_near_f32(float x) { return ikm_sin_of_f32(ikm_trig_near_f32(x), x); }

/* 2 ULP, every finite x */
static IK_INLINE float ik_cos_f32(float x) { return ikm_cos_of_f32(ikm_trig_reduce_f32(x)); }
static IK_INLINE float ik_cos_near_f32(float x) { return ikm_cos_of_f32(ikm_trig_near_f32(x)); }

/* 4 ULP, every finite x */
static IK_INLINE float ik_tan_f32(float x) { return ikm_tan_of_f32(ikm_trig_reduce_f32(x), x); }
static IK_INLINE float ik_tan_near_f32(float x) { return ikm_tan_of_f32(ikm_trig_near_f32(x), x); }

/* w + w^3 P(w^2): asin w, w <= 1/2 */
static IK_INLINE float ikm_asin_poly_f32(float w, float z)
{
    float p = IK_FMA_F32(z, 4.22198214e-2f, 2.41481233e-2f);
    p = IK_FMA_F32(p, z, 4.54766601e-2f);
    p = IK_FMA_F32(p, z, 7.49524906e-2f);
    p = IK_FMA_F32(p, z, 0.166667536f);
    return IK_FMA_F32(p, z * w, w);
}

/* 2.5 ULP; above 1/2 pi/2 - 2 asin(sqrt((1 - a)/2)) */
static IK_INLINE float ik_asin_f32(float x)
{
    float a = ik_abs_f32(x);
    float z = a > 0.5f ? 0.5f - 0.5f * a : a * a;
    float p = ikm_asin_poly_f32(a > 0.5f ? IK_SQRT_F32(z) : a, z);
    float y = a > 0.5f ? 1.57079625f - (p + p - 7.54979013e-8f) : p;
    return ik_copysign_f32(y, x);
}

/* 1.5 ULP; 2 asin(sqrt((1 - a)/2)) above 1/2, pi less that below -1/2, else pi/2 - asin x */
static IK_INLINE float ik_acos_f32(float x)
{
    float a = ik_abs_f32(x);
    float z = a > 0.5f ? 0.5f - 0.5f * a : a * a;
    float p = ikm_asin_poly_f32(a > 0.5f ? IK_SQRT_F32(z) : a, z);
    float mid = 1.57079625f - (ik_copysign_f32(p, x) - 7.54979013e-8f);
    float end = x > 0.0f ? p + p : 3.1415925f - (p + p - 1.50995803e-7f);
    return a > 0.5f ? end : mid;
}

/* 2 ULP; a, (a - 1)/(a + 1) + pi/4 or -1/a + pi/2, split at tan(pi/8) and tan(3 pi/8) */
static IK_INLINE float ik_atan_f32(float x)
{
    float a = ik_abs_f32(x);
    int outer = a > 2.41421356f;
    int mid = a > 0.414213562f;
    float num = outer ? -1.0f : (mid ? a - 1.0f : a);
    float den = outer ? a : (mid ? a + 1.0f : 1.0f);
    float off = outer ? 1.57079625f : (mid ? 0.785398126f : 0.0f);
    float low = outer ? 7.54979013e-8f : (mid ? 3.77489507e-8f : 0.0f);
    float t = IK_DIV_F32(num, den);
    float z = t * t;
    float p = IK_FMA_F32(z, -6.09156936e-2f, 0.105997719f);
    p = IK_FMA_F32(p, z, -0.14244467f);
    p = IK_FMA_F32(p, z, 0.19998531f);
    p = IK_FMA_F32(p, z, -0.333333164f);
    return ik_copysign_f32(off + (IK_FMA_F32(p, z * t, low) + t), x);
}

/* ---- F32: remainders (exact) ---- */

/* The remainder of |x| / |y| with x's sign, as C's fmod: the significand of x modulo that of y, 40 bits of the
 * difference of the exponents at a time. Not branch-free, since the number of steps depends on the numbers. */
static IK_INLINE float ik_fmod_f32(float x, float y)
{
    const IK_UINT32 a = IK_F32_BITS(ik_abs_f32(x)), b = IK_F32_BITS(ik_abs_f32(y)), one = 1u << 23,
                    inf = IK_F32_BITS(IKM_INF_F32);
    IK_UINT32 ea = a >> 23, eb = b >> 23;
    IK_UINT64 ma = (a & (one - 1u)) | (ea ? one : 0u), mb = (b & (one - 1u)) | (eb ? one : 0u);
    if (a >= inf || b > inf || b == 0u)
        return IKM_NAN_F32;
    if (a < b)
        return x;
    ea += ea == 0u;
    eb += eb == 0u;
    for (ma %= mb; ea > eb && ma; ma %= mb) {
        const IK_UINT32 step = ea - eb < 40u ? ea - eb : 40u;
        ma <<= step;
        ea -= step;
    }
    return ik_copysign_f32((float)(int)ma * 1.1920929e-7f * IK_BITS_F32(eb << 23), x);
}

/* The remainder with y's sign, as Python's and NumPy's; 0.5 ULP, since where the signs differ it is the sum of both */
static IK_INLINE float ik_remainder_f32(float x, float y)
{
    const float r = ik_fmod_f32(x, y), s = (r < 0.0f) != (y < 0.0f) ? r + y : r;
    return r == 0.0f ? ik_copysign_f32(r, y) : s;
}

/* ---- F32: erf, erfc, cbrt, pow ---- */

/* 1.5 ULP; below 1 a + a P(a^2), then 1 - e^-Q(a), Q = -log erfc */
static IK_INLINE float ik_erf_f32(float x)
{
    float a = ik_abs_f32(x);
    float z = a * a;
    float c = a > 4.0f ? 4.0f : a;
    float p = IK_FMA_F32(z, 7.92036808e-5f, -8.03076138e-4f);
    float q = IK_FMA_F32(c, 2.16922945e-5f, -4.41424811e-4f);
    ikm_exp_arg_f32 k;
    float s;
    p = IK_FMA_F32(p, z, 5.19073382e-3f);
    p = IK_FMA_F32(p, z, -2.6855126e-2f);
    p = IK_FMA_F32(p, z, 0.112836182f);
    p = IK_FMA_F32(p, z, -0.376126289f);
    p = IK_FMA_F32(p, z, 0.128379166f);
    p = IK_FMA_F32(p, a, a);
    q = IK_FMA_F32(q, c, 4.20510629e-3f);
    q = IK_FMA_F32(q, c, -2.52099875e-2f);
    q = IK_FMA_F32(q, c, 0.108421713f);
    q = IK_FMA_F32(q, c, 0.633216619f);
    q = IK_FMA_F32(q, c, 1.12958026f);
    q = IK_FMA_F32(q, c, -1.88468155e-4f);
    k = ikm_exp_reduce_f32(-q);
    s = IK_BITS_F32(((IK_F32_BITS(k.t) & 511u) - 127u) << 23);
    q = 1.0f - IK_FMA_F32(ikm_expm1_poly_f32(k.r), s, s);
    return ik_copysign_f32(a < 1.0f ? p : q, x);
}

/* 4.5 ULP; e^-a^2 u G(1 - u), u = 3/(a + 1.5), with a^2 in two parts; of a negative number 2 less that */
static IK_INLINE float ik_erfc_f32(float x)
{
    float a = ik_abs_f32(x);
    float c = a > 10.5f ? 10.5f : a;
    float h = ikm_head_f32(c);
    float u = IK_DIV_F32(3.0f, c + 1.5f);
    float t = 1.0f - u;
    float g = IK_FMA_F32(t, -4.7236597e-5f, -5.826124e-5f);
    g = IK_FMA_F32(g, t, 2.4543042e-4f);
    g = IK_FMA_F32(g, t, 6.103358e-4f);
    g = IK_FMA_F32(g, t, -2.459775e-4f);
    g = IK_FMA_F32(g, t, -3.1583533e-3f);
    g = IK_FMA_F32(g, t, -2.7116016e-3f);
    g = IK_FMA_F32(g, t, 0.015923306f);
    g = IK_FMA_F32(g, t, 0.025207635f);
    g = IK_FMA_F32(g, t, -0.16928336f);
    g = IK_FMA_F32(g, t, 0.32158542f);
    ikm_exp_arg_f32 k = ikm_exp_reduce_f32(-h * h);
    float e = ikm_expm1_poly_f32(IK_FMA_F32(h - c, h + c, k.r));
    float y = ikm_scale_f32(IK_FMA_F32(e, g, g) * u, IK_F32_BITS(k.t) & 511u);
    return x < 0.0f ? 2.0f - y : y;
}

/* 1 ULP; a third of the exponent, then Halley's step twice */
static IK_INLINE float ik_cbrt_f32(float x)
{
    float a = ik_abs_f32(x);
    int tiny = a < 9.40395481e-38f;
    float s = a * (tiny ? 16777216.0f : 0.125f);
    float third = (float)(int)IK_F32_BITS(s) * 0.333333343f;
    float t = IK_BITS_F32((IK_UINT32)(int)third + 709952853u);
    float c = t * t * t;
    t = t * IK_DIV_F32(c + (s + s), c + c + s);
    c = t * t * t;
    t = IK_FMA_F32(t, IK_DIV_F32(s - c, c + c + s), t);
    t = t * (tiny ? 3.90625e-3f : 2.0f);
    t = a < IKM_INF_F32 ? t : a;
    return a == 0.0f ? x : ik_copysign_f32(t, x);
}

/* 1.5 ULP; y log2|x| in two floats: log2(1 + f) = 2/(3 ln2) s (3 + s^2 + s^4 R(s^2)), s = f/(2 + f), as in Sun's
 * fdlibm */
static IK_INLINE float ik_pow_f32(float x, float y)
{
    float a = ik_abs_f32(x);
    float b = ik_abs_f32(y);
    ikm_log_arg_f32 k = ikm_log_reduce_f32(a);
    float d = k.f + 2.0f;
    float dh = ikm_head_f32(d);
    float dl = k.f - (dh - 2.0f);
    float s = IK_DIV_F32(k.f, d);
    float sh = ikm_head_f32(s);
    float sl = IK_DIV_F32(k.f - sh * dh - sh * dl, d);
    float z = s * s;
    float r = IK_FMA_F32(IK_FMA_F32(IK_FMA_F32(z, 0.293391943f, 0.332694232f), z, 0.428579599f), z, 0.599999964f);
    float th, tl, ph, pl, v, n, t, w, yc, special;
    int whole, odd, negative;
    r = IK_FMA_F32(r, z * z, sl * (sh + s));
    z = sh * sh;
    th = ikm_head_f32(3.0f + z + r);
    tl = r - ((th - 3.0f) - z);
    v = IK_FMA_F32(sl, th, tl * s);
    ph = ikm_head_f32(IK_FMA_F32(sh, th, v));
    pl = v - (ph - sh * th);
    v = IK_FMA_F32(1.26772051e-4f, ph, pl * 0.961796694f);
    z = 0.961669922f * ph;
    th = ikm_head_f32((z + v) + k.e);
    tl = v - ((th - k.e) - z);

    yc = b > 1e12f ? ik_copysign_f32(1e12f, y) : y;
    ph = ikm_head_f32(yc);
    pl = IK_FMA_F32(yc - ph, th, yc * tl);
    ph = ph * th;
    z = ph + pl;
    t = z > 130.0f ? 130.0f : z;
    t = (t < -152.0f ? -152.0f : t) + 12583166.0f;
    n = t - 12583166.0f;
    w = ikm_scale_f32(ikm_exp2_poly_f32((ph - n) + pl), IK_F32_BITS(t) & 511u);
    w = z > 129.0f ? IKM_INF_F32 : w;
    w = z < -151.0f ? 0.0f : w;

    w = a == 0.0f ? (y < 0.0f ? IKM_INF_F32 : 0.0f) : w;
    w = a == IKM_INF_F32 ? (y < 0.0f ? 0.0f : IKM_INF_F32) : w;
    whole = ik_rint_f32(b) == b;
    odd = (b < 16777216.0f) & whole & (ik_rint_f32(0.5f * b) != 0.5f * b);
    negative = (x < 0.0f) & (a < IKM_INF_F32);
    special = (negative & !whole) ? IKM_NAN_F32 : w;
    special = ((x != x) | (y != y)) ? IKM_NAN_F32 : special;
    special = odd ? IK_BITS_F32(IK_F32_BITS(special) ^ (IK_F32_BITS(x) & IKM_SIGN_F32)) : special;
    return ((y == 0.0f) | (x == 1.0f)) ? 1.0f : special;
}

#ifndef IK_NO_F64
/* ==== F64: the same functions by the same formulas with longer polynomials, except where noted. No step needs 64-bit
 * integer compares or conversions, which SSE2 and AVX2 lack. ==== */

#ifndef IK_F64_BITS
static IK_INLINE IK_UINT64 ikm_f64_bits(double x)
{
    union {
        double f;
        IK_UINT64 u;
    } pun;
    pun.f = x;
    return pun.u;
}
#define IK_F64_BITS(x) ikm_f64_bits(x)
#endif
#ifndef IK_BITS_F64
static IK_INLINE double ikm_bits_f64(IK_UINT64 u)
{
    union {
        IK_UINT64 u;
        double f;
    } pun;
    pun.u = u;
    return pun.f;
}
#define IK_BITS_F64(u) ikm_bits_f64(u)
#endif
#ifndef IK_FMA_F64
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
#define IK_FMA_F64(a, b, c) __builtin_fma(a, b, c)
#else
#define IK_FMA_F64(a, b, c) ((a) * (b) + (c))
#endif
#endif
#ifndef IK_SQRT_F64
#define IK_SQRT_F64(x) __builtin_sqrt(x)
#endif

#define IKM_U64(hi, lo) (((IK_UINT64)(hi) << 32) | (IK_UINT64)(lo))
#define IKM_INF_F64 IK_BITS_F64(IKM_U64(0x7ff00000u, 0u))
#define IKM_NAN_F64 IK_BITS_F64(IKM_U64(0x7ff80000u, 0u))
#define IKM_SIGN_F64 IKM_U64(0x80000000u, 0u)

/* ---- F64: signs, comparisons, rounding (exact) ---- */

static IK_INLINE double ik_abs_f64(double x) { return IK_BITS_F64(IK_F64_BITS(x) & ~IKM_SIGN_F64); }

static IK_INLINE double ik_copysign_f64(double x, double y)
{ return IK_BITS_F64((IK_F64_BITS(x) & ~IKM_SIGN_F64) | (IK_F64_BITS(y) & IKM_SIGN_F64)); }

static IK_INLINE double ik_sign_f64(double x) { return x > 0.0 ? 1.0 : (x < 0.0 ? -1.0 : (x == 0.0 ? 0.0 : x)); }

static IK_INLINE double ik_isnan_f64(double x) { return x != x ? 1.0 : 0.0; }

static IK_INLINE double ik_minimum_f64(double x, double y) { return x != x ? x : (x < y ? x : y); }

static IK_INLINE double ik_maximum_f64(double x, double y) { return x != x ? x : (x > y ? x : y); }

static IK_INLINE double ik_sqrt_f64(double x) { return IK_SQRT_F64(x); }

/* 1.5 ULP */
static IK_INLINE double ik_rsqrt_f64(double x) { return 1.0 / IK_SQRT_F64(x); }

static IK_INLINE double ik_rint_f64(double x)
{
    double a = ik_abs_f64(x);
    double r = (a + 4503599627370496.0) - 4503599627370496.0;
    return ik_copysign_f64(a < 4503599627370496.0 ? r : a, x);
}

static IK_INLINE double ik_trunc_f64(double x)
{
    double a = ik_abs_f64(x);
    double r = ik_abs_f64(ik_rint_f64(x));
    return ik_copysign_f64(r > a ? r - 1.0 : r, x);
}

static IK_INLINE double ik_floor_f64(double x)
{
    double r = ik_rint_f64(x);
    return ik_copysign_f64(r > x ? r - 1.0 : r, x);
}

static IK_INLINE double ik_ceil_f64(double x)
{
    double r = ik_rint_f64(x);
    return ik_copysign_f64(r < x ? r + 1.0 : r, x);
}

/* ---- F64: exponentials ---- */

/* t carries n + 2046 in its low twelve bits */
typedef struct {
    double r, t;
} ikm_exp_arg_f64;

static IK_INLINE ikm_exp_arg_f64 ikm_exp_reduce_f64(double x)
{
    ikm_exp_arg_f64 k;
    double n;
    k.t = IK_FMA_F64(x, 1.4426950408889634, 6755399441057790.0);
    n = k.t - 6755399441057790.0;
    k.r = IK_FMA_F64(n, -2.8235290563031577e-13, IK_FMA_F64(n, -0.69314718055966296, x));
    return k;
}

static IK_INLINE double ikm_expm1_poly_f64(double r)
{
    double q = IK_FMA_F64(r, 2.0924524517721804e-09, 2.5109147408518876e-08);
    q = IK_FMA_F64(q, r, 2.7557242497880478e-07);
    q = IK_FMA_F64(q, r, 2.7557243911565535e-06);
    q = IK_FMA_F64(q, r, 2.4801587360861031e-05);
    q = IK_FMA_F64(q, r, 0.00019841269886401228);
    q = IK_FMA_F64(q, r, 0.0013888888888866685);
    q = IK_FMA_F64(q, r, 0.0083333333333215319);
    q = IK_FMA_F64(q, r, 0.041666666666666699);
    q = IK_FMA_F64(q, r, 0.16666666666666677);
    q = IK_FMA_F64(q, r, 0.5);
    return IK_FMA_F64(q, r * r, r);
}

/* p 2^(m - 2046) */
static IK_INLINE double ikm_scale_f64(double p, IK_UINT64 m)
{
    IK_UINT64 part = m >> 1;
    return p * IK_BITS_F64(part << 52) * IK_BITS_F64((m - part) << 52);
}

/* 1 ULP */
static IK_INLINE double ik_exp_f64(double x)
{
    double c = x > 710.0 ? 710.0 : x;
    ikm_exp_arg_f64 k = ikm_exp_reduce_f64(c < -746.0 ? -746.0 : c);
    return ikm_scale_f64(1.0 + ikm_expm1_poly_f64(k.r), IK_F64_BITS(k.t) & 4095u);
}

static IK_INLINE double ikm_exp2_poly_f64(double r)
{
    double q = IK_FMA_F64(r, 4.5065726473723232e-10, 7.0737134463262558e-09);
    q = IK_FMA_F64(q, r, 1.0177828086779632e-07);
    q = IK_FMA_F64(q, r, 1.3215435805015844e-06);
    q = IK_FMA_F64(q, r, 1.5252734179011437e-05);
    q = IK_FMA_F64(q, r, 0.00015403530455495245);
    q = IK_FMA_F64(q, r, 0.0013333558146167445);
    q = IK_FMA_F64(q, r, 0.0096181291075964001);
    q = IK_FMA_F64(q, r, 0.055504108664822742);
    q = IK_FMA_F64(q, r, 0.24022650695910119);
    q = IK_FMA_F64(q, r, 0.69314718055994529);
    return IK_FMA_F64(q, r, 1.0);
}

/* 1.5 ULP */
static IK_INLINE double ik_exp2_f64(double x)
{
    double c = x > 1024.5 ? 1024.5 : x;
    double t;
    c = c < -1076.0 ? -1076.0 : c;
    t = c + 6755399441057790.0;
    return ikm_scale_f64(ikm_exp2_poly_f64(c - (t - 6755399441057790.0)), IK_F64_BITS(t) & 4095u);
}

/* 2 ULP */
static IK_INLINE double ik_expm1_f64(double x)
{
    double c = x > 710.0 ? 710.0 : x;
    ikm_exp_arg_f64 k = ikm_exp_reduce_f64(c < -40.0 ? -40.0 : c);
    double s = IK_BITS_F64(((IK_F64_BITS(k.t) & 4095u) - 1024u) << 52);
    double y = 2.0 * IK_FMA_F64(ikm_expm1_poly_f64(k.r), s, s - 0.5);
    return ik_abs_f64(x) < 1e-17 ? x : ik_copysign_f64(y, x);
}

/* ---- F64: logarithms ---- */

typedef struct {
    double e, f;
} ikm_log_arg_f64;

/* the biased exponent of positive bits, through the fraction of 2^52 */
static IK_INLINE double ikm_exponent_f64(IK_UINT64 u)
{ return IK_BITS_F64(IKM_U64(0x43300000u, 0u) | (u >> 52)) - 4503599627371519.0; }

static IK_INLINE ikm_log_arg_f64 ikm_log_reduce_f64(double x)
{
    ikm_log_arg_f64 k;
    double tiny = x < 2.2250738585072014e-308 ? 52.0 : 0.0;
    double s = x < 2.2250738585072014e-308 ? x * 4503599627370496.0 : x;
    IK_UINT64 u = IK_F64_BITS(s) + IKM_U64(0x00095f61u, 0x9980c433u);
    k.e = ikm_exponent_f64(u) - tiny;
    k.f = IK_BITS_F64((u & IKM_U64(0xfffffu, 0xffffffffu)) + IKM_U64(0x3fe6a09eu, 0x667f3bcdu)) - 1.0;
    return k;
}

/* log(1 + f) - f = s (f^2/2 + s^2 R(s^2)) - f^2/2, s = f / (2 + f), as in Sun's fdlibm */
static IK_INLINE double ikm_log_poly_f64(double f)
{
    double s = f / (2.0 + f);
    double z = s * s;
    double h = 0.5 * f * f;
    double p = IK_FMA_F64(z, 0.14798261001392513, 0.15313831998925959);
    p = IK_FMA_F64(p, z, 0.18183572359527878);
    p = IK_FMA_F64(p, z, 0.22222198428921358);
    p = IK_FMA_F64(p, z, 0.28571428743686755);
    p = IK_FMA_F64(p, z, 0.39999999999409352);
    p = IK_FMA_F64(p, z, 0.66666666666667351);
    return IK_FMA_F64(s, IK_FMA_F64(p, z, h), -h);
}

static IK_INLINE double ikm_log_special_f64(double y, double x)
{
    double s = x < IKM_INF_F64 ? y : x;
    double bad = x == 0.0 ? -IKM_INF_F64 : IKM_NAN_F64;
    return x > 0.0 ? s : bad;
}

static IK_INLINE double ikm_log_join_f64(double e, double f)
{
    double y = IK_FMA_F64(e, 2.8235290563031577e-13, ikm_log_poly_f64(f)) + f;
    return IK_FMA_F64(e, 0.69314718055966296, y);
}

/* 1 ULP */
static IK_INLINE double ik_log_f64(double x)
{
    ikm_log_arg_f64 k = ikm_log_reduce_f64(x);
    return ikm_log_special_f64(ikm_log_join_f64(k.e, k.f), x);
}

/* the upper 26 bits */
static IK_INLINE double ikm_head_f64(double x)
{ return IK_BITS_F64(IK_F64_BITS(x) & IKM_U64(0xffffffffu, 0xf8000000u)); }

/* 1.5 ULP */
static IK_INLINE double ik_log2_f64(double x)
{
    ikm_log_arg_f64 k = ikm_log_reduce_f64(x);
    double h = ikm_head_f64(k.f);
    double low = IK_FMA_F64(k.f - h, 1.4426950216293335, k.f * 1.9259629911266175e-08);
    low = IK_FMA_F64(ikm_log_poly_f64(k.f), 1.4426950408889634, low);
    return ikm_log_special_f64((k.e + h * 1.4426950216293335) + low, x);
}

/* 2 ULP */
static IK_INLINE double ik_log10_f64(double x)
{
    ikm_log_arg_f64 k = ikm_log_reduce_f64(x);
    double h = ikm_head_f64(k.f);
    double low = IK_FMA_F64(k.f - h, 0.43429447710514069, k.f * 4.7981111416159728e-09);
    low = IK_FMA_F64(ikm_log_poly_f64(k.f), 0.43429448190325182, low);
    low = IK_FMA_F64(k.e, 1.4205023227266099e-13, low);
    return ikm_log_special_f64(IK_FMA_F64(k.e, 0.30102999566383914, h * 0.43429447710514069) + low, x);
}

static IK_INLINE double ikm_log1p_f64(double x, double e2)
{
    double u = 1.0 + x;
    double v = u - 1.0;
    double c = (1.0 - (u - v)) + (x - v);
    IK_UINT64 b = IK_F64_BITS(u) + IKM_U64(0x00095f61u, 0x9980c433u);
    double e = ikm_exponent_f64(b);
    double m = IK_BITS_F64((b & IKM_U64(0xfffffu, 0xffffffffu)) + IKM_U64(0x3fe6a09eu, 0x667f3bcdu));
    double s = IK_BITS_F64(IKM_U64(0x7fe00000u, 0u) - (b & IKM_U64(0x7ff00000u, 0u)));
    double f = (m - 1.0) + (e < 128.0 ? c * s : 0.0);
    return ikm_log_join_f64(e + e2, f);
}

/* 1.5 ULP */
static IK_INLINE double ik_log1p_f64(double x)
{
    double y = ikm_log1p_f64(x, 0.0);
    double s = x < IKM_INF_F64 ? y : x;
    double bad = x == -1.0 ? -IKM_INF_F64 : IKM_NAN_F64;
    return x > -1.0 ? ik_copysign_f64(s, x) : bad;
}

/* ---- F64: hyperbolic functions ---- */

static IK_INLINE double ikm_half_exp_f64(double a)
{
    ikm_exp_arg_f64 k = ikm_exp_reduce_f64(a > 711.0 ? 711.0 : a);
    return ikm_scale_f64(1.0 + ikm_expm1_poly_f64(k.r), (IK_F64_BITS(k.t) & 4095u) - 1u);
}

/* 2 ULP */
static IK_INLINE double ik_sinh_f64(double x)
{
    double a = ik_abs_f64(x);
    double z = a * a;
    double h = ikm_half_exp_f64(a);
    double p = IK_FMA_F64(z, 6.2625231674829484e-15, 7.5110168810775507e-13);
    p = IK_FMA_F64(p, z, 1.6061227445723642e-10);
    p = IK_FMA_F64(p, z, 2.5052090218374762e-08);
    p = IK_FMA_F64(p, z, 2.7557319307078148e-06);
    p = IK_FMA_F64(p, z, 0.00019841269841066556);
    p = IK_FMA_F64(p, z, 0.0083333333333335691);
    p = IK_FMA_F64(p, z, 0.16666666666666666);
    p = IK_FMA_F64(p, z * a, a);
    return ik_copysign_f64(a < 1.0 ? p : h - 0.25 / h, x);
}

/* 1.5 ULP */
static IK_INLINE double ik_cosh_f64(double x)
{
    double h = ikm_half_exp_f64(ik_abs_f64(x));
    return h + 0.25 / h;
}

/* 3 ULP; t / (t + 2), t = e^2a - 1 */
static IK_INLINE double ik_tanh_f64(double x)
{
    double a = ik_abs_f64(x);
    ikm_exp_arg_f64 k = ikm_exp_reduce_f64(a > 20.0 ? 40.0 : a + a);
    double s = IK_BITS_F64(((IK_F64_BITS(k.t) & 4095u) - 1023u) << 52);
    double t = IK_FMA_F64(ikm_expm1_poly_f64(k.r), s, s - 1.0);
    return ik_copysign_f64(t / (t + 2.0), x);
}

/* 2 ULP */
static IK_INLINE double ik_asinh_f64(double x)
{
    double a = ik_abs_f64(x);
    double z = a * a;
    double t = a + z / (1.0 + IK_SQRT_F64(1.0 + z));
    double y = ikm_log1p_f64(a > 1e18 ? a : t, a > 1e18 ? 1.0 : 0.0);
    return ik_copysign_f64(a < IKM_INF_F64 ? y : a, x);
}

/* 2.5 ULP */
static IK_INLINE double ik_acosh_f64(double x)
{
    double t = x - 1.0;
    double u = t + IK_SQRT_F64(IK_FMA_F64(t, t, t + t));
    double y = ikm_log1p_f64(x > 1e18 ? x : u, x > 1e18 ? 1.0 : 0.0);
    double s = x < IKM_INF_F64 ? y : x;
    return x >= 1.0 ? s : IKM_NAN_F64;
}

/* 2.5 ULP */
static IK_INLINE double ik_atanh_f64(double x)
{
    double a = ik_abs_f64(x);
    double t = a > 1.0 ? IKM_NAN_F64 : (a + a) / (1.0 - a);
    double y = 0.5 * ikm_log1p_f64(t, 0.0);
    return ik_copysign_f64(t < IKM_INF_F64 ? y : t, x);
}

/* ---- F64: trigonometric functions ---- */

/* |x| = (h + m) pi/2 + r (Cody & Waite), h a multiple of 2^26, |m| <= 2^25; pi/2 in parts of 27 bits makes their
 * products exact, and low collects the rounding errors of the differences. The low bits of q are those of m. Valid up
 * to 2^50; NaN beyond, where adjacent F64 numbers are a quarter or more apart. */
typedef struct {
    double r;
    IK_UINT64 q;
} ikm_trig_arg_f64;

static IK_INLINE ikm_trig_arg_f64 ikm_trig_reduce_f64(double x)
{
    ikm_trig_arg_f64 k;
    double a = ik_abs_f64(x);
    double h = IK_FMA_F64(a, 0.63661977236758138, 4.5336215702282961e23) - 4.5336215702282961e23;
    double r = IK_FMA_F64(h, -1.570796325802803, a);
    double t = IK_FMA_F64(IK_FMA_F64(h, -9.9209357395935172e-10, r), 0.63661977236758138, 6755399441055744.0);
    double m = t - 6755399441055744.0;
    double b = IK_FMA_F64(h, -9.9209357395935172e-10, IK_FMA_F64(m, -1.570796325802803, r));
    double c = b - m * 9.9209357395935172e-10;
    double d = c - h * 5.7211887096635749e-18;
    double e = d - m * 5.7211887096635749e-18;
    double f = e - h * 1.6446256892965207e-26;
    double low = ((b - c) - m * 9.9209357395935172e-10) + ((c - d) - h * 5.7211887096635749e-18);
    low = low + ((d - e) - m * 5.7211887096635749e-18) + ((e - f) - h * 1.6446256892965207e-26);
    low = low - (m * 1.6446256892965207e-26 + (h + m) * 4.3359050650618903e-35);
    k.r = a <= 1125899906842624.0 ? f + low : IKM_NAN_F64;
    k.q = IK_F64_BITS(t);
    return k;
}

static IK_INLINE double ikm_sin_poly_f64(double r)
{
    double z = r * r;
    double p = IK_FMA_F64(z, 1.5896681881871101e-10, -2.5050756714712748e-08);
    p = IK_FMA_F64(p, z, 2.7557313687574414e-06);
    p = IK_FMA_F64(p, z, -0.00019841269829813418);
    p = IK_FMA_F64(p, z, 0.0083333333333224548);
    p = IK_FMA_F64(p, z, -0.16666666666666632);
    return IK_FMA_F64(p, z * r, r);
}

static IK_INLINE double ikm_cos_poly_f64(double r)
{
    double z = r * r;
    double p = IK_FMA_F64(z, -1.1359802459860394e-11, 2.0875727058863323e-09);
    p = IK_FMA_F64(p, z, -2.7557314387469608e-07);
    p = IK_FMA_F64(p, z, 2.4801587289636314e-05);
    p = IK_FMA_F64(p, z, -0.0013888888888874441);
    p = IK_FMA_F64(p, z, 0.041666666666666602);
    return IK_FMA_F64(p, z * z, IK_FMA_F64(z, -0.5, 1.0));
}

/* a where q is even, b where it is odd */
static IK_INLINE double ikm_by_parity_f64(double a, double b, IK_UINT64 q)
{
    IK_UINT64 odd = 0u - (q & 1u);
    return IK_BITS_F64((IK_F64_BITS(a) & ~odd) | (IK_F64_BITS(b) & odd));
}

/* 2 ULP for |x| <= 2^50, NaN beyond */
static IK_INLINE double ik_sin_f64(double x)
{
    ikm_trig_arg_f64 k = ikm_trig_reduce_f64(x);
    double y = ikm_by_parity_f64(ikm_sin_poly_f64(k.r), ikm_cos_poly_f64(k.r), k.q);
    return IK_BITS_F64(IK_F64_BITS(y) ^ ((k.q & 2u) << 62) ^ (IK_F64_BITS(x) & IKM_SIGN_F64));
}

/* 2 ULP for |x| <= 2^50, NaN beyond */
static IK_INLINE double ik_cos_f64(double x)
{
    ikm_trig_arg_f64 k = ikm_trig_reduce_f64(x);
    double y = ikm_by_parity_f64(ikm_cos_poly_f64(k.r), ikm_sin_poly_f64(k.r), k.q);
    return IK_BITS_F64(IK_F64_BITS(y) ^ (((k.q + 1u) & 2u) << 62));
}

/* 4 ULP for |x| <= 2^50, NaN beyond */
static IK_INLINE double ik_tan_f64(double x)
{
    ikm_trig_arg_f64 k = ikm_trig_reduce_f64(x);
    double s = ikm_sin_poly_f64(k.r);
    double c = ikm_cos_poly_f64(k.r);
    double y = ikm_by_parity_f64(s, -c, k.q) / ikm_by_parity_f64(c, s, k.q);
    return IK_BITS_F64(IK_F64_BITS(y) ^ (IK_F64_BITS(x) & IKM_SIGN_F64));
}

static IK_INLINE double ikm_asin_poly_f64(double w, double z)
{
    double p = IK_FMA_F64(z, 0.032702207244291799, -0.021116810420009999);
    p = IK_FMA_F64(p, z, 0.021790727654817075);
    p = IK_FMA_F64(p, z, 0.0036721438696891572);
    p = IK_FMA_F64(p, z, 0.010789334723354981);
    p = IK_FMA_F64(p, z, 0.011397290037546625);
    p = IK_FMA_F64(p, z, 0.013981018992715265);
    p = IK_FMA_F64(p, z, 0.01735159545281394);
    p = IK_FMA_F64(p, z, 0.022372215909165195);
    p = IK_FMA_F64(p, z, 0.030381942675135415);
    p = IK_FMA_F64(p, z, 0.044642857175289881);
    p = IK_FMA_F64(p, z, 0.074999999999700931);
    p = IK_FMA_F64(p, z, 0.16666666666666763);
    return IK_FMA_F64(p, z * w, w);
}

/* 2.5 ULP */
static IK_INLINE double ik_asin_f64(double x)
{
    double a = ik_abs_f64(x);
    double z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
    double p = ikm_asin_poly_f64(a > 0.5 ? IK_SQRT_F64(z) : a, z);
    double y = a > 0.5 ? 1.5707963267948966 - (p + p - 6.123233995736766e-17) : p;
    return ik_copysign_f64(y, x);
}

/* 1.5 ULP */
static IK_INLINE double ik_acos_f64(double x)
{
    double a = ik_abs_f64(x);
    double z = a > 0.5 ? 0.5 - 0.5 * a : a * a;
    double p = ikm_asin_poly_f64(a > 0.5 ? IK_SQRT_F64(z) : a, z);
    double mid = 1.5707963267948966 - (ik_copysign_f64(p, x) - 6.123233995736766e-17);
    double end = x > 0.0 ? p + p : 3.1415926535897931 - (p + p - 1.2246467991473532e-16);
    return a > 0.5 ? end : mid;
}

/* 2 ULP */
static IK_INLINE double ik_atan_f64(double x)
{
    double a = ik_abs_f64(x);
    int outer = a > 2.4142135623730949;
    int mid = a > 0.41421356237309503;
    double num = outer ? -1.0 : (mid ? a - 1.0 : a);
    double den = outer ? a : (mid ? a + 1.0 : 1.0);
    double off = outer ? 1.5707963267948966 : (mid ? 0.78539816339744831 : 0.0);
    double low = outer ? 6.123233995736766e-17 : (mid ? 3.061616997868383e-17 : 0.0);
    double t = num / den;
    double z = t * t;
    double p = IK_FMA_F64(z, -0.01791151720179935, 0.038068715237388848);
    p = IK_FMA_F64(p, z, -0.050394767935824501);
    p = IK_FMA_F64(p, z, 0.058479293275521038);
    p = IK_FMA_F64(p, z, -0.066631097815238863);
    p = IK_FMA_F64(p, z, 0.076920607369313498);
    p = IK_FMA_F64(p, z, -0.090908977878873254);
    p = IK_FMA_F64(p, z, 0.11111110784530077);
    p = IK_FMA_F64(p, z, -0.14285714280218251);
    p = IK_FMA_F64(p, z, 0.19999999999953805);
    p = IK_FMA_F64(p, z, -0.33333333333333198);
    return ik_copysign_f64(off + (IK_FMA_F64(p, z * t, low) + t), x);
}

/* ---- F64: remainders (exact) ---- */

/* The remainder of |x| / |y| with x's sign, as C's fmod: the significand of x modulo that of y, 11 bits of the
 * difference of the exponents at a time. Not branch-free, since the number of steps depends on the numbers. */
static IK_INLINE double ik_fmod_f64(double x, double y)
{
    const IK_UINT64 a = IK_F64_BITS(ik_abs_f64(x)), b = IK_F64_BITS(ik_abs_f64(y)), one = (IK_UINT64)1 << 52,
                    inf = IK_F64_BITS(IKM_INF_F64);
    IK_UINT64 ea = a >> 52, eb = b >> 52;
    IK_UINT64 ma = (a & (one - 1u)) | (ea ? one : 0u), mb = (b & (one - 1u)) | (eb ? one : 0u);
    if (a >= inf || b > inf || b == 0u)
        return IKM_NAN_F64;
    if (a < b)
        return x;
    ea += ea == 0u;
    eb += eb == 0u;
    for (ma %= mb; ea > eb && ma; ma %= mb) {
        const IK_UINT64 step = ea - eb < 11u ? ea - eb : 11u;
        ma <<= step;
        ea -= step;
    }
    return ik_copysign_f64((double)ma * 2.220446049250313e-16 * IK_BITS_F64(eb << 52), x);
}

/* The remainder with y's sign, as Python's and NumPy's; 0.5 ULP, since where the signs differ it is the sum of both */
static IK_INLINE double ik_remainder_f64(double x, double y)
{
    const double r = ik_fmod_f64(x, y), s = (r < 0.0) != (y < 0.0) ? r + y : r;
    return r == 0.0 ? ik_copysign_f64(r, y) : s;
}

/* ---- F64: erf, erfc, cbrt, pow ---- */

/* Q(a) = -log erfc(a) in t = a - 2, 1 <= a <= 6 */
static IK_INLINE double ikm_erfc_log_f64(double t)
{
    double q = IK_FMA_F64(t, 4.9288233339484426e-12, -3.6924163455179506e-11);
    q = IK_FMA_F64(q, t, 7.1550934311177835e-11);
    q = IK_FMA_F64(q, t, 2.5840609349368851e-10);
    q = IK_FMA_F64(q, t, -2.6102857250823685e-09);
    q = IK_FMA_F64(q, t, 1.3986552035444146e-08);
    q = IK_FMA_F64(q, t, -5.7694798580176048e-08);
    q = IK_FMA_F64(q, t, 1.7317603660504062e-07);
    q = IK_FMA_F64(q, t, -2.0372811916786577e-07);
    q = IK_FMA_F64(q, t, -1.9521899337086772e-06);
    q = IK_FMA_F64(q, t, 2.0706470642459312e-05);
    q = IK_FMA_F64(q, t, -0.0001353093296955875);
    q = IK_FMA_F64(q, t, 0.00073239937810522823);
    q = IK_FMA_F64(q, t, -0.0035707563479809275);
    q = IK_FMA_F64(q, t, 0.016465118137359638);
    q = IK_FMA_F64(q, t, 0.92375084182394995);
    q = IK_FMA_F64(q, t, 4.4181608059944146);
    return IK_FMA_F64(q, t, 5.3649412646166361);
}

/* 2 ULP */
static IK_INLINE double ik_erf_f64(double x)
{
    double a = ik_abs_f64(x);
    double z = a * a;
    double q = ikm_erfc_log_f64((a > 6.0 ? 6.0 : a) - 2.0);
    ikm_exp_arg_f64 k = ikm_exp_reduce_f64(-q);
    double s = IK_BITS_F64(((IK_F64_BITS(k.t) & 4095u) - 1023u) << 52);
    double p = IK_FMA_F64(z, -7.8011872266726061e-10, 1.3722974121592688e-08);
    p = IK_FMA_F64(p, z, -1.6209175080177326e-07);
    p = IK_FMA_F64(p, z, 1.6447517518573131e-06);
    p = IK_FMA_F64(p, z, -1.4924744645649048e-05);
    p = IK_FMA_F64(p, z, 0.00012055295319283497);
    p = IK_FMA_F64(p, z, -0.00085483259896449023);
    p = IK_FMA_F64(p, z, 0.0052239776074221068);
    p = IK_FMA_F64(p, z, -0.026866170643276011);
    p = IK_FMA_F64(p, z, 0.11283791670945252);
    p = IK_FMA_F64(p, z, -0.37612638903183548);
    p = IK_FMA_F64(p, z, 0.12837916709551256);
    p = IK_FMA_F64(p, a, a);
    q = 1.0 - IK_FMA_F64(ikm_expm1_poly_f64(k.r), s, s);
    return ik_copysign_f64(a < 1.0 ? p : q, x);
}

/* 6 ULP; u = 5/(a + 2.5) */
static IK_INLINE double ik_erfc_f64(double x)
{
    double a = ik_abs_f64(x);
    double c = a > 27.5 ? 27.5 : a;
    double h = ikm_head_f64(c);
    double u = 5.0 / (c + 2.5);
    double t = 1.0 - u;
    double g = IK_FMA_F64(t, 7.888197750156515e-10, 9.762614710024112e-10);
    g = IK_FMA_F64(g, t, -6.890512453092713e-09);
    g = IK_FMA_F64(g, t, -1.3720362321798085e-08);
    g = IK_FMA_F64(g, t, 2.238833311166249e-08);
    g = IK_FMA_F64(g, t, 8.910309940156533e-08);
    g = IK_FMA_F64(g, t, 3.414783294683841e-09);
    g = IK_FMA_F64(g, t, -3.920897962573095e-07);
    g = IK_FMA_F64(g, t, -4.691009584229347e-07);
    g = IK_FMA_F64(g, t, 1.3506486239426485e-06);
    g = IK_FMA_F64(g, t, 3.6498740133525043e-06);
    g = IK_FMA_F64(g, t, -3.906387857444623e-06);
    g = IK_FMA_F64(g, t, -2.252121320075454e-05);
    g = IK_FMA_F64(g, t, 1.1661552897422088e-05);
    g = IK_FMA_F64(g, t, 0.00014053878317394546);
    g = IK_FMA_F64(g, t, -8.784165266549966e-05);
    g = IK_FMA_F64(g, t, -0.0009637571081591928);
    g = IK_FMA_F64(g, t, 0.001678608860454961);
    g = IK_FMA_F64(g, t, 0.0056723100265648205);
    g = IK_FMA_F64(g, t, -0.034250229049208714);
    g = IK_FMA_F64(g, t, 0.09078282332961615);
    g = IK_FMA_F64(g, t, -0.16093036988782977);
    g = IK_FMA_F64(g, t, 0.2108063640611436);
    ikm_exp_arg_f64 k = ikm_exp_reduce_f64(-h * h);
    double e = ikm_expm1_poly_f64(IK_FMA_F64(h - c, h + c, k.r));
    double y = ikm_scale_f64(IK_FMA_F64(e, g, g) * u, IK_F64_BITS(k.t) & 4095u);
    return x < 0.0 ? 2.0 - y : y;
}

/* 1 ULP; r = s^(-1/3) twice by r (1 + h/3 + 2/9 h^2), h = 1 - s r^3, then Newton's step on t = s r^2 */
static IK_INLINE double ik_cbrt_f64(double x)
{
    double a = ik_abs_f64(x);
    int tiny = a < 1e-300;
    double s = a * (tiny ? 1.8014398509481984e16 : 0.125);
    double third = IK_BITS_F64(IKM_U64(0x43300000u, 0u) | (IK_F64_BITS(s) >> 20)) - 4503599627370496.0;
    double r, h, t;
    third = IK_FMA_F64(third, -0.33333333333333331, 4509457670704463.0);
    r = IK_BITS_F64((IK_F64_BITS(third) & IKM_U64(0xfffffu, 0xffffffffu)) << 20);
    h = IK_FMA_F64(-(s * r) * r, r, 1.0);
    r = IK_FMA_F64(IK_FMA_F64(h, 0.22222222222222221, 0.33333333333333331), h * r, r);
    h = IK_FMA_F64(-(s * r) * r, r, 1.0);
    r = IK_FMA_F64(IK_FMA_F64(h, 0.22222222222222221, 0.33333333333333331), h * r, r);
    t = (s * r) * r;
    t = IK_FMA_F64(IK_FMA_F64(-t * t, t, s), r * r * 0.33333333333333331, t);
    t = t * (tiny ? 3.814697265625e-6 : 2.0);
    t = a < IKM_INF_F64 ? t : a;
    return a == 0.0 ? x : ik_copysign_f64(t, x);
}

/* 2 ULP */
static IK_INLINE double ik_pow_f64(double x, double y)
{
    double a = ik_abs_f64(x);
    double b = ik_abs_f64(y);
    ikm_log_arg_f64 k = ikm_log_reduce_f64(a);
    double d = k.f + 2.0;
    double dh = ikm_head_f64(d);
    double dl = k.f - (dh - 2.0);
    double s = k.f / d;
    double sh = ikm_head_f64(s);
    double sl = (k.f - sh * dh - sh * dl) / d;
    double z = s * s;
    double r = IK_FMA_F64(z, 0.15370167372094573, 0.15798836874610539);
    double th, tl, ph, pl, v, n, t, w, yc, special;
    int whole, odd, negative;
    r = IK_FMA_F64(r, z, 0.17643089353799238);
    r = IK_FMA_F64(r, z, 0.20000188244159664);
    r = IK_FMA_F64(r, z, 0.23076918703938737);
    r = IK_FMA_F64(r, z, 0.27272727329777574);
    r = IK_FMA_F64(r, z, 0.33333333332915993);
    r = IK_FMA_F64(r, z, 0.42857142857144415);
    r = IK_FMA_F64(r, z, 0.59999999999999998);
    r = IK_FMA_F64(r, z * z, sl * (sh + s));
    z = sh * sh;
    th = ikm_head_f64(3.0 + z + r);
    tl = r - ((th - 3.0) - z);
    v = IK_FMA_F64(sl, th, tl * s);
    ph = ikm_head_f64(IK_FMA_F64(sh, th, v));
    pl = v - (ph - sh * th);
    v = IK_FMA_F64(7.8726995428948972e-09, ph, pl * 0.96179669392597555);
    z = 0.96179668605327606 * ph;
    th = ikm_head_f64((z + v) + k.e);
    tl = v - ((th - k.e) - z);

    yc = b > 1e22 ? ik_copysign_f64(1e22, y) : y;
    ph = ikm_head_f64(yc);
    pl = IK_FMA_F64(yc - ph, th, yc * tl);
    ph = ph * th;
    z = ph + pl;
    t = z > 1026.0 ? 1026.0 : z;
    t = (t < -1077.0 ? -1077.0 : t) + 6755399441057790.0;
    n = t - 6755399441057790.0;
    w = ikm_scale_f64(ikm_exp2_poly_f64((ph - n) + pl), IK_F64_BITS(t) & 4095u);
    w = z > 1025.0 ? IKM_INF_F64 : w;
    w = z < -1076.0 ? 0.0 : w;

    w = a == 0.0 ? (y < 0.0 ? IKM_INF_F64 : 0.0) : w;
    w = a == IKM_INF_F64 ? (y < 0.0 ? 0.0 : IKM_INF_F64) : w;
    whole = ik_rint_f64(b) == b;
    odd = (b < 9007199254740992.0) & whole & (ik_rint_f64(0.5 * b) != 0.5 * b);
    negative = (x < 0.0) & (a < IKM_INF_F64);
    special = (negative & !whole) ? IKM_NAN_F64 : w;
    special = ((x != x) | (y != y)) ? IKM_NAN_F64 : special;
    special = odd ? IK_BITS_F64(IK_F64_BITS(special) ^ (IK_F64_BITS(x) & IKM_SIGN_F64)) : special;
    return ((y == 0.0) | (x == 1.0)) ? 1.0 : special;
}
#endif

#endif
