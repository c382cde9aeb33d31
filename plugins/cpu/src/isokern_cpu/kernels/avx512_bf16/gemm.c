/* BF16 products by vdpbf16ps, which multiplies pairs along k and adds in F32: 1.85 times the rate
 * of x86_v4's F32 tiles at 1024³ and 1.75 times at 256³ (Zen 5, one thread, interleaved with NumPy: 377 and 398 against 203 and 225 GFLOP/s).
 *
 * The loops are those of every other type; an element of theirs is a pair (a[i, 2p], a[i, 2p + 1]) in 32 bits, and k counts pairs.
 * The instruction takes subnormal numbers for 0 (Intel SDM, VDPBF16PS), so a first pass looks at the smallest magnitudes: where a
 * product or a sum of products could be subnormal, the kernel of x86_v4 runs instead. */
#include <stdatomic.h>

#include "gemm_core.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_epilogue.h"
#undef IK_T
#undef IK_OF

static inline __m512 splat_pair(const float *x)
{
    int32_t bits;
    memcpy(&bits, x, 4);
    return _mm512_castsi512_ps(_mm512_set1_epi32(bits));
}

static inline __m512 fma_pair(__m512 a, __m512 b, __m512 c) { return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b); }

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

#define IK_T float
#define IK_OF(name) name##_pair
#include "gemm_tile.h"

static const uint16_t zeros[64]; /* beside the last row of an odd k */

/* Whether pair p is the last number of an odd k, with nothing beside it. */
static bool lone(const ik_product *g, int64_t p) { return 2 * p + 1 == g->plan->tensors[IK_GEMM_A].shape[g->plan->tensors[IK_GEMM_A].ndim - 1]; }

static const uint16_t *number(const ik_matrix *x, int64_t row, int64_t col) { return (const uint16_t *)(const void *)ik_element(x, row, col); }

static void pack_b_pair(const ik_product *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *packed)
{
    uint32_t *to = (uint32_t *)(void *)packed;
    const int64_t strip = strip_pair;
    if (cols % strip != 0)
        memset(to + cols / strip * strip * k, 0, (size_t)(strip * k) * sizeof *to);
    for (int64_t j = 0; j < cols; j += strip, to += k * strip) {
        int64_t width = ik_min(strip, cols - j);
        if (g->b.col == 1) {
            for (int64_t p = 0; p < k; p++) {
                const uint16_t *low = number(&g->b, 2 * (p0 + p), first + j);
                interleave(low, lone(g, p0 + p) ? zeros : low + g->b.row, width, to + p * strip);
            }
            continue;
        }
        int64_t pairs = k - lone(g, p0 + k - 1), c = 0;
        for (; c + 4 <= width; c += 4) {
            ik_turn_4(ik_element(&g->b, 2 * p0, first + j + c), g->b.col * 2, pairs, (float *)(void *)(to + c), strip);
        }
        for (; c < width; c++)
            for (int64_t p = 0; p < pairs; p++)
                memcpy(to + p * strip + c, number(&g->b, 2 * (p0 + p), first + j + c), 4);
        for (c = 0; c < width && pairs < k; c++)
            to[pairs * strip + c] = *number(&g->b, 2 * (p0 + pairs), first + j + c);
    }
}

static void pack_a_pair(const ik_product *g, int64_t row, int64_t rows, int64_t p0, int64_t k, float *packed, ik_tile *t)
{
    enum { WIDE = 16 };
    uint32_t *to = (uint32_t *)(void *)packed;
    t->a = packed;
    if (g->a.col == 1) {
        t->a_row = g->most_k + 16, t->a_step = 1;
        int64_t pairs = k - lone(g, p0 + k - 1);
        for (int64_t i = 0; i < rows; i++) {
            const uint16_t *from = number(&g->a, row + i, 2 * p0);
            memcpy(to + i * t->a_row, from, (size_t)pairs * 4);
            if (pairs < k)
                to[i * t->a_row + pairs] = from[2 * pairs];
        }
        return;
    }
    t->a_row = 1, t->a_step = WIDE;
    for (int64_t p = 0; p < k; p++) {
        const uint16_t *low = number(&g->a, row, 2 * (p0 + p));
        interleave(low, lone(g, p0 + p) ? zeros : low + g->a.col, ik_min(WIDE, g->m - row), to + p * WIDE);
    }
}

static void finish_pair(const ik_product *g, int64_t row, int64_t col, int64_t n, float *sums) { finish_f32(g, row, col, n, sums); }

#include "gemm_block.h"

typedef struct search {
    const uint16_t *x;
    int64_t length, step; /* of the contiguous dim, and from one to the next */
    _Atomic uint32_t least;
} search;

/* The smallest magnitude but zero, as bits less 1. */
static void find_least(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    search *s = context;
    uint16_t least = UINT16_MAX;
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < s->length; j++) {
            uint16_t size = (uint16_t)((s->x[i * s->step + j] & 0x7fff) - 1);
            least = size < least ? size : least;
        }
    uint32_t seen = atomic_load(&s->least);
    while (least < seen && !atomic_compare_exchange_weak(&s->least, &seen, least))
        ;
}

/* No number of x but zero is below 2 to this power. */
static int64_t least_exponent(const ik_matrix *x, int64_t rows, int64_t cols)
{
    bool by_rows = x->col == 1;
    search s = { .x = number(x, 0, 0), .length = by_rows ? cols : rows, .step = by_rows ? x->row : x->col, .least = UINT16_MAX };
    ik_parallel_for(by_rows ? rows : cols, IK_THREAD_BYTES / (2 * s.length) + 1, find_least, &s);
    int64_t exponent = (int64_t)(atomic_load(&s.least) + 1) >> 7;
    return exponent == 0 ? -1000 : exponent - 127; /* 0: subnormal */
}

/* Products of 8-bit significands are multiples of 2^-14 of their exponent, and so is every sum: none is subnormal above this. */
enum { LEAST_PRODUCT = -126 + 14 };

extern ik_kernel gemm__x86_v4;
extern ik_workspace gemm_workspace__x86_v4;

static ik_product product_of(const ik_plan *plan, void *const *data)
{
    ik_product g = ik_product_of(plan, data);
    g.k = ik_ceil_div(g.k, 2);
    ik_cut(&g, sizeof(float), IK_TILE_ROWS, strip_pair);
    return g;
}

IK_SUPPORTED(gemm)
{
    ik_product g = ik_product_of(plan, NULL);
    if (g.y.dtype != IK_BF16)
        return "only BF16";
    if (g.batch != 1)
        return "no batch dims";
    if ((g.a.row != 1 && g.a.col != 1) || (g.b.row != 1 && g.b.col != 1))
        return "a and b need a contiguous dim";
    if (ik_cut_few(&g, sizeof(float)))
        return "few rows: reading b is the work";
    if ((double)g.m * (double)g.n * (double)g.k < 1 << 18)
        return "too small for the look at all magnitudes to pay";
    return NULL;
}

IK_WORKSPACE(gemm)
{
    ik_product g = product_of(plan, NULL);
    uint64_t own = ik_product_workspace(&g), other = gemm_workspace__x86_v4(plan);
    return own > other ? own : other;
}

IK_KERNEL(gemm)
{
    ik_product g = product_of(plan, data);
    const int64_t k = plan->tensors[IK_GEMM_A].shape[plan->tensors[IK_GEMM_A].ndim - 1];
    if (least_exponent(&g.a, g.m, k) + least_exponent(&g.b, k, g.n) < LEAST_PRODUCT)
        return gemm__x86_v4(plan, data, workspace, workspace_bytes, stream);
    g.workspace = workspace;
    ik_parallel_for(ik_tasks(&g), ik_task_grain(&g), tasks_pair, &g);
    return IK_SUCCESS;
}
