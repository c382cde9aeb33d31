/* Loads of 16 elements of a tensor as F32, by dtype, for kernels of CPU devices; of a block type, which has 32, both
 * halves. */
#ifndef IK_VECTORS_H
#define IK_VECTORS_H
#include "blocks.h"
#include "runs.h"

typedef uchar16 ik_nibbles __attribute__((aligned(2)));
typedef char16 ik_quants __attribute__((aligned(2)));

static IK_INLINE float16 ik_vector_F32(IK_GLOBAL const ik_f32 *x) { return *(IK_GLOBAL const ik_floats16 *)x; }

static IK_INLINE float16 ik_vector_BF16(IK_GLOBAL const ik_bf16 *x)
{ return as_float16(__builtin_convertvector(*(IK_GLOBAL const ik_bits16 *)x, uint16) << 16); }

/* ik_f16_to_f32 of isokern_half.h where the language's conversion is no instruction. */
static IK_INLINE float16 ik_vector_F16(IK_GLOBAL const ik_f16 *x)
{
    const ushort16 bits = *(IK_GLOBAL const ik_bits16 *)x;
#ifdef __AVX512F__
    return ik_widen_16(bits);
#else
    const uint16 u = __builtin_convertvector(bits, uint16), magnitude = (u & 0x7fffu) << 13,
                 finite = as_uint16(as_float16(magnitude) * 0x1p112f);
    return as_float16((magnitude >= 0x0f800000u ? magnitude | 0x7f800000u : finite) | (u & 0x8000u) << 16);
#endif
}

/* The floats of 8 bits, one after another: each is some steps of integers. */
static IK_INLINE float16 ik_vector_F8E4M3FN(IK_GLOBAL const ik_f8e4m3fn *x)
{
    float wide[16];
    IK_VECTORISE for (int u = 0; u < 16; u++)
        wide[u] = ik_f8e4m3fn_to_f32(x[u]);
    return *(const ik_floats16 *)wide;
}

static IK_INLINE float16 ik_vector_F8E5M2(IK_GLOBAL const ik_f8e5m2 *x)
{
    float wide[16];
    IK_VECTORISE for (int u = 0; u < 16; u++)
        wide[u] = ik_f8e5m2_to_f32(x[u]);
    return *(const ik_floats16 *)wide;
}

/* Elements 0 to 15 of a block, and 16 to 31. */
typedef struct {
    float16 low, high;
} ik_unpacked;

static IK_INLINE ik_unpacked ik_unpack_Q4_0(IK_GLOBAL const ik_u8 *block)
{
    const uchar16 two = *(IK_GLOBAL const ik_nibbles *)(block + 2);
    const float d = ik_scale_of(block);
    ik_unpacked made;
    made.low = __builtin_convertvector(as_char16(two & (uchar)15) - (char)8, float16) * d;
    made.high = __builtin_convertvector(as_char16(two >> (uchar)4) - (char)8, float16) * d;
    return made;
}

static IK_INLINE ik_unpacked ik_unpack_Q4_1(IK_GLOBAL const ik_u8 *block)
{
    const uchar16 two = *(IK_GLOBAL const ik_nibbles *)(block + 4);
    const float d = ik_scale_of(block), min_value = ik_min_of(block);
    ik_unpacked made;
    made.low = __builtin_convertvector(two & (uchar)15, float16) * d + min_value;
    made.high = __builtin_convertvector(two >> (uchar)4, float16) * d + min_value;
    return made;
}

static IK_INLINE ik_unpacked ik_unpack_Q8_0(IK_GLOBAL const ik_u8 *block)
{
    const float d = ik_scale_of(block);
    ik_unpacked made;
    made.low = __builtin_convertvector((char16) * (IK_GLOBAL const ik_quants *)(block + 2), float16) * d;
    made.high = __builtin_convertvector((char16) * (IK_GLOBAL const ik_quants *)(block + 18), float16) * d;
    return made;
}
#endif
