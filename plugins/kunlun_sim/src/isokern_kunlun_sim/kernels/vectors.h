/* Rows of floats in local memory: sums, the largest element, and maps in place, on the SIMD unit by 16 elements at a
 * time, and for what is left, one by one.
 *
 * A vector is loaded from a multiple of 64 bytes and its elements are contiguous. So an operator asks ik_vectors how
 * many elements can be handled that way, perhaps none, and handles the others one by one. Data brought by DMA needs no
 * further fence; data stored by scalars does, and so do scalar reads of what is stored here. These functions do not
 * fence, because a fence would also wait for the copies in flight. */
#ifndef IK_XPU_VECTORS_H
#define IK_XPU_VECTORS_H
#include "kernel.h"

#include "xpu/kernel/xtdk_simd.h"

enum { IK_LANES = 16 };

/* How many of n elements at x, `step` apart, can be handled as whole vectors. */
static inline __device__ int ik_vectors(const float *x, int step, int n)
{ return step == 1 && reinterpret_cast<uintptr_t>(x) % IK_LINE == 0 ? n / IK_LANES * IK_LANES : 0; }

/* ik_add in every lane. */
static inline __device__ void ik_add(float32x16_t *high, float32x16_t *low, float32x16_t x)
{
    const float32x16_t sum = vvadd_float32x16(*high, x), part = vvsub_float32x16(sum, *high);
    *low = vvadd_float32x16(
        *low, vvadd_float32x16(vvsub_float32x16(*high, vvsub_float32x16(sum, part)), vvsub_float32x16(x, part)));
    *high = sum;
}

/* high + low += the sum of n terms: term(at) returns those of elements at .. at + 15. Four terms of a lane are added
 * plainly, the rest without loss: at most 3 roundings an element. */
template <class Term>
static inline __device__ void ik_add_vectors(int n, float *high, float *low, Term term)
{
    if (n == 0)
        return;
    float32x16_t h = vset_zero(), l = vset_zero(), sum = vset_zero();
    for (int at = 0; at < n; at += IK_LANES) {
        sum = vvadd_float32x16(sum, term(at));
        if (at / IK_LANES % 4 == 3 || at + IK_LANES == n) {
            ik_add(&h, &l, sum);
            sum = vset_zero();
        }
    }
    for (int lane = 0; lane < IK_LANES; lane++) {
        ik_add(high, low, vextract_float32x16(h, 1 << lane));
        *low += vextract_float32x16(l, 1 << lane);
    }
}

/* The largest of n elements; -Inf if there are none, NaN if one is NaN. */
static inline __device__ float ik_largest_of_vectors(const float *x, int n)
{
    float32x16_t maximum = svadd_float32x16(-__builtin_inff(), vset_zero());
    int unordered = 0;
    for (int at = 0; at < n; at += IK_LANES) {
        const float32x16_t v = vload_lm_float32x16(x + at);
        unordered |= vvneq_float32x16(v, v);
        maximum = vvmax_float32x16(v, maximum); /* a NaN on the left would be lost */
    }
    return unordered != 0 ? __builtin_nanf("") : vrmax_float32x16(maximum);
}

/* Apply x = map(x, at) to vectors of elements at .. at + 15. */
template <class Map>
static inline __device__ void ik_map_vectors(float *x, int n, Map map)
{
    for (int at = 0; at < n; at += IK_LANES)
        vstore_lm_float32x16(x + at, map(vload_lm_float32x16(x + at), at));
}

/* The sum of term(i) for i from `at` below `end`, at most 64 terms, in eight lanes: at most 10 roundings an element. */
template <class Term>
static inline __device__ float ik_block_sum(int at, int end, Term term)
{
    float lane[8] = {};
    for (; at + 8 <= end; at += 8)
        for (int k = 0; k < 8; k++)
            lane[k] += term(at + k);
    for (int k = 0; at + k < end; k++)
        lane[k] += term(at + k);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

enum { IK_TERMS = 64 };

/* high + low += the sum of term(0) .. term(n - 1). */
template <class Term>
static inline __device__ void ik_add_terms(int n, float *high, float *low, Term term)
{
    for (int at = 0; at < n; at += IK_TERMS)
        ik_add(high, low, ik_block_sum(at, (int)ik_min(n, at + IK_TERMS), term));
}

/* The largest of n elements; NaN if one is NaN. */
static inline __device__ float ik_largest(const float *x, int step, int n)
{
    float maximum = x[0];
    for (int i = 1; i < n; i++)
        maximum = ik_maximum_f32(maximum, x[i * step]);
    return maximum;
}
#endif
