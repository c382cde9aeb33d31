/* matmul_id: y[i, t] = w[ids[i, t]] x[i, t], the products of rows with the weights of their experts.
 *
 * The pairs (i, t) are counted and sorted by expert. Prepacked weights meet the rows of all experts at once
 * (expert_panels.h), but for the experts of which many rows are floats. Those, and weights as they are, meet one
 * expert's rows after the other's, as products of their own (experts.h).
 *
 * An id that names no expert gives zeros, and the first such id is reported at the end. */
#include "packed_products.h"
#include "expert_panels.h"

#if defined(IK_PANELS)
static uint64_t panels_of_experts_workspace(const experts *e)
{ return waves_workspace(e, job_of_experts(e, e->quantised ? panel_job_of : float_job_of)); }

/* Compute the rows of experts that meet panels in place; return how many rows of an expert these are at most. */
static int64_t multiply_panels_of_experts(const experts *e)
{
    if (e->quantised)
        run_waves(e, job_of_experts(e, panel_job_of), e->pairs, quantise_panel_x, panel_tasks);
    else
        run_waves(e, job_of_experts(e, float_job_of), SKINNY_ROWS, widen_panel_x, panel_sum_tasks);
    return e->quantised ? e->pairs : SKINNY_ROWS;
}
#else
static uint64_t panels_of_experts_workspace(const experts *e) { return (void)e, 0; }
static int64_t multiply_panels_of_experts(const experts *e) { return (void)e, 0; }
#endif

IK_PACKED_LAYOUT(matmul_id) { return panels_of(plan, tensor, bytes); }

IK_PACK(matmul_id)
{
    (void)stream, (void)tensor;
    return pack_weights(plan, from, to);
}

IK_WORKSPACE(matmul_id)
{
    const experts e = experts_of(plan);
    uint64_t own = e.prepacked ? panels_of_experts_workspace(&e) : 0;
    if (!e.prepacked || !e.quantised) {
        const uint64_t products = products_workspace(&e);
        own = products > own ? products : own;
    }
    return own + (uint64_t)(sorting_bytes(&e) + e.x_bytes + e.y_bytes);
}

IK_KERNEL(matmul_id)
{
    IK_UNUSED;
    experts e = experts_of(plan);
    set_data(&e, plan, data, workspace);
    const int64_t bad = sort_pairs(&e), few = e.prepacked ? multiply_panels_of_experts(&e) : 0;
    const ik_status status = multiply_each(&e, few);
    return status == IK_SUCCESS ? clear_unknown(&e, bad) : status;
}
