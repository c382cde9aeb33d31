/* Groups of two numbers of 16 bits along k, for pmaddwd, which multiplies two pairs and adds the products. 16 bits hold
 * every difference of two bytes. (pmaddubsw, on bytes, would saturate.) */
#ifndef IK_BYTE_PAIRS_H
#define IK_BYTE_PAIRS_H
#include "gemm_tile.h"

#define GROUP 2
enum { AT_ONCE = 8 };
typedef uint16_t narrow;

static inline ik_u32s splat_group(const uint32_t *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits); /* was written as two numbers */
    return bits - (ik_u32s){ 0 };
}

static inline ik_u32s fma_group(ik_u32s a, ik_u32s b, ik_u32s c)
{
#if defined(__AVX512BW__)
    return c + (ik_u32s)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return c + (ik_u32s)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__SSE2__)
    return c + (ik_u32s)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    typedef int32_t signed_lanes __attribute__((vector_size(IK_VECTOR)));
    const signed_lanes low = ((signed_lanes)(a << 16) >> 16) * ((signed_lanes)(b << 16) >> 16);
    return c + (ik_u32s)(low + ((signed_lanes)a >> 16) * ((signed_lanes)b >> 16));
#endif
}

/* Nothing is left of the zero point. */
static int32_t shift_of(int32_t dtype, bool left, int32_t zero)
{
    (void)dtype, (void)left;
    return zero;
}

static inline __attribute__((always_inline)) void group_vector(
    const int32_t dtype, const char *from, int64_t step, const narrow *shifts, uint32_t *to)
{
#if defined(__SSE2__)
    __m128i x[2];
#pragma GCC unroll 2
    for (int q = 0; q < 2; q++) {
        const __m128i bytes = _mm_loadl_epi64((const void *)(from + q * step)), zero = _mm_setzero_si128(),
                      high = dtype == IK_I8 ? _mm_cmpgt_epi8(zero, bytes) : zero;
        x[q] = _mm_sub_epi16(_mm_unpacklo_epi8(bytes, high), _mm_loadu_si128((const void *)shifts));
    }
    _mm_storeu_si128((void *)to, _mm_unpacklo_epi16(x[0], x[1]));
    _mm_storeu_si128((void *)(to + 4), _mm_unpackhi_epi16(x[0], x[1]));
#else
    const int8_t *low = (const int8_t *)from, *high = (const int8_t *)(from + step);
    for (int j = 0; j < AT_ONCE; j++) {
        const int32_t x = dtype == IK_I8 ? low[j] : (uint8_t)low[j], y = dtype == IK_I8 ? high[j] : (uint8_t)high[j];
        to[j] = (uint32_t)(narrow)(x - shifts[j]) | (uint32_t)(narrow)(y - shifts[j]) << 16;
    }
#endif
}

#endif
