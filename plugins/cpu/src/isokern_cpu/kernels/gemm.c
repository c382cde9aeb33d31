/* matmul, gemm and linear: y = activation(alpha * a @ b + beta * c + bias) over packed blocks and register tiles.
 *
 * F16 and BF16 are widened to F32 while they are packed and rounded once at the end; F64 and integers have their own
 * tiles. */
#ifndef IK_T
#include "gemm_core.h"

#if IK_IN_PART(0)
#include "gemm_types.h"

static const ik_gemm_loops *loops_of(int32_t dtype)
{
    static const ik_gemm_loops u32 = { sizeof(uint32_t), panel_width_u32, tasks_u32, NULL },
                               u64 = { sizeof(uint64_t), panel_width_u64, tasks_u64, NULL };
    if (ik_is_float(dtype))
        return dtype == IK_F64 ? &IK_PART_NAME(gemm_f64) : &IK_PART_NAME(gemm_f32);
    return ik_itemsize(dtype) == 8 ? &u64 : &u32;
}

static ik_gemm_args args_of(const ik_plan *plan, void *const *data)
{
    ik_gemm_args g = ik_gemm_args_of(plan, data);
    const ik_gemm_loops *t = loops_of(g.y.dtype);
    if (t->skinny_rows == NULL || !ik_choose_skinny_blocking(&g, t->size))
        ik_choose_blocking(&g, t->size, IK_TILE_ROWS, t->panel_width, 1);
    return g;
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
const ik_gemm_loops IK_SHARED(IK_OF(gemm)) = { sizeof(IK_T), IK_OF(panel_width), IK_OF(tasks), IK_OF(skinny_rows) };
#endif
