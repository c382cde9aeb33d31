/* What gemm and matmul_transposed share: the products of contraction.h of matrices with any strides, whose elements may
 * have a type of their own, and an epilogue.
 *
 *     y = activation(alpha * a @ b + beta * c + bias)
 *
 * F16 and BF16 are summed in F32 and rounded once. Integers, which have no epilogue, wrap; those of 8 to 32 bits are
 * computed in 32 bits. */
#ifndef IK_XPU_PRODUCT_H
#define IK_XPU_PRODUCT_H
#include "contraction.h"
#include "elementwise_activations.h"

struct ik_matrix {
    long long row, col; /* strides in elements */
};

struct ik_product {
    enum { MAX_DIMS = IK_MAX_RANK - 2 };
    ik_blocking t;
    /* Of the batch: its extents, and the strides of each tensor. */
    long long shape[MAX_DIMS], y_step[MAX_DIMS], a_step[MAX_DIMS], b_step[MAX_DIMS], c_step[MAX_DIMS];
    ik_matrix y, a, b, c, bias;
    float alpha, beta;
    int dims, a_dtype, b_dtype, activation;
};

/* Where a matrix of the batch begins, in elements. */
static inline __device__ long long ik_batch_offset(const ik_product &g, const long long *step, long long batch)
{
    long long offset = 0;
    for (int d = g.dims - 1; d >= 0; d--) {
        offset += batch % g.shape[d] * step[d];
        batch /= g.shape[d];
    }
    return offset;
}

template <class T>
static inline __device__ void ik_stage_a(const ik_product &g, const ik_place &w, int line, int from, int to,
    __global_ptr__ const char *a, ik_stager<T> &stager)
{
    stager.set_dtype(g.a_dtype);
    const long long row = w.row + (g.t.transposed_a ? from : line), p = w.p + (g.t.transposed_a ? line : from);
    const long long at = ik_batch_offset(g, g.a_step, w.batch) + row * g.a.row + p * g.a.col;
    const int place = g.t.transposed_a ? line * w.a_p + from : line * w.a_row + from;
    stager.bring(a + at * stager.size, g.t.transposed_a ? g.a.row : g.a.col, to - from, w.a + place, 1);
}

template <class T>
static inline __device__ void ik_stage_b(const ik_product &g, const ik_place &w, int line, int from, int to,
    __global_ptr__ const char *b, ik_stager<T> &stager)
{
    const bool columns = g.t.transposed_b;
    const int begin = columns ? w.b + from * w.b_p + line : w.b + line * w.b_p + from;
    if (columns && line >= w.cols) {
        stager.zero(to - from, begin, w.b_p);
        return;
    }
    stager.set_dtype(g.b_dtype);
    const long long row = columns ? (w.col + line) * g.b.col : (w.p + line) * g.b.row;
    stager.bring_weights(b, ik_batch_offset(g, g.b_step, w.batch) + row, (columns ? w.p : w.col) + from,
        columns ? g.b.row : g.b.col, to - from, begin, columns ? w.b_p : 1);
    if (!columns && to == w.cols)
        stager.zero(ik_round_up(w.cols, IK_COLS) - to, w.b + line * w.b_p + to, 1);
}

/* sums[i, j] += beta * c[i, j]. Strides of c are in elements, rows of sums are `pitch` apart, and `buffer` holds rows *
 * cols floats. */
static inline __device__ void ik_add_matrix(int dtype, __global_ptr__ const char *c, long long row, long long col,
    float beta, int rows, int cols, float *sums, int pitch, char *buffer)
{
    const int size = ik_itemsize(dtype);
    float *other = (float *)buffer;
    char *narrow = ik_narrow_end(other, rows * cols, 4, size);
    for (int i = 0; i < rows; i++)
        ik_fetch_run(c + i * row * size, col, cols, size, narrow + i * cols * size);
    mfence();
    ik_widen_f32(dtype, other, rows * cols);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            sums[i * pitch + j] += beta * other[i * cols + j];
}

/* sums[i, j] += bias[i] if `by_row`, else bias[j]. */
static inline __device__ void ik_add_vector(int dtype, __global_ptr__ const char *bias, long long step, bool by_row,
    int rows, int cols, float *sums, int pitch, char *buffer)
{
    float *other = (float *)buffer;
    ik_fetch_f32(dtype, bias, step, by_row ? rows : cols, other);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < cols; j++)
            sums[i * pitch + j] += other[by_row ? i : j];
}

static inline __device__ void ik_add_epilogue(const ik_product &g, long long batch, long long row, long long col,
    int rows, int cols, float *sums, char *buffer, __global_ptr__ const char *bias, __global_ptr__ const char *c)
{
    const int pitch = g.t.cols, dtype = g.t.dtype, size = ik_itemsize(dtype);
    if (g.alpha != 1)
        for (int i = 0; i < rows * pitch; i++)
            sums[i] *= g.alpha;
    if (c != nullptr) {
        const long long at = ik_batch_offset(g, g.c_step, batch) + row * g.c.row + col * g.c.col;
        ik_add_matrix(dtype, c + at * size, g.c.row, g.c.col, g.beta, rows, cols, sums, pitch, buffer);
    }
    if (bias != nullptr) {
        const bool by_row = g.bias.row != 0;
        ik_add_vector(dtype, bias + (row * g.bias.row + col * g.bias.col) * size, by_row ? g.bias.row : g.bias.col,
            by_row, rows, cols, sums, pitch, buffer);
    }
    activate_f32(g.activation, rows * pitch, sums);
}

template <class T>
static inline __device__ void ik_add_epilogue(const ik_product &, long long, long long, long long, int, int, T *,
    char *, __global_ptr__ const char *, __global_ptr__ const char *)
{
}

template <class T>
static inline __device__ void ik_finish(const ik_product &g, long long batch, long long row, long long col, int rows,
    int cols, T *sums, char *buffer, __global_ptr__ char *y, __global_ptr__ const char *bias,
    __global_ptr__ const char *c)
{
    const int size = ik_itemsize(g.t.dtype);
    ik_add_epilogue(g, batch, row, col, rows, cols, sums, buffer, bias, c);
    ik_narrow(g.t.dtype, sums, rows * g.t.cols);
    mfence_lm();
    const long long at = ik_batch_offset(g, g.y_step, batch) + row * g.y.row + col * g.y.col;
    for (int i = 0; i < rows; i++)
        ik_store_run((const char *)sums + i * g.t.cols * size, g.y.col, cols, size, y + (at + i * g.y.row) * size);
    mfence();
}
#endif
