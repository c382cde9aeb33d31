/* x wᵀ for prepacked panels of w (row_panels.h) and rows of x that become Q8_0, by integers. Without VNNI the sums of
 * products of two bytes are 16 bits wide, and codes of more than 6 bits become signed bytes. */
#ifndef IK_PANEL_DOTS_H
#define IK_PANEL_DOTS_H
#include "panel_codes.h"

#if defined(IK_PANELS)
enum { X_ROWS = 4, FEW_ROWS = 2 }; /* rows of x at once; so few are multiplied one by one */
#if defined(__AVX512VNNI__)
enum { PANELS = 2 }; /* at once, with several rows of x: half as many loads of x */
#else
enum { PANELS = 1 };
#endif

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

/* Rows of x lie in tiles of `width` rows, 1 where there are few, so that a tile has one address. For each 32 elements
 * along k a tile has the quants of every row, then for every row the scale over the power of two, and for each run of w
 * the scale times the sum of quants, and the correction for the offset of the weights. */
IK_INLINED int64_t x_bytes(const panel_form f) /* for a row */ { return IK_BLOCK + 4 + IK_BLOCK / f.run * 8; }

typedef struct panel_x {
    int8_t *q;
    float *d, *s;
    int32_t *undo;
} panel_x;

/* 32 elements of a tile, from row r on. */
IK_INLINED panel_x panel_x_at(const panel_form f, const int64_t width, char *at, int64_t r)
{
    float *d = (float *)(void *)(at + IK_BLOCK * width), *s = d + width;
    int32_t *undo = (int32_t *)(void *)(s + IK_BLOCK / f.run * width);
    return (panel_x){ (int8_t *)at + IK_BLOCK * r, d + r, s + r, undo + r };
}

typedef struct panel_job {
    const ik_tensor *ty, *tx;
    epilogue finish;
    char *y;
    const char *x, *w;
    int32_t dtype;
    int64_t m, n, k, rows; /* rows: of x, and those that fill the last tile */
    const int64_t *order; /* the rows of y and x, by number; null where they are all rows in their order */
    char *converted, *thread_scratch; /* rows of x as products read them; a row of F32 for each thread */
    int64_t converted_bytes; /* of a row */
    bool quantised, direct; /* x becomes Q8_0; rows of sums are rows of y, but for c */
} panel_job;

static int64_t width_of(const panel_job *s) { return s->m <= FEW_ROWS ? 1 : X_ROWS; }
static inline int64_t row_at(const panel_job *s, int64_t row) { return s->order == NULL ? row : s->order[row]; }

static void set_rows(panel_job *s, int64_t m)
{
    s->m = m;
    s->rows = s->quantised ? ik_round_up(m, width_of(s)) : m;
}

static void quantise_panel_x(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const panel_job *s = context;
    const panel_form f = panel_form_of(s->dtype);
    const int32_t offset = is_unsigned(f) ? f.lowest : 0;
    const int64_t stride = s->tx->strides[s->tx->ndim - 1], width = width_of(s);
    float *wide = (float *)(void *)(s->thread_scratch + worker * ik_round_up(4 * s->k, 64));
    for (int64_t row = begin; row < end; row++) {
        const int64_t from = ik_row_offset(s->tx, row_at(s, ik_min(row, s->m - 1)), 1),
                      r = row % width; /* the last row fills */
        char *to = s->converted + (row - r) * s->converted_bytes;
        const char *given = s->x + from * ik_itemsize(s->tx->dtype);
        const float *values = s->tx->dtype == IK_F32 && stride == 1 ? (const float *)(const void *)given : wide;
        if (values == wide)
            ik_load_f32(s->tx->dtype, given, stride, s->k, wide);
        for (int64_t b = 0; b < s->k / IK_BLOCK; b++, to += width * x_bytes(f)) {
            const panel_x x = panel_x_at(f, width, to, r);
            int32_t quants[IK_BLOCK];
            const float d = ik_quantise_block(values + b * IK_BLOCK, quants);
            *x.d = d / (float)(1 << lift_of(f));
            for (int i = 0; i < IK_BLOCK; i++)
                x.q[i] = (int8_t)quants[i];
            int64_t eights[IK_BLOCK / 8]; /* the sums of so many quants, which are counted from -128 */
            const __m256i above = _mm256_xor_si256(_mm256_loadu_si256((const void *)x.q), _mm256_set1_epi8(-128));
            _mm256_storeu_si256((void *)eights, _mm256_sad_epu8(above, _mm256_setzero_si256()));
            for (int64_t at = 0, run = 0; at < IK_BLOCK; at += f.run, run++) {
                int32_t sum = -128 * f.run;
                for (int64_t i = at / 8; i < (at + f.run) / 8; i++)
                    sum += (int32_t)eights[i];
                x.s[run * width] = d * (float)sum;
                x.undo[run * width] = offset * sum * (1 << lift_of(f));
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

#if defined(__AVX512VNNI__)
/* dot + Σ w x over half h of 32 elements, of `panels` panels which lie `size` bytes apart. */
IK_INLINED void add_products(const panel_form f, const int rows, const int panels, ints table, const char *w,
    int64_t size, const int h, const int8_t *x, ints (*dot)[X_ROWS])
{
#pragma GCC unroll 4
    for (int i = 4 * h; i < 4 * h + 4; i++) {
        ints bytes[PANELS];
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            bytes[p] = bytes_of(f, table, w + p * size, i);
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++) {
            int32_t four;
            memcpy(&four, x + r * IK_BLOCK + 4 * i, 4);
#pragma GCC unroll 2
            for (int p = 0; p < panels; p++)
                dot[p][r] = _mm512_dpbusd_epi32(dot[p][r], bytes[p], _mm512_set1_epi32(four));
        }
    }
}
#else
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

/* dot + Σ w x over half h of 32 elements, of one panel; quants of x are at most 127. */
IK_INLINED void add_products(const panel_form f, const int rows, const int panels, ints table, const char *w,
    int64_t size, const int h, const int8_t *x, ints (*dot)[X_ROWS])
{
    const ints ones = IK_V(set1_epi16)(1);
    /* Bytes up to 32: 4 · 2 · 32 · 127 < 2^15. A table's quants are nowhere larger than the lowest. */
    const int at_once = is_unsigned(f) ? (f.bits == 6 ? 2 : 4) : f.table && f.lowest >= -64 ? 2 : 1;
    ints bytes[4];
    (void)panels, (void)size;
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        bytes[i] = bytes_of(f, table, w, 4 * h + i);
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++) {
        ints quads[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            int32_t four;
            memcpy(&four, x + r * IK_BLOCK + 16 * h + 4 * i, 4);
            quads[i] = IK_V(set1_epi32)(four);
        }
#pragma GCC unroll 4
        for (int i = 0; i < 4; i += at_once) {
            ints pairs = pairs_of(f, bytes[i], quads[i]);
#pragma GCC unroll 4
            for (int j = 1; j < at_once; j++)
                pairs = IK_V(add_epi16)(pairs, pairs_of(f, bytes[i + j], quads[i + j]));
            dot[0][r] = IK_V(add_epi32)(dot[0][r], IK_V(madd_epi16)(pairs, ones));
        }
    }
}
#endif

/* Sums of panels, which lie `size` bytes apart, with `rows` rows of a tile of `width`, from row `first` on. `rows`,
 * `panels` and `width` are constants. */
IK_INLINED void panel_dots(const int32_t dtype, const int rows, const int panels, const int64_t width, const char *w,
    int64_t size, int64_t k, char *tile, int64_t first, float (*y)[X_ROWS][LANES])
{
    const panel_form f = panel_form_of(dtype);
    const bool undo = is_unsigned(f) && f.lowest != 0;
    const ints table = f.table ? table_of(dtype, is_unsigned(f) ? f.lowest : 0) : IK_WHOLE(setzero)();
    const int64_t distance = 2048;
    const int64_t head_prefetch = rows == 1 ? head_bytes(f) : 0; /* several rows come back to a panel */
    const int64_t codes_prefetch = rows == 1 ? codes_bytes(f) : 0;
    floats sum[PANELS][X_ROWS];
    ints dot[PANELS][X_ROWS];
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            sum[p][r] = IK_V(setzero_ps)();
    for (int64_t b = 0; b < k / IK_BLOCK;) {
        const char *head = w;
        run_scales block[PANELS];
#pragma GCC unroll 2
        for (int p = 0; p < panels; p++)
            block[p] = block_scales(dtype, head + p * size);
        for (int64_t at = 0; at < head_prefetch; at += 64)
            _mm_prefetch(head + distance + at, _MM_HINT_T0);
        w += head_bytes(f);
        for (int64_t s = 0; s < f.block / f.run; b++, w += codes_bytes(f), tile += width * x_bytes(f)) {
            const panel_x x = panel_x_at(f, width, tile, first);
#pragma GCC unroll 8
            for (int64_t at = 0; at < codes_prefetch; at += 64)
                _mm_prefetch(w + distance + at, _MM_HINT_T0);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                const int64_t run = f.run == IK_LAYOUT_RUN ? h * width : 0;
                if (h == 0 || f.run == IK_LAYOUT_RUN)
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
                        for (int p = 0; p < panels; p++)
                            dot[p][r] = undo ? IK_V(set1_epi32)(x.undo[run + r]) : IK_WHOLE(setzero)();
                add_products(f, rows, panels, table, w, size, h, x.q, dot);
                if (h == 0 && f.run != IK_LAYOUT_RUN)
                    continue;
#pragma GCC unroll 2
                for (int p = 0; p < panels; p++) {
                    const run_scales own = scales_of(dtype, block[p], head + p * size, s);
#pragma GCC unroll 4
                    for (int r = 0; r < rows; r++) {
                        const floats scale = IK_V(mul_ps)(own.scale, IK_V(set1_ps)(x.d[r]));
                        sum[p][r] = IK_V(fmadd_ps)(IK_V(cvtepi32_ps)(dot[p][r]), scale, sum[p][r]);
                        if (f.m >= 0)
                            sum[p][r] = IK_V(fnmadd_ps)(own.low, IK_V(set1_ps)(x.s[run + r]), sum[p][r]);
                    }
                }
                s++;
            }
        }
    }
#pragma GCC unroll 2
    for (int p = 0; p < panels; p++)
#pragma GCC unroll 4
        for (int r = 0; r < rows; r++)
            IK_V(storeu_ps)(y[p][r], sum[p][r]);
}

/* Whether a tensor is rows of F32 without gaps between columns. */
static bool is_rows(const ik_tensor *t) { return t->ndim == 2 && t->dtype == IK_F32 && t->strides[1] == 1; }

/* Write the sums of a row of x with a panel: those of a whole vector at once where nothing but c is added. */
IK_INLINED void finish_panel(const panel_job *s, int64_t row, int64_t panel, float *sums)
{
    const int64_t count = ik_min(LANES, s->n - panel * LANES), at = panel * LANES;
    if (!s->direct || count < LANES) {
        finish_sums(&s->finish, s->ty, s->y, row, at, count, sums);
        return;
    }
    floats v = IK_V(loadu_ps)(sums);
    if (s->finish.c != NULL)
        v = IK_V(add_ps)(
            v, IK_V(loadu_ps)((const float *)(const void *)s->finish.c + row * s->finish.tc->strides[0] + at));
    IK_V(storeu_ps)((float *)(void *)s->y + row * s->ty->strides[0] + at, v);
}

/* Multiply `panels` panels, a constant, from `panel` on with all rows of x. */
IK_INLINED void multiply_panels(const int32_t dtype, const int panels, const panel_job *s, int64_t panel)
{
    const int64_t size = panel_bytes(dtype, s->k);
    const char *w = s->w + panel * size;
    float sums[PANELS][X_ROWS][LANES];
    for (int64_t row = 0, rows; row < s->m; row += rows) {
        char *tile = s->converted + row * s->converted_bytes;
        rows = s->m <= FEW_ROWS ? 1 : ik_min(X_ROWS, s->m - row);
        if (s->m <= FEW_ROWS)
            panel_dots(dtype, 1, panels, 1, w, size, s->k, tile, 0, sums);
        else if (rows > FEW_ROWS)
            panel_dots(dtype, X_ROWS, panels, X_ROWS, w, size, s->k, tile, 0, sums);
        else
            for (int64_t r = 0; r < rows; r++) {
                float one[PANELS][X_ROWS][LANES];
                panel_dots(dtype, 1, panels, X_ROWS, w, size, s->k, tile, r, one);
                for (int p = 0; p < panels; p++)
                    memcpy(sums[p][r], one[p][0], sizeof one[p][0]);
            }
        for (int64_t p = 0; p < panels; p++)
            for (int64_t r = 0; r < rows; r++)
                finish_panel(s, row_at(s, row + r), panel + p, sums[p][r]);
    }
}

/* One row of x meets one panel after the other. */
#define OF_TYPE(name, ...) \
    static __attribute__((noinline)) void multiply_panels_##name(const panel_job *s, int64_t begin, int64_t end) \
    { \
        int64_t panel = begin; \
        for (; PANELS > 1 && s->m > FEW_ROWS && panel + PANELS <= end; panel += PANELS) \
            multiply_panels(IK_##name, PANELS, s, panel); \
        for (; panel < end; panel++) \
            multiply_panels(IK_##name, 1, s, panel); \
    }
PANEL_FORMS(OF_TYPE)
#undef OF_TYPE

static void panel_tasks(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const panel_job *s = context;
    switch (s->dtype) {
#define IK_CASE(name, ...) \
    case IK_##name: multiply_panels_##name(s, begin, end); break;
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
    s.quantised = true;
    set_rows(&s, s.n == 0 ? 0 : ik_numel(s.ty) / s.n);
    s.converted_bytes = s.k / IK_BLOCK * x_bytes(panel_form_of(s.dtype));
    return s;
}

#endif
#endif
