/* y = x wᵀ for few rows of x.
 *
 * A cluster computes some rows of x, of which a stretch at a time lies in shared memory, and some rows of w, a few for
 * each core, which are fetched to local memory in runs and unpacked there. */
#ifndef IK_XPU_MATMUL_ROWS_H
#define IK_XPU_MATMUL_ROWS_H
#include "product.h"

/* The epilogue of linear_mixed; the pointers are null for the other operators. */
struct row_epilogue {
    long long c_step[IK_MAX_RANK], bias_step; /* strides along the dims of y */
    int activation;
};

enum {
    X_ROWS = 16,                  /* rows of x of a cluster */
    W_ROWS = 4,                   /* rows of w of a core, at most */
    X_BYTES = 72 << 10,           /* a stretch of these rows, in shared memory */
    FLOATS = 1024,                /* floats of a stretch */
    BLOCKS = 128,
    W_BLOCKS = 64,  /* blocks of a stretch, and of w in local memory at a time */
    MAX_SKINNY_ROWS = 2 * X_ROWS, /* rows of x at most; more are computed by tiles (contraction.h) */
    TASK_COLS = W_ROWS * IK_CORES,
};

/* The product of a block of w and a block of x. */
static inline __device__ float block_product(int dtype, const char *w, __shared_ptr__ const char *x)
{
    unsigned short half;
    __builtin_memcpy(&half, x, 2);
    const float d = ik_block_scale(w) * ik_f16_to_f32(half);
    const unsigned char *q = ik_block_quants(dtype, w);
    __shared_ptr__ const signed char *r = (__shared_ptr__ const signed char *)x + 2;
    int sum = 0, all = 0;
    switch (dtype) {
    case IK_Q8_0:
        for (int i = 0; i < IK_BLOCK; i++)
            sum += (signed char)q[i] * r[i];
        return (float)sum * d;
    case IK_Q4_0:
        for (int i = 0; i < IK_BLOCK / 2; i++)
            sum += ((q[i] & 15) - 8) * r[i] + ((q[i] >> 4) - 8) * r[i + IK_BLOCK / 2];
        return (float)sum * d;
    default:
        for (int i = 0; i < IK_BLOCK / 2; i++) {
            sum += (q[i] & 15) * r[i] + (q[i] >> 4) * r[i + IK_BLOCK / 2];
            all += r[i] + r[i + IK_BLOCK / 2];
        }
        return (float)sum * d + ik_block_minimum(w) * (ik_f16_to_f32(half) * (float)all);
    }
}

/* The same for the 32 elements from `at` on of a row of blocks that are only decoded. */
static inline __device__ float layout_product(int dtype, const char *w, int at, __shared_ptr__ const char *x)
{
    unsigned short half;
    __builtin_memcpy(&half, x, 2);
    __shared_ptr__ const signed char *r = (__shared_ptr__ const signed char *)x + 2;
    float sum = 0;
    switch (dtype) {
#define IK_CASE(name, elements, bytes, lowest) \
    case IK_##name: { \
        ik_block_bytes from = (ik_block_bytes)w + at / (elements) * (bytes); \
        for (int s = at % (elements) / IK_LAYOUT_RUN, end = s + IK_BLOCK / IK_LAYOUT_RUN; s < end; s++) { \
            int dot = 0, all = 0; \
            for (int i = 0; i < IK_LAYOUT_RUN; i++) { \
                const int q = *r++; \
                dot += ik_quant_##name(from, s, i) * q; \
                all += q; \
            } \
            sum += ik_d_##name(from) * (float)ik_scale_##name(from, s) * (float)dot \
                - ik_m_##name(from) * (float)ik_minimum_##name(from, s) * (float)all; \
        } \
        break; \
    }
        IK_LAYOUTS(IK_CASE)
#undef IK_CASE
    }
    return sum * ik_f16_to_f32(half);
}

/* Rows of Q8_0 in the workspace for those of x. */
static inline ik_tensor ik_packed_blocks(const ik_tensor &x)
{
    ik_tensor packed = x;
    packed.dtype = IK_Q8_0;
    packed.offset = 0;
    long long step = 1;
    for (int d = packed.ndim - 1; d >= 0; d--) {
        packed.strides[d] = step;
        step *= packed.shape[d];
    }
    return packed;
}

/* How a stretch of rows of x, as blocks or as floats, is brought to shared memory, and what a row of w adds to the sums
 * of these rows. Units are blocks or floats; `stretch` is the most units of a stretch. A task has `tile_rows` rows of
 * x, and multiplies them as at_row of the first one says. */
struct by_blocks {
    enum { stretch = BLOCKS, size = 34, tile_rows = X_ROWS };
    int dtype;       /* the dtype of w */
    long long w_row; /* elements */
    long long units; /* units of a row of x */

    inline __device__ const by_blocks &at_row(long long, __global_ptr__ const char *, char *) const { return *this; }

    inline __device__ void stage(const ik_geometry &, __global_ptr__ const char *x, long long row, int rows,
        long long at, int n, char *, __shared_ptr__ char *shared) const
    {
        long long begin, end;
        ik_share_of((long long)rows * n, 1, core_id(), core_num(), &begin, &end);
        while (begin < end) { /* a run of a row */
            const long long r = begin / n, b = begin % n, count = ik_min(end - begin, n - b);
            GM2SM_ASYNC(x + ((row + r) * units + at + b) * size, shared + (r * stretch + b) * size, (int)count * size);
            begin += count;
        }
    }

    inline __device__ void add(__global_ptr__ const char *w, long long row, long long at, int n, int rows, char *memory,
        __shared_ptr__ const char *shared, float *sums) const
    {
        const int bytes = ik_itemsize(dtype);
        const bool decoded = ik_is_layout(dtype);
        for (int b = 0; b < n; b += W_BLOCKS) {
            const int count = (int)ik_min(W_BLOCKS, n - b);
            GM2LM(
                w + ik_bytes(dtype, row * w_row + (at + b) * IK_BLOCK), memory, (int)ik_bytes(dtype, count * IK_BLOCK));
            for (int i = 0; i < rows; i++) {
                float sum = 0;
                for (int k = 0; k < count; k++) {
                    __shared_ptr__ const char *block = shared + (i * stretch + b + k) * size;
                    sum += decoded ? layout_product(dtype, memory, k * IK_BLOCK, block)
                                   : block_product(dtype, memory + k * bytes, block);
                }
                sums[i] += sum;
            }
        }
    }
};

struct by_floats {
    enum { stretch = FLOATS, tile_rows = X_ROWS };
    int dtype;
    long long w_row, units, step; /* step: between neighbours of x */

    inline __device__ const by_floats &at_row(long long, __global_ptr__ const char *, char *) const { return *this; }

    inline __device__ void stage(const ik_geometry &g, __global_ptr__ const char *x, long long row, int rows,
        long long at, int n, char *memory, __shared_ptr__ char *shared) const
    {
        ik_stager<float> stager(shared, memory, g.dtype[1]); /* not alone: one core brings a line at most */
        long long begin, end;
        ik_share_of((long long)rows * n, 16, core_id(), core_num(), &begin, &end);
        while (begin < end) {
            const long long r = begin / n, b = begin % n, count = ik_min(end - begin, n - b);
            ik_walk w(g, row + r, 1, g.ndim - 1);
            w.next();
            stager.bring(
                x + (w.offset(1) + (at + b) * step) * stager.size, step, (int)count, (int)(r * stretch + b), 1);
            begin += count;
        }
        stager.flush();
    }

    inline __device__ void add(__global_ptr__ const char *w, long long row, long long at, int n, int rows, char *memory,
        __shared_ptr__ const char *shared, float *sums) const
    {
        float *tile = (float *)memory;
        ik_fetch_weights(dtype, w, row * w_row + at, 1, n, ik_weights_end(dtype, tile, n));
        mfence();
        ik_widen_weights(dtype, tile, n);
        for (int i = 0; i < rows; i++) {
            __shared_ptr__ const float *other = (__shared_ptr__ const float *)shared + i * stretch;
            float lane[8] = {};
            int k = 0;
            for (; k + 8 <= n; k += 8)
                for (int l = 0; l < 8; l++)
                    lane[l] += tile[k + l] * other[k + l];
            for (int l = 0; k + l < n; l++)
                lane[l] += tile[k + l] * other[k + l];
            sums[i] += ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
        }
    }
};

/* Write n sums of a row, from column `col` on. */
static inline __device__ void finish_row(const ik_geometry &g, const row_epilogue &e, long long row, long long col,
    int n, float *sums, char *buffer, __global_ptr__ const char *bias, __global_ptr__ const char *c)
{
    const int dtype = g.dtype[0], size = ik_itemsize(dtype), last = g.ndim - 1;
    if (c != nullptr) {
        long long at = col * e.c_step[last];
        for (int d = last - 1; d >= 0; d--) {
            at += row % g.shape[d] * e.c_step[d];
            row /= g.shape[d];
        }
        ik_add_matrix(dtype, c + at * size, 0, e.c_step[last], 1, 1, n, sums, n, buffer);
    }
    if (bias != nullptr)
        ik_add_vector(dtype, bias + col * e.bias_step * size, e.bias_step, false, 1, n, sums, n, buffer);
    activate_f32(e.activation, n, sums);
}

/* Tensor 0 of g is y; its rows are counted over all dims but the last. A task is some rows of x, and `cols` rows of w
 * for each core. `ids` is for at_row: a structure may not have a pointer to global memory. */
template <class By>
static inline __device__ void multiply_rows(const ik_geometry &g, const By &whole, const row_epilogue &e, int cols,
    __global_ptr__ char *y, __global_ptr__ const char *x, __global_ptr__ const char *w, __global_ptr__ const char *bias,
    __global_ptr__ const char *c, __global_ptr__ const char *ids, char *memory, __shared_ptr__ char *shared,
    __shared_ptr__ float *results)
{
    __local__ float sums[W_ROWS * X_ROWS], out[IK_LINE], other[IK_LINE];
    const long long n = g.shape[g.ndim - 1], wide = cols * core_num(), tiles = ik_ceil_div(n, wide);
    long long rows = 1;
    for (int d = 0; d < g.ndim - 1; d++)
        rows *= g.shape[d];
    for (long long task = cluster_id(); task < ik_ceil_div(rows, By::tile_rows) * tiles; task += cluster_num()) {
        const long long row = task / tiles * By::tile_rows, col = task % tiles * wide, own = col + core_id() * cols;
        const By &by = whole.at_row(row, ids, memory);
        const int here = (int)ik_min(By::tile_rows, rows - row), mine = (int)ik_max(0, ik_min(cols, n - own));
        for (int i = 0; i < mine * X_ROWS; i++)
            sums[i] = 0;
        for (long long at = 0; at < by.units; at += By::stretch) {
            const int count = (int)ik_min(By::stretch, by.units - at);
            sync_cluster(); /* nobody reads the last stretch any more */
            by.stage(g, x, row, here, at, count, memory, shared);
            mfence();
            sync_cluster();
            for (int j = 0; j < mine; j++)
                by.add(w, own + j, at, count, here, memory, shared, sums + j * X_ROWS);
        }
        for (int j = 0; j < mine; j++)
            for (int i = 0; i < here; i++)
                results[i * TASK_COLS + core_id() * cols + j] = sums[j * X_ROWS + i];
        mfence_sm();
        sync_cluster();
        const int line = IK_LINE / ik_itemsize(g.dtype[0]), found = (int)ik_min(wide, n - col),
                  lines = (int)ik_ceil_div(found, line);
        for (int u = core_id(); u < here * lines; u += core_num()) {
            const int i = u / lines, from = u % lines * line, count = (int)ik_min(line, found - from);
            for (int k = 0; k < count; k++)
                out[k] = results[i * TASK_COLS + from + k];
            finish_row(g, e, row + i, col + from, count, out, (char *)other, bias, c);
            ik_narrow_f32(g.dtype[0], out, count);
            ik_store(g, 0, y, (row + i) * n + col + from, count, (const char *)out);
        }
        sync_cluster(); /* before results are written again */
    }
}
#endif
