/* The parameters of a matrix product, and its blocking; the loops over the blocks are in gemm_block.h. */
#ifndef IK_GEMM_CORE_H
#define IK_GEMM_CORE_H
#include "gemm_tile.h"
#include "activations.h"
#include "operators/gemm.h"

typedef struct ik_matrix {
    char *at; /* element [0, 0]; null where absent */
    int32_t dtype;
    int64_t row, col; /* strides in elements */
} ik_matrix;

/* y[i, j] = activation(alpha * Σ_p a[i, p] * b[p, j] + beta * c[i, j] + bias[i or j]) for each matrix of a batch, and
 * the blocking. */
typedef struct ik_gemm_args {
    const ik_plan *plan; /* has the batch dims of y, a, b, c; the matrices here are those of batch 0 */
    int64_t batch, m, n, k;
    ik_matrix y, a, b, c, bias;
    double alpha, beta;
    int64_t activation;

    int64_t row_blocks, col_blocks, k_blocks; /* a task is a block of rows times a block of columns */
    int64_t max_rows, max_cols, max_k;        /* largest block sizes; max_cols in whole panels */
    int64_t packed_bytes, panel_bytes, slice_bytes;
    bool direct;            /* y is its own accumulator: the compute type, and contiguous columns */
    bool from_c, from_bias; /* what sums that are direct start from */
    bool a_in_place;        /* a is read in place */
    bool b_in_place;        /* b is read in place, except for its last panel of columns */
    bool b_prepacked;       /* b is panels of all k, one after the other */
    int64_t narrow_width;   /* columns of a panel of prepacked b in a type narrower than that of the sums, or 0 */
    bool skinny;            /* few rows: gemm_skinny.h */
    int64_t group;          /* columns of a task, where skinny */
    char *workspace, *slice; /* slice: the part of the worker that runs a task */
    bool exchanged;          /* a is the plan's b */
    const void *own;         /* what the packing and the epilogue of one kernel alone read */
    /* Packs b where b is of blocks, or prepacked in a narrower type. */
    void (*pack_b)(const struct ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *to);
} ik_gemm_args;

/* The loops over a product whose blocking is chosen, for the type of the sums; skinny_rows may be null. Other kernels
 * of the same level use those of gemm. */
typedef struct ik_gemm_loops {
    int64_t size, panel_width;
    ik_task *tasks, *skinny_rows, *pack; /* of panels of columns of b */
} ik_gemm_loops;

extern const ik_gemm_loops IK_SHARED(gemm_f32), IK_SHARED(gemm_f64);

/* Exchange rows and columns: the same product, transposed. */
static inline void ik_exchange(ik_gemm_args *g)
{
    ik_matrix a = g->a;
    int64_t m = g->m;
    g->exchanged = !g->exchanged;
    g->a = (ik_matrix){ g->b.at, g->b.dtype, g->b.col, g->b.row };
    g->b = (ik_matrix){ a.at, a.dtype, a.col, a.row };
    g->m = g->n, g->n = m;
    g->y = (ik_matrix){ g->y.at, g->y.dtype, g->y.col, g->y.row };
    g->c = (ik_matrix){ g->c.at, g->c.dtype, g->c.col, g->c.row };
    g->bias = (ik_matrix){ g->bias.at, g->bias.dtype, g->bias.col, g->bias.row };
}

static inline char *ik_element(const ik_matrix *x, int64_t row, int64_t col)
{ return x->at + (row * x->row + col * x->col) * ik_itemsize(x->dtype); }

/* Whether b, a tensor of the plan, serves the whole batch, is a vector wide, and stays the right operand. */
static inline bool ik_can_prepack(const ik_gemm_args *g, uint32_t b, int64_t panel_width)
{
    const ik_tensor *t = &g->plan->tensors[b];
    for (int32_t i = 0; i < t->ndim - 2; i++)
        if (t->shape[i] != 1 && t->strides[i] != 0)
            return false;
    return !g->exchanged && g->k > 0 && 2 * g->n >= panel_width;
}

/* Product number `batch` of the batch. */
static inline ik_gemm_args ik_of_batch(const ik_gemm_args *whole, int64_t batch)
{
    const ik_tensor *t = whole->plan->tensors;
    ik_gemm_args g = *whole;
    if (batch == 0)
        return g;
    g.y.at += ik_row_offset(&t[IK_GEMM_Y], batch, 2) * ik_itemsize(g.y.dtype);
    g.a.at += ik_row_offset(&t[g.exchanged ? IK_GEMM_B : IK_GEMM_A], batch, 2) * ik_itemsize(g.a.dtype);
    g.b.at += ik_row_offset(&t[g.exchanged ? IK_GEMM_A : IK_GEMM_B], batch, 2) * ik_itemsize(g.b.dtype);
    if (g.c.at != NULL)
        g.c.at += ik_row_offset(&t[IK_GEMM_C], batch, 2) * ik_itemsize(g.c.dtype);
    return g;
}

/* Whether a tile can start from a matrix of terms: of the type of the sums, and contiguous columns. */
static inline bool ik_starts(const ik_gemm_args *g, const ik_matrix *terms)
{ return terms->at != NULL && terms->dtype == g->y.dtype && terms->col == 1; }

/* Choose whether y is its own accumulator, and what its sums start from. What is left is applied in place. */
static inline void ik_choose_sums(ik_gemm_args *g, int64_t size)
{
    const bool from_c = g->beta == 1 && ik_starts(g, &g->c);
    g->direct = g->a.dtype == g->y.dtype && ik_itemsize(g->y.dtype) == size && g->y.col == 1 && g->alpha == 1
        && (g->c.at == NULL || from_c);
    g->from_c = g->direct && from_c;
    g->from_bias = g->direct && !from_c && ik_starts(g, &g->bias);
}

/* Whether sums that are direct are not yet the results. */
static inline bool ik_has_rest(const ik_gemm_args *g)
{ return g->activation != IK_GEMM_NONE || (g->bias.at != NULL && !g->from_bias); }

/* Reading prepacked b, as few rows do, takes as long as about eight rows of products. */
static inline int64_t ik_rows_of_work(const ik_gemm_args *g, int64_t rows)
{ return g->b_prepacked ? ik_max(rows, 8) : rows; }

/* Choose the blocking for elements of `size` bytes, tiles of `tile_rows`, panels of `panel_width` columns, and a
 * multiple of `k_step` for max_k. */
static inline void ik_choose_blocking(
    ik_gemm_args *g, int64_t size, int64_t tile_rows, int64_t panel_width, int64_t k_step)
{
    bool plain = ik_itemsize(g->a.dtype) == size; /* nothing to widen */
    g->k_blocks = ik_max(1, ik_ceil_div(g->k, IK_BLOCK_K));
    g->max_k = ik_round_up(ik_ceil_div(g->k, g->k_blocks), k_step);
    ik_choose_sums(g, size);

    int64_t cols = IK_BLOCK_BYTES / (IK_BLOCK_K * size), rows = 1024;
    if (!g->direct && g->k_blocks > 1) /* unfinished sums are in the workspace */
        rows = IK_BLOCK_BYTES / (cols * size);
    g->row_blocks = ik_max(1, ik_ceil_div(g->m, rows));
    g->col_blocks = ik_max(1, ik_ceil_div(g->n, cols));
    double products = (double)g->batch * (double)ik_rows_of_work(g, g->m) * (double)g->n * (double)g->k;
    int64_t wanted = (int64_t)(products / IK_THREAD_PRODUCTS < 2.0 * ik_threads() ? products / IK_THREAD_PRODUCTS
                                                                                  : 2.0 * ik_threads());
    int64_t others = g->batch * g->col_blocks;
    if (others * g->row_blocks < wanted)
        g->row_blocks = ik_max(g->row_blocks, ik_min(ik_ceil_div(wanted, others), g->m / (4 * tile_rows)));
    others = g->batch * g->row_blocks;
    if (others * g->col_blocks < wanted)
        g->col_blocks = ik_max(g->col_blocks, ik_min(ik_ceil_div(wanted, others), g->n / (2 * panel_width)));
    g->max_rows = ik_ceil_div(g->m, g->row_blocks);
    g->max_cols = ik_round_up(ik_ceil_div(g->n, g->col_blocks), panel_width);
    g->col_blocks = g->n == 0 ? 1 : ik_ceil_div(g->n, g->max_cols);

    g->a_in_place = plain && ((g->a.col == 1 && !ik_rows_clash(g->a.row * size)) || (g->a.row == 1 && g->max_k <= 64));
    g->b_in_place = !g->b_prepacked && plain && ik_itemsize(g->b.dtype) == size && g->b.col == 1
        && g->max_rows <= 3 * tile_rows && g->k * g->n * size <= 256 << 10;
    int64_t packed_cols = g->b_in_place ? panel_width : g->max_cols,
            sum_rows = g->k_blocks == 1 ? ik_min(tile_rows, g->max_rows) : g->max_rows;
    g->packed_bytes = g->b_prepacked ? 0 : ik_round_up(g->max_k * packed_cols * size, 64);
    g->panel_bytes = g->a_in_place ? 0 : ik_round_up(ik_max(tile_rows * (g->max_k + 16), 16 * g->max_k) * size, 64);
    int64_t last = g->n % panel_width == 0 ? 0 : ik_max(1, tile_rows) * panel_width; /* a tile wider than y */
    int64_t sums = g->direct ? last : sum_rows * g->max_cols;
    g->slice_bytes = g->packed_bytes + g->panel_bytes + ik_round_up(sums * size, 64);
}

enum { IK_SKINNY_ROWS = 8, IK_SKINNY_BYTES = 1 << 19 };

/* Whether loops that read a matrix in place load vectors of this dtype (gemm_tile.h): others are converted first. */
static inline bool ik_has_vectors(int32_t dtype)
{
    return dtype == ik_compute_of(dtype) || dtype == IK_F16 || dtype == IK_BF16 || dtype == IK_F8E4M3FN
        || dtype == IK_F8E5M2;
}

/* Whether the product is skinny, so that reading b dominates; if so, choose its blocking. */
static inline bool ik_choose_skinny_blocking(ik_gemm_args *g, int64_t size)
{
    bool dots = g->b.row == 1 && g->b.col != 1 && g->m <= IK_SKINNY_ROWS && g->k >= 64;
    bool sums = g->b.col == 1 && g->m <= 3 && g->n >= 64;
    g->skinny = g->narrow_width > 0 ? g->m <= 4 : (dots || sums) && ik_has_vectors(g->b.dtype);
    g->group = g->narrow_width > 0 ? g->narrow_width : 4;
    g->a_in_place = ik_itemsize(g->a.dtype) == size && g->a.col == 1;
    g->slice_bytes = g->a_in_place ? 0 : ik_round_up(g->m * g->k * size, 64);
    return g->skinny;
}

static inline int64_t ik_tasks(const ik_gemm_args *g)
{ return g->batch * (g->skinny ? ik_ceil_div(g->n, g->group) : g->row_blocks * g->col_blocks); }

/* The smallest number of tasks that a thread should run. */
static inline int64_t ik_task_grain(const ik_gemm_args *g)
{
    if (g->skinny)
        return ik_max(
            ik_ceil_div(64, g->group), IK_SKINNY_BYTES / (g->group * ik_max(1, g->k) * ik_itemsize(g->b.dtype)));
    double products = (double)ik_rows_of_work(g, g->max_rows) * (double)g->max_cols * (double)g->k + 64;
    return products >= IK_THREAD_PRODUCTS ? 1 : (int64_t)(IK_THREAD_PRODUCTS / products) + 1;
}

static inline uint64_t ik_gemm_workspace(const ik_gemm_args *g)
{
    int64_t tasks = ik_tasks(g);
    if (tasks == 0 || g->m == 0 || g->n == 0)
        return 0;
    return (uint64_t)(g->slice_bytes * (tasks > ik_task_grain(g) ? ik_threads() : 1));
}

static inline ik_matrix ik_matrix_of(const ik_plan *plan, void *const *data, uint32_t i)
{
    if (!ik_present(plan, i))
        return (ik_matrix){ 0 };
    const ik_tensor *t = &plan->tensors[i];
    ik_matrix x = { .at = data != NULL ? ik_ptr(plan, data, i) : (char *)1, .dtype = t->dtype };
    x.row = t->ndim > 1 ? t->strides[t->ndim - 2] : 0; /* 1: a bias */
    x.col = t->strides[t->ndim - 1];
    return x;
}

/* The product y = a b of a plan whose first tensors are y, a and b, all but b. */
static inline ik_gemm_args ik_product_of(const ik_plan *plan, void *const *data)
{
    const ik_tensor *y = &plan->tensors[IK_GEMM_Y], *a = &plan->tensors[IK_GEMM_A];
    ik_gemm_args g = { .plan = plan,
        .batch = 1,
        .m = y->shape[y->ndim - 2],
        .n = y->shape[y->ndim - 1],
        .k = a->shape[a->ndim - 1],
        .alpha = 1 };
    for (int32_t i = 0; i < y->ndim - 2; i++)
        g.batch *= y->shape[i];
    g.y = ik_matrix_of(plan, data, IK_GEMM_Y);
    g.a = ik_matrix_of(plan, data, IK_GEMM_A);
    return g;
}

/* The product that a plan asks for, without blocking; without data only its shape is valid. */
static inline ik_gemm_args ik_gemm_args_of(const ik_plan *plan, void *const *data)
{
    ik_gemm_args g = ik_product_of(plan, data);
    g.b = ik_matrix_of(plan, data, IK_GEMM_B);
    g.bias = ik_matrix_of(plan, data, IK_GEMM_BIAS);
    if (plan->kind == IK_OP_GEMM) {
        const ik_gemm_attrs *attrs = plan->attrs;
        g.alpha = attrs->alpha;
        g.beta = attrs->beta;
        g.activation = attrs->activation;
        if (attrs->beta != 0)
            g.c = ik_matrix_of(plan, data, IK_GEMM_C);
    }
    if (g.n == 1 || (g.m > 1 && g.y.col != 1 && g.y.row == 1)) /* make y's contiguous dim the last */
        ik_exchange(&g);
    return g;
}

/* to[p, j] = from[j, p] for 4 columns of 32-bit elements, each contiguous in p, `column` bytes apart; rows of `to` are
 * `panel_width` apart. */
static inline void ik_transpose_4(const char *from, int64_t column, int64_t k, float *to, int64_t panel_width)
{
    int64_t p = 0;
#if defined(__SSE2__)
    for (; p + 4 <= k; p += 4) {
        __m128i x0 = _mm_loadu_si128((const void *)(from + 4 * p)),
                x1 = _mm_loadu_si128((const void *)(from + column + 4 * p));
        __m128i x2 = _mm_loadu_si128((const void *)(from + 2 * column + 4 * p)),
                x3 = _mm_loadu_si128((const void *)(from + 3 * column + 4 * p));
        __m128i low0 = _mm_unpacklo_epi32(x0, x1), low1 = _mm_unpacklo_epi32(x2, x3);
        __m128i high0 = _mm_unpackhi_epi32(x0, x1), high1 = _mm_unpackhi_epi32(x2, x3);
        _mm_storeu_si128((void *)(to + p * panel_width), _mm_unpacklo_epi64(low0, low1));
        _mm_storeu_si128((void *)(to + (p + 1) * panel_width), _mm_unpackhi_epi64(low0, low1));
        _mm_storeu_si128((void *)(to + (p + 2) * panel_width), _mm_unpacklo_epi64(high0, high1));
        _mm_storeu_si128((void *)(to + (p + 3) * panel_width), _mm_unpackhi_epi64(high0, high1));
    }
#endif
    for (; p < k; p++)
        for (int64_t j = 0; j < 4; j++)
            memcpy(to + p * panel_width + j, from + j * column + 4 * p, 4);
}

/* Transpose a block of b whose columns are contiguous into the rows of a panel. */
static inline void transpose_f32(
    int32_t dtype, const char *from, int64_t column, int64_t k, int64_t cols, float *to, int64_t panel_width)
{
    float wide[4][IK_BLOCK_K];
    int64_t j = 0, size = ik_itemsize(dtype);
    for (; j + 4 <= cols; j += 4) {
        if (dtype == IK_F32) {
            ik_transpose_4(from + j * column * size, column * size, k, to + j, panel_width);
            continue;
        }
        for (int64_t i = 0; i < 4; i++)
            ik_load_f32(dtype, from + (j + i) * column * size, 1, k, wide[i]);
        ik_transpose_4((const char *)wide, sizeof wide[0], k, to + j, panel_width);
    }
    for (; j < cols; j++) {
        ik_load_f32(dtype, from + j * column * size, 1, k, wide[0]);
        for (int64_t p = 0; p < k; p++)
            to[p * panel_width + j] = wide[0][p];
    }
}

/* Transpose the same for F64. */
static inline void transpose_f64(
    int32_t dtype, const char *from, int64_t column, int64_t k, int64_t cols, double *to, int64_t panel_width)
{
    (void)dtype;
    for (int64_t j = 0; j < cols; j++)
        for (int64_t p = 0; p < k; p++)
            to[p * panel_width + j] = ((const double *)(const void *)from)[j * column + p];
}

#endif
