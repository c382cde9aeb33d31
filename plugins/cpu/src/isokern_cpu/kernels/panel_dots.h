/* x wᵀ for prepacked panels of w (row_panels.h) and rows of x that become Q8_0, by integers. Without VNNI the sums of
 * products of two bytes are 16 bits wide, and codes of more than 6 bits become signed bytes. */
#ifndef IK_PANEL_DOTS_H
#define IK_PANEL_DOTS_H
#include "panel_codes.h"

#if defined(IK_PANELS)
enum { X_ROWS = LANES == 16 ? 8 : 4, FEW_ROWS = 2 }; /* rows of x at once; so few are multiplied one by one */

/* Whether products are of unsigned bytes, counted from the lowest quant, as far as they fit. */
IK_INLINED bool is_unsigned(const panel_form f)
{
#if defined(__AVX512VNNI__)
    return (void)f, true;
#else
    return f.table ? f.lowest >= -32 : f.bits <= 6;
#endif
}

/* By what power of two bytes are multiplied that meet quants of x: codes in high bits stay there where they fit. */
IK_INLINED int lift_of(const panel_form f)
{
#if defined(__AVX512VNNI__)
    return f.bits == 5 || f.bits == 6 ? 8 - f.bits : 0;
#else
    return (void)f, 0;
#endif
}

/* A row of x: quants in order; for each 32 the scale over the power of two, and for each run of w the scale times the
 * sum of quants, and the correction for the offset of the weights. */
typedef struct panel_x {
    int8_t *q;
    float *d, *s;
    int32_t *undo;
} panel_x;

static int64_t panel_x_bytes(int64_t k) { return ik_round_up(k + k / IK_BLOCK * 12 + k / IK_LAYOUT_RUN * 8, 64); }

static panel_x panel_x_at(char *at, int64_t k)
{
    const int64_t blocks = k / IK_BLOCK;
    float *d = (float *)(void *)(at + k);
    return (panel_x){ (int8_t *)at, d, d + blocks, (int32_t *)(void *)(d + 3 * blocks) };
}

typedef struct panel_job {
    const ik_tensor *ty, *tx;
    epilogue finish;
    char *y;
    const char *x, *w;
    int32_t dtype;
    int64_t m, n, k;
    char *converted, *thread_scratch; /* rows of x as products read them; a row of F32 for each thread */
    int64_t converted_bytes; /* of a row */
} panel_job;

static void quantise_panel_x(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const panel_job *s = context;
    const panel_form f = panel_form_of(s->dtype);
    const int32_t offset = is_unsigned(f) ? f.lowest : 0;
    const int64_t stride = s->tx->strides[s->tx->ndim - 1];
    float *wide = (float *)(void *)(s->thread_scratch + worker * ik_round_up(4 * s->k, 64));
    for (int64_t row = begin; row < end; row++) {
        const panel_x x = panel_x_at(s->converted + row * s->converted_bytes, s->k);
        ik_load_f32(s->tx->dtype, s->x + ik_row_offset(s->tx, row, 1) * ik_itemsize(s->tx->dtype), stride, s->k, wide);
        for (int64_t b = 0, run = 0; b < s->k / IK_BLOCK; b++) {
            int32_t quants[IK_BLOCK];
            const float d = ik_quantise_block(wide + b * IK_BLOCK, quants);
            x.d[b] = d / (float)(1 << lift_of(f));
            for (int i = 0; i < IK_BLOCK; i++)
                x.q[b * IK_BLOCK + i] = (int8_t)quants[i];
            for (int from = 0; from < IK_BLOCK; from += f.run, run++) {
                int32_t sum = 0;
                for (int i = 0; i < f.run; i++)
                    sum += quants[from + i];
                x.s[run] = d * (float)sum;
                x.undo[run] = offset * sum * (1 << lift_of(f));
            }
        }
    }
}

/* The bytes of quad i of 32 elements that meet quants of x. */
IK_INLINED ints bytes_of(const panel_form f, ints table, const char *from, const int i)
{
    const ints codes = codes_of(f, quad_of(f, from, i, lift_of(f)), lift_of(f));
    return f.table       ? IK_V(shuffle_epi8)(table, codes)
        : is_unsigned(f) ? codes
                         : IK_V(add_epi8)(codes, IK_V(set1_epi8)((char)f.lowest));
}

/* Sums of pairs of products, of 16 bits. */
IK_INLINED ints pairs_of(const panel_form f, ints w, ints x)
{
    if (is_unsigned(f))
        return IK_V(maddubs_epi16)(w, x);
#if defined(__AVX512BW__)
    const ints same = _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
#else
    const ints same = _mm256_sign_epi8(x, w);
#endif
    return IK_V(maddubs_epi16)(IK_V(abs_epi8)(w), same);
}

/* sum + Σ w x over four quads; quants of x are at most 127. */
IK_INLINED ints add_products(const panel_form f, ints sum, const ints *w, const int8_t *x)
{
    ints quads[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        int32_t four;
        memcpy(&four, x + 4 * i, 4);
        quads[i] = IK_V(set1_epi32)(four);
    }
#if defined(__AVX512VNNI__)
    (void)f;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sum = _mm512_dpbusd_epi32(sum, w[i], quads[i]);
#else
    const ints ones = IK_V(set1_epi16)(1);
    const int at_once = !is_unsigned(f) ? 1 : f.bits == 6 ? 2 : 4; /* bytes up to 32: 4 · 2 · 32 · 127 < 2^15 */
#pragma GCC unroll 4
    for (int i = 0; i < 4; i += at_once) {
        ints pairs = pairs_of(f, w[i], quads[i]);
#pragma GCC unroll 4
        for (int j = 1; j < at_once; j++)
            pairs = IK_V(add_epi16)(pairs, pairs_of(f, w[i + j], quads[i + j]));
        sum = IK_V(add_epi32)(sum, IK_V(madd_epi16)(pairs, ones));
    }
#endif
    return sum;
}

/* Sums of a panel with `rows` rows of x; `rows` is a constant. */
IK_INLINED void panel_dots(
    const int32_t dtype, const int rows, const char *w, int64_t k, const panel_x *x, float (*y)[LANES])
{
    const panel_form f = panel_form_of(dtype);
    const bool undo = is_unsigned(f) && f.lowest != 0;
    const ints table = f.table ? table_of(dtype, is_unsigned(f) ? f.lowest : 0) : IK_WHOLE(setzero)();
    const int64_t distance = 2048;
    floats sum[X_ROWS];
    ints dot[X_ROWS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        sum[r] = IK_V(setzero_ps)();
    for (int64_t b = 0; b < k / IK_BLOCK;) {
        const char *head = w;
        const run_scales block = block_scales(dtype, head);
        for (int64_t at = 0; at < head_bytes(f); at += 64)
            _mm_prefetch(head + distance + at, _MM_HINT_T0);
        w += head_bytes(f);
        for (int64_t s = 0; s < f.block / f.run; b++, w += codes_bytes(f)) {
#pragma GCC unroll 8
            for (int64_t at = 0; at < codes_bytes(f); at += 64)
                _mm_prefetch(w + distance + at, _MM_HINT_T0);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const int64_t run = b * IK_BLOCK / f.run + (f.run == IK_LAYOUT_RUN ? h : 0);
                ints bytes[4];
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++)
                    bytes[i] = bytes_of(f, table, w, 4 * h + i);
                if (h == 0 || f.run == IK_LAYOUT_RUN)
#pragma GCC unroll 8
                    for (int r = 0; r < rows; r++)
                        dot[r] = undo ? IK_V(set1_epi32)(x[r].undo[run]) : IK_WHOLE(setzero)();
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++)
                    dot[r] = add_products(f, dot[r], bytes, x[r].q + b * IK_BLOCK + 16 * h);
                if (h == 0 && f.run != IK_LAYOUT_RUN)
                    continue;
                const run_scales own = scales_of(dtype, block, head, s++);
#pragma GCC unroll 8
                for (int r = 0; r < rows; r++) {
                    const floats scale = IK_V(mul_ps)(own.scale, IK_V(set1_ps)(x[r].d[b]));
                    sum[r] = IK_V(fmadd_ps)(IK_V(cvtepi32_ps)(dot[r]), scale, sum[r]);
                    if (f.m >= 0)
                        sum[r] = IK_V(fnmadd_ps)(own.low, IK_V(set1_ps)(x[r].s[run]), sum[r]);
                }
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        IK_V(storeu_ps)(y[r], sum[r]);
}

IK_INLINED void multiply_panel(const int32_t dtype, const panel_job *s, int64_t panel)
{
    const int64_t count = ik_min(LANES, s->n - panel * LANES);
    const char *w = s->w + panel * panel_bytes(dtype, s->k);
    float sums[X_ROWS][LANES];
    for (int64_t row = 0, rows; row < s->m; row += rows) {
        panel_x x[X_ROWS];
        rows = ik_min(X_ROWS, s->m - row);
        for (int64_t r = 0; r < X_ROWS; r++) /* the last row again, for those that there are not */
            x[r] = panel_x_at(s->converted + ik_min(row + r, s->m - 1) * s->converted_bytes, s->k);
        if (rows > FEW_ROWS)
            panel_dots(dtype, X_ROWS, w, s->k, x, sums);
        for (int64_t r = 0; rows <= FEW_ROWS && r < rows; r++)
            panel_dots(dtype, 1, w, s->k, x + r, sums + r);
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&s->finish, s->ty, s->y, row + r, panel * LANES, count, sums[r]);
    }
}

#define OF_TYPE(name, ...) \
    static __attribute__((noinline)) void multiply_panel_##name(const panel_job *s, int64_t panel) \
    { multiply_panel(IK_##name, s, panel); }
PANEL_FORMS(OF_TYPE)
#undef OF_TYPE

static void panel_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const panel_job *s = context;
    for (int64_t panel = begin; panel < end; panel++)
        switch (s->dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: multiply_panel_##name(s, panel); break;
            PANEL_FORMS(IK_CASE)
#undef IK_CASE
        default: return;
        }
}

static panel_job panel_job_of(const ik_plan *plan)
{
    panel_job s = { .ty = &plan->tensors[IK_MATMUL_TRANSPOSED_Y], .tx = &plan->tensors[IK_MATMUL_TRANSPOSED_X] };
    const ik_tensor *w = &plan->tensors[IK_MATMUL_TRANSPOSED_W];
    s.dtype = w->dtype;
    s.n = w->shape[0], s.k = w->shape[1];
    s.m = s.n == 0 ? 0 : ik_numel(s.ty) / s.n;
    s.converted_bytes = panel_x_bytes(s.k);
    return s;
}

static uint64_t panels_workspace(panel_job s)
{ return (uint64_t)(s.m * s.converted_bytes + ik_threads() * ik_round_up(4 * s.k, 64)); }

/* Convert the rows of x, then compute the panels. */
static ik_status run_panels(
    const ik_plan *plan, void *const *data, void *workspace, panel_job s, ik_task *convert, ik_task *tasks)
{
    if (s.m == 0)
        return IK_SUCCESS;
    s.y = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_Y);
    s.x = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_X);
    s.w = data[IK_MATMUL_TRANSPOSED_W];
    s.finish = epilogue_of(plan, data);
    s.thread_scratch = workspace;
    s.converted = s.thread_scratch + ik_threads() * ik_round_up(4 * s.k, 64);
    ik_parallel_for(s.m, DOT_BYTES / (4 * ik_max(1, s.k)), convert, &s);
    ik_parallel_for(
        ik_ceil_div(s.n, LANES), ik_max(1, DOT_BYTES / ik_max(1, panel_bytes(s.dtype, s.k) * s.m)), tasks, &s);
    return IK_SUCCESS;
}

#endif
#endif
