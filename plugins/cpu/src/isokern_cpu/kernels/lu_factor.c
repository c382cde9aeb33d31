/* lu_factor: Gaussian elimination with partial pivoting, in lu itself. This file includes itself, for float and for
 * double.
 *
 * Columns are taken BLOCK at a time: the block is eliminated alone, then the rows beside it receive the BLOCK updates
 * of each element one after the other, in the order of the definition, while they are in the cache. */
#ifndef IK_T
#include "convert.h"
#include "operators/lu_factor.h"

enum { BLOCK = 32 };

typedef struct job {
    const ik_tensor *tlu, *tx, *tpivots, *torder;
    char *lu;
    const char *x;
    int64_t *pivots, *order;
    int64_t n;
} job;

#define IK_FILE "lu_factor.c"
#include "each_type.h"

IK_KERNEL(lu_factor)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    job j = { &t[IK_LU_FACTOR_LU], &t[IK_LU_FACTOR_X], &t[IK_LU_FACTOR_PIVOTS], &t[IK_LU_FACTOR_PERMUTATION],
        ik_ptr(plan, data, IK_LU_FACTOR_LU), ik_ptr(plan, data, IK_LU_FACTOR_X),
        ik_ptr(plan, data, IK_LU_FACTOR_PIVOTS), ik_ptr(plan, data, IK_LU_FACTOR_PERMUTATION),
        t[IK_LU_FACTOR_LU].shape[t[IK_LU_FACTOR_LU].ndim - 1] };
    const int64_t count = j.n == 0 ? 0 : ik_numel(j.tlu) / (j.n * j.n);
    ik_parallel_for(count, 1 + IK_THREAD_BYTES / (1 + j.n * j.n * (j.n + 8)),
        j.tlu->dtype == IK_F64 ? matrices_f64 : matrices_f32, &j);
    return IK_SUCCESS;
}

#else

/* The row of the largest magnitude in column k from row k on: the first of equal ones; NaN is largest. */
static int64_t IK_OF(find_pivot)(const IK_T *lu, int64_t n, int64_t row, int64_t column, int64_t k)
{
    int64_t found = k;
    IK_T greatest = -1;
    for (int64_t i = k; i < n; i++) {
        const IK_T v = lu[i * row + k * column], size = v < 0 ? -v : v;
        if (v != v)
            return i;
        if (size > greatest) {
            greatest = size;
            found = i;
        }
    }
    return found;
}

/* Row i receives the updates of steps [first, last) in columns [begin, end). */
static void IK_OF(update)(
    IK_T *lu, int64_t row, int64_t column, int64_t i, int64_t first, int64_t last, int64_t begin, int64_t end)
{
    IK_T *to = lu + i * row;
    for (int64_t k = first; k < last; k++) {
        const IK_T factor = to[k * column], *from = lu + k * row;
        if (column == 1)
            for (int64_t c = begin; c < end; c++)
                to[c] -= factor * from[c];
        else
            for (int64_t c = begin; c < end; c++)
                to[c * column] -= factor * from[c * column];
    }
}

/* Eliminate columns [first, last), and exchange whole rows. */
static void IK_OF(eliminate)(const job *j, IK_T *lu, int64_t *pivots, int64_t *order, int64_t first, int64_t last)
{
    const int32_t at = j->tlu->ndim - 2;
    const int64_t row = j->tlu->strides[at], column = j->tlu->strides[at + 1],
                  step = j->tpivots->strides[j->tpivots->ndim - 1], place = j->torder->strides[j->torder->ndim - 1];
    for (int64_t k = first; k < last; k++) {
        const int64_t chosen = IK_OF(find_pivot)(lu, j->n, row, column, k);
        pivots[k * step] = chosen;
        if (chosen != k) {
            const int64_t moved = order[k * place];
            order[k * place] = order[chosen * place];
            order[chosen * place] = moved;
            for (int64_t c = 0; c < j->n; c++) {
                const IK_T v = lu[k * row + c * column];
                lu[k * row + c * column] = lu[chosen * row + c * column];
                lu[chosen * row + c * column] = v;
            }
        }
        const IK_T pivot = lu[k * row + k * column];
        for (int64_t i = k + 1; i < j->n; i++) {
            if (pivot != 0)
                lu[i * row + k * column] /= pivot;
            IK_OF(update)(lu, row, column, i, k, k + 1, k + 1, last);
        }
    }
}

static void IK_OF(matrices)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int64_t n = j->n, row = j->tlu->strides[j->tlu->ndim - 2], column = j->tlu->strides[j->tlu->ndim - 1];
    const int64_t row_x = j->tx->strides[j->tx->ndim - 2], column_x = j->tx->strides[j->tx->ndim - 1];
    for (int64_t matrix = begin; matrix < end; matrix++) {
        IK_T *lu = (IK_T *)(void *)j->lu + ik_row_offset(j->tlu, matrix, 2);
        const IK_T *x = (const IK_T *)(const void *)j->x + ik_row_offset(j->tx, matrix, 2);
        int64_t *pivots = j->pivots + ik_row_offset(j->tpivots, matrix, 1),
                *order = j->order + ik_row_offset(j->torder, matrix, 1);
        for (int64_t i = 0; i < n; i++) {
            order[i * j->torder->strides[j->torder->ndim - 1]] = i;
            for (int64_t c = 0; c < n; c++)
                lu[i * row + c * column] = x[i * row_x + c * column_x];
        }
        for (int64_t first = 0; first < n; first += BLOCK) {
            const int64_t last = ik_min(n, first + BLOCK);
            IK_OF(eliminate)(j, lu, pivots, order, first, last);
            for (int64_t i = first + 1; i < n && last < n; i++)
                IK_OF(update)(lu, row, column, i, first, ik_min(i, last), last, n);
        }
    }
}

#endif
