/* Products with weights of a type of their own, as a plan of matmul_transposed, linear_mixed or matmul_mixed has them.
 *
 * Weights of floats, and many float rows of x, use the loops of gemm, which unpack blocks while packing. All else is
 * computed as dot products of rows. */
#ifndef IK_MATMUL_WEIGHTS_H
#define IK_MATMUL_WEIGHTS_H
#include "gemm_core.h"
#include "matmul_rows.h"
#include "operators/matmul_mixed.h"

enum { PANEL_WIDTH = 2 * IK_VECTOR / sizeof(float) /* of gemm's tiles */, SKINNY_ROWS = 8 };
_Static_assert((int)IK_LINEAR_MIXED_C == IK_GEMM_C, "gemm's loops find c of a batch where gemm has it");

/* Pack panels of columns of b, k rows of it, from rows of w that are blocks along k. */
static void pack_rows(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *to)
{
    float wide[4][IK_BLOCK_K];
    const int64_t row = ik_bytes(g->b.dtype, g->b.col);
    for (int64_t panel = 0; panel < cols; panel += PANEL_WIDTH, to += k * PANEL_WIDTH) {
        const char *from = g->b.at + (first + panel) * row;
        for (int64_t j = 0; j < PANEL_WIDTH; j += 4) {
            for (int64_t i = 0; i < 4; i++)
                if (panel + j + i < cols)
                    ik_dequantize_at(g->b.dtype, from + (j + i) * row, p0, k, wide[i]);
                else
                    memset(wide[i], 0, (size_t)k * sizeof *wide[i]);
            ik_transpose_4((const char *)wide, sizeof wide[0], k, to + j, PANEL_WIDTH);
        }
    }
}

/* Pack the same from rows of w that are blocks along the columns. */
static void pack_columns(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *to)
{
    enum { RUN = 8 * IK_BLOCK };
    float wide[RUN + IK_BLOCK];
    for (int64_t p = 0; p < k; p++) {
        const char *row = g->b.at + ik_bytes(g->b.dtype, (p0 + p) * g->b.row);
        for (int64_t at = 0; at < cols; at += RUN) { /* RUN is a multiple of the panel */
            const int64_t begin = first + at, lead = begin % IK_BLOCK, count = ik_min(RUN, cols - at);
            const int64_t held = ik_round_up(lead + count, IK_BLOCK);
            ik_dequantize_at(g->b.dtype, row, begin - lead, held, wide);
            for (int64_t j = 0; j < count; j += PANEL_WIDTH) {
                float *panel = to + (at + j) * k + p * PANEL_WIDTH;
                const int64_t width = ik_min(PANEL_WIDTH, count - j);
                memcpy(panel, wide + lead + j, (size_t)width * sizeof *panel);
                memset(panel + width, 0, (size_t)(PANEL_WIDTH - width) * sizeof *panel);
            }
        }
    }
}

static bool is_dots(const ik_plan *plan)
{
    const ik_tensor *x = &plan->tensors[IK_MATMUL_TRANSPOSED_X], *w = &plan->tensors[IK_MATMUL_TRANSPOSED_W];
    if (plan->kind == IK_OP_MATMUL_MIXED || !ik_is_blocks(w->dtype))
        return false;
    const int64_t k = x->shape[x->ndim - 1];
    return is_quantised(plan) || ik_numel(x) <= SKINNY_ROWS * k;
}

static ik_gemm_args args_of(const ik_plan *plan, void *const *data)
{
    const ik_matrix w = ik_matrix_of(plan, data, IK_MATMUL_TRANSPOSED_W);
    ik_gemm_args g = ik_product_of(plan, data);
    const bool transposed = plan->kind != IK_OP_MATMUL_MIXED;
    g.b = transposed ? (ik_matrix){ w.at, w.dtype, w.col, w.row } : w;
    if (ik_is_blocks(w.dtype))
        g.pack_b = transposed ? pack_rows : pack_columns;
    if (plan->kind == IK_OP_LINEAR_MIXED) {
        const ik_linear_mixed_attrs *attrs = plan->attrs;
        g.bias = ik_matrix_of(plan, data, IK_LINEAR_MIXED_BIAS);
        g.c = ik_matrix_of(plan, data, IK_LINEAR_MIXED_C);
        g.beta = 1;
        g.activation = attrs->activation;
    }
    if (g.pack_b != NULL || !ik_choose_skinny_blocking(&g, sizeof(float)))
        ik_choose_blocking(&g, sizeof(float), IK_TILE_ROWS, PANEL_WIDTH, IK_BLOCK);
    return g;
}

static uint64_t weights_workspace(const ik_plan *plan)
{
    if (is_dots(plan))
        return dots_workspace(plan);
    const ik_gemm_args g = args_of(plan, NULL);
    return ik_gemm_workspace(&g);
}

static ik_status run_product(ik_gemm_args g, void *workspace)
{
    const ik_gemm_loops *loops = &IK_PART_NAME(gemm_f32);
    g.workspace = workspace;
    if (g.m != 0 && g.n != 0)
        ik_parallel_for(ik_tasks(&g), ik_task_grain(&g), g.skinny ? loops->skinny_rows : loops->tasks, &g);
    return IK_SUCCESS;
}

static ik_status multiply_weights(const ik_plan *plan, void *const *data, void *workspace)
{ return is_dots(plan) ? run_dots(plan, data, workspace) : run_product(args_of(plan, data), workspace); }

#endif
