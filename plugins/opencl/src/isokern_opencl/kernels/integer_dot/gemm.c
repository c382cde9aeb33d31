/* Products of I8 and U8 by the device's dot product of four bytes: rows of a and columns of b are packed into words of
 * four bytes along k, then an item computes 4 x 4 elements of y. Results wrap to a byte, so sums of 32 bits are more
 * than enough. */
/* launch
 * tensors(y, a, b, bias, c)
 * refuse(when=not (y.dtype.name in ["I8", "U8"]), reason="dot products of bytes are for I8 and U8")
 * let(m=y.shape[-2], n=y.shape[-1], k=a.shape[-1], batch=prod(y.shape[:-2]), words=ceil_div(k, 4))
 * refuse(when=m * n < 16 or k < 16, reason="too small to be packed")
 * let(left=batch * m * words)
 * workspace(bytes=4 * words * (m + n) * batch)
 * pack(items=batch * (m + n) * words, words=words, k=k, left=left)
 * gemm(items=batch * ceil_div(m, 4) * ceil_div(n, 4), words=words, m=m, n=n, left=left)
 */
#include "simt.h"

IK_ENTRY(pack)(IK_PARAMS)
{
    IK_GLOBAL ik_u32 *to = (IK_GLOBAL ik_u32 *)workspace;
    const ik_index i = IK_ITEM;
    if (i >= p.items)
        return;
    const int of_a = i < p.left;
    const ik_index at = of_a ? i : i - (ik_index)p.left, word = at % (ik_index)p.words, line = at / (ik_index)p.words;
    const int ar = (int)p.a.ndim - 2, br = (int)p.b.ndim - 2;
    const ik_index lines = of_a ? p.a.shape[ar] : p.b.shape[br + 1], batch = line / lines,
                   inside = line - batch * lines;
    const ik_index from = of_a ? ik_offset(p.a, batch * lines * (ik_index)p.k) + inside * p.a.strides[ar]
                               : ik_offset(p.b, batch * lines * (ik_index)p.k) + inside * p.b.strides[br + 1];
    const ik_index step = of_a ? p.a.strides[ar + 1] : p.b.strides[br];
    ik_u32 packed = 0;
    for (int byte = 0; byte < 4; byte++) {
        const ik_index along = 4 * word + byte;
        if (along < p.k) {
            const ik_u32 v = of_a ? (ik_u32)(ik_u8)a[from + along * step] : (ik_u32)(ik_u8)b[from + along * step];
            packed |= v << (8 * byte);
        }
    }
    to[i] = packed;
}

IK_ENTRY(gemm)(IK_PARAMS)
{
    const IK_GLOBAL ik_u32 *left = (const IK_GLOBAL ik_u32 *)workspace;
    const ik_index i = IK_ITEM;
    if (i >= p.items)
        return;
    const ik_index m = (ik_index)p.m, n = (ik_index)p.n, words = (ik_index)p.words;
    const ik_index down = (m + 3) / 4, across = (n + 3) / 4;
    const ik_index batch = i / (down * across), tile = i - batch * down * across;
    const ik_index row = tile / across * 4, column = tile % across * 4;
    const IK_GLOBAL ik_u32 *ra[4], *cb[4];
    ik_u32 sum[4][4];
    for (int t = 0; t < 4; t++) { /* past the end, the last line is repeated */
        const ik_index r = row + t < m ? row + t : m - 1, q = column + t < n ? column + t : n - 1;
        ra[t] = left + (batch * m + r) * words;
        cb[t] = left + p.left + (batch * n + q) * words;
        for (int s = 0; s < 4; s++)
            sum[t][s] = 0;
    }
    for (ik_index w = 0; w < words; w++)
        for (int t = 0; t < 4; t++)
            for (int s = 0; s < 4; s++)
                sum[t][s] += dot_4x8packed_uu_uint(ra[t][w], cb[s][w]);
    const int last = (int)p.y.ndim - 1;
    const ik_index to = ik_offset(p.y, batch * m * n);
    for (int t = 0; t < 4 && row + t < m; t++)
        for (int s = 0; s < 4 && column + s < n; s++)
            IK_STORE(y, to + (row + t) * p.y.strides[last - 1] + (column + s) * p.y.strides[last], sum[t][s]);
}
