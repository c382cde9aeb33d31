/* What the kernels that move elements share: how elements are split into tiles and distributed to the cores, and copies
 * between blocks of any strides. */
#ifndef IK_XPU_MOVE_H
#define IK_XPU_MOVE_H
#include <cstdlib>

#include "kernel.h"

enum { IK_CHUNK_BYTES = 2048, IK_STRIDED_TILE = 64, IK_TURNS = 4 };

/* `total` elements of a linear index as spans of `span`, which consist of units of `unit` (the last unit of a span may
 * be shorter). A core gets whole units, and handles at most `tile` elements of one span at a time. */
struct ik_tiling {
    long long total, span;
    int unit, tile;
};

/* This core's tiles: for (ik_tiles t(tiling); t.next();) with t.n elements from t.at on. */
struct ik_tiles {
    const ik_tiling &of;
    const long long units; /* units of a span */
    long long begin, end; /* this core's remaining units, counted over all spans */
    long long at = 0;
    int n = 0;

    inline __device__ ik_tiles(const ik_tiling &tiling) : of(tiling), units(ik_ceil_div(tiling.span, tiling.unit))
    { ik_share(of.total / of.span * units, 1, &begin, &end); }

    inline __device__ bool empty() const { return begin == end; }

    inline __device__ bool next()
    {
        if (empty())
            return false;
        const long long first = begin % units, taken = ik_min(of.tile / of.unit, ik_min(end - begin, units - first));
        at = begin / units * of.span + first * of.unit;
        n = (int)ik_min(taken * of.unit, of.span - first * of.unit);
        begin += taken;
        return true;
    }
};

/* Copy y = x for this core's tiles: all copies to the tile, one fence, all copies from it, and a fence before it is
 * reused. */
static inline __device__ void ik_move(
    const ik_geometry &g, const ik_tiling &tiling, __global_ptr__ char *y, __global_ptr__ const char *x, char *tile)
{
    for (ik_tiles t(tiling); t.next();) {
        ik_fetch(g, 1, x, t.at, t.n, tile);
        ik_store(g, 0, y, t.at, t.n, tile);
    }
}

/* Host: elements that are contiguous in the output and, in the inputs, contiguous or a single repeated element; 0 if
 * they have to be copied one by one. */
static inline long long ik_run_of(const ik_geometry &g)
{
    const int last = g.ndim - 1;
    bool runs = g.strides[0][last] == 1;
    for (int t = 1; t < g.tensors; t++)
        runs &= g.strides[t][last] == 1 || g.strides[t][last] == 0;
    return runs ? g.shape[last] : 0;
}

/* Host: units of all spans. */
static inline long long ik_units_of(const ik_tiling &t) { return t.total / t.span * ik_ceil_div(t.span, t.unit); }

/* Host: a tiling that keeps runs whole. A run of up to IK_CHUNK_BYTES is not split; a longer one is split into chunks
 * of that size, so that neither direction needs more than ceil(run bytes / IK_CHUNK_BYTES) copies. Where the output is
 * dense, short runs are grouped to fill lines, so that no two cores share one. */
static inline ik_tiling ik_tiling_of_runs(long long total, long long run, int size, bool dense, int max_elements)
{
    const int line = IK_LINE / size, chunk = (int)ik_min(IK_CHUNK_BYTES / size, max_elements);
    if (run > chunk)
        return { total, run, chunk, max_elements / chunk * chunk };
    long long unit = run;
    while (dense && unit % line != 0)
        unit *= 2;
    unit = ik_min(unit <= chunk ? unit : run, total);
    return { total, total, (int)unit, (int)(max_elements / unit * unit) };
}

/* Host: the tiling of `total` elements of `size` bytes that lie in runs of `run`, for `cores` cores with space for
 * `bytes`.
 *
 * Runs stay whole where that keeps all cores about equally busy. Otherwise they are split into pieces of at least
 * `min_elements` elements: where a core's share ends if the output is dense, else counted from the beginning of each
 * run, where its lines begin. */
static inline ik_tiling ik_tiling_of(
    long long total, long long run, int size, bool dense, int bytes, int cores, int min_elements = 1)
{
    const int max_elements = bytes / size, grain = (int)ik_max(min_elements, ik_grain_of(total, size, cores));
    if (total == 0)
        return { 0, 1, 1, 1 };
    if (run == 0)
        return { total, total, grain, IK_STRIDED_TILE };
    const ik_tiling whole = ik_tiling_of_runs(total, run, size, dense, max_elements);
    const long long units = ik_units_of(whole);
    if (units % cores == 0 || units >= IK_TURNS * cores || (!dense && run <= grain))
        return whole;
    return { total, dense ? total : run, grain, max_elements / grain * grain };
}

/* Host: clusters worth starting. */
static inline int ik_clusters_of(const ik_xpu_stream *s, const ik_tiling &t)
{ return (int)ik_max(1, ik_min(ik_clusters(s), ik_ceil_div(ik_units_of(t), IK_CORES))); }

/* Host: drop dims of extent 1 in [from, to) and merge those along which all tensors step together; returns the end of
 * the dims that are left. */
static inline int ik_merge(ik_geometry &g, int from, int to)
{
    int kept = from;
    for (int d = from; d < to; d++) {
        if (g.shape[d] == 1)
            continue;
        bool joins = kept > from;
        for (int t = 0; joins && t < g.tensors; t++)
            joins = g.strides[t][kept - 1] == g.strides[t][d] * g.shape[d];
        const long long n = joins ? g.shape[kept - 1] * g.shape[d] : g.shape[d];
        kept += !joins;
        g.shape[kept - 1] = n;
        for (int t = 0; t < g.tensors; t++)
            g.strides[t][kept - 1] = g.strides[t][d];
    }
    for (int d = to; d < g.ndim; d++) {
        g.shape[kept + d - to] = g.shape[d];
        for (int t = 0; t < g.tensors; t++)
            g.strides[t][kept + d - to] = g.strides[t][d];
    }
    g.ndim -= to - kept;
    return kept;
}

/* Host: give a geometry without dims one of extent 1. */
static inline void ik_fill_rank(ik_geometry &g)
{
    if (g.ndim > 0)
        return;
    g.ndim = 1;
    g.shape[0] = 1;
    for (int t = 0; t < g.tensors; t++)
        g.strides[t][0] = 1;
}

/* Host: y and x over x's shape, dims ordered by y's strides and merged. */
static inline ik_geometry ik_block_of(const ik_tensor *y, const ik_tensor *x)
{
    ik_geometry g = {};
    g.tensors = 2;
    g.dtype[0] = y->dtype;
    g.dtype[1] = x->dtype;
    for (int d = 0; d < x->ndim; d++) {
        int at = g.ndim++;
        for (; at > 0 && llabs(g.strides[0][at - 1]) < llabs(y->strides[d]); at--) {
            g.shape[at] = g.shape[at - 1];
            for (int t = 0; t < 2; t++)
                g.strides[t][at] = g.strides[t][at - 1];
        }
        g.shape[at] = x->shape[d];
        g.strides[0][at] = y->strides[d];
        g.strides[1][at] = x->strides[d];
    }
    ik_merge(g, 0, g.ndim);
    ik_fill_rank(g);
    ik_set_order(g);
    return g;
}

/* Host: the tiling of a block. */
static inline ik_tiling ik_block_tiling(const ik_xpu_stream *s, const ik_geometry &g)
{
    long long total = 1;
    for (int d = 0; d < g.ndim; d++)
        total *= g.shape[d];
    return ik_tiling_of(total, ik_run_of(g), ik_itemsize(g.dtype[0]), g.dense & 1, IK_LM_BYTES, ik_all_cores(s));
}
#endif
