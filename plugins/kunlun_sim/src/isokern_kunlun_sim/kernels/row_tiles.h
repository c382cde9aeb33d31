/* Tiles of rows on their way between device memory and a core's local memory, for row_reduction.h.
 *
 * Where two tiles of an input fit, the next one is fetched while the present one is computed, and results are stored
 * while the next ones are computed. A fence waits for all copies of its core, so the next copy is issued after the
 * fence and before the work. Two inputs may be added when they are fetched: their rounded sum is x, which is written as
 * they arrive and read again as it was written.
 *
 * Pointers to device memory are arguments, because they may not be members of a struct: x, and the inputs a and b whose
 * sum it is, if any. */
#ifndef IK_XPU_ROW_TILES_H
#define IK_XPU_ROW_TILES_H
#include "row_blocking.h"
#include "vectors.h"

/* Elements [at, at + n) of the rows of a group, in local memory. */
struct ik_row_tile {
    long long row, at; /* row: the first one */
    int rows, n;

    /* From one element of a row to the next, and the first element of a row. */
    __device__ int step(const ik_row_reduction &r) const { return r.width != 0 ? rows : 1; }
    __device__ int place(const ik_row_reduction &r, int row) const { return r.width != 0 ? row : row * n; }
};

/* The tile of a group that begins where a span does, and has at most `space` values. */
static inline __device__ ik_row_tile ik_first_tile(
    const ik_row_reduction &r, long long group, const ik_row_span &span, int space)
{
    const int rows = r.rows_of(group);
    return { r.first_row(group), span.from, rows, (int)ik_max(0, ik_min(span.to - span.from, space / rows)) };
}

/* Start to fetch a tile in the type that memory has, or to `store` it; mfence() completes it. */
template <bool store>
static inline __device__ void ik_copy_tile(
    const ik_row_reduction &r, int tensor, __global_ptr__ char *x, const ik_row_tile &t, char *local)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[tensor]);
    const long long at = t.row * r.length + t.at;
    if (r.width == 0) {
        store ? ik_start_store(r.g, tensor, x, at, n, local) : ik_start_fetch(r.g, tensor, x, at, n, local);
        return;
    }
    const long long across = r.g.strides[tensor][r.row_dims - 1], along = r.g.strides[tensor][r.g.ndim - 1];
    for (ik_walk w(r.g, at, t.n); w.next();) {
        const bool whole = across == 1 && along == t.rows; /* the elements of all rows follow each other */
        for (long long k = 0; k < (whole ? 1 : w.run); k++) {
            __global_ptr__ char *const run = x + (w.offset(tensor) + k * along) * size;
            char *const tile = local + (w.done + k) * t.rows * size;
            const int elements = (int)(whole ? w.run * t.rows : t.rows);
            store ? ik_store_run(tile, across, elements, size, run) : ik_fetch_run(run, across, elements, size, tile);
        }
    }
}

/* Start to fetch a tile; mfence() and ik_widen_tile complete it. */
static inline __device__ void ik_start_tile(const ik_row_reduction &r, int tensor, __global_ptr__ const char *x,
    const ik_row_tile &t, int value_bytes, void *tile)
{
    char *const narrow = ik_narrow_end(tile, t.rows * t.n, value_bytes, ik_itemsize(r.g.dtype[tensor]));
    ik_copy_tile<false>(r, tensor, (__global_ptr__ char *)x, t, narrow);
}

/* After the fence: convert a tile to the compute type. */
template <class T>
static inline __device__ void ik_widen_tile(const ik_row_reduction &r, int tensor, const ik_row_tile &t, T *tile)
{
    const int n = t.rows * t.n, size = ik_itemsize(r.g.dtype[tensor]);
    if (r.width == 0)
        ik_end_fetch(r.g, tensor, t.row * r.length + t.at, n, ik_narrow_end(tile, n, sizeof(T), size));
    ik_widen(r.g.dtype[tensor], tile, n);
}

/* Whether ik_widen_tile uses scalar stores for this tensor. */
static inline __device__ bool ik_widens_by_scalars(const ik_row_reduction &r, int tensor, int value_bytes)
{ return ik_itemsize(r.g.dtype[tensor]) != value_bytes || !(r.g.dense >> tensor & 1); }

/* Compute x of a tile as a + b, rounded to x's type, into a, and store it, too. b may be reused after a fence. */
static inline __device__ void ik_add_tile(
    const ik_row_reduction &r, __global_ptr__ char *x, const ik_row_tile &t, float *a, float *b)
{
    const int n = t.rows * t.n, dtype = r.g.dtype[1];
    const int whole = dtype == IK_F32 ? ik_vectors(a, 1, n) : 0;
    for (int i = 0; i < whole; i += IK_LANES) {
        const float32x16_t sum = vvadd_float32x16(vload_lm_float32x16(a + i), vload_lm_float32x16(b + i));
        vstore_lm_float32x16(a + i, sum);
        vstore_lm_float32x16(b + i, sum);
    }
    for (int i = whole; dtype == IK_F32 && i < n; i++)
        a[i] = b[i] += a[i];
#define IK_CASE(code, name, type) \
    for (int i = 0; dtype == code && i < n; i++) \
        a[i] = ik_##name##_to_f32(((type *)b)[i] = ik_f32_to_##name(a[i] + b[i]));
    IK_SMALL_FLOATS(IK_CASE)
#undef IK_CASE
    mfence_lm();
    ik_copy_tile<true>(r, 1, x, t, (char *)b);
}

/* Integers are not added. */
static inline __device__ void ik_add_tile(
    const ik_row_reduction &, __global_ptr__ char *, const ik_row_tile &, long long *, long long *)
{
}

/* A core's tiles, after the stats in a kernel's memory: one or two sets (`r.buffers`) of a tile for each of r.inputs,
 * then the tiles of w and bias. */
template <class T>
struct ik_row_tiles {
    T *memory;
    int space; /* values of a tile */
    int set; /* the set that is computed now */
    bool coming; /* the other set is being fetched */

    __device__ T *tile(const ik_row_reduction &r, int input = 0) const
    { return memory + (set * r.inputs + input) * space; }
};

template <class T>
static inline __device__ ik_row_tiles<T> ik_row_tiles_in(const ik_row_reduction &r, char *memory, int operands = 0)
{
    return { (T *)(memory + IK_GROUP * IK_STAT_BYTES), ik_tile_capacity(sizeof(T), r.buffers * r.inputs + operands), 0,
        false };
}

/* Issue a tile's copies: of x, or of the two inputs whose `sum` it is. */
template <class T>
static inline __device__ void ik_issue_tile(const ik_row_reduction &r, bool sum, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, const ik_row_tile &t, const ik_row_tiles<T> &tiles)
{
    ik_start_tile(r, sum ? 2 : 1, sum ? a : x, t, sizeof(T), tiles.tile(r));
    if (sum)
        ik_start_tile(r, 3, b, t, sizeof(T), tiles.tile(r, 1));
}

/* Make the tile to be computed now the present one: its copies were issued ahead, or are issued here. The caller calls
 * mfence(). */
template <class T>
static inline __device__ void ik_await_tile(const ik_row_reduction &r, bool sum, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, const ik_row_tile &t, ik_row_tiles<T> *tiles)
{
    if (tiles->coming) {
        tiles->set ^= 1;
        tiles->coming = false;
        return;
    }
    mfence(); /* the stores from the tile are done */
    ik_issue_tile(r, sum, x, a, b, t, *tiles);
}

/* Issue the copies of the next tile, if there is one and space for it, to land at the next fence. */
template <class T>
static inline __device__ void ik_prefetch_tile(const ik_row_reduction &r, bool sum, __global_ptr__ const char *x,
    __global_ptr__ const char *a, __global_ptr__ const char *b, const ik_row_tile &t, ik_row_tiles<T> *tiles)
{
    if (r.buffers < 2 || t.n == 0)
        return;
    tiles->set ^= 1;
    ik_issue_tile(r, sum, x, a, b, t, *tiles);
    tiles->set ^= 1;
    tiles->coming = true;
}
#endif
