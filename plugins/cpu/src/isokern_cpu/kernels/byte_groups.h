/* Bytes as groups of GROUP numbers in 32 bits, which an instruction multiplies and adds at once; include byte_pairs.h
 * or byte_quads.h before, which define
 * - GROUP; narrow, the type of a number, unsigned; splat_group and fma_group, for gemm_tile.h;
 * - shift_of(dtype, left, zero): the shift of numbers of a dtype and zero point in the left factor, or the right one:
 *   numbers are packed less it, so that they have the type that the instruction takes;
 * - group_vector(dtype, from, step, shifts, to), which makes groups of AT_ONCE lines that lie side by side in memory,
 *   the numbers of each `step` bytes apart. */
#ifndef IK_BYTE_GROUPS_H
#define IK_BYTE_GROUPS_H
#include "gemm_tile.h"

static inline __attribute__((always_inline)) int32_t byte_at(const int32_t dtype, const char *from)
{ return dtype == IK_I8 ? *(const int8_t *)from : *(const uint8_t *)from; }

/* to[j] = the group of line j, less its shift, for n lines `line` bytes apart; its `count` numbers are `step` apart. */
static void group_lines(int32_t dtype, int64_t count, const char *from, int64_t step, int64_t line, int64_t n,
    const narrow *shifts, uint32_t *to)
{
    int64_t whole = line == 1 && count == GROUP ? n / AT_ONCE * AT_ONCE : 0;
    for (int64_t j = 0; j < whole; j += AT_ONCE)
        if (dtype == IK_I8)
            group_vector(IK_I8, from + j, step, shifts + j, to + j);
        else
            group_vector(IK_U8, from + j, step, shifts + j, to + j);
    for (int64_t j = whole; j < n; j++) {
        uint32_t group = 0;
        for (int64_t q = 0; q < count; q++)
            group |= (uint32_t)(narrow)(byte_at(dtype, from + q * step + j * line) - shifts[j]) << 32 / GROUP * q;
        to[j] = group;
    }
}

/* to[i] = the group of pixel i, less the shift, for n pixels `step` bytes apart; its `count` channels lie `channel`
 * bytes apart, and the others are 0. */
static __attribute__((unused)) void group_pixels(int32_t dtype, int64_t count, const char *from, int64_t channel,
    int64_t step, int64_t n, narrow shift, uint32_t *to)
{
#if GROUP == 4
    enum { LANES = 16 };
    const __m128i less = _mm_set1_epi8((char)shift);
    for (; n > 0 && (step == 1 || step == 2); n -= LANES, from += LANES * step, to += LANES) {
        const int64_t some = ik_min(LANES, n);
        const __mmask32 mask = (__mmask32)((UINT64_C(1) << (some - 1) * step << 1) - 1); /* ends with the last pixel */
        __m128i x[4] = { 0 };
        for (int64_t q = 0; q < count; q++) {
            const char *at = from + q * channel;
            x[q] = step == 1 ? _mm_maskz_loadu_epi8((__mmask16)mask, at)
                             : _mm256_cvtepi16_epi8(_mm256_maskz_loadu_epi8(mask, at));
            x[q] = _mm_sub_epi8(x[q], less);
        }
        const __m128i low = _mm_unpacklo_epi8(x[0], x[1]), high = _mm_unpackhi_epi8(x[0], x[1]),
                      low_2 = _mm_unpacklo_epi8(x[2], x[3]), high_2 = _mm_unpackhi_epi8(x[2], x[3]);
        __m512i groups = _mm512_castsi128_si512(_mm_unpacklo_epi16(low, low_2));
        groups = _mm512_inserti32x4(groups, _mm_unpackhi_epi16(low, low_2), 1);
        groups = _mm512_inserti32x4(groups, _mm_unpacklo_epi16(high, high_2), 2);
        groups = _mm512_inserti32x4(groups, _mm_unpackhi_epi16(high, high_2), 3);
        _mm512_mask_storeu_epi32(to, (__mmask16)((1u << some) - 1), groups);
    }
#endif
    enum { RUN = 2 * AT_ONCE };
    narrow shifts[RUN];
    for (int64_t i = 0; i < RUN; i++)
        shifts[i] = shift;
    for (int64_t at = 0; at < n; at += RUN)
        group_lines(dtype, count, from + at * step, channel, step, ik_min(RUN, n - at), shifts, to + at);
}

#endif
