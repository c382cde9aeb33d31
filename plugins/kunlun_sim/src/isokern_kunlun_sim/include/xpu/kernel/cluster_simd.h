/* XDNN's: pairs of vectors to and from memory. A 16-bit type is widened to two float vectors of its low and high halves ("unordered": of its
 * odd and even lanes), and narrowed back. */
#ifndef XPU_KERNEL_CLUSTER_SIMD_H
#define XPU_KERNEL_CLUSTER_SIMD_H
#include "xtdk_simd.h"

namespace xpusim {

template <class T>
XPUSIM_INLINE vector<T> load_part(const T *p, int mask, int space, xpusim_site site) { return load(p, mask, zero<vector<T>>(), space, site); }

template <class F>
XPUSIM_INLINE void load_widened(const void *p, float32x16_t &low, float32x16_t &high, int mask, int space, xpusim_site site)
{
    const vector<F> v = load(p, mask, zero<vector<F>>(), space, site);
    low = widened<F>(v, 0);
    high = widened<F>(v, 1);
}

/* A bfloat16 is the high half of a float. */
XPUSIM_INLINE void load_odd_even(const void *p, float32x16_t &odd, float32x16_t &even, int mask, int space, xpusim_site site)
{
    const uint32x16_t v = vector_cast<uint32x16_t>(load(p, mask, zero<int16x32_t>(), space, site));
    odd = vector_cast<float32x16_t>(svand_uint32x16(0xffff0000u, v));
    even = vector_cast<float32x16_t>(svsll_uint32x16(16, v));
#ifdef XPUSIM_CHECKED
    odd.taint(whole_lanes<float>(v.tainted() & 0xccccccccccccccccu));
    even.taint(whole_lanes<float>(v.tainted() & 0x3333333333333333u));
#endif
}

XPUSIM_INLINE void store_odd_even(void *p, const float32x16_t &odd, const float32x16_t &even, int space, xpusim_site site)
{
    const uint32x16_t o = vector_cast<uint32x16_t>(odd), e = vector_cast<uint32x16_t>(even);
    uint32x16_t v = vvor_uint32x16(svand_uint32x16(0xffff0000u, o), svsrl_uint32x16(16, e));
#ifdef XPUSIM_CHECKED
    v.taint((o.tainted() & 0xccccccccccccccccu) | (e.tainted() >> 2 & 0x3333333333333333u));
#endif
    store(p, vector_cast<int16x32_t>(v), -1, space, site);
}

} // namespace xpusim

/* A mask has 32 bits: the low 16 for the first vector. */
#define XPUSIM_PAIRS(place, space) \
    XPUSIM_INLINE void vload2_##place##_mz(const float *p, float32x16_t &low, float32x16_t &high, int mask, XPUSIM_HERE) \
    { \
        low = xpusim::load_part(p, mask, space, XPUSIM_SITE); \
        high = xpusim::load_part(p + 16, mask >> 16, space, XPUSIM_SITE); \
    } \
    XPUSIM_INLINE void vload2_##place##_mz(const int *p, int32x16_t &low, int32x16_t &high, int mask, XPUSIM_HERE) \
    { \
        low = xpusim::load_part(p, mask, space, XPUSIM_SITE); \
        high = xpusim::load_part(p + 16, mask >> 16, space, XPUSIM_SITE); \
    } \
    XPUSIM_INLINE void vload2_##place##_mz(const bfloat16 *p, float32x16_t &low, float32x16_t &high, int mask, XPUSIM_HERE) { xpusim::load_widened<xpusim::bf16>(p, low, high, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vload2_##place##_unordered_mz(const bfloat16 *p, float32x16_t &odd, float32x16_t &even, int mask, XPUSIM_HERE) { xpusim::load_odd_even(p, odd, even, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vload2_##place##_unordered(const bfloat16 *p, float32x16_t &odd, float32x16_t &even, XPUSIM_HERE) { xpusim::load_odd_even(p, odd, even, -1, space, XPUSIM_SITE); } \
    template <class T, class V> \
    XPUSIM_INLINE void vload2_##place(const T *p, V &low, V &high, XPUSIM_HERE) { vload2_##place##_mz(p, low, high, -1, file, line); } \
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
    /* Towards zero: KL3 cuts the low half off. */ \
    XPUSIM_INLINE void vstore2_##place(bfloat16 *p, const float32x16_t &low, const float32x16_t &high, XPUSIM_HERE) { xpusim::store(p, vfloat2bf16_lh_rz(low, high), -1, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vstore2_##place##_unordered(bfloat16 *p, const float32x16_t &odd, const float32x16_t &even, XPUSIM_HERE) { xpusim::store_odd_even(p, odd, even, space, XPUSIM_SITE); }
XPUSIM_PAIRS(lm, XPUSIM_LM)
XPUSIM_PAIRS(sm, XPUSIM_SM)
XPUSIM_PAIRS(gsm, XPUSIM_LM)
#undef XPUSIM_PAIRS

#ifndef __arch_xpu2__
#define XPUSIM_PAIRS(place, space) \
    XPUSIM_INLINE void vload2_##place##_mz(const float16 *p, float32x16_t &low, float32x16_t &high, int mask, XPUSIM_HERE) { xpusim::load_widened<xpusim::fp16>(p, low, high, mask, space, XPUSIM_SITE); } \
    XPUSIM_INLINE void vload2_##place(const float16 *p, float32x16_t &low, float32x16_t &high, XPUSIM_HERE) { vload2_##place##_mz(p, low, high, -1, file, line); } \
    XPUSIM_INLINE void vstore2_##place(float16 *p, const float32x16_t &low, const float32x16_t &high, XPUSIM_HERE) { xpusim::store(p, vfloat2fp16_lh(low, high), -1, space, XPUSIM_SITE); }
XPUSIM_PAIRS(lm, XPUSIM_LM)
XPUSIM_PAIRS(sm, XPUSIM_SM)
XPUSIM_PAIRS(gsm, XPUSIM_LM)
#undef XPUSIM_PAIRS
#endif
#endif
