/* matmul_id: y[i, t] = b[indices[i, t]] a[i, t], the products of rows of a[m, top, k] with the weights b[e, n, k] of
 * their experts, which may be of a block type.
 *
 * Many rows of an expert are computed in tiles: a first entry sorts the pairs (i, t) by expert and counts the tiles of
 * each, a second one gathers their rows in the workspace, as F32. Else a group or an item computes one result. Where x
 * enters as Q8_0, gathered rows are what they are once they have been quantised; else an entry quantises all rows in
 * the workspace, and products of two blocks are integers. An index that names no expert gives zeros, and the first such
 * index is reported. */
#include "rounded.h"
#ifdef TILE_ROWS /* the rows of a lie in the workspace */
#define IK_TYPE_a F32
#define IK_SIZE_a 4
#endif
#include "contraction.h"
#include "group.h"
#include "experts.h"

/* A row of a, or of its blocks. */
#if defined(ROUNDED) && ROUNDED
#define ROW_OF_A(pair) { (pair) * (ik_index)p.k, (ik_index)p.k, 1 }
#else
#define ROW_OF_A(pair) { p.a.offset + ik_offset_within(p.a, 0, 2, pair), p.a.strides[2], p.a.strides[2] }
#endif

#ifdef TILE_ROWS
IK_ENTRY(experts_tiles)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_acc, left, IK_DEPTH * IK_LEFT);
    IK_LOCAL_ARRAY(ik_acc, right, IK_DEPTH * IK_RIGHT);
    const ik_index n = p.y.shape[2], col_tiles = (n + TILE_COLS - 1) / TILE_COLS;
    const ik_index tile = IK_GROUP_ID / col_tiles, col = (IK_GROUP_ID - tile * col_tiles) * TILE_COLS;
    /* Nothing is left for the last groups; a return would part them from the others at the barriers. */
    const ik_expert_tile own = ik_expert_tile_of(p, workspace, TILE_ROWS, tile);
    IK_GLOBAL const float *const a = (IK_GLOBAL const float *)(workspace + p.rows) + (ik_i64)own.begin * p.k;
    const ik_factor of_a = { 0, (ik_index)p.k, 1 },
                    of_b = { p.b.offset + own.expert * p.b.strides[0] + col * (ik_index)p.b_col, (ik_index)p.b_col,
                        (ik_index)p.b_k };
    ik_acc total[IK_SIDE * IK_SIDE];
    ik_tile(a, of_a, 1, own.rows, b, of_b, of_b.k <= of_b.line, n - col,
        own.rows > 0 && own.expert < p.count ? (ik_index)p.k : 0, left, right, total);
    const int box_row = IK_LOCAL_ID / IK_BOX_COLS, box_col = IK_LOCAL_ID & (IK_BOX_COLS - 1);
    for (int i = 0; i < IK_SIDE; i++) {
        const ik_index r = box_row + i * IK_BOX_ROWS;
        if (r >= own.rows)
            continue;
        const ik_index to = p.y.offset + ik_offset_within(p.y, 0, 2, own.pairs[r]);
        for (int j = 0; j < IK_SIDE; j++) {
            const ik_index s = col + box_col + j * IK_BOX_COLS;
            if (s < n)
                IK_STORE(y, to + s * p.y.strides[2], total[i * IK_SIDE + j]);
        }
    }
}
#endif

IK_ENTRY(experts_dots)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
    FACTOR_A
    const ik_index n = p.y.shape[2], count = (ik_index)p.count, pair = IK_TASK / n, col = IK_TASK - pair * n,
                   expert = expert_of(p, indices, pair, count), k = expert < count ? (ik_index)p.k : 0;
    const ik_factor of_a = ROW_OF_A(pair),
                    of_b = { p.b.offset + expert * p.b.strides[0] + col * (ik_index)p.b_col, (ik_index)p.b_col,
                        (ik_index)p.b_k };
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
        IK_STORE(y, p.y.offset + ik_offset_within(p.y, 0, 2, pair) + col * p.y.strides[2], ik_sum_value(sum));
}
