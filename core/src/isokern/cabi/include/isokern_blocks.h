/* The arithmetic of block-quantised types, one value at a time: `quantize` and the q8_0 activations of
 * `matmul_transposed` share it. Written in the common subset of C, OpenCL C and CUDA C++. Each step rounds once
 * (contraction is off); isokern/blocks specifies it. */
#ifndef ISOKERN_BLOCKS_H
#define ISOKERN_BLOCKS_H
#include "isokern_half.h"
#include "isokern_layouts.h"

#ifndef IK_DIV_F32
#define IK_DIV_F32(a, b) ((a) / (b))
#endif

enum { IK_BLOCK = 32 }; /* elements of a block that is quantised here; others have ik_block_elements */

static IK_INLINE int ik_is_finite(float x) { return (ik_bits(x) & 0x7f800000u) != 0x7f800000u; }

/* The factor by which elements are multiplied, for a scale d. */
static IK_INLINE float ik_block_inverse(float d) { return d == 0.0f ? 0.0f : IK_DIV_F32(1.0f, d); }

/* A scale or minimum as it is stored, in F16; every NaN becomes the same one. */
static IK_INLINE uint16_t ik_block_half(float d) { return (uint16_t)(d == d ? ik_f32_to_f16(d) : 0x7e00); }

/* A nibble, 0 to 15, of a value that has been scaled and offset. */
static IK_INLINE uint32_t ik_block_nibble(float x)
{ return !ik_is_finite(x) || !(x >= 1.0f) ? 0u : x >= 15.0f ? 15u : (uint32_t)x; }

/* Five bits, 0 to 31, of a value that has been scaled and offset. */
static IK_INLINE uint32_t ik_block_five(float x)
{ return !ik_is_finite(x) || !(x >= 1.0f) ? 0u : x >= 31.0f ? 31u : (uint32_t)x; }

/* A signed byte of a scaled value, rounded half away from zero; |x| is at most 127 up to rounding. */
static IK_INLINE int32_t ik_block_byte(float x)
{
    if (!ik_is_finite(x))
        return 0;
    const float size = x < 0.0f ? -x : x;
    const int32_t whole = (int32_t)size, near = whole + (size - (float)whole >= 0.5f);
    return x < 0.0f ? -near : near;
}

typedef IK_GLOBAL uint8_t *ik_block_out;

static IK_INLINE void ik_put_half(ik_block_out at, float d)
{
    const uint16_t bits = ik_block_half(d);
    at[0] = (uint8_t)(bits & 255);
    at[1] = (uint8_t)(bits >> 8);
}

/* Write 32 numbers of five bits: a word of their high bits, then the others as nibbles. */
static IK_INLINE void ik_put_fives(ik_block_out to, const float *v, float low, float inverse, float lift)
{
    uint32_t high = 0;
    for (int k = 0; k < IK_BLOCK / 2; k++) {
        const uint32_t a = ik_block_five((v[k] - low) * inverse + lift),
                       b = ik_block_five((v[k + IK_BLOCK / 2] - low) * inverse + lift);
        high |= a >> 4 << k | b >> 4 << (k + IK_BLOCK / 2);
        to[4 + k] = (uint8_t)((a & 15) | (b & 15) << 4);
    }
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(high >> 8 * i & 255);
}

/* Quantise 32 values to a block. The scale of Q5_0 is the value of largest magnitude, the first of several, over -16;
 * that of Q5_1 is the spread over 31. A NaN counts as the largest and the least. */
static IK_INLINE void ik_make_Q5_0(ik_block_out block, const float *v)
{
    float far = v[0];
    for (int k = 1; k < IK_BLOCK; k++) {
        const float size = v[k] < 0.0f ? -v[k] : v[k], largest = far < 0.0f ? -far : far;
        far = v[k] != v[k] || size > largest ? v[k] : far;
    }
    const float d = IK_DIV_F32(far, -16.0f);
    ik_put_half(block, d);
    ik_put_fives(block + 2, v, 0.0f, ik_block_inverse(d), 16.5f);
}

static IK_INLINE void ik_make_Q5_1(ik_block_out block, const float *v)
{
    float low = v[0], high = v[0];
    for (int k = 1; k < IK_BLOCK; k++) {
        low = v[k] != v[k] || v[k] < low ? v[k] : low;
        high = v[k] != v[k] || v[k] > high ? v[k] : high;
    }
    low = low == 0.0f ? 0.0f : low; /* of either sign */
    high = high == 0.0f ? 0.0f : high;
    const float d = IK_DIV_F32(high - low, 31.0f);
    ik_put_half(block, d);
    ik_put_half(block + 2, low);
    ik_put_fives(block + 4, v, low, ik_block_inverse(d), 0.5f);
}

#endif
