/* F16 and BF16 to and from F32, one element at a time: branch-free integer code that rounds to nearest even and
 * preserves subnormals and NaN. */
#ifndef ISOKERN_HALF_H
#define ISOKERN_HALF_H
#ifndef IK_SIMT /* in SIMT sources a prelude defines the types of stdint.h */
#include <stdint.h>
#include <string.h>
#endif

#ifndef IK_INLINE
#define IK_INLINE inline __attribute__((always_inline))
#endif

static IK_INLINE uint32_t ik_bits(float x)
{
#ifdef IK_F32_BITS
    return IK_F32_BITS(x);
#else
    uint32_t u;
    memcpy(&u, &x, 4);
    return u;
#endif
}

static IK_INLINE float ik_float(uint32_t u)
{
#ifdef IK_BITS_F32
    return IK_BITS_F32(u);
#else
    float x;
    memcpy(&x, &u, 4);
    return x;
#endif
}

static IK_INLINE float ik_bf16_to_f32(uint16_t h) { return ik_float((uint32_t)h << 16); }

/* Round to nearest even; a NaN keeps its sign and becomes quiet. */
static IK_INLINE uint16_t ik_f32_to_bf16(float x)
{
    uint32_t u = ik_bits(x);
    uint32_t rounded = (u + 0x7fffu + (u >> 16 & 1)) >> 16;
    return (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? (u >> 16 | 0x40u) : rounded);
}

/* Exponent rebias by a multiplication, which also normalises subnormals; Inf and NaN by a select. */
static IK_INLINE float ik_f16_to_f32(uint16_t h)
{
    uint32_t magnitude = (uint32_t)(h & 0x7fff) << 13;
    uint32_t finite = ik_bits(ik_float(magnitude) * 0x1p112f);
    uint32_t u = magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite;
    return ik_float(u | (uint32_t)(h & 0x8000) << 16);
}

/* Round to nearest even. For a subnormal result, adding a power of two whose last bit is the subnormal step does the
 * rounding. */
static IK_INLINE uint16_t ik_f32_to_f16(float x)
{
    uint32_t u = ik_bits(x), sign = u >> 16 & 0x8000u, magnitude = u & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1)) >> 13;
    uint32_t subnormal = ik_bits(ik_float(magnitude) + 0.5f) - 0x3f000000u;
    uint32_t h = magnitude < 0x38800000u ? subnormal : normal;
    h = magnitude >= 0x477ff000u ? 0x7c00u : h;
    h = magnitude > 0x7f800000u ? 0x7e00u | (magnitude >> 13 & 0x3ffu) : h;
    return (uint16_t)(h | sign);
}

#endif
