/* solve_triangular: a x = b by substitution, in x itself, an item a column of x: the columns do not meet. */
/* launch
 * let(n=x.shape[-2], columns=x.numel // max(1, n))
 * solve_triangular(items=columns)
 */
#include "simt.h"
#include "isokern_math.h"

#ifdef IK_COMPUTE_F32
#define DIVIDE(a, b) IK_DIV_F32(a, b)
#else
#define DIVIDE(a, b) ((a) / (b))
#endif

IK_ENTRY(solve_triangular)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int rows = (int)p.x.ndim - 2;
    const ik_index n = p.x.shape[rows], k = p.x.shape[rows + 1], matrix = IK_ITEM / k, column = IK_ITEM - matrix * k;
    const ik_index row = p.x.strides[rows], row_b = p.b.strides[rows], row_a = p.a.strides[rows],
                   column_a = p.a.strides[rows + 1];
    const ik_index to = p.x.offset + ik_offset_within(p.x, 0, rows, matrix) + column * p.x.strides[rows + 1],
                   from = p.b.offset + ik_offset_within(p.b, 0, rows, matrix) + column * p.b.strides[rows + 1],
                   at = p.a.offset + ik_offset_within(p.a, 0, rows, matrix);
    const int lower = (p.attr_lower != 0) == (p.attr_left != 0); /* all is transposed where a stands on the right */
    for (ik_index step = 0; step < n; step++) {
        const ik_index i = lower ? step : n - 1 - step, line = at + i * row_a;
        ik_c sum = b[from + i * row_b];
        for (ik_index before = 0; before < step; before++) {
            const ik_index j = lower ? before : n - 1 - before;
            const ik_c product = a[line + j * column_a] * x[to + j * row];
            sum = sum - product;
        }
        x[to + i * row] = p.attr_unit_diagonal ? sum : DIVIDE(sum, a[line + i * column_a]);
    }
}
