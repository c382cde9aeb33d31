/* Groups of four bytes along k, for vpdpbusd, which multiplies four unsigned bytes by four signed ones and adds the
 * products to a sum of 32 bits. */
#ifndef IK_BYTE_QUADS_H
#define IK_BYTE_QUADS_H
#include "gemm_tile.h"

#define GROUP 4
enum { AT_ONCE = 16 };
typedef uint8_t narrow;

static inline ik_u32s splat_group(const uint32_t *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits); /* was written as four numbers */
    return bits - (ik_u32s){ 0 };
}

static inline ik_u32s fma_group(ik_u32s a, ik_u32s b, ik_u32s c)
{ return (ik_u32s)_mm512_dpbusd_epi32((__m512i)c, (__m512i)a, (__m512i)b); }

/* Numbers of the left factor become unsigned, those of the right one signed. */
static int32_t shift_of(int32_t dtype, bool left, int32_t zero)
{
    (void)zero;
    return left ? (dtype == IK_I8 ? -128 : 0) : (dtype == IK_U8 ? 128 : 0);
}

static inline void group_vector(int32_t dtype, const char *from, int64_t step, const narrow *shifts, uint32_t *to)
{
    (void)dtype; /* shifts are modulo 2^8 */
    __m128i x[4], shift = _mm_loadu_si128((const void *)shifts);
#pragma GCC unroll 4
    for (int q = 0; q < 4; q++)
        x[q] = _mm_sub_epi8(_mm_loadu_si128((const void *)(from + q * step)), shift);
    const __m128i low = _mm_unpacklo_epi8(x[0], x[1]), high = _mm_unpackhi_epi8(x[0], x[1]),
                  low_2 = _mm_unpacklo_epi8(x[2], x[3]), high_2 = _mm_unpackhi_epi8(x[2], x[3]);
    _mm_storeu_si128((void *)to, _mm_unpacklo_epi16(low, low_2));
    _mm_storeu_si128((void *)(to + 4), _mm_unpackhi_epi16(low, low_2));
    _mm_storeu_si128((void *)(to + 8), _mm_unpacklo_epi16(high, high_2));
    _mm_storeu_si128((void *)(to + 12), _mm_unpackhi_epi16(high, high_2));
}

#endif
