/* layer_norm of contiguous rows: y = (x - mean) / sqrt(var + eps) * w + bias. An item takes some rows, and reads each
 * three times.
 *
 * [4096, 4096] on PoCL (2 cores, AVX-512), against a group of one item per row: 25 times as fast in F32, 40 times in
 * F16. */
/* launch
 * refuse(when=y.strides[-1] != 1 or x.strides[-1] != 1, reason="rows do not lie along memory")
 * refuse(when=w is not None and w.strides[-1] != 1, reason="w is strided")
 * refuse(when=bias is not None and bias.strides[-1] != 1, reason="bias is strided")
 * let(d=max(1, y.shape[-1]), rows=y.numel // d, taken=max(1, 16384 // d), large=y.numel * y.dtype.itemsize >= 2097152)
 * layer_norm(groups=ceil_div(rows, taken), local=1, rows=rows, taken=taken, large=large)
 */
#include "rows.h"

IK_ENTRY(layer_norm)(IK_PARAMS)
{
    const ik_index n = p.y.shape[(int)p.y.ndim - 1], taken = p.taken, rows = p.rows;
    const ik_index first = IK_GROUP_ID * taken, last = rows - first < taken ? rows : first + taken;
    for (ik_index row = first; row < last; row++) {
        IK_GLOBAL const ik_t *from = x + ik_offset(p.x, row * n);
        IK_GLOBAL ik_t *to = y + ik_offset(p.y, row * n);
        const ik_c mean = ik_sum_value(ik_row_sum(from, n, 0, 0)) / (ik_c)n;
        const ik_c factor = IK_FN(rsqrt)(ik_sum_value(ik_row_sum(from, n, 1, mean)) / (ik_c)n + p.attr_eps);
        const int stream = p.large && (size_t)to % IK_LINE == 0;
        ik_index i = 0;
        for (; n - i >= IK_WIDTH; i += IK_WIDTH) {
            ik_vec v = (ik_vec_load(from + i) - mean) * factor;
#ifdef IK_HAS_w
            v *= ik_vec_load(w + p.w.offset + i);
#endif
#ifdef IK_HAS_bias
            v += ik_vec_load(bias + p.bias.offset + i);
#endif
            ik_vec_store(v, to + i, stream);
        }
        for (; i < n; i++) {
            ik_c v = (ik_value(from + i) - mean) * factor;
#ifdef IK_HAS_w
            v *= ik_value(w + p.w.offset + i);
#endif
#ifdef IK_HAS_bias
            v += ik_value(bias + p.bias.offset + i);
#endif
            IK_STORE_AS(y, to, i, v);
        }
    }
}
