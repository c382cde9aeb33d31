/* matmul_transposed, linear_mixed and matmul_mixed on processors.
 *
 * Weights in blocks along the sum become registers of F32, each of which multiplies some rows of x. Rows of x go to the
 * workspace first, as F32, or as the dequantised values of their Q8_0 blocks: products of those are exact in F32. An
 * item computes SHARE columns of the result, ACROSS at a time, DOWN rows of x at a time.
 *
 * Other weights are packed as panels of F32, for register tiles (tiles.h): once where more than one block of rows reads
 * them, else by the item that uses them. SOURCE is the tensor that an entry packs.
 *
 * Against the portable kernel (PoCL 3.0, AVX-512, two Zen 5 cores, busy): Q4_0, one row and 4096^2 weights, 16 times as
 * fast; F8E4M3FN and BF16, 64 rows and 1024^2 weights, 35 to 84 times, 512 rows 120. */
#if defined(PACKED) && !PACKED
#define PANEL __private /* an item packs a block of the weights for itself */
#endif
#include "isokern_math.h"
#include "runs.h"
#ifdef SOURCE
#include "tiles.h"

/* Where matrix i of a batch begins. */
static IK_INLINE ik_index matrix(ik_tensor t, ik_index i)
{ return t.offset + ik_offset_within(t, 0, (int)t.ndim - 2, i); }

/* Pack rows [first, first + count) of a panel of the weights, which begin at `from`; columns that do not exist are
 * zero. */
static IK_INLINE void pack(
    ik_tensor b, IK_GLOBAL const element *from, ik_index first, int count, ik_index panel, PANEL value *to)
{
    const ik_index row = b.strides[0], col = b.strides[1],
                   wide = min((ik_index)PANEL_COLS, b.shape[1] - panel * PANEL_COLS);
    for (int i = 0; i < count * PANEL_COLS && wide < PANEL_COLS; i++)
        to[i] = 0;
    copy(from + b.offset + first * row + panel * PANEL_COLS * col, row, col, count, wide, to, PANEL_COLS);
}
#else
#include "vectors.h"

typedef float16 ik_half_block __attribute__((aligned(4)));

#pragma OPENCL FP_CONTRACT ON /* in sums of products; the roundings that are prescribed happened in blocks.h */

static IK_INLINE float total(float16 v)
{
    const float8 eight = v.lo + v.hi;
    const float4 four = eight.lo + eight.hi;
    return (four.x + four.z) + (four.y + four.w);
}

#endif

/* An item packs some rows of some panels. */
IK_ENTRY(weights_right)(IK_PARAMS)
{
    enum { HIGH = 64, WIDE = 8 };
    const ik_index k = p.b.shape[0], panels = (p.b.shape[1] + PANEL_COLS - 1) / PANEL_COLS,
                   parts = (k + HIGH - 1) / HIGH, first = IK_GROUP_ID % parts * HIGH,
                   begin = IK_GROUP_ID / parts * WIDE;
    for (ik_index panel = begin; panel < min(panels, begin + WIDE); panel++)
        pack(p.b, b, first, (int)min((ik_index)HIGH, k - first), panel,
            (IK_GLOBAL value *)workspace + ((ik_i64)panel * k + first) * PANEL_COLS);
}

/* An item copies a part of some rows of x. */
IK_ENTRY(weights_left)(IK_PARAMS)
{
    enum { HIGH = 128, WIDE = 64 };
    const int last = (int)p.a.ndim - 1;
    const ik_index m = p.a.shape[last - 1], k = p.a.shape[last], parts = (k + WIDE - 1) / WIDE,
                   shares = (m + HIGH - 1) / HIGH, batch = IK_GROUP_ID / parts / shares,
                   begin = IK_GROUP_ID % parts * WIDE, first = IK_GROUP_ID / parts % shares * HIGH;
    const ik_index row = p.a.strides[last - 1], col = p.a.strides[last];
    copy(a + matrix(p.a, batch) + first * row + begin * col, row, col, min((ik_index)HIGH, m - first),
        min((ik_index)WIDE, k - begin), (IK_GLOBAL value *)(workspace + p.at) + (ik_i64)(batch * m + first) * k + begin,
        k);
}

/* An item computes a block of rows of a panel. */
IK_ENTRY(weights_tiles)(IK_PARAMS)
{
    vector scratch[SUMS];
    value *sums = (value *)scratch;
    const int last = (int)p.y.ndim - 1;
    const ik_index m = p.y.shape[last - 1], n = p.y.shape[last], k = (ik_index)p.k,
                   panels = (n + PANEL_COLS - 1) / PANEL_COLS, block = (ik_index)p.block,
                   blocks = (m + block - 1) / block;
    const ik_index batch = IK_GROUP_ID / panels / blocks, panel = IK_GROUP_ID % panels, col = panel * PANEL_COLS,
                   row = IK_GROUP_ID / panels % blocks * block;
    const int rows = (int)min(block, m - row), cols = (int)min((ik_index)PANEL_COLS, n - col);
    IK_GLOBAL const value *const left = (IK_GLOBAL const value *)(workspace + p.at) + (ik_i64)(batch * m + row) * k;
#if PACKED
    IK_GLOBAL const value *const right = (IK_GLOBAL const value *)workspace + (ik_i64)panel * k * PANEL_COLS;
#else
    vector own[BLOCK_K * PANEL_COLS / LANES];
#endif
    /* At least once: a sum of no products is zero. */
    for (ik_index first = 0; first == 0 || first < k; first += BLOCK_K) {
        const int count = (int)min((ik_index)BLOCK_K, k - first);
#if PACKED
        contract(left + first, k, rows, right + first * PANEL_COLS, PANEL_COLS, 0, count, sums, first == 0);
#else
        pack(p.b, b, first, count, panel, (value *)own);
        contract(left + first, k, rows, (value *)own, PANEL_COLS, 0, count, sums, first == 0);
#endif
    }
    const ik_index step = p.y.strides[last];
    for (int i = 0; i < rows; i++) {
        value *const line = sums + i * PANEL_COLS;
#ifdef IK_HAS_added
        const ik_index of_added = matrix(p.added, batch) + (row + i) * p.added.strides[last - 1];
        for (int j = 0; j < cols; j++)
            line[j] += IK_LOAD(added, of_added + (col + j) * p.added.strides[last]);
#endif
#ifdef IK_HAS_bias
        for (int j = 0; j < cols; j++)
            line[j] += IK_LOAD(bias, p.bias.offset + (col + j) * p.bias.strides[0]);
#endif
#ifdef IK_OP_linear_mixed
        for (int j = 0; j < cols; j++)
            line[j] = IK_ROW_activation(line[j]);
#endif
        const ik_index to = matrix(p.y, batch) + (row + i) * p.y.strides[last - 1] + col * step;
        for (int j = 0; j < cols; j++)
            IK_STORE(y, to + j * step, line[j]);
    }
}

IK_ENTRY(matmul_rows)(IK_PARAMS)
{
    enum { PIECE = 2048 };
    const ik_index k = (ik_index)p.k, pieces = (k + PIECE - 1) / PIECE, row = IK_GROUP_ID / pieces,
                   begin = (IK_GROUP_ID - row * pieces) * PIECE;
    const ik_index end = k - begin < PIECE ? k : begin + PIECE, from = ik_offset(p.a, row * k),
                   step = p.a.strides[p.a.ndim - 1];
    IK_GLOBAL float *const to = (IK_GLOBAL float *)workspace + (ik_i64)row * k;
#if ROUNDED
    for (ik_index i = begin; i < end; i += IK_BLOCK) {
        float v[IK_BLOCK];
        for (int j = 0; j < IK_BLOCK; j++)
            v[j] = IK_LOAD(a, from + (i + j) * step);
        ik_round_Q8_0(v);
        for (int j = 0; j < IK_BLOCK; j++)
            to[i + j] = v[j];
    }
#else
    for (ik_index i = begin; i < end; i++)
        to[i] = IK_LOAD(a, from + i * step);
#endif
}

IK_ENTRY(matmul_blocks)(IK_PARAMS)
{
    enum { SHARE = 16 };
    const int last = (int)p.y.ndim - 1;
    const ik_index n = p.y.shape[last], k = (ik_index)p.k, m = (ik_index)p.m, first = IK_GROUP_ID * SHARE,
                   end = n - first < SHARE ? n : first + SHARE;
    for (ik_index col = first; col < end; col += ACROSS)
        for (ik_index row = 0; row < m; row += DOWN) {
            float16 sum[ACROSS][DOWN];
            IK_GLOBAL const ik_u8 *block[ACROSS];
#if !EMPTY
            IK_GLOBAL const float *x[DOWN];
#endif
#pragma unroll
            for (int c = 0; c < ACROSS; c++) {
                block[c] = IK_BLOCK_AT(b, p.b.offset + min(col + c, end - 1) * p.b.strides[0]);
#pragma unroll
                for (int r = 0; r < DOWN; r++)
                    sum[c][r] = 0;
            }
#if !EMPTY
#pragma unroll
            for (int r = 0; r < DOWN; r++)
                x[r] = (IK_GLOBAL const float *)workspace + (ik_i64)min(row + r, m - 1) * k;
#pragma nounroll
            for (ik_index i = 0; i < k; i += IK_BLOCK)
#pragma unroll
                for (int c = 0; c < ACROSS; c++) {
                    const ik_unpacked w =
                        IK_PASTE(ik_unpack_, IK_TYPE_b)(block[c] + (ik_i64)(i / IK_BLOCK) * IK_SIZE_b);
#pragma unroll
                    for (int r = 0; r < DOWN; r++) {
                        sum[c][r] += *(IK_GLOBAL const ik_half_block *)(x[r] + i) * w.low;
                        sum[c][r] += *(IK_GLOBAL const ik_half_block *)(x[r] + i + 16) * w.high;
                    }
                }
#endif
            for (int r = 0; r < DOWN && row + r < m; r++) {
                const ik_index to = p.y.offset + ik_offset_within(p.y, 0, last, row + r);
                for (int c = 0; c < ACROSS && col + c < end; c++) {
                    float value = total(sum[c][r]);
#ifdef IK_HAS_added
                    value += IK_LOAD(added,
                        p.added.offset + ik_offset_within(p.added, 0, last, row + r)
                            + (col + c) * p.added.strides[last]);
#endif
#ifdef IK_HAS_bias
                    value += IK_LOAD(bias, p.bias.offset + (col + c) * p.bias.strides[0]);
#endif
#ifdef IK_OP_linear_mixed
                    value = IK_ROW_activation(value);
#endif
                    IK_STORE(y, to + (col + c) * p.y.strides[last], value);
                }
            }
        }
}
