/* Vectors of the codes, scales and values of a panel (row_panels.h), by the instructions of a level. */
#ifndef IK_PANEL_CODES_H
#define IK_PANEL_CODES_H
#include "row_panels.h"

#if defined(IK_PANELS)
#if defined(__AVX512BW__)
typedef __m512i ints;
typedef __m512 floats;
#define IK_V(name) _mm512_##name
#define IK_WHOLE(name) _mm512_##name##_si512
#else
typedef __m256i ints;
typedef __m256 floats;
#define IK_V(name) _mm256_##name
#define IK_WHOLE(name) _mm256_##name##_si256
#endif
#define IK_INLINED static inline __attribute__((always_inline))
typedef uint16_t shorts __attribute__((vector_size(VECTOR)));
typedef uint32_t words __attribute__((vector_size(VECTOR)));
typedef int32_t signed_words __attribute__((vector_size(VECTOR)));

IK_INLINED ints vector_at(const char *at) { return IK_WHOLE(loadu)((const void *)at); }

/* Shift halves of words, to the right where `left` is below 0. */
IK_INLINED ints shifted(ints v, const int left)
{ return left == 0 ? v : left > 0 ? (ints)((shorts)v << left) : (ints)((shorts)v >> -left); }

IK_INLINED ints masked(ints v, const int mask) { return IK_WHOLE (and)(v, IK_V(set1_epi8)((char)mask)); }

/* A quad of codes: `lift` bits up in each byte; unless it is clean, the bits around them are any. */
typedef struct quad {
    ints v;
    int lift;
    bool clean;
} quad;

/* `other`, and those bits of a shifted vector that a mask has. */
IK_INLINED ints with_bits(ints other, const char *at, const int by, const int mask)
{ return IK_WHOLE(or)(other, masked(shifted(vector_at(at), by), mask)); }

/* Quad i of 32 elements, whose vectors are at `from`; a quad that is put together gets the lift `lift`. */
IK_INLINED quad quad_of(const panel_form f, const char *from, const int i, const int lift)
{
    const ints none = IK_WHOLE(setzero)();
    const int of = i & 3;
    switch (f.bits) {
    case 8: return (quad){ vector_at(from + i * VECTOR), 0, true };
    case 4: return (quad){ vector_at(from + of * VECTOR), i & 4, false };
    case 2: return (quad){ vector_at(from + i / 4 * VECTOR), 2 * of, false };
    case 3: {
        const ints low = with_bits(none, from + i / 4 * VECTOR, -2 * of, 3);
        return (quad){ with_bits(low, from + 2 * VECTOR, 2 - i, 4), 0, true };
    }
    case 6: {
        const char *three = from + i / 4 * 3 * VECTOR;
        if (of < 3)
            return (quad){ vector_at(three + of * VECTOR), 2, false };
        const ints some = with_bits(with_bits(none, three, 4 + lift, 48 << lift), three + VECTOR, 2 + lift, 12 << lift);
        return (quad){ with_bits(some, three + 2 * VECTOR, lift, 3 << lift), lift, true };
    }
    default: {
        if (i < 5)
            return (quad){ vector_at(from + i * VECTOR), 3, false };
        const ints some = with_bits(none, from + (2 * i - 10) * VECTOR, 2 + lift, 28 << lift);
        if (i < 7)
            return (quad){ with_bits(some, from + (2 * i - 9) * VECTOR, lift - 1, 3 << lift), lift, true };
        const ints more = with_bits(some, from + VECTOR, 1 + lift, 2 << lift);
        return (quad){ with_bits(more, from + 3 * VECTOR, lift, 1 << lift), lift, true };
    }
    }
}

/* The codes of a quad times 2^lift. */
IK_INLINED ints codes_of(const panel_form f, const quad q, const int lift)
{
    const ints v = shifted(q.v, lift - q.lift);
    return q.clean && lift == q.lift ? v : masked(v, ((1 << f.bits) - 1) << lift);
}

/* The quant of a code. */
IK_INLINED int32_t worth_of(const int32_t dtype, int32_t code)
{
    switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: return panel_worth_##name(code);
        PANEL_FORMS(IK_CASE)
#undef IK_CASE
    default: return 0;
    }
}

/* The minimum of a type that stores none. */
IK_INLINED float only_minimum(const int32_t dtype)
{
    switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: return panel_form_of(IK_##name).minima ? 0 : (float)ik_minimum_##name(NULL, 0);
        PANEL_FORMS(IK_CASE)
#undef IK_CASE
    default: return 0;
    }
}

/* 16 quants less `from`, for shuffles of bytes. */
IK_INLINED ints table_of(const int32_t dtype, const int32_t from)
{
    uint8_t bytes[16];
    for (int32_t i = 0; i < 16; i++)
        bytes[i] = (uint8_t)(worth_of(dtype, i) - from);
    const __m128i table = _mm_loadu_si128((const void *)bytes);
#if defined(__AVX512BW__)
    return _mm512_broadcast_i32x4(table);
#else
    return _mm256_broadcastsi128_si256(table);
#endif
}

/* A number for each row: F16, powers of two, or signed bytes. */
IK_INLINED floats halves_at(const char *at)
{
#if defined(__AVX512BW__)
    return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)at));
#else
    return _mm256_cvtph_ps(_mm_loadu_si128((const void *)at));
#endif
}

IK_INLINED __m128i bytes_at(const char *at)
{ return LANES == 16 ? _mm_loadu_si128((const void *)at) : _mm_loadl_epi64((const void *)at); }

IK_INLINED floats powers_at(const char *at)
{
    const ints e = IK_V(cvtepu8_epi32)(bytes_at(at));
    const signed_words normal = ((signed_words)e - 1) << 23, small = ((signed_words)e + 1) << 21;
    return (floats)IK_V(max_epi32)((ints)normal, (ints)small);
}

IK_INLINED floats signed_at(const char *at) { return IK_V(cvtepi32_ps)(IK_V(cvtepi8_epi32)(bytes_at(at))); }

/* What multiplies the quants of a run, and what is subtracted, for each row. */
typedef struct run_scales {
    floats scale, low;
} run_scales;

/* d and m of a block. */
IK_INLINED run_scales block_scales(const int32_t dtype, const char *head)
{
    const panel_form f = panel_form_of(dtype);
    run_scales b = { f.power ? powers_at(head) : halves_at(head), IK_V(setzero_ps)() };
    if (f.unit != 1)
        b.scale = IK_V(mul_ps)(b.scale, IK_V(set1_ps)(f.unit));
    if (f.m >= 0) {
        b.low = halves_at(head + 2 * LANES);
        if (!f.minima)
            b.low = IK_V(mul_ps)(b.low, IK_V(set1_ps)(only_minimum(dtype)));
    }
    return b;
}

/* Those of run `run` of the block. */
IK_INLINED run_scales scales_of(const int32_t dtype, run_scales block, const char *head, int64_t run)
{
    const panel_form f = panel_form_of(dtype);
    const char *scales = head + scales_at(f) + run * LANES;
    if (f.scales == 4) {
        const words both = (words)IK_V(cvtepu8_epi32)(bytes_at(scales));
        block.scale = IK_V(mul_ps)(block.scale, IK_V(cvtepi32_ps)((ints)(both & 15)));
        block.low = IK_V(mul_ps)(block.low, IK_V(cvtepi32_ps)((ints)(both >> 4)));
        return block;
    }
    if (f.scales != 0)
        block.scale = IK_V(mul_ps)(block.scale, signed_at(scales));
    if (f.minima)
        block.low = IK_V(mul_ps)(block.low, signed_at(scales + f.block / f.run * LANES));
    return block;
}

#endif
#endif
