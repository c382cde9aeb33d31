/* The walk over rows that reductions, softmax and the norms share: each row is measured, then written or reduced to one
 * value.
 *
 * A group is as many neighbouring rows as fill a tile of local memory: rows along memory lie one after the other, rows
 * across memory lie side by side, each a column of the tile. A core handles whole groups. Where groups are few and
 * long, a cluster handles one: each core has a slice, and the slices are joined through shared memory. Where groups are
 * very few and very long, clusters handle parts of rows, whose stats wait in the workspace for a second kernel. All of
 * this follows from shapes alone, and parts are joined in order: a result depends neither on the schedule nor on the
 * number of clusters.
 *
 * Where two tiles fit, the next tile is fetched while the present one is computed, and results are stored while the
 * next is computed. A fence waits for all copies of its core, so the next copy is issued after the fence and before the
 * work. Two inputs may be added when they are fetched: their rounded sum is x, which is written as they arrive and read
 * again as it was written.
 *
 * An operator is a small struct, passed as a kernel parameter:
 *   value, stat               the compute type, and the result of one pass over some elements of a row
 *   none()                    the stat of no elements
 *   measure(x, step, n, at)   the stat of elements at .. at + n - 1 of a row, at x[0], x[step] and so on; may replace
 *                             the elements
 *   join(whole, before, part, count)
 *                             adds the stat of `count` elements to that of the `before` elements before them; either
 *                             number may be 0
 *   write(x, step, n, stat, own, w, bias)
 *                             for rows: overwrites x with the results; where `own` is not null, x is what measure left
 *                             when it found that stat; w and bias are those of the same elements
 *   result, finish(stat)      for reductions: the value of a row
 */
#ifndef IK_ROW_REDUCTION_H
#define IK_ROW_REDUCTION_H
#include "vectors.h"

enum {
    IK_GROUP = 64, /* rows in a group, at most */
    IK_COLUMNS = 32, /* rows side by side, or in a group of a cluster, at most */
    IK_SHARE_BELOW = 256, /* groups: if there are fewer, a cluster shares a long one */
    IK_LONG = 2048, /* elements of such a group, at least */
    IK_SPLIT_BELOW = 8, /* groups: if there are fewer, very long ones are split into parts */
    IK_PART = 1 << 15, /* elements of a group in a part, at least */
    IK_MAX_PARTS = 64,
    IK_STAT_BYTES = 16, /* at most */
    /* Local memory for all of this; the vectors that a compiler keeps on the stack, as the emulator does, need the
     * rest. */
    IK_ROW_REDUCTION_BYTES = 5632,
    IK_TILE_BYTES = IK_ROW_REDUCTION_BYTES - IK_GROUP * IK_STAT_BYTES
};

/* What a launch does: everything; the stats of parts; the rest, from the stats of parts. */
enum { IK_WHOLE, IK_MEASURE, IK_RECALL };

struct ik_row_reduction {
    /* tensors: y, x, and the two inputs whose sum x is, if any; first the dims that count rows, then those of a row. */
    ik_geometry g;
    long long rows, length; /* length: elements in a row */
    long long width; /* extent of the last dim that counts rows, where rows lie side by side; else 0 */
    long long inner; /* rows from one to the next along the last of the plan's dims that count rows */
    long long groups, part; /* part: elements of a row in a part */
    long long steps[2]; /* of w and bias along a row */
    int row_dims, group, parts;
    int unit; /* groups that fill lines of y, which clusters and cores take together */
    unsigned char dtypes[2]; /* of w and bias */
    unsigned char inputs; /* inputs that are fetched with a tile: x, or the two that are added */
    unsigned char buffers; /* tiles of each input */
    unsigned char shared; /* a cluster shares a group */
    unsigned char phase;
};

/* In shared memory: the stats of each core's slice, and those of all slices together. */
template <class Stat>
struct ik_row_reduction_stats {
    Stat slices[IK_CORES][IK_COLUMNS];
    Stat whole[IK_COLUMNS];
};

/* A stat in the workspace, on a line of its own. */
template <class Stat>
union ik_row_reduction_line {
    char bytes[IK_LINE];
    Stat stat;
};

/* Values of a tile, if local memory holds `tiles` of them. */
static inline __host__ __device__ int ik_row_reduction_capacity(int value_bytes, int tiles)
{ return IK_TILE_BYTES / value_bytes / tiles / 16 * 16; }

/* The sum of term(i) for i from `at` below `end`, at most 64 terms, in eight lanes: at most 10 roundings an element. */
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

/* The largest of n elements; NaN if one is NaN. */
static inline __device__ float ik_largest(const float *x, int step, int n)
{
    float maximum = x[0];
    for (int i = 1; i < n; i++)
        maximum = ik_maximum_f32(maximum, x[i * step]);
    return maximum;
}

static inline __device__ void ik_widen(int dtype, float *tile, int n) { ik_widen_f32(dtype, tile, n); }
static inline __device__ void ik_widen(int dtype, long long *tile, int n) { ik_widen_i64(dtype, tile, n); }
static inline __device__ void ik_narrow(int dtype, float *tile, int n) { ik_narrow_f32(dtype, tile, n); }
static inline __device__ void ik_narrow(int dtype, long long *tile, int n) { ik_narrow_i64(dtype, tile, n); }

/* Some elements of the rows of a group, in local memory. */
struct ik_row_reduction_tile {
    long long row, at; /* the first row and element */
    int rows, n;

    __device__ int step(const ik_row_reduction &r) const { return r.width != 0 ? rows : 1; }
    __device__ int place(const ik_row_reduction &r, int row) const { return r.width != 0 ? row : row * n; }
};

static inline __device__ long long ik_group_row(const ik_row_reduction &r, long long group)
{
    if (r.width == 0)
        return ik_min(r.rows, group * r.group);
    const long long tiles = ik_ceil_div(r.width, r.group);
    return group / tiles * r.width + group % tiles * r.group;
}

static inline __device__ int ik_group_rows(const ik_row_reduction &r, long long group)
{ return (int)(ik_group_row(r, group + 1) - ik_group_row(r, group)); }

/* Start to fetch elements of the rows of a tile; mfence() and ik_row_reduction_land complete it. */
static inline __device__ void ik_row_reduction_start(const ik_row_reduction &r, int tensor,
    __global_ptr__ const char *x, const ik_row_reduction_tile &t, int value_bytes, void *tile)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[tensor]), rows = t.rows;
    char *to = ik_narrow_end(tile, n, value_bytes, size);
    if (r.width == 0) {
        ik_start_fetch(r.g, tensor, x, t.row * r.length + t.at, n, to);
        return;
    }
    const long long across = r.g.strides[tensor][r.row_dims - 1], along = r.g.strides[tensor][r.g.ndim - 1];
    for (ik_walk w(r.g, t.row * r.length + t.at, t.n); w.next();) {
        const long long offset = w.offset(tensor);
        if (across == 1 && along == rows)
            ik_fetch_run(x + offset * size, 1, (int)(w.run * rows), size, to + w.done * rows * size);
        else
            for (long long k = 0; k < w.run; k++)
                ik_fetch_run(x + (offset + k * along) * size, across, (int)rows, size, to + (w.done + k) * rows * size);
    }
}

/* After the fence: convert them to the compute type. */
template <class T>
static inline __device__ void ik_row_reduction_land(
    const ik_row_reduction &r, int tensor, const ik_row_reduction_tile &t, T *tile)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[tensor]);
    if (r.width == 0)
        ik_end_fetch(r.g, tensor, t.row * r.length + t.at, n, ik_narrow_end(tile, n, sizeof(T), size));
    ik_widen(r.g.dtype[tensor], tile, n);
}

/* Whether ik_row_reduction_land uses scalar stores for this tensor. */
static inline __device__ bool ik_row_reduction_is_scalar(const ik_row_reduction &r, int tensor, int value_bytes)
{ return ik_itemsize(r.g.dtype[tensor]) != value_bytes || !(r.g.dense >> tensor & 1); }

/* Store a tile, which is narrow and fenced in local memory, to y or x; mfence() completes it. */
static inline __device__ void ik_row_reduction_store(
    const ik_row_reduction &r, int tensor, __global_ptr__ char *y, const ik_row_reduction_tile &t, const char *from)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[tensor]), rows = t.rows;
    if (r.width == 0) {
        ik_start_store(r.g, tensor, y, t.row * r.length + t.at, n, from);
        return;
    }
    const long long across = r.g.strides[tensor][r.row_dims - 1], along = r.g.strides[tensor][r.g.ndim - 1];
    for (ik_walk w(r.g, t.row * r.length + t.at, t.n); w.next();) {
        const long long offset = w.offset(tensor);
        if (across == 1 && along == rows)
            ik_store_run(from + w.done * rows * size, 1, (int)(w.run * rows), size, y + offset * size);
        else
            for (long long k = 0; k < w.run; k++)
                ik_store_run(
                    from + (w.done + k) * rows * size, across, (int)rows, size, y + (offset + k * along) * size);
    }
}

/* Compute x of a tile as the sum of two inputs, rounded to x's type, and store it, too. `b` may be reused after a
 * fence. */
static inline __device__ void ik_row_reduction_add(
    const ik_row_reduction &r, __global_ptr__ char *x, const ik_row_reduction_tile &t, float *a, float *b)
{
    const int n = t.rows * t.n, dtype = r.g.dtype[1];
    auto *narrow = (unsigned short *)b;
    const int whole = dtype == IK_F32 ? ik_vectors(a, 1, n) : 0;
    for (int i = 0; i < whole; i += IK_LANES) {
        const float32x16_t sum = vvadd_float32x16(vload_lm_float32x16(a + i), vload_lm_float32x16(b + i));
        vstore_lm_float32x16(a + i, sum);
        vstore_lm_float32x16(b + i, sum);
    }
    for (int i = whole; dtype == IK_F32 && i < n; i++)
        a[i] = b[i] += a[i];
    for (int i = 0; dtype == IK_F16 && i < n; i++)
        a[i] = ik_f16_to_f32(narrow[i] = ik_f32_to_f16(a[i] + b[i]));
    for (int i = 0; dtype == IK_BF16 && i < n; i++)
        a[i] = ik_bf16_to_f32(narrow[i] = ik_f32_to_bf16(a[i] + b[i]));
    mfence_lm();
    ik_row_reduction_store(r, 1, x, t, (const char *)b);
}

static inline __device__ void ik_row_reduction_add(
    const ik_row_reduction &, __global_ptr__ char *, const ik_row_reduction_tile &, long long *, long long *)
{
}

/* The tiles in local memory: a set has a tile for each of `inputs`, and the next set may be on its way. It has no
 * pointer to GM, because those may not be members. */
template <class T>
struct ik_row_reduction_tiles {
    T *memory;
    int space, set;
    bool coming;

    __device__ T *tile(const ik_row_reduction &r, int input = 0) const
    { return memory + (set * r.inputs + input) * space; }
};

/* Issue a tile's copies: of x, or of the two inputs whose sum it is. */
template <class T>
static inline __device__ void ik_row_reduction_issue(const ik_row_reduction &r, bool sum, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, const ik_row_reduction_tile &t,
    const ik_row_reduction_tiles<T> &tiles)
{
    ik_row_reduction_start(r, sum ? 2 : 1, sum ? a : x, t, sizeof(T), tiles.tile(r));
    if (sum)
        ik_row_reduction_start(r, 3, b, t, sizeof(T), tiles.tile(r, 1));
}

/* The tiles in a kernel's memory: they follow the stats, and tiles for `operands` operands follow them. */
template <class T>
static inline __device__ ik_row_reduction_tiles<T> ik_row_reduction_tiles_in(
    const ik_row_reduction &r, char *memory, int operands = 0)
{
    return { (T *)(memory + IK_GROUP * IK_STAT_BYTES),
        ik_row_reduction_capacity(sizeof(T), r.buffers * r.inputs + operands), 0, false };
}

/* Make sure that the copies of the tile to be computed now are issued; the caller calls mfence(). */
template <class T>
static inline __device__ void ik_row_reduction_expect(const ik_row_reduction &r, bool sum, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, const ik_row_reduction_tile &t,
    ik_row_reduction_tiles<T> *tiles)
{
    if (tiles->coming) {
        tiles->set ^= 1;
        tiles->coming = false;
        return;
    }
    mfence(); /* the stores from the tile are done */
    ik_row_reduction_issue(r, sum, x, a, b, t, *tiles);
}

/* Issue the copies of the next tile, if there is space, to land at the next fence. */
template <class T>
static inline __device__ void ik_row_reduction_prefetch(const ik_row_reduction &r, bool sum,
    __global_ptr__ const char *x, __global_ptr__ const char *a, __global_ptr__ const char *b,
    const ik_row_reduction_tile &t, ik_row_reduction_tiles<T> *tiles)
{
    if (r.buffers < 2 || t.n == 0)
        return;
    ik_row_reduction_tiles<T> other = *tiles;
    other.set ^= 1;
    ik_row_reduction_issue(r, sum, x, a, b, t, other);
    tiles->coming = true;
}

/* The tile of a group's rows that begins at element `at`. */
static inline __device__ ik_row_reduction_tile ik_row_reduction_tile_of(
    const ik_row_reduction &r, long long group, long long at, long long to, int space)
{
    const int rows = ik_group_rows(r, group);
    return { ik_group_row(r, group), at, rows, (int)ik_max(0, ik_min(to - at, space / rows)) };
}

/* The operator for a row's elements from `at` on; operators that depend on the row overload this. */
template <class Op>
static inline __device__ const Op &ik_row_reduction_op(const Op &op, long long, long long)
{ return op; }

/* Measure elements [from, to) of a group's rows, tile by tile; stats[q] is that of row q. The last tile stays in
 * memory. `after` is the tile to issue when the last one has arrived, as a sum if `after_sum`; none if it has no
 * elements. */
template <class Op>
static inline __device__ void ik_row_reduction_measure(const ik_row_reduction &r, const Op &op,
    __global_ptr__ const char *x, __global_ptr__ const char *a, __global_ptr__ const char *b, long long group,
    long long from, long long to, ik_row_reduction_tiles<typename Op::value> *tiles, typename Op::stat *stats,
    const ik_row_reduction_tile &after = {}, bool after_sum = false)
{
    const bool sum = r.inputs > 1;
    ik_row_reduction_tile t = ik_row_reduction_tile_of(r, group, from, to, tiles->space);
    for (int q = 0; q < t.rows; q++)
        stats[q] = op.none();
    while (t.n > 0) {
        const ik_row_reduction_tile next = ik_row_reduction_tile_of(r, group, t.at + t.n, to, tiles->space);
        ik_row_reduction_expect(r, sum, x, a, b, t, tiles);
        mfence();
        auto *tile = tiles->tile(r);
        ik_row_reduction_land(r, sum ? 2 : 1, t, tile);
        if (sum) {
            ik_row_reduction_land(r, 3, t, tiles->tile(r, 1));
            if (ik_row_reduction_is_scalar(r, 2, sizeof *tile) || ik_row_reduction_is_scalar(r, 3, sizeof *tile))
                mfence_lm();
            ik_row_reduction_add(r, (__global_ptr__ char *)x, t, tile, tiles->tile(r, 1));
        }
        if (sum || ik_row_reduction_is_scalar(r, 1, sizeof *tile))
            mfence_lm(); /* before vectors are loaded */
        ik_row_reduction_prefetch(r, next.n > 0 ? sum : after_sum, x, a, b, next.n > 0 ? next : after, tiles);
        for (int q = 0; q < t.rows; q++)
            op.join(stats[q], t.at - from,
                ik_row_reduction_op(op, t.row + q, t.at).measure(tile + t.place(r, q), t.step(r), t.n, t.at), t.n);
        t = next;
    }
}

/* A core's slice of elements [*from, *to) of a group's rows. */
static inline __device__ void ik_row_reduction_slice(
    const ik_row_reduction &r, int core, long long *from, long long *to)
{
    const long long first = *from, unit = r.width != 0 ? 1 : IK_LINE / ik_itemsize(r.g.dtype[1]);
    ik_share_of(*to - first, unit, core, core_num(), from, to);
    *from += first;
    *to += first;
}

/* The elements of a group's rows that belong to a part. */
static inline __device__ void ik_row_reduction_part(
    const ik_row_reduction &r, long long part, long long *from, long long *to)
{
    *from = part * r.part;
    *to = ik_min(r.length, *from + r.part);
}

/* By the whole cluster: join the `own` stats of the cores' slices of [from, to), in order. */
template <class Op>
static inline __device__ void ik_row_reduction_join(const ik_row_reduction &r, const Op &op, int rows, long long from,
    long long to, const typename Op::stat *own, typename Op::stat *stats,
    __shared_ptr__ ik_row_reduction_stats<typename Op::stat> *shared)
{
    for (int q = 0; q < rows; q++)
        shared->slices[core_id()][q] = own[q];
    mfence_sm();
    sync_cluster();
    for (int q = core_id(); q < rows; q += core_num()) {
        typename Op::stat whole = op.none();
        for (int core = 0; core < core_num(); core++) {
            long long begin = from, end = to;
            ik_row_reduction_slice(r, core, &begin, &end);
            op.join(whole, begin - from, shared->slices[core][q], end - begin);
        }
        shared->whole[q] = whole;
    }
    mfence_sm();
    sync_cluster();
    for (int q = 0; q < rows; q++)
        stats[q] = shared->whole[q];
}

/* The first of two kernels: compute the stats of all parts and store them in the workspace. */
template <class Op>
static inline __device__ void ik_row_reduction_measure_parts(const ik_row_reduction &r, const Op &op,
    __global_ptr__ const char *x, __global_ptr__ const char *a, __global_ptr__ const char *b,
    __global_ptr__ char *parts, char *memory, __shared_ptr__ ik_row_reduction_stats<typename Op::stat> *shared)
{
    auto *stats = (typename Op::stat *)memory;
    auto tiles = ik_row_reduction_tiles_in<typename Op::value>(r, memory);
    long long begin, end;
    ik_share_of(r.groups * r.parts, 1, cluster_id(), cluster_num(), &begin, &end);
    for (long long task = begin; task < end; task++) {
        const long long group = task / r.parts, part = task % r.parts;
        const int rows = ik_group_rows(r, group);
        long long from, to, first, last;
        ik_row_reduction_part(r, part, &from, &to);
        first = from, last = to;
        ik_row_reduction_slice(r, core_id(), &first, &last);
        ik_row_reduction_measure(r, op, x, a, b, group, first, last, &tiles, stats);
        ik_row_reduction_join(r, op, rows, from, to, stats, stats, shared);
        for (int q = core_id(); q < rows; q += core_num()) {
            ik_row_reduction_line<typename Op::stat> line = {};
            line.stat = stats[q];
            mfence_lm();
            LM2GM(&line, parts + ((group * r.group + q) * r.parts + part) * IK_LINE, IK_LINE);
        }
    }
    mfence();
}

/* By the whole cluster: the stats of a group's rows, joined from those of their parts. `space` holds
 * IK_MAX_PARTS lines. */
template <class Op>
static inline __device__ void ik_row_reduction_recall(const ik_row_reduction &r, const Op &op, int rows,
    long long group, __global_ptr__ const char *parts, void *space, typename Op::stat *stats,
    __shared_ptr__ ik_row_reduction_stats<typename Op::stat> *shared)
{
    const auto *lines = (const ik_row_reduction_line<typename Op::stat> *)space;
    mfence(); /* the stores from `space` are done */
    for (int q = core_id(); q < rows; q += core_num()) {
        typename Op::stat whole = op.none();
        GM2LM(parts + (group * r.group + q) * r.parts * IK_LINE, space, r.parts * IK_LINE);
        for (int part = 0; part < r.parts; part++) {
            long long from, to;
            ik_row_reduction_part(r, part, &from, &to);
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

/* A core's work for a task: elements [from, to) of the rows of a group. */
struct ik_row_reduction_task {
    long long group, from, to;
};

static inline __device__ ik_row_reduction_task ik_row_reduction_task_of(const ik_row_reduction &r, long long task)
{
    ik_row_reduction_task k = { task / r.parts, 0, 0 };
    ik_row_reduction_part(r, task % r.parts, &k.from, &k.to);
    if (r.shared)
        ik_row_reduction_slice(r, core_id(), &k.from, &k.to);
    return k;
}

/* Rows: y = f(x, the stat of the whole row, w, bias). w and bias may be absent, as may a and b, whose sum is x if they
 * are present. A launch with IK_MEASURE writes `parts`. */
template <class Op>
static inline __device__ void ik_row_reduction_map(const ik_row_reduction &r, const Op &op, __global_ptr__ char *y,
    __global_ptr__ const char *x, __global_ptr__ const char *a, __global_ptr__ const char *b,
    __global_ptr__ const char *w, __global_ptr__ const char *bias, __global_ptr__ char *parts, char *memory,
    __shared_ptr__ ik_row_reduction_stats<typename Op::stat> *shared)
{
    typedef typename Op::value value;
    __global_ptr__ const char *const operand[2] = { w, bias };
    auto *stats = (typename Op::stat *)memory;
    auto tiles = ik_row_reduction_tiles_in<value>(r, memory, (w != nullptr) + (bias != nullptr));
    value *behind = tiles.memory + r.buffers * r.inputs * tiles.space; /* follows the tiles of x */
    value *here[2] = { w != nullptr ? behind : nullptr,
        bias != nullptr ? behind + (w != nullptr) * tiles.space : nullptr };
    /* `have`, `having`: where the operands in `here` begin, and how many elements they have. */
    long long begin, end, have = -1;
    int having = 0;
    if (r.phase == IK_MEASURE) {
        ik_row_reduction_measure_parts(r, op, x, a, b, parts, memory, shared);
        return;
    }
    if (r.shared)
        ik_share_of(r.groups * r.parts, 1, cluster_id(), cluster_num(), &begin, &end);
    else
        ik_share(r.groups, r.unit, &begin, &end);
    for (long long task = begin; task < end; task++) {
        const ik_row_reduction_task k = ik_row_reduction_task_of(r, task),
                                    next = task + 1 < end ? ik_row_reduction_task_of(r, task + 1)
                                                          : ik_row_reduction_task{ 0, 0, 0 };
        const int rows = ik_group_rows(r, k.group);
        /* `stays`: a single tile, which holds what measure left. */
        const bool recalls = r.phase == IK_RECALL, stays = !recalls && k.to - k.from <= tiles.space / rows;
        const ik_row_reduction_tile first = ik_row_reduction_tile_of(r, k.group, k.from, k.to, tiles.space);
        ik_row_reduction_tile follows = {}; /* the next task's first tile */
        if (!recalls && next.from < next.to)
            follows = ik_row_reduction_tile_of(r, next.group, next.from, next.to, tiles.space);
        if (recalls) {
            ik_row_reduction_recall(r, op, rows, k.group, parts, tiles.memory, stats, shared);
            have = -1; /* the tiles of the stats may overlap these operands */
        } else {
            auto *own = r.shared ? stats + IK_COLUMNS : stats;
            ik_row_reduction_measure(
                r, op, x, a, b, k.group, k.from, k.to, &tiles, own, stays ? follows : first, stays && r.inputs > 1);
            if (r.shared)
                ik_row_reduction_join(r, op, rows, 0, r.length, own, stats, shared);
        }
        const auto *own = !stays ? nullptr : r.shared ? stats + IK_COLUMNS : stats;
        for (ik_row_reduction_tile t = first, after; t.n > 0; t = after) {
            const bool fetch = have != t.at || having != t.n;
            after = ik_row_reduction_tile_of(r, k.group, t.at + t.n, k.to, tiles.space);
            if (!stays)
                ik_row_reduction_expect(r, false, x, a, b, t, &tiles);
            for (int i = 0; fetch && i < 2; i++)
                if (here[i] != nullptr) {
                    const int size = ik_itemsize(r.dtypes[i]);
                    ik_fetch_run(operand[i] + t.at * r.steps[i] * size, r.steps[i], t.n, size,
                        ik_narrow_end(here[i], t.n, sizeof(value), size));
                }
            if (!stays || fetch)
                mfence();
            auto *tile = tiles.tile(r);
            if (!stays)
                ik_row_reduction_land(r, 1, t, tile);
            for (int i = 0; fetch && i < 2; i++)
                if (here[i] != nullptr)
                    ik_widen(r.dtypes[i], here[i], t.n);
            if ((!stays && ik_row_reduction_is_scalar(r, 1, sizeof(value))) || fetch)
                mfence_lm(); /* before vectors are loaded */
            if (!stays)
                ik_row_reduction_prefetch(
                    r, after.n == 0 && r.inputs > 1, x, a, b, after.n > 0 ? after : follows, &tiles);
            have = t.at, having = t.n;
            for (int q = 0; q < rows; q++)
                ik_row_reduction_op(op, t.row + q, t.at)
                    .write(tile + t.place(r, q), t.step(r), t.n, stats[q], own != nullptr ? own + q : nullptr, here[0],
                        here[1]);
            mfence_lm(); /* after vectors were stored */
            if (ik_itemsize(r.g.dtype[0]) != (int)sizeof(value)) {
                ik_narrow(r.g.dtype[0], tile, rows * t.n);
                mfence_lm();
            }
            ik_row_reduction_store(r, 0, y, t, (const char *)tile);
        }
    }
    mfence();
}

/* Reductions: one value for each row. The values of a batch of groups are collected in shared memory, so that lines of
 * y are written whole. */
template <class Op>
static inline __device__ void ik_row_reduction_fold(const ik_row_reduction &r, const Op &op, __global_ptr__ char *y,
    __global_ptr__ const char *x, __global_ptr__ char *parts, char *memory,
    __shared_ptr__ ik_row_reduction_stats<typename Op::stat> *shared, __shared_ptr__ typename Op::result *results)
{
    typedef typename Op::result result;
    const int size = ik_itemsize(r.g.dtype[0]);
    auto *stats = (typename Op::stat *)memory;
    auto tiles = ik_row_reduction_tiles_in<typename Op::value>(r, memory);
    auto *out = (result *)tiles.memory;
    long long begin, end;
    if (r.phase == IK_MEASURE) {
        ik_row_reduction_measure_parts(r, op, x, nullptr, nullptr, parts, memory, shared);
        return;
    }
    ik_share_of(r.groups, r.unit, cluster_id(), cluster_num(), &begin, &end);
    for (long long batch = begin; batch < end; batch += IK_CORES) {
        const long long after = ik_min(end, batch + IK_CORES), row = ik_group_row(r, batch);
        if (r.shared) {
            long long first = 0, last = r.length;
            ik_row_reduction_slice(r, core_id(), &first, &last);
            for (long long group = batch; group < after; group++) {
                if (r.phase == IK_RECALL) {
                    ik_row_reduction_recall(r, op, ik_group_rows(r, group), group, parts, tiles.memory, stats, shared);
                } else {
                    ik_row_reduction_measure(
                        r, op, x, nullptr, nullptr, group, first, last, &tiles, stats + IK_COLUMNS);
                    ik_row_reduction_join(
                        r, op, ik_group_rows(r, group), 0, r.length, stats + IK_COLUMNS, stats, shared);
                }
                for (int q = core_id(); q < ik_group_rows(r, group); q += core_num())
                    results[ik_group_row(r, group) - row + q] = op.finish(stats[q]);
            }
        } else if (batch + core_id() < after) {
            const long long group = batch + core_id();
            ik_row_reduction_measure(r, op, x, nullptr, nullptr, group, 0, r.length, &tiles, stats);
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

/* Host: set how many rows are a group, and what shares it, for tiles of `space` values. */
static inline void ik_row_reduction_choose_blocking(
    ik_row_reduction &r, bool column, bool folds, long long space, long long size)
{
    const long long length = ik_max(1, r.length);
    if (column) {
        r.width = r.g.shape[r.row_dims - 1];
        r.group = (int)ik_min(IK_COLUMNS, r.width);
        r.groups = r.rows / r.width * ik_ceil_div(r.width, r.group);
    } else {
        const long long lines = folds ? 1 : IK_LINE / ik_gcd(IK_LINE, length * size),
                        maximum = ik_max(1, ik_min(IK_GROUP, space / length));
        const long long spread = ik_ceil_div(r.rows, 2 * IK_SHARE_BELOW),
                        wanted = ik_min(maximum, ik_ceil_div(spread, lines) * lines);
        r.group = length >= IK_LONG ? 1 : (int)(wanted > lines ? wanted / lines * lines : wanted);
        r.groups = ik_ceil_div(r.rows, r.group);
    }
    r.shared = r.groups < IK_SHARE_BELOW && length * r.group >= IK_LONG && (column || r.group == 1);
}

/* Host: the walk over y (tensor 0) and x (tensor 1) of a plan, whose first `row_dims` dims count rows; if it `folds`, y
 * has one value for each row. If x is the sum of two `inputs`, they are tensors 2 and 3. Further tensors lie along a
 * row. */
static inline ik_row_reduction ik_row_reduction_of(
    const ik_plan *plan, int row_dims, int value_bytes, bool folds, int inputs = 1)
{
    const ik_tensor *y = &plan->tensors[0], *x = &plan->tensors[1];
    const int count = inputs > 1 ? 4 : 2; /* tensors of x's shape */
    ik_row_reduction r = {};
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
    r.g.tensors = count;
    r.inputs = (unsigned char)inputs;
    r.row_dims = row_dims;
    r.rows = r.length = r.parts = 1;
    r.inner = column >= 0 && column < row_dims - 1 ? x->shape[column] : 1;
    for (int d = 0; d < x->ndim; d++) {
        r.g.shape[d] = x->shape[order[d]];
        (d < row_dims ? r.rows : r.length) *= r.g.shape[d];
    }
    for (int t = 0; t < count; t++) {
        const ik_tensor *tensor = &plan->tensors[t];
        bool dense = true;
        long long expected = 1;
        for (int d = x->ndim - 1; d >= 0; d--) {
            r.g.strides[t][d] = tensor->strides[order[d]];
            if (t == 0 && folds && d >= row_dims)
                continue;
            dense &= r.g.shape[d] == 1 || r.g.strides[t][d] == expected;
            expected *= r.g.shape[d];
        }
        r.g.dtype[t] = tensor->dtype;
        r.g.dense |= dense << t;
    }
    for (uint32_t t = count; t < plan->tensor_count && t < (uint32_t)count + 2; t++) {
        const ik_tensor *operand = &plan->tensors[t];
        if (operand->dtype == IK_NONE)
            continue;
        r.dtypes[t - count] = (unsigned char)operand->dtype;
        r.steps[t - count] = operand->strides[operand->ndim - 1];
        operands++;
    }
    if (r.rows == 0)
        return r;
    const long long length = ik_max(1, r.length), size = ik_itemsize(y->dtype);
    const long long once = ik_row_reduction_capacity(value_bytes, inputs + operands),
                    twice = ik_row_reduction_capacity(value_bytes, 2 * inputs + operands);
    /* Two buffers if a core's part of a group fits twice, or not even once but there is one input: its tiles stay long
     * enough. */
    r.buffers = 2;
    ik_row_reduction_choose_blocking(r, column >= 0, folds, twice, size);
    const long long own = (r.shared ? ik_ceil_div(length, IK_CORES) : length) * r.group;
    if (own > twice ? own <= once || inputs > 1 : folds) {
        r.buffers = 1;
        ik_row_reduction_choose_blocking(r, column >= 0, folds, once, size);
    }
    r.part = r.length;
    if (r.shared && r.groups < IK_SPLIT_BELOW && length * r.group >= 2 * IK_PART) {
        const long long parts = ik_min(IK_MAX_PARTS, length * r.group / IK_PART);
        r.part = ik_ceil_div(ik_ceil_div(length, parts), IK_LINE) * IK_LINE;
        r.parts = (int)ik_ceil_div(length, r.part);
    }
    const long long bytes = (folds ? 1 : length) * r.group * size, unit = IK_LINE / ik_gcd(IK_LINE, bytes);
    r.unit = r.groups >= unit * (folds ? IK_GROUP : 2 * IK_SHARE_BELOW) ? (int)unit : 1;
    return r;
}

/* Host: the rows along the last dim, for an operator that writes rows in float. */
static inline ik_row_reduction ik_row_reduction_along_last(const ik_plan *plan)
{ return ik_row_reduction_of(plan, plan->tensors[0].ndim - 1, sizeof(float), false); }

/* Host: whether the elements of x are integers, which are computed in long long. */
static inline bool ik_row_reduction_of_integers(const ik_plan *plan) { return plan->tensors[1].dtype >= IK_I8; }

static inline uint64_t ik_row_reduction_workspace(const ik_row_reduction &r)
{ return r.parts > 1 ? (uint64_t)(r.groups * r.group * r.parts * IK_LINE) : 0; }

/* Host: call launch(rows, clusters) once, or for the stats of parts and then for the rest. */
template <class Launch>
static inline ik_status ik_row_reduction_launch(ik_row_reduction r, const ik_xpu_stream *s, Launch launch)
{
    if (r.rows == 0)
        return IK_SUCCESS;
    const int all = ik_clusters(s),
              clusters = (int)ik_min(all, r.shared ? r.groups * r.parts : ik_ceil_div(r.groups, IK_CORES));
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
