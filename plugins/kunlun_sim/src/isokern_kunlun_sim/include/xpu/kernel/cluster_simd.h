/* XDNN's header: loads and stores of pairs of vectors. A 16-bit type is widened to two float vectors of its low and
 * high halves ("unordered": of its odd and even lanes), and narrowed again. */
#ifndef XPU_KERNEL_CLUSTER_SIMD_H
#define XPU_KERNEL_CLUSTER_SIMD_H
#include "../../xpusim/pairs.h"
#include "xtdk_simd.h"

/* A mask has 32 bits; the low 16 are for the first vector. */
#define XPUSIM_PAIRS(place, space) \
    XPUSIM_INLINE void vload2_##place##_mz( \
        const float *p, float32x16_t &low, float32x16_t &high, int mask, XPUSIM_HERE) \
    { \
        low = xpusim::load_part(p, mask, space, XPUSIM_SITE); \
        high = xpusim::load_part(p + 16, mask >> 16, space, XPUSIM_SITE); \
    } \
    XPUSIM_INLINE void vload2_##place##_mz(const int *p, int32x16_t &low, int32x16_t &high, int mask, XPUSIM_HERE) \
    { \
        low = xpusim::load_part(p, mask, space, XPUSIM_SITE); \
        high = xpusim::load_part(p + 16, mask >> 16, space, XPUSIM_SITE); \
    } \
    XPUSIM_INLINE void vload2_##place##_mz( \
        const bfloat16 *p, float32x16_t &low, float32x16_t &high, int mask, XPUSIM_HERE) \
    { xpusim::load_widen<xpusim::bf16>(p, low, high, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vload2_##place##_unordered_mz( \
        const bfloat16 *p, float32x16_t &odd, float32x16_t &even, int mask, XPUSIM_HERE) \
    { xpusim::load_odd_even(p, odd, even, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vload2_##place##_unordered( \
        const bfloat16 *p, float32x16_t &odd, float32x16_t &even, XPUSIM_HERE) \
    { xpusim::load_odd_even(p, odd, even, -1, space, XPUSIM_SITE); } \
    template <class T, class V> \
    XPUSIM_INLINE void vload2_##place(const T *p, V &low, V &high, XPUSIM_HERE) \
    { vload2_##place##_mz(p, low, high, -1, file, line); } \
    XPUSIM_INLINE void vstore2_##place(float *p, const float32x16_t &low, const float32x16_t &high, XPUSIM_HERE) \
    { \
        xpusim::store(p, low, -1, space, XPUSIM_SITE); \
        xpusim::store(p + 16, high, -1, space, XPUSIM_SITE); \
    } \
    XPUSIM_INLINE void vstore2_##place(int *p, const int32x16_t &low, const int32x16_t &high, XPUSIM_HERE) \
    { \
        xpusim::store(p, low, -1, space, XPUSIM_SITE); \
        xpusim::store(p + 16, high, -1, space, XPUSIM_SITE); \
    } \
    /* Rounds towards zero: KL3 drops the low half. */ \
    XPUSIM_INLINE void vstore2_##place(bfloat16 *p, const float32x16_t &low, const float32x16_t &high, XPUSIM_HERE) \
    { xpusim::store(p, vfloat2bf16_lh_rz(low, high), -1, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore2_##place##_unordered( \
        bfloat16 *p, const float32x16_t &odd, const float32x16_t &even, XPUSIM_HERE) \
    { xpusim::store_odd_even(p, odd, even, space, XPUSIM_SITE); }
XPUSIM_PAIRS(lm, XPUSIM_LM)
XPUSIM_PAIRS(sm, XPUSIM_SM)
XPUSIM_PAIRS(gsm, XPUSIM_LM)
#undef XPUSIM_PAIRS

#define XPUSIM_PAIRS(place, space) \
    XPUSIM_INLINE void vload2_##place##_mz( \
        const float16 *p, float32x16_t &low, float32x16_t &high, int mask, XPUSIM_HERE) \
    { xpusim::load_widen<xpusim::fp16>(p, low, high, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vload2_##place(const float16 *p, float32x16_t &low, float32x16_t &high, XPUSIM_HERE) \
    { vload2_##place##_mz(p, low, high, -1, file, line); } \
    XPUSIM_INLINE void vstore2_##place(float16 *p, const float32x16_t &low, const float32x16_t &high, XPUSIM_HERE) \
    { xpusim::store(p, vfloat2fp16_lh(low, high), -1, space, XPUSIM_SITE); }
XPUSIM_PAIRS(lm, XPUSIM_LM)
XPUSIM_PAIRS(sm, XPUSIM_SM)
XPUSIM_PAIRS(gsm, XPUSIM_LM)
#undef XPUSIM_PAIRS

#ifndef __arch_xpu2__
/* KL3 computes half precision as it is, too. */
#define XPUSIM_PAIRS(place, space) \
    XPUSIM_INLINE void vload2_##place(const float16 *p, float16x32_t &low, float16x32_t &high, XPUSIM_HERE) \
    { \
        low = xpusim::load<xpusim::fp16>(p, space, XPUSIM_SITE); \
        high = xpusim::load<xpusim::fp16>(p + 32, space, XPUSIM_SITE); \
    } \
    XPUSIM_INLINE void vstore2_##place(float16 *p, const float16x32_t &low, const float16x32_t &high, XPUSIM_HERE) \
    { \
        xpusim::store(p, low, -1, space, XPUSIM_SITE); \
        xpusim::store(p + 32, high, -1, space, XPUSIM_SITE); \
    }
XPUSIM_PAIRS(lm, XPUSIM_LM)
XPUSIM_PAIRS(sm, XPUSIM_SM)
XPUSIM_PAIRS(gsm, XPUSIM_LM)
#undef XPUSIM_PAIRS
#endif
#endif
