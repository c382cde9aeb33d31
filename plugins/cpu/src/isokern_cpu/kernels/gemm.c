/* matmul, gemm and linear: y = activation(alpha * a @ b + beta * c + bias) over packed blocks and register tiles.
 *
 * F16 and BF16 are widened to F32 while they are packed and rounded once at the end, prepacked ones too, which keep
 * their size; F64 and integers have their own tiles. */
#ifndef IK_T
#include "gemm_core.h"

#if IK_IN_PART(0)
#include "gemm_types.h"
#include "operators/linear.h"

static const ik_gemm_loops *loops_of(int32_t dtype)
{
    static const ik_gemm_loops u32 = { sizeof(uint32_t), panel_width_u32, tasks_u32, NULL, NULL },
                               u64 = { sizeof(uint64_t), panel_width_u64, tasks_u64, NULL, NULL };
    if (ik_is_float(dtype))
        return dtype == IK_F64 ? &IK_PART_NAME(gemm_f64) : &IK_PART_NAME(gemm_f32);
    return ik_itemsize(dtype) == 8 ? &u64 : &u32;
}

/* Whether prepacked b has numbers of 16 bits. */
static bool is_narrow(const ik_gemm_args *g) { return g->b.dtype == IK_F16 || g->b.dtype == IK_BF16; }

/* Widen columns first .. first + cols of rows p0 .. p0 + k of narrow panels. */
static void widen_panels(const ik_gemm_args *g, int64_t p0, int64_t k, int64_t first, int64_t cols, float *to)
{
    const int64_t width = loops_of(IK_F32)->panel_width;
    for (int64_t j = 0; j < cols; j += width)
        ik_load_f32(g->b.dtype, g->b.at + ((first + j) * g->k + p0 * width) * (int64_t)sizeof(uint16_t), 1, k * width,
            to + j * k);
}

/* Prepack panels begin .. end of columns of b, each of all k, without widening. */
static void pack_narrow(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const ik_gemm_args *g = context;
    const int64_t width = loops_of(IK_F32)->panel_width;
    for (int64_t panel = begin; panel < end; panel++) {
        const int64_t cols = ik_min(width, g->n - panel * width);
        uint16_t *to = (uint16_t *)(void *)g->workspace + panel * width * g->k;
        for (int64_t p = 0; p < g->k; p++, to += width) {
            const uint16_t *row = (const uint16_t *)(const void *)ik_element(&g->b, p, panel * width);
            for (int64_t j = 0; j < width; j++)
                to[j] = j < cols ? row[j * g->b.col] : 0;
        }
    }
}

static ik_gemm_args args_of(const ik_plan *plan, void *const *data)
{
    ik_gemm_args g = ik_gemm_args_of(plan, data);
    const ik_gemm_loops *t = loops_of(g.y.dtype);
    const bool prepacked = IK_IS_PREPACKED(plan, IK_GEMM_B);
    if (prepacked && data != NULL)
        g.b.at = data[IK_GEMM_B];
    if (prepacked && is_narrow(&g))
        g.pack_b = widen_panels, g.narrow_width = t->panel_width;
    g.b_prepacked = prepacked && g.narrow_width == 0;
    if (g.b_prepacked || t->skinny_rows == NULL || !ik_choose_skinny_blocking(&g, t->size))
        ik_choose_blocking(&g, t->size, IK_TILE_ROWS, t->panel_width, 1);
    return g;
}

IK_PACKED_LAYOUT(gemm)
{
    const ik_gemm_args g = ik_gemm_args_of(plan, NULL);
    const ik_gemm_loops *t = loops_of(g.y.dtype);
    if (tensor != IK_GEMM_B || (!is_narrow(&g) && g.b.dtype != IK_F32 && g.b.dtype != IK_F64)
        || !ik_can_prepack(&g, IK_GEMM_B, t->panel_width))
        return NULL;
    *bytes = (uint64_t)(ik_round_up(g.n, t->panel_width) * g.k * ik_itemsize(g.b.dtype));
    const ik_gemm_attrs *attrs = plan->attrs;
    const bool rows = plan->kind == IK_OP_LINEAR || (plan->kind == IK_OP_GEMM && attrs->trans_b); /* of the host's b */
    return ik_layout_name("panels of %lld columns%s", (long long)t->panel_width, rows ? ", transposed" : "");
}

IK_PACK(gemm)
{
    (void)stream, (void)tensor;
    ik_gemm_args g = ik_gemm_args_of(plan, NULL);
    g.b.at = (char *)from + plan->tensors[IK_GEMM_B].offset * ik_itemsize(g.b.dtype);
    g.workspace = to;
    const ik_gemm_loops *t = loops_of(g.y.dtype);
    ik_parallel_for(ik_ceil_div(g.n, t->panel_width), 1, is_narrow(&g) ? pack_narrow : t->pack, &g);
    return IK_SUCCESS;
}

IK_WORKSPACE(gemm)
{
    ik_gemm_args g = args_of(plan, NULL);
    return ik_gemm_workspace(&g);
}

IK_KERNEL(gemm)
{
    IK_UNUSED;
    ik_gemm_args g = args_of(plan, data);
    g.workspace = workspace;
    const ik_gemm_loops *t = loops_of(g.y.dtype);
    if (g.m != 0 && g.n != 0)
        ik_parallel_for(ik_tasks(&g), ik_task_grain(&g), g.skinny ? t->skinny_rows : t->tasks, &g);
    return IK_SUCCESS;
}
#endif

#define IK_FILE "gemm.c"
#include "each_type.h"

#else
#include "gemm_tile.h"
#include "gemm_epilogue.h"
#include "gemm_pack.h"
#include "gemm_block.h"
#include "gemm_dots.h"
#include "gemm_skinny.h"
const ik_gemm_loops IK_SHARED(
    IK_OF(gemm)) = { sizeof(IK_T), IK_OF(panel_width), IK_OF(tasks), IK_OF(skinny_rows), IK_OF(prepack_b) };
#endif
