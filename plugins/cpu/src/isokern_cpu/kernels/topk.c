/* topk along the last dim: a heap of the k largest passes along a row, and is sorted at its end. */
#ifndef IK_T
#include "select.h"
#include "operators/topk.h"

typedef struct job {
    const ik_tensor *ty, *ti, *tx;
    char *y, *heaps;
    int64_t *indices;
    const char *x;
    int64_t rows, d, k, size, heap_bytes;
} job;

/* Write result number `at` of a row. */
static void put(const job *j, int64_t row, int64_t at, int64_t index)
{
    const char *x = j->x + (ik_row_offset(j->tx, row, 1) + index * j->tx->strides[j->tx->ndim - 1]) * j->size;
    memcpy(j->y + (ik_row_offset(j->ty, row, 1) + at * j->ty->strides[j->ty->ndim - 1]) * j->size, x, (size_t)j->size);
    j->indices[ik_row_offset(j->ti, row, 1) + at * j->ti->strides[j->ti->ndim - 1]] = index;
}

/* Number of heaps: one per worker, or one per row where there are fewer. */
static int64_t heaps(const job *j) { return ik_min(j->rows, ik_threads()); }
static void *heap_of(const job *j, int64_t row, int32_t worker)
{ return j->heaps + (j->rows <= ik_threads() ? row : worker) * j->heap_bytes; }

#define IK_FILE "topk.c"
#define IK_TYPES (IK_EACH_U32 | IK_EACH_U64)
#include "each_type.h"

static bool set_up(const ik_plan *plan, job *j)
{
    const ik_topk_attrs *attrs = plan->attrs;
    const ik_tensor *x = &plan->tensors[IK_TOPK_X];
    *j = (job){ .ty = &plan->tensors[IK_TOPK_Y],
        .ti = &plan->tensors[IK_TOPK_INDICES],
        .tx = x,
        .d = x->shape[x->ndim - 1],
        .k = attrs->k };
    j->rows = j->d == 0 ? 0 : ik_numel(x) / j->d;
    j->size = ik_itemsize(x->dtype);
    j->heap_bytes = ik_round_up(
        (uint64_t)j->k * (ik_needs_wide_keys(x) ? sizeof(ik_entry_u64) : sizeof(ik_entry_u32)), IK_ALIGNMENT);
    return j->rows > 0 && j->k > 0;
}

IK_WORKSPACE(topk)
{
    job j;
    return set_up(plan, &j) ? (uint64_t)(heaps(&j) * j.heap_bytes) : 0;
}

IK_KERNEL(topk)
{
    IK_UNUSED;
    job j;
    if (!set_up(plan, &j))
        return IK_SUCCESS;
    j.y = ik_ptr(plan, data, IK_TOPK_Y);
    j.indices = ik_ptr(plan, data, IK_TOPK_INDICES);
    j.x = ik_ptr(plan, data, IK_TOPK_X);
    j.heaps = workspace;
    ik_parallel_for(j.rows, IK_THREAD_BYTES / (j.d * j.size), ik_needs_wide_keys(j.tx) ? rows_u64 : rows_u32, &j);
    return IK_SUCCESS;
}

#else

static void IK_OF(rows)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    const job *j = context;
    IK_T keys[IK_TILE] IK_ALIGNED;
    int64_t stride = j->tx->strides[j->tx->ndim - 1];
    for (int64_t row = begin; row < end; row++) {
        IK_OF(ik_entry) *heap = heap_of(j, row, worker);
        const char *x = j->x + ik_row_offset(j->tx, row, 1) * j->size;
        for (int64_t at = 0; at < j->d; at += IK_TILE) {
            int64_t n = ik_min(j->d - at, IK_TILE);
            IK_OF(ik_keys)(j->tx->dtype, x + at * stride * j->size, stride, n, keys);
            IK_OF(ik_offer)(heap, j->k, keys, n, at);
        }
        IK_OF(ik_sort_heap)(heap, j->k);
        for (int64_t i = 0; i < j->k; i++)
            put(j, row, i, IK_OF(ik_index_of)(heap[i]));
    }
}

#endif
