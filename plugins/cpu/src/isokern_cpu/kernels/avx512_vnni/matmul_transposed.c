/* Integer dot products by vpdpbusd (block_dots.h). */
#include "matmul_rows.h"

IK_SUPPORTED(matmul_transposed)
{
    const ik_matmul_transposed_attrs *attrs = plan->attrs;
    const bool quantised = is_dots(plan) && attrs->activation == IK_MATMUL_TRANSPOSED_Q8_0;
    return quantised ? NULL : "only activation=q8_0 is made of integers";
}

IK_WORKSPACE(matmul_transposed) { return dots_workspace(plan); }

IK_KERNEL(matmul_transposed)
{
    IK_UNUSED;
    return run_dots(plan, data, workspace);
}
