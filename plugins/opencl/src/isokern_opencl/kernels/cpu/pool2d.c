/* max_pool2d, avg_pool2d and adaptive_avg_pool2d, NCHW, of contiguous rows.
 *
 * An item computes some rows of y. The rows of x that each covers are folded to one row; such rows lie side by side in
 * a buffer, with the padding, and are split by column number modulo the stride, so that the outputs of all of them are
 * computed by whole registers. Means of windows that are large and long are computed window by window, along memory.
 *
 * PoCL (2 cores, AVX-512) against the portable kernel: windows of 3 x 3 by 2, 45 times as fast; bins of 8 x 8 20 times,
 * of whole planes 35. */
#include "windows.h"
#include "folds.h"

enum { BUFFER = 8192 / sizeof(ik_c), HIGH = 64, TAPS = 16 };

typedef ik_vec loose __attribute__((aligned(sizeof(ik_c))));

/* to[i] = fold over row < rows (at least one) of from[row * step + i], i < n. */
static IK_INLINE void fold_rows(IK_GLOBAL const ik_t *from, int rows, ik_index step, int n, ik_c *to)
{
    if (n < IK_WIDTH) {
        for (int i = 0; i < n; i++) {
            ik_fold f = ik_fold_none();
            for (int row = 0; row < rows; row++)
#ifdef FOLD_MAXIMUM
                f = ik_fold_add(f, ik_value(from + row * step + i));
#else
                f.near.high += ik_value(from + row * step + i);
#endif
            to[i] = f.near.high;
        }
        return;
    }
    for (int i = 0; i < n; i += IK_WIDTH) {
        const int at = min(i, n - IK_WIDTH); /* the last vector ends with the row */
        ik_vec all = ik_vec_load(from + at);
        if (rows == 3)
            all = ik_lanes_fold(ik_lanes_fold(all, ik_vec_load(from + step + at)), ik_vec_load(from + 2 * step + at));
        else
            for (int row = 1; row < rows; row++)
                all = ik_lanes_fold(all, ik_vec_load(from + row * step + at));
        *(loose *)(to + at) = all;
    }
}

/* Copy elements 0, 2, 4, … to the first half and 1, 3, 5, … to the second, of `half` elements each; `half` is a
 * multiple of IK_WIDTH. */
static IK_INLINE void split(const ik_c *from, ik_c *to, int half_)
{
    for (int i = 0; i < half_; i += IK_WIDTH) {
        const ik_vec u = *(const ik_vec *)(from + 2 * i), v = *(const ik_vec *)(from + 2 * i + IK_WIDTH);
        *(ik_vec *)(to + i) = (ik_vec)(u.even, v.even);
        *(ik_vec *)(to + half_ + i) = (ik_vec)(u.odd, v.odd);
    }
}

/* Part k of n * step elements is those k, k + step, …; returns where part k begins after `apart`. */
static IK_INLINE int part_of(int k, int step, int n)
{
    int part = 0;
    for (; step % 2 == 0; step /= 2) {
        part = 2 * part + (k & 1);
        k /= 2;
    }
    return (part * step + k) * n;
}

/* Split n * step elements of buffer[which] into parts; n is a multiple of IK_WIDTH. Returns the buffer that has
 * them. */
static IK_INLINE int apart(ik_c (*buffer)[BUFFER], int step, int n)
{
    int which = 0, parts = 1;
    for (; step % 2 == 0; step /= 2) {
        for (int part = 0, half_ = n * (step / 2); part < parts; part++)
            split(buffer[which] + part * 2 * half_, buffer[!which] + part * 2 * half_, half_);
        parts *= 2;
        which = !which;
    }
    if (step == 1)
        return which;
    for (int part = 0; part < parts; part++)
        for (int k = 0; k < step; k++)
            for (int i = 0; i < n; i++)
                buffer[!which][(part * step + k) * n + i] = buffer[which][part * step * n + i * step + k];
    return !which;
}

/* Compute one output by careful folds: its window may leave the range on the way, or hold values that are not
 * finite. */
static IK_INLINE void one_output(IK_GLOBAL ik_t *y, IK_GLOBAL const ik_t *x, ik_args p, ik_index output)
{
    const window w = window_of(p, output);
    ik_fold f = ik_fold_none();
    for (ik_index row = 0; row < w.rows.count; row++)
        for (ik_index column = 0; column < w.columns.count; column++)
            f = ik_fold_add(f, ik_value(x + w.from + row * w.rows.step * p.x.strides[2] + column * w.columns.step));
    IK_STORE(y, w.to, result(p, w, f));
}

/* Store n outputs of a row to y: the folds, or means of them over counts[i] * rows. Returns whether a sum cannot be
 * trusted. */
static IK_INLINE int finish(const ik_c *made, const ik_c *counts, ik_c rows, int n, IK_GLOBAL ik_t *y)
{
    ik_vec doubt = 0;
    for (int i = 0; i < n; i += IK_WIDTH) {
        const int at = n < IK_WIDTH ? 0 : min(i, n - IK_WIDTH);
        ik_vec v = *(const loose *)(made + at);
#ifndef FOLD_MAXIMUM
#ifdef IK_COMPUTE_F32
        const ik_vec probe = v * 0x1p17f; /* as in ik_within */
#else
        const ik_vec probe = v;
#endif
        doubt += probe - probe;
        v /= *(const loose *)(counts + at) * rows;
#endif
        if (n >= IK_WIDTH)
            ik_vec_store(v, y + at, 0);
        else {
            ik_c lanes[IK_WIDTH] IK_ALIGNED;
            *(ik_vec *)lanes = v;
            for (int k = 0; k < n; k++)
                IK_STORE_AS(y, y, k, lanes[k]);
        }
    }
    return ik_lanes_sum(doubt) != 0;
}

IK_ENTRY(pool2d_rows)(IK_PARAMS)
{
    ik_c buffer[2][BUFFER] IK_ALIGNED, counts[BUFFER] IK_ALIGNED, tall[HIGH];
    IK_GLOBAL ik_t *to[HIGH];
    const ik_c none = ik_fold_none().near.high;
    const ik_index parts = (ik_index)p.parts, chunk = IK_GROUP_ID / parts,
                   begin = (IK_GROUP_ID - chunk * parts) * (ik_index)p.columns;
    const ik_index first = chunk * (ik_index)p.taken, last = min((ik_index)p.rows, first + (ik_index)p.taken);
    const int n = (int)min((ik_index)p.columns, p.y.shape[3] - begin);
#ifdef IK_OP_adaptive_avg_pool2d
    const int taps = (int)(p.x.shape[3] / p.y.shape[3]), step = EVEN ? taps : 1, spread = 1;
    const ik_index left = begin * step;
#else
    const int taps = (int)along(p.attr_kernel, 1, 1), step = (int)along(p.attr_stride, 1, taps),
              spread = (int)along(p.attr_dilation, 1, 1);
    const ik_index left = begin * step - along(p.attr_padding, 1, 0);
#endif
    /* pitch: columns of x in a row of the buffer, of which [low, high) exist */
    const int wide = (int)p.wide, pitch = wide * step;
    const int low = (int)min((ik_index)pitch, max((ik_index)0, -left)),
              high = (int)max((ik_index)low, min((ik_index)pitch, p.x.shape[3] - left));
    int whole = 0; /* the divisor of each window, where all have the same */
#ifdef IK_OP_avg_pool2d
    if (p.attr_count_include_pad)
        whole = (int)(along(p.attr_kernel, 0, 1) * along(p.attr_kernel, 1, 1));
#endif
#ifndef FOLD_MAXIMUM
    for (int i = 0; i < max(n, (int)IK_WIDTH); i++)
        counts[i] = (ik_c)(whole > 0 || i >= n ? 1 : taps_of(p, 1, begin + i).count);
#endif
#ifdef IK_OP_adaptive_avg_pool2d
    const ik_index down = p.x.shape[2] / p.y.shape[2];
#else
    const ik_index down = along(p.attr_stride, 0, along(p.attr_kernel, 0, 1));
#endif
    const int prefetch_length = (int)min((ik_index)4096 / IK_SIZE_y, down * pitch);
    int m;
    for (ik_index row = first; row < last; row += m) {
        m = (int)min((ik_index)p.high, last - row);
        for (int i = 0; i < m; i++) {
            const ik_index plane = (row + i) / p.y.shape[2], oy = row + i - plane * p.y.shape[2],
                           image = plane / p.y.shape[1];
            const ik_index channel = plane - image * p.y.shape[1];
            const run_of_taps rows = taps_of(p, 0, oy);
            IK_GLOBAL const ik_t *from =
                x + p.x.offset + image * p.x.strides[0] + channel * p.x.strides[1] + rows.first * p.x.strides[2] + left;
            const int end = rows.count > 0 ? high : low;
            IK_GLOBAL const ik_t *const later = from + (rows.count + 6 * down) * p.x.strides[2];
            /* Prefetch rows of the next windows: they are too short for the hardware to prefetch. */
            for (int k = 0; k < prefetch_length; k += IK_LINE / IK_SIZE_y)
                IK_PREFETCH(later + k);
            ik_c *line = buffer[0] + i * pitch;
            for (int k = 0; k < low; k++)
                line[k] = none;
            fold_rows(from + low, (int)rows.count, rows.step * p.x.strides[2], end - low, line + low);
            for (int k = end; k < pitch; k++)
                line[k] = none;
            tall[i] = (ik_c)(whole > 0 ? whole : rows.count);
            to[i] = y + p.y.offset + image * p.y.strides[0] + channel * p.y.strides[1] + oy * p.y.strides[2]
                + begin * p.y.strides[3];
        }
        const int length = (m * wide + 32 + 15) / 16 * 16; /* of a part, with space for whole registers after it */
        for (int k = m * pitch; k < length * step; k++)
            buffer[0][k] = none;
#if !EVEN
        ik_c *sums = buffer[1];
        for (int k = 0; k < length; k++)
            sums[k] = 0;
        for (int k = 0; k < n; k++) {
            const run_of_taps columns = taps_of(p, 1, k);
            for (int i = 0; i < m; i++) {
                ik_c sum = 0;
                for (int at = 0; at < columns.count; at++)
                    sum += buffer[0][i * pitch + columns.first + at];
                sums[i * wide + k] = sum;
            }
        }
#else
        const int which = apart(buffer, step, length);
        ik_c *sums = buffer[!which];
        for (int k = 0; k < taps; k += TAPS) {
            const ik_c *tap[TAPS];
            const int some = min((int)TAPS, taps - k);
            for (int i = 0; i < some; i++) {
                const int at = (k + i) * spread, over = at / step;
                tap[i] = buffer[which] + part_of(at - over * step, step, length) + over;
            }
            for (int i = 0; i < (m - 1) * wide + max((int)p.columns, (int)IK_WIDTH); i += IK_WIDTH) {
                ik_vec all = *(const loose *)(tap[0] + i);
                if (some == 3)
                    all = ik_lanes_fold(ik_lanes_fold(all, *(const loose *)(tap[1] + i)), *(const loose *)(tap[2] + i));
                else
                    for (int j = 1; j < some; j++)
                        all = ik_lanes_fold(all, *(const loose *)(tap[j] + i));
                *(ik_vec *)(sums + i) = k == 0 ? all : ik_lanes_fold(*(const ik_vec *)(sums + i), all);
            }
        }
#endif
        for (int i = 0; i < m; i++)
            if (finish(sums + i * wide, counts, tall[i], n, to[i]))
                for (int k = 0; k < n; k++)
                    if (!ik_within(sums[i * wide + k]))
                        one_output(y, x, p, (row + i) * p.y.shape[3] + begin + k);
    }
}

/* An item computes some outputs. */
IK_ENTRY(pool2d_runs)(IK_PARAMS)
{
    const ik_index first = IK_GROUP_ID * (ik_index)p.taken, last = min((ik_index)p.outputs, first + (ik_index)p.taken);
    for (ik_index output = first; output < last; output++) {
        const window w = window_of(p, output);
        ik_fold f = ik_fold_none();
        for (ik_index row = 0; row < w.rows.count && w.columns.count > 0; row++)
            f = ik_fold_run(f, x + w.from + row * w.rows.step * p.x.strides[2], w.columns.count);
        IK_STORE(y, w.to, result(p, w, f));
    }
}
