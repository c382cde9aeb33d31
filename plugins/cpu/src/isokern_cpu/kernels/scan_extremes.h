/* Running extremes of a dense row, for scan.c, by vectors of 64 bytes: y[t] = max(x[t], y[t - 1]) or min. Within a
 * vector, each lane takes the extreme of itself and of the lane 1, then 2, 4, … before it, so that vectors wait for
 * each other only in the last step. Of equal numbers (zeros of both signs), the first stays.
 *
 * Along rows of floats, the whole takes two thirds of the time of a walk along several rows. */
#ifndef IK_SCAN_EXTREMES_H
#define IK_SCAN_EXTREMES_H
#include "convert.h"

#if defined(__AVX512F__)
enum { VECTOR_EXTREMES = true };
#define IK_INLINE_EXTREMES static inline __attribute__((always_inline))

/* The further of two numbers in each lane, of which none is NaN. */
IK_INLINE_EXTREMES __m512i take_further(const int32_t compute, const bool low, __m512i before, __m512i x)
{
    if (compute == IK_F32) {
        const __m512 a = (__m512)x, b = (__m512)before;
        return (__m512i)(low ? _mm512_min_ps(a, b) : _mm512_max_ps(a, b));
    }
    if (compute == IK_F64) {
        const __m512d a = (__m512d)x, b = (__m512d)before;
        return (__m512i)(low ? _mm512_min_pd(a, b) : _mm512_max_pd(a, b));
    }
    if (compute == IK_I64)
        return low ? _mm512_min_epi64(x, before) : _mm512_max_epi64(x, before);
    return low ? _mm512_min_epu64(x, before) : _mm512_max_epu64(x, before);
}

/* What no number is further than. */
IK_INLINE_EXTREMES __m512i spread_none(const int32_t compute, const bool low)
{
    if (compute == IK_F32)
        return (__m512i)_mm512_set1_ps(low ? __builtin_inff() : -__builtin_inff());
    if (compute == IK_F64)
        return (__m512i)_mm512_set1_pd(low ? __builtin_inf() : -__builtin_inf());
    if (compute == IK_I64)
        return _mm512_set1_epi64(low ? INT64_MAX : INT64_MIN);
    return _mm512_set1_epi64(low ? -1 : 0);
}

/* Lanes of 32 bits that lie `lanes` further on, with `none` in those that come first. */
#define IK_LANES_BEFORE(v, none, lanes) \
    (back ? _mm512_alignr_epi32(none, v, lanes) : _mm512_alignr_epi32(v, none, 16 - (lanes)))

/* The numbers from x on, or with `back` those up to x; and the value before them, which becomes the last. */
IK_INLINE_EXTREMES void scan_dense(
    const int32_t compute, const bool low, const bool back, const char *x, char *y, int64_t n, void *state)
{
    const int64_t size = compute == IK_F32 ? 4 : 8, lanes = 64 / size;
    const __m512i none = spread_none(compute, low), last = _mm512_set1_epi64(back ? 0 : lanes - 1);
    __m512i carry = size == 4 ? _mm512_set1_epi32(*(const int32_t *)state) : _mm512_set1_epi64(*(const int64_t *)state);
    for (int64_t at = 0; at < n; at += lanes) {
        const int64_t some = ik_min(lanes, n - at), of32 = some * size / 4,
                      offset = (back ? 1 - at - lanes : at) * size;
        const __mmask16 known = (__mmask16)(back ? 0xffffu << (16 - of32) : 0xffffu >> (16 - of32));
        __m512i v = _mm512_mask_loadu_epi32(none, known, x + offset);
        if (size == 4)
            v = take_further(compute, low, IK_LANES_BEFORE(v, none, 1), v);
        v = take_further(compute, low, IK_LANES_BEFORE(v, none, 2), v);
        v = take_further(compute, low, IK_LANES_BEFORE(v, none, 4), v);
        v = take_further(compute, low, IK_LANES_BEFORE(v, none, 8), v);
        _mm512_mask_storeu_epi32(y + offset, known, take_further(compute, low, carry, v));
        const __m512i end = size == 4 ? _mm512_permutexvar_epi32(_mm512_set1_epi32(back ? 0 : 15), v)
                                      : _mm512_permutexvar_epi64(last, v);
        carry = take_further(compute, low, carry, end);
    }
    _mm512_mask_storeu_epi32(state, size == 4 ? 1 : 3, carry);
}

IK_INLINE_EXTREMES void scan_either(
    const int32_t compute, bool low, bool back, const char *x, char *y, int64_t n, void *state)
{
    if (low && back)
        scan_dense(compute, true, true, x, y, n, state);
    else if (low)
        scan_dense(compute, true, false, x, y, n, state);
    else if (back)
        scan_dense(compute, false, true, x, y, n, state);
    else
        scan_dense(compute, false, false, x, y, n, state);
}

/* Whether a run has a NaN; x: its first element in memory. */
static inline bool has_nan(int32_t compute, const char *x, int64_t n)
{
    const int64_t lanes = compute == IK_F32 ? 16 : 8;
    unsigned found = 0;
    for (int64_t at = 0; at < n && (compute == IK_F32 || compute == IK_F64); at += lanes) {
        const unsigned known = 0xffffu >> (16 - ik_min(lanes, n - at));
        if (compute == IK_F32) {
            const __m512 v = _mm512_maskz_loadu_ps((__mmask16)known, x + at * 4);
            found |= _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
        } else {
            const __m512d v = _mm512_maskz_loadu_pd((__mmask8)known, x + at * 8);
            found |= _mm512_cmp_pd_mask(v, v, _CMP_UNORD_Q);
        }
    }
    return found != 0;
}

/* Scan a row whose steps in x and y are both 1, or both -1, and return true; false where there is a NaN. */
static bool scan_extremes(int32_t compute, bool low, bool back, const char *x, char *y, int64_t n, void *state)
{
    const int64_t size = compute == IK_F32 ? 4 : 8;
    if (has_nan(compute, x - (back ? n - 1 : 0) * size, n) || has_nan(compute, state, 1))
        return false;
    switch (compute) {
    case IK_F32: scan_either(IK_F32, low, back, x, y, n, state); break;
    case IK_F64: scan_either(IK_F64, low, back, x, y, n, state); break;
    case IK_I64: scan_either(IK_I64, low, back, x, y, n, state); break;
    default: scan_either(IK_U64, low, back, x, y, n, state);
    }
    return true;
}
#else
enum { VECTOR_EXTREMES = false };

static bool scan_extremes(int32_t compute, bool low, bool back, const char *x, char *y, int64_t n, void *state)
{
    (void)compute, (void)low, (void)back, (void)x, (void)y, (void)n, (void)state;
    return false;
}
#endif
#endif
