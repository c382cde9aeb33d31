/* group_norm and instance_norm of groups that lie along memory: y = (x - mean) / sqrt(var + eps) * w + bias, w and bias
 * by channel. An item takes some groups, and reads each three times.
 *
 * Against layer_norm and a loop over its result, on PoCL (2 cores, AVX-512): 1.9 times as fast. */
#include "rows.h"

IK_ENTRY(group_norm)(IK_PARAMS)
{
    const ik_index n = p.y.shape[2], taken = p.taken, rows = p.rows, inner = p.inner;
    const ik_index first = IK_GROUP_ID * taken, last = rows - first < taken ? rows : first + taken;
    for (ik_index row = first; row < last; row++) {
        IK_GLOBAL const ik_t *from = x + ik_offset(p.x, row * n);
        IK_GLOBAL ik_t *to = y + ik_offset(p.y, row * n);
        const ik_c mean = ik_sum_value(ik_row_sum(from, n, 0, 0)) / (ik_c)n;
        const ik_c factor = IK_FN(rsqrt)(ik_sum_value(ik_row_sum(from, n, 1, mean)) / (ik_c)n + p.attr_eps);
        ik_index channel = row % (ik_index)p.group_count * (ik_index)p.channels;
        for (ik_index i = 0; i < n; channel++) {
            const ik_index end = i + inner;
            ik_c scale = factor, shift = 0;
#ifdef IK_HAS_w
            scale *= IK_LOAD(w, p.w.offset + channel * p.w.strides[0]);
#endif
#ifdef IK_HAS_bias
            shift = IK_LOAD(bias, p.bias.offset + channel * p.bias.strides[0]);
#endif
            const int stream = p.large && (size_t)(to + i) % IK_LINE == 0;
            for (; end - i >= IK_WIDTH; i += IK_WIDTH)
                ik_vec_store((ik_vec_load(from + i) - mean) * scale + shift, to + i, stream);
            for (; i < end; i++)
                IK_STORE_AS(y, to, i, (ik_value(from + i) - mean) * scale + shift);
        }
    }
}
