/* Integer dot products by vpdpbusd, with rows of blocks in place (block_dots.h) or prepacked panels of rows
 * (row_panels.h). */
#include "row_panels.h"

IK_SUPPORTED(matmul_transposed) { return is_quantised(plan) ? NULL : "only x that becomes Q8_0 is made of integers"; }

IK_PACKED_LAYOUT(matmul_transposed)
{
    if (tensor != IK_MATMUL_TRANSPOSED_W || ik_is_layout(plan->tensors[tensor].dtype))
        return NULL;
    *bytes = packed_bytes(&plan->tensors[tensor]);
    return "panels of 16 rows";
}

IK_PACK(matmul_transposed)
{
    (void)stream;
    const ik_tensor *w = &plan->tensors[tensor];
    packing p = { w, (const char *)from + ik_bytes(w->dtype, w->offset), to };
    ik_parallel_for(ik_ceil_div(w->shape[0], PANEL_WIDTH), 1, pack_panels, &p);
    return IK_SUCCESS;
}

IK_WORKSPACE(matmul_transposed)
{ return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? panels_workspace(plan) : dots_workspace(plan); }

IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    return IK_IS_PREPACKED(plan, IK_MATMUL_TRANSPOSED_W) ? run_panels(plan, data, workspace)
                                                         : run_dots(plan, data, workspace);
}
