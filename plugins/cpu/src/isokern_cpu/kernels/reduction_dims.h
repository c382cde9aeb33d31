/* The dims of a reduction y[k] = f of x[k, r] over r, and how its work is divided; the kept dims k come before the
 * reduced dims r, along which y's strides are 0.
 *
 * Along memory ("rows") an output is the result of runs of x; across it ("columns") a row of accumulators meets one row
 * of x after the other. Long reductions with few outputs are cut into chunks, whose number depends on the shapes alone,
 * so that a result does not depend on the number of threads. */
#ifndef IK_REDUCTION_DIMS_H
#define IK_REDUCTION_DIMS_H
#include "convert.h"

enum { IK_FEW_OUTPUTS = 64, IK_ROW_CHUNK = 1 << 15, IK_COLUMN_CHUNK = 1 << 16, IK_COLUMN_ROWS = 256 };

typedef struct ik_reduction {
    int32_t kept, reduced;
    bool columns;
    int64_t outputs, length; /* length: elements for each output */
    int64_t shape[2][IK_MAX_RANK], step[2][IK_MAX_RANK], to[IK_MAX_RANK]; /* [0] kept, [1] reduced */
    int64_t columns_dim, column_step, column_to, group; /* the last kept dim; rows of x that are one run in memory */
    int64_t width, tiles, chunks, per_chunk, span; /* width: outputs of a tile; span: its accumulators */
} ik_reduction;

static inline int64_t ik_reduction_offset(int32_t dims, const int64_t *shape, const int64_t *step, int64_t index)
{
    int64_t offset = 0;
    for (int32_t i = dims - 1; i >= 0; i--) {
        offset += index % shape[i] * step[i];
        index /= shape[i];
    }
    return offset;
}

/* Offsets in elements of an output in y, and of its first element in x. */
static inline int64_t ik_reduction_y(const ik_reduction *d, int64_t output)
{ return ik_reduction_offset(d->kept, d->shape[0], d->to, output); }
static inline int64_t ik_reduction_x(const ik_reduction *d, int64_t output)
{ return ik_reduction_offset(d->kept, d->shape[0], d->step[0], output); }

/* A position in the reduced dims. */
typedef struct ik_reduction_place {
    int64_t index[IK_MAX_RANK], offset;
} ik_reduction_place;

static inline ik_reduction_place ik_reduction_at(const ik_reduction *d, int64_t at)
{
    ik_reduction_place p = { .offset = 0 };
    for (int32_t i = d->reduced - 1; i >= 0; i--) {
        p.index[i] = at % d->shape[1][i];
        at /= d->shape[1][i];
        p.offset += p.index[i] * d->step[1][i];
    }
    return p;
}

/* The number of elements left in the innermost dim. */
static inline int64_t ik_reduction_left(const ik_reduction *d, const ik_reduction_place *p)
{ return d->shape[1][d->reduced - 1] - p->index[d->reduced - 1]; }

/* Advance by n elements, at most to the end of the innermost dim. */
static inline void ik_reduction_advance(const ik_reduction *d, ik_reduction_place *p, int64_t n)
{
    int32_t i = d->reduced - 1;
    p->index[i] += n;
    p->offset += n * d->step[1][i];
    for (; i > 0 && p->index[i] == d->shape[1][i]; i--) {
        p->offset += d->step[1][i - 1] - p->index[i] * d->step[1][i];
        p->index[i] = 0;
        p->index[i - 1]++;
    }
}

/* Fetches n elements of a kernel's x in its compute type, in place or into the scratch memory. */
typedef const void *ik_reduction_fetch(const void *job, const char *from, int64_t step, int64_t n, void *scratch);

/* Fetch the next elements of an output, of `size` bytes in memory and `wide` in the compute type, and advance: a long
 * run, or the last, by itself, at most `longest` of it, and short ones together, up to IK_TILE elements; never more
 * than `left`. */
static inline __attribute__((always_inline)) const void *ik_reduction_next(const ik_reduction *d, ik_reduction_place *p,
    const char *x, int64_t size, int64_t wide, int64_t left, int64_t longest, ik_reduction_fetch *fetch,
    const void *job, char *scratch, int64_t *count)
{
    const int64_t step = d->step[1][d->reduced - 1], n = ik_min(left, ik_reduction_left(d, p));
    if (step == 1 && (n >= IK_TILE / 4 || n == left)) {
        const char *from = x + p->offset * size;
        *count = ik_min(n, longest);
        ik_reduction_advance(d, p, *count);
        return fetch(job, from, 1, *count, scratch);
    }
    int64_t filled = 0;
    while (filled < ik_min(left, IK_TILE)) {
        const int64_t run = ik_min(ik_min(left, IK_TILE) - filled, ik_reduction_left(d, p));
        char *to = scratch + filled * wide;
        const void *values = fetch(job, x + p->offset * size, step, run, to);
        if (values != to)
            memcpy(to, values, (size_t)(run * wide));
        filled += run;
        ik_reduction_advance(d, p, run);
    }
    *count = filled;
    return scratch;
}

/* Divide the reduction of tensor 1 of a plan to tensor 0: at most `width` outputs are in a tile of columns, narrow rows
 * are joined to runs of up to `narrow` elements, and runs shorter than `brief` are columns, too. False where there is
 * no output. */
static inline bool ik_reduction_of(const ik_plan *plan, int64_t width, int64_t narrow, int64_t brief, ik_reduction *d)
{
    const ik_tensor *y = &plan->tensors[0], *x = &plan->tensors[1];
    *d = (ik_reduction){ .outputs = 1, .length = 1, .group = 1, .chunks = 1, .width = width };
    int32_t column = -1; /* the kept dim with the smallest step goes last */
    for (int32_t i = 0; i < x->ndim && y->strides[i] != 0; i++)
        if (column < 0 || x->shape[column] == 1
            || (x->shape[i] > 1 && ik_magnitude(x->strides[i]) < ik_magnitude(x->strides[column])))
            column = i;
    for (int32_t pass = 0; pass < 2; pass++)
        for (int32_t i = 0; i < x->ndim && y->strides[i] != 0; i++)
            if ((i == column) == (pass == 1)) {
                d->shape[0][d->kept] = x->shape[i];
                d->step[0][d->kept] = x->strides[i];
                d->to[d->kept++] = y->strides[i];
                d->outputs *= x->shape[i];
            }
    for (int32_t i = d->kept; i < x->ndim; i++) {
        d->shape[1][d->reduced] = x->shape[i];
        d->step[1][d->reduced++] = x->strides[i];
        d->length *= x->shape[i];
    }
    if (d->reduced == 0)
        d->shape[1][d->reduced++] = 1;
    if (d->outputs == 0)
        return false;
    int64_t run = d->shape[1][d->reduced - 1], along = ik_magnitude(d->step[1][d->reduced - 1]);
    int64_t across = d->columns_dim = d->kept > 0 ? d->shape[0][d->kept - 1] : 1;
    d->column_step = d->kept > 0 ? d->step[0][d->kept - 1] : 1;
    d->column_to = d->kept > 0 ? d->to[d->kept - 1] : 1;
    if (d->column_step == 1 && across <= narrow / 2 && d->step[1][d->reduced - 1] == across)
        d->group = ik_max(1, ik_min(narrow / across, run));
    d->columns = d->outputs > 1 && (along > ik_magnitude(d->column_step) ? across >= 8 || d->group > 1 : run < brief);
    if (d->columns) {
        d->tiles = ik_ceil_div(across, width);
        d->span = (ik_min(across, width) * d->group + 7) / 8 * 8;
        int64_t tasks = d->outputs / across * d->tiles,
                rows = ik_max(IK_COLUMN_CHUNK / ik_min(across, width), IK_COLUMN_ROWS);
        if (tasks < IK_FEW_OUTPUTS / 4)
            d->chunks = ik_max(1, ik_min(IK_FEW_OUTPUTS / tasks, d->length / rows));
    } else if (d->outputs < IK_FEW_OUTPUTS) {
        d->chunks = ik_max(1, ik_ceil_div(d->length, IK_ROW_CHUNK));
    }
    d->per_chunk = d->columns ? ik_ceil_div(d->length, d->chunks) : d->chunks > 1 ? IK_ROW_CHUNK : d->length;
    return true;
}

/* A tile of columns: the numbers of its first output and of its outputs, and its chunk. */
typedef struct ik_reduction_tile {
    int64_t output, width, chunk;
} ik_reduction_tile;

/* The tile of task (outer output * chunks + chunk) * tiles + tile. */
static inline ik_reduction_tile ik_reduction_tile_of(const ik_reduction *d, int64_t task)
{
    const int64_t first = task % d->tiles * d->width, outer = task / d->tiles / d->chunks;
    return (ik_reduction_tile){ outer * d->columns_dim + first, ik_min(d->width, d->columns_dim - first),
        task / d->tiles % d->chunks };
}

/* Run the tasks of rows, numbered output * chunks + chunk, or of columns, of elements of `size` bytes. */
static inline void ik_reduction_run(const ik_reduction *d, int64_t size, ik_task *rows, ik_task *columns, void *job)
{
    const int64_t width = d->columns ? ik_min(d->columns_dim, d->width) : 1,
                  n = d->chunks * (d->columns ? d->outputs / d->columns_dim * d->tiles : d->outputs);
    ik_parallel_for(n, IK_THREAD_BYTES / (d->per_chunk * width * size), d->columns ? columns : rows, job);
}

#endif
