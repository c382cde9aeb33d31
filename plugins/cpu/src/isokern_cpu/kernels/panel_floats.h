/* x wᵀ for prepacked panels of w (row_panels.h) and rows of floats: few rows at a time, or packed for the tiles of
 * gemm, whose panels are two of these. */
#ifndef IK_PANEL_FLOATS_H
#define IK_PANEL_FLOATS_H
#include "gemm_core.h"
#include "panel_dots.h"

#if defined(IK_PANELS)
enum { FLOAT_ROWS = 4 }; /* rows of x at once */
enum { GEMM_WIDTH = 2 * LANES }; /* of a panel of gemm's tiles */

/* What quants are made of: where a vector of floats can be permuted, 32 of them; else bytes. */
typedef struct quants {
    floats low, high;
    ints bytes;
} quants;

IK_INLINED bool are_permuted(const panel_form f) { return LANES == 16 && f.bits <= 5; }

IK_INLINED quants quants_of(const int32_t dtype)
{
    const panel_form f = panel_form_of(dtype);
    quants q = { IK_V(setzero_ps)(), IK_V(setzero_ps)(), IK_WHOLE(setzero)() };
    if (are_permuted(f)) {
        float each[2 * LANES];
        for (int32_t i = 0; i < 2 * LANES; i++)
            each[i] = (float)worth_of(dtype, i & ((1 << f.bits) - 1));
        q.low = IK_V(loadu_ps)(each), q.high = IK_V(loadu_ps)(each + LANES);
    } else if (f.table) {
        q.bytes = table_of(dtype, 0);
    }
    return q;
}

/* Quad i, from which element_of makes floats: where neither a permutation nor the sign of a code makes quants of codes,
 * it is of quants. */
IK_INLINED quad floats_quad(const panel_form f, quants q, const char *from, const int i)
{
    quad own = quad_of(f, from, i, 0);
    if (are_permuted(f) || (!f.table && f.lowest == 0))
        return own;
    if (!f.table && f.lowest == -(1 << (f.bits - 1)))
        own.v = IK_WHOLE(xor)(own.v, IK_V(set1_epi8)((char)((f.bits == 4 ? 0x88 : 1 << (f.bits - 1 + own.lift)))));
    else if (f.table)
        own = (quad){ IK_V(shuffle_epi8)(q.bytes, codes_of(f, own, 0)), 0, true };
    else
        own = (quad){ IK_V(add_epi8)(codes_of(f, own, 0), IK_V(set1_epi8)((char)f.lowest)), 0, true };
    return own;
}

/* Element c of the quad, a float for each row. */
IK_INLINED floats element_of(const panel_form f, quants q, const quad own, const int c)
{
    const bool whole = f.table || (f.lowest != 0 && f.lowest != -(1 << (f.bits - 1))); /* quants in whole bytes */
    const int bits = whole ? 8 : f.bits, at = 8 * c + own.lift;
#if defined(__AVX512BW__)
    if (are_permuted(f)) {
        const ints code = (ints)((words)own.v >> at);
        return f.bits == 5 ? _mm512_permutex2var_ps(q.low, code, q.high) : _mm512_permutexvar_ps(code, q.low);
    }
#endif
    (void)q;
    const words high = (words)own.v << (32 - bits - at);
    return IK_V(cvtepi32_ps)(!f.table && f.lowest == 0 ? (ints)((words)own.v >> at & ((1u << bits) - 1))
                                                       : (ints)((signed_words)high >> (32 - bits)));
}

/* Sums of a panel with `rows` rows of x, and the sums of their runs; `rows` is a constant. */
IK_INLINED void panel_sums(const int32_t dtype, const int rows, const char *w, int64_t k, const float *const *x,
    const float *const *run_sums, float (*y)[LANES])
{
    enum { CHAINS = 2 }; /* of additions, the same for any number of rows */
    const panel_form f = panel_form_of(dtype);
    const quants q = quants_of(dtype);
    floats sum[FLOAT_ROWS], part[FLOAT_ROWS][CHAINS];
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        sum[r] = IK_V(setzero_ps)();
    for (int64_t b = 0; b < k / IK_BLOCK;) {
        const char *head = w;
        const run_scales block = block_scales(dtype, head);
        w += head_bytes(f);
        for (int64_t s = 0; s < f.block / f.run; b++, w += codes_bytes(f)) {
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const int64_t run = b * IK_BLOCK / f.run + (f.run == IK_LAYOUT_RUN ? h : 0);
                if (h == 0 || f.run == IK_LAYOUT_RUN)
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
                        for (int i = 0; i < CHAINS; i++)
                            part[r][i] = IK_V(setzero_ps)();
#pragma GCC unroll 4
                for (int i = 0; i < 4; i++) {
                    const quad own = floats_quad(f, q, w, 4 * h + i);
#pragma GCC unroll 4
                    for (int c = 0; c < 4; c++) {
                        const floats value = element_of(f, q, own, c);
#pragma GCC unroll 4
                        for (int r = 0; r < rows; r++)
                            part[r][c % CHAINS] = IK_V(fmadd_ps)(
                                value, IK_V(set1_ps)(x[r][b * IK_BLOCK + 16 * h + 4 * i + c]), part[r][c % CHAINS]);
                    }
                }
                if (h == 0 && f.run != IK_LAYOUT_RUN)
                    continue;
                const run_scales scales = scales_of(dtype, block, head, s++);
#pragma GCC unroll 4
                for (int r = 0; r < rows; r++) {
                    sum[r] = IK_V(fmadd_ps)(IK_V(add_ps)(part[r][0], part[r][1]), scales.scale, sum[r]);
                    if (f.m >= 0)
                        sum[r] = IK_V(fnmadd_ps)(scales.low, IK_V(set1_ps)(run_sums[r][run]), sum[r]);
                }
            }
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
        IK_V(storeu_ps)(y[r], sum[r]);
}

/* Write elements p0 .. p0 + k of a panel as floats, rows of them `to_row` apart. */
#define UNPACK_PANEL(name, ...) \
    static __attribute__((noinline)) void unpack_panel_##name( \
        const char *w, int64_t p0, int64_t k, float *to, int64_t to_row) \
    { \
        const panel_form f = panel_form_of(IK_##name); \
        const quants q = quants_of(IK_##name); \
        for (int64_t p = p0; p < p0 + k; p += IK_BLOCK) { \
            const char *head = w + p / f.block * block_bytes(f); \
            const char *codes = head + head_bytes(f) + p % f.block / IK_BLOCK * codes_bytes(f); \
            const run_scales block = block_scales(IK_##name, head); \
            _Pragma("GCC unroll 8") for (int i = 0; i < 8; i++) \
            { \
                const run_scales own = scales_of(IK_##name, block, head, (p + 4 * i) % f.block / f.run); \
                const quad four = floats_quad(f, q, codes, i); \
                _Pragma("GCC unroll 4") for (int c = 0; c < 4; c++, to += to_row) \
                { \
                    const floats scaled = IK_V(mul_ps)(element_of(f, q, four, c), own.scale); \
                    IK_V(storeu_ps)(to, f.m < 0 ? scaled : IK_V(sub_ps)(scaled, own.low)); \
                } \
            } \
        } \
    }
PANEL_FORMS(UNPACK_PANEL)
#undef UNPACK_PANEL

static void unpack_panel(int32_t dtype, const char *w, int64_t p0, int64_t k, float *to, int64_t to_row)
{
    switch (dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: unpack_panel_##name(w, p0, k, to, to_row); break;
        PANEL_FORMS(IK_CASE)
#undef IK_CASE
    default: return;
    }
}

/* Sums of a panel with a row of x that has infinities or NaN: with minima apart, they would meet both. */
static void odd_sums(int32_t dtype, const char *w, int64_t k, const float *x, float *y)
{
    float wide[IK_BLOCK * LANES];
    floats sum = IK_V(setzero_ps)();
    for (int64_t p = 0; p < k; p += IK_BLOCK) {
        unpack_panel(dtype, w, p, IK_BLOCK, wide, LANES);
        for (int64_t i = 0; i < IK_BLOCK; i++)
            sum = IK_V(fmadd_ps)(IK_V(loadu_ps)(wide + i * LANES), IK_V(set1_ps)(x[p + i]), sum);
    }
    IK_V(storeu_ps)(y, sum);
}

/* Whether rows of x are read where they lie. */
static bool lies(const panel_job *s) { return s->tx->dtype == IK_F32 && s->tx->strides[s->tx->ndim - 1] == 1; }

static const char *x_row(const panel_job *s, int64_t row)
{ return s->x + ik_row_offset(s->tx, row_at(s, row), 1) * ik_itemsize(s->tx->dtype); }

/* The sums of the runs of each row of x, where w has minima, and their sum; before them the row where it does not
 * lie. */
static void widen_panel_x(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const panel_job *s = context;
    const panel_form f = panel_form_of(s->dtype);
    for (int64_t row = begin; row < end; row++) {
        float *to = (float *)(void *)(s->converted + row * s->converted_bytes);
        const float *x = (const float *)(const void *)x_row(s, row);
        if (!lies(s)) {
            ik_load_f32(s->tx->dtype, x, s->tx->strides[s->tx->ndim - 1], s->k, to);
            x = to;
            to += s->k;
        }
        float all = 0;
        for (int64_t run = 0; f.m >= 0 && run < s->k / f.run; run++) {
            float sum = 0;
            for (int64_t i = 0; i < f.run; i++)
                sum += x[run * f.run + i];
            to[run] = sum;
            all += sum;
        }
        if (f.m >= 0)
            to[s->k / f.run] = all;
    }
}

IK_INLINED void sum_panel(const int32_t dtype, const panel_job *s, int64_t panel)
{
    const int64_t count = ik_min(LANES, s->n - panel * LANES);
    const char *w = s->w + panel * panel_bytes(dtype, s->k);
    float sums[FLOAT_ROWS][LANES];
    for (int64_t row = 0, rows; row < s->m; row += rows) {
        const float *x[FLOAT_ROWS], *run_sums[FLOAT_ROWS];
        rows = ik_min(FLOAT_ROWS, s->m - row);
        for (int64_t r = 0; r < FLOAT_ROWS; r++) { /* the last row again, for those that there are not */
            const int64_t at = ik_min(row + r, s->m - 1);
            const float *own = (const float *)(const void *)(s->converted + at * s->converted_bytes);
            x[r] = lies(s) ? (const float *)(const void *)x_row(s, at) : own;
            run_sums[r] = lies(s) ? own : own + s->k;
        }
        if (rows > FEW_ROWS)
            panel_sums(dtype, FLOAT_ROWS, w, s->k, x, run_sums, sums);
        for (int64_t r = 0; rows <= FEW_ROWS && r < rows; r++)
            panel_sums(dtype, 1, w, s->k, x + r, run_sums + r, sums + r);
        for (int64_t r = 0; panel_form_of(dtype).m >= 0 && r < rows; r++)
            if (!ik_is_finite(run_sums[r][s->k / panel_form_of(dtype).run]))
                odd_sums(dtype, w, s->k, x[r], sums[r]);
        for (int64_t r = 0; r < rows; r++)
            finish_sums(&s->finish, s->ty, s->y, row_at(s, row + r), panel * LANES, count, sums[r]);
    }
}

#define OF_TYPE(name, ...) \
    static __attribute__((noinline)) void sum_panel_##name(const panel_job *s, int64_t panel) \
    { sum_panel(IK_##name, s, panel); }
PANEL_FORMS(OF_TYPE)
#undef OF_TYPE

static void panel_sum_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const panel_job *s = context;
    for (int64_t panel = begin; panel < end; panel++)
        switch (s->dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: sum_panel_##name(s, panel); break;
            PANEL_FORMS(IK_CASE)
#undef IK_CASE
        default: return;
        }
}

static panel_job float_job_of(const ik_plan *plan)
{
    panel_job s = panel_job_of(plan);
    const panel_form f = panel_form_of(s.dtype);
    s.quantised = false;
    set_rows(&s, s.m);
    s.converted_bytes = ik_round_up((lies(&s) ? 0 : 4 * s.k) + (f.m < 0 ? 0 : 4 * (s.k / f.run + 1)), 64);
    return s;
}

/* Pack panels of columns of b, k rows of it, from prepacked panels. */
static void pack_prepacked(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *to)
{
    const int64_t size = panel_bytes(g->b.dtype, g->k);
    for (int64_t at = 0; at < cols; at += GEMM_WIDTH, to += k * GEMM_WIDTH)
        for (int64_t half = 0; half < GEMM_WIDTH; half += LANES) {
            const char *w = g->b.at + (first + at + half) / LANES * size;
            if (first + at + half >= g->n) {
                for (int64_t p = 0; p < k; p++)
                    memset(to + p * GEMM_WIDTH + half, 0, LANES * sizeof *to);
                continue;
            }
            unpack_panel(g->b.dtype, w, p0, k, to + half, GEMM_WIDTH);
        }
}

#endif
#endif
