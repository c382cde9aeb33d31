/* lu_factor: Gaussian elimination with partial pivoting, in lu itself, a work-group a matrix. */
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

IK_ENTRY(lu_factor)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, values, 1)
    IK_SCRATCH(ik_i64, places, 1)
    IK_LOCAL_ARRAY(ik_index, shared, 1);
    const ik_index matrix = IK_GROUP_ID;
    const int rows = (int)p.lu.ndim - 2;
    const ik_index n = p.lu.shape[rows], row = p.lu.strides[rows], column = p.lu.strides[rows + 1],
                   row_x = p.x.strides[rows], column_x = p.x.strides[rows + 1], step = p.pivots.strides[rows],
                   place = p.permutation.strides[rows];
    const ik_index to = p.lu.offset + ik_offset_within(p.lu, 0, rows, matrix),
                   from = p.x.offset + ik_offset_within(p.x, 0, rows, matrix),
                   to_pivots = p.pivots.offset + ik_offset_within(p.pivots, 0, rows, matrix),
                   to_order = p.permutation.offset + ik_offset_within(p.permutation, 0, rows, matrix);
    for (ik_index i = IK_LOCAL_ID; i < n * n; i += IK_GROUP) {
        const ik_index r = i / n, c = i - r * n;
        lu[to + r * row + c * column] = x[from + r * row_x + c * column_x];
    }
    for (ik_index i = IK_LOCAL_ID; i < n; i += IK_GROUP)
        permutation[to_order + i * place] = i;
    for (ik_index k = 0; k < n; k++) {
        IK_BARRIER_GLOBAL();
        best b = best_of(0, -1);
        for (ik_index i = k + IK_LOCAL_ID; i < n; i += IK_GROUP) {
            const ik_c v = lu[to + i * row + k * column];
            b = better(b, best_of(v < 0 ? -v : v, i));
        }
        b = group_best(b, values, places);
        if (IK_LOCAL_ID == 0) {
            shared[0] = (ik_index)b.at;
            pivots[to_pivots + k * step] = b.at;
            const ik_i64 moved = permutation[to_order + k * place];
            permutation[to_order + k * place] = permutation[to_order + (ik_index)b.at * place];
            permutation[to_order + (ik_index)b.at * place] = moved;
        }
        IK_BARRIER();
        const ik_index chosen = shared[0];
        for (ik_index c = IK_LOCAL_ID; chosen != k && c < n; c += IK_GROUP) {
            const ik_c v = lu[to + k * row + c * column];
            lu[to + k * row + c * column] = lu[to + chosen * row + c * column];
            lu[to + chosen * row + c * column] = v;
        }
        IK_BARRIER_GLOBAL();
        const ik_c pivot = lu[to + k * row + k * column];
        for (ik_index i = k + 1 + IK_LOCAL_ID; pivot != 0 && i < n; i += IK_GROUP)
            lu[to + i * row + k * column] = DIVIDE(lu[to + i * row + k * column], pivot);
        IK_BARRIER_GLOBAL();
        const ik_index rest = n - 1 - k;
        for (ik_index i = IK_LOCAL_ID; i < rest * rest; i += IK_GROUP) {
            const ik_index down = i / rest, r = k + 1 + down, c = k + 1 + i - down * rest;
            const ik_c product = lu[to + r * row + k * column] * lu[to + k * row + c * column];
            lu[to + r * row + c * column] = lu[to + r * row + c * column] - product;
        }
    }
}
