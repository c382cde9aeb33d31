/* How rows are divided for row_reduction.h: into groups for cores and clusters, and long groups into slices and parts.
 *
 * A group is as many neighbouring rows as fill a tile of local memory. Rows along memory lie one after the other in a
 * tile; rows across memory lie side by side, each a column of the tile. Who works on a group follows from how many
 * groups there are and how long their rows are:
 *     enough groups         a core takes whole groups
 *     few and long          a cluster takes a group (`shared`): each core has a slice of its rows
 *     very few, very long   clusters take parts of a group, and their cores slices of the part
 * All of this follows from shapes alone, so a result depends neither on the schedule nor on the number of clusters. */
#ifndef IK_XPU_ROW_BLOCKING_H
#define IK_XPU_ROW_BLOCKING_H
#include "kernel.h"

enum {
    IK_GROUP = 64, /* rows in a group, at most */
    IK_COLUMNS = 32, /* rows side by side, or in a group of a cluster, at most */
    IK_SHARE_BELOW = 256, /* groups: if there are fewer, a cluster shares a long one */
    IK_LONG = 2048, /* elements of such a group, at least */
    IK_SPLIT_BELOW = 8, /* groups: if there are fewer, very long ones are split into parts */
    IK_PART = 1 << 15, /* elements of a group in a part, at least */
    IK_MAX_PARTS = 64,
    IK_STAT_BYTES = 16, /* at most */
    /* Local memory of a kernel: stats of the rows of a group, then tiles. The vectors that a compiler keeps on the
     * stack, as the emulator does, need the rest. */
    IK_ROW_REDUCTION_BYTES = 5632,
    IK_TILE_BYTES = IK_ROW_REDUCTION_BYTES - IK_GROUP * IK_STAT_BYTES
};

/* What a launch does: everything; the stats of parts; the rest, from the stats of parts. */
enum { IK_WHOLE, IK_MEASURE, IK_RECALL };

/* Elements [from, to) of each row of a group. */
struct ik_row_span {
    long long from, to;
};

struct ik_row_reduction {
    /* Tensors: y, x, and the two inputs whose sum x is, if any. Dims: first those that count rows, then a row's. */
    ik_geometry g;
    long long rows, length; /* length: elements of a row */
    long long width; /* rows along the last dim that counts rows, where rows lie side by side; else 0 */
    long long inner; /* rows from one to the next along the last of the plan's dims that count rows */
    long long groups, part; /* part: elements of a row in a part */
    long long steps[2]; /* of w and bias along a row */
    int row_dims, group, parts; /* group: rows in a group, at most */
    int unit; /* groups that fill lines of y, which clusters and cores take together */
    unsigned char dtypes[2]; /* of w and bias */
    unsigned char inputs; /* inputs that are fetched with a tile: x, or the two that are added */
    unsigned char buffers; /* tiles of each input: with two, the next one is fetched ahead */
    unsigned char shared; /* a cluster shares a group */
    unsigned char phase; /* IK_WHOLE, IK_MEASURE or IK_RECALL */

    /* The first row of a group. */
    __device__ long long first_row(long long of) const
    {
        if (width == 0)
            return ik_min(rows, of * group);
        const long long tiles = ik_ceil_div(width, group);
        return of / tiles * width + of % tiles * group;
    }

    __device__ int rows_of(long long of) const { return (int)(first_row(of + 1) - first_row(of)); }

    __device__ ik_row_span span_of_part(long long number) const
    { return { number * part, ik_min(length, (number + 1) * part) }; }

    /* A core's slice of a span. */
    __device__ ik_row_span slice(const ik_row_span &of, int core) const
    {
        ik_row_span own;
        ik_share_of(
            of.to - of.from, width != 0 ? 1 : IK_LINE / ik_itemsize(g.dtype[1]), core, core_num(), &own.from, &own.to);
        return { of.from + own.from, of.from + own.to };
    }
};

/* Values of a tile, if local memory holds `tiles` of them. */
static inline __host__ __device__ int ik_tile_capacity(int value_bytes, int tiles)
{ return IK_TILE_BYTES / value_bytes / tiles / 16 * 16; }

/* Host: whether the elements of x are integers, which are computed in long long. */
static inline bool ik_row_reduction_of_integers(const ik_plan *plan) { return ik_is_integer(plan->tensors[1].dtype); }

/* Host: how many runs of `bytes` bytes fill lines. */
static inline long long ik_runs_of_lines(long long bytes) { return ik_max(1, IK_LINE / (bytes & -bytes)); }

/* Host: set the rows of a group, and whether a cluster shares it, for tiles of `space` values. `folds`: y has one value
 * for each row. */
static inline void ik_set_groups(ik_row_reduction &r, bool folds, long long space)
{
    const long long length = ik_max(1, r.length);
    if (r.width != 0) {
        r.group = (int)ik_min(IK_COLUMNS, r.width);
        r.groups = r.rows / r.width * ik_ceil_div(r.width, r.group);
    } else {
        const long long lines = folds ? 1 : ik_runs_of_lines(length * ik_itemsize(r.g.dtype[0])),
                        maximum = ik_max(1, ik_min(IK_GROUP, space / length)),
                        spread = ik_ceil_div(ik_ceil_div(r.rows, 2 * IK_SHARE_BELOW), lines) * lines,
                        wanted = ik_min(maximum, spread);
        r.group = length >= IK_LONG ? 1 : (int)(wanted > lines ? wanted / lines * lines : wanted);
        r.groups = ik_ceil_div(r.rows, r.group);
    }
    r.shared = r.groups < IK_SHARE_BELOW && length * r.group >= IK_LONG && (r.width != 0 || r.group == 1);
}

/* Host: set how the rows of r.g are divided, for an operator with `operands` of w and bias. */
static inline void ik_choose_row_blocking(ik_row_reduction &r, int value_bytes, bool folds, int operands)
{
    const long long length = ik_max(1, r.length), once = ik_tile_capacity(value_bytes, r.inputs + operands),
                    twice = ik_tile_capacity(value_bytes, 2 * r.inputs + operands);
    /* Two buffers if a core's part of a group fits twice, or not even once but there is one input: its tiles stay long
     * enough. */
    r.buffers = 2;
    ik_set_groups(r, folds, twice);
    const long long own = (r.shared ? ik_ceil_div(length, IK_CORES) : length) * r.group;
    if (own > twice ? own <= once || r.inputs > 1 : folds) {
        r.buffers = 1;
        ik_set_groups(r, folds, once);
    }
    r.part = r.length;
    r.parts = 1;
    if (r.shared && r.groups < IK_SPLIT_BELOW && length * r.group >= 2 * IK_PART) {
        const long long parts = ik_min(IK_MAX_PARTS, length * r.group / IK_PART);
        r.part = ik_ceil_div(ik_ceil_div(length, parts), IK_LINE) * IK_LINE;
        r.parts = (int)ik_ceil_div(length, r.part);
    }
    const long long unit = ik_runs_of_lines((folds ? 1 : length) * r.group * ik_itemsize(r.g.dtype[0]));
    r.unit = r.groups >= unit * (folds ? IK_GROUP : 2 * IK_SHARE_BELOW) ? (int)unit : 1;
}

/* Host: the dim among those that count rows along which x is contiguous; -1 if there is none, or if x is contiguous
 * along its rows. */
static inline int ik_column_dim(const ik_tensor *x, int row_dims)
{
    int column = -1;
    for (int d = 0; d < row_dims; d++)
        if (x->shape[d] > 1 && x->strides[d] == 1 && row_dims < x->ndim && x->strides[x->ndim - 1] != 1)
            column = d;
    return column;
}

/* Host: the walk over y (tensor 0) and x (tensor 1) of a plan, whose first `row_dims` dims count rows; if it `folds`, y
 * has one value for each row. If x is the sum of two `inputs`, they are tensors 2 and 3. Further tensors lie along a
 * row. */
static inline ik_row_reduction ik_row_reduction_of(const ik_plan *plan, int row_dims, bool folds, int inputs = 1)
{
    const ik_tensor *x = &plan->tensors[1];
    const int column = ik_column_dim(x, row_dims), tensors = inputs > 1 ? 4 : 2; /* tensors of x's shape */
    ik_row_reduction r = {};
    r.g.ndim = x->ndim;
    r.g.tensors = tensors;
    r.inputs = (unsigned char)inputs;
    r.row_dims = row_dims;
    r.rows = r.length = 1;
    int order[IK_MAX_RANK], n = 0, operands = 0;
    for (int d = 0; d < x->ndim; d++) {
        if (d == row_dims && column >= 0)
            order[n++] = column; /* the last of the dims that count rows */
        if (d != column)
            order[n++] = d;
    }
    for (int d = 0; d < x->ndim; d++) {
        r.g.shape[d] = x->shape[order[d]];
        (d < row_dims ? r.rows : r.length) *= r.g.shape[d];
        for (int t = 0; t < tensors; t++)
            r.g.strides[t][d] = plan->tensors[t].strides[order[d]];
    }
    for (int t = 0; t < tensors; t++)
        r.g.dtype[t] = plan->tensors[t].dtype;
    r.width = column >= 0 ? x->shape[column] : 0;
    r.inner = column >= 0 && column < row_dims - 1 ? r.width : 1;
    ik_set_order(r.g);
    if (folds) { /* y has only the dims that count rows */
        ik_geometry y = r.g;
        y.ndim = row_dims;
        ik_set_order(y);
        r.g.dense = (r.g.dense & ~1) | (y.dense & 1);
    }
    for (uint32_t t = tensors; t < plan->tensor_count && t < (uint32_t)tensors + 2; t++) {
        const ik_tensor *operand = &plan->tensors[t];
        if (operand->dtype == IK_NONE)
            continue;
        r.dtypes[t - tensors] = (unsigned char)operand->dtype;
        r.steps[t - tensors] = operand->strides[operand->ndim - 1];
        operands++;
    }
    if (r.rows > 0)
        ik_choose_row_blocking(r, ik_row_reduction_of_integers(plan) ? 8 : 4, folds, operands);
    return r;
}

/* Host: the rows along the last dim, for an operator that writes rows in float. */
static inline ik_row_reduction ik_row_reduction_along_last(const ik_plan *plan)
{ return ik_row_reduction_of(plan, plan->tensors[0].ndim - 1, false); }

/* Host: the rows of a reduction to y, whose strides are 0 along the reduced dims. */
static inline ik_row_reduction ik_row_reduction_to_kept(const ik_plan *plan)
{
    const ik_tensor *y = &plan->tensors[0];
    int kept = 0;
    while (kept < y->ndim && y->strides[kept] != 0)
        kept++;
    return ik_row_reduction_of(plan, kept, true);
}

/* Host: bytes for the stats of parts. */
static inline uint64_t ik_row_reduction_workspace(const ik_row_reduction &r)
{ return r.parts > 1 ? (uint64_t)(r.groups * r.group * r.parts * IK_LINE) : 0; }
#endif
