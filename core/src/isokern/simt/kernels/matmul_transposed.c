/* matmul_transposed: y[*r, n] = x[*r, k] w[n, k]ᵀ, linear_mixed: y = activation(x wᵀ + c[*r, n] + bias[n]), and
 * matmul_mixed: y = x w[k, n], with weights of a dtype of their own, which may be a block type.
 *
 * Many rows are computed in tiles, one work-group per tile; else a group or an item computes one result, block by block
 * of w. Where x enters as Q8_0, a first entry quantises the rows of x (a) in the workspace: products of two blocks are
 * then integers, and tiles use the dequantised elements. */
#include "rounded.h"
#include "contraction.h"
#include "group.h"

/* Rows of a, or of its blocks, from row `row` of the batch on. */
#if defined(ROUNDED) && ROUNDED
#define ROWS_OF_A(row) { (batch * m + (row)) * (ik_index)p.k, (ik_index)p.k, 1 }
#else
#define ROWS_OF_A(row) { matrix(p.a, batch) + (row) * p.a.strides[last - 1], p.a.strides[last - 1], p.a.strides[last] }
#endif

/* Where matrix i of a batch begins. */
static IK_INLINE ik_index matrix(IK_RECORD(ik_tensor) t, ik_index i)
{ return t.offset + ik_offset_within(t, 0, (int)t.ndim - 2, i); }

#ifdef IK_HAS_bias
#define BIAS(col) IK_LOAD(bias, p.bias.offset + (col) * p.bias.strides[0])
#else
#define BIAS(col) 0
#endif
#ifdef IK_HAS_added
#define MATRIX_OF_ADDED(batch) matrix(p.added, batch)
#define ADDED(first, row, col) \
    IK_LOAD(added, (first) + (row) * p.added.strides[last - 1] + (col) * p.added.strides[last])
#else
#define MATRIX_OF_ADDED(batch) 0
#define ADDED(first, row, col) ((void)(first), 0)
#endif

/* Apply the epilogue to a sum. */
static IK_INLINE ik_c finish(ik_c sum, ik_c bias, ik_c added)
{
#ifdef IK_HAS_added
    sum += added;
#endif
#ifdef IK_HAS_bias
    sum += bias;
#endif
#ifdef IK_OP_linear_mixed
    sum = IK_ROW_activation(sum);
#endif
    return sum;
}

IK_ENTRY(matmul_tiles)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_acc, left, IK_DEPTH * IK_LEFT);
    IK_LOCAL_ARRAY(ik_acc, right, IK_DEPTH * IK_RIGHT);
    FACTOR_A
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last];
    const ik_index row_tiles = (m + TILE_ROWS - 1) / TILE_ROWS, col_tiles = (n + TILE_COLS - 1) / TILE_COLS;
    const ik_index line = IK_GROUP_ID / col_tiles, batch = line / row_tiles;
    const ik_index row = (line - batch * row_tiles) * TILE_ROWS, col = (IK_GROUP_ID - line * col_tiles) * TILE_COLS;
    const ik_factor of_a = ROWS_OF_A(row),
                    of_b = { p.b.offset + col * (ik_index)p.b_col, (ik_index)p.b_col, (ik_index)p.b_k };
    ik_acc total[IK_SIDE * IK_SIDE];
    ik_tile(a, of_a, (int)p.a_along, m - row, b, of_b, of_b.k <= of_b.line, n - col, (ik_index)p.k, left, right, total);
    const int box_row = IK_LOCAL_ID / IK_BOX_COLS, box_col = IK_LOCAL_ID & (IK_BOX_COLS - 1);
    /* Computed once: with divisions in them, the loops below would not be unrolled. */
    const ik_index to = matrix(p.y, batch), of_added = MATRIX_OF_ADDED(batch);
    for (int i = 0; i < IK_SIDE; i++) {
        const ik_index r = row + box_row + i * IK_BOX_ROWS;
        for (int j = 0; j < IK_SIDE; j++) {
            const ik_index s = col + box_col + j * IK_BOX_COLS;
            if (r < m && s < n)
                IK_STORE(y, to + r * p.y.strides[last - 1] + s * p.y.strides[last],
                    finish(total[i * IK_SIDE + j], BIAS(s), ADDED(of_added, r, s)));
        }
    }
}

IK_ENTRY(matmul_dots)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    FACTOR_A
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], k = (ik_index)p.k;
    const ik_index line = IK_TASK / n, batch = line / m, row = line - batch * m, col = IK_TASK - line * n;
    const ik_factor of_a = ROWS_OF_A(row),
                    of_b = { p.b.offset + col * (ik_index)p.b_col, (ik_index)p.b_col, (ik_index)p.b_k };
    ik_sum sum = ik_sum_none();
#if DENSE
    for (ik_index i = IK_LANE * IK_BLOCK; i < k; i += IK_LANES * IK_BLOCK) {
        IK_GLOBAL const ik_u8 *const block = IK_BLOCK_AT(b, of_b.from + i);
#if ROUNDED
        sum = ik_sum_add(sum, IK_PASTE(ik_products_, IK_TYPE_b)(block, IK_BLOCK_AT(a, of_a.from + i)));
#else
        float v[IK_BLOCK];
        for (int q = 0; q < IK_BLOCK; q++)
            v[q] = IK_LOAD(a, of_a.from + (i + q) * of_a.k);
        sum = ik_sum_add(sum, IK_PASTE(ik_dot_, IK_TYPE_b)(block, v));
#endif
    }
#else
    sum.high = ik_dot(a, of_a, b, of_b, IK_LANE, IK_LANES, k);
#endif
    sum = ik_group_sum(sum, scratch);
    if (IK_LANE == 0)
        IK_STORE(y, matrix(p.y, batch) + row * p.y.strides[last - 1] + col * p.y.strides[last],
            finish(ik_sum_value(sum), BIAS(col), ADDED(MATRIX_OF_ADDED(batch), row, col)));
}
