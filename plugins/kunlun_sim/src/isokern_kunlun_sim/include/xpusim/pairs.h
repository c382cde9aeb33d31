/* Loads and stores of pairs of float vectors from and to 16-bit types. */
#ifndef XPUSIM_PAIRS_H
#define XPUSIM_PAIRS_H
#include "../xpu/kernel/xtdk_simd.h"

namespace xpusim
{

template <class T>
XPUSIM_INLINE vector<T> load_part(const T *p, int mask, int space, xpusim_site site)
{ return load(p, mask, zero<vector<T>>(), space, site); }

template <class F>
XPUSIM_INLINE void load_widen(
    const void *p, float32x16_t &low, float32x16_t &high, int mask, int space, xpusim_site site)
{
    const vector<F> v = load(p, mask, zero<vector<F>>(), space, site);
    low = widen_half<F>(v, 0);
    high = widen_half<F>(v, 1);
}

/* A bfloat16 is the high half of a float. */
XPUSIM_INLINE void load_odd_even(
    const void *p, float32x16_t &odd, float32x16_t &even, int mask, int space, xpusim_site site)
{
    const uint32x16_t v = vector_cast<uint32x16_t>(load(p, mask, zero<int16x32_t>(), space, site));
    odd = vector_cast<float32x16_t>(svand_uint32x16(0xffff0000u, v));
    even = vector_cast<float32x16_t>(svsll_uint32x16(16, v));
#ifdef XPUSIM_CHECKED
    odd.taint(whole_lanes<float>(v.tainted() & 0xccccccccccccccccu));
    even.taint(whole_lanes<float>(v.tainted() & 0x3333333333333333u));
#endif
}

XPUSIM_INLINE void store_odd_even(
    void *p, const float32x16_t &odd, const float32x16_t &even, int space, xpusim_site site)
{
    const uint32x16_t o = vector_cast<uint32x16_t>(odd), e = vector_cast<uint32x16_t>(even);
    uint32x16_t v = vvor_uint32x16(svand_uint32x16(0xffff0000u, o), svsrl_uint32x16(16, e));
#ifdef XPUSIM_CHECKED
    v.taint((o.tainted() & 0xccccccccccccccccu) | (e.tainted() >> 2 & 0x3333333333333333u));
#endif
    store(p, vector_cast<int16x32_t>(v), -1, space, site);
}

} // namespace xpusim
#endif
