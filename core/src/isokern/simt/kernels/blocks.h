/* Tensors of block types: bytes, with IK_SIZE_x of them for each block of 32 elements; see isokern/blocks. Blocks
 * lie at even addresses. Types that are only decoded have other blocks, of which ik_load_ reads an element
 * (isokern_layouts.h). */
#ifndef IK_BLOCKS_H
#define IK_BLOCKS_H
#include "simt.h"
#include "isokern_blocks.h"
#include "isokern_math.h"

/* The block that begins with element i. There may be more bytes than elements, so the offset takes 64 bits. */
#define IK_BLOCK_AT(x, i) ((x) + (ik_i64)((i) / IK_BLOCK) * IK_SIZE_##x)

/* The scale of a block, and Q4_1's minimum. */
static IK_INLINE float ik_scale_of(IK_GLOBAL const ik_u8 *block)
{ return ik_load_F16((IK_GLOBAL const ik_u16 *)block, 0); }
static IK_INLINE float ik_min_of(IK_GLOBAL const ik_u8 *block)
{ return ik_load_F16((IK_GLOBAL const ik_u16 *)block, 1); }

/* Quant k of 16 bytes of nibbles. */
static IK_INLINE int ik_nibble(IK_GLOBAL const ik_u8 *nibbles, int k) { return nibbles[k & 15] >> (k / 16 * 4) & 15; }

/* Element k of a block, by dtype. */
static IK_INLINE float ik_of_Q4_0(IK_GLOBAL const ik_u8 *block, int k)
{ return (float)(ik_nibble(block + 2, k) - 8) * ik_scale_of(block); }
static IK_INLINE float ik_of_Q4_1(IK_GLOBAL const ik_u8 *block, int k)
{ return (float)ik_nibble(block + 4, k) * ik_scale_of(block) + ik_min_of(block); }
static IK_INLINE float ik_of_Q8_0(IK_GLOBAL const ik_u8 *block, int k)
{ return (float)(ik_i8)block[2 + k] * ik_scale_of(block); }

/* For IK_LOAD, whose pointers point to the first block. */
#define ik_load_Q4_0(x, i) ik_of_Q4_0((x) + (ik_i64)((i) / IK_BLOCK) * 18, (int)((i) & (IK_BLOCK - 1)))
#define ik_load_Q4_1(x, i) ik_of_Q4_1((x) + (ik_i64)((i) / IK_BLOCK) * 20, (int)((i) & (IK_BLOCK - 1)))
#define ik_load_Q8_0(x, i) ik_of_Q8_0((x) + (ik_i64)((i) / IK_BLOCK) * 34, (int)((i) & (IK_BLOCK - 1)))

/* Σ v[k] of_D(block, k). Where all terms have one scale, the sum is scaled once. */
static IK_INLINE float ik_dot_Q4_0(IK_GLOBAL const ik_u8 *block, const float *v)
{
    float low = 0, high = 0;
    for (int k = 0; k < 16; k++) {
        const int two = block[2 + k];
        low = IK_FMA_F32(v[k], (float)((two & 15) - 8), low);
        high = IK_FMA_F32(v[k + 16], (float)((two >> 4) - 8), high);
    }
    return (low + high) * ik_scale_of(block);
}

static IK_INLINE float ik_dot_Q4_1(IK_GLOBAL const ik_u8 *block, const float *v)
{
    const float d = ik_scale_of(block), m = ik_min_of(block);
    float low = 0, high = 0;
    for (int k = 0; k < 16; k++) {
        const int two = block[4 + k];
        low = IK_FMA_F32(v[k], (float)(two & 15) * d + m, low);
        high = IK_FMA_F32(v[k + 16], (float)(two >> 4) * d + m, high);
    }
    return low + high;
}

static IK_INLINE float ik_dot_Q8_0(IK_GLOBAL const ik_u8 *block, const float *v)
{
    float low = 0, high = 0;
    for (int k = 0; k < 16; k++) {
        low = IK_FMA_F32(v[k], (float)(ik_i8)block[2 + k], low);
        high = IK_FMA_F32(v[k + 16], (float)(ik_i8)block[18 + k], high);
    }
    return (low + high) * ik_scale_of(block);
}

/* Σ of_D(block, k) of_Q8_0(x, k), with integer products. */
static IK_INLINE float ik_products_Q4_0(IK_GLOBAL const ik_u8 *block, IK_GLOBAL const ik_u8 *x)
{
    int sum = 0;
    for (int k = 0; k < 16; k++)
        sum += ((block[2 + k] & 15) - 8) * (ik_i8)x[2 + k] + ((block[2 + k] >> 4) - 8) * (ik_i8)x[18 + k];
    return (float)sum * ik_scale_of(block) * ik_scale_of(x);
}

static IK_INLINE float ik_products_Q4_1(IK_GLOBAL const ik_u8 *block, IK_GLOBAL const ik_u8 *x)
{
    int sum = 0, all = 0;
    for (int k = 0; k < 16; k++) {
        sum += (block[4 + k] & 15) * (ik_i8)x[2 + k] + (block[4 + k] >> 4) * (ik_i8)x[18 + k];
        all += (ik_i8)x[2 + k] + (ik_i8)x[18 + k];
    }
    return IK_FMA_F32((float)sum, ik_scale_of(block), (float)all * ik_min_of(block)) * ik_scale_of(x);
}

static IK_INLINE float ik_products_Q8_0(IK_GLOBAL const ik_u8 *block, IK_GLOBAL const ik_u8 *x)
{
    int sum = 0;
    for (int k = 0; k < IK_BLOCK; k++)
        sum += (ik_i8)block[2 + k] * (ik_i8)x[2 + k];
    return (float)sum * ik_scale_of(block) * ik_scale_of(x);
}

static IK_INLINE void ik_store_scale(IK_GLOBAL ik_u8 *block, int at, float d)
{ ((IK_GLOBAL ik_u16 *)block)[at] = ik_block_half(d); }

/* The Q8_0 scale of 32 values, before it is rounded. */
static IK_INLINE float ik_scale_for_Q8_0(const float *v)
{
    float max_value = 0;
    for (int k = 0; k < IK_BLOCK; k++)
        max_value = ik_maximum_f32(max_value, ik_abs_f32(v[k]));
    return IK_DIV_F32(max_value, 127.0f);
}

/* Quantise 32 values to a block. */
static IK_INLINE void ik_make_Q8_0(IK_GLOBAL ik_u8 *block, const float *v)
{
    const float d = ik_scale_for_Q8_0(v), inverse = ik_block_inverse(d);
    ik_store_scale(block, 0, d);
    for (int k = 0; k < IK_BLOCK; k++)
        block[2 + k] = (ik_u8)ik_block_byte(v[k] * inverse);
}

/* Make 32 values what they are once they have been quantised to Q8_0. */
static IK_INLINE void ik_round_Q8_0(float *v)
{
    const float d = ik_scale_for_Q8_0(v), inverse = ik_block_inverse(d), held = ik_f16_to_f32(ik_block_half(d));
    for (int k = 0; k < IK_BLOCK; k++)
        v[k] = (float)ik_block_byte(v[k] * inverse) * held;
}

static IK_INLINE void ik_make_Q4_0(IK_GLOBAL ik_u8 *block, const float *v)
{
    float max_value = v[0]; /* the first of largest magnitude; NaN if there is one */
    for (int k = 1; k < IK_BLOCK; k++)
        max_value = v[k] != v[k] || ik_abs_f32(v[k]) > ik_abs_f32(max_value) ? v[k] : max_value;
    const float d = IK_DIV_F32(max_value, -8.0f), inverse = ik_block_inverse(d);
    ik_store_scale(block, 0, d);
    for (int k = 0; k < IK_BLOCK / 2; k++)
        block[2 + k] =
            (ik_u8)(ik_block_nibble(v[k] * inverse + 8.5f) | ik_block_nibble(v[k + 16] * inverse + 8.5f) << 4);
}

static IK_INLINE void ik_make_Q4_1(IK_GLOBAL ik_u8 *block, const float *v)
{
    float min_value = v[0], max_value = v[0];
    for (int k = 1; k < IK_BLOCK; k++) {
        min_value = ik_minimum_f32(min_value, v[k]);
        max_value = ik_maximum_f32(max_value, v[k]);
    }
    min_value = min_value == 0 ? 0.0f : min_value; /* of either sign */
    max_value = max_value == 0 ? 0.0f : max_value;
    const float d = IK_DIV_F32(max_value - min_value, 15.0f), inverse = ik_block_inverse(d);
    ik_store_scale(block, 0, d);
    ik_store_scale(block, 1, min_value);
    for (int k = 0; k < IK_BLOCK / 2; k++)
        block[4 + k] = (ik_u8)(ik_block_nibble((v[k] - min_value) * inverse + 0.5f)
            | ik_block_nibble((v[k + 16] - min_value) * inverse + 0.5f) << 4);
}
#endif
