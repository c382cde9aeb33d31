/* gather: y[p, i, q] = x[p, indices[i], q], for index groups p (before the axis), i (all of indices) and q (after the
 * axis).
 *
 * A negative index counts from the end. For an index out of range zeros are written, and the first such index is
 * reported at the end. */
#include <stdatomic.h>

#include "move.h"
#include "operators/gather.h"

/* A group of dims; steps in bytes. */
typedef struct group {
    int32_t ndim;
    int64_t count, shape[IK_MAX_RANK], ys[IK_MAX_RANK], xs[IK_MAX_RANK];
} group;

typedef struct job {
    char *y;
    const char *x, *indices;
    int32_t dtype; /* dtype of the indices */
    int64_t rows, row_step; /* size and step of x along the axis */
    group before, index;    /* xs of `index` are steps in indices */
    ik_block slice, zeros;  /* copies y[p, i, :] from x[p, row, :], and from zeros */
    bool stream;
    _Atomic int64_t first_bad; /* position in indices of the first index out of range */
} job;

static const char zero[16];

static int64_t index_at(const job *j, const char *at) { return ik_index_at(j->dtype, at, 0); }

static void add_dim(group *g, int64_t n, int64_t ys, int64_t xs)
{
    int32_t at = g->ndim - 1;
    g->count *= n;
    if (at >= 0 && g->ys[at] == ys * n && g->xs[at] == xs * n)
        g->shape[at] *= n, g->ys[at] = ys, g->xs[at] = xs;
    else if (n != 1 || at < 0)
        g->shape[g->ndim] = n, g->ys[g->ndim] = ys, g->xs[g->ndim++] = xs;
}

/* Offsets of element `at` of a group. */
static void offsets(const group *g, int64_t at, int64_t *y, int64_t *x)
{
    for (int32_t d = g->ndim - 1; d >= 0; d--) {
        int64_t i = d == 0 ? at : at % g->shape[d];
        at = d == 0 ? 0 : at / g->shape[d];
        *y += i * g->ys[d], *x += i * g->xs[d];
    }
}

/* The row that an index selects, or -1; records the lowest position of an index out of range. */
static inline int64_t row_of(job *j, const char *at, int64_t position)
{
    int64_t row = index_at(j, at);
    row += row < 0 ? j->rows : 0;
    if (row >= 0 && row < j->rows)
        return row;
    int64_t seen = atomic_load(&j->first_bad);
    while (position < seen && !atomic_compare_exchange_weak(&j->first_bad, &seen, position))
        ;
    return -1;
}

/* Gather n single elements: a table of scalars, or the last axis. */
static inline __attribute__((always_inline)) void pick_elements(int64_t size, job *j, int64_t n, int64_t position,
    char *y, int64_t ys, const char *x, const char *indices, int64_t step)
{
    for (int64_t k = 0; k < n; k++) {
        int64_t row = row_of(j, indices + k * step, position + k);
        memcpy(y + k * ys, row < 0 ? zero : x + row * j->row_step, (size_t)size);
    }
}

/* Gather n slices. */
static void pick_slices(
    job *j, int64_t n, int64_t position, char *y, int64_t ys, const char *x, const char *indices, int64_t step)
{
    const ik_block *s = &j->slice;
    bool runs = s->ndim == 1 && s->ys[0] == s->size && s->xs[0] == s->size && s->shape[0] * s->size >= 64;
    for (int64_t k = 0; k < n; k++) {
        int64_t row = row_of(j, indices + k * step, position + k);
        if (runs && row >= 0) {
            int64_t next = k + 1 < n ? index_at(j, indices + (k + 1) * step) : row;
            next += next < 0 ? j->rows : 0;
            ik_copy_and_prefetch(y + k * ys, x + row * j->row_step, s->shape[0] * s->size,
                x + (next >= 0 && next < j->rows ? next : row) * j->row_step, j->stream);
            continue;
        }
        if (s->ndim == 1 && row >= 0) {
            ik_move_line(s->size, s->shape[0], y + k * ys, s->ys[0], x + row * j->row_step, s->xs[0], j->stream);
            continue;
        }
        ik_block part = row < 0 ? j->zeros : *s;
        part.y = y + k * ys;
        part.x = row < 0 ? zero : x + row * j->row_step;
        ik_move_here(&part);
    }
}

/* Gather elements or slices begin to end, counted over (p, i). */
static void gather(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    job *j = context;
    const ik_block *s = &j->slice;
    int64_t run_length = j->index.shape[j->index.ndim - 1], ys = j->index.ys[j->index.ndim - 1],
            step = j->index.xs[j->index.ndim - 1];
    for (int64_t at = begin; at < end;) {
        int64_t position = at % j->index.count, n = ik_min(end - at, run_length - position % run_length), yo = 0,
                xo = 0, io = 0;
        offsets(&j->before, at / j->index.count, &yo, &xo);
        offsets(&j->index, position, &yo, &io);
        char *y = s->y + yo;
        const char *x = s->x + xo, *indices = j->indices + io;
        if (s->count != 1)
            pick_slices(j, n, position, y, ys, x, indices, step);
        else
            switch (s->size) {
            case 1: pick_elements(1, j, n, position, y, ys, x, indices, step); break;
            case 2: pick_elements(2, j, n, position, y, ys, x, indices, step); break;
            case 4: pick_elements(4, j, n, position, y, ys, x, indices, step); break;
            case 8: pick_elements(8, j, n, position, y, ys, x, indices, step); break;
            default: pick_elements(16, j, n, position, y, ys, x, indices, step);
            }
        at += n;
    }
    if (j->stream)
        ik_stream_fence();
}

IK_KERNEL(gather)
{
    IK_UNUSED;
    const ik_tensor *y = &plan->tensors[IK_GATHER_Y], *x = &plan->tensors[IK_GATHER_X],
                    *indices = &plan->tensors[IK_GATHER_INDICES];
    const ik_gather_attrs *attrs = plan->attrs;
    int32_t axis = (int32_t)(attrs->axis + (attrs->axis < 0 ? x->ndim : 0)), after = axis + indices->ndim;
    int64_t size = ik_itemsize(y->dtype), index_size = ik_itemsize(indices->dtype);
    job j = {
        .dtype = indices->dtype, .rows = x->shape[axis], .row_step = x->strides[axis] * size, .first_bad = INT64_MAX
    };
    j.indices = ik_ptr(plan, data, IK_GATHER_INDICES);
    j.before.count = j.index.count = 1;
    for (int32_t i = 0; i < axis; i++)
        add_dim(&j.before, y->shape[i], y->strides[i] * size, x->strides[i] * size);
    for (int32_t i = 0; i < indices->ndim; i++)
        add_dim(&j.index, indices->shape[i], y->strides[axis + i] * size, indices->strides[i] * index_size);
    if (j.index.ndim == 0)
        j.index.ndim = 1, j.index.shape[0] = 1;
    j.slice = ik_block_of(size, y->ndim - after, y->shape + after, ik_ptr(plan, data, IK_GATHER_Y), y->strides + after,
        ik_ptr(plan, data, IK_GATHER_X), x->strides + axis + 1);
    j.zeros = j.slice;
    j.zeros.transposed = j.zeros.stream = false;
    memset(j.zeros.xs, 0, sizeof j.zeros.xs);
    int64_t picks = j.before.count * j.index.count, bytes = j.slice.count * j.slice.size, last = j.slice.ndim - 1;
    bool whole_lines = j.slice.whole_lines;
    for (int32_t i = 0; i < after; i++)
        whole_lines &= y->strides[i] * size % 64 == 0;
    j.stream = picks * bytes >= IK_STREAM_BYTES && last == 0 && j.slice.ys[last] == j.slice.size
        && (whole_lines || bytes >= 1024);
    if (picks * bytes == 0 && j.slice.count != 0)
        return IK_SUCCESS;
    ik_parallel_for(picks, ik_max(1, IK_THREAD_BYTES / ik_max(bytes, 1)), gather, &j);
    int64_t bad = atomic_load(&j.first_bad), unused = 0, at = 0;
    if (bad == INT64_MAX)
        return IK_SUCCESS;
    offsets(&j.index, bad, &unused, &at);
    return ik_bad_value(bad, index_at(&j, j.indices + at));
}
