/* The walk over rows that reductions, softmax and the norms share: each row is measured, then written or summed up in one value.
 *
 * A group is as many neighbouring rows as fill a tile of local memory: rows along memory come one behind the other, rows across memory
 * side by side, a column of the tile each. A core takes whole groups; where groups are few and long a cluster takes one, its cores a slice
 * each, and the slices are joined through shared memory; where they are very few and very long, clusters take parts of rows, whose stats
 * wait in the workspace for a second kernel. Which of them, and where rows are cut, follows from shapes alone, and what is joined is joined
 * in order: a result depends neither on the schedule nor on the number of clusters.
 *
 * An operator is a small struct, passed as a kernel parameter:
 *   value, stat           what it computes in, and what one pass over some elements of a row finds out
 *   none()                the stat of no elements
 *   measure(x, step, n, at)   of elements at .. at + n - 1 of a row, the first at x[0], the next at x[step]; may leave values there
 *   join(whole, before, part, count)   adds the stat of the `count` elements that follow the `before` ones; either may be none
 *   write(x, step, n, stat, own, w, bias)   rows: results in the place of x; where `own` is not null, x is what measure left when it found that;
 *                         w and bias of the same elements
 *   result, finish(stat)  reductions: the value of a row */
#ifndef IK_ROWS_H
#define IK_ROWS_H
#include "kernel.h"

enum {
    IK_GROUP = 64,       /* rows in a group at most */
    IK_COLUMNS = 32,     /* side by side, or for a cluster, at most */
    IK_FEW = 256,        /* groups: below, a cluster takes one if it is long */
    IK_LONG = 2048,      /* elements of such a group */
    IK_VERY_FEW = 8,     /* groups: below, they are cut into parts if very long */
    IK_PART = 1 << 15,   /* elements in a part of a group at least */
    IK_MOST_PARTS = 64,
    IK_STAT_BYTES = 16,  /* at most */
    IK_TILE_BYTES = IK_LM_BYTES - IK_GROUP * IK_STAT_BYTES
};

/* What a launch is for: everything; the stats of parts; the rest, from the stats of parts. */
enum { IK_WHOLE, IK_MEASURE, IK_RECALL };

struct ik_rows {
    ik_geometry g;          /* y, x, w, bias; first the dims that count rows, then those of a row */
    long long rows, length; /* rows, elements in a row */
    long long width;        /* of the last dim that counts rows, where rows come side by side; else 0 */
    long long inner;        /* rows from one to the next along the last of the plan's dims that count rows */
    long long groups, part; /* part: elements of a row in a part */
    int row_dims, group, parts;
    int shared; /* a cluster takes a group */
    int unit;   /* groups that fill lines of y: what clusters and cores take at a time */
    int phase;
};

/* In shared memory: what each core found out about its slice, and what all of them have together. */
template <class Stat>
struct ik_rows_stats {
    Stat slices[IK_CORES][IK_COLUMNS];
    Stat whole[IK_COLUMNS];
};

/* A stat in the workspace, on a line of its own. */
template <class Stat>
union ik_rows_line {
    char bytes[IK_LINE];
    Stat stat;
};

/* Values of a tile where so many operands have a tile beside it. */
static inline __host__ __device__ int ik_rows_room(int value_bytes, int operands) { return IK_TILE_BYTES / value_bytes / (1 + operands) / 16 * 16; }

/* term(i) for i from `at` below `end`, at most 64 of them, in eight lanes: at most 10 roundings an element. */
template <class Term>
static inline __device__ float ik_block_sum(int at, int end, Term term)
{
    float lane[8] = {};
    for (; at + 8 <= end; at += 8)
        for (int k = 0; k < 8; k++)
            lane[k] += term(at + k);
    for (int k = 0; at + k < end; k++)
        lane[k] += term(at + k);
    return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

enum { IK_TERMS = 64 };

/* high + low += the sum of term(0) .. term(n - 1). */
template <class Term>
static inline __device__ void ik_add_terms(int n, float *high, float *low, Term term)
{
    for (int at = 0; at < n; at += IK_TERMS)
        ik_add(high, low, ik_block_sum(at, (int)ik_min(n, at + IK_TERMS), term));
}

/* The largest of n elements; NaN where there is one. */
static inline __device__ float ik_largest(const float *x, int step, int n)
{
    float most = x[0];
    for (int i = 1; i < n; i++)
        most = ik_maximum_f32(most, x[i * step]);
    return most;
}

static inline __device__ void ik_widen(int dtype, float *tile, int n) { ik_widen_f32(dtype, tile, n); }
static inline __device__ void ik_widen(int dtype, long long *tile, int n) { ik_widen_i64(dtype, tile, n); }
static inline __device__ void ik_narrow(int dtype, float *tile, int n) { ik_narrow_f32(dtype, tile, n); }
static inline __device__ void ik_narrow(int dtype, long long *tile, int n) { ik_narrow_i64(dtype, tile, n); }

/* Some elements of the rows of a group, in local memory. */
struct ik_rows_tile {
    long long row, at; /* the first row and element */
    int rows, n;

    __device__ int step(const ik_rows &r) const { return r.width != 0 ? rows : 1; }
    __device__ int place(const ik_rows &r, int row) const { return r.width != 0 ? row : row * n; }
};

static inline __device__ long long ik_group_row(const ik_rows &r, long long group)
{
    if (r.width == 0)
        return ik_min(r.rows, group * r.group);
    const long long tiles = ik_ceil_div(r.width, r.group);
    return group / tiles * r.width + group % tiles * r.group;
}

static inline __device__ int ik_group_rows(const ik_rows &r, long long group) { return (int)(ik_group_row(r, group + 1) - ik_group_row(r, group)); }

/* Elements `at` .. of the rows of a tile come in, in the compute type. */
template <class T>
static inline __device__ void ik_rows_fetch(const ik_rows &r, __global_ptr__ const char *x, const ik_rows_tile &t, T *tile)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[1]), rows = t.rows;
    char *to = ik_narrow_end(tile, n, sizeof(T), size);
    if (r.width == 0) {
        ik_fetch(r.g, 1, x, t.row * r.length + t.at, n, to);
    } else {
        const long long across = r.g.strides[1][r.row_dims - 1], along = r.g.strides[1][r.g.ndim - 1];
        for (ik_walk w(r.g, t.row * r.length + t.at, t.n); w.next();) {
            const long long offset = w.offset(1);
            if (across == 1 && along == rows)
                ik_fetch_run(x + offset * size, 1, (int)(w.run * rows), size, to + w.done * rows * size);
            else
                for (long long k = 0; k < w.run; k++)
                    ik_fetch_run(x + (offset + k * along) * size, across, (int)rows, size, to + (w.done + k) * rows * size);
        }
        mfence();
    }
    ik_widen(r.g.dtype[1], tile, n);
}

/* The same, back to y; `tile` may be used again. */
template <class T>
static inline __device__ void ik_rows_store(const ik_rows &r, __global_ptr__ char *y, const ik_rows_tile &t, T *tile)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[0]), rows = t.rows;
    const char *from = (const char *)tile;
    ik_narrow(r.g.dtype[0], tile, n);
    if (r.width == 0) {
        ik_store(r.g, 0, y, t.row * r.length + t.at, n, from);
        return;
    }
    const long long across = r.g.strides[0][r.row_dims - 1], along = r.g.strides[0][r.g.ndim - 1];
    mfence_lm();
    for (ik_walk w(r.g, t.row * r.length + t.at, t.n); w.next();) {
        const long long offset = w.offset(0);
        if (across == 1 && along == rows)
            ik_store_run(from + w.done * rows * size, 1, (int)(w.run * rows), size, y + offset * size);
        else
            for (long long k = 0; k < w.run; k++)
                ik_store_run(from + (w.done + k) * rows * size, across, (int)rows, size, y + (offset + k * along) * size);
    }
    mfence();
}

/* The operator for elements `at` .. of a row: one whose rows differ has a function of its own. */
template <class Op>
static inline __device__ const Op &ik_rows_op(const Op &op, long long, long long)
{
    return op;
}

/* Elements [from, to) of a group's rows, in tiles of at most `room` values: stat q is that of row q. The last tile stays. */
template <class Op>
static inline __device__ void ik_rows_measure(const ik_rows &r, const Op &op, __global_ptr__ const char *x, long long group, long long from, long long to,
                                              typename Op::value *tile, int room, typename Op::stat *stats)
{
    ik_rows_tile t = { ik_group_row(r, group), from, ik_group_rows(r, group), 0 };
    for (int q = 0; q < t.rows; q++)
        stats[q] = op.none();
    for (; t.at < to; t.at += t.n) {
        t.n = (int)ik_min(to - t.at, room / t.rows);
        ik_rows_fetch(r, x, t, tile);
        for (int q = 0; q < t.rows; q++)
            op.join(stats[q], t.at - from, ik_rows_op(op, t.row + q, t.at).measure(tile + t.place(r, q), t.step(r), t.n, t.at), t.n);
    }
}

/* A core's slice of elements [*from, *to) of a group's rows. */
static inline __device__ void ik_rows_slice(const ik_rows &r, int core, long long *from, long long *to)
{
    const long long first = *from, unit = r.width != 0 ? 1 : IK_LINE / ik_itemsize(r.g.dtype[1]);
    ik_share_of(*to - first, unit, core, core_num(), from, to);
    *from += first;
    *to += first;
}

/* A part of a group: the elements of its rows. */
static inline __device__ void ik_rows_part(const ik_rows &r, long long part, long long *from, long long *to)
{
    *from = part * r.part;
    *to = ik_min(r.length, *from + r.part);
}

/* The whole cluster: from the `own` stats of slices of [from, to) of the rows those of all, in order. */
template <class Op>
static inline __device__ void ik_rows_together(const ik_rows &r, const Op &op, int rows, long long from, long long to, const typename Op::stat *own,
                                               typename Op::stat *stats, __shared_ptr__ ik_rows_stats<typename Op::stat> *shared)
{
    for (int q = 0; q < rows; q++)
        shared->slices[core_id()][q] = own[q];
    mfence_sm();
    sync_cluster();
    for (int q = core_id(); q < rows; q += core_num()) {
        typename Op::stat whole = op.none();
        for (int core = 0; core < core_num(); core++) {
            long long begin = from, end = to;
            ik_rows_slice(r, core, &begin, &end);
            op.join(whole, begin - from, shared->slices[core][q], end - begin);
        }
        shared->whole[q] = whole;
    }
    mfence_sm();
    sync_cluster();
    for (int q = 0; q < rows; q++)
        stats[q] = shared->whole[q];
}

/* The first of two kernels: the stats of all parts go to the workspace. */
template <class Op>
static inline __device__ void ik_rows_parts(const ik_rows &r, const Op &op, __global_ptr__ const char *x, __global_ptr__ char *parts, char *memory,
                                            __shared_ptr__ ik_rows_stats<typename Op::stat> *shared)
{
    auto *stats = (typename Op::stat *)memory;
    auto *tile = (typename Op::value *)(memory + IK_GROUP * IK_STAT_BYTES);
    long long begin, end;
    ik_share_of(r.groups * r.parts, 1, cluster_id(), cluster_num(), &begin, &end);
    for (long long task = begin; task < end; task++) {
        const long long group = task / r.parts, part = task % r.parts;
        const int rows = ik_group_rows(r, group);
        long long from, to, first, last;
        ik_rows_part(r, part, &from, &to);
        first = from, last = to;
        ik_rows_slice(r, core_id(), &first, &last);
        ik_rows_measure(r, op, x, group, first, last, tile, ik_rows_room(sizeof *tile, 0), stats);
        ik_rows_together(r, op, rows, from, to, stats, stats, shared);
        for (int q = core_id(); q < rows; q += core_num()) {
            ik_rows_line<typename Op::stat> line = {};
            line.stat = stats[q];
            mfence_lm();
            LM2GM(&line, parts + ((group * r.group + q) * r.parts + part) * IK_LINE, IK_LINE);
        }
    }
}

/* The whole cluster: the stats of a group's rows, from those of their parts. `room` is for IK_MOST_PARTS lines. */
template <class Op>
static inline __device__ void ik_rows_recall(const ik_rows &r, const Op &op, int rows, long long group, __global_ptr__ const char *parts, void *room,
                                             typename Op::stat *stats, __shared_ptr__ ik_rows_stats<typename Op::stat> *shared)
{
    const auto *lines = (const ik_rows_line<typename Op::stat> *)room;
    for (int q = core_id(); q < rows; q += core_num()) {
        typename Op::stat whole = op.none();
        GM2LM(parts + (group * r.group + q) * r.parts * IK_LINE, room, r.parts * IK_LINE);
        for (int part = 0; part < r.parts; part++) {
            long long from, to;
            ik_rows_part(r, part, &from, &to);
            op.join(whole, from, lines[part].stat, to - from);
        }
        shared->whole[q] = whole;
    }
    mfence_sm();
    sync_cluster();
    for (int q = 0; q < rows; q++)
        stats[q] = shared->whole[q];
    sync_cluster();
}

/* A group's rows, measured by the cluster or recalled: every core gets the stats of the whole rows, and its own IK_COLUMNS behind them. */
template <class Op>
static inline __device__ void ik_rows_by_cluster(const ik_rows &r, const Op &op, __global_ptr__ const char *x, long long group, long long first, long long last,
                                                 typename Op::value *tile, int room, typename Op::stat *stats, __global_ptr__ const char *parts,
                                                 __shared_ptr__ ik_rows_stats<typename Op::stat> *shared)
{
    const int rows = ik_group_rows(r, group);
    if (r.phase == IK_RECALL) {
        ik_rows_recall(r, op, rows, group, parts, tile, stats, shared);
    } else {
        ik_rows_measure(r, op, x, group, first, last, tile, room, stats + IK_COLUMNS);
        ik_rows_together(r, op, rows, 0, r.length, stats + IK_COLUMNS, stats, shared);
    }
}

/* Rows: y = f(x, the stat of the whole row, w, bias), of which w and bias may be absent. `parts` is written by a launch with IK_MEASURE. */
template <class Op>
static inline __device__ void ik_rows_map(const ik_rows &r, const Op &op, __global_ptr__ char *y, __global_ptr__ const char *x, __global_ptr__ const char *w,
                                          __global_ptr__ const char *bias, __global_ptr__ char *parts, char *memory,
                                          __shared_ptr__ ik_rows_stats<typename Op::stat> *shared)
{
    typedef typename Op::value value;
    __global_ptr__ const char *const operand[2] = { w, bias };
    const int room = ik_rows_room(sizeof(value), (w != nullptr) + (bias != nullptr));
    auto *stats = (typename Op::stat *)memory;
    auto *tile = (value *)(memory + IK_GROUP * IK_STAT_BYTES);
    value *here[2] = { w != nullptr ? tile + room : nullptr, bias != nullptr ? tile + (w != nullptr ? 2 : 1) * room : nullptr };
    long long begin, end, have = -1; /* have, having: where the operands in `here` begin, and how many */
    int having = 0;
    if (r.phase == IK_MEASURE) {
        ik_rows_parts(r, op, x, parts, memory, shared);
        return;
    }
    if (r.shared)
        ik_share_of(r.groups * r.parts, 1, cluster_id(), cluster_num(), &begin, &end);
    else
        ik_share(r.groups, r.unit, &begin, &end);
    for (long long task = begin; task < end; task++) {
        const long long group = task / r.parts;
        const int rows = ik_group_rows(r, group);
        long long first, last;
        ik_rows_part(r, task % r.parts, &first, &last);
        if (r.shared) {
            ik_rows_slice(r, core_id(), &first, &last);
            ik_rows_by_cluster(r, op, x, group, first, last, tile, room, stats, parts, shared);
        } else {
            ik_rows_measure(r, op, x, group, first, last, tile, room, stats);
        }
        const auto *own = r.phase == IK_RECALL || last - first > room / rows ? nullptr : r.shared ? stats + IK_COLUMNS : stats;
        if (r.phase == IK_RECALL)
            have = -1;
        ik_rows_tile t = { ik_group_row(r, group), first, rows, 0 };
        for (; t.at < last; t.at += t.n) {
            t.n = (int)ik_min(last - t.at, room / rows);
            if (own == nullptr)
                ik_rows_fetch(r, x, t, tile);
            for (int i = 0; i < 2 && (have != t.at || having != t.n); i++)
                if (here[i] != nullptr) {
                    ik_fetch(r.g, 2 + i, operand[i], t.at, t.n, ik_narrow_end(here[i], t.n, sizeof(value), ik_itemsize(r.g.dtype[2 + i])));
                    ik_widen(r.g.dtype[2 + i], here[i], t.n);
                }
            have = t.at, having = t.n;
            for (int q = 0; q < rows; q++)
                ik_rows_op(op, t.row + q, t.at).write(tile + t.place(r, q), t.step(r), t.n, stats[q], own != nullptr ? own + q : nullptr, here[0], here[1]);
            ik_rows_store(r, y, t, tile);
        }
    }
}

/* Reductions: a value for each row. The values of a batch of groups meet in shared memory, so that lines of y are written whole. */
template <class Op>
static inline __device__ void ik_rows_fold(const ik_rows &r, const Op &op, __global_ptr__ char *y, __global_ptr__ const char *x, __global_ptr__ char *parts,
                                           char *memory, __shared_ptr__ ik_rows_stats<typename Op::stat> *shared, __shared_ptr__ typename Op::result *results)
{
    typedef typename Op::result result;
    const int room = ik_rows_room(sizeof(typename Op::value), 0), size = ik_itemsize(r.g.dtype[0]);
    auto *stats = (typename Op::stat *)memory;
    auto *tile = (typename Op::value *)(memory + IK_GROUP * IK_STAT_BYTES);
    auto *out = (result *)tile;
    long long begin, end;
    if (r.phase == IK_MEASURE) {
        ik_rows_parts(r, op, x, parts, memory, shared);
        return;
    }
    ik_share_of(r.groups, r.unit, cluster_id(), cluster_num(), &begin, &end);
    for (long long batch = begin; batch < end; batch += IK_CORES) {
        const long long after = ik_min(end, batch + IK_CORES), row = ik_group_row(r, batch);
        if (r.shared) {
            long long first = 0, last = r.length;
            ik_rows_slice(r, core_id(), &first, &last);
            for (long long group = batch; group < after; group++) {
                ik_rows_by_cluster(r, op, x, group, first, last, tile, room, stats, parts, shared);
                for (int q = core_id(); q < ik_group_rows(r, group); q += core_num())
                    results[ik_group_row(r, group) - row + q] = op.finish(stats[q]);
            }
        } else if (batch + core_id() < after) {
            const long long group = batch + core_id();
            ik_rows_measure(r, op, x, group, 0, r.length, tile, room, stats);
            for (int q = 0; q < ik_group_rows(r, group); q++)
                results[ik_group_row(r, group) - row + q] = op.finish(stats[q]);
        }
        mfence_sm();
        sync_cluster();
        long long at, to;
        ik_share_of(ik_group_row(r, after) - row, IK_LINE / size, core_id(), core_num(), &at, &to);
        if (at < to) {
            const int n = (int)(to - at);
            for (int i = 0; i < n; i++)
                out[i] = results[at + i];
            ik_narrow(r.g.dtype[0], out, n);
            ik_store(r.g, 0, y, row + at, n, (const char *)out, r.row_dims);
        }
        sync_cluster();
    }
}

static inline long long ik_gcd(long long a, long long b) { return b == 0 ? a : ik_gcd(b, a % b); }

/* Host: the walk over y (tensor 0) and x (tensor 1) of a plan, whose first `row_dims` dims count rows; y has one value a row where it `folds`.
 * Further tensors lie along a row. */
static inline ik_rows ik_rows_of(const ik_plan *plan, int row_dims, int value_bytes, bool folds)
{
    const ik_tensor *y = &plan->tensors[0], *x = &plan->tensors[1];
    ik_rows r = {};
    int order[IK_MAX_RANK], column = -1, operands = 0;
    for (int d = 0; d < row_dims; d++)
        if (x->shape[d] > 1 && x->strides[d] == 1 && row_dims < x->ndim && x->strides[x->ndim - 1] != 1)
            column = d;
    for (int d = 0, n = 0; d < row_dims; d++)
        if (d != column)
            order[n++] = d;
    if (column >= 0)
        order[row_dims - 1] = column;
    for (int d = row_dims; d < x->ndim; d++)
        order[d] = d;
    r.g.ndim = x->ndim;
    r.g.tensors = 2;
    r.row_dims = row_dims;
    r.rows = r.length = r.parts = 1;
    r.inner = column >= 0 && column < row_dims - 1 ? x->shape[column] : 1;
    bool dense[2] = { true, true };
    long long expected[2] = { 1, 1 };
    for (int d = x->ndim - 1; d >= 0; d--) {
        const long long shape = x->shape[order[d]], steps[2] = { y->strides[order[d]], x->strides[order[d]] };
        r.g.shape[d] = shape;
        (d < row_dims ? r.rows : r.length) *= shape;
        for (int t = 0; t < 2; t++) {
            r.g.strides[t][d] = steps[t];
            if (t == 0 && folds && d >= row_dims)
                continue;
            dense[t] &= shape == 1 || steps[t] == expected[t];
            expected[t] *= shape;
        }
    }
    r.g.dtype[0] = y->dtype;
    r.g.dtype[1] = x->dtype;
    r.g.dense = dense[0] | dense[1] << 1;
    for (uint32_t t = 2; t < plan->tensor_count && t < IK_MOST_TENSORS; t++) {
        const ik_tensor *operand = &plan->tensors[t];
        if (operand->dtype == IK_NONE)
            continue;
        r.g.dtype[t] = operand->dtype;
        r.g.strides[t][r.g.ndim - 1] = operand->strides[operand->ndim - 1];
        r.g.dense |= (operand->strides[operand->ndim - 1] == 1) << t;
        operands++;
    }
    if (r.rows == 0)
        return r;
    const long long length = ik_max(1, r.length), room = ik_rows_room(value_bytes, operands), size = ik_itemsize(y->dtype);
    if (column >= 0) {
        r.width = r.g.shape[row_dims - 1];
        r.group = (int)ik_min(IK_COLUMNS, r.width);
        r.groups = r.rows / r.width * ik_ceil_div(r.width, r.group);
    } else {
        const long long lines = folds ? 1 : IK_LINE / ik_gcd(IK_LINE, length * size), most = ik_max(1, ik_min(IK_GROUP, room / length));
        const long long spread = ik_ceil_div(r.rows, 2 * IK_FEW), wanted = ik_min(most, ik_ceil_div(spread, lines) * lines);
        r.group = length >= IK_LONG ? 1 : (int)(wanted > lines ? wanted / lines * lines : wanted);
        r.groups = ik_ceil_div(r.rows, r.group);
    }
    r.part = r.length;
    r.shared = r.groups < IK_FEW && length * r.group >= IK_LONG && (column >= 0 || r.group == 1);
    if (r.shared && r.groups < IK_VERY_FEW && length * r.group >= 2 * IK_PART) {
        const long long parts = ik_min(IK_MOST_PARTS, length * r.group / IK_PART);
        r.part = ik_ceil_div(ik_ceil_div(length, parts), IK_LINE) * IK_LINE;
        r.parts = (int)ik_ceil_div(length, r.part);
    }
    const long long bytes = (folds ? 1 : length) * r.group * size, unit = IK_LINE / ik_gcd(IK_LINE, bytes);
    r.unit = r.groups >= unit * (folds ? IK_GROUP : 2 * IK_FEW) ? (int)unit : 1;
    return r;
}

/* Host: the rows along the last dim, for an operator that writes each of them, in float. */
static inline ik_rows ik_rows_along_last(const ik_plan *plan) { return ik_rows_of(plan, plan->tensors[0].ndim - 1, sizeof(float), false); }

/* Host: the elements of x are integers, in long long on the way. */
static inline bool ik_rows_of_integers(const ik_plan *plan) { return plan->tensors[1].dtype >= IK_I8; }

static inline uint64_t ik_rows_workspace(const ik_rows &r) { return r.parts > 1 ? (uint64_t)(r.groups * r.group * r.parts * IK_LINE) : 0; }

/* Host: launch(rows, clusters) once, or for the stats of parts and then for the rest. */
template <class Launch>
static inline ik_status ik_rows_launch(ik_rows r, const ik_xpu_stream *s, Launch launch)
{
    if (r.rows == 0)
        return IK_SUCCESS;
    const int all = ik_clusters(s), clusters = (int)ik_min(all, r.shared ? r.groups * r.parts : ik_ceil_div(r.groups, IK_CORES));
    if (r.parts > 1) {
        r.phase = IK_MEASURE;
        const ik_status status = ik_xpu_status(launch(r, clusters));
        if (status != IK_SUCCESS)
            return status;
        r.phase = IK_RECALL;
    }
    return ik_xpu_status(launch(r, clusters));
}
#endif
