/* The walk over rows that reductions, softmax and the norms share: each row is measured, then written or reduced to one
 * value.
 *
 * Measuring a row gives its stat, such as a sum; stats of tiles, of the slices of cores (through shared memory) and of
 * parts (through the workspace, between two launches) are joined in the order of the elements. row_blocking.h says how
 * rows are divided, and row_tiles.h how they come to local memory, which holds the stats of a group's rows and tiles.
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
#include "row_tiles.h"

/* In shared memory: the stats of each core's slice, and those of whole rows. */
template <class Stat>
struct ik_row_stats {
    Stat slices[IK_CORES][IK_COLUMNS];
    Stat whole[IK_COLUMNS];
};

/* A stat in the workspace, on a line of its own. */
template <class Stat>
union ik_stat_line {
    char bytes[IK_LINE];
    Stat stat;
};

/* The operator for a row's elements from `at` on; operators that depend on the row overload this. */
template <class Op>
static inline __device__ const Op &ik_op_of_row(const Op &op, long long, long long)
{ return op; }

/* Measure a span of a group's rows, tile by tile; stats[q] is that of row q. The last tile stays in memory. `after` is
 * the tile to issue when the last one has arrived, as a sum if `after_sum`; none if it has no elements. */
template <class Op>
static inline __device__ void ik_measure(const ik_row_reduction &r, const Op &op, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, long long group, const ik_row_span &span,
    ik_row_tiles<typename Op::value> *tiles, typename Op::stat *stats, const ik_row_tile &after = {},
    bool after_sum = false)
{
    const bool sum = r.inputs > 1;
    ik_row_tile t = ik_first_tile(r, group, span, tiles->space);
    for (int q = 0; q < t.rows; q++)
        stats[q] = op.none();
    while (t.n > 0) {
        const ik_row_tile next = ik_first_tile(r, group, { t.at + t.n, span.to }, tiles->space);
        ik_await_tile(r, sum, x, a, b, t, tiles);
        mfence();
        auto *tile = tiles->tile(r);
        ik_widen_tile(r, sum ? 2 : 1, t, tile);
        if (sum) {
            ik_widen_tile(r, 3, t, tiles->tile(r, 1));
            if (ik_widens_by_scalars(r, 2, sizeof *tile) || ik_widens_by_scalars(r, 3, sizeof *tile))
                mfence_lm();
            ik_add_tile(r, (__global_ptr__ char *)x, t, tile, tiles->tile(r, 1));
        }
        if (sum || ik_widens_by_scalars(r, 1, sizeof *tile))
            mfence_lm(); /* before vectors are loaded */
        ik_prefetch_tile(r, next.n > 0 ? sum : after_sum, x, a, b, next.n > 0 ? next : after, tiles);
        for (int q = 0; q < t.rows; q++)
            op.join(stats[q], t.at - span.from,
                ik_op_of_row(op, t.row + q, t.at).measure(tile + t.place(r, q), t.step(r), t.n, t.at), t.n);
        t = next;
    }
}

/* By the whole cluster, after each core has set the rows q = core_id(), core_id() + core_num() … of shared->whole. */
template <class Stat>
static inline __device__ void ik_read_whole(int rows, __shared_ptr__ ik_row_stats<Stat> *shared, Stat *stats)
{
    mfence_sm();
    sync_cluster();
    for (int q = 0; q < rows; q++)
        stats[q] = shared->whole[q];
}

/* By the whole cluster: join the `own` stats of the cores' slices of a span, in order. */
template <class Op>
static inline __device__ void ik_join_slices(const ik_row_reduction &r, const Op &op, int rows, const ik_row_span &span,
    const typename Op::stat *own, typename Op::stat *stats, __shared_ptr__ ik_row_stats<typename Op::stat> *shared)
{
    for (int q = 0; q < rows; q++)
        shared->slices[core_id()][q] = own[q];
    mfence_sm();
    sync_cluster();
    for (int q = core_id(); q < rows; q += core_num()) {
        typename Op::stat whole = op.none();
        for (int core = 0; core < core_num(); core++) {
            const ik_row_span slice = r.slice(span, core);
            op.join(whole, slice.from - span.from, shared->slices[core][q], slice.to - slice.from);
        }
        shared->whole[q] = whole;
    }
    ik_read_whole(rows, shared, stats);
}

/* The first of two launches: compute the stats of all parts and store them in the workspace. */
template <class Op>
static inline __device__ void ik_measure_parts(const ik_row_reduction &r, const Op &op, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, __global_ptr__ char *parts, char *memory,
    __shared_ptr__ ik_row_stats<typename Op::stat> *shared)
{
    auto *stats = (typename Op::stat *)memory;
    auto tiles = ik_row_tiles_in<typename Op::value>(r, memory);
    long long begin, end;
    ik_share_of(r.groups * r.parts, 1, cluster_id(), cluster_num(), &begin, &end);
    for (long long task = begin; task < end; task++) {
        const long long group = task / r.parts, part = task % r.parts;
        const int rows = r.rows_of(group);
        const ik_row_span span = r.span_of_part(part);
        ik_measure(r, op, x, a, b, group, r.slice(span, core_id()), &tiles, stats);
        ik_join_slices(r, op, rows, span, stats, stats, shared);
        for (int q = core_id(); q < rows; q += core_num()) {
            ik_stat_line<typename Op::stat> line = {};
            line.stat = stats[q];
            mfence_lm();
            LM2GM(&line, parts + ((group * r.group + q) * r.parts + part) * IK_LINE, IK_LINE);
        }
    }
    mfence();
}

/* By the whole cluster, in the second launch: the stats of a group's rows, joined from those of their parts. `space`
 * holds IK_MAX_PARTS lines. */
template <class Op>
static inline __device__ void ik_join_parts(const ik_row_reduction &r, const Op &op, int rows, long long group,
    __global_ptr__ const char *parts, void *space, typename Op::stat *stats,
    __shared_ptr__ ik_row_stats<typename Op::stat> *shared)
{
    const auto *lines = (const ik_stat_line<typename Op::stat> *)space;
    mfence(); /* the stores from `space` are done */
    for (int q = core_id(); q < rows; q += core_num()) {
        typename Op::stat whole = op.none();
        GM2LM(parts + (group * r.group + q) * r.parts * IK_LINE, space, r.parts * IK_LINE);
        for (int part = 0; part < r.parts; part++) {
            const ik_row_span span = r.span_of_part(part);
            op.join(whole, span.from, lines[part].stat, span.to - span.from);
        }
        shared->whole[q] = whole;
    }
    ik_read_whole(rows, shared, stats);
    sync_cluster();
}

/* A core's work for a task. */
struct ik_row_task {
    long long group;
    ik_row_span span;
};

static inline __device__ ik_row_task ik_row_task_of(const ik_row_reduction &r, long long task)
{
    const ik_row_span span = r.span_of_part(task % r.parts);
    return { task / r.parts, r.shared ? r.slice(span, core_id()) : span };
}

/* w and bias of n elements from `at` on, in local memory; they stay there while tiles of other rows need the same. */
template <class T>
struct ik_row_operands {
    T *values[2]; /* null where absent */
    long long at;
    int n;
};

/* Rows: y = f(x, the stat of the whole row, w, bias). w and bias may be absent, as may a and b, whose sum is x if they
 * are present. A launch with IK_MEASURE writes `parts`. */
template <class Op>
static inline __device__ void ik_map_rows(const ik_row_reduction &r, const Op &op, __global_ptr__ char *y,
    __global_ptr__ const char *x, __global_ptr__ const char *a, __global_ptr__ const char *b,
    __global_ptr__ const char *w, __global_ptr__ const char *bias, __global_ptr__ char *parts, char *memory,
    __shared_ptr__ ik_row_stats<typename Op::stat> *shared)
{
    typedef typename Op::value value;
    if (r.phase == IK_MEASURE) {
        ik_measure_parts(r, op, x, a, b, parts, memory, shared);
        return;
    }
    __global_ptr__ const char *const operand[2] = { w, bias };
    auto *stats = (typename Op::stat *)memory, *own = r.shared ? stats + IK_COLUMNS : stats; /* own: of its slices */
    auto tiles = ik_row_tiles_in<value>(r, memory, (w != nullptr) + (bias != nullptr));
    value *behind = tiles.memory + r.buffers * r.inputs * tiles.space; /* follows the tiles of x */
    ik_row_operands<value> here = {
        { w != nullptr ? behind : nullptr, bias != nullptr ? behind + (w != nullptr) * tiles.space : nullptr }, -1, 0
    };
    long long begin, end;
    if (r.shared)
        ik_share_of(r.groups * r.parts, 1, cluster_id(), cluster_num(), &begin, &end);
    else
        ik_share(r.groups, r.unit, &begin, &end);
    for (long long task = begin; task < end; task++) {
        const ik_row_task k = ik_row_task_of(r, task);
        const ik_row_tile first = ik_first_tile(r, k.group, k.span, tiles.space);
        /* `stays`: the only tile holds what measure left. */
        const bool recalls = r.phase == IK_RECALL,
                   stays = !recalls && k.span.to - k.span.from <= tiles.space / first.rows;
        ik_row_tile follows = {}; /* the next task's first tile */
        if (!recalls && task + 1 < end) {
            const ik_row_task next = ik_row_task_of(r, task + 1);
            follows = ik_first_tile(r, next.group, next.span, tiles.space);
        }
        if (recalls) {
            ik_join_parts(r, op, first.rows, k.group, parts, tiles.memory, stats, shared);
            here.at = -1; /* the lines of the parts may overlap these operands */
        } else {
            ik_measure(r, op, x, a, b, k.group, k.span, &tiles, own, stays ? follows : first, stays && r.inputs > 1);
            if (r.shared)
                ik_join_slices(r, op, first.rows, { 0, r.length }, own, stats, shared);
        }
        for (ik_row_tile t = first, after; t.n > 0; t = after) {
            const bool fetch = here.at != t.at || here.n != t.n;
            after = ik_first_tile(r, k.group, { t.at + t.n, k.span.to }, tiles.space);
            if (!stays)
                ik_await_tile(r, false, x, a, b, t, &tiles);
            for (int i = 0; fetch && i < 2; i++)
                if (here.values[i] != nullptr) {
                    const int size = ik_itemsize(r.dtypes[i]);
                    ik_fetch_run(operand[i] + t.at * r.steps[i] * size, r.steps[i], t.n, size,
                        ik_narrow_end(here.values[i], t.n, sizeof(value), size));
                }
            if (!stays || fetch)
                mfence();
            auto *tile = tiles.tile(r);
            if (!stays)
                ik_widen_tile(r, 1, t, tile);
            for (int i = 0; fetch && i < 2; i++)
                if (here.values[i] != nullptr)
                    ik_widen(r.dtypes[i], here.values[i], t.n);
            if ((!stays && ik_widens_by_scalars(r, 1, sizeof(value))) || fetch)
                mfence_lm(); /* before vectors are loaded */
            if (!stays)
                ik_prefetch_tile(r, after.n == 0 && r.inputs > 1, x, a, b, after.n > 0 ? after : follows, &tiles);
            here.at = t.at, here.n = t.n;
            for (int q = 0; q < t.rows; q++)
                ik_op_of_row(op, t.row + q, t.at)
                    .write(tile + t.place(r, q), t.step(r), t.n, stats[q], stays ? own + q : nullptr, here.values[0],
                        here.values[1]);
            mfence_lm(); /* after vectors were stored */
            if (ik_itemsize(r.g.dtype[0]) != (int)sizeof(value)) {
                ik_narrow(r.g.dtype[0], tile, t.rows * t.n);
                mfence_lm();
            }
            ik_copy_tile<true>(r, 0, y, t, (char *)tile);
        }
    }
    mfence();
}

/* Reductions: one value for each row. The values of a batch of groups are collected in shared memory, so that lines of
 * y are written whole. */
template <class Op>
static inline __device__ void ik_fold_rows(const ik_row_reduction &r, const Op &op, __global_ptr__ char *y,
    __global_ptr__ const char *x, __global_ptr__ char *parts, char *memory,
    __shared_ptr__ ik_row_stats<typename Op::stat> *shared, __shared_ptr__ typename Op::result *results)
{
    typedef typename Op::result result;
    if (r.phase == IK_MEASURE) {
        ik_measure_parts(r, op, x, nullptr, nullptr, parts, memory, shared);
        return;
    }
    const int size = ik_itemsize(r.g.dtype[0]);
    auto *stats = (typename Op::stat *)memory, *own = stats + IK_COLUMNS; /* own: of this core's slice */
    auto tiles = ik_row_tiles_in<typename Op::value>(r, memory);
    auto *out = (result *)tiles.memory;
    const ik_row_span all = { 0, r.length };
    long long begin, end;
    ik_share_of(r.groups, r.unit, cluster_id(), cluster_num(), &begin, &end);
    for (long long batch = begin; batch < end; batch += IK_CORES) {
        const long long after = ik_min(end, batch + IK_CORES), row = r.first_row(batch);
        for (long long group = r.shared ? batch : batch + core_id(); group < after; group += r.shared ? 1 : IK_CORES) {
            const int rows = r.rows_of(group);
            if (!r.shared) {
                ik_measure(r, op, x, nullptr, nullptr, group, all, &tiles, stats);
            } else if (r.phase == IK_RECALL) {
                ik_join_parts(r, op, rows, group, parts, tiles.memory, stats, shared);
            } else {
                ik_measure(r, op, x, nullptr, nullptr, group, r.slice(all, core_id()), &tiles, own);
                ik_join_slices(r, op, rows, all, own, stats, shared);
            }
            for (int q = r.shared ? core_id() : 0; q < rows; q += r.shared ? core_num() : 1)
                results[r.first_row(group) - row + q] = op.finish(stats[q]);
        }
        mfence_sm();
        sync_cluster();
        long long at, to;
        ik_share_of(r.first_row(after) - row, IK_LINE / size, core_id(), core_num(), &at, &to);
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
