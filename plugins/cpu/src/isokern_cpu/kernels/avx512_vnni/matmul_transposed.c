/* Integer dot products by vpdpbusd, with rows of blocks in place (block_dots.h) or prepacked panels of rows
 * (panel_product.h). */
#include "panel_product.h"

IK_SUPPORTED(matmul_transposed) { return is_quantised(plan) ? NULL : "only x that becomes Q8_0 is made of integers"; }

IK_PACKED_LAYOUT(matmul_transposed) { return panels_of(plan, tensor, bytes); }

IK_PACK(matmul_transposed)
{
    (void)stream, (void)tensor;
    return pack_weights(plan, from, to);
}

IK_WORKSPACE(matmul_transposed)
{ return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? panels_workspace(panel_job_of(plan)) : dots_workspace(plan); }

IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W)
        ? run_panels(plan, data, workspace, panel_job_of(plan), quantise_panel_x, panel_tasks)
        : run_dots(plan, data, workspace);
}
