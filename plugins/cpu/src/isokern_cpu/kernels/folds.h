/* The sum of the lanes of each of some vectors, by halves: lanes i and i + n / 2 are added until one is left. For one
 * float type; include after gemm_tile.h, with the same IK_T and IK_OF. */

#ifndef IK_FOLDS_H
#define IK_FOLDS_H
#if defined(__AVX__)
/* The last four lanes that are left of a vector. */
static inline __attribute__((always_inline)) __m128 fold_to_four(ik_f32s given)
{
#if defined(__AVX512F__)
    const __m512 x = (__m512)given;
    const __m256 half =
        _mm256_add_ps(_mm512_castps512_ps256(x), _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)));
#else
    const __m256 half = (__m256)given;
#endif
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}

/* Those of four vectors at once, where a vector's own would be one lane of each instruction. */
static inline __attribute__((always_inline)) void fold_four(const ik_f32s *x, float *to)
{
    const __m128 a = fold_to_four(x[0]), b = fold_to_four(x[1]), c = fold_to_four(x[2]), d = fold_to_four(x[3]);
    const __m128 ab = _mm_add_ps(_mm_unpacklo_ps(a, b), _mm_unpackhi_ps(a, b)),
                 cd = _mm_add_ps(_mm_unpacklo_ps(c, d), _mm_unpackhi_ps(c, d));
    _mm_storeu_ps(to, _mm_add_ps(_mm_movelh_ps(ab, cd), _mm_movehl_ps(cd, ab)));
}

static inline __attribute__((always_inline)) float fold_one(ik_f32s given)
{
    const __m128 x = fold_to_four(given), y = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
#endif
#endif

/* The sums of up to four vectors. */
static inline __attribute__((always_inline)) void IK_OF(fold)(const int count, const IK_OF(vector) * x, IK_T *to)
{
#if defined(__AVX__)
    if (sizeof(IK_T) == sizeof(float)) {
        if (count == 4)
            fold_four((const ik_f32s *)(const void *)x, (float *)(void *)to);
        else
            for (int c = 0; c < count; c++)
                ((float *)(void *)to)[c] = fold_one(((const ik_f32s *)(const void *)x)[c]);
        return;
    }
#endif
    for (int c = 0; c < count; c++) {
        IK_T lanes[IK_OF(lanes)];
        memcpy(lanes, &x[c], sizeof lanes);
        for (int w = IK_OF(lanes) / 2; w > 0; w /= 2)
            for (int i = 0; i < w; i++)
                lanes[i] += lanes[i + w];
        to[c] = lanes[0];
    }
}
