/* Products of matrices of bytes, summed in I32: packing, zero points and epilogue, for the kernels of matmul_integer.
 *
 * The loops are those of every other type (gemm_block.h). One of their elements is a group of GROUP numbers along k in
 * 32 bits, which an instruction multiplies and adds at once: two of 16 bits, or four bytes. k counts groups, padded
 * with zeros after the last number. Numbers are packed less a shift, so that they have the type that the instruction
 * takes. With a' = a - shift, za' = za - shift, and b' and zb' likewise:
 *
 *     Σ (a - za)(b - zb) = Σ a' b' - za' Σ b' - zb' Σ (a - za)
 *
 * All is modulo 2^32. Include byte_pairs.h or byte_quads.h before. */
#ifndef IK_INTEGER_PRODUCTS_H
#define IK_INTEGER_PRODUCTS_H
#include "byte_groups.h"
#include "gemm_core.h"
#include "operators/matmul_integer.h"

/* By row of a, or column of b: the shift, the zero point, and what the shift leaves of it. */
typedef struct side {
    narrow *shifts;
    int32_t *zeros, *rests;
    bool has_rests; /* some are not 0 */
} side;

typedef struct byte_product {
    ik_gemm_args g;
    int64_t k; /* numbers, not groups */
    side a, b;
} byte_product;

#define IK_TALL_TILES
#define IK_T uint32_t
#define IK_OF(name) name##_group
#include "gemm_tile.h"

static const byte_product *product(const ik_gemm_args *g) { return g->own; }

/* to[i] = from[i * step] - shift, and zeros up to a whole group. */
static inline __attribute__((always_inline)) void shift_each(
    const int32_t dtype, const char *from, const int64_t step, int64_t n, narrow shift, narrow *to)
{
    for (int64_t i = 0; i < n; i++)
        to[i] = (narrow)(byte_at(dtype, from + i * step) - shift);
    for (int64_t i = n; i % GROUP != 0; i++)
        to[i] = 0;
}

static void shift_run(int32_t dtype, const char *from, int64_t step, int64_t n, narrow shift, narrow *to)
{
    if (step != 1)
        shift_each(dtype, from, step, n, shift, to);
    else if (dtype == IK_I8)
        shift_each(IK_I8, from, 1, n, shift, to);
    else
        shift_each(IK_U8, from, 1, n, shift, to);
}

/* to[p * width + j] = group p of line j, for n lines that are contiguous in k, `line` bytes apart. */
static void transpose_lines(int32_t dtype, const char *from, int64_t line, int64_t numbers, int64_t n,
    const narrow *shifts, uint32_t *to, int64_t width)
{
    const int64_t groups = ik_ceil_div(numbers, GROUP);
    narrow wide[4][GROUP * IK_BLOCK_K];
    for (int64_t j = 0; j < n; j += 4) {
        for (int64_t i = 0; i < ik_min(4, n - j); i++)
            shift_run(dtype, from + (j + i) * line, 1, numbers, shifts[j + i], wide[i]);
        if (j + 4 <= n)
            ik_transpose_4((const char *)wide, sizeof wide[0], groups, (float *)(void *)(to + j), width);
        else
            for (int64_t i = 0; i < n - j; i++)
                for (int64_t p = 0; p < groups; p++)
                    memcpy(to + p * width + j + i, wide[i] + GROUP * p, sizeof *to);
    }
}

/* Number of elements along k in `k` groups from group p0 on: fewer than GROUP * k at the end. */
static int64_t count_numbers(const ik_gemm_args *g, int64_t p0, int64_t k)
{ return ik_max(0, ik_min(GROUP * k, product(g)->k - GROUP * p0)); }

/* Sums of the columns of b from `col` on: those of prepacked b are behind its panels, those of the packed block at the
 * end of a worker's slice. */
static uint32_t *column_sums(const ik_gemm_args *g, int64_t col)
{
    if (g->b_prepacked)
        return (uint32_t *)(void *)g->b.at + ik_round_up(g->n, panel_width_group) * g->k + col;
    return (uint32_t *)(void *)(g->slice + g->slice_bytes) - g->max_cols;
}

/* Write the sums of the columns of a packed panel, or add to them. */
static void sum_panel(const uint32_t *packed, int64_t k, bool add, uint32_t *to)
{
    const uint32_t one = GROUP == 2 ? 0x10001 : 0x1010101;
    const vector_group ones = splat_group(&one);
    loose_group *sums = (loose_group *)to;
    vector_group low = { 0 }, high = { 0 };
    if (add)
        low = sums[0], high = sums[1];
    for (int64_t p = 0; p < k; p++) {
        low = fma_group(ones, *(const loose_group *)(packed + p * panel_width_group), low);
        high = fma_group(ones, *(const loose_group *)(packed + p * panel_width_group + lanes_group), high);
    }
    sums[0] = low, sums[1] = high;
}

static void pack_b_group(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, uint32_t *to)
{
    const ik_matrix *b = &g->b;
    const int64_t width = panel_width_group, numbers = count_numbers(g, p0, k);
    const narrow *shifts = product(g)->b.shifts + first;
    if (cols % width != 0)
        memset(to + cols / width * width * k, 0, (size_t)(width * k) * sizeof *to);
    if (b->row == 1 && b->col != 1)
        for (int64_t j = 0; j < cols; j += width)
            transpose_lines(b->dtype, ik_element(b, GROUP * p0, first + j), b->col, numbers, ik_min(width, cols - j),
                shifts + j, to + j * k, width);
    else
        for (int64_t p = 0; p < k; p++) /* along memory */
            for (int64_t j = 0; j < cols; j += width)
                group_lines(b->dtype, ik_min(GROUP, numbers - GROUP * p), ik_element(b, GROUP * (p0 + p), first + j),
                    b->row, b->col, ik_min(width, cols - j), shifts + j, to + j * k + p * width);
    for (int64_t j = 0; product(g)->a.has_rests && j < cols; j += width)
        sum_panel(to + j * k, k, p0 > 0, column_sums(g, first) + j);
}

static void pack_a_group(
    const ik_gemm_args *g, int64_t row, int64_t rows, int64_t p0, int64_t k, uint32_t *to, ik_tile *t)
{
    enum { WIDE = 16 };
    const ik_matrix *a = &g->a;
    const int64_t numbers = count_numbers(g, p0, k);
    const narrow *shifts = product(g)->a.shifts + row;
    t->a = to;
    if (a->row == 1 && a->col != 1) {
        t->a_row = 1, t->a_step = WIDE;
        for (int64_t p = 0; p < k; p++)
            group_lines(a->dtype, ik_min(GROUP, numbers - GROUP * p), ik_element(a, row, GROUP * (p0 + p)), a->col, 1,
                rows, shifts, to + p * WIDE);
        return;
    }
    t->a_row = g->max_k + 16, t->a_step = 1; /* 16: rows start in different sets of the cache */
    for (int64_t i = 0; i < rows; i++)
        shift_run(a->dtype, ik_element(a, row + i, GROUP * p0), a->col, numbers, shifts[i],
            (narrow *)(void *)(to + i * t->a_row));
}

static uint32_t sum_row(const ik_matrix *a, int64_t row, int64_t k)
{
    const char *from = ik_element(a, row, 0);
    int32_t sum = 0;
    if (a->col == 1 && a->dtype == IK_I8)
        for (int64_t p = 0; p < k; p++)
            sum += (int8_t)from[p];
    else if (a->col == 1)
        for (int64_t p = 0; p < k; p++)
            sum += (uint8_t)from[p];
    else
        for (int64_t p = 0; p < k; p++)
            sum += byte_at(a->dtype, from + p * a->col);
    return (uint32_t)sum;
}

/* Subtract what the rests of the zero points add to the sums of a row, and store it. */
static void finish_group(const ik_gemm_args *g, int64_t row, int64_t col, int64_t n, uint32_t *sums)
{
    const byte_product *p = product(g);
    const uint32_t rest = (uint32_t)p->a.rests[row];
    if (rest != 0) {
        const uint32_t *of_columns = column_sums(g, col);
        for (int64_t j = 0; j < n; j++)
            sums[j] -= rest * of_columns[j];
    }
    if (p->b.has_rests) {
        const uint32_t of_row = sum_row(&g->a, row, p->k) - (uint32_t)p->k * (uint32_t)p->a.zeros[row];
        for (int64_t j = 0; j < n; j++)
            sums[j] -= (uint32_t)p->b.rests[col + j] * of_row;
    }
    char *to = ik_element(&g->y, row, col);
    if (g->y.col == 1)
        memcpy(to, sums, (size_t)n * sizeof *sums);
    else
        for (int64_t j = 0; j < n; j++)
            memcpy(to + j * g->y.col * (int64_t)sizeof *sums, sums + j, sizeof *sums);
}

#include "gemm_block.h"

static byte_product product_of(const ik_plan *plan, void *const *data)
{
    byte_product p = { .g = ik_product_of(plan, data) };
    ik_gemm_args *g = &p.g;
    p.k = g->k;
    g->k = ik_ceil_div(p.k, GROUP);
    g->b = ik_matrix_of(plan, data, IK_MATMUL_INTEGER_B);
    g->b_prepacked = IK_IS_PREPACKED(plan, IK_MATMUL_INTEGER_B);
    if (g->b_prepacked && data != NULL)
        g->b.at = data[IK_MATMUL_INTEGER_B];
    if (g->n == 1 || (g->m > 1 && g->y.col != 1 && g->y.row == 1)) /* make y's contiguous dim the last */
        ik_exchange(g);
    ik_choose_blocking(g, sizeof(uint32_t), IK_TILE_ROWS, panel_width_group, 1);
    g->slice_bytes += g->max_cols * (int64_t)sizeof(uint32_t);
    return p;
}

/* Bytes of the shifts, zeros and rests of n lines. */
static int64_t side_bytes(int64_t n) { return ik_round_up(n * (int64_t)(2 * sizeof(int32_t) + sizeof(narrow)), 64); }

static uint64_t product_workspace(const ik_plan *plan)
{
    const byte_product p = product_of(plan, NULL);
    const uint64_t own = ik_gemm_workspace(&p.g);
    return own == 0 ? 0 : own + (uint64_t)(side_bytes(p.g.m) + side_bytes(p.g.n));
}

/* Fill in what belongs to the n lines of a matrix, whose zero points are tensor `zero` of the plan; prepacked ones were
 * shifted as if these were 0. */
static side side_of(const ik_plan *plan, void *const *data, uint32_t zero, int32_t dtype, bool left, bool prepacked,
    int64_t n, char *memory)
{
    int32_t *numbers = (int32_t *)(void *)memory;
    side s = { .zeros = numbers, .rests = numbers + n, .shifts = (narrow *)(void *)(numbers + 2 * n) };
    const char *from = ik_ptr(plan, data, zero);
    const ik_tensor *t = &plan->tensors[zero];
    const int64_t step = from == NULL ? 0 : t->ndim == 1 ? t->strides[0] : t->strides[t->ndim - 2];
    for (int64_t i = 0; i < n; i++) {
        const int32_t value = from == NULL ? 0 : byte_at(dtype, from + i * step),
                      shift = shift_of(dtype, left, prepacked ? 0 : value);
        s.zeros[i] = value;
        s.rests[i] = value - shift;
        s.shifts[i] = (narrow)shift;
        s.has_rests |= value != shift;
    }
    return s;
}

static ik_status multiply_bytes(const ik_plan *plan, void *const *data, void *workspace)
{
    byte_product p = product_of(plan, data);
    ik_gemm_args *g = &p.g;
    if (g->m == 0 || g->n == 0 || g->batch == 0)
        return IK_SUCCESS;
    const uint32_t of_a = g->exchanged ? IK_MATMUL_INTEGER_B_ZERO_POINT : IK_MATMUL_INTEGER_A_ZERO_POINT,
                   of_b = g->exchanged ? IK_MATMUL_INTEGER_A_ZERO_POINT : IK_MATMUL_INTEGER_B_ZERO_POINT;
    char *memory = workspace;
    p.a = side_of(plan, data, of_a, g->a.dtype, true, false, g->m, memory);
    p.b = side_of(plan, data, of_b, g->b.dtype, false, g->b_prepacked, g->n, memory + side_bytes(g->m));
    g->workspace = memory + side_bytes(g->m) + side_bytes(g->n);
    g->own = &p;
    ik_parallel_for(ik_tasks(g), ik_task_grain(g), tasks_group, g);
    return IK_SUCCESS;
}

static const char *packed_columns(const ik_plan *plan, uint32_t tensor, uint64_t *bytes)
{
    const byte_product p = product_of(plan, NULL);
    if (tensor != IK_MATMUL_INTEGER_B || !ik_can_prepack(&p.g, tensor, panel_width_group))
        return NULL;
    *bytes = (uint64_t)(ik_round_up(p.g.n, panel_width_group) * (p.g.k + 1)) * sizeof(uint32_t);
    return ik_layout_name("panels of %d columns of %s", (int)panel_width_group, GROUP == 2 ? "pairs" : "quads");
}

/* Pack panels begin .. end of b, and the sums of their columns. */
static void pack_columns(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_gemm_args *whole = context;
    const int64_t width = panel_width_group, k = whole->k;
    byte_product p = *product(whole);
    narrow shifts[64];
    for (int64_t j = 0; j < width; j++)
        shifts[j] = (narrow)shift_of(whole->b.dtype, false, 0);
    p.b.shifts = shifts;
    p.g.own = &p;
    for (int64_t panel = begin; panel < end; panel++) {
        uint32_t *to = (uint32_t *)(void *)whole->workspace + panel * width * k;
        p.g.b.at = ik_element(&whole->b, 0, panel * width);
        for (int64_t p0 = 0; p0 < k; p0 += IK_BLOCK_K)
            pack_b_group(
                &p.g, p0, ik_min(IK_BLOCK_K, k - p0), 0, ik_min(width, whole->n - panel * width), to + p0 * width);
        sum_panel(
            to, k, false, (uint32_t *)(void *)whole->workspace + ik_round_up(whole->n, width) * k + panel * width);
    }
}

static ik_status pack_product(const ik_plan *plan, const void *from, void *to)
{
    byte_product p = product_of(plan, NULL);
    p.g.b_prepacked = false;
    p.g.b.at = (char *)from + plan->tensors[IK_MATMUL_INTEGER_B].offset;
    p.g.workspace = to;
    p.g.own = &p;
    ik_parallel_for(ik_ceil_div(p.g.n, panel_width_group), 1, pack_columns, &p.g);
    return IK_SUCCESS;
}

#endif
