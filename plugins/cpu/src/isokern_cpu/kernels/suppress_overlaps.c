/* suppress_overlaps: of boxes in the order of their scores, those that no better one overlaps; a task is a group. This
 * file includes itself, for float and for double.
 *
 * The corners and areas of a group's boxes lie in the worker's scratch as five runs, and the flags behind them. */
#ifndef IK_T
#include "convert.h"
#include "operators/suppress_overlaps.h"

enum { RUNS = 5 };

typedef struct job {
    const ik_tensor *tkeep, *tboxes, *tvalid;
    char *keep, *scratch;
    const char *boxes, *valid;
    int64_t n, limit, scratch_bytes;
    double threshold;
} job;

static int64_t scratch_bytes(const ik_plan *plan)
{
    const int64_t n = plan->tensors[IK_SUPPRESS_OVERLAPS_KEEP].shape[1],
                  size = plan->tensors[IK_SUPPRESS_OVERLAPS_BOXES].dtype == IK_F64 ? 8 : 4;
    return ik_round_up(n * (RUNS * size + 1), 64);
}

#define IK_FILE "suppress_overlaps.c"
#include "each_type.h"

IK_WORKSPACE(suppress_overlaps) { return (uint64_t)(ik_threads() * scratch_bytes(plan)); }

IK_KERNEL(suppress_overlaps)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    const ik_suppress_overlaps_attrs *attrs = plan->attrs;
    job j = { &t[IK_SUPPRESS_OVERLAPS_KEEP], &t[IK_SUPPRESS_OVERLAPS_BOXES], &t[IK_SUPPRESS_OVERLAPS_VALID],
        ik_ptr(plan, data, IK_SUPPRESS_OVERLAPS_KEEP), workspace, ik_ptr(plan, data, IK_SUPPRESS_OVERLAPS_BOXES),
        ik_ptr(plan, data, IK_SUPPRESS_OVERLAPS_VALID), t[IK_SUPPRESS_OVERLAPS_KEEP].shape[1],
        attrs->limit == 0 ? INT64_MAX : attrs->limit, scratch_bytes(plan), attrs->iou_threshold };
    ik_parallel_for(j.n == 0 ? 0 : j.tkeep->shape[0], 1 + IK_THREAD_BYTES / (1 + j.n * (j.n + 8)),
        j.tboxes->dtype == IK_F64 ? groups_f64 : groups_f32, &j);
    return IK_SUCCESS;
}

#else

static IK_T IK_OF(shared_side)(IK_T a0, IK_T a1, IK_T b0, IK_T b1)
{
    const IK_T side = (a1 < b1 ? a1 : b1) - (a0 > b0 ? a0 : b0);
    return side > 0 ? side : 0;
}

/* Clear the flags of boxes [i + 1, n) that box i overlaps. */
static void IK_OF(suppress)(const IK_T *const box[RUNS], IK_T threshold, int64_t i, int64_t n, uint8_t *keep)
{
    const IK_T a0 = box[0][i], a1 = box[1][i], b0 = box[2][i], b1 = box[3][i], area = box[4][i];
    for (int64_t k = i + 1; k < n; k++) {
        const IK_T shared =
            IK_OF(shared_side)(a0, b0, box[0][k], box[2][k]) * IK_OF(shared_side)(a1, b1, box[1][k], box[3][k]);
        const IK_T total = area + box[4][k];
        keep[k] = (uint8_t)(keep[k] & !(shared / (total - shared) > threshold));
    }
}

static void IK_OF(groups)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    IK_T *const space = (IK_T *)(void *)(j->scratch + worker * j->scratch_bytes), *box[RUNS];
    for (int r = 0; r < RUNS; r++)
        box[r] = space + r * j->n;
    const IK_T *const given[RUNS] = { box[0], box[1], box[2], box[3], box[4] };
    uint8_t *const keep = (uint8_t *)(space + RUNS * j->n);
    const int64_t size = ik_itemsize(j->tboxes->dtype);
    for (int64_t group = begin; group < end; group++) {
        for (int r = 0; r < 4; r++) {
            const char *from = j->boxes + (group * j->tboxes->strides[0] + r * j->tboxes->strides[2]) * size;
            if (j->tboxes->dtype == IK_F64)
                ik_load_f64(from, j->tboxes->strides[1], j->n, (double *)(void *)box[r]);
            else
                ik_load_f32(j->tboxes->dtype, from, j->tboxes->strides[1], j->n, (float *)(void *)box[r]);
        }
        for (int64_t i = 0; i < j->n; i++) {
            box[4][i] = (box[2][i] - box[0][i]) * (box[3][i] - box[1][i]);
            keep[i] = j->valid[group * j->tvalid->strides[0] + i * j->tvalid->strides[1]] != 0;
        }
        int64_t left = j->limit;
        for (int64_t i = 0; i < j->n; i++) {
            keep[i] = keep[i] && left > 0;
            if (keep[i]) {
                IK_OF(suppress)(given, (IK_T)j->threshold, i, j->n, keep);
                left--;
            }
            j->keep[group * j->tkeep->strides[0] + i * j->tkeep->strides[1]] = (char)keep[i];
        }
    }
}

#endif
