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

/* A signed byte of a scaled value, rounded half away from zero; |x| is at most 127 up to rounding. */
static IK_INLINE int32_t ik_block_byte(float x)
{
    if (!ik_is_finite(x))
        return 0;
    const float size = x < 0.0f ? -x : x;
    const int32_t whole = (int32_t)size, near = whole + (size - (float)whole >= 0.5f);
    return x < 0.0f ? -near : near;
}

#endif
