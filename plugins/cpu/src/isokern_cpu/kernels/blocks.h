/* Runs of block-quantised elements to and from F32: the arithmetic of isokern_blocks.h, many blocks at a time, and of
 * isokern_layouts.h, a run of 16 elements at a time.
 *
 * A group of blocks is converted in steps that vectorise: scales first, then quants. In a block whose scale and its
 * inverse are finite, every scaled element is finite and in range; other blocks are converted element by element. */
#ifndef IK_BLOCKS_H
#define IK_BLOCKS_H
#include "convert.h"
#include "isokern_blocks.h"

enum { IK_GROUP = 16 * IK_BLOCK }; /* elements of a group */

static inline int64_t ik_min_blocks(int64_t n) { return (n < IK_GROUP ? n : IK_GROUP) / IK_BLOCK; }

/* Map the bits of floats to integers of the same order, and back: NaNs beyond the infinities. */
static inline __attribute__((always_inline)) int32_t ik_order_bits(int32_t u) { return u ^ (u >> 31 & 0x7fffffff); }

/* The scales of `count` blocks before the division and the rounding to F16; for Q4_1 the minima too. Extremes are
 * computed on integers: compilers do not vectorise reductions of floats, because of NaN. */
static inline __attribute__((always_inline)) void ik_block_scales(
    int32_t dtype, int64_t count, const float *x, float *d, float *low)
{
    for (int64_t b = 0; b < count; b++, x += IK_BLOCK) {
        uint32_t max = 0;
        int32_t above = INT32_MIN, below = INT32_MAX;
        for (int i = 0; i < IK_BLOCK; i++) {
            const uint32_t u = ik_bits(x[i]), part = dtype == IK_Q8_0 ? u & 0x7fffffffu : u;
            const int32_t order = dtype == IK_Q4_1 ? ik_order_bits((int32_t)u) : (int32_t)u;
            max = part > max ? part : max;
            above = order > above ? order : above;
            below = order < below ? order : below;
        }
        if (dtype == IK_Q8_0) {
            d[b] = ik_float(max);
        } else if (dtype == IK_Q4_1) {
            const float min = ik_float((uint32_t)ik_order_bits(below)),
                        largest = ik_float((uint32_t)ik_order_bits(above));
            low[b] = largest == largest ? min + 0.0f : largest; /* -0 becomes 0 */
            d[b] = largest + 0.0f - min;
        } else { /* for each sign the element of largest magnitude, as an integer below 0 if there is none */
            const int32_t negative = (int32_t)(max ^ 0x80000000u);
            int first = 0;
            while (negative == above && (ik_bits(x[first]) & 0x7fffffffu) != (uint32_t)above)
                first++;
            d[b] = negative == above ? x[first] : ik_float(negative > above ? max : (uint32_t)above);
        }
    }
}

static inline __attribute__((always_inline)) void ik_quantize_block(
    int32_t dtype, const float *x, float inverse, float low, uint8_t *to)
{
    /* Adding the largest float below 1/2 rounds halves away from 0, and smaller fractions towards it. */
    if (dtype == IK_Q8_0) {
        int8_t *bytes = (int8_t *)to;
        IK_VECTORISE for (int i = 0; i < IK_BLOCK; i++) {
            const float scaled = x[i] * inverse;
            bytes[i] = (int8_t)(int32_t)(scaled + ik_copysign_f32(0x1.fffffep-2f, scaled));
        }
        return;
    }
    const float lift = dtype == IK_Q4_0 ? 8.5f : 0.5f;
    uint8_t nibbles[IK_BLOCK];
    IK_VECTORISE for (int i = 0; i < IK_BLOCK; i++) {
        const int32_t n = (int32_t)((x[i] - low) * inverse + lift);
        nibbles[i] = (uint8_t)(n > 15 ? 15 : n);
    }
    uint64_t eights[4]; /* nibbles, one per byte */
    memcpy(eights, nibbles, sizeof eights);
    eights[0] |= eights[2] << 4;
    eights[1] |= eights[3] << 4;
    memcpy(to, eights, IK_BLOCK / 2);
}

/* Quantise one block whose scale or its inverse is not finite. */
static __attribute__((noinline, unused)) void ik_quantize_odd_block(
    int32_t dtype, const float *x, float inverse, float low, uint8_t *to)
{
    for (int i = 0; i < IK_BLOCK; i++)
        if (dtype == IK_Q8_0)
            to[i] = (uint8_t)ik_block_byte(x[i] * inverse);
    if (dtype == IK_Q8_0)
        return;
    const float lift = dtype == IK_Q4_0 ? 8.5f : 0.5f;
    for (int i = 0; i < IK_BLOCK / 2; i++)
        to[i] = (uint8_t)(ik_block_nibble((x[i] - low) * inverse + lift)
            | ik_block_nibble((x[i + IK_BLOCK / 2] - low) * inverse + lift) << 4);
}

static inline __attribute__((always_inline)) void ik_quantize_group(
    int32_t dtype, int64_t count, const float *x, char *to)
{
    enum { MAX_BLOCKS = IK_GROUP / IK_BLOCK };
    float d[MAX_BLOCKS] = { 0 }, low[MAX_BLOCKS] = { 0 }, inverse[MAX_BLOCKS];
    uint16_t scale[MAX_BLOCKS], minimum[MAX_BLOCKS];
    const float parts = dtype == IK_Q4_0 ? -8.0f : dtype == IK_Q4_1 ? 15.0f : 127.0f;
    const int64_t bytes = dtype == IK_Q4_0 ? 18 : dtype == IK_Q4_1 ? 20 : 34;
    ik_block_scales(dtype, count, x, d, low);
    IK_VECTORISE for (int b = 0; b < MAX_BLOCKS; b++)
        d[b] /= parts;
    IK_VECTORISE for (int b = 0; b < MAX_BLOCKS; b++)
        inverse[b] = ik_block_inverse(d[b]);
    ik_f32_run_to_f16(MAX_BLOCKS, d, scale);
    ik_f32_run_to_f16(MAX_BLOCKS, low, minimum);
    for (int64_t b = 0; b < count; b++, x += IK_BLOCK, to += bytes) {
        char *quants = to + 2;
        const uint16_t h = d[b] == d[b] ? scale[b] : 0x7e00;
        memcpy(to, &h, 2);
        if (dtype == IK_Q4_1) {
            const uint16_t m = low[b] == low[b] ? minimum[b] : 0x7e00;
            memcpy(to + 2, &m, 2);
            quants += 2;
        }
        if (ik_is_finite(d[b]) && ik_is_finite(inverse[b]))
            ik_quantize_block(dtype, x, inverse[b], low[b], (uint8_t *)quants);
        else
            ik_quantize_odd_block(dtype, x, inverse[b], low[b], (uint8_t *)quants);
    }
}

/* Quantise n elements of whole blocks of a layout. */
static __attribute__((noinline, unused)) void ik_quantize_layout(int32_t dtype, int64_t n, const float *x, uint8_t *to)
{
    for (int64_t at = 0; at < n; at += ik_block_elements(dtype), to += ik_itemsize(dtype))
        switch (dtype) {
        case IK_Q5_0: ik_make_Q5_0(to, x + at); break;
        case IK_Q5_1: ik_make_Q5_1(to, x + at); break;
        case IK_MXFP4: ik_make_MXFP4(to, x + at); break;
        case IK_TQ2_0: ik_make_TQ2_0(to, x + at); break;
        case IK_TQ1_0: ik_make_TQ1_0(to, x + at); break;
        default: ik_make_Q8_K(to, x + at);
        }
}

/* Quantise n elements of whole blocks. */
static inline __attribute__((unused)) void ik_quantize_run(int32_t dtype, int64_t n, const float *x, char *to)
{
    if (ik_is_layout(dtype)) {
        ik_quantize_layout(dtype, n, x, (uint8_t *)to);
        return;
    }
    for (int64_t at = 0; at < n; at += IK_GROUP, x += IK_GROUP) {
        const int64_t count = ik_min_blocks(n - at);
        switch (dtype) {
        case IK_Q4_0: ik_quantize_group(IK_Q4_0, count, x, to); break;
        case IK_Q4_1: ik_quantize_group(IK_Q4_1, count, x, to); break;
        default: ik_quantize_group(IK_Q8_0, count, x, to);
        }
        to += ik_bytes(dtype, count * IK_BLOCK);
    }
}

/* Expand 16 bytes of nibbles to their elements. */
static inline __attribute__((always_inline)) void ik_dequantize_nibbles(
    int32_t dtype, const char *from, float scale, float low, float *y)
{
#if defined(__AVX512F__) /* 2.2 times as fast */
    const __m128i pairs = _mm_loadu_si128((const __m128i *)(const void *)from), mask = _mm_set1_epi8(15);
    const __m512 factor = _mm512_set1_ps(scale), lift = dtype == IK_Q4_1 ? _mm512_set1_ps(low) : _mm512_set1_ps(-8);
    __m512 a = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(pairs, mask)));
    __m512 b = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_and_si128(_mm_srli_epi16(pairs, 4), mask)));
    a = dtype == IK_Q4_1 ? _mm512_add_ps(_mm512_mul_ps(a, factor), lift)
                         : _mm512_mul_ps(_mm512_add_ps(a, lift), factor);
    b = dtype == IK_Q4_1 ? _mm512_add_ps(_mm512_mul_ps(b, factor), lift)
                         : _mm512_mul_ps(_mm512_add_ps(b, lift), factor);
    _mm512_storeu_ps(y, a);
    _mm512_storeu_ps(y + IK_BLOCK / 2, b);
#else
    uint8_t pairs[IK_BLOCK / 2];
    memcpy(pairs, from, sizeof pairs);
    IK_VECTORISE
#pragma GCC unroll 1 /* unrolled, it does not vectorise everywhere */
    for (int i = 0; i < IK_BLOCK / 2; i++) {
        const int32_t a = pairs[i] & 15, b = pairs[i] >> 4;
        y[i] = dtype == IK_Q4_1 ? (float)a * scale + low : (float)(a - 8) * scale;
        y[i + IK_BLOCK / 2] = dtype == IK_Q4_1 ? (float)b * scale + low : (float)(b - 8) * scale;
    }
#endif
}

static inline __attribute__((always_inline)) void ik_dequantize_group(
    int32_t dtype, int64_t count, const char *from, float *y)
{
    enum { MAX_BLOCKS = IK_GROUP / IK_BLOCK };
    const int64_t bytes = dtype == IK_Q4_0 ? 18 : dtype == IK_Q4_1 ? 20 : 34;
    uint16_t half[2 * MAX_BLOCKS] = { 0 };
    float d[2 * MAX_BLOCKS];
    for (int64_t b = 0; b < count; b++)
        memcpy(half + 2 * b, from + b * bytes, dtype == IK_Q4_1 ? 4 : 2);
    ik_f16_run_to_f32(2 * MAX_BLOCKS, half, d);
    for (int64_t b = 0; b < count; b++, from += bytes, y += IK_BLOCK) {
        const float scale = d[2 * b], low = d[2 * b + 1];
        if (dtype == IK_Q8_0) {
            int8_t quants[IK_BLOCK];
            memcpy(quants, from + 2, sizeof quants);
            IK_VECTORISE for (int i = 0; i < IK_BLOCK; i++)
                y[i] = (float)quants[i] * scale;
            continue;
        }
        ik_dequantize_nibbles(dtype, from + bytes - IK_BLOCK / 2, scale, low, y);
    }
}

static inline void ik_look_up(const uint8_t *table, const uint8_t *at, uint8_t *to)
{
#if defined(__SSSE3__)
    const __m128i all = _mm_loadu_si128((const void *)table), places = _mm_loadu_si128((const void *)at);
    _mm_storeu_si128((void *)to, _mm_shuffle_epi8(all, places));
#else
    for (int i = 0; i < IK_LAYOUT_RUN; i++)
        to[i] = table[at[i]];
#endif
}

/* to[l] = the quant of element l of run s less the lowest of its type: its code, or what a table has for that. */
#define IK_RUN_OF(name, block, bits, run, lowest, table, ...) \
    static inline void ik_run_##name(ik_block_bytes from, int64_t s, uint8_t *to) \
    { \
        static const uint8_t all[IK_LAYOUT_RUN] = { ik_table_##name }; \
        uint8_t codes[IK_LAYOUT_RUN]; \
        IK_VECTORISE for (int64_t l = 0; l < IK_LAYOUT_RUN; l++) \
            codes[l] = (uint8_t)(ik_code_##name(from, s, l) - ((bits) == 0 ? (lowest) : 0)); \
        if (table) \
            ik_look_up(all, codes, to); \
        else \
            memcpy(to, codes, sizeof codes); \
    }
IK_LAYOUT_FORMS(IK_RUN_OF)
IK_LAYOUT_OTHERS(IK_RUN_OF)
#undef IK_RUN_OF

/* Dequantise n elements from element `at` on of a row of blocks that are only decoded; whole runs of 16. */
#define IK_DEQUANTIZE(name, block, bits, run, lowest, table, ...) \
    static __attribute__((noinline, unused)) void ik_dequantize_##name( \
        const char *row, int64_t at, int64_t n, float *y) \
    { \
        for (int64_t end = at + n; at < end;) { \
            ik_block_bytes from = (ik_block_bytes)row + at / (block) * ik_itemsize(IK_##name); \
            const float d = ik_d_##name(from), m = ik_m_##name(from); \
            const int32_t last = \
                (int32_t)(ik_min(end, (at / (block) + 1) * (block)) - at / (block) * (block)) / IK_LAYOUT_RUN; \
            for (int32_t s = (int32_t)(at % (block)) / IK_LAYOUT_RUN; s < last; \
                s++, at += IK_LAYOUT_RUN, y += IK_LAYOUT_RUN) { \
                const float scale = d * (float)ik_scale_##name(from, s), low = m * (float)ik_minimum_##name(from, s); \
                uint8_t u[IK_LAYOUT_RUN] = { 0 }; \
                if (table) \
                    ik_run_##name(from, s, u); \
                IK_VECTORISE for (int64_t l = 0; l < IK_LAYOUT_RUN; l++) \
                    y[l] = scale * (float)((table) ? u[l] + (lowest) : ik_quant_##name(from, s, l)) - low; \
            } \
        } \
    }
IK_LAYOUT_FORMS(IK_DEQUANTIZE)
IK_LAYOUT_OTHERS(IK_DEQUANTIZE)
#undef IK_DEQUANTIZE

/* Dequantise n elements from element `at` on of a row of blocks; both are multiples of 32, which may cut a block of
 * more elements. */
static inline __attribute__((unused)) void ik_dequantize_at(
    int32_t dtype, const char *row, int64_t at, int64_t n, float *y);

/* Dequantise n elements, a multiple of 32, from blocks. */
static inline __attribute__((unused)) void ik_dequantize_run(int32_t dtype, int64_t n, const char *from, float *y)
{
    if (ik_is_layout(dtype)) {
        ik_dequantize_at(dtype, from, 0, n, y);
        return;
    }
    for (int64_t at = 0; at < n; at += IK_GROUP, y += IK_GROUP) {
        const int64_t count = ik_min_blocks(n - at);
        switch (dtype) {
        case IK_Q4_0: ik_dequantize_group(IK_Q4_0, count, from, y); break;
        case IK_Q4_1: ik_dequantize_group(IK_Q4_1, count, from, y); break;
        default: ik_dequantize_group(IK_Q8_0, count, from, y);
        }
        from += ik_bytes(dtype, count * IK_BLOCK);
    }
}

static inline __attribute__((unused)) void ik_dequantize_at(
    int32_t dtype, const char *row, int64_t at, int64_t n, float *y)
{
    switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: ik_dequantize_##name(row, at, n, y); return;
        IK_LAYOUTS(IK_CASE)
#undef IK_CASE
    default: ik_dequantize_run(dtype, n, row + ik_bytes(dtype, at), y);
    }
}

/* n elements of a float dtype or of (dense) blocks as F32: in place, or in the scratch. */
static inline __attribute__((unused)) const float *ik_fetch_weights(
    int32_t dtype, const char *from, int64_t stride, int64_t n, float *scratch)
{
    if (!ik_is_blocks(dtype))
        return stride == 1 && dtype == IK_F32 ? (const float *)(const void *)from
                                              : (ik_load_f32(dtype, from, stride, n, scratch), scratch);
    ik_dequantize_run(dtype, n, from, scratch);
    return scratch;
}

#endif
