/* scatter: y = x, then y[p, indices[i], q] becomes updates[p, i, q], or is combined with it, for each i in order; for
 * dims p before the axis, i of the indices and q after the axis.
 *
 * Each task has one p and a part of the rows, reads all indices, and applies those of its rows: the order of the
 * updates of a row does not depend on the number of threads. Rows of one element are in scatter_elements.h. A negative
 * index counts from the end. An index out of range is left out, and the first such index is reported at the end. This
 * file includes itself, for float, double, int64_t and uint64_t. */
#ifndef IK_T
#include <stdatomic.h>

#include "move.h"
#include "walk.h"
#include "operators/scatter.h"

typedef struct job {
    const ik_tensor *ty, *tu, *ti;
    char *y;
    const char *updates, *indices;
    int32_t axis, compute, reduction;
    int64_t rows, count, parts, size; /* count: of indices; size: bytes of an element */
    int64_t width, shape[IK_MAX_RANK], y_steps[IK_MAX_RANK], u_steps[IK_MAX_RANK]; /* the dims q, merged */
    ik_lanes ly, lu; /* a slice of y and of the updates */
    ik_block slice;  /* copies one onto the other */
    bool counted;    /* updates are added up in lists: `parts` is how many for a p */
    void *lists;
    _Atomic bool bad; /* an index is out of range */
} job;

enum { MAX_LIST = 1 << 15, MIN_LISTED = 1 << 13 }; /* rows of a list, and updates for each that are worth it */

/* Offset in elements of element `at` of dims [first, end). */
static int64_t offset_within(const ik_tensor *t, int32_t first, int32_t end, int64_t at)
{
    int64_t offset = 0;
    for (int32_t d = end - 1; d >= first; d--) {
        offset += (d == first ? at : at % t->shape[d]) * t->strides[d];
        at = d == first ? 0 : at / t->shape[d];
    }
    return offset;
}

static int64_t index_at(const job *j, int64_t i)
{ return ik_index_at(j->ti->dtype, j->indices, offset_within(j->ti, 0, j->ti->ndim, i)); }

/* The row that index i names, or -1. */
static inline int64_t row_of(const job *j, int64_t i)
{
    int64_t row = index_at(j, i);
    row += row < 0 ? j->rows : 0;
    return row >= 0 && row < j->rows ? row : -1;
}

/* List the rows of indices at .. at + n, counted from `first`; -1 for any that is not one of `rows` rows. */
static void list_rows(job *j, int64_t at, int64_t n, int64_t first, int64_t rows, int64_t *row)
{
    const ik_lanes l = ik_lanes_of(j->ti, ik_compute_of(j->ti->dtype), 0, j->ti->ndim);
    const int64_t all = j->rows;
    ik_lanes_load(&l, j->indices, at, n, row);
    int64_t bad = 0;
    IK_VECTORISE for (int64_t k = 0; k < n; k++) {
        const int64_t found = row[k] + (row[k] < 0 ? all : 0), own = found - first;
        bad |= found < 0 || found >= all;
        row[k] = own >= 0 && own < rows ? own : -1;
    }
    if (bad)
        atomic_store(&j->bad, true);
}

#define IK_FILE "scatter.c"
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64 | IK_EACH_I64 | IK_EACH_U64)
#include "each_type.h"

static void combine(const job *j, int64_t n, void *y, const void *u)
{
    switch (j->compute) {
    case IK_F32: combine_f32(j->reduction, n, y, u); return;
    case IK_F64: combine_f64(j->reduction, n, y, u); return;
    case IK_I64: combine_i64(j->reduction, n, y, u); return;
    default: combine_u64(j->reduction, n, y, u);
    }
}

static void combine_slice(const job *j, char *y, const char *u)
{
    double kept[IK_TILE], given[IK_TILE]; /* of any compute type */
    for (int64_t at = 0; at < j->width; at += IK_TILE) {
        const int64_t n = ik_min(IK_TILE, j->width - at);
        void *to = ik_lanes_in_place(&j->ly, y, at, n);
        const void *from = ik_lanes_in_place(&j->lu, (char *)(uintptr_t)u, at, n);
        if (from == NULL)
            ik_lanes_load(&j->lu, u, at, n, given);
        if (to != NULL) {
            combine(j, n, to, from != NULL ? from : given);
            continue;
        }
        ik_lanes_load(&j->ly, y, at, n, kept);
        combine(j, n, kept, from != NULL ? from : given);
        ik_lanes_store(&j->ly, y, at, n, kept);
    }
}

static void write_slice(const job *j, char *y, const char *u)
{
    ik_block part = j->slice;
    part.y = y + (j->slice.y - j->y);
    part.x = u + (j->slice.x - j->updates);
    ik_move_here(&part);
}

/* Apply the updates of tasks begin to end, counted over (p, parts of the rows). */
static void scatter(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    for (int64_t task = begin; task < end; task++) {
        const int64_t p = task / j->parts, part = task % j->parts, each = ik_ceil_div(j->rows, j->parts),
                      first = part * each, last = ik_min(j->rows, first + each);
        char *y = j->y + offset_within(j->ty, 0, j->axis, p) * j->size;
        const char *updates = j->updates + offset_within(j->tu, 0, j->axis, p) * j->size;
        for (int64_t i = 0; i < j->count; i++) {
            const int64_t row = row_of(j, i);
            if (row < first || row >= last)
                continue;
            char *to = y + row * j->ty->strides[j->axis] * j->size;
            const char *u = updates + offset_within(j->tu, j->axis, j->axis + j->ti->ndim, i) * j->size;
            if (j->reduction == IK_SCATTER_NONE && j->width == 1)
                memcpy(to, u, (size_t)j->size);
            else if (j->reduction == IK_SCATTER_NONE)
                write_slice(j, to, u);
            else if (j->width == 1 && j->ty->dtype == j->compute)
                combine(j, 1, to, u);
            else
                combine_slice(j, to, u);
        }
    }
}

/* Describe the slices, with dims along which both step together merged. */
static void set_slices(job *j)
{
    int32_t n = 0;
    for (int32_t d = j->axis + 1; d < j->ty->ndim; d++) {
        const int64_t length = j->ty->shape[d], ys = j->ty->strides[d], us = j->tu->strides[d - 1 + j->ti->ndim];
        if (length == 1)
            continue;
        if (n > 0 && j->y_steps[n - 1] == ys * length && j->u_steps[n - 1] == us * length)
            n--, j->shape[n] *= length;
        else
            j->shape[n] = length;
        j->y_steps[n] = ys, j->u_steps[n++] = us;
    }
    if (n == 0)
        n = 1, j->shape[0] = j->y_steps[0] = j->u_steps[0] = 1;
    ik_tensor t = *j->ty;
    t.ndim = n;
    memcpy(t.shape, j->shape, sizeof j->shape);
    memcpy(t.strides, j->y_steps, sizeof j->y_steps);
    j->ly = ik_lanes_of(&t, j->compute, 0, n);
    memcpy(t.strides, j->u_steps, sizeof j->u_steps);
    j->lu = ik_lanes_of(&t, j->compute, 0, n);
    j->ly.shape = j->lu.shape = j->shape;
    j->ly.strides = j->y_steps, j->lu.strides = j->u_steps;
    j->slice = ik_block_of(j->size, n, j->shape, j->y, j->y_steps, j->updates, j->u_steps);
    j->slice.stream = false;
}

/* The loops for rows of one element, by the compute type. */
static ik_task *elements_of(const job *j)
{
    switch (j->compute) {
    case IK_F32: return j->counted ? count_elements_f32 : scatter_elements_f32;
    case IK_F64: return j->counted ? count_elements_f64 : scatter_elements_f64;
    case IK_I64: return j->counted ? count_elements_i64 : scatter_elements_i64;
    default: return j->counted ? count_elements_u64 : scatter_elements_u64;
    }
}

/* Describe the call, and choose its tasks; returns how many dims p there are. */
static int64_t set_up(const ik_plan *plan, job *j)
{
    const ik_tensor *tx = &plan->tensors[IK_SCATTER_X];
    const ik_scatter_attrs *attrs = plan->attrs;
    *j = (job){ .ty = &plan->tensors[IK_SCATTER_Y],
        .tu = &plan->tensors[IK_SCATTER_UPDATES],
        .ti = &plan->tensors[IK_SCATTER_INDICES],
        .reduction = (int32_t)attrs->reduction,
        .axis = (int32_t)(attrs->axis + (attrs->axis < 0 ? tx->ndim : 0)) };
    j->compute = ik_compute_of(j->ty->dtype);
    j->rows = tx->shape[j->axis];
    j->count = ik_numel(j->ti);
    j->size = ik_itemsize(j->ty->dtype);
    j->parts = j->width = 1;
    int64_t outer = 1;
    for (int32_t d = 0; d < j->axis; d++)
        outer *= tx->shape[d];
    for (int32_t d = j->axis + 1; d < tx->ndim; d++)
        j->width *= tx->shape[d];
    const int64_t threads = ik_threads();
    j->counted = j->width == 1 && j->reduction == IK_SCATTER_ADD && (j->compute == IK_I64 || j->compute == IK_U64)
        && j->rows <= MAX_LIST && j->count >= j->rows && j->count >= 1024 && outer > 0 && j->rows > 0;
    if (j->counted && outer < threads)
        j->parts = ik_max(1, ik_min(ik_ceil_div(threads, outer), j->count / ik_max(MIN_LISTED, 4 * j->rows)));
    else if (outer < threads
        && ik_numel(j->tu) * j->size > IK_THREAD_BYTES) /* each part of the rows reads all indices */
        j->parts = ik_max(1, ik_min(j->rows, threads));
    return outer;
}

IK_WORKSPACE(scatter)
{
    job j;
    const int64_t outer = set_up(plan, &j);
    return j.counted ? (uint64_t)((j.parts > 1 ? outer * j.parts : ik_threads()) * j.rows * 8) : 0;
}

IK_KERNEL(scatter)
{
    IK_UNUSED;
    const ik_tensor *tx = &plan->tensors[IK_SCATTER_X];
    job j;
    const int64_t outer = set_up(plan, &j), size = j.size;
    j.y = ik_ptr(plan, data, IK_SCATTER_Y);
    j.updates = ik_ptr(plan, data, IK_SCATTER_UPDATES);
    j.indices = ik_ptr(plan, data, IK_SCATTER_INDICES);
    j.lists = workspace;
    set_slices(&j);
    const char *x = ik_ptr(plan, data, IK_SCATTER_X);
    if (x != j.y) {
        ik_block copy = ik_block_of(size, tx->ndim, tx->shape, j.y, j.ty->strides, x, tx->strides);
        ik_move(&copy);
    }
    const bool elements =
        j.counted || (j.width == 1 && j.reduction != IK_SCATTER_NONE && j.ty->dtype == j.compute && j.count >= 16);
    if (ik_numel(j.tu) > 0 && j.rows > 0) {
        const int64_t bytes = j.count * j.width * size / j.parts + 1;
        ik_parallel_for(outer * j.parts, 1 + IK_THREAD_BYTES / bytes, elements ? elements_of(&j) : scatter, &j);
    }
    for (int64_t p = 0; j.counted && j.parts > 1 && p < outer; p++) {
        const int64_t *lists = (const int64_t *)j.lists + p * j.parts * j.rows;
        if (j.compute == IK_I64)
            add_lists_i64(&j, p, j.parts, lists);
        else
            add_lists_u64(&j, p, j.parts, (const uint64_t *)(const void *)lists);
    }
    for (int64_t i = 0; i < j.count && (!elements || j.bad); i++)
        if (row_of(&j, i) < 0)
            return ik_bad_value(i, index_at(&j, i));
    return IK_SUCCESS;
}

#else /* typed */

/* *b joins *a. A NaN stays, and of equal numbers a; sums and products of integers wrap. */
static inline __attribute__((always_inline)) IK_T IK_OF(joined)(const int32_t reduction, const IK_T *a, const IK_T *b)
{
    switch (reduction) {
    case IK_SCATTER_ADD: return *a + *b;
    case IK_SCATTER_MUL: return *a * *b;
    case IK_SCATTER_MIN: return b[0] < *a || b[0] != b[0] ? *b : *a;
    default: return b[0] > *a || b[0] != b[0] ? *b : *a;
    }
}

static void IK_OF(combine)(int32_t reduction, int64_t n, IK_T *y, const IK_T *u)
{
    switch (reduction) {
    case IK_SCATTER_ADD: IK_VECTORISE for (int64_t i = 0; i < n; i++) y[i] += u[i]; return;
    case IK_SCATTER_MUL: IK_VECTORISE for (int64_t i = 0; i < n; i++) y[i] *= u[i]; return;
    case IK_SCATTER_MIN:
        IK_VECTORISE for (int64_t i = 0; i < n; i++) y[i] = IK_OF(joined)(IK_SCATTER_MIN, y + i, u + i);
        return;
    default: IK_VECTORISE for (int64_t i = 0; i < n; i++) y[i] = IK_OF(joined)(IK_SCATTER_MAX, y + i, u + i);
    }
}

#include "scatter_elements.h"
#endif
