/* The register-blocked tile of every contraction: a few rows times two vectors of columns. Included once for each
 * element type.
 *
 *     to[i, j] = from[i, j] + Σ_p a[i * a_row + p * a_step] * b[p, j]        i < rows <= IK_TILE_ROWS, j < vecs * lanes
 *
 * Needs IK_T (the type), IK_OF(name) (name with the type's suffix), IK_OF(splat) and IK_OF(fma). Row p of b lies at b +
 * p * b_step or, with IK_TILE_OFFSETS defined, at b + b_offsets[p]. Every element is one chain of additions in the
 * order of p, whatever the tile's size. Integers are computed row by row unless IK_TALL_TILES is defined. */
#ifndef IK_GEMM_TILE_H
#define IK_GEMM_TILE_H
#include "convert.h"

#if defined(__AVX512F__) /* rows * 2 accumulators, 2 vectors of b and one of a fill the registers */
enum { IK_TILE_ROWS = 14, IK_NARROW_TILE_ROWS = 14 /* of tiles of one vector of columns */ };
#elif defined(__AVX__)
enum { IK_TILE_ROWS = 6, IK_NARROW_TILE_ROWS = 12 };
#else
enum { IK_TILE_ROWS = 5, IK_NARROW_TILE_ROWS = 10 };
#endif

typedef struct ik_tile {
    int64_t k;
    const void *a;
    int64_t a_row, a_step;
    const void *b;
    int64_t b_step;
    const int64_t *b_offsets;
    const void *from; /* null: zeros */
    int64_t from_row;
    void *to;
    int64_t to_row;
    const void *add; /* only with IK_TILE_OFFSETS: null, or added last; `relu` then zeroes negative values */
    int64_t add_row;
    bool relu;
} ik_tile;

enum { IK_TILE_PREFETCH = 16 }; /* rows of b; four times as many where a tile has few rows of a */

/* A second thread that is awake pays from about this many multiplications on. */
enum { IK_THREAD_PRODUCTS = 1 << 19 };

/* The packed block of b shares the level-2 cache with the panels of a: half of 1 MiB, or of 256 KiB. */
#if defined(__AVX512F__)
enum { IK_BLOCK_BYTES = 512 << 10, IK_BLOCK_K = 256 };
#else
enum { IK_BLOCK_BYTES = 192 << 10, IK_BLOCK_K = 256 };
#endif

/* Whether rows so many bytes apart put the rows of a tile into one set of the level-1 cache, which has 8 or 12 ways. */
static inline bool ik_rows_clash(int64_t bytes) { return bytes % 4096 == 0 && IK_TILE_ROWS > 8; }

#if defined(__AVX512F__)
static inline __m512 fma_f32(__m512 a, __m512 b, __m512 c) { return _mm512_fmadd_ps(a, b, c); }
static inline __m512d fma_f64(__m512d a, __m512d b, __m512d c) { return _mm512_fmadd_pd(a, b, c); }
#elif defined(__FMA__)
static inline __m256 fma_f32(__m256 a, __m256 b, __m256 c) { return _mm256_fmadd_ps(a, b, c); }
static inline __m256d fma_f64(__m256d a, __m256d b, __m256d c) { return _mm256_fmadd_pd(a, b, c); }
#else
static inline ik_f32s fma_f32(ik_f32s a, ik_f32s b, ik_f32s c) { return a * b + c; }
static inline ik_f64s fma_f64(ik_f64s a, ik_f64s b, ik_f64s c) { return a * b + c; }
#endif
static inline ik_f32s splat_f32(const float *x) { return *x - (ik_f32s){ 0 }; }
static inline ik_f64s splat_f64(const double *x) { return *x - (ik_f64s){ 0 }; }
static inline ik_u32s splat_u32(const uint32_t *x) { return *x - (ik_u32s){ 0 }; }
static inline ik_u64s splat_u64(const uint64_t *x) { return *x - (ik_u64s){ 0 }; }

/* One vector of floats of a dtype of ik_has_vectors, as F32. */
static inline __attribute__((always_inline)) ik_f32s widen_f32(const int32_t dtype, const void *from)
{
    if (dtype == IK_F32) {
        ik_f32s x;
        memcpy(&x, from, sizeof x);
        return x;
    }
    if (ik_itemsize(dtype) == 1) {
#if defined(__AVX512F__)
        /* By way of F16, whose subnormal numbers cost nothing: an E5M2 is the high byte of one, and an E4M3FN is 256
         * times the one with its bits. */
        const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(from));
        if (dtype == IK_F8E5M2)
            return _mm512_cvtph_ps(_mm256_slli_epi16(bytes, 8));
        const __m256i magnitude = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7f)),
                      sign = _mm256_slli_epi16(_mm256_andnot_si256(_mm256_set1_epi16(0x7f), bytes), 8);
        const __m512 x = _mm512_cvtph_ps(_mm256_or_si256(sign, _mm256_slli_epi16(magnitude, 7)));
        return _mm512_mask_blend_ps(_mm256_cmpeq_epi16_mask(magnitude, _mm256_set1_epi16(0x7f)),
            _mm512_mul_ps(x, _mm512_set1_ps(256)), _mm512_set1_ps(ik_float(0x7fc00000u)));
#else
        ik_f32s x = { 0 }; /* every element is written below */
        ik_load_f32(dtype, from, 1, sizeof x / sizeof(float), (float *)&x);
        return x;
#endif
    }
#if defined(__AVX512F__)
    __m256i half = _mm256_loadu_si256(from);
    return dtype == IK_F16 ? _mm512_cvtph_ps(half)
                           : _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
#elif defined(__AVX2__)
    __m128i half = _mm_loadu_si128(from);
    return dtype == IK_F16 ? _mm256_cvtph_ps(half)
                           : _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
#else
    ik_f32s x = { 0 }; /* every element is written below, which gcc does not see */
    for (size_t i = 0; i < sizeof x / sizeof(float); i++) {
        uint16_t half = ((const uint16_t *)from)[i];
        x[i] = dtype == IK_F16 ? ik_f16_to_f32(half) : ik_bf16_to_f32(half);
    }
    return x;
#endif
}

static inline __attribute__((always_inline)) ik_f64s widen_f64(const int32_t dtype, const void *from)
{
    (void)dtype;
    ik_f64s x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* Not inlined: many small functions that read the rests of runs. */
static __attribute__((noinline, unused)) void load_run_f32(
    int32_t dtype, const void *from, int64_t stride, int64_t n, float *to)
{
    int64_t i = 0;
#if defined(__AVX512F__) /* ahead of the compiler's loops, which take 64 bytes at a time */
    for (; stride == 1 && (dtype == IK_F8E4M3FN || dtype == IK_F8E5M2) && i + 16 <= n; i += 16)
        _mm512_storeu_ps(to + i, widen_f32(dtype, (const char *)from + i));
#endif
    ik_load_f32(dtype, (const char *)from + i * ik_itemsize(dtype), stride, n - i, to + i);
}

static inline __attribute__((always_inline)) void load_f32(
    int32_t dtype, const void *from, int64_t stride, int64_t n, float *to)
{
    if (dtype == IK_F32 && stride == 1)
        memcpy(to, from, (size_t)n * sizeof *to); /* a few moves where n is a constant */
    else
        load_run_f32(dtype, from, stride, n, to);
}

static inline __attribute__((always_inline)) void load_f64(
    int32_t dtype, const void *from, int64_t stride, int64_t n, double *to)
{
    (void)dtype;
    if (stride == 1)
        memcpy(to, from, (size_t)n * sizeof *to);
    else
        ik_load_f64(from, stride, n, to);
}

static inline void store_f32(int32_t dtype, const float *from, void *to, int64_t stride, int64_t n)
{ ik_store_f32(dtype, from, to, stride, n); }

static inline void store_f64(int32_t dtype, const double *from, void *to, int64_t stride, int64_t n)
{
    (void)dtype;
    ik_store_f64(from, to, stride, n);
}

static inline float multiply_add_f32(float a, float b, float c) { return IK_FMA_F32(a, b, c); }
static inline double multiply_add_f64(double a, double b, double c) { return IK_FMA_F64(a, b, c); }

static inline ik_u32s fma_u32(ik_u32s a, ik_u32s b, ik_u32s c) { return a * b + c; }
static inline ik_u64s fma_u64(ik_u64s a, ik_u64s b, ik_u64s c) { return a * b + c; }
#endif

#ifdef IK_T
typedef IK_T IK_OF(vector) __attribute__((vector_size(IK_VECTOR)));
/* A vector in memory. */
typedef IK_T IK_OF(loose) __attribute__((vector_size(IK_VECTOR), aligned(sizeof(IK_T)), may_alias));
enum {
    IK_OF(lanes) = IK_VECTOR / sizeof(IK_T),
    IK_OF(panel_width) = 2 * IK_OF(lanes),
    IK_OF(panel_rows) = IK_TILE_ROWS,
    IK_OF(row_step) = 1
};

/* x, or zero where x is negative. */
static inline __attribute__((unused)) IK_OF(vector) IK_OF(zero_negative)(IK_OF(vector) x)
{
    __typeof__(x < 0) keep = ~(x < 0);
    return (IK_OF(vector))((__typeof__(keep))x & keep);
}

/* sum[i][j] += from[i, j]. */
static inline __attribute__((always_inline)) void IK_OF(add_to)(
    const int rows, const int vecs, IK_OF(vector) (*sum)[2], const IK_T *from, int64_t from_row)
{
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, from += from_row)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            sum[i][j] += *(const IK_OF(loose) *)(from + j * IK_OF(lanes));
}

/* `rows` and `vecs` are constants where this is inlined, so that the accumulators are registers. */
static inline __attribute__((always_inline)) void IK_OF(tile_of)(const int rows, const int vecs, const ik_tile *t)
{
    IK_OF(vector) sum[IK_TILE_ROWS][2];
    const IK_T *b = t->b;
    const int64_t k = t->k, a_row = t->a_row * (int64_t)sizeof(IK_T), a_step = t->a_step * (int64_t)sizeof(IK_T);
    int64_t three_rows = 3 * a_row;
    const char *fours[(IK_TILE_ROWS + 3) / 4]; /* every fourth row of a; the others by one or three times a_row */
#pragma GCC unroll 4
    for (int i = 0; i < rows; i += 4)
        fours[i / 4] = (const char *)t->a + i * a_row;
    IK_HIDE(three_rows);
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            sum[i][j] = (IK_OF(vector)){ 0 };
#ifdef IK_TILE_OFFSETS
    const int64_t *offsets = t->b_offsets;
#else
    const int64_t b_step = t->b_step;
#endif
    for (int64_t p = 0; p < k; p++) {
        IK_OF(vector) x[2];
#ifdef IK_TILE_OFFSETS
        const IK_T *row = b + offsets[p];
#else
        const IK_T *row = b + p * b_step;
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            __builtin_prefetch(row + (rows > 4 ? IK_TILE_PREFETCH : 4 * IK_TILE_PREFETCH) * b_step + j * IK_OF(lanes));
#endif
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            x[j] = *(const IK_OF(loose) *)(row + j * IK_OF(lanes));
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++) {
            const char *at = fours[i / 4] + (i % 4 == 3 ? three_rows : i % 4 * a_row);
            const IK_OF(vector) w = IK_OF(splat)((const IK_T *)(const void *)at);
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++)
                sum[i][j] = IK_OF(fma)(w, x[j], sum[i][j]);
        }
#pragma GCC unroll 4
        for (int i = 0; i < rows; i += 4) {
            fours[i / 4] += a_step;
            IK_HIDE(fours[i / 4]);
        }
    }
    if (t->from != NULL) /* once for the whole tile: a branch in each row would multiply the code paths */
        IK_OF(add_to)(rows, vecs, sum, t->from, t->from_row);
#ifdef IK_TILE_OFFSETS
    if (t->add != NULL)
        IK_OF(add_to)(rows, vecs, sum, t->add, t->add_row);
    if (t->relu)
#pragma GCC unroll 16
        for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
            for (int j = 0; j < vecs; j++)
                sum[i][j] = IK_OF(zero_negative)(sum[i][j]);
#endif
    IK_T *to = t->to;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++, to += t->to_row)
#pragma GCC unroll 2
        for (int j = 0; j < vecs; j++)
            *(IK_OF(loose) *)(to + j * IK_OF(lanes)) = sum[i][j];
}

static __attribute__((unused)) void IK_OF(tile)(int64_t rows, int64_t vecs, const ik_tile *t)
{
#ifndef IK_TALL_TILES
    if ((IK_T)1 / 2 == 0) { /* integers: row by row, instead of a function for every height */
        ik_tile one = *t;
        for (int64_t i = 0; i < rows; i++) {
            one.a = (const IK_T *)t->a + i * t->a_row;
            one.from = t->from != NULL ? (const IK_T *)t->from + i * t->from_row : NULL;
            one.to = (IK_T *)t->to + i * t->to_row;
            if (vecs == 1)
                IK_OF(tile_of)(1, 1, &one);
            else
                IK_OF(tile_of)(1, 2, &one);
        }
        return;
    }
#endif
#define IK_ROWS(n) \
    case 2 * n + 1: IK_OF(tile_of)(n, 1, t); return; \
    case 2 * n + 2: IK_OF(tile_of)(n, 2, t); return;
    /* clang-format off */
    switch (2 * rows + vecs) {
        IK_ROWS(1) IK_ROWS(2) IK_ROWS(3) IK_ROWS(4) IK_ROWS(5)
#if defined(__AVX__)
        IK_ROWS(6)
#endif
#if defined(__AVX512F__)
        IK_ROWS(7) IK_ROWS(8) IK_ROWS(9) IK_ROWS(10) IK_ROWS(11) IK_ROWS(12) IK_ROWS(13) IK_ROWS(14)
#endif
        /* clang-format on */
    }
#undef IK_ROWS
}
#endif
