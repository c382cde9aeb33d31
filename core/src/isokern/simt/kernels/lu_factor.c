/* lu_factor: Gaussian elimination with partial pivoting, in lu itself, a work-group a matrix.
 *
 * Columns are taken BLOCK at a time: the block is eliminated alone, then the elements beside it receive all of its
 * steps, one after the other, in the order of the definition, while they are in registers. An item eliminates the same
 * rows of a block at every step; beside it, it has WIDE neighbouring columns at a time: vectors, to the compiler, where
 * an item is a group by itself. */
/* launch
 * let(n=x.shape[-1], matrices=x.numel // max(1, n * n))
 * lu_factor(groups=matrices, local=64 if n <= 16 else 256)
 */
#include "best.h"

#ifdef IK_COMPUTE_F32
#define DIVIDE(a, b) IK_DIV_F32(a, b)
#else
#define DIVIDE(a, b) ((a) / (b))
#endif

#define BLOCK 8
#if IK_GROUP == 1
#define WIDE 16
#define ACROSS 1
#else
#define WIDE 1
#define ACROSS (IK_GROUP < 32 ? IK_GROUP : 32) /* items beside each other; the others are below them */
#endif
#define DOWN (IK_GROUP / ACROSS)
/* An item's place across and down; of numbers without a sign, which takes no division */
#define LANE ((int)((ik_u32)IK_LOCAL_ID % ACROSS))
#define LEVEL ((int)((ik_u32)IK_LOCAL_ID / ACROSS))

/* v, `count` columns of a row whose factors are at `factors`, receives the first `steps` steps of a block, whose rows
 * are u. */
static IK_INLINE void take_steps(
    IK_GLOBAL const ik_c *factors, ik_index column, int steps, int count, ik_c (*u)[WIDE], ik_c *v)
{
    for (int k = 0; k < steps; k++) {
        const ik_c factor = factors[k * column];
        for (int t = 0; t < count; t++) {
            const ik_c product = factor * u[k][t];
            v[t] = v[t] - product;
        }
    }
}

/* `count` columns from `at` on receive the steps of the block of rows [first, first + steps): with `solve` in these
 * rows, each of which takes the steps before it, else in the item's part of the rows below them. */
static IK_INLINE void update(IK_GLOBAL ik_c *matrix, ik_index row, ik_index column, ik_index n, ik_index first,
    int steps, ik_index at, int count, int solve)
{
    ik_c u[BLOCK][WIDE], v[WIDE];
    for (int k = 0; k < steps; k++) {
        IK_GLOBAL ik_c *const of = matrix + (first + k) * row;
        for (int t = 0; t < count; t++)
            v[t] = of[(at + t) * column];
        if (solve)
            take_steps(of + first * column, column, k, count, u, v);
        for (int t = 0; t < count; t++) {
            u[k][t] = v[t];
            if (solve)
                of[(at + t) * column] = v[t];
        }
    }
    for (ik_index i = first + steps + LEVEL; !solve && i < n; i += DOWN) {
        IK_GLOBAL ik_c *const of = matrix + i * row;
        for (int t = 0; t < count; t++)
            v[t] = of[(at + t) * column];
        take_steps(of + first * column, column, steps, count, u, v);
        for (int t = 0; t < count; t++)
            of[(at + t) * column] = v[t];
    }
}

/* The columns beside a block, of which an item takes some. */
static IK_INLINE void update_columns(IK_GLOBAL ik_c *matrix, ik_index row, ik_index column, ik_index n, ik_index first,
    int steps, int lane, int lanes, int solve)
{
    ik_index at = first + steps + lane * WIDE;
    if (column == 1 && steps == BLOCK) /* loops of a known length, and vectors */
        for (; n - at >= WIDE; at += lanes * WIDE)
            update(matrix, row, 1, n, first, BLOCK, at, WIDE, solve);
    for (; at < n; at += lanes * WIDE)
        update(matrix, row, column, n, first, steps, at, n - at < WIDE ? (int)(n - at) : WIDE, solve);
}

IK_ENTRY(lu_factor)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, values, 1)
    IK_SCRATCH(ik_i64, places, 1)
    IK_LOCAL_ARRAY(ik_index, shared, 1);
    const ik_index number = IK_GROUP_ID;
    const int rows = (int)p.lu.ndim - 2, id = IK_LOCAL_ID;
    const ik_index n = p.lu.shape[rows], row = p.lu.strides[rows], column = p.lu.strides[rows + 1],
                   row_x = p.x.strides[rows], column_x = p.x.strides[rows + 1], step = p.pivots.strides[rows],
                   place = p.permutation.strides[rows];
    IK_GLOBAL ik_c *const matrix = lu + p.lu.offset + ik_offset_within(p.lu, 0, rows, number);
    IK_GLOBAL const ik_c *const from = x + p.x.offset + ik_offset_within(p.x, 0, rows, number);
    IK_GLOBAL ik_i64 *const chosen = pivots + p.pivots.offset + ik_offset_within(p.pivots, 0, rows, number);
    IK_GLOBAL ik_i64 *const order =
        permutation + p.permutation.offset + ik_offset_within(p.permutation, 0, rows, number);
    for (ik_index r = LEVEL; r < n; r += DOWN)
        for (ik_index c = LANE; c < n; c += ACROSS)
            matrix[r * row + c * column] = from[r * row_x + c * column_x];
    for (ik_index i = id; i < n; i += IK_GROUP)
        order[i * place] = i;
    for (ik_index first = 0; first < n; first += BLOCK) {
        const int steps = n - first < BLOCK ? (int)(n - first) : BLOCK;
        IK_BARRIER_GLOBAL();
        for (ik_index k = first; k < first + steps; k++) {
            best b = best_of(0, -1);
            for (ik_index i = k + id; i < n; i += IK_GROUP) {
                const ik_c v = matrix[i * row + k * column];
                b = better(b, best_of(v < 0 ? -v : v, i));
            }
            b = group_best(b, values, places);
            if (id == 0) {
                shared[0] = (ik_index)b.at;
                chosen[k * step] = b.at;
                const ik_i64 moved = order[k * place];
                order[k * place] = order[b.at * place];
                order[b.at * place] = moved;
            }
            IK_BARRIER_GLOBAL();
            const ik_index other = shared[0];
            for (ik_index c = id; other != k && c < n; c += IK_GROUP) {
                const ik_c v = matrix[k * row + c * column];
                matrix[k * row + c * column] = matrix[other * row + c * column];
                matrix[other * row + c * column] = v;
            }
            IK_BARRIER_GLOBAL();
            const ik_c pivot = matrix[k * row + k * column];
            for (ik_index i = k + 1 + id; i < n; i += IK_GROUP) {
                IK_GLOBAL ik_c *const of = matrix + i * row;
                const ik_c factor = pivot != 0 ? DIVIDE(of[k * column], pivot) : of[k * column];
                of[k * column] = factor;
                for (ik_index c = k + 1; c < first + steps; c++) {
                    const ik_c product = factor * matrix[k * row + c * column];
                    of[c * column] = of[c * column] - product;
                }
            }
        }
        IK_BARRIER_GLOBAL();
        update_columns(matrix, row, column, n, first, steps, id, IK_GROUP, 1);
        IK_BARRIER_GLOBAL();
        update_columns(matrix, row, column, n, first, steps, LANE, ACROSS, 0);
    }
}
