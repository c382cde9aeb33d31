/* bfloat16. Conversions round to nearest even. */
#ifndef XPU_KERNEL_XTDK_BF16_H
#define XPU_KERNEL_XTDK_BF16_H
#include "../../xpusim/rounding.h"
#include "xtdk.h"

struct bfloat16 {
    short val_;

    bfloat16() = default;
    XPUSIM_MEMBER bfloat16(int a) : bfloat16(static_cast<float>(a)) {} /* but a short is taken for the bits */
    XPUSIM_MEMBER bfloat16(float a) : val_(static_cast<short>(xpusim::narrow<xpusim::bf16>(a))) {}
    XPUSIM_MEMBER bfloat16(short bits) : val_(bits) {}
    XPUSIM_MEMBER explicit operator float() const { return xpusim::widen<xpusim::bf16>(static_cast<uint16_t>(val_)); }
};
typedef bfloat16 bfloat16_t;

XPUSIM_INLINE float __bfloat162float(bfloat16_t a) { return float(a); }
XPUSIM_INLINE bfloat16_t __float2bfloat16_rn(float a) { return bfloat16(a); }
XPUSIM_INLINE bfloat16_t __float2bfloat16(float a) { return bfloat16(a); }
XPUSIM_INLINE bfloat16_t float2bfloat(float a) { return bfloat16(a); }
XPUSIM_INLINE float bfloat2float(bfloat16_t a) { return float(a); }

/* Each result is rounded once: the product of two 8-bit significands is exact in double, and a sum is rounded to
 * odd. */
XPUSIM_INLINE bfloat16 operator+(bfloat16 a, bfloat16 b)
{ return bfloat16(static_cast<short>(xpusim::narrow<xpusim::bf16>(xpusim::sum_to_odd(float(a), float(b))))); }
XPUSIM_INLINE bfloat16 operator-(bfloat16 a, bfloat16 b)
{ return bfloat16(static_cast<short>(xpusim::narrow<xpusim::bf16>(xpusim::sum_to_odd(float(a), -float(b))))); }
XPUSIM_INLINE bfloat16 operator*(bfloat16 a, bfloat16 b)
{ return bfloat16(static_cast<short>(xpusim::narrow<xpusim::bf16>(static_cast<double>(float(a)) * float(b)))); }
XPUSIM_INLINE bfloat16 operator/(bfloat16 a, bfloat16 b) { return bfloat16(float(a) / float(b)); }
XPUSIM_INLINE bfloat16 operator-(bfloat16 a) { return bfloat16(static_cast<short>(a.val_ ^ 0x8000)); }
XPUSIM_INLINE bfloat16 fmax(bfloat16 a, bfloat16 b) { return float(a) > float(b) ? a : b; }
XPUSIM_INLINE bfloat16 fmin(bfloat16 a, bfloat16 b) { return float(a) < float(b) ? a : b; }
XPUSIM_INLINE bool operator==(bfloat16 a, bfloat16 b) { return a.val_ == b.val_; } /* compares the bits */
XPUSIM_INLINE bool operator!=(bfloat16 a, bfloat16 b) { return a.val_ != b.val_; }
XPUSIM_INLINE bool operator<(bfloat16 a, bfloat16 b) { return float(a) < float(b); }
XPUSIM_INLINE bool operator<=(bfloat16 a, bfloat16 b) { return float(a) <= float(b); }
XPUSIM_INLINE bool operator>(bfloat16 a, bfloat16 b) { return float(a) > float(b); }
XPUSIM_INLINE bool operator>=(bfloat16 a, bfloat16 b) { return float(a) >= float(b); }
#endif
