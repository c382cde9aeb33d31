/* softmax and log_softmax of contiguous rows, some rows per item: y = exp(x - m) / s and y = x - m - ln s, with m = max
 * x and s = sum exp(x - m). The exponentials of a row of up to 4,096 elements (F64: 2,048) are kept; those of a longer
 * row are computed again.
 *
 * [4096, 4096] on PoCL (2 cores, AVX-512), against a group of one item per row: 20 times as fast in F32 and F16, 6
 * times in F64. */
/* launch
 * refuse(when=y.strides[-1] != 1 or x.strides[-1] != 1, reason="rows do not lie along memory")
 * let(d=max(1, y.shape[-1]), rows=y.numel // d, taken=max(1, 16384 // d), large=y.numel * y.dtype.itemsize >= 2097152)
 * softmax(groups=ceil_div(rows, taken), local=1, rows=rows, taken=taken, large=large)
 */
#include "rows.h"
#include "row_exponentials.h"

enum { KEPT = 16384 / sizeof(ik_c) };

IK_ENTRY(softmax)(IK_PARAMS)
{
    ik_c kept[KEPT] IK_ALIGNED;
    const ik_index n = p.y.shape[(int)p.y.ndim - 1], taken = p.taken, rows = p.rows;
    const ik_index first = IK_GROUP_ID * taken, last = rows - first < taken ? rows : first + taken;
    for (ik_index row = first; row < last; row++) {
        IK_GLOBAL const ik_t *from = x + ik_offset(p.x, row * n);
        IK_GLOBAL ik_t *to = y + ik_offset(p.y, row * n);
        const int stream = p.large && (size_t)to % IK_LINE == 0;
        const ik_c row_max = ik_row_extreme(from, n, 1);
        ik_sum all = ik_sum_none();
        for (ik_index at = 0; at < n; at += IK_TILE)
            all = ik_sum_add(all,
                exponentials(
                    from + at, (int)(n - at < IK_TILE ? n - at : IK_TILE), row_max, kept + (n > KEPT ? 0 : at)));
#ifdef IK_OP_softmax
        const ik_c factor = 1 / ik_sum_value(all);
#else
        const ik_c shift = IK_FN(log)(ik_sum_value(all));
#endif
        for (ik_index at = 0; at < n; at += IK_TILE) {
            const int m = (int)(n - at < IK_TILE ? n - at : IK_TILE);
            int i = 0;
#ifdef IK_OP_softmax
            ik_c *e = kept + (n > KEPT ? 0 : at);
            if (n > KEPT)
                exponentials(from + at, m, row_max, e);
            for (; m - i >= IK_WIDTH; i += IK_WIDTH)
                ik_vec_store(*(const ik_vec *)(e + i) * factor, to + at + i, stream);
            for (; i < m; i++)
                IK_STORE_AS(y, to, at + i, e[i] * factor);
#else
            for (; m - i >= IK_WIDTH; i += IK_WIDTH)
                ik_vec_store((ik_vec_load(from + at + i) - row_max) - shift, to + at + i, stream);
            for (; i < m; i++)
                IK_STORE_AS(y, to, at + i, (ik_value(from + at + i) - row_max) - shift);
#endif
        }
    }
}
