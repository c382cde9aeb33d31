/* Vectors of F32 of which only some lanes are in memory, as at the edges of an image; from AVX2 on (IK_MASKS). */
#ifndef IK_MASKS_H
#define IK_MASKS_H
#include "convert.h"

#if defined(__AVX2__)
#define IK_MASKS
enum { IK_F32_LANES = IK_VECTOR / sizeof(float) };

/* ik_mask_of: lanes low .. high of a vector. ik_every_other: elements 0, 2, 4, … of a and b, with `odd` 1, 3, 5, … */
#if defined(__AVX512F__)
typedef __mmask16 ik_mask;
static inline ik_mask ik_mask_of(int64_t low, int64_t high) { return (ik_mask)((1u << high) - (1u << low)); }
static inline ik_f32s ik_load_masked(ik_mask mask, const float *x) { return _mm512_maskz_loadu_ps(mask, x); }
static inline void ik_store_masked(ik_mask mask, float *y, ik_f32s v) { _mm512_mask_storeu_ps(y, mask, v); }
static inline ik_f32s ik_every_other(ik_f32s a, ik_f32s b, const bool odd)
{
    const __m512i even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    return _mm512_permutex2var_ps(a, odd ? _mm512_add_epi32(even, _mm512_set1_epi32(1)) : even, b);
}
#else
typedef __m256i ik_mask;
static inline ik_mask ik_mask_of(int64_t low, int64_t high)
{
    const __m256i lane = _mm256_set_epi32(7, 6, 5, 4, 3, 2, 1, 0);
    return _mm256_andnot_si256(_mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)low), lane),
        _mm256_cmpgt_epi32(_mm256_set1_epi32((int32_t)high), lane));
}
static inline ik_f32s ik_load_masked(ik_mask mask, const float *x) { return _mm256_maskload_ps(x, mask); }
static inline void ik_store_masked(ik_mask mask, float *y, ik_f32s v) { _mm256_maskstore_ps(y, mask, v); }
static inline ik_f32s ik_every_other(ik_f32s a, ik_f32s b, const bool odd)
{
    const __m256 pairs = odd ? _mm256_shuffle_ps(a, b, 0xdd) : _mm256_shuffle_ps(a, b, 0x88);
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(pairs), 0xd8));
}
#endif

/* The lanes of a vector that begins at element `at` whose elements lie in begin .. end. */
static inline ik_mask ik_mask_inside(int64_t at, int64_t begin, int64_t end)
{
    const int64_t low = ik_min(IK_F32_LANES, ik_max(0, begin - at));
    return ik_mask_of(low, ik_max(low, ik_min(IK_F32_LANES, end - at)));
}
#endif
#endif
