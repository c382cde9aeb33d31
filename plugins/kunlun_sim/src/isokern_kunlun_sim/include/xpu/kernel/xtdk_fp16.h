/* Half precision: `half` with its conversions (XTDK), and `float16` (XDNN), which has arithmetic on KL3 alone.
 * Conversions round to nearest even. */
#ifndef XPU_KERNEL_XTDK_FP16_H
#define XPU_KERNEL_XTDK_FP16_H
#include "../../xpusim/rounding.h"
#include "xtdk.h"

struct half {
    unsigned short val_;

    half() = default;
    XPUSIM_MEMBER half(float a) : val_(xpusim::narrow<xpusim::fp16>(a)) {}
    XPUSIM_MEMBER operator float() const { return xpusim::widen<xpusim::fp16>(val_); }
    XPUSIM_MEMBER static half of_bits(unsigned short bits)
    {
        half a;
        a.val_ = bits;
        return a;
    }
};
typedef half __half;

XPUSIM_INLINE float __half2float(half a) { return float(a); }
XPUSIM_INLINE half __float2half_rn(float a) { return half(a); }
XPUSIM_INLINE half __float2half(float a) { return half(a); }
XPUSIM_INLINE half fmax(half a, half b) { return float(a) > float(b) ? a : b; }
XPUSIM_INLINE half fmin(half a, half b) { return float(a) < float(b) ? a : b; }

/* Sums, products and quotients of 11-bit significands that are computed in 24 bits and rounded again are correctly
 * rounded (2 x 11 + 2 <= 24). */
XPUSIM_INLINE half operator+(half a, half b) { return half(float(a) + float(b)); }
XPUSIM_INLINE half operator-(half a, half b) { return half(float(a) - float(b)); }
XPUSIM_INLINE half operator*(half a, half b) { return half(float(a) * float(b)); }
XPUSIM_INLINE half operator/(half a, half b) { return half(float(a) / float(b)); }
XPUSIM_INLINE half operator-(half a) { return half::of_bits(static_cast<unsigned short>(a.val_ ^ 0x8000)); }
XPUSIM_INLINE half &operator+=(half &a, half b) { return a = a + b; }
XPUSIM_INLINE half &operator-=(half &a, half b) { return a = a - b; }
XPUSIM_INLINE half &operator*=(half &a, half b) { return a = a * b; }
XPUSIM_INLINE half &operator/=(half &a, half b) { return a = a / b; }
XPUSIM_INLINE bool operator==(half a, half b) { return float(a) == float(b); }
XPUSIM_INLINE bool operator!=(half a, half b) { return float(a) != float(b); }
XPUSIM_INLINE bool operator<(half a, half b) { return float(a) < float(b); }
XPUSIM_INLINE bool operator<=(half a, half b) { return float(a) <= float(b); }
XPUSIM_INLINE bool operator>(half a, half b) { return float(a) > float(b); }
XPUSIM_INLINE bool operator>=(half a, half b) { return float(a) >= float(b); }

struct float16 {
    short val_;

    float16() = default;
    float16(int) = delete;
    XPUSIM_MEMBER float16(float a) : val_(static_cast<short>(xpusim::narrow<xpusim::fp16>(a))) {}
    XPUSIM_MEMBER float16(short bits) : val_(bits) {}
    XPUSIM_MEMBER float16(half a) : val_(static_cast<short>(a.val_)) {}
    XPUSIM_MEMBER operator half() const { return half::of_bits(static_cast<unsigned short>(val_)); }
    XPUSIM_MEMBER explicit operator float() const { return xpusim::widen<xpusim::fp16>(static_cast<uint16_t>(val_)); }
#ifndef __arch_xpu2__
    XPUSIM_MEMBER float16 operator-() const { return float16(static_cast<short>(val_ ^ 0x8000)); }
    XPUSIM_MEMBER float16 &operator+=(float16 b) { return *this = float16(float(*this) + float(b)); }
#endif
};
typedef float16 float16_t;

#ifndef __arch_xpu2__
XPUSIM_INLINE float16 operator+(float16 a, float16 b) { return float16(float(a) + float(b)); }
XPUSIM_INLINE float16 operator-(float16 a, float16 b) { return float16(float(a) - float(b)); }
XPUSIM_INLINE float16 operator*(float16 a, float16 b) { return float16(float(a) * float(b)); }
XPUSIM_INLINE float16 operator/(float16 a, float16 b) { return float16(float(a) / float(b)); }
#endif
/* Compares the bits: 0 is not -0, and a NaN equals itself. */
XPUSIM_INLINE bool operator==(float16 a, float16 b) { return a.val_ == b.val_; }
XPUSIM_INLINE float16 float2float16(float a) { return float16(a); }
XPUSIM_INLINE float float162float(float16 a) { return float(a); }
#endif
