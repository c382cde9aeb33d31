/* A product by prepacked panels, as a plan of matmul_transposed or linear_mixed has it: rows of x are converted, then
 * the panels are computed, each with all rows. */
#ifndef IK_PANEL_PRODUCT_H
#define IK_PANEL_PRODUCT_H
#include "panel_dots.h"

#if defined(IK_PANELS)
static uint64_t panels_workspace(panel_job s)
{ return (uint64_t)(s.rows * s.converted_bytes + ik_threads() * ik_round_up(4 * s.k, 64)); }

static ik_status run_panels(
    const ik_plan *plan, void *const *data, void *workspace, panel_job s, ik_task *convert, ik_task *tasks)
{
    if (s.m == 0)
        return IK_SUCCESS;
    s.y = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_Y);
    s.x = ik_ptr(plan, data, IK_MATMUL_TRANSPOSED_X);
    s.w = data[IK_MATMUL_TRANSPOSED_W];
    s.finish = epilogue_of(plan, data);
    s.direct = is_rows(s.ty) && s.finish.bias == NULL && s.finish.activation == IK_LINEAR_MIXED_NONE
        && (s.finish.c == NULL || is_rows(s.finish.tc));
    s.thread_scratch = workspace;
    s.converted = s.thread_scratch + ik_threads() * ik_round_up(4 * s.k, 64);
    ik_parallel_for(s.rows, DOT_BYTES / (4 * ik_max(1, s.k)), convert, &s);
    ik_parallel_for(
        ik_ceil_div(s.n, LANES), ik_max(1, DOT_BYTES / ik_max(1, panel_bytes(s.dtype, s.k) * s.m)), tasks, &s);
    return IK_SUCCESS;
}
#endif
#endif
