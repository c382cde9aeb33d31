/* matmul_integer on processors: register tiles over packed panels of columns (tiles.h), whose elements are words of
 * four numbers along k: unsigned bytes of a (I8 plus 128) and signed ones of b (U8 less 128), as vpdpbusd multiplies
 * and adds them. With what is left of the zero points, za' and zb':
 *
 *     y = Σ a' b' - za' Σ b' - zb' (Σ a' - k za')
 *
 * Against casts to I32 and gemm.c, interleaved (PoCL 3.0, AVX-512 VNNI, two Zen 5 cores, busy): 1024^3 3.3 times as
 * fast, 256^3 1.5, one row and 4096^2 4.6; 1024^3 without VNNI 1.9. */
/* Add the products of four numbers of a with those in each of 16 lanes of b. */
static inline __attribute__((always_inline)) uint16 add_products(uint a, uint16 b, uint16 sum)
{
#if defined(__AVX512VNNI__) && defined(__clang__) && __clang_major__ < 22 /* later ones take vectors of bytes */
    typedef int words __attribute__((vector_size(64)));
    union {
        uint16 lanes;
        words all;
    } x = { (uint16)(a) }, y = { b }, z = { sum };
    z.all = __builtin_ia32_vpdpbusd512(z.all, x.all, y.all);
    return z.lanes;
#else
    const uint16 low =
        (a & 255u) * as_uint16(as_int16(b << 24u) >> 24) + (a >> 8 & 255u) * as_uint16(as_int16(b << 16u) >> 24);
    return sum + low + (a >> 16 & 255u) * as_uint16(as_int16(b << 8u) >> 24) + (a >> 24) * as_uint16(as_int16(b) >> 24);
#endif
}

#define ADD_PRODUCT(a, b, sum) add_products(a, b, sum)
#include "tiles.h"
#include "zero_points.h"

/* Where matrix i of a batch begins. */
static IK_INLINE ik_index matrix(ik_tensor t, ik_index i)
{ return t.offset + ik_offset_within(t, 0, (int)t.ndim - 2, i); }

/* A word of numbers `step` apart, of which `count` exist. */
static IK_INLINE value word_of(IK_GLOBAL const ik_u8 *from, ik_index step, ik_index count, value flip)
{
    value word = 0;
    for (int q = 0; q < 4; q++)
        if (q < count)
            word |= (from[q * step] ^ flip) << 8 * q;
    return word;
}

/* An item packs some words of some panels of b: to[panel, word, column]. */
IK_ENTRY(integer_right)(IK_PARAMS)
{
    enum { HIGH = 16, WIDE = 8 };
    const int last = (int)p.b.ndim - 1;
    const ik_index n = p.b.shape[last], k = p.b.shape[last - 1], words = (ik_index)p.words, row = p.b.strides[last - 1],
                   col = p.b.strides[last], panels = (n + PANEL_COLS - 1) / PANEL_COLS;
    const ik_index parts = (words + HIGH - 1) / HIGH, shares = (panels + WIDE - 1) / WIDE,
                   batch = IK_GROUP_ID / parts / shares, first = IK_GROUP_ID % parts * HIGH,
                   begin = IK_GROUP_ID / parts % shares * WIDE;
    IK_GLOBAL const ik_u8 *const from = b + matrix(p.b, batch);
    const value flip = (value)p.flip, all = flip * 0x01010101u;
    for (ik_index panel = begin; panel < min(panels, begin + WIDE); panel++) {
        IK_GLOBAL value *to =
            (IK_GLOBAL value *)workspace + ((ik_i64)(batch * panels + panel) * words + first) * PANEL_COLS;
        const ik_index wide = min((ik_index)PANEL_COLS, n - panel * PANEL_COLS);
        for (ik_index w = first; w < min(words, first + HIGH); w++, to += PANEL_COLS) {
            IK_GLOBAL const ik_u8 *const x = from + 4 * w * row + panel * PANEL_COLS * col;
            if (wide == PANEL_COLS && col == 1 && 4 * w + 4 <= k) IK_VECTORISE
                for (int j = 0; j < PANEL_COLS; j++) /* of constant length */
                    to[j] = ((value)x[j] | (value)x[j + row] << 8 | (value)x[j + 2 * row] << 16
                                | (value)x[j + 3 * row] << 24)
                        ^ all;
            else
                for (ik_index j = 0; j < PANEL_COLS; j++)
                    to[j] = j < wide ? word_of(x + j * col, row, k - 4 * w, flip) : 0;
        }
    }
}

/* An item sums the columns of a panel. */
IK_ENTRY(integer_right_sums)(IK_PARAMS)
{
    const ik_index words = (ik_index)p.words;
    IK_GLOBAL const value *from = (IK_GLOBAL const value *)workspace + (ik_i64)IK_GROUP_ID * words * PANEL_COLS;
    vector low = 0, high = 0;
    for (ik_index w = 0; w < words; w++, from += PANEL_COLS) {
        low = ADD_PRODUCT(0x01010101u, *(IK_GLOBAL const loose *)from, low);
        high = ADD_PRODUCT(0x01010101u, *(IK_GLOBAL const loose *)(from + LANES), high);
    }
    IK_GLOBAL value *const to = (IK_GLOBAL value *)workspace + (ik_i64)p.to + IK_GROUP_ID * PANEL_COLS;
    *(IK_GLOBAL loose *)to = low;
    *(IK_GLOBAL loose *)(to + LANES) = high;
}

/* An item packs some rows of a, and sums them. */
IK_ENTRY(integer_left)(IK_PARAMS)
{
    enum { HIGH = 8 };
    const int last = (int)p.a.ndim - 1;
    const ik_index m = p.a.shape[last - 1], k = p.a.shape[last], words = (ik_index)p.words, step = p.a.strides[last],
                   shares = (m + HIGH - 1) / HIGH, batch = IK_GROUP_ID / shares, first = IK_GROUP_ID % shares * HIGH;
    const value flip = (value)p.flip;
    for (ik_index row = first; row < min(m, first + HIGH); row++) {
        IK_GLOBAL const ik_u8 *const from = a + matrix(p.a, batch) + row * p.a.strides[last - 1];
        IK_GLOBAL value *const to = (IK_GLOBAL value *)workspace + (ik_i64)p.to + (ik_i64)(batch * m + row) * words;
        value sum = 0;
        for (ik_index i = 0; i < k; i++)
            sum += from[i * step] ^ flip;
        if (step == 1)
            for (ik_index i = 0; i < k / 4 * 4; i++)
                ((IK_GLOBAL ik_u8 *)to)[i] = from[i] ^ (ik_u8)flip;
        for (ik_index w = step == 1 ? k / 4 : 0; w < words; w++)
            to[w] = word_of(from + 4 * w * step, step, k - 4 * w, flip);
        ((IK_GLOBAL value *)workspace)[(ik_i64)p.sums + batch * m + row] = sum;
    }
}

/* An item computes a block of rows of a panel. */
IK_ENTRY(integer_tiles)(IK_PARAMS)
{
    vector scratch[SUMS];
    value *sums = (value *)scratch;
    IK_GLOBAL const value *const memory = (IK_GLOBAL const value *)workspace;
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], words = (ik_index)p.words,
                   panels = (n + PANEL_COLS - 1) / PANEL_COLS, block = (ik_index)p.block,
                   blocks = (m + block - 1) / block;
    const ik_index batch = IK_GROUP_ID / panels / blocks, panel = IK_GROUP_ID % panels, col = panel * PANEL_COLS,
                   row = IK_GROUP_ID / panels % blocks * block;
    const int rows = (int)min(block, m - row), cols = (int)min((ik_index)PANEL_COLS, n - col);
    const ik_index line = (p.lefts == 1 ? 0 : batch * m) + row, wide = (p.rights == 1 ? 0 : batch * panels) + panel;
    IK_GLOBAL const value *const left = memory + (ik_i64)p.left + (ik_i64)line * words,
                                 *const right = memory + (ik_i64)wide * words * PANEL_COLS;
    for (ik_index first = 0; first == 0 || first < words; first += BLOCK_K)
        contract(left + first, words, rows, right + first * PANEL_COLS, PANEL_COLS, 0,
            (int)min((ik_index)BLOCK_K, words - first), sums, first == 0);
    IK_GLOBAL const value *const of_columns = memory + (ik_i64)p.column_sums + (ik_i64)wide * PANEL_COLS;
    value rests[PANEL_COLS];
    for (int j = 0; j < cols; j++)
        rests[j] = IK_REST_B(col + j);
    const ik_index step = p.y.strides[last];
    for (int i = 0; i < rows; i++) {
        value *const mine = sums + i * PANEL_COLS;
        const value rest = IK_REST_A(row + i), of_row = memory[(ik_i64)p.row_sums + line + i] - (value)p.k * rest;
        for (int j = 0; j < cols; j++)
            mine[j] -= rests[j] * of_row;
        for (int j = 0; j < cols && rest != 0; j++)
            mine[j] -= rest * of_columns[j];
        const ik_index to = matrix(p.y, batch) + (row + i) * p.y.strides[last - 1] + col * step;
        for (int j = 0; j < cols; j++)
            y[to + j * step] = (ik_i32)mine[j];
    }
}
