/* matmul, gemm and linear: y = activation(alpha * a @ b + beta * c + bias) over packed blocks and register tiles.
 *
 * F16 and BF16 are widened to F32 while they are packed and rounded once at the end; F64 and integers have tiles of their own. */
#include "gemm_types.h"

#define IK_T float
#define IK_OF(name) name##_f32
#include "gemm_tile.h"
#include "gemm_epilogue.h"
#include "gemm_pack.h"
#include "gemm_block.h"
#include "gemm_dots.h"
#include "gemm_rows.h"
#undef IK_T
#undef IK_OF

#define IK_T double
#define IK_OF(name) name##_f64
#include "gemm_tile.h"
#include "gemm_epilogue.h"
#include "gemm_pack.h"
#include "gemm_block.h"
#include "gemm_dots.h"
#include "gemm_rows.h"
#undef IK_T
#undef IK_OF

#define IK_T uint32_t
#define IK_OF(name) name##_u32
#include "gemm_tile.h"
#include "gemm_pack.h"
#include "gemm_block.h"
#undef IK_T
#undef IK_OF

#define IK_T uint64_t
#define IK_OF(name) name##_u64
#include "gemm_tile.h"
#include "gemm_pack.h"
#include "gemm_block.h"
#undef IK_T
#undef IK_OF

typedef struct type { /* what sums are made in */
    int64_t size, strip;
    ik_task *tasks, *few_rows;
} type;

static type type_of(int32_t dtype)
{
    switch (dtype) {
    case IK_F32: case IK_F16: case IK_BF16: return (type){ sizeof(float), strip_f32, tasks_f32, few_rows_f32 };
    case IK_F64: return (type){ sizeof(double), strip_f64, tasks_f64, few_rows_f64 };
    case IK_I64: case IK_U64: return (type){ sizeof(uint64_t), strip_u64, tasks_u64, NULL };
    default: return (type){ sizeof(uint32_t), strip_u32, tasks_u32, NULL };
    }
}

static ik_product product_of(const ik_plan *plan, void *const *data)
{
    ik_product g = ik_product_of(plan, data);
    type t = type_of(g.y.dtype);
    if (t.few_rows == NULL || !ik_cut_few(&g, t.size))
        ik_cut(&g, t.size, IK_TILE_ROWS, t.strip, 1);
    return g;
}

IK_WORKSPACE(gemm)
{
    ik_product g = product_of(plan, NULL);
    return ik_product_workspace(&g);
}

IK_KERNEL(gemm)
{
    IK_UNUSED;
    ik_product g = product_of(plan, data);
    g.workspace = workspace;
    type t = type_of(g.y.dtype);
    if (g.m != 0 && g.n != 0)
        ik_parallel_for(ik_tasks(&g), ik_task_grain(&g), g.few ? t.few_rows : t.tasks, &g);
    return IK_SUCCESS;
}
