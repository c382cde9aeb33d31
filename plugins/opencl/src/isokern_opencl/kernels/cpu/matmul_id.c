/* matmul_id on processors: dot products of vectors, of some rows of weights with some rows of x at a time.
 *
 * The pairs are sorted by expert and their rows of x gathered as F32 (experts.h). An item computes SHARE columns of a
 * tile of pairs, ACROSS of them for DOWN pairs at a time, so that weights are read once for a tile, and stay in the
 * level-2 cache from pair to pair.
 *
 * Against the operators that it consists of, interleaved (PoCL, AVX-512, two cores, busy): 8 of 64 experts for one row,
 * F32 1.3 times as fast, BF16 17, Q4_0 186; 512 rows for 4 of 32 experts each, F32 1.5, BF16 2.5, Q4_0 2.9. Those were
 * faster than the portable kernel, an item for each result, but for one row of blocks. */
/* launch
 * tensors(y, a, b, indices)
 * refuse(when=b.strides[2] != 1 or indices.numel == 0, reason="weights that are not contiguous along the sum")
 * refuse(when=b.dtype.itemsize == 1, reason="weights of 8 bits, which are no vectors here")
 * refuse(when=b.dtype.kind == "q" and b.dtype.storage, reason="blocks that are only decoded")
 * let(n=b.shape[1], k=b.shape[2], count=b.shape[0], pairs=indices.numel)
 * let(rows=ceil_div(8 * (pairs + 2 * count + 3), 256) * 256, of_blocks=int(b.dtype.block > 1))
 * let(rounded=int(attrs.lhs_quantization == "q8_0"))
 * let(groups=min(pairs, pairs // 64 + count + 1) * ceil_div(n, 16))
 * workspace(bytes=rows + 4 * pairs * k)
 * experts_check(groups=1, local=256, y=None, a=None, b=None, count=count, pairs=pairs)
 * experts_sort(groups=1, local=256, y=None, a=None, b=None, count=count, pairs=pairs, height=64)
 * experts_gather(groups=pairs, local=1, y=None, b=None, indices=None, rows=rows, count=count, k=k, ROUNDED=rounded)
 * experts_rows(groups=groups, local=1, a=None, indices=None, BLOCKS=of_blocks, rows=rows, count=count, k=k)
 */
#include "simt.h"
#include "isokern_math.h"
#if defined(BLOCKS) || (defined(ROUNDED) && ROUNDED)
#include "blocks.h"
#endif
#ifdef BLOCKS
#include "vectors.h"
#endif
#include "experts.h"

#ifdef BLOCKS
enum { ACROSS = 4, DOWN = 4, SHARE = 16, HEIGHT = 64 };
typedef float16 ik_half_row __attribute__((aligned(4)));

#pragma OPENCL FP_CONTRACT ON

static IK_INLINE float total(float16 v)
{
    const float8 eight = v.lo + v.hi;
    const float4 four = eight.lo + eight.hi;
    return (four.x + four.z) + (four.y + four.w);
}

/* 32 elements of a row of weights. */
static IK_INLINE ik_unpacked weights_at(IK_GLOBAL const IK_ELEMENT(b) * b, ik_index at)
{
#if BLOCKS
    return IK_PASTE(ik_unpack_, IK_TYPE_b)(IK_BLOCK_AT(b, at));
#else
    ik_unpacked found;
    found.low = IK_PASTE(ik_vector_, IK_TYPE_b)(b + at);
    found.high = IK_PASTE(ik_vector_, IK_TYPE_b)(b + at + 16);
    return found;
#endif
}

/* sums[c, r] = Σ_i b[first + c * step + i] x[r * k + i] for `down` rows of x; those behind the last are it again. */
static IK_INLINE void multiply(int down, IK_GLOBAL const IK_ELEMENT(b) * b, ik_index first, ik_index step, int cols,
    IK_GLOBAL const float *x, ik_index rows, ik_index k, float *sums)
{
    float16 sum[ACROSS][DOWN];
    ik_index from[ACROSS];
    IK_GLOBAL const float *row[DOWN];
#pragma unroll
    for (int c = 0; c < ACROSS; c++) {
        from[c] = first + min(c, cols - 1) * step;
#pragma unroll
        for (int r = 0; r < down; r++)
            sum[c][r] = 0;
    }
#pragma unroll
    for (int r = 0; r < down; r++)
        row[r] = x + (ik_i64)min((ik_index)r, rows - 1) * k;
    ik_index i = 0;
#pragma nounroll
    for (; i + 32 <= k; i += 32)
#pragma unroll
        for (int c = 0; c < ACROSS; c++) {
            const ik_unpacked w = weights_at(b, from[c] + i);
#pragma unroll
            for (int r = 0; r < down; r++) {
                sum[c][r] += *(IK_GLOBAL const ik_half_row *)(row[r] + i) * w.low;
                sum[c][r] += *(IK_GLOBAL const ik_half_row *)(row[r] + i + 16) * w.high;
            }
        }
#pragma unroll
    for (int c = 0; c < ACROSS; c++)
#pragma unroll
        for (int r = 0; r < down; r++) {
            float more = total(sum[c][r]);
            for (ik_index q = i; q < k; q++)
                more += IK_LOAD(b, from[c] + q) * row[r][q];
            sums[c * DOWN + r] = more;
        }
}

IK_ENTRY(experts_rows)(IK_PARAMS)
{
    const ik_index n = p.y.shape[2], shares = (n + SHARE - 1) / SHARE, tile = IK_GROUP_ID / shares,
                   begin = (IK_GROUP_ID - tile * shares) * SHARE, end = n - begin < SHARE ? n : begin + SHARE;
    const ik_expert_tile own = ik_expert_tile_of(p, workspace, HEIGHT, tile);
    const ik_index k = own.expert < p.count ? (ik_index)p.k : 0;
    IK_GLOBAL const float *const x = (IK_GLOBAL const float *)(workspace + p.rows) + (ik_i64)own.begin * p.k;
    for (ik_index col = begin; col < end; col += ACROSS)
        for (ik_index row = 0; row < own.rows; row += DOWN) {
            float sums[ACROSS * DOWN];
            const ik_index first = p.b.offset + own.expert * p.b.strides[0] + col * p.b.strides[1],
                           rows = min((ik_index)DOWN, own.rows - row);
            const int cols = (int)min((ik_index)ACROSS, end - col);
            if (rows == 1)
                multiply(1, b, first, p.b.strides[1], cols, x + (ik_i64)row * k, rows, k, sums);
            else
                multiply(DOWN, b, first, p.b.strides[1], cols, x + (ik_i64)row * k, rows, k, sums);
            for (ik_index r = 0; r < rows; r++) {
                const ik_index to = p.y.offset + ik_offset_within(p.y, 0, 2, own.pairs[row + r]);
                for (int c = 0; c < cols; c++)
                    IK_STORE(y, to + (col + c) * p.y.strides[2], sums[c * DOWN + r]);
            }
        }
}
#endif
