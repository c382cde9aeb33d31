/* Matrix products: y[*, m, n] = activation(alpha * a[*, m, k] b[*, k, n] + beta * c[*, m, n] + bias[n]).
 *
 * Integers wrap, so signed ones are computed as unsigned ones of their size. Large products are computed in tiles, one
 * work-group per tile; products with few rows and with columns of b that are contiguous by one group per result; the
 * others by one item per result. */
#include "contraction.h"

/* Where matrix i of a batch begins. */
static IK_INLINE ik_index matrix(IK_RECORD(ik_tensor) t, ik_index i)
{ return t.offset + ik_offset_within(t, 0, (int)t.ndim - 2, i); }

/* The matrix `batch` of a tensor from line `first` on; its lines run along the dim `line`, the summation along the dim
 * k. */
static IK_INLINE ik_factor factor(IK_RECORD(ik_tensor) t, ik_index batch, int line, int k, ik_index first)
{
    const ik_factor made = { matrix(t, batch) + first * t.strides[line], t.strides[line], t.strides[k] };
    return made;
}

#ifdef IK_HAS_bias
#define BIAS(col) IK_LOAD(bias, p.bias.offset + (col) * p.bias.strides[0])
#else
#define BIAS(col) 0
#endif
#ifdef IK_HAS_c /* c is not read where beta is 0 */
#define MATRIX_OF_C(batch) matrix(p.c, batch)
#define ADDED(first, row, col) \
    (p.attr_beta != 0 ? p.attr_beta * IK_LOAD(c, (first) + (row) * p.c.strides[last - 1] + (col) * p.c.strides[last]) \
                      : 0)
#else
#define MATRIX_OF_C(batch) 0
#define ADDED(first, row, col) ((void)(first), 0)
#endif

/* Apply the epilogue to a sum. */
static IK_INLINE ik_acc finish(IK_RECORD(ik_args) p, ik_acc sum, ik_acc bias, ik_acc added)
{
#ifdef IK_OP_gemm
    sum *= p.attr_alpha;
#endif
#ifdef IK_HAS_c
    sum += added;
#endif
#ifdef IK_HAS_bias
    sum += bias;
#endif
#ifdef IK_ROW_activation
    sum = IK_ROW_activation(sum);
#endif
    return sum;
}

IK_ENTRY(gemm_tiles)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_acc, left, IK_DEPTH * IK_LEFT);
    IK_LOCAL_ARRAY(ik_acc, right, IK_DEPTH * IK_RIGHT);
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], k = p.k;
    const ik_index row_tiles = (m + TILE_ROWS - 1) / TILE_ROWS, col_tiles = (n + TILE_COLS - 1) / TILE_COLS;
    const ik_index line = IK_GROUP_ID / col_tiles, batch = line / row_tiles;
    const ik_index row = (line - batch * row_tiles) * TILE_ROWS, col = (IK_GROUP_ID - line * col_tiles) * TILE_COLS;
    const ik_factor of_a = factor(p.a, batch, last - 1, last, row), of_b = factor(p.b, batch, last, last - 1, col);
    ik_acc total[IK_SIDE * IK_SIDE];
    ik_tile(a, of_a, (int)p.a_along, m - row, b, of_b, (int)p.b_along, n - col, k, left, right, total);
    const int box_row = IK_LOCAL_ID / IK_BOX_COLS, box_col = IK_LOCAL_ID & (IK_BOX_COLS - 1);
    /* Computed once: with divisions in them, the loops below would not be unrolled. */
    const ik_index to = matrix(p.y, batch), of_c = MATRIX_OF_C(batch);
    for (int i = 0; i < IK_SIDE; i++) {
        const ik_index r = row + box_row + i * IK_BOX_ROWS;
        for (int j = 0; j < IK_SIDE; j++) {
            const ik_index s = col + box_col + j * IK_BOX_COLS;
            if (r < m && s < n)
                IK_STORE(y, to + r * p.y.strides[last - 1] + s * p.y.strides[last],
                    finish(p, total[i * IK_SIDE + j], BIAS(s), ADDED(of_c, r, s)));
        }
    }
}

IK_ENTRY(gemm_dots)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_acc, scratch, IK_GROUP);
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], k = p.k;
    const ik_index line = IK_GROUP_ID / n, batch = line / m, row = line - batch * m, col = IK_GROUP_ID - line * n;
    const ik_factor of_a = factor(p.a, batch, last - 1, last, row), of_b = factor(p.b, batch, last, last - 1, col);
    scratch[IK_LOCAL_ID] = ik_dot(a, of_a, b, of_b, IK_LOCAL_ID, IK_GROUP, k);
    for (int apart = IK_GROUP / 2; apart > 0; apart /= 2) {
        IK_BARRIER();
        if (IK_LOCAL_ID < apart)
            scratch[IK_LOCAL_ID] += scratch[IK_LOCAL_ID + apart];
    }
    if (IK_LOCAL_ID == 0)
        IK_STORE(y, matrix(p.y, batch) + row * p.y.strides[last - 1] + col * p.y.strides[last],
            finish(p, scratch[0], BIAS(col), ADDED(MATRIX_OF_C(batch), row, col)));
}

IK_ENTRY(gemm_items)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], k = p.k;
    const ik_index line = IK_ITEM / n, batch = line / m, row = line - batch * m, col = IK_ITEM - line * n;
    const ik_factor of_a = factor(p.a, batch, last - 1, last, row), of_b = factor(p.b, batch, last, last - 1, col);
    const ik_acc total = ik_dot(a, of_a, b, of_b, 0, 1, k);
    IK_STORE(y, matrix(p.y, batch) + row * p.y.strides[last - 1] + col * p.y.strides[last],
        finish(p, total, BIAS(col), ADDED(MATRIX_OF_C(batch), row, col)));
}
