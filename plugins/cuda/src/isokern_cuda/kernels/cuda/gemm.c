/* Matrix products in F16 and BF16 by tensor cores, and in F32, one block per tile of y; sums are F32. Each factor is
 * contiguous along one of its two dims, no matter which.
 *
 * Tiles are small where large ones would be half empty, or fewer than the multiprocessors, so that more of these have
 * something to do. */
#define STAGES (IK_SIZE_y == 2 ? 3 : 2)
#define WARP_COLS WARP_ROWS
#include "products.h"

/* Where matrix i of a batch begins. Dims are indexed by constants, so that the record stays in parameter space. */
static IK_INLINE ik_index matrix_of(const ik_tensor &t, int dims, ik_index i)
{
    ik_index at = t.offset;
#pragma unroll
    for (int d = 5; d >= 0; d--)
        if (d < dims) {
            const ik_index rest = i / t.shape[d];
            at += (i - rest * t.shape[d]) * t.strides[d];
            i = rest;
        }
    return at;
}

IK_ENTRY(gemm_tiles)(IK_PARAMS)
{
    typedef matrix<tile<BLOCK_ROWS, A_ALONG>, A_WHOLE> left_matrix;
    typedef matrix<tile<BLOCK_COLS, B_ALONG>, B_WHOLE> right_matrix;
    IK_LOCAL_ARRAY(chunk, lefts, STAGES * left_matrix::tile::SIZE / CHUNK);
    IK_LOCAL_ARRAY(chunk, rights, STAGES * right_matrix::tile::SIZE / CHUNK);
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], k = p.a.shape[last];
    const ik_index row_tiles = (m + BLOCK_ROWS - 1) / BLOCK_ROWS, col_tiles = (n + BLOCK_COLS - 1) / BLOCK_COLS;
    const ik_index line = IK_GROUP_ID / col_tiles, batch = line / row_tiles;
    const ik_index row = (line - batch * row_tiles) * BLOCK_ROWS, col = (IK_GROUP_ID - line * col_tiles) * BLOCK_COLS;

    left_matrix left;
    left.from = a + matrix_of(p.a, last - 1, batch) + row * p.a.strides[last - 1];
    left.step = p.a.strides[A_ALONG ? last - 1 : last];
    left.outer = m - row;
    left.depth = k;
    right_matrix right;
    right.from = b + matrix_of(p.b, last - 1, batch) + col * p.b.strides[last];
    right.step = p.b.strides[B_ALONG ? last : last - 1];
    right.outer = n - col;
    right.depth = k;
    tile_sums sums;
    sums.clear();
    add_products(sums, left, right, lefts, rights, k);

    const ik_index to = matrix_of(p.y, last - 1, batch), y_row = p.y.strides[last - 1], y_col = p.y.strides[last];
#ifdef IK_HAS_c
    const ik_index added = matrix_of(p.c, last - 1, batch), c_row = p.c.strides[last - 1], c_col = p.c.strides[last];
#endif
    const auto finish = [&](float sum, ik_index i, ik_index j) {
#ifdef IK_OP_gemm
        sum *= p.attr_alpha;
#endif
#ifdef IK_HAS_c
        if (p.attr_beta != 0) /* c is not read otherwise */
            sum += p.attr_beta * IK_LOAD(c, added + i * c_row + j * c_col);
#endif
#ifdef IK_HAS_bias
        sum += IK_LOAD(bias, p.bias.offset + j * p.bias.strides[0]);
#endif
#ifdef IK_ROW_activation
        sum = IK_ROW_activation(sum);
#endif
        return sum;
    };
    sums.each([&](int r, int s, const float *v) {
        const ik_index i = row + r, j = col + s;
        if (i >= m)
            return;
        if (Y_WHOLE && j + EACH <= n) {
            auto made = pack_of(y);
#pragma unroll
            for (int e = 0; e < EACH; e++)
                STORE_OF(y, made, e, finish(v[e], i, j + e));
            put(y + to + i * y_row + j, made);
            return;
        }
#pragma unroll
        for (int e = 0; e < EACH; e++)
            if (j + e < n)
                IK_STORE(y, to + i * y_row + (j + e) * y_col, finish(v[e], i, j + e));
    });
}
