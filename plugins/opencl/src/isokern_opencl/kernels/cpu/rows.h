/* Rows for kernels of CPU devices: an item reads a row of y's type several times, by whole registers, while it is in
 * the caches.
 *
 * Operations on vectors are the language's operators: a built-in function that is not inlined, for example because it
 * was compiled for another processor, may not even agree on how vectors are passed. */
#ifndef IK_ROWS_H
#define IK_ROWS_H
#include "runs.h"
#include "group.h"

typedef IK_ELEMENT(y) ik_t;
#ifdef IK_COMPUTE_F64
typedef double8 ik_vec;
#else
typedef float16 ik_vec;
#endif
typedef ik_vec ik_vec_unaligned __attribute__((aligned(IK_SIZE_y)));
enum { IK_WIDTH = 64 / sizeof(ik_c), IK_BLOCK = 32 * IK_WIDTH };

static IK_INLINE ik_c ik_value(IK_GLOBAL const ik_t *x) { return IK_PASTE(ik_load_, IK_TYPE_y)(x, 0); }

#if IK_SIZE_y == 2
static IK_INLINE float16 ik_vec_widen(ushort16 bits)
{
#if !IK_IS_F16(y)
    return as_float16(__builtin_convertvector(bits, uint16) << 16);
#elif defined(__AVX512F__)
    return ik_widen_16(bits);
#else
    float wide[16];
    ik_f16 narrow[16];
    *(ik_bits16 *)narrow = bits;
    IK_VECTORISE for (int i = 0; i < 16; i++)
        wide[i] = ik_f16_to_f32(narrow[i]);
    return *(const ik_floats16 *)wide;
#endif
}

static IK_INLINE ushort16 ik_vec_narrow(float16 v)
{
#if !IK_IS_F16(y) /* as ik_f32_to_bf16 */
    const uint16 u = as_uint16(v), rounded = (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    return __builtin_convertvector((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40u : rounded, ushort16);
#elif defined(__AVX512F__)
    return ik_narrow_16(v);
#else
    float wide[16];
    ik_f16 narrow[16];
    *(ik_floats16 *)wide = v;
    ik_narrow_f16(wide, narrow, 16);
    return *(const ik_bits16 *)narrow;
#endif
}
#endif

/* Load IK_WIDTH values from memory. */
static IK_INLINE ik_vec ik_vec_load(IK_GLOBAL const ik_t *x)
{
#if IK_SIZE_y == 2
    return ik_vec_widen(*(IK_GLOBAL const ik_bits16 *)x);
#else
    return *(IK_GLOBAL const ik_vec_unaligned *)x;
#endif
}

/* Store IK_WIDTH values to memory; `stream` says that they are a whole cache line that is not read soon. */
static IK_INLINE void ik_vec_store(ik_vec v, IK_GLOBAL ik_t *y, int stream)
{
#if IK_SIZE_y == 2
    *(IK_GLOBAL ik_bits16 *)y = ik_vec_narrow(v);
#else
    if (stream)
        IK_STREAM((IK_GLOBAL ik_vec *)y, v);
    else
        *(IK_GLOBAL ik_vec_unaligned *)y = v;
#endif
}

static IK_INLINE ik_c ik_lanes_sum(ik_vec v)
{
#ifdef IK_COMPUTE_F64
    const double4 half_ = v.lo + v.hi;
#else
    const float8 eight = v.lo + v.hi;
    const float4 half_ = eight.lo + eight.hi;
#endif
    return (half_.x + half_.z) + (half_.y + half_.w);
}

/* The sum of x[i], or of (x[i] - shift)^2: in each block a tree over the lanes of four registers; the sums of blocks
 * are added with compensation of rounding errors. */
static IK_INLINE ik_sum ik_row_sum(IK_GLOBAL const ik_t *x, ik_index n, int squares, ik_c shift)
{
    ik_sum sum = ik_sum_none();
    ik_index i = 0;
    while (n - i >= IK_WIDTH) {
        const ik_index end = n - i < IK_BLOCK ? n - (n - i) % IK_WIDTH : i + IK_BLOCK;
        ik_vec s0 = 0, s1 = 0, s2 = 0, s3 = 0;
        for (; end - i >= 4 * IK_WIDTH; i += 4 * IK_WIDTH) {
            const ik_vec v0 = ik_vec_load(x + i) - shift, v1 = ik_vec_load(x + i + IK_WIDTH) - shift;
            const ik_vec v2 = ik_vec_load(x + i + 2 * IK_WIDTH) - shift, v3 = ik_vec_load(x + i + 3 * IK_WIDTH) - shift;
            s0 += squares ? v0 * v0 : v0;
            s1 += squares ? v1 * v1 : v1;
            s2 += squares ? v2 * v2 : v2;
            s3 += squares ? v3 * v3 : v3;
        }
        for (; i < end; i += IK_WIDTH) {
            const ik_vec v = ik_vec_load(x + i) - shift;
            s0 += squares ? v * v : v;
        }
        sum = ik_sum_add(sum, ik_lanes_sum((s0 + s1) + (s2 + s3)));
    }
    ik_c rest = 0;
    for (; i < n; i++) {
        const ik_c v = ik_value(x + i) - shift;
        rest += squares ? v * v : v;
    }
    return ik_sum_add(sum, rest);
}

/* The larger of each lane, or the smaller; NaN where either is NaN. */
static IK_INLINE ik_vec ik_lanes_extreme(ik_vec a, ik_vec b, int largest)
{ return largest ? (((a > b) | (a != a)) ? a : b) : (((a < b) | (a != a)) ? a : b); }

/* The largest of n >= 1 values, or the smallest; NaN where there is one. */
static IK_INLINE ik_c ik_row_extreme(IK_GLOBAL const ik_t *x, ik_index n, int largest)
{
    ik_c found = ik_value(x);
    ik_index i = 0;
    if (n >= IK_WIDTH) {
        ik_vec m0 = ik_vec_load(x), m1 = m0, m2 = m0, m3 = m0;
        for (; n - i >= 4 * IK_WIDTH; i += 4 * IK_WIDTH) {
            m0 = ik_lanes_extreme(m0, ik_vec_load(x + i), largest);
            m1 = ik_lanes_extreme(m1, ik_vec_load(x + i + IK_WIDTH), largest);
            m2 = ik_lanes_extreme(m2, ik_vec_load(x + i + 2 * IK_WIDTH), largest);
            m3 = ik_lanes_extreme(m3, ik_vec_load(x + i + 3 * IK_WIDTH), largest);
        }
        for (; n - i >= IK_WIDTH; i += IK_WIDTH)
            m0 = ik_lanes_extreme(m0, ik_vec_load(x + i), largest);
        ik_c lanes[IK_WIDTH] IK_ALIGNED;
        *(ik_vec *)lanes =
            ik_lanes_extreme(ik_lanes_extreme(m0, m1, largest), ik_lanes_extreme(m2, m3, largest), largest);
        found = lanes[0];
        for (int k = 1; k < IK_WIDTH; k++)
            found = largest ? IK_FN(maximum)(found, lanes[k]) : IK_FN(minimum)(found, lanes[k]);
    }
    for (; i < n; i++)
        found = largest ? IK_FN(maximum)(found, ik_value(x + i)) : IK_FN(minimum)(found, ik_value(x + i));
    return found;
}
#endif
