/* BF16 products in pairs along k: code shared by the kernels whose instruction multiplies pairs and adds in F32
 * (vdpbf16ps, tdpbf16ps).
 *
 * The loops are those of every other type; one of their elements is a pair (a[i, 2p], a[i, 2p + 1]) in 32 bits, and k
 * counts pairs, padded with zeros after the last number. The instructions treat subnormal numbers as 0 (Intel SDM,
 * VDPBF16PS and TDPBF16PS), so a first pass finds the smallest magnitudes: where a product or a sum of products could
 * be subnormal, the kernel of x86_v4 runs instead.
 *
 * Include after lanes_pair and panel_width_pair. */
#ifndef IK_GEMM_PAIRS_H
#define IK_GEMM_PAIRS_H
#include <stdatomic.h>

#include "gemm_core.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_epilogue.h"
#undef IK_T
#undef IK_OF

static void finish_pair(const ik_gemm_args *g, int64_t row, int64_t col, int64_t n, float *sums)
{ finish_f32(g, row, col, n, sums); }

/* to[j] = (low[j], high[j]) for n numbers each. */
static inline void interleave(const uint16_t *low, const uint16_t *high, int64_t n, uint32_t *to)
{
    int64_t j = 0;
    for (; j + 16 <= n; j += 16) {
        __m512i x = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(low + j)));
        __m512i y = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(high + j)));
        _mm512_storeu_si512(to + j, _mm512_or_si512(x, _mm512_slli_epi32(y, 16)));
    }
    for (; j < n; j++)
        to[j] = low[j] | (uint32_t)high[j] << 16;
}

static const uint16_t zeros[64]; /* paired with the last row of an odd k */

static const uint16_t *number(const ik_matrix *x, int64_t row, int64_t col)
{ return (const uint16_t *)(const void *)ik_element(x, row, col); }

/* Number of elements along k in `k` pairs from pair p0 on: less than 2k at the end. */
static int64_t numbers(const ik_gemm_args *g, int64_t p0, int64_t k)
{
    const ik_tensor *a = &g->plan->tensors[IK_GEMM_A];
    return ik_max(0, ik_min(2 * k, a->shape[a->ndim - 1] - 2 * p0));
}

/* Pack pair p of n rows or columns, which are contiguous from `low` on; the second element of each pair is `step`
 * elements after the first. */
static void pack_pair(const ik_gemm_args *g, int64_t p, const uint16_t *low, int64_t step, int64_t n, uint32_t *to)
{
    switch (numbers(g, p, 1)) {
    case 2: interleave(low, low + step, n, to); return;
    case 1: interleave(low, zeros, n, to); return;
    default: memset(to, 0, (size_t)n * sizeof *to);
    }
}

/* Pack pairs p0 .. p0 + k of a contiguous row of a. */
static void pack_row(const ik_gemm_args *g, int64_t row, int64_t p0, int64_t k, uint32_t *to)
{
    int64_t count = numbers(g, p0, k);
    memcpy(to, number(&g->a, row, 2 * p0), (size_t)count * 2);
    memset((char *)to + count * 2, 0, (size_t)(k * 4 - count * 2));
}

static void pack_b_pair(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *packed)
{
    uint32_t *to = (uint32_t *)(void *)packed;
    const int64_t panel_width = panel_width_pair, count = numbers(g, p0, k), pairs = count / 2;
    if (cols % panel_width != 0)
        memset(to + cols / panel_width * panel_width * k, 0, (size_t)(panel_width * k) * sizeof *to);
    for (int64_t j = 0; j < cols; j += panel_width, to += k * panel_width) {
        int64_t width = ik_min(panel_width, cols - j), c = 0;
        if (g->b.col == 1) {
            for (int64_t p = 0; p < k; p++)
                pack_pair(g, p0 + p, number(&g->b, 2 * (p0 + p), first + j), g->b.row, width, to + p * panel_width);
            continue;
        }
        if (pairs < k)
            memset(to + pairs * panel_width, 0, (size_t)((k - pairs) * panel_width) * sizeof *to);
        for (; c + 4 <= width; c += 4)
            ik_transpose_4(
                ik_element(&g->b, 2 * p0, first + j + c), g->b.col * 2, pairs, (float *)(void *)(to + c), panel_width);
        for (; c < width; c++)
            for (int64_t p = 0; p < pairs; p++)
                memcpy(to + p * panel_width + c, number(&g->b, 2 * (p0 + p), first + j + c), 4);
        for (c = 0; c < width && count % 2 != 0; c++)
            to[pairs * panel_width + c] = *number(&g->b, 2 * (p0 + pairs), first + j + c);
    }
}

typedef struct search {
    const uint16_t *x;
    int64_t length, step; /* length of the contiguous dim, and the step from one run to the next */
    _Atomic uint32_t min;
} search;

/* Find the smallest magnitude other than zero, as its bits less 1. */
static void find_min(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    search *s = context;
    uint16_t min = UINT16_MAX;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < s->length; j++) {
            uint16_t size = (uint16_t)((s->x[i * s->step + j] & 0x7fff) - 1);
            min = size < min ? size : min;
        }
    uint32_t seen = atomic_load(&s->min);
    while (min < seen && !atomic_compare_exchange_weak(&s->min, &seen, min))
        ;
}

/* Every element of x is zero or at least 2 to this power in magnitude. */
static int64_t min_exponent(const ik_matrix *x, int64_t rows, int64_t cols)
{
    bool by_rows = x->col == 1;
    search s = {
        .x = number(x, 0, 0), .length = by_rows ? cols : rows, .step = by_rows ? x->row : x->col, .min = UINT16_MAX
    };
    ik_parallel_for(by_rows ? rows : cols, IK_THREAD_BYTES / (2 * s.length) + 1, find_min, &s);
    int64_t exponent = (int64_t)(atomic_load(&s.min) + 1) >> 7;
    return exponent == 0 ? -1000 : exponent - 127; /* exponent 0: subnormal */
}

/* Products of 8-bit significands are multiples of 2^-14 of their exponent, and so is every sum: above this none is
 * subnormal. */
enum { MIN_PRODUCT = -126 + 14 };

static bool subnormals_may_occur(const ik_gemm_args *g)
{
    const ik_tensor *a = &g->plan->tensors[IK_GEMM_A];
    int64_t k = a->shape[a->ndim - 1];
    return min_exponent(&g->a, g->m, k) + min_exponent(&g->b, k, g->n) < MIN_PRODUCT;
}

extern ik_kernel gemm__x86_v4;
extern ik_workspace gemm_workspace__x86_v4;

static const char *refuse_pairs(const ik_plan *plan)
{
    ik_gemm_args g = ik_gemm_args_of(plan, NULL);
    if (g.y.dtype != IK_BF16)
        return "only BF16";
    if (g.batch != 1)
        return "no batch dims";
    if ((g.a.row != 1 && g.a.col != 1) || (g.b.row != 1 && g.b.col != 1))
        return "a and b need a contiguous dim";
    if (ik_choose_skinny_blocking(&g, sizeof(float)))
        return "few rows: reading b is the work";
    if ((double)g.m * (double)g.n * (double)g.k < 1 << 18)
        return "too small for the look at all magnitudes to pay";
    return NULL;
}

/* The product in pairs, and its blocking; their number is rounded up to a multiple of `k_step`. */
static ik_gemm_args pairs_of(const ik_plan *plan, void *const *data, int64_t k_step)
{
    ik_gemm_args g = ik_gemm_args_of(plan, data);
    g.k = ik_round_up(ik_ceil_div(g.k, 2), k_step);
    ik_choose_blocking(&g, sizeof(float), panel_rows_pair, panel_width_pair, k_step);
    return g;
}

/* The workspace, large enough for this product and for the kernel of x86_v4. */
static uint64_t pairs_workspace(const ik_plan *plan, int64_t k_step)
{
    const ik_gemm_args g = pairs_of(plan, NULL, k_step);
    uint64_t own = ik_gemm_workspace(&g), other = gemm_workspace__x86_v4(plan);
    return own > other ? own : other;
}

static ik_status run_pairs(const ik_plan *plan, void *const *data, void *workspace, uint64_t workspace_bytes,
    void *stream, int64_t k_step, ik_task *tasks)
{
    ik_gemm_args g = pairs_of(plan, data, k_step);
    if (subnormals_may_occur(&g))
        return gemm__x86_v4(plan, data, workspace, workspace_bytes, stream);
    g.workspace = workspace;
    ik_parallel_for(ik_tasks(&g), ik_task_grain(&g), tasks, &g);
    return IK_SUCCESS;
}

#endif
