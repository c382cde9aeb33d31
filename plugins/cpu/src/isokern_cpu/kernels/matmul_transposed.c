/* matmul_transposed, linear_mixed and matmul_mixed: x wᵀ, the same with an epilogue, and x w, where the weights have
 * their own type (matmul_weights.h), as they are or, where vectors have instructions for bytes, in prepacked panels. */
#include "matmul_weights.h"
#include "panel_floats.h"

#if defined(IK_PANELS)
_Static_assert((int)PANEL_WIDTH == (int)GEMM_WIDTH, "pack_prepacked packs panels of gemm");

IK_PACKED_LAYOUT(matmul_transposed) { return panels_of(plan, tensor, bytes); }

IK_PACK(matmul_transposed)
{
    (void)stream, (void)tensor;
    return pack_weights(plan, from, to);
}

static uint64_t prepacked_workspace(const ik_plan *plan)
{
    return is_dots(plan) ? panels_workspace(is_quantised(plan) ? panel_job_of(plan) : float_job_of(plan))
                         : weights_workspace(plan);
}

static ik_status multiply_prepacked(const ik_plan *plan, void *const *data, void *workspace)
{
    if (is_dots(plan))
        return is_quantised(plan)
            ? run_panels(plan, data, workspace, panel_job_of(plan), quantise_panel_x, panel_tasks)
            : run_panels(plan, data, workspace, float_job_of(plan), widen_panel_x, panel_sum_tasks);
    ik_gemm_args g = args_of(plan, data);
    g.pack_b = pack_prepacked;
    g.b.at = data[IK_MATMUL_TRANSPOSED_W];
    return run_product(g, workspace);
}
#else
IK_PACKED_LAYOUT(matmul_transposed) { return (void)plan, (void)tensor, (void)bytes, NULL; }
IK_PACK(matmul_transposed) { return (void)plan, (void)tensor, (void)from, (void)to, (void)stream, IK_SUCCESS; }
static uint64_t prepacked_workspace(const ik_plan *plan) { return (void)plan, 0; }
static ik_status multiply_prepacked(const ik_plan *plan, void *const *data, void *workspace)
{ return (void)plan, (void)data, (void)workspace, IK_NOT_IMPLEMENTED; }
#endif

IK_WORKSPACE(matmul_transposed)
{ return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? prepacked_workspace(plan) : weights_workspace(plan); }

IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? multiply_prepacked(plan, data, workspace)
                                                         : multiply_weights(plan, data, workspace);
}
