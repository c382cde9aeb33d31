/* A packed layout of block-quantised weights for integer dot products: panels of 16 rows, so that a lane of a vector is
 * a row and nothing is summed across lanes. For every 32 elements along k a panel has the 16 scales (and for Q4_1 the
 * 16 minima) as F16, then vectors of 64 bytes in which lane r has four quants of row r: for nibbles, vector i has
 * elements 4 i to 4 i + 3 in the low and 16 elements further in the high nibbles; for bytes (offset by 128), elements 4
 * i to 4 i + 3. Missing rows are zero. The layout is as large as the blocks, with the last panel padded. */
#ifndef IK_ROW_STRIPS_H
#define IK_ROW_STRIPS_H
#include "matmul_rows.h"

enum { STRIP = 16, STRIP_ROWS = 8 /* STRIP_ROWS: rows of x at once */ };

static inline int64_t strip_bytes(int32_t dtype, int64_t k) { return STRIP * ik_bytes(dtype, k); }

static uint64_t strips_bytes(const ik_tensor *w)
{
    return (uint64_t)(ik_whole(w->shape[0], STRIP) / STRIP * strip_bytes(w->dtype, w->shape[1]));
}

typedef struct packing {
    const ik_tensor *tw;
    const char *from;
    char *to;
} packing;

static void pack_strips(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const packing *p = context;
    const int32_t dtype = p->tw->dtype;
    const int64_t n = p->tw->shape[0], k = p->tw->shape[1], bytes = ik_bytes(dtype, IK_BLOCK),
        quants = dtype == IK_Q8_0 ? 32 : 16;
    const int64_t heads = (bytes - quants) / 2; /* number of F16 values: scales, and minima */
    for (int64_t strip = begin; strip < end; strip++) {
        char *to = p->to + strip * strip_bytes(dtype, k);
        memset(to, 0, (size_t)strip_bytes(dtype, k));
        for (int64_t r = 0; r < ik_min(STRIP, n - strip * STRIP); r++) {
            const char *from = p->from + ik_bytes(dtype, (strip * STRIP + r) * p->tw->strides[0]);
            for (int64_t b = 0; b < k / IK_BLOCK; b++, from += bytes) {
                char *block = to + b * STRIP * bytes;
                for (int64_t h = 0; h < heads; h++)
                    memcpy(block + (h * STRIP + r) * 2, from + 2 * h, 2);
                for (int64_t i = 0; i < quants / 4; i++) {
                    uint32_t four;
                    memcpy(&four, from + 2 * heads + 4 * i, 4);
                    four ^= dtype == IK_Q8_0 ? 0x80808080u : 0;
                    memcpy(block + 2 * heads * STRIP + (i * STRIP + r) * 4, &four, 4);
                }
            }
        }
    }
}

/* A row of x: quants in order, and for each block the scale, the scale times the sum of quants, and the correction for
 * the offset of the weights. */
typedef struct strip_x {
    int8_t *q;
    float *d, *s;
    int32_t *undo;
} strip_x;

static int64_t strip_x_bytes(int64_t k) { return ik_whole(k + k / IK_BLOCK * 12, 64); }

static strip_x strip_x_at(char *at, int64_t k)
{
    const int64_t blocks = k / IK_BLOCK;
    float *d = (float *)(void *)(at + k);
    return (strip_x){ (int8_t *)at, d, d + blocks, (int32_t *)(void *)(d + 2 * blocks) };
}

typedef struct strips {
    const ik_tensor *ty, *tx;
    epilogue finish;
    char *y;
    const char *x, *w;
    int32_t dtype;
    int64_t m, n, k;
    char *held, *rooms; /* rows of x quantised; a row of F32 for each thread */
} strips;

static void hold_strip_x(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const strips *s = context;
    const int64_t stride = s->tx->strides[s->tx->ndim - 1];
    float *wide = (float *)(void *)(s->rooms + worker * ik_whole(4 * s->k, 64));
    for (int64_t row = begin; row < end; row++) {
        const strip_x x = strip_x_at(s->held + row * strip_x_bytes(s->k), s->k);
        ik_load_f32(s->tx->dtype, s->x + ik_row_offset(s->tx, row, 1) * ik_itemsize(s->tx->dtype), stride, s->k, wide);
        for (int64_t b = 0; b < s->k / IK_BLOCK; b++) {
            int32_t quants[IK_BLOCK], sum = 0;
            x.d[b] = ik_quantise_block(wide + b * IK_BLOCK, quants);
            for (int i = 0; i < IK_BLOCK; i++) {
                x.q[b * IK_BLOCK + i] = (int8_t)quants[i];
                sum += quants[i];
            }
            x.s[b] = x.d[b] * (float)sum;
            x.undo[b] = (s->dtype == IK_Q4_0 ? -8 : s->dtype == IK_Q8_0 ? -128 : 0) * sum;
        }
    }
}

/* Sums of a panel with `rows` rows of x; `rows` is a constant. */
static inline __attribute__((always_inline)) void strip_dots(const int32_t dtype, const int rows, const char *w,
    int64_t k, const strip_x *x, float (*y)[STRIP])
{
    const int quads = 8;
    const __m512i low = _mm512_set1_epi8(15);
    __m512 sum[STRIP_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < k / IK_BLOCK; b++, w += STRIP * ik_bytes(dtype, IK_BLOCK)) {
        const char *at = w + (dtype == IK_Q4_1 ? 4 : 2) * STRIP;
        const __m512 d = _mm512_cvtph_ps(_mm256_loadu_si256((const void *)w));
        __m512i u[8];
        _mm_prefetch(w + 2048, _MM_HINT_T0), _mm_prefetch(w + 2112, _MM_HINT_T0), _mm_prefetch(w + 2176, _MM_HINT_T0);
        _mm_prefetch(w + 2240, _MM_HINT_T0), _mm_prefetch(w + 2304, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int i = 0; i < quads; i++)
            if (dtype == IK_Q8_0) {
                u[i] = _mm512_loadu_si512(at + 64 * i);
            } else {
                const __m512i pair = _mm512_loadu_si512(at + 64 * (i & 3));
                u[i] = _mm512_and_si512(i < 4 ? pair : _mm512_srli_epi16(pair, 4), low);
            }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            __m512i dot = _mm512_set1_epi32(x[r].undo[b]);
#pragma GCC unroll 8
            for (int i = 0; i < quads; i++) {
                int32_t four;
                memcpy(&four, x[r].q + b * IK_BLOCK + 4 * i, 4);
                dot = _mm512_dpbusd_epi32(dot, u[i], _mm512_set1_epi32(four));
            }
            sum[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(d, _mm512_set1_ps(x[r].d[b])), sum[r]);
            if (dtype == IK_Q4_1)
                sum[r] = _mm512_fmadd_ps(_mm512_cvtph_ps(_mm256_loadu_si256((const void *)(w + 2 * STRIP))),
                    _mm512_set1_ps(x[r].s[b]), sum[r]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        _mm512_storeu_ps(y[r], sum[r]);
}

static inline __attribute__((always_inline)) void strip_rows(const int32_t dtype, const strips *s, int64_t strip)
{
    const int64_t count = ik_min(STRIP, s->n - strip * STRIP);
    const char *w = s->w + strip * strip_bytes(dtype, s->k);
    float sums[STRIP_ROWS][STRIP];
    for (int64_t row = 0, rows; row < s->m; row += rows) {
        strip_x x[STRIP_ROWS];
        rows = ik_min(STRIP_ROWS, s->m - row);
        for (int64_t r = 0; r < rows; r++)
            x[r] = strip_x_at(s->held + (row + r) * strip_x_bytes(s->k), s->k);
        if (rows == STRIP_ROWS) {
            strip_dots(dtype, STRIP_ROWS, w, s->k, x, sums);
        } else {
            int64_t r = 0;
            for (; r + 4 <= rows; r += 4)
                strip_dots(dtype, 4, w, s->k, x + r, sums + r);
            for (; r < rows; r++)
                strip_dots(dtype, 1, w, s->k, x + r, sums + r);
        }
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&s->finish, s->ty, s->y, row + r, strip * STRIP, count, sums[r]);
    }
}

static void strip_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const strips *s = context;
    for (int64_t strip = begin; strip < end; strip++)
        switch (s->dtype) {
        case IK_Q4_0: strip_rows(IK_Q4_0, s, strip); break;
        case IK_Q4_1: strip_rows(IK_Q4_1, s, strip); break;
        default: strip_rows(IK_Q8_0, s, strip);
        }
}

static strips strips_of(const ik_plan *plan)
{
    strips s = { .ty = &plan->tensors[IK_MATMUL_TRANSPOSED_Y], .tx = &plan->tensors[IK_MATMUL_TRANSPOSED_X] };
    const ik_tensor *w = &plan->tensors[IK_MATMUL_TRANSPOSED_W];
    s.dtype = w->dtype;
    s.n = w->shape[0], s.k = w->shape[1];
    s.m = s.n == 0 ? 0 : ik_numel(s.ty) / s.n;
    return s;
}

static uint64_t strips_workspace(const ik_plan *plan)
{
    const strips s = strips_of(plan);
    return (uint64_t)(s.m * strip_x_bytes(s.k) + ik_threads() * ik_whole(4 * s.k, 64));
}

static ik_status run_strips(const ik_plan *plan, void *const *data, void *workspace)
{
    strips s = strips_of(plan);
    if (s.m == 0)
        return IK_SUCCESS;
    s.y = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_Y);
    s.x = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_X);
    s.w = data[IK_MATMUL_TRANSPOSED_W];
    s.finish = epilogue_of(plan, data);
    s.rooms = workspace;
    s.held = s.rooms + ik_threads() * ik_whole(4 * s.k, 64);
    ik_parallel_for(s.m, DOT_BYTES / (4 * ik_max(1, s.k)), hold_strip_x, &s);
    ik_parallel_for(ik_whole(s.n, STRIP) / STRIP, ik_max(1, DOT_BYTES / ik_max(1, strip_bytes(s.dtype, s.k) * s.m)),
        strip_tasks, &s);
    return IK_SUCCESS;
}

#endif
