/* Sums of products for gemm and conv2d: one sum by an item, or a tile of them by a work-group.
 *
 * Sums are floats for F16, BF16 and F32; integers wrap, so their sums are no wider than the result needs. IK_RUN
 * products are added up before they are added to the sum: a single sum of thousands of similar products would round in
 * the same direction each time. */
#ifndef IK_CONTRACTION_H
#define IK_CONTRACTION_H
#include "simt.h"
#include "isokern_math.h"

#if defined(IK_COMPUTE_F32)
typedef float ik_acc;
#define IK_MULTIPLY_ADD(a, b, s) IK_FMA_F32(a, b, s)
#elif defined(IK_COMPUTE_F64)
typedef double ik_acc;
#define IK_MULTIPLY_ADD(a, b, s) IK_FMA_F64(a, b, s)
#else
#if IK_SIZE_y <= 4
typedef ik_u32 ik_acc;
#else
typedef ik_u64 ik_acc;
#endif
#ifndef IK_MULTIPLY_ADD
#define IK_MULTIPLY_ADD(a, b, s) ((s) + (a) * (b))
#endif
#endif

#define IK_RUN 64

#if defined(IK_TYPE_a) && defined(IK_TYPE_b)
/* A factor: where it begins, and the distances between its lines (rows of a, columns of b) and between the elements of
 * a line. */
typedef struct {
    ik_index from, line, k;
} ik_factor;

/* The dot product of a line of a and a line of b, over every `step`th element from `first` on. */
static IK_INLINE ik_acc ik_dot(IK_GLOBAL const IK_ELEMENT(a) * a, ik_factor of_a, IK_GLOBAL const IK_ELEMENT(b) * b,
    ik_factor of_b, ik_index first, ik_index step, ik_index k)
{
    ik_acc total = 0;
    for (ik_index from = first; from < k; from += IK_RUN * step) {
        const ik_index end = from + IK_RUN * step < k ? from + IK_RUN * step : k;
        ik_acc run = 0;
        for (ik_index q = from; q < end; q += step)
            run = IK_MULTIPLY_ADD(
                (ik_acc)IK_LOAD(a, of_a.from + q * of_a.k), (ik_acc)IK_LOAD(b, of_b.from + q * of_b.k), run);
        total += run;
    }
    return total;
}
#endif

#ifdef TILE_ROWS
/* A group computes a tile of TILE_ROWS × TILE_COLS sums, both powers of two. Its items form a box, and each computes
 * IK_SIDE × IK_SIDE of the sums, spaced by the size of the box, so that neighbouring items read neighbouring elements.
 * Local memory holds IK_DEPTH steps of the factors at a time, as columns of the left matrix and rows of the right one;
 * a line there is one element longer than the tile, so that a transposing store also goes to all banks. */
#define IK_SIDE 4
#define IK_DEPTH 16
#define IK_LEFT (TILE_ROWS + 1)
#define IK_RIGHT (TILE_COLS + 1)
#define IK_BOX_COLS (TILE_COLS / IK_SIDE)
#define IK_BOX_ROWS (TILE_ROWS / IK_SIDE)
#if IK_BOX_ROWS * IK_BOX_COLS != IK_GROUP
#error the items of a group make a tile
#endif

/* sums[i, j] += Σ_q left[q, row + i * IK_BOX_ROWS] * right[q, col + j * IK_BOX_COLS] */
static IK_INLINE void ik_multiply(
    IK_LOCAL const ik_acc *left, IK_LOCAL const ik_acc *right, int row, int col, ik_acc *sums)
{
    for (int q = 0; q < IK_DEPTH; q++) {
        ik_acc a[IK_SIDE], b[IK_SIDE];
        for (int i = 0; i < IK_SIDE; i++) {
            a[i] = left[q * IK_LEFT + row + i * IK_BOX_ROWS];
            b[i] = right[q * IK_RIGHT + col + i * IK_BOX_COLS];
        }
        for (int i = 0; i < IK_SIDE; i++)
            for (int j = 0; j < IK_SIDE; j++)
                sums[i * IK_SIDE + j] = IK_MULTIPLY_ADD(a[i], b[j], sums[i * IK_SIDE + j]);
    }
}

/* total += run, and run is reset to 0. */
static IK_INLINE void ik_add_run(ik_acc *total, ik_acc *run)
{
    for (int i = 0; i < IK_SIDE * IK_SIDE; i++) {
        total[i] += run[i];
        run[i] = 0;
    }
}

#if defined(IK_TYPE_a) && defined(IK_TYPE_b)
/* Compute the group's tile of a b, of which `rows` rows and `cols` columns exist; a_along and b_along say that the
 * elements of a line are closer to each other than lines are. */
static IK_INLINE void ik_tile(IK_GLOBAL const IK_ELEMENT(a) * a, ik_factor of_a, int a_along, ik_index rows,
    IK_GLOBAL const IK_ELEMENT(b) * b, ik_factor of_b, int b_along, ik_index cols, ik_index k, IK_LOCAL ik_acc *left,
    IK_LOCAL ik_acc *right, ik_acc *total)
{
    const int box_row = IK_LOCAL_ID / IK_BOX_COLS, box_col = IK_LOCAL_ID & (IK_BOX_COLS - 1);
    ik_acc run[IK_SIDE * IK_SIDE];
    for (int i = 0; i < IK_SIDE * IK_SIDE; i++)
        total[i] = run[i] = 0;
    for (ik_index from = 0; from < k; from += IK_DEPTH) {
        for (int e = IK_LOCAL_ID; e < IK_DEPTH * TILE_ROWS; e += IK_GROUP) {
            const int i = a_along ? e / IK_DEPTH : e & (TILE_ROWS - 1),
                      q = a_along ? e & (IK_DEPTH - 1) : e / TILE_ROWS;
            ik_acc v = 0;
            if (i < rows && from + q < k)
                v = (ik_acc)IK_LOAD(a, of_a.from + i * of_a.line + (from + q) * of_a.k);
            left[q * IK_LEFT + i] = v;
        }
        for (int e = IK_LOCAL_ID; e < IK_DEPTH * TILE_COLS; e += IK_GROUP) {
            const int j = b_along ? e / IK_DEPTH : e & (TILE_COLS - 1),
                      q = b_along ? e & (IK_DEPTH - 1) : e / TILE_COLS;
            ik_acc v = 0;
            if (j < cols && from + q < k)
                v = (ik_acc)IK_LOAD(b, of_b.from + (from + q) * of_b.k + j * of_b.line);
            right[q * IK_RIGHT + j] = v;
        }
        IK_BARRIER();
        ik_multiply(left, right, box_row, box_col, run);
        if (((from + IK_DEPTH) & (IK_RUN - 1)) == 0)
            ik_add_run(total, run);
        IK_BARRIER();
    }
    ik_add_run(total, run);
}
#endif
#endif

#endif
