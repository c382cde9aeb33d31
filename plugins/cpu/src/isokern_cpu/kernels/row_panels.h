/* A packed layout of block-quantised weights for integer dot products: panels of 16 rows, so that a lane of a vector is
 * a row and nothing is summed across lanes. For every 32 elements along k a panel has the 16 scales (and for Q4_1 the
 * 16 minima) as F16, then vectors of 64 bytes in which lane r has four quants of row r: for nibbles, vector i has
 * elements 4 i to 4 i + 3 in the low and 16 elements further in the high nibbles; for bytes (offset by 128), elements 4
 * i to 4 i + 3. Missing rows are zero. The layout is as large as the blocks, with the last panel padded. */
#ifndef IK_ROW_PANELS_H
#define IK_ROW_PANELS_H
#include "matmul_rows.h"

enum { PANEL_WIDTH = 16, X_ROWS = 8 /* X_ROWS: rows of x at once */ };

static inline int64_t panel_bytes(int32_t dtype, int64_t k) { return PANEL_WIDTH * ik_bytes(dtype, k); }

static uint64_t packed_bytes(const ik_tensor *w)
{ return (uint64_t)(ik_ceil_div(w->shape[0], PANEL_WIDTH) * panel_bytes(w->dtype, w->shape[1])); }

typedef struct packing {
    const ik_tensor *tw;
    const char *from;
    char *to;
} packing;

static void pack_panels(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const packing *p = context;
    const int32_t dtype = p->tw->dtype;
    const int64_t n = p->tw->shape[0], k = p->tw->shape[1], bytes = ik_bytes(dtype, IK_BLOCK),
                  quants = dtype == IK_Q8_0 ? 32 : 16;
    const int64_t heads = (bytes - quants) / 2; /* number of F16 values: scales, and minima */
    for (int64_t panel = begin; panel < end; panel++) {
        char *to = p->to + panel * panel_bytes(dtype, k);
        memset(to, 0, (size_t)panel_bytes(dtype, k));
        for (int64_t r = 0; r < ik_min(PANEL_WIDTH, n - panel * PANEL_WIDTH); r++) {
            const char *from = p->from + ik_bytes(dtype, (panel * PANEL_WIDTH + r) * p->tw->strides[0]);
            for (int64_t b = 0; b < k / IK_BLOCK; b++, from += bytes) {
                char *block = to + b * PANEL_WIDTH * bytes;
                for (int64_t h = 0; h < heads; h++)
                    memcpy(block + (h * PANEL_WIDTH + r) * 2, from + 2 * h, 2);
                for (int64_t i = 0; i < quants / 4; i++) {
                    uint32_t four;
                    memcpy(&four, from + 2 * heads + 4 * i, 4);
                    four ^= dtype == IK_Q8_0 ? 0x80808080u : 0;
                    memcpy(block + 2 * heads * PANEL_WIDTH + (i * PANEL_WIDTH + r) * 4, &four, 4);
                }
            }
        }
    }
}

/* A row of x: quants in order, and for each block the scale, the scale times the sum of quants, and the correction for
 * the offset of the weights. */
typedef struct panel_x {
    int8_t *q;
    float *d, *s;
    int32_t *undo;
} panel_x;

static int64_t panel_x_bytes(int64_t k) { return ik_round_up(k + k / IK_BLOCK * 12, 64); }

static panel_x panel_x_at(char *at, int64_t k)
{
    const int64_t blocks = k / IK_BLOCK;
    float *d = (float *)(void *)(at + k);
    return (panel_x){ (int8_t *)at, d, d + blocks, (int32_t *)(void *)(d + 2 * blocks) };
}

typedef struct panel_job {
    const ik_tensor *ty, *tx;
    epilogue finish;
    char *y;
    const char *x, *w;
    int32_t dtype;
    int64_t m, n, k;
    char *converted, *thread_scratch; /* rows of x quantised; a row of F32 for each thread */
} panel_job;

static void quantise_panel_x(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const panel_job *s = context;
    const int64_t stride = s->tx->strides[s->tx->ndim - 1];
    float *wide = (float *)(void *)(s->thread_scratch + worker * ik_round_up(4 * s->k, 64));
    for (int64_t row = begin; row < end; row++) {
        const panel_x x = panel_x_at(s->converted + row * panel_x_bytes(s->k), s->k);
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
static inline __attribute__((always_inline)) void panel_dots(
    const int32_t dtype, const int rows, const char *w, int64_t k, const panel_x *x, float (*y)[PANEL_WIDTH])
{
    const int quads = 8;
    const __m512i low = _mm512_set1_epi8(15);
    __m512 sum[X_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        sum[r] = _mm512_setzero_ps();
    for (int64_t b = 0; b < k / IK_BLOCK; b++, w += PANEL_WIDTH * ik_bytes(dtype, IK_BLOCK)) {
        const char *at = w + (dtype == IK_Q4_1 ? 4 : 2) * PANEL_WIDTH;
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
                sum[r] = _mm512_fmadd_ps(_mm512_cvtph_ps(_mm256_loadu_si256((const void *)(w + 2 * PANEL_WIDTH))),
                    _mm512_set1_ps(x[r].s[b]), sum[r]);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        _mm512_storeu_ps(y[r], sum[r]);
}

static inline __attribute__((always_inline)) void multiply_panel(const int32_t dtype, const panel_job *s, int64_t panel)
{
    const int64_t count = ik_min(PANEL_WIDTH, s->n - panel * PANEL_WIDTH);
    const char *w = s->w + panel * panel_bytes(dtype, s->k);
    float sums[X_ROWS][PANEL_WIDTH];
    for (int64_t row = 0, rows; row < s->m; row += rows) {
        panel_x x[X_ROWS];
        rows = ik_min(X_ROWS, s->m - row);
        for (int64_t r = 0; r < rows; r++)
            x[r] = panel_x_at(s->converted + (row + r) * panel_x_bytes(s->k), s->k);
        if (rows == X_ROWS) {
            panel_dots(dtype, X_ROWS, w, s->k, x, sums);
        } else {
            int64_t r = 0;
            for (; r + 4 <= rows; r += 4)
                panel_dots(dtype, 4, w, s->k, x + r, sums + r);
            for (; r < rows; r++)
                panel_dots(dtype, 1, w, s->k, x + r, sums + r);
        }
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&s->finish, s->ty, s->y, row + r, panel * PANEL_WIDTH, count, sums[r]);
    }
}

static void panel_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const panel_job *s = context;
    for (int64_t panel = begin; panel < end; panel++)
        switch (s->dtype) {
        case IK_Q4_0: multiply_panel(IK_Q4_0, s, panel); break;
        case IK_Q4_1: multiply_panel(IK_Q4_1, s, panel); break;
        default: multiply_panel(IK_Q8_0, s, panel);
        }
}

static panel_job panel_job_of(const ik_plan *plan)
{
    panel_job s = { .ty = &plan->tensors[IK_MATMUL_TRANSPOSED_Y], .tx = &plan->tensors[IK_MATMUL_TRANSPOSED_X] };
    const ik_tensor *w = &plan->tensors[IK_MATMUL_TRANSPOSED_W];
    s.dtype = w->dtype;
    s.n = w->shape[0], s.k = w->shape[1];
    s.m = s.n == 0 ? 0 : ik_numel(s.ty) / s.n;
    return s;
}

static uint64_t panels_workspace(const ik_plan *plan)
{
    const panel_job s = panel_job_of(plan);
    return (uint64_t)(s.m * panel_x_bytes(s.k) + ik_threads() * ik_round_up(4 * s.k, 64));
}

static ik_status run_panels(const ik_plan *plan, void *const *data, void *workspace)
{
    panel_job s = panel_job_of(plan);
    if (s.m == 0)
        return IK_SUCCESS;
    s.y = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_Y);
    s.x = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_X);
    s.w = data[IK_MATMUL_TRANSPOSED_W];
    s.finish = epilogue_of(plan, data);
    s.thread_scratch = workspace;
    s.converted = s.thread_scratch + ik_threads() * ik_round_up(4 * s.k, 64);
    ik_parallel_for(s.m, DOT_BYTES / (4 * ik_max(1, s.k)), quantise_panel_x, &s);
    ik_parallel_for(ik_ceil_div(s.n, PANEL_WIDTH), ik_max(1, DOT_BYTES / ik_max(1, panel_bytes(s.dtype, s.k) * s.m)),
        panel_tasks, &s);
    return IK_SUCCESS;
}

#endif
