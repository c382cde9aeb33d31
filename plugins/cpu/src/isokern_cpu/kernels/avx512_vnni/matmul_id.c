/* The integer dot products of experts by vpdpbusd, with rows of blocks in place (block_dots.h) or prepacked panels of
 * rows (expert_panels.h). */
#include "expert_panels.h"

static uint64_t product_workspace(const ik_plan *plan) { return dots_workspace(plan); }

static ik_status multiply_product(const ik_plan *plan, void *const *data, void *workspace)
{ return run_dots(plan, data, workspace); }

IK_SUPPORTED(matmul_id) { return are_quantised(plan) ? NULL : "only x that becomes Q8_0 is made of integers"; }

IK_PACKED_LAYOUT(matmul_id) { return panels_of(plan, tensor, bytes); }

IK_PACK(matmul_id)
{
    (void)stream, (void)tensor;
    return pack_weights(plan, from, to);
}

IK_WORKSPACE(matmul_id)
{
    const experts e = experts_of(plan);
    return (e.prepacked ? waves_workspace(&e, job_of_experts(&e, panel_job_of)) : products_workspace(&e))
        + (uint64_t)(sorting_bytes(&e) + e.x_bytes + e.y_bytes);
}

IK_KERNEL(matmul_id)
{
    IK_UNUSED;
    experts e = experts_of(plan);
    set_data(&e, plan, data, workspace);
    const int64_t bad = sort_pairs(&e);
    if (e.prepacked)
        run_waves(&e, job_of_experts(&e, panel_job_of), e.pairs, quantise_panel_x, panel_tasks);
    const ik_status status = e.prepacked ? IK_SUCCESS : multiply_each(&e, 0);
    return status == IK_SUCCESS ? clear_unknown(&e, bad) : status;
}
