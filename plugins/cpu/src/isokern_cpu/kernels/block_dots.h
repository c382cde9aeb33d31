/* Dot products of rows of blocks with rows quantised to Q8_0: integers within a block, scaled and added in F32.
 *
 * A quantised row consists of bytes (for VNNI in the order of the weights' nibbles: the first halves of two blocks,
 * then their second halves), scales, scales times the sum of quants (for Q4_1), and, for VNNI, which multiplies
 * unsigned by signed bytes, a correction for the offset of the weights, one for each lane of four quants. */
#ifndef IK_BLOCK_DOTS_H
#define IK_BLOCK_DOTS_H
#include "blocks.h"

typedef struct ik_quants {
    int8_t *q;
    int32_t *undo;
    float *d, *s;
} ik_quants;

enum { IK_PAIR = 2 * IK_BLOCK };

/* Read an F16 at any address. */
static inline float ik_half_at(const char *from)
{
    uint16_t h;
    memcpy(&h, from, 2);
#if defined(__F16C__)
    return _cvtsh_ss(h);
#else
    return ik_f16_to_f32(h);
#endif
}

static inline int64_t ik_pairs(int64_t k) { return ik_ceil_div(k, IK_PAIR); }
static inline int64_t ik_quants_bytes(int64_t k) { return ik_pairs(k) * (2 * IK_PAIR + 2 * 2 * 4); }

static inline ik_quants ik_quants_at(char *at, int64_t k)
{
    const int64_t n = ik_pairs(k);
    return (ik_quants){ (int8_t *)at, (int32_t *)(void *)(at + n * IK_PAIR), (float *)(void *)(at + 2 * n * IK_PAIR),
        (float *)(void *)(at + 2 * n * IK_PAIR + 8 * n) };
}

/* Compute the quants of a block, in order, and return its scale (rounded to F16). */
static inline float ik_quantise_block(const float *x, int32_t *q)
{
    uint32_t max = 0;
    for (int i = 0; i < IK_BLOCK; i++) {
        uint32_t u;
        memcpy(&u, x + i, 4);
        u &= 0x7fffffffu;
        max = u > max ? u : max;
    }
    const float d = ik_float(max) / 127.0f, inverse = ik_block_inverse(d);
    if (max >= 0x7f800000u || !ik_is_finite(inverse)) {
        for (int i = 0; i < IK_BLOCK; i++)
            q[i] = ik_block_byte(x[i] * inverse);
    } else {
        for (int i = 0; i < IK_BLOCK; i++) {
            const float v = x[i] * inverse, rest = v - (float)(int32_t)v;
            q[i] = (int32_t)v + (rest >= 0.5f) - (rest <= -0.5f);
        }
    }
    return ik_f16_to_f32(ik_block_half(d));
}

/* The place of element i of a pair of blocks, in the byte order in which dot products read weights of the type. */
static inline int ik_place_in_pair(const int32_t dtype, int i)
{
#if defined(__AVX512VNNI__)
    return dtype != IK_Q4_0 && dtype != IK_Q4_1 ? i : (i & 15) | (i & 32) >> 1 | (i & 16) << 1;
#else
    return (void)dtype, i;
#endif
}

/* What the sum of four quants is multiplied by: the offset of the weights, which are unsigned bytes; 1 for a layout
 * without one, whose minima are multiplied by the sums. */
static inline int32_t ik_undo_factor(int32_t dtype)
{
    switch (dtype) {
    case IK_Q4_0: return -8;
    case IK_Q8_0: return -128;
#define IK_CASE(name, block, bytes, lowest) \
    case IK_##name: return (lowest) != 0 ? (lowest) : 1;
        IK_LAYOUTS(IK_CASE)
#undef IK_CASE
    default: return 0;
    }
}

static inline void ik_quantise(int32_t dtype, const float *x, int64_t k, ik_quants to)
{
    const int64_t pairs = ik_pairs(k);
    const int32_t factor = ik_undo_factor(dtype);
    for (int64_t p = 0; p < pairs; p++) {
        int8_t *q = to.q + p * IK_PAIR;
        int32_t quants[IK_BLOCK];
        for (int half = 0; half < 2; half++) {
            const int64_t block = 2 * p + half;
            int32_t sum = 0;
            float d = 0;
            if (block * IK_BLOCK < k)
                d = ik_quantise_block(x + block * IK_BLOCK, quants);
            else
                memset(quants, 0, sizeof quants);
            for (int i = 0; i < IK_BLOCK; i++) {
                q[ik_place_in_pair(dtype, half * IK_BLOCK + i)] = (int8_t)quants[i];
                sum += quants[i];
            }
            to.d[block] = d;
            to.s[block] = d * (float)sum;
        }
        for (int lane = 0; lane < IK_PAIR / 4; lane++)
            to.undo[p * (IK_PAIR / 4) + lane] =
                factor * (q[4 * lane] + q[4 * lane + 1] + q[4 * lane + 2] + q[4 * lane + 3]);
    }
}

/* A row of weights: its blocks or, where `bytes` is not null, its unpacked quants; scales and minima in F32. */
typedef struct ik_row {
    const char *blocks;
    uint8_t *bytes;
    float *d, *m;
} ik_row;

/* The term that the minima of Q4_1 add to a dot product. */
static inline float ik_minima_term(const ik_row *w, const ik_quants *x, int64_t k)
{
    enum { LANES = 16 };
    float lanes[LANES] = { 0 }, sum = 0;
    int64_t b = 0, blocks = k / IK_BLOCK;
    for (; b + LANES <= blocks; b += LANES)
        for (int i = 0; i < LANES; i++)
            lanes[i] += w->m[b + i] * x->s[b + i];
    for (; b < blocks; b++)
        lanes[0] += w->m[b] * x->s[b];
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

/* Read the scales (and minima) of a row of blocks as F32; zero for the missing block of a pair. */
static inline void ik_scales(const int32_t dtype, const char *w, int64_t k, float *d, float *m)
{
    const int64_t blocks = k / IK_BLOCK, bytes = ik_bytes(dtype, IK_BLOCK);
    for (int64_t b = 0; b < blocks; b++) {
        d[b] = ik_half_at(w + b * bytes);
        if (dtype == IK_Q4_1)
            m[b] = ik_half_at(w + b * bytes + 2);
    }
    if (blocks % 2 != 0)
        d[blocks] = m[blocks] = 0;
}

#if defined(__AVX512VNNI__)

/* Read two blocks (one where `both` is false) of weights as unsigned bytes. */
static inline __attribute__((always_inline)) __m512i ik_bytes_of(const int32_t dtype, const char *w, const bool both)
{
    if (dtype == IK_Q8_0) {
        const __m256i low = _mm256_loadu_si256((const void *)(w + 2)),
                      high = both ? _mm256_loadu_si256((const void *)(w + 36)) : _mm256_setzero_si256();
        return _mm512_xor_si512(_mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), _mm512_set1_epi8((char)0x80));
    }
    const int64_t bytes = ik_bytes(dtype, IK_BLOCK), first = bytes - 16;
    const __m128i low = _mm_loadu_si128((const void *)(w + first)),
                  high = both ? _mm_loadu_si128((const void *)(w + bytes + first)) : _mm_setzero_si128();
    const __m256i packed = _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
    return _mm512_and_si512(
        _mm512_inserti64x4(_mm512_castsi256_si512(packed), _mm256_srli_epi16(packed, 4), 1), _mm512_set1_epi8(15));
}

/* Spread the scales of two blocks over the lanes of their bytes. */
static inline __attribute__((always_inline)) __m512 ik_spread(const int32_t dtype, const float *two)
{
    const __m512i nibbles = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1),
                  bytes = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    double pair;
    memcpy(&pair, two, 8);
    return _mm512_permutevar_ps(_mm512_castpd_ps(_mm512_set1_pd(pair)), dtype == IK_Q8_0 ? bytes : nibbles);
}

static inline __attribute__((always_inline)) void ik_dots(const int32_t dtype, const int rows, const int cols,
    const ik_row *w, int64_t k, const ik_quants *x, float *y, int64_t y_row)
{
    const int64_t pairs = ik_pairs(k), whole = k / IK_PAIR, step = 2 * ik_bytes(dtype, IK_BLOCK);
    __m512 sum[4][2], scale[2];
    __m512i u[2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++)
            sum[r][c] = _mm512_setzero_ps();
    for (int64_t p = 0; p < pairs; p++) {
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++) {
            u[c] = w[c].bytes != NULL ? _mm512_loadu_si512(w[c].bytes + p * IK_PAIR)
                : p < whole           ? ik_bytes_of(dtype, w[c].blocks + p * step, true)
                                      : ik_bytes_of(dtype, w[c].blocks + p * step, false);
            scale[c] = ik_spread(dtype, w[c].d + 2 * p);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const __m512i quants = _mm512_loadu_si512(x[r].q + p * IK_PAIR);
            const __m512i start =
                dtype == IK_Q4_1 ? _mm512_setzero_si512() : _mm512_loadu_si512(x[r].undo + p * (IK_PAIR / 4));
            const __m512 own = ik_spread(dtype, x[r].d + 2 * p);
#pragma GCC unroll 2
            for (int c = 0; c < cols; c++)
                sum[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_dpbusd_epi32(start, u[c], quants)),
                    _mm512_mul_ps(scale[c], own), sum[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++)
            y[r * y_row + c] =
                _mm512_reduce_add_ps(sum[r][c]) + (dtype == IK_Q4_1 ? ik_minima_term(w + c, x + r, k) : 0);
}

static inline __attribute__((always_inline)) void ik_to_bytes(
    const int32_t dtype, const char *w, int64_t k, uint8_t *to)
{
    const int64_t whole = k / IK_PAIR, step = 2 * ik_bytes(dtype, IK_BLOCK);
    for (int64_t p = 0; p < whole; p++)
        _mm512_storeu_si512(to + p * IK_PAIR, ik_bytes_of(dtype, w + p * step, true));
    if (k % IK_PAIR != 0)
        _mm512_storeu_si512(to + whole * IK_PAIR, ik_bytes_of(dtype, w + whole * step, false));
}

#else

/* Unpack the weights to signed quants (unsigned for Q4_1), one pair of blocks after the other. */
static inline __attribute__((always_inline)) void ik_to_bytes(
    const int32_t dtype, const char *w, int64_t k, uint8_t *to)
{
    const int64_t bytes = ik_bytes(dtype, IK_BLOCK);
    for (int64_t b = 0; b < k / IK_BLOCK; b++, w += bytes, to += IK_BLOCK) {
        if (dtype == IK_Q8_0) {
            memcpy(to, w + 2, IK_BLOCK);
            continue;
        }
        const uint8_t *q = (const uint8_t *)w + bytes - IK_BLOCK / 2;
        const int off = dtype == IK_Q4_0 ? 8 : 0;
        for (int i = 0; i < IK_BLOCK / 2; i++) {
            to[i] = (uint8_t)((q[i] & 15) - off);
            to[i + IK_BLOCK / 2] = (uint8_t)((q[i] >> 4) - off);
        }
    }
}

#if defined(__AVX2__)
typedef __m256 ik_sums;
typedef __m256i ik_weights;
static inline ik_sums ik_no_sums(void) { return _mm256_setzero_ps(); }
static inline ik_weights ik_weights_at(const uint8_t *bytes) { return _mm256_loadu_si256((const void *)bytes); }

static inline __attribute__((always_inline)) ik_weights ik_weights_of(const int32_t dtype, const char *w)
{
    if (dtype == IK_Q8_0)
        return _mm256_loadu_si256((const void *)(w + 2));
    const __m128i q = _mm_loadu_si128((const void *)(w + ik_bytes(dtype, IK_BLOCK) - 16));
    const __m256i n = _mm256_and_si256(
        _mm256_inserti128_si256(_mm256_castsi128_si256(q), _mm_srli_epi16(q, 4), 1), _mm256_set1_epi8(15));
    return dtype == IK_Q4_0 ? _mm256_sub_epi8(n, _mm256_set1_epi8(8)) : n;
}

/* sum + scale (w · x) of a block, distributed over lanes; |x| <= 127, so no 16-bit sum of two products overflows. */
static inline __attribute__((always_inline)) ik_sums ik_block_dot(
    ik_weights a, const int8_t *x, float scale, ik_sums sum)
{
    const __m256i products =
        _mm256_maddubs_epi16(_mm256_abs_epi8(a), _mm256_sign_epi8(_mm256_loadu_si256((const void *)x), a));
    return _mm256_fmadd_ps(
        _mm256_cvtepi32_ps(_mm256_madd_epi16(products, _mm256_set1_epi16(1))), _mm256_set1_ps(scale), sum);
}

static inline float ik_sum_of_lanes(ik_sums x)
{
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_shuffle_ps(s, s, 1)));
}
#else
typedef float ik_sums;
typedef struct ik_weights {
    int8_t q[IK_BLOCK];
} ik_weights;
static inline ik_sums ik_no_sums(void) { return 0; }

static inline ik_weights ik_weights_at(const uint8_t *bytes)
{
    ik_weights w;
    memcpy(w.q, bytes, sizeof w.q);
    return w;
}

static inline ik_weights ik_weights_of(const int32_t dtype, const char *w)
{
    ik_weights to;
    ik_to_bytes(dtype, w, IK_BLOCK, (uint8_t *)to.q);
    return to;
}

static inline ik_sums ik_block_dot(ik_weights w, const int8_t *x, float scale, ik_sums sum)
{
    int32_t total = 0;
    for (int i = 0; i < IK_BLOCK; i++)
        total += w.q[i] * x[i];
    return sum + (float)total * scale;
}

static inline float ik_sum_of_lanes(ik_sums x) { return x; }
#endif

static inline __attribute__((always_inline)) void ik_dots(const int32_t dtype, const int rows, const int cols,
    const ik_row *w, int64_t k, const ik_quants *x, float *y, int64_t y_row)
{
    ik_sums sum[4][2];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++)
            sum[r][c] = ik_no_sums();
    for (int64_t b = 0; b < k / IK_BLOCK; b++) {
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++) {
            const ik_weights quants = w[c].bytes != NULL
                ? ik_weights_at(w[c].bytes + b * IK_BLOCK)
                : ik_weights_of(dtype, w[c].blocks + b * ik_bytes(dtype, IK_BLOCK));
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                sum[r][c] = ik_block_dot(quants, x[r].q + b * IK_BLOCK, w[c].d[b] * x[r].d[b], sum[r][c]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
        for (int c = 0; c < cols; c++)
            y[r * y_row + c] = ik_sum_of_lanes(sum[r][c]) + (dtype == IK_Q4_1 ? ik_minima_term(w + c, x + r, k) : 0);
}

#endif

/* y[i] = w · x[i] for up to 4 float rows of n elements; weights are unpacked on the way. */
static inline __attribute__((always_inline)) void ik_float_dots(
    const int32_t dtype, const int rows, const char *w, int64_t k, const float *const *x, float *y, int64_t y_row)
{
    const int64_t bytes = ik_bytes(dtype, IK_BLOCK);
#if defined(__AVX512F__)
    const __m512 values = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const __m512 table = dtype == IK_Q4_0 ? _mm512_sub_ps(values, _mm512_set1_ps(8)) : values;
    __m512 sum[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_setzero_ps();
    for (int64_t at = 0; at < k; at += IK_BLOCK, w += bytes) {
        const __m512 d = _mm512_set1_ps(ik_half_at(w));
        __m512 low, high;
        if (dtype == IK_Q8_0) {
            low = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(w + 2))));
            high = _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)(w + 18))));
        } else {
            const __m512i q = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(w + bytes - 16)));
            low = _mm512_permutexvar_ps(q, table); /* by the low 4 bits */
            high = _mm512_permutexvar_ps(_mm512_srli_epi32(q, 4), table);
        }
        if (dtype == IK_Q4_1) {
            const __m512 m = _mm512_set1_ps(ik_half_at(w + 2));
            low = _mm512_fmadd_ps(low, d, m), high = _mm512_fmadd_ps(high, d, m);
        }
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const __m512 a = _mm512_loadu_ps(x[r] + at), b = _mm512_loadu_ps(x[r] + at + 16);
            if (dtype == IK_Q4_1)
                sum[r] = _mm512_fmadd_ps(high, b, _mm512_fmadd_ps(low, a, sum[r]));
            else
                sum[r] = _mm512_fmadd_ps(_mm512_fmadd_ps(high, b, _mm512_mul_ps(low, a)), d, sum[r]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        y[r * y_row] = _mm512_reduce_add_ps(sum[r]);
#else
    enum { LANES = 16 };
    float sum[4][LANES] = { 0 }, wide[IK_BLOCK];
    for (int64_t at = 0; at < k; at += IK_BLOCK, w += bytes) {
        ik_dequantize_group(dtype, 1, w, wide);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            for (int i = 0; i < LANES; i++)
                sum[r][i] += wide[i] * x[r][at + i] + wide[i + LANES] * x[r][at + i + LANES];
    }
    for (int r = 0; r < rows; r++) {
        y[r * y_row] = 0;
        for (int i = 0; i < LANES; i++)
            y[r * y_row] += sum[r][i];
    }
#endif
}

#endif
