/* Transposing small tiles of elements of 1 to 8 bytes, for strided copies where one side is walked by columns.
 *
 * A square of 16 / size rows by 16 bytes is transposed by log2(16 / size) rounds of interleaving row i with row i +
 * half. Vectors of two or four lanes have as many adjacent squares; a second step transposes the lanes, so that a line
 * of x is read with one load (not visited twice, since lines a power of two apart would evict it in between) and a line
 * of y is written with one store. */
#ifndef IK_TRANSPOSE_H
#define IK_TRANSPOSE_H
#include "convert.h"

#if defined(__AVX512BW__)
typedef __m512i ik_square;
#define IK_UNPACK(half, bits) _mm512_unpack##half##_epi##bits
#elif defined(__AVX2__)
typedef __m256i ik_square;
#define IK_UNPACK(half, bits) _mm256_unpack##half##_epi##bits
#elif defined(__SSE2__)
typedef __m128i ik_square;
#define IK_UNPACK(half, bits) _mm_unpack##half##_epi##bits
#endif

#ifdef IK_UNPACK
enum { IK_SQUARES_OF_VECTOR = sizeof(ik_square) / 16 };

static inline __attribute__((always_inline)) ik_square ik_unpack_low(int64_t size, ik_square a, ik_square b)
{
    return size == 1 ? IK_UNPACK(lo, 8)(a, b)
        : size == 2  ? IK_UNPACK(lo, 16)(a, b)
        : size == 4  ? IK_UNPACK(lo, 32)(a, b)
                     : IK_UNPACK(lo, 64)(a, b);
}

static inline __attribute__((always_inline)) ik_square ik_unpack_high(int64_t size, ik_square a, ik_square b)
{
    return size == 1 ? IK_UNPACK(hi, 8)(a, b)
        : size == 2  ? IK_UNPACK(hi, 16)(a, b)
        : size == 4  ? IK_UNPACK(hi, 32)(a, b)
                     : IK_UNPACK(hi, 64)(a, b);
}

/* Transpose the lanes: lane j of v[i] goes to lane i of v[j]. */
static inline __attribute__((always_inline)) void ik_transpose_lanes(ik_square *v)
{
#if defined(__AVX512BW__)
    __m512i a = _mm512_shuffle_i32x4(v[0], v[1], 0x44), b = _mm512_shuffle_i32x4(v[0], v[1], 0xee);
    __m512i c = _mm512_shuffle_i32x4(v[2], v[3], 0x44), d = _mm512_shuffle_i32x4(v[2], v[3], 0xee);
    v[0] = _mm512_shuffle_i32x4(a, c, 0x88), v[1] = _mm512_shuffle_i32x4(a, c, 0xdd);
    v[2] = _mm512_shuffle_i32x4(b, d, 0x88), v[3] = _mm512_shuffle_i32x4(b, d, 0xdd);
#elif defined(__AVX2__)
    __m256i a = v[0];
    v[0] = _mm256_permute2x128_si256(a, v[1], 0x20), v[1] = _mm256_permute2x128_si256(a, v[1], 0x31);
#else
    (void)v;
#endif
}

static inline __attribute__((always_inline)) void ik_stream_squares(char *y, ik_square v)
{
#if defined(__AVX512BW__)
    _mm512_stream_si512((void *)y, v);
#elif defined(__AVX2__)
    _mm256_stream_si256((__m256i *)y, v);
#else
    _mm_stream_si128((__m128i *)y, v);
#endif
}

/* y[p][l] = x[l][p] for as many columns p and rows l as a vector has elements; steps in bytes. Unrolled, so that
 * everything stays in registers; `stream` is a constant. */
static inline __attribute__((always_inline)) void ik_transpose_squares(
    int64_t size, char *y, int64_t y_step, const char *x, int64_t x_step, const bool stream)
{
    ik_square v[16][IK_SQUARES_OF_VECTOR]; /* [column within a square][square] */
    int64_t width = 16 / size, half = width / 2;
    char *to[IK_SQUARES_OF_VECTOR]; /* the next row of each square */
#pragma GCC unroll 16
    for (int64_t s = 0; s < IK_SQUARES_OF_VECTOR; s++)
        to[s] = y + s * width * y_step;
#pragma GCC unroll 16
    for (int64_t s = 0; s < IK_SQUARES_OF_VECTOR; s++) {
        ik_square a[16], b[16];
#pragma GCC unroll 16
        for (int64_t i = 0; i < width; i++) {
            memcpy(&a[i], x, sizeof a[i]);
            x += x_step;
            IK_HIDE(x);
        }
#pragma GCC unroll 16
        for (int64_t round = width; round > 1; round /= 2) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < half; i++) {
                b[2 * i] = ik_unpack_low(size, a[i], a[i + half]);
                b[2 * i + 1] = ik_unpack_high(size, a[i], a[i + half]);
            }
#pragma GCC unroll 16
            for (int64_t i = 0; i < width; i++)
                a[i] = b[i];
        }
#pragma GCC unroll 16
        for (int64_t i = 0; i < width; i++)
            v[i][s] = a[i];
    }
#pragma GCC unroll 16
    for (int64_t i = 0; i < width; i++) {
        ik_transpose_lanes(v[i]);
#pragma GCC unroll 16
        for (int64_t s = 0; s < IK_SQUARES_OF_VECTOR; s++) {
            if (stream)
                ik_stream_squares(to[s], v[i][s]);
            else
                memcpy(to[s], &v[i][s], sizeof v[i][s]);
            to[s] += y_step;
            IK_HIDE(to[s]);
        }
    }
}
#endif

/* y[p * yp + l * yl] = x[p * xp + l * xl], steps in bytes, one by one with the longer dim in the inner loop. */
static inline __attribute__((always_inline)) void ik_transpose_elements(
    int64_t size, int64_t columns, int64_t rows, char *y, int64_t yp, int64_t yl, const char *x, int64_t xp, int64_t xl)
{
    bool by_columns = columns > rows;
    int64_t outer = by_columns ? rows : columns, inner = by_columns ? columns : rows;
    int64_t y_outer = by_columns ? yl : yp, y_inner = by_columns ? yp : yl, x_outer = by_columns ? xl : xp,
            x_inner = by_columns ? xp : xl;
    for (int64_t i = 0; i < outer; i++) {
        IK_VECTORISE for (int64_t j = 0; j < inner; j++)
            memcpy(y + i * y_outer + j * y_inner, x + i * x_outer + j * x_inner, (size_t)size);
    }
}

static inline __attribute__((always_inline)) void ik_transpose_sized(int64_t size, int64_t columns, int64_t rows,
    char *y, int64_t yp, int64_t yl, const char *x, int64_t xp, int64_t xl, bool stream)
{
    int64_t p = 0, done = 0; /* rows of the first p columns that are done, in squares */
    (void)stream;
#ifdef IK_UNPACK
    int64_t edge = (int64_t)sizeof(ik_square) / size;
    if (size <= 8 && yl == size && xp == size && rows >= edge) {
        p = columns / edge * edge, done = rows / edge * edge;
        for (int64_t c = 0; c < p; c += edge)
            for (int64_t l = 0; l < done; l += edge) {
                char *to = y + c * yp + l * yl;
                const char *from = x + c * xp + l * xl;
                if (stream)
                    ik_transpose_squares(size <= 8 ? size : 8, to, yp, from, xl, true);
                else
                    ik_transpose_squares(size <= 8 ? size : 8, to, yp, from, xl, false);
            }
    }
#endif
    /* The remaining rows of those columns, then the remaining columns. */
    for (int64_t c = 0, l = done; c < columns; c += p, p = columns - c, l = 0)
        ik_transpose_elements(size, p, rows - l, y + c * yp + l * yl, yp, yl, x + c * xp + l * xl, xp, xl);
}

/* y[p * yp + l * yl] = x[p * xp + l * xl] for `columns` p and `rows` l of elements of 1, 2, 4, 8 or 16 bytes; steps in
 * bytes. With `stream`, y, yp and rows * size must be divisible by 64. */
static inline void ik_transpose(int64_t size, int64_t columns, int64_t rows, char *y, int64_t yp, int64_t yl,
    const char *x, int64_t xp, int64_t xl, bool stream)
{
    switch (size) {
    case 1: ik_transpose_sized(1, columns, rows, y, yp, yl, x, xp, xl, stream); return;
    case 2: ik_transpose_sized(2, columns, rows, y, yp, yl, x, xp, xl, stream); return;
    case 4: ik_transpose_sized(4, columns, rows, y, yp, yl, x, xp, xl, stream); return;
    case 8: ik_transpose_sized(8, columns, rows, y, yp, yl, x, xp, xl, stream); return;
    default: ik_transpose_sized(16, columns, rows, y, yp, yl, x, xp, xl, false);
    }
}

#endif
