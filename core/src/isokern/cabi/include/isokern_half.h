/* F16, BF16 and the floats of 8 bits to and from F32, one element at a time: branch-free code that rounds to nearest
 * even and preserves subnormals and NaN. */
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

/* The floats of 8 bits (OCP 8-bit Floating Point Specification 1.0). A subnormal is a small integer times the least
 * step: no subnormal F32 occurs, on which processors are slow. */
static IK_INLINE float ik_f8e5m2_to_f32(uint8_t h)
{
    uint32_t magnitude = h & 0x7fu;
    uint32_t subnormal = ik_bits((float)(int32_t)(h & 3) * 0x1p-16f);
    uint32_t u = magnitude < 4 ? subnormal : (magnitude << 21) + 0x38000000u;
    u = magnitude >= 0x7cu ? magnitude << 21 | 0x7f800000u : u;
    return ik_float(u | (uint32_t)(h & 0x80) << 24);
}

/* Round as ik_f32_to_f16 does; what is too large becomes infinite. A NaN that was one of E5M2's three is that one
 * again, so that moving numbers by way of F32 keeps their bits. */
static IK_INLINE uint8_t ik_f32_to_f8e5m2(float x)
{
    uint32_t u = ik_bits(x), sign = u >> 24 & 0x80u, magnitude = u & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x38000000u + 0xfffffu + (magnitude >> 21 & 1)) >> 21;
    uint32_t subnormal = ik_bits(ik_float(magnitude) + 0x1p7f) - 0x43000000u;
    uint32_t h = magnitude < 0x38800000u ? subnormal : normal;
    h = magnitude >= 0x47700000u ? 0x7cu : h;
    uint32_t payload = magnitude >> 21 & 3, quiet = ((payload | payload >> 1) & 1) ^ 1; /* of the payload 0 */
    h = magnitude > 0x7f800000u ? 0x7cu | payload | quiet << 1 : h;
    return (uint8_t)(h | sign);
}

/* E4M3FN has no infinity, and one NaN of either sign. */
static IK_INLINE float ik_f8e4m3fn_to_f32(uint8_t h)
{
    uint32_t magnitude = h & 0x7fu;
    uint32_t subnormal = ik_bits((float)(int32_t)(h & 7) * 0x1p-9f);
    uint32_t u = magnitude < 8 ? subnormal : (magnitude << 20) + 0x3c000000u;
    u = magnitude == 0x7fu ? 0x7fc00000u : u;
    return ik_float(u | (uint32_t)(h & 0x80) << 24);
}

/* What rounds to more than the largest number, 448, becomes NaN. */
static IK_INLINE uint8_t ik_f32_to_f8e4m3fn(float x)
{
    uint32_t u = ik_bits(x), sign = u >> 24 & 0x80u, magnitude = u & 0x7fffffffu;
    uint32_t normal = (magnitude - 0x3c000000u + 0x7ffffu + (magnitude >> 20 & 1)) >> 20;
    uint32_t subnormal = ik_bits(ik_float(magnitude) + 0x1p14f) - 0x46800000u;
    uint32_t h = magnitude < 0x3c800000u ? subnormal : normal;
    h = magnitude > 0x43e80000u ? 0x7fu : h;
    return (uint8_t)(h | sign);
}

#endif
