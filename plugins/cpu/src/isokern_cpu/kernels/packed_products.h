/* Products with weights as they are (matmul_weights.h) or, where vectors have instructions for bytes, in prepacked
 * panels: few rows of x meet them in place, many rows of floats by the loops of gemm. */
#ifndef IK_PACKED_PRODUCTS_H
#define IK_PACKED_PRODUCTS_H
#include "matmul_weights.h"
#include "panel_floats.h"
#include "panel_product.h"

#if defined(IK_PANELS)
_Static_assert((int)PANEL_WIDTH == (int)GEMM_WIDTH, "pack_prepacked packs panels of gemm");

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
static const char *panels_of(const ik_plan *plan, uint32_t tensor, uint64_t *bytes)
{ return (void)plan, (void)tensor, (void)bytes, NULL; }
static ik_status pack_weights(const ik_plan *plan, const void *from, void *to)
{ return (void)plan, (void)from, (void)to, IK_SUCCESS; }
static uint64_t prepacked_workspace(const ik_plan *plan) { return (void)plan, 0; }
static ik_status multiply_prepacked(const ik_plan *plan, void *const *data, void *workspace)
{ return (void)plan, (void)data, (void)workspace, IK_NOT_IMPLEMENTED; }
#endif

static uint64_t product_workspace(const ik_plan *plan)
{ return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? prepacked_workspace(plan) : weights_workspace(plan); }

static ik_status multiply_product(const ik_plan *plan, void *const *data, void *workspace)
{
    return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? multiply_prepacked(plan, data, workspace)
                                                         : multiply_weights(plan, data, workspace);
}

#endif
