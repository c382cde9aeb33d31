/* Rows of running sums, products and linear steps, for scan.c: y[t] = y[t - 1] + x[t], y[t - 1] * x[t], or a[t] *
 * y[t - 1] + x[t]. A step waits for the one before it, so that several rows at once take no longer than one. This file
 * includes itself, for float, double and uint64_t. */
#ifndef IK_T
#ifndef IK_SCAN_ROW_H
#define IK_SCAN_ROW_H
#include "convert.h"

/* What a step is; and how many rows are walked along together: more, of lengths that are powers of two, would not fit
 * in a set of the cache. */
enum { ANY, SUMS, PRODUCTS, LINEAR, ROWS = 4 };

/* Rows of x, and of a where steps are linear, with steps in elements, and that of y. */
typedef struct run_of_rows {
    const char *x[ROWS], *a[ROWS];
    int64_t step_x, step_a, step_y;
} run_of_rows;

#define IK_FILE "scan_row.h"
#define IK_TYPES (IK_EACH_F32 | IK_EACH_F64 | IK_EACH_U64)
#include "each_type.h"

/* Walk along rows in the compute type; `state` has a value for each. */
static void accumulate(int32_t compute, int64_t rows, int32_t kind, bool exclusive, const run_of_rows *f,
    char *const *to, int64_t count, char *state)
{
    if (compute == IK_F32)
        accumulate_rows_f32(rows, kind, exclusive, f, to, count, state);
    else if (compute == IK_F64)
        accumulate_rows_f64(rows, kind, exclusive, f, to, count, state);
    else
        accumulate_rows_u64(rows, kind, exclusive, f, to, count, state);
}
#endif

#else

/* The rows r < `rows` of x, a and y, steps in elements; `state` has the value before each row, and then the last. */
static inline __attribute__((always_inline)) void IK_OF(walk_rows)(const int32_t rows, const int32_t kind,
    const bool exclusive, const run_of_rows *f, char *const *to, int64_t n, IK_T *state)
{
    const IK_T *x[ROWS], *a[ROWS];
    IK_T *y[ROWS], value[ROWS];
    for (int32_t r = 0; r < rows; r++) {
        x[r] = (const IK_T *)(const void *)f->x[r], a[r] = (const IK_T *)(const void *)f->a[r];
        y[r] = (IK_T *)(void *)to[r], value[r] = state[r];
    }
    for (int64_t t = 0; t < n; t++) {
#pragma GCC unroll 4
        for (int32_t r = 0; r < rows; r++) {
            const IK_T given = x[r][t * f->step_x], before = value[r];
            value[r] = kind == PRODUCTS ? before * given
                : kind == SUMS          ? before + given
                                        : a[r][t * f->step_a] * before + given;
            y[r][t * f->step_y] = exclusive ? before : value[r];
        }
    }
    memcpy(state, value, (size_t)rows * sizeof *state);
}

static inline __attribute__((always_inline)) void IK_OF(walk_kind)(
    const int32_t rows, int32_t kind, bool exclusive, const run_of_rows *f, char *const *to, int64_t n, IK_T *state)
{
    if (kind == SUMS && exclusive)
        IK_OF(walk_rows)(rows, SUMS, true, f, to, n, state);
    else if (kind == SUMS)
        IK_OF(walk_rows)(rows, SUMS, false, f, to, n, state);
    else if (kind == PRODUCTS && exclusive)
        IK_OF(walk_rows)(rows, PRODUCTS, true, f, to, n, state);
    else if (kind == PRODUCTS)
        IK_OF(walk_rows)(rows, PRODUCTS, false, f, to, n, state);
    else if (exclusive)
        IK_OF(walk_rows)(rows, LINEAR, true, f, to, n, state);
    else
        IK_OF(walk_rows)(rows, LINEAR, false, f, to, n, state);
}

/* Walk along up to ROWS rows. */
static void IK_OF(accumulate_rows)(
    int64_t rows, int32_t kind, bool exclusive, const run_of_rows *f, char *const *to, int64_t n, void *state)
{
    if (rows == ROWS) {
        IK_OF(walk_kind)(ROWS, kind, exclusive, f, to, n, state);
        return;
    }
    run_of_rows part = *f;
    for (int64_t r = 0, count; r < rows; r += count) {
        count = rows - r >= 2 ? 2 : 1;
        memcpy(part.x, f->x + r, (size_t)count * sizeof *part.x);
        memcpy(part.a, f->a + r, (size_t)count * sizeof *part.a);
        if (count == 2)
            IK_OF(walk_kind)(2, kind, exclusive, &part, to + r, n, (IK_T *)state + r);
        else
            IK_OF(walk_kind)(1, kind, exclusive, &part, to + r, n, (IK_T *)state + r);
    }
}
#endif
