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

/* The value of largest magnitude of n, the first of several; a NaN counts as the largest. */
static IK_INLINE float ik_block_extreme(const float *v, int n)
{
    float far = v[0];
    for (int k = 1; k < n; k++) {
        const float size = v[k] < 0.0f ? -v[k] : v[k], largest = far < 0.0f ? -far : far;
        far = far == far && (v[k] != v[k] || size > largest) ? v[k] : far;
    }
    return far;
}

/* Quantise 32 values to a block. The scale of Q5_0 is the value of largest magnitude, the first of several, over -16;
 * that of Q5_1 is the spread over 31. A NaN counts as the largest and the least. */
static IK_INLINE void ik_make_Q5_0(ik_block_out block, const float *v)
{
    const float d = IK_DIV_F32(ik_block_extreme(v, IK_BLOCK), -16.0f);
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

/* -1, 0 or 1 of a scaled value of at most 1, half away from zero, as 0, 1 or 2; a NaN is 0. */
static IK_INLINE uint32_t ik_block_trit(float x) { return 1u + (x >= 0.5f) - (x <= -0.5f); }

/* The factor for trits of a magnitude d; 0 where it is not finite. */
static IK_INLINE float ik_trit_inverse(float d)
{
    const float inverse = ik_block_inverse(d);
    return ik_is_finite(inverse) ? inverse : 0.0f;
}

/* Quantise 256 values to trits times the largest magnitude: four in a byte, for each half of the block, or five, as the
 * number below 243 that they write times 256/243, rounded up: of 160 values 32 apart, 80 values 16 apart and, four in a
 * byte, 16 values 4 apart. */
static IK_INLINE void ik_make_TQ2_0(ik_block_out block, const float *v)
{
    const float d = ik_float(ik_bits(ik_block_extreme(v, 256)) & 0x7fffffffu), inverse = ik_trit_inverse(d);
    for (int i = 0; i < 64; i++) {
        uint32_t byte = 0;
        for (int n = 0; n < 4; n++)
            byte |= ik_block_trit(v[(i >> 5) * 128 + n * 32 + (i & 31)] * inverse) << 2 * n;
        block[i] = (uint8_t)byte;
    }
    ik_put_half(block + 64, d);
}

static IK_INLINE void ik_make_TQ1_0(ik_block_out block, const float *v)
{
    const float d = ik_float(ik_bits(ik_block_extreme(v, 256)) & 0x7fffffffu), inverse = ik_trit_inverse(d);
    for (int i = 0; i < 52; i++) {
        const int from = i < 32 ? i
            : i < 48            ? 128 + i
                                : 192 + i,
                  step = i < 32 ? 32
            : i < 48            ? 16
                                : 4,
                  count = i < 48 ? 5 : 4;
        uint32_t number = 0, power = 81;
        for (int n = 0; n < count; n++, power /= 3)
            number += ik_block_trit(v[from + n * step] * inverse) * power;
        block[i] = (uint8_t)((number * 256 + 242) / 243);
    }
    ik_put_half(block + 52, d);
}

/* Quantise 256 values such that the one of largest magnitude is -127, rounded half to even, and add up runs of 16. */
static IK_INLINE void ik_make_Q8_K(ik_block_out block, const float *v)
{
    const float far = ik_block_extreme(v, 256), inverse = far == 0.0f ? 0.0f : IK_DIV_F32(-127.0f, far),
                d = far == 0.0f ? 0.0f : IK_DIV_F32(1.0f, inverse);
    const uint32_t bits = d == d ? ik_bits(d) : 0x7fc00000u; /* one NaN */
    for (int i = 0; i < 4; i++)
        block[i] = (uint8_t)(bits >> 8 * i & 255);
    for (int run = 0; run < 16; run++) {
        int32_t sum = 0;
        for (int i = 0; i < 16; i++) {
            /* The sum has no room for a fraction, so it is rounded, half to even. */
            const float x = v[16 * run + i] * inverse, lifted = x + 12582912.0f, whole = lifted - 12582912.0f;
            const int32_t near = ik_is_finite(x) ? (int32_t)(whole > 127.0f ? 127.0f : whole) : 0;
            block[4 + 16 * run + i] = (uint8_t)near;
            sum += near;
        }
        block[260 + 2 * run] = (uint8_t)((uint32_t)sum & 255);
        block[261 + 2 * run] = (uint8_t)((uint32_t)sum >> 8 & 255);
    }
}

/* floor(log2(x)) of a positive finite number, from -127 for subnormal ones, with the logarithm rounded to F32 as the
 * format's tools round it: a little below a power of two it is that power's exponent. log2(2^t (1 - r 2^-24)) is
 * t - r 2^-24 / ln 2, and rounds to t up to half a unit of the numbers next to t on the side of 0. */
static IK_INLINE int32_t ik_floor_log2(float x)
{
    const uint32_t bits = ik_bits(x);
    const int32_t above = (int32_t)(bits >> 23) - 126, rest = 0x800000 - (int32_t)(bits & 0x7fffffu);
    const int32_t size = above < 0 ? -above : above;
    int32_t unit = 1;
    while (2 * unit <= size)
        unit *= 2;
    if (above > 1 && unit == size)
        unit /= 2; /* units are half as large below a power of two */
    const int32_t limit = 177 * unit >> 8; /* floor(unit ln 2) for units up to 64 */
    return bits >= 0x800000u && rest <= limit ? above : above - 1;
}

/* Quantise 32 values to the nearest floats of 4 bits times a power of two, such that the largest magnitude has the
 * exponent of the largest float. An infinity or a NaN makes the power 255 and all floats 0. */
static IK_INLINE void ik_make_MXFP4(ik_block_out block, const float *v)
{
    const float far = ik_block_extreme(v, IK_BLOCK), size = far < 0.0f ? -far : far;
    int32_t e = size > 0.0f ? ik_floor_log2(size) + 125 : 0;
    e = e < 0 ? 0 : e;
    block[0] = (uint8_t)(ik_is_finite(far) ? e : 255);
    const float d = ik_layout_power(block);
    uint32_t best[IK_BLOCK];
    float error[IK_BLOCK];
    for (int k = 0; k < IK_BLOCK; k++) {
        best[k] = 0;
        error[k] = v[k] < 0.0f ? -v[k] : v[k];
    }
    for (uint32_t code = 1; code < 8; code++) {
        const float level = d * (float)ik_layout_twice_fp4((int32_t)code);
        for (int k = 0; k < IK_BLOCK; k++) {
            const float own = v[k] < 0.0f ? -v[k] : v[k], off = level - own, rest = off < 0.0f ? -off : off;
            best[k] = rest < error[k] ? code : best[k];
            error[k] = rest < error[k] ? rest : error[k];
        }
    }
    for (int k = 0; k < IK_BLOCK; k++)
        best[k] = !ik_is_finite(far) ? 0 : best[k] + (v[k] < 0.0f && best[k] != 0 ? 8 : 0);
    for (int k = 0; k < IK_BLOCK / 2; k++)
        block[1 + k] = (uint8_t)(best[k] | best[k + IK_BLOCK / 2] << 4);
}

#endif
