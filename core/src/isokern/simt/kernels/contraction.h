/* What gemm and conv2d share: sums of products, made one by an item, or by a work-group in tiles.
 *
 * Sums are floats for F16, BF16 and F32; integers wrap, so they are no wider than the result needs. IK_RUN products are added before they are
 * added to the sum: one sum of thousands of products that are alike would round each time in the same direction. */
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
#define IK_MULTIPLY_ADD(a, b, s) ((s) + (a) * (b))
#endif

#define IK_RUN 64

#ifdef TILE_ROWS
/* A group makes a tile of TILE_ROWS × TILE_COLS sums, all of these powers of two: its items stand in a box, and each makes IK_SIDE × IK_SIDE of them, as far apart as the
 * box is large, so that neighbours read neighbours. The factors lie in local memory for IK_DEPTH steps at a time, as columns of the left matrix
 * and rows of the right one; a line there is one longer than the tile, so that also a transposing store goes to all banks. */
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
static IK_INLINE void ik_multiply(IK_LOCAL const ik_acc *left, IK_LOCAL const ik_acc *right, int row, int col, ik_acc *sums)
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

/* total += run, and the run begins again. */
static IK_INLINE void ik_add_run(ik_acc *total, ik_acc *run)
{
    for (int i = 0; i < IK_SIDE * IK_SIDE; i++) {
        total[i] += run[i];
        run[i] = 0;
    }
}
#endif

#endif
