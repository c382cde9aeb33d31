/* solve_triangular: a x = b by substitution, in x itself. This file includes itself, for float and for double.
 *
 * A task is some columns of one x. A row that is found is at once subtracted from the rows that remain: along the rows
 * where columns are few, which is down a column of a, else along the columns. */
#ifndef IK_T
#include "convert.h"
#include "operators/solve_triangular.h"

enum { COLUMNS = 64 };

typedef struct job {
    const ik_tensor *tx, *ta, *tb;
    char *x;
    const char *a, *b;
    int64_t n, k, chunks;
    bool lower, unit;
} job;

#define IK_FILE "solve_triangular.c"
#include "each_type.h"

IK_KERNEL(solve_triangular)
{
    IK_UNUSED;
    const ik_tensor *t = plan->tensors;
    const ik_solve_triangular_attrs *attrs = plan->attrs;
    job j = { &t[IK_SOLVE_TRIANGULAR_X], &t[IK_SOLVE_TRIANGULAR_A], &t[IK_SOLVE_TRIANGULAR_B],
        ik_ptr(plan, data, IK_SOLVE_TRIANGULAR_X), ik_ptr(plan, data, IK_SOLVE_TRIANGULAR_A),
        ik_ptr(plan, data, IK_SOLVE_TRIANGULAR_B), .unit = attrs->unit_diagonal != 0 };
    j.lower = (attrs->lower != 0) == (attrs->left != 0); /* tensors are transposed where a stands on the right */
    j.n = j.tx->shape[j.tx->ndim - 2], j.k = j.tx->shape[j.tx->ndim - 1];
    j.chunks = ik_ceil_div(j.k, COLUMNS);
    const int64_t all = ik_numel(j.tx), tasks = all == 0 ? 0 : all / (j.n * j.k) * j.chunks;
    ik_parallel_for(tasks, 1 + IK_THREAD_BYTES / (1 + j.n * (j.n + 8) * ik_min(j.k, COLUMNS)),
        j.tx->dtype == IK_F64 ? tasks_f64 : tasks_f32, &j);
    return IK_SUCCESS;
}

#else

/* to[i * step] -= factor * from[i * stride] */
static inline void IK_OF(subtract)(IK_T *to, int64_t step, IK_T factor, const IK_T *from, int64_t stride, int64_t n)
{
    if (step == 1 && stride == 1)
        for (int64_t i = 0; i < n; i++)
            to[i] -= factor * from[i];
    else
        for (int64_t i = 0; i < n; i++)
            to[i * step] -= factor * from[i * stride];
}

static void IK_OF(tasks)(void *context, int64_t begin, int64_t end, int32_t worker)
{
    (void)worker;
    const job *j = context;
    const int32_t at = j->tx->ndim - 2;
    const int64_t row = j->tx->strides[at], column = j->tx->strides[at + 1], row_a = j->ta->strides[at],
                  column_a = j->ta->strides[at + 1], row_b = j->tb->strides[at], column_b = j->tb->strides[at + 1];
    for (int64_t task = begin; task < end; task++) {
        const int64_t matrix = task / j->chunks, first = task % j->chunks * COLUMNS, k = ik_min(COLUMNS, j->k - first);
        IK_T *x = (IK_T *)(void *)j->x + ik_row_offset(j->tx, matrix, 2) + first * column;
        const IK_T *a = (const IK_T *)(const void *)j->a + ik_row_offset(j->ta, matrix, 2);
        const IK_T *b = (const IK_T *)(const void *)j->b + ik_row_offset(j->tb, matrix, 2) + first * column_b;
        for (int64_t i = 0; i < j->n; i++)
            for (int64_t c = 0; c < k; c++)
                x[i * row + c * column] = b[i * row_b + c * column_b];
        for (int64_t step = 0; step < j->n; step++) {
            const int64_t i = j->lower ? step : j->n - 1 - step, rest = j->lower ? i + 1 : 0, count = j->n - 1 - step;
            IK_T *found = x + i * row;
            if (!j->unit)
                for (int64_t c = 0; c < k; c++)
                    found[c * column] /= a[i * row_a + i * column_a];
            if (k < 4)
                for (int64_t c = 0; c < k; c++)
                    IK_OF(subtract)(x + rest * row + c * column, row, found[c * column],
                        a + rest * row_a + i * column_a, row_a, count);
            else
                for (int64_t r = rest; r < rest + count; r++)
                    IK_OF(subtract)(x + r * row, column, a[r * row_a + i * column_a], found, column, k);
        }
    }
}

#endif
