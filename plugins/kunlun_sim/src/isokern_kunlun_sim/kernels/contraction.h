/* What gemm, conv2d and matmul_transposed share: matrix products, a tile of y at a time for each cluster.
 *
 *     y[i, j] = Σ_p a[i, p] * b[p, j] for each of a batch
 *
 * A cluster's work is a list of steps: for each of its tiles of y, block after block of p. In a step, all of its cores
 * bring a panel of a (the tile's rows, the block's p) and one of b (the block's p, the tile's columns) into shared
 * memory, and each core adds the products of its rows and columns to its sums in local memory. There are two halves of
 * shared memory: the next step's panels are brought into one while the products of the other are computed, so one
 * barrier a step is enough. The cores form a box over rows, columns and, where these do not keep all of them busy, p:
 * then the sums of the cores along p are added through shared memory when the tile is done.
 *
 * A kernel provides a parameter struct G with a member `t` of type ik_blocking and the functions below. Pointers to
 * device memory are arguments, because they may not be members of a struct.
 *     ik_stage_a(g, place, line, from, to, a, stager)    brings elements [from, to) of a line of the panel of a
 *     ik_stage_b(g, place, line, from, to, b, stager)    the same of b; columns up to the next multiple of IK_COLS
 *                                                        are zero
 *     ik_finish(g, batch, row, col, rows, cols, sums, buffer, y, bias, c)
 *                                                        writes the sums of one core to y
 */
#ifndef IK_XPU_CONTRACTION_H
#define IK_XPU_CONTRACTION_H
#include "panels.h"

enum {
    IK_ROWS = 4, /* IK_ROWS by IK_COLS sums are computed in registers */
    IK_COLS = 8,
    IK_SUMS_BYTES = 2048, /* sums of one core, in local memory */
    IK_PANEL_BYTES = 64 << 10, /* both panels of a step */
    /* Sums of 64 cores with IK_ROWS rows of a line of bytes: where p is split there are no more rows. */
    IK_PARTIAL_BYTES = 64 << 10,
    IK_SHARED_BYTES = 2 * IK_PANEL_BYTES + IK_PARTIAL_BYTES,
    IK_PANEL_LINE = 512, /* rows, or columns, of a tile at most */
    /* Products that are added up before they are added to a sum, which limits the rounding errors of long sums. */
    IK_RUN_K = 64,
};

struct ik_blocking {
    long long batch, m, n, k;
    int core_rows, core_cols, core_ks; /* the box of cores */
    int rows, cols; /* rows and columns of y that one core computes */
    int block_k; /* elements of p in a step */
    int transposed_a, transposed_b; /* the lines of the panel are columns */
    int dtype;

    __device__ int tile_rows() const { return core_rows * rows; }
    __device__ int tile_cols() const { return core_cols * cols; }
    __device__ long long blocks() const { return ik_max(1, ik_ceil_div(k, block_k)); }

    /* Tiles of y, if each core computes `rows_of_core` rows. */
    __device__ long long tiles(int rows_of_core) const
    { return batch * ik_ceil_div(m, core_rows * rows_of_core) * ik_ceil_div(n, tile_cols()); }
};

/* The place of one step. */
struct ik_place {
    long long batch, row, col, p;
    int rows, cols, ps; /* extents from there */
    int a, b; /* where the panels begin in shared memory, in elements */
    int a_row, a_p, b_p; /* strides in the panels */
};

static inline __host__ __device__ int ik_round_up(int n, int to) { return (n + to - 1) / to * to; }

/* Add s[i, j] += Σ_p a[i, p] * b[p, j] for R rows and IK_COLS columns. */
template <class T, int R>
static inline __device__ void ik_multiply(
    __shared_ptr__ const T *a, int a_row, int a_p, __shared_ptr__ const T *b, int b_p, int ps, T *sums, int pitch)
{
    T s[R][IK_COLS] = {};
    for (int p = 0; p < ps; p++) {
        T right[IK_COLS];
        IK_UNROLL
        for (int j = 0; j < IK_COLS; j++)
            right[j] = b[p * b_p + j];
        IK_UNROLL
        for (int i = 0; i < R; i++) {
            const T left = a[i * a_row + p * a_p];
            IK_UNROLL
            for (int j = 0; j < IK_COLS; j++)
                s[i][j] += left * right[j];
        }
    }
    IK_UNROLL
    for (int i = 0; i < R; i++)
        for (int j = 0; j < IK_COLS; j++)
            sums[i * pitch + j] += s[i][j];
}

/* The same for all sums of one core in a step. */
template <class T>
static inline __device__ void ik_multiply_all(__shared_ptr__ const T *a, int a_row, int a_p, __shared_ptr__ const T *b,
    int b_p, int rows, int cols, int ps, T *sums, int pitch)
{
    for (int p = 0; p < ps; p += IK_RUN_K) {
        const int run = (int)ik_min(IK_RUN_K, ps - p);
        for (int j = 0; j < cols; j += IK_COLS) {
            int i = 0;
            for (; i + IK_ROWS <= rows; i += IK_ROWS)
                ik_multiply<T, IK_ROWS>(
                    a + i * a_row + p * a_p, a_row, a_p, b + p * b_p + j, b_p, run, sums + i * pitch + j, pitch);
            for (; i < rows; i++)
                ik_multiply<T, 1>(
                    a + i * a_row + p * a_p, a_row, a_p, b + p * b_p + j, b_p, run, sums + i * pitch + j, pitch);
        }
    }
}

static inline __device__ ik_place ik_place_of(const ik_blocking &t, long long step, int half_elements)
{
    const long long col_tiles = ik_ceil_div(t.n, t.tile_cols()), row_tiles = ik_ceil_div(t.m, t.tile_rows()),
                    tile = cluster_id() + step / t.blocks() * cluster_num();
    ik_place w;
    w.col = tile % col_tiles * t.tile_cols();
    w.row = tile / col_tiles % row_tiles * t.tile_rows();
    w.batch = tile / col_tiles / row_tiles;
    w.p = step % t.blocks() * t.block_k;
    w.rows = (int)ik_min(t.tile_rows(), t.m - w.row);
    w.cols = (int)ik_min(t.tile_cols(), t.n - w.col);
    w.ps = (int)ik_min(t.block_k, t.k - w.p);
    w.a = (int)(step & 1) * half_elements;
    w.b = w.a + t.tile_rows() * t.block_k;
    w.a_row = t.transposed_a ? 1 : t.block_k;
    w.a_p = t.transposed_a ? t.tile_rows() : 1;
    w.b_p = t.tile_cols();
    return w;
}

/* Bring one core's part of a step's panels: lines, or parts of lines where there are fewer lines than cores. The data
 * has arrived only after the core's fence. */
template <class T, class G>
static __device__ void ik_stage(
    const G &g, const ik_place &w, ik_stager<T> &stager, __global_ptr__ const char *a, __global_ptr__ const char *b)
{
    if (w.ps == 0)
        return;
    const int wide = ik_round_up(w.cols, IK_COLS);
    const int a_lines = g.t.transposed_a ? w.ps : w.rows, a_length = g.t.transposed_a ? w.rows : w.ps;
    const int b_lines = g.t.transposed_b ? wide : w.ps, b_length = g.t.transposed_b ? w.ps : w.cols;
    const int share = (int)ik_ceil_div(a_lines * a_length + b_lines * b_length, core_num());
    const int a_part = (int)ik_min(a_length, ik_round_up(share, 16)),
              b_part = (int)ik_min(b_length, ik_round_up(share, 16));
    const int a_parts = (int)ik_ceil_div(a_length, a_part), b_parts = (int)ik_ceil_div(b_length, b_part);
    const int a_units = a_lines * a_parts, units = a_units + b_lines * b_parts;
    stager.alone = a_units == 1 || units == a_units + 1;
    for (int u = core_id(); u < units; u += core_num()) {
        if (u < a_units) {
            const int from = u % a_parts * a_part;
            ik_stage_a(g, w, u / a_parts, from, (int)ik_min(a_length, from + a_part), a, stager);
        } else {
            const int v = u - a_units, from = v % b_parts * b_part;
            ik_stage_b(g, w, v / b_parts, from, (int)ik_min(b_length, from + b_part), b, stager);
        }
    }
    stager.flush();
}

/* Add up the sums of the cores along p; the first of them gets the result. All cores of the cluster must call this. */
template <class T>
static __device__ void ik_add_partials(const ik_blocking &t, int first, bool busy, T *sums, __shared_ptr__ T *partials)
{
    const int n = t.rows * t.cols;
    if (busy && core_id() != first)
        for (int i = 0; i < n; i++)
            partials[core_id() * n + i] = sums[i];
    mfence();
    sync_cluster();
    if (busy && core_id() == first)
        for (int z = 1; z < t.core_ks; z++)
            for (int i = 0; i < n; i++)
                sums[i] += partials[(first + z) * n + i];
}

template <class T, class G>
static inline __device__ void ik_contract(const G &g, __shared_ptr__ char *memory, char *sums_memory, char *buffer,
    __global_ptr__ char *y, __global_ptr__ const char *a, __global_ptr__ const char *b, __global_ptr__ const char *bias,
    __global_ptr__ const char *c)
{
    const ik_blocking &t = g.t;
    __shared_ptr__ T *shared = (__shared_ptr__ T *)memory;
    T *sums = (T *)sums_memory;
    const int half = IK_PANEL_BYTES / (int)sizeof(T);
    const long long steps = ik_ceil_div(t.tiles(t.rows) - cluster_id(), cluster_num()) * t.blocks();
    /* This core's place in the box, its first row and column in a tile, and its share of a block of p. */
    const int core_k = core_id() % t.core_ks, core_row = core_id() / t.core_ks / t.core_cols;
    const int row = core_row * t.rows, col = core_id() / t.core_ks % t.core_cols * t.cols;
    const int share = (int)ik_ceil_div(t.block_k, t.core_ks), from = core_k * share;
    ik_stager<T> stager(memory, buffer, t.dtype);
    ik_place w = ik_place_of(t, 0, half);
    if (steps > 0)
        ik_stage(g, w, stager, a, b);
    for (long long s = 0; s < steps; s++) {
        mfence();
        sync_cluster(); /* this step's panels have arrived, and nobody reads the last step's any more */
        ik_place next = w;
        if (s + 1 < steps) {
            next = ik_place_of(t, s + 1, half);
            ik_stage(g, next, stager, a, b);
        }
        const int rows = (int)ik_min(t.rows, w.rows - row), cols = (int)ik_min(t.cols, w.cols - col),
                  ps = (int)ik_min(share, w.ps - from);
        const bool busy = core_row < t.core_rows && rows > 0 && cols > 0;
        if (busy && w.p == 0)
            for (int i = 0; i < t.rows * t.cols; i++)
                sums[i] = 0;
        if (busy && ps > 0)
            ik_multiply_all(shared + w.a + row * w.a_row + from * w.a_p, w.a_row, w.a_p,
                shared + w.b + from * w.b_p + col, w.b_p, rows, cols, ps, sums, t.cols);
        if (w.p + t.block_k >= t.k) { /* the tile is done */
            if (t.core_ks > 1)
                ik_add_partials(t, core_id() - core_k, busy, sums, shared + 2 * half);
            if (busy && core_k == 0)
                ik_finish(g, w.batch, w.row + row, w.col + col, rows, cols, sums, buffer, y, bias, c);
        }
        w = next;
    }
}

/* Fetch n values of a dtype to local memory as floats. */
static inline __device__ void ik_fetch_f32(
    int dtype, __global_ptr__ const char *from, long long stride, int n, float *to)
{
    ik_fetch_run(from, stride, n, ik_itemsize(dtype), ik_narrow_end(to, n, 4, ik_itemsize(dtype)));
    mfence();
    ik_widen_f32(dtype, to, n);
}

/* Host: the smallest power of two that is at least n, but at most `maximum`. */
static inline int ik_power_of_two(long long n, int maximum)
{
    int p = 1;
    while (p < n && p < maximum)
        p *= 2;
    return p;
}

/* Host: the blocking of a product for a device, such that its clusters and their cores are busy. */
static inline ik_blocking ik_blocking_of(
    int dtype, long long batch, long long m, long long n, long long k, int clusters)
{
    ik_blocking t = {};
    const int size = ik_itemsize(dtype), width = size < 4 ? 4 : size;
    t.batch = batch, t.m = m, t.n = n, t.k = k, t.dtype = dtype;
    t.cols = IK_LINE / size; /* no line of y is written by two cores */
    t.rows = IK_ROWS;
    const long long lines = ik_ceil_div(n, t.cols), max_cols = IK_PANEL_LINE / t.cols;
    t.core_cols = ik_power_of_two(lines, 8 < max_cols ? 8 : (int)max_cols);
    t.core_rows = ik_power_of_two(ik_ceil_div(m, t.rows), IK_CORES / t.core_cols);
    t.core_cols = ik_power_of_two(lines, (int)ik_min(IK_CORES / t.core_rows, max_cols));
    t.core_ks = 1;
    while (t.core_rows * t.core_cols * t.core_ks < IK_CORES && k >= 32 * t.core_ks)
        t.core_ks *= 2;
    while (2 * t.rows * t.cols * width <= IK_SUMS_BYTES && 2 * t.rows * t.core_rows <= IK_PANEL_LINE
        && m > t.rows * t.core_rows && t.tiles(2 * t.rows) >= clusters)
        t.rows *= 2;
    /* Fewer rows in a tile, more cores along p. */
    while (t.tiles(t.rows) < clusters && t.core_rows * t.core_cols > 1 && k >= 2 * IK_RUN_K * t.core_ks) {
        (t.core_rows > 1 ? t.core_rows : t.core_cols) /= 2;
        t.core_ks *= 2;
    }
    const int maximum = IK_PANEL_BYTES / (width * (t.tile_rows() + t.tile_cols()));
    const long long blocks = ik_max(1, ik_ceil_div(k, ik_min(maximum / 8 * 8, 1024)));
    /* Blocks of about equal length. */
    t.block_k = (int)ik_max(1, ik_min(k, ik_round_up((int)ik_ceil_div(k, blocks), 8)));
    return t;
}

/* Host: clusters to start. */
static inline int ik_blocking_clusters(const ik_blocking &t, int clusters)
{ return (int)ik_min(clusters, t.tiles(t.rows)); }
#endif
