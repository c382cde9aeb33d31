/* The arithmetic on which every device's random_sample agrees bit for bit: isokern/ops/random_sample.py specifies it.
 * Written in the common subset of C, OpenCL C and CUDA C++. */
#ifndef ISOKERN_SAMPLE_H
#define ISOKERN_SAMPLE_H
#include "isokern_half.h"
#include "isokern_int.h"
#include "isokern_philox.h"

#ifndef IK_DIV_F32
#define IK_DIV_F32(a, b) ((a) / (b))
#endif

/* The logit of a token that is in the history. The caller adds 0.0f to it and to all others, so that -0 becomes 0. */
static IK_INLINE float ik_sample_penalised(float l, float penalty)
{ return l > 0.0f ? IK_DIV_F32(l, penalty) : l * penalty; }

/* The factor of (logit - maximum), for a temperature above 0. */
static IK_INLINE float ik_sample_factor(float temperature) { return IK_DIV_F32(1.442695f, temperature); }

/* The weight of a logit, at most 2^31; `top` is the row's largest logit. */
static IK_INLINE uint32_t ik_sample_weight(float l, float top, float factor)
{
    float z = l - top;
    z = l == top ? 0.0f : z * factor;
    if (!(z > -32.0f))
        return 0;
    const uint32_t fixed = (uint32_t)(int32_t)(-z * 16777216.0f), n = fixed >> 24, g = 16777216u - (fixed & 0xffffffu);
    uint32_t a = 16377u;
    a = 165394u + (uint32_t)((IK_UINT64)a * g >> 24);
    a = 1431680u + (uint32_t)((IK_UINT64)a * g >> 24);
    a = 10327387u + (uint32_t)((IK_UINT64)a * g >> 24);
    a = 59597083u + (uint32_t)((IK_UINT64)a * g >> 24);
    a = 257941248u + (uint32_t)((IK_UINT64)a * g >> 24);
    a = 744261118u + (uint32_t)((IK_UINT64)a * g >> 24);
    a = 1073741824u + (uint32_t)((IK_UINT64)a * g >> 24);
    return a >> n;
}

/* Map logits without NaN or -0 to integers of the same order: a < b where ik_sample_key(a) < ik_sample_key(b). */
static IK_INLINE uint32_t ik_sample_key(float l)
{
    const uint32_t u = ik_bits(l);
    return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* ik_sample_fraction returns a share in [0, 1] times 2^32, truncated to an integer (exact in F32 until then);
 * ik_sample_share returns that share of a sum. */
static IK_INLINE IK_UINT64 ik_sample_fraction(float share) { return (IK_UINT64)(share * 4294967296.0f); }
static IK_INLINE IK_UINT64 ik_sample_share(IK_UINT64 sum, IK_UINT64 fraction)
{ return (sum >> 32) * fraction + ((sum & 0xffffffffu) * fraction >> 32); }

/* floor(a b / 2^64) */
static IK_INLINE IK_UINT64 ik_sample_high(IK_UINT64 a, IK_UINT64 b)
{
    const IK_UINT64 al = a & 0xffffffffu, ah = a >> 32, bl = b & 0xffffffffu, bh = b >> 32;
    const IK_UINT64 middle = ah * bl + (al * bl >> 32), other = al * bh + (middle & 0xffffffffu);
    return ah * bh + (middle >> 32) + (other >> 32);
}

/* 64 random bits of Philox4x32-10. */
static IK_INLINE IK_UINT64 ik_sample_philox(IK_UINT64 seed, uint32_t row, IK_UINT64 step)
{
    ik_words c;
    c.w0 = row;
    c.w1 = (uint32_t)step;
    c.w2 = (uint32_t)(step >> 32);
    c.w3 = 0;
    c = ik_philox(c, seed);
    return c.w0 | (IK_UINT64)c.w1 << 32;
}

#endif
