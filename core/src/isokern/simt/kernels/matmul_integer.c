/* matmul_integer: y[*, m, n] = Σ (a - a_zero[m]) (b - b_zero[n]) of bytes, summed modulo 2^32.
 *
 * Four numbers along k become a word of signed bytes (U8 less 128), for the device's dot product of two words; they lie
 * in the order of the matrix they come from. With the rest of a zero point, za' = za - 128 or za, and so zb':
 *
 *     y = Σ a' b' - za' Σ b' - zb' (Σ a' - k za')
 *
 * Large products are computed in tiles, one work-group per tile, others by one item per result. */
#ifdef PACKED /* the factors are words in the workspace */
#define IK_TYPE_a U32
#define IK_TYPE_b U32
#endif
#ifdef IK_DOT_BYTES
#define IK_MULTIPLY_ADD(a, b, sum) IK_DOT_BYTES(a, b, sum)
#else
#define IK_BYTE(x, q) ((ik_i32)((x) << (24 - 8 * (q))) >> 24)
#define IK_MULTIPLY_ADD(a, b, sum) \
    ((sum) \
        + (ik_u32)(IK_BYTE(a, 0) * IK_BYTE(b, 0) + IK_BYTE(a, 1) * IK_BYTE(b, 1) + IK_BYTE(a, 2) * IK_BYTE(b, 2) \
            + IK_BYTE(a, 3) * IK_BYTE(b, 3)))
#endif
#include "contraction.h"
#include "zero_points.h"

/* Where matrix i of a batch begins. */
static IK_INLINE ik_index matrix(IK_RECORD(ik_tensor) t, ik_index i)
{ return t.offset + ik_offset_within(t, 0, (int)t.ndim - 2, i); }

/* Word number `item` of a factor. Words lie in the order of its memory: the words of a line together where they are
 * `along` it, else those of one place in all lines. */
static IK_INLINE ik_u32 pack(IK_RECORD(ik_tensor) t, IK_GLOBAL const ik_u8 *x, int of_line, int of_k, ik_index item,
    ik_index words, int along, ik_u32 flip)
{
    const ik_index lines = t.shape[of_line], each = words * lines, batch = item / each, inside = item - batch * each;
    const ik_index width = along ? words : lines, outer = inside / width, inner = inside - outer * width;
    const ik_index line = along ? outer : inner, first = 4 * (along ? inner : outer), step = t.strides[of_k];
    const ik_index from = matrix(t, batch) + line * t.strides[of_line] + first * step, count = t.shape[of_k] - first;
    ik_u32 word = 0;
    for (int q = 0; q < 4; q++)
        if (q < count)
            word |= ((ik_u32)x[from + q * step] ^ flip) << 8 * q;
    return word;
}

IK_ENTRY(integer_pack_a)(IK_PARAMS)
{
    const int last = (int)p.a.ndim - 1;
    if (IK_ITEM < p.items)
        ((IK_GLOBAL ik_u32 *)workspace)[(ik_index)p.to + IK_ITEM] =
            pack(p.a, a, last - 1, last, IK_ITEM, (ik_index)p.words, (int)p.along, (ik_u32)p.flip);
}

IK_ENTRY(integer_pack_b)(IK_PARAMS)
{
    const int last = (int)p.b.ndim - 1;
    if (IK_ITEM < p.items)
        ((IK_GLOBAL ik_u32 *)workspace)[(ik_index)p.to + IK_ITEM] =
            pack(p.b, b, last, last - 1, IK_ITEM, (ik_index)p.words, (int)p.along, (ik_u32)p.flip);
}

/* An item sums a line of a packed factor. */
IK_ENTRY(integer_sums)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    IK_GLOBAL ik_u32 *const memory = (IK_GLOBAL ik_u32 *)workspace;
    const ik_index words = (ik_index)p.words, lines = (ik_index)p.lines, batch = IK_ITEM / lines,
                   line = IK_ITEM - batch * lines;
    const ik_index from = (ik_index)p.first + batch * lines * words + line * (p.along ? words : 1),
                   step = p.along ? 1 : lines;
    ik_u32 sum = 0;
    for (ik_index i = 0; i < words; i++)
        sum = IK_MULTIPLY_ADD(memory[from + i * step], 0x01010101u, sum);
    memory[(ik_index)p.to + IK_ITEM] = sum;
}

#ifdef PACKED
/* Sums of lines; those that are multiplied by rests of 0 alone are not made. */
#define SUM_OF_A(row) (SUMS_OF_A ? memory[(ik_index)p.sums_a + (row)] : 0u)
#define SUM_OF_B(col) (SUMS_OF_B ? memory[(ik_index)p.sums_b + (col)] : 0u)

#define FACTORS \
    IK_GLOBAL const ik_u32 *const memory = (IK_GLOBAL const ik_u32 *)workspace; \
    const int last = (int)p.y.ndim - 1; \
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], words = (ik_index)p.words; \
    IK_GLOBAL const ik_u32 *const a = memory, *const b = memory + (ik_index)p.right;

/* The factors of a product of the batch, from a row and a column on. */
#define LEFT(row) \
    { (p.lefts == 1 ? 0 : batch * m * words) + (row) * (p.a_along ? words : 1), p.a_along ? words : 1, \
        p.a_along ? 1 : m }
#define RIGHT(col) \
    { (p.rights == 1 ? 0 : batch * n * words) + (col) * (p.b_along ? words : 1), p.b_along ? words : 1, \
        p.b_along ? 1 : n }

/* Finish and store a sum of products. */
#define FINISH(row, col, sum) \
    { \
        const ik_u32 rest_b = IK_REST_B(col), rest_a = IK_REST_A(row); \
        const ik_u32 sum_a = SUM_OF_A((p.lefts == 1 ? 0 : batch * m) + (row)), \
                     sum_b = SUM_OF_B((p.rights == 1 ? 0 : batch * n) + (col)); \
        IK_STORE(y, to + (row) * p.y.strides[last - 1] + (col) * p.y.strides[last], \
            (ik_i32)((sum) - rest_a * sum_b - rest_b * (sum_a - (ik_u32)p.k * rest_a))); \
    }
#endif

IK_ENTRY(integer_tiles)(IK_PARAMS)
{
    IK_LOCAL_ARRAY(ik_acc, left, IK_DEPTH * IK_LEFT);
    IK_LOCAL_ARRAY(ik_acc, right, IK_DEPTH * IK_RIGHT);
    FACTORS
    const ik_index row_tiles = (m + TILE_ROWS - 1) / TILE_ROWS, col_tiles = (n + TILE_COLS - 1) / TILE_COLS;
    const ik_index line = IK_GROUP_ID / col_tiles, batch = line / row_tiles;
    const ik_index row = (line - batch * row_tiles) * TILE_ROWS, col = (IK_GROUP_ID - line * col_tiles) * TILE_COLS;
    const ik_factor of_a = LEFT(row), of_b = RIGHT(col);
    ik_acc total[IK_SIDE * IK_SIDE];
    ik_tile(a, of_a, (int)p.a_along, m - row, b, of_b, (int)p.b_along, n - col, words, left, right, total);
    const int box_row = IK_LOCAL_ID / IK_BOX_COLS, box_col = IK_LOCAL_ID & (IK_BOX_COLS - 1);
    const ik_index to = matrix(p.y, batch);
    for (int i = 0; i < IK_SIDE; i++) {
        const ik_index r = row + box_row + i * IK_BOX_ROWS;
        for (int j = 0; j < IK_SIDE; j++) {
            const ik_index s = col + box_col + j * IK_BOX_COLS;
            if (r < m && s < n)
                FINISH(r, s, total[i * IK_SIDE + j])
        }
    }
}

IK_ENTRY(integer_items)(IK_PARAMS)
{
    if (IK_ITEM >= p.items)
        return;
    FACTORS
    const ik_index line = IK_ITEM / n, batch = line / m, row = line - batch * m, col = IK_ITEM - line * n;
    const ik_factor of_a = LEFT(row), of_b = RIGHT(col);
    const ik_index to = matrix(p.y, batch);
    const ik_u32 total = ik_dot(a, of_a, b, of_b, 0, 1, words);
    FINISH(row, col, total)
}
