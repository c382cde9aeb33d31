/* Scalar mathematics. exp, log, pow, sqrt and the others of <math.h> are the host's, accurate to about an ulp; a card's
 * are approximations whose error is not public. */
#ifndef XPU_KERNEL_XTDK_MATH_H
#define XPU_KERNEL_XTDK_MATH_H
#include <math.h>

#include "../../xpusim/not_modelled.h"
#include "xtdk.h"
#include "xtdk_fp16.h"

XPUSIM_INLINE int min(int a, int b) { return a < b ? a : b; }
XPUSIM_INLINE int max(int a, int b) { return a > b ? a : b; }

/* n rounded up in units of k: how many units, and their product. */
XPUSIM_INLINE int roundup_div(int n, int k) { return (n + k - 1) / k; }
XPUSIM_INLINE int roundup(int n, int k) { return roundup_div(n, k) * k; }
XPUSIM_INLINE int rounddown_div(int n, int k) { return n / k; }
XPUSIM_INLINE int rounddown(int n, int k) { return n / k * k; }

/* The same for powers of two, which XDNN lists with their ranges (cluster_math.h). */
#define XPUSIM_POWER(k) \
    XPUSIM_INLINE int mod##k(int n) { return n % k; } \
    XPUSIM_INLINE int roundup##k(int n) { return roundup(n, k); } \
    XPUSIM_INLINE int roundup_div##k(int n) { return roundup_div(n, k); } \
    XPUSIM_INLINE int rounddown##k(int n) { return rounddown(n, k); }
XPUSIM_POWER(2)
XPUSIM_POWER(4)
XPUSIM_POWER(8)
XPUSIM_POWER(16)
XPUSIM_POWER(32)
XPUSIM_POWER(64)
XPUSIM_POWER(128)
XPUSIM_POWER(256)
#undef XPUSIM_POWER
XPUSIM_INLINE int div2(int n) { return n / 2; }
XPUSIM_INLINE int div4(int n) { return n / 4; }
XPUSIM_INLINE int div8(int n) { return n / 8; }
XPUSIM_INLINE int div16(int n) { return n / 16; }
XPUSIM_INLINE int div32(int n) { return n / 32; }
XPUSIM_INLINE int div64(int n) { return n / 64; }
XPUSIM_INLINE int div128(int n) { return n / 128; }

XPUSIM_INLINE float rsqrt(float x) { return 1.0f / sqrtf(x); }
XPUSIM_INLINE half hexp(half x) { return __float2half_rn(expf(__half2float(x))); }
XPUSIM_INLINE float fast_erf(float x) { return erff(x); }

/* Newton's iteration for 1 / sqrt(x), until a step is within epsilon. */
XPUSIM_INLINE float fast_inverse_sqrt(float x, float epsilon)
{
    float y = xpusim::bits_as<float>(0x5f3759df - (xpusim::bits_as<int32_t>(x) >> 1));
    for (int i = 0; i < 16; i++) {
        const float next = y * (1.5f - 0.5f * x * y * y), step = next - y;
        y = next;
        if (!(step > epsilon || step < -epsilon))
            break;
    }
    return y;
}

/* float to int. The four rounding directions hold up to |x| = 4194303.875; beyond that the card's direction "fails",
 * which is emulated by rounding in another one. A value outside the range of int, which the card leaves undefined,
 * becomes INT_MIN. */
XPUSIM_INLINE int xpusim_to_int(float x, float as_asked, float otherwise)
{
    const float value = x > 4194303.875f || x < -4194303.875f ? otherwise : as_asked;
    return value >= -0x1p31f && value < 0x1p31f ? static_cast<int>(value) : INT32_MIN;
}
XPUSIM_INLINE int float2fix(float x) { return xpusim_to_int(x, rintf(x), truncf(x)); }
XPUSIM_INLINE int float2fix_rz(float x) { return xpusim_to_int(x, truncf(x), x < 0 ? floorf(x) : ceilf(x)); }
XPUSIM_INLINE int float2fix_ru(float x) { return xpusim_to_int(x, ceilf(x), floorf(x)); }
XPUSIM_INLINE int float2fix_rd(float x) { return xpusim_to_int(x, floorf(x), ceilf(x)); }

/* int to float: exact up to |n| = 16777215, rounded beyond. */
XPUSIM_INLINE float fix2float(int n) { return xpusim::to_float(n, xpusim::round::rn); }
XPUSIM_INLINE float fix2float_rz(int n) { return xpusim::to_float(n, xpusim::round::rz); }
XPUSIM_INLINE float fix2float_ru(int n) { return xpusim::to_float(n, xpusim::round::ru); }
XPUSIM_INLINE float fix2float_rd(int n) { return xpusim::to_float(n, xpusim::round::rd); }

#define XPUSIM_UNKNOWN_ROUNDING(name) \
    XPUSIM_NOT_MODELLED(name, "nothing public bounds the error of a rounded form of an approximation")
XPUSIM_UNKNOWN_ROUNDING(exp_rz)
XPUSIM_UNKNOWN_ROUNDING(exp_ru)
XPUSIM_UNKNOWN_ROUNDING(exp_rd)
XPUSIM_UNKNOWN_ROUNDING(log_rz)
XPUSIM_UNKNOWN_ROUNDING(log_ru)
XPUSIM_UNKNOWN_ROUNDING(log_rd)
XPUSIM_UNKNOWN_ROUNDING(pow_rz)
XPUSIM_UNKNOWN_ROUNDING(pow_ru)
XPUSIM_UNKNOWN_ROUNDING(pow_rd)
#undef XPUSIM_UNKNOWN_ROUNDING
#endif
