/* Dot products of rows of blocks that are only decoded (isokern_layouts.h).
 *
 * With rows quantised to Q8_0, weights are unpacked to unsigned bytes, counted from the lowest quant of their type,
 * with a scale and a minimum for each run of 16: integers are summed within a run. With rows of floats, weights become
 * floats, a piece of a row at a time. */
#ifndef IK_LAYOUT_DOTS_H
#define IK_LAYOUT_DOTS_H
#include "block_dots.h"

typedef struct ik_runs {
    uint8_t *u;
    float *scale, *low;
} ik_runs;

enum { IK_RUNS = IK_PAIR / IK_LAYOUT_RUN }; /* runs of a pair of 32 elements */

static inline int64_t ik_runs_bytes(int64_t k)
{ return ik_pairs(k) * (IK_PAIR + 2 * IK_RUNS * (int64_t)sizeof(float)); }

static inline ik_runs ik_runs_at(char *at, int64_t k)
{
    const int64_t n = ik_pairs(k);
    float *scale = (float *)(void *)(at + n * IK_PAIR);
    return (ik_runs){ (uint8_t *)at, scale, scale + n * IK_RUNS };
}

#define IK_UNPACK(name, block, bytes, lowest) \
    static __attribute__((noinline, unused)) void ik_unpack_##name(const char *row, int64_t k, ik_runs to) \
    { \
        ik_block_bytes from = (ik_block_bytes)row; \
        for (int64_t at = 0; at < k; at += (block), from += (bytes)) { \
            const float d = ik_d_##name(from), m = ik_m_##name(from); \
            for (int32_t s = 0; s < (block) / IK_LAYOUT_RUN; s++, to.u += IK_LAYOUT_RUN) { \
                *to.scale++ = d * (float)ik_scale_##name(from, s); \
                *to.low++ = m * (float)ik_minimum_##name(from, s); \
                ik_run_##name(from, s, to.u); \
            } \
        } \
    }
IK_LAYOUTS(IK_UNPACK)
#undef IK_UNPACK

/* The scales and minima of Q4_K and Q5_K, four at a time. */
static inline void ik_unpack_six(ik_block_bytes from, float *scale, float *low)
{
    const uint32_t two = 0x03030303, four = 0x0f0f0f0f, six = 0x3f3f3f3f;
    const float d = ik_d_Q4_K(from), m = ik_m_Q4_K(from);
    uint32_t part[3], all[4];
    memcpy(part, from + 4, sizeof part);
    all[0] = part[0] & six, all[1] = (part[2] & four) | (part[0] >> 6 & two) << 4;
    all[2] = part[1] & six, all[3] = (part[2] >> 4 & four) | (part[1] >> 6 & two) << 4;
    uint8_t bytes[16];
    memcpy(bytes, all, sizeof bytes);
    for (int j = 0; j < 8; j++) {
        scale[2 * j] = scale[2 * j + 1] = d * (float)bytes[j];
        low[2 * j] = low[2 * j + 1] = m * (float)bytes[8 + j];
    }
}

/* The types that most files have, in loops over 32 bytes, which vectorise best: the same bytes and scales as above. */
static inline void ik_unpack_4_bits(ik_block_bytes from, ik_block_bytes high, uint8_t *u)
{
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++, from += 32, u += 64) IK_VECTORISE
        for (int i = 0; i < 32; i++) {
            u[i] = (uint8_t)((from[i] & 15) | (high == NULL ? 0 : (high[i] >> 2 * c & 1) << 4));
            u[i + 32] = (uint8_t)(from[i] >> 4 | (high == NULL ? 0 : (high[i] >> (2 * c + 1) & 1) << 4));
        }
}

static inline void ik_unpack_6_bits(ik_block_bytes from, uint8_t *u)
{
    for (int h = 0; h < 2; h++, u += 128) {
        ik_block_bytes low = from + 64 * h, high = from + 128 + 32 * h;
        IK_VECTORISE for (int i = 0; i < 32; i++) {
            u[i] = (uint8_t)((low[i] & 15) | (high[i] & 3) << 4);
            u[i + 32] = (uint8_t)((low[i + 32] & 15) | (high[i] >> 2 & 3) << 4);
            u[i + 64] = (uint8_t)(low[i] >> 4 | (high[i] >> 4 & 3) << 4);
            u[i + 96] = (uint8_t)(low[i + 32] >> 4 | (high[i] >> 6) << 4);
        }
    }
}

static __attribute__((noinline, unused)) void ik_unpack_usual(int32_t dtype, ik_block_bytes from, int64_t k, ik_runs to)
{
    const int64_t bytes = ik_itemsize(dtype);
    for (int64_t at = 0; at < k; at += 256, from += bytes) {
        float *scale = to.scale + at / IK_LAYOUT_RUN;
        if (dtype != IK_Q6_K) {
            ik_unpack_six(from, scale, to.low + at / IK_LAYOUT_RUN);
            if (dtype == IK_Q4_K)
                ik_unpack_4_bits(from + 16, NULL, to.u + at);
            else
                ik_unpack_4_bits(from + 48, from + 16, to.u + at);
            continue;
        }
        const float d = ik_d_Q6_K(from);
        int8_t eight[16];
        memcpy(eight, from + 192, sizeof eight);
        for (int s = 0; s < 16; s++)
            scale[s] = d * (float)eight[s];
        memset(to.low + at / IK_LAYOUT_RUN, 0, 16 * sizeof *to.low);
        ik_unpack_6_bits(from, to.u + at);
    }
}

/* Unpack k elements of whole blocks. */
static inline void ik_unpack_whole(int32_t dtype, const char *row, int64_t k, ik_runs to)
{
    switch (dtype) {
    case IK_Q4_K:
    case IK_Q5_K:
    case IK_Q6_K: ik_unpack_usual(dtype, (ik_block_bytes)row, k, to); return;
    default: break;
    }
    switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: ik_unpack_##name(row, k, to); return;
        IK_LAYOUTS(IK_CASE)
#undef IK_CASE
    default: return;
    }
}

/* Unpack a row of weights; what lies behind k, in its last pair, is zero. */
static inline void ik_unpack_runs(int32_t dtype, const char *row, int64_t k, ik_runs to)
{
    const int64_t rest = ik_pairs(k) * IK_PAIR - k;
    if (rest > 0) { /* without elements there is no scratch memory */
        memset(to.u + k, 0, (size_t)rest);
        memset(to.scale + k / IK_LAYOUT_RUN, 0, (size_t)(rest / IK_LAYOUT_RUN) * sizeof *to.scale);
        memset(to.low + k / IK_LAYOUT_RUN, 0, (size_t)(rest / IK_LAYOUT_RUN) * sizeof *to.low);
    }
    ik_unpack_whole(dtype, row, k, to);
}

/* y[r] = w · x[r] of `rows` quantised rows, a constant. `offset`: the bytes are counted from a quant below 0, which x
 * undoes; else there are minima, which the sums of x are multiplied by. */
static inline __attribute__((always_inline)) void ik_runs_dots_of(
    const bool offset, const int rows, ik_runs w, int64_t k, const ik_quants *x, float *y, int64_t y_row)
{
#if defined(__AVX512VNNI__)
    const __m512i quarters = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3),
                  halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    __m512 sum[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_setzero_ps();
    for (int64_t p = 0; p < ik_pairs(k); p++) {
        const __m512i u = _mm512_loadu_si512(w.u + p * IK_PAIR);
        const __m512 scale =
                         _mm512_permutexvar_ps(quarters, _mm512_castps128_ps512(_mm_loadu_ps(w.scale + p * IK_RUNS))),
                     low = _mm512_permutexvar_ps(quarters, _mm512_castps128_ps512(_mm_loadu_ps(w.low + p * IK_RUNS)));
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            const __m512i quants = _mm512_loadu_si512(x[r].q + p * IK_PAIR),
                          undo = _mm512_loadu_si512(x[r].undo + p * (IK_PAIR / 4)),
                          dot = _mm512_dpbusd_epi32(offset ? undo : _mm512_setzero_si512(), u, quants);
            double two;
            memcpy(&two, x[r].d + 2 * p, sizeof two);
            const __m512 d = _mm512_permutexvar_ps(halves, _mm512_castps128_ps512(_mm_castpd_ps(_mm_set_sd(two))));
            __m512 term = _mm512_mul_ps(_mm512_cvtepi32_ps(dot), scale);
            if (!offset)
                term = _mm512_fnmadd_ps(_mm512_cvtepi32_ps(undo), low, term);
            sum[r] = _mm512_fmadd_ps(term, d, sum[r]);
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        y[r * y_row] = _mm512_reduce_add_ps(sum[r]);
#else
    for (int r = 0; r < rows; r++) {
        float sum = 0;
        for (int64_t s = 0; s < k / IK_LAYOUT_RUN; s++) {
            const uint8_t *u = w.u + s * IK_LAYOUT_RUN;
            const int8_t *q = x[r].q + s * IK_LAYOUT_RUN;
            const int32_t *four = x[r].undo + s * (IK_LAYOUT_RUN / 4), all = four[0] + four[1] + four[2] + four[3];
            int32_t dot = offset ? all : 0;
            for (int i = 0; i < IK_LAYOUT_RUN; i++)
                dot += u[i] * q[i];
            sum += (w.scale[s] * (float)dot - (offset ? 0.0f : w.low[s] * (float)all)) * x[r].d[s / 2];
        }
        y[r * y_row] = sum;
    }
#endif
}

static inline void ik_runs_dots(
    const bool offset, int rows, ik_runs w, int64_t k, const ik_quants *x, float *y, int64_t y_row)
{
    for (int r = 0; r < rows;) {
        const int some = rows == 4 ? 4 : 1;
        if (offset && some == 4)
            ik_runs_dots_of(true, 4, w, k, x, y, y_row);
        else if (offset)
            ik_runs_dots_of(true, 1, w, k, x + r, y + r * y_row, y_row);
        else if (some == 4)
            ik_runs_dots_of(false, 4, w, k, x, y, y_row);
        else
            ik_runs_dots_of(false, 1, w, k, x + r, y + r * y_row, y_row);
        r += some;
    }
}

/* The same for `rows` rows of floats, whose sums in lanes are added to. */
static inline __attribute__((always_inline)) void ik_runs_floats(
    const int rows, float from, ik_runs w, int64_t n, const float *const *x, int64_t at, float (*sums)[16])
{
#if defined(__AVX512F__)
    const __m512 first = _mm512_set1_ps(from);
    __m512 sum[4];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_loadu_ps(sums[r]);
    for (int64_t i = 0; i < n; i += 16) {
        const __m512i bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)(w.u + i)));
        const __m512 value = _mm512_fmsub_ps(_mm512_add_ps(_mm512_cvtepi32_ps(bytes), first),
            _mm512_set1_ps(w.scale[i / IK_LAYOUT_RUN]), _mm512_set1_ps(w.low[i / IK_LAYOUT_RUN]));
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sum[r] = _mm512_fmadd_ps(value, _mm512_loadu_ps(x[r] + at + i), sum[r]);
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        _mm512_storeu_ps(sums[r], sum[r]);
#else
    for (int64_t i = 0; i < n; i += 16) {
        float value[16];
        for (int l = 0; l < 16; l++)
            value[l] = ((float)w.u[i + l] + from) * w.scale[i / IK_LAYOUT_RUN] - w.low[i / IK_LAYOUT_RUN];
        for (int r = 0; r < rows; r++)
            for (int l = 0; l < 16; l++)
                sums[r][l] += value[l] * x[r][at + i + l];
    }
#endif
}

/* y[r] = w · x[r] for up to 4 float rows of k elements. */
static inline void ik_layout_dots(
    int32_t dtype, int rows, const char *w, int64_t k, const float *const *x, float *y, int64_t y_row)
{
    enum { PIECE = 512 };
    uint8_t u[PIECE];
    float sums[4][16] = { 0 }, scale[PIECE / IK_LAYOUT_RUN], low[PIECE / IK_LAYOUT_RUN];
    const ik_runs runs = { u, scale, low };
    const int32_t factor = ik_undo_factor(dtype);
    const float from = factor == 1 ? 0.0f : (float)factor;
    for (int64_t at = 0; at < k; at += PIECE) {
        const int64_t n = ik_min(PIECE, k - at);
        ik_unpack_whole(dtype, w + ik_bytes(dtype, at), n, runs);
        if (rows == 4)
            ik_runs_floats(4, from, runs, n, x, at, sums);
        else
            for (int r = 0; r < rows; r++)
                ik_runs_floats(1, from, runs, n, x + r, at, sums + r);
    }
    for (int r = 0; r < rows; r++) {
        y[r * y_row] = 0;
        for (int l = 0; l < 16; l++)
            y[r * y_row] += sums[r][l];
    }
}

#endif
