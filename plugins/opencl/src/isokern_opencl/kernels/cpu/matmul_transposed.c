/* matmul_transposed and linear_mixed with weights in blocks, on processors: blocks become registers of F32, each of
 * which multiplies some rows of x.
 *
 * Rows of x go to the workspace first, as F32, or as the dequantised values of their Q8_0 blocks: products of those are
 * exact in F32. An item computes SHARE columns of the result, ACROSS at a time, DOWN rows of x at a time.
 *
 * Against the portable kernel (PoCL 3.0, AVX-512, two Zen 5 cores, busy): Q4_0, one row and 4096^2 weights, 16 times as
 * fast. */
/* launch
 * tensors(y, a, b, bias, added)
 * refuse(when=op == "matmul_mixed" or b.dtype.block == 1, reason="weights that are not in blocks along the sum")
 * let(n=y.shape[-1], m=y.numel // max(1, n), k=a.shape[-1], down=1 if m == 1 else 2 if m < 4 else 4)
 * let(rounded=int(attrs.lhs_quantization == "q8_0"), empty=int(m * k == 0))
 * workspace(bytes=4 * m * k)
 * matmul_rows(when=not empty, groups=m * ceil_div(k, 2048), local=1, ROUNDED=rounded, b=None, k=k)
 * matmul_blocks(groups=ceil_div(n, 16), local=1, ACROSS=4 // down, DOWN=down, EMPTY=empty, a=None, k=k, m=m)
 */
#include "isokern_math.h"
#include "vectors.h"

typedef float16 ik_half_block __attribute__((aligned(4)));

#pragma OPENCL FP_CONTRACT ON /* in sums of products; the roundings that are prescribed happened in blocks.h */

static IK_INLINE float total(float16 v)
{
    const float8 eight = v.lo + v.hi;
    const float4 four = eight.lo + eight.hi;
    return (four.x + four.z) + (four.y + four.w);
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
        const float d = ik_scale_for_Q8_0(v), inverse = ik_block_inverse(d), held = ik_f16_to_f32(ik_block_half(d));
        for (int j = 0; j < IK_BLOCK; j++)
            to[i + j] = (float)ik_block_byte(v[j] * inverse) * held;
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
