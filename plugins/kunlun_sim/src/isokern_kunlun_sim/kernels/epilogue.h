/* The epilogue of sums in local memory on their way to y: what is added to them, and their activation. */
#ifndef IK_XPU_EPILOGUE_H
#define IK_XPU_EPILOGUE_H
#include "activation.h"
#include "contraction.h"

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

#endif
