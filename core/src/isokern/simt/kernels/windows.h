/* The outputs of max_pool2d, avg_pool2d and adaptive_avg_pool2d: their offsets, the windows they cover, and their
 * accumulators (`fold.h`). */
#ifndef IK_WINDOWS_H
#define IK_WINDOWS_H
#include "simt.h"
#ifdef IK_OP_max_pool2d
#define FOLD_MAXIMUM
#endif
#include "fold.h"

/* The window of an output along an axis: `count` positions from `first` on, all inside x. */
typedef struct {
    ik_index first, count, step;
} run_of_taps;

#ifdef IK_OP_adaptive_avg_pool2d
static IK_INLINE run_of_taps taps_of(IK_RECORD(ik_args) p, int axis, ik_index i)
{
    const ik_i64 size = p.x.shape[2 + axis], bins = p.y.shape[2 + axis];
    run_of_taps t;
    t.first = (ik_index)(i * size / bins);
    t.count = (ik_index)(((i + 1) * size + bins - 1) / bins) - t.first;
    t.step = 1;
    return t;
}
#else
/* A value of a list for (height, width) or (top, left, bottom, right), which may hold one for all; `otherwise` where it
 * is empty. */
static IK_INLINE ik_index along(IK_RECORD(ik_ints) given, int axis, ik_index otherwise)
{ return given.count == 0 ? otherwise : (ik_index)given.v[given.count > 1 ? axis : 0]; }

/* The number of steps to reach `way` or beyond; most windows have no gaps, and nothing to divide. */
static IK_INLINE ik_index steps_to(ik_index way, ik_index step) { return step == 1 ? way : (way + step - 1) / step; }

static IK_INLINE run_of_taps taps_of(IK_RECORD(ik_args) p, int axis, ik_index i)
{
    const ik_index size = p.x.shape[2 + axis], taps = along(p.attr_kernel, axis, 1),
                   step = along(p.attr_dilation, axis, 1);
    const ik_index at = i * along(p.attr_stride, axis, taps) - along(p.attr_padding, axis, 0);
    const ik_index skip = at < 0 ? steps_to(-at, step) : 0, end = at < size ? steps_to(size - at, step) : 0;
    run_of_taps t;
    t.first = at + skip * step;
    t.count = (end < taps ? end : taps) - skip;
    t.count = t.count < 0 ? 0 : t.count;
    t.step = step;
    return t;
}
#endif

/* The offset of an output, and the window that it covers. */
typedef struct {
    ik_index to, from, count;
    run_of_taps rows, columns;
} window;

static IK_INLINE window window_of(IK_RECORD(ik_args) p, ik_index output)
{
    const ik_index ow = p.y.shape[3], oh = p.y.shape[2], row = output / ow, plane = row / oh, n = plane / p.y.shape[1];
    const ik_index c = plane - n * p.y.shape[1], oy = row - plane * oh, ox = output - row * ow;
    window w;
    w.rows = taps_of(p, 0, oy);
    w.columns = taps_of(p, 1, ox);
    w.count = w.rows.count * w.columns.count;
    w.to = p.y.offset + n * p.y.strides[0] + c * p.y.strides[1] + oy * p.y.strides[2] + ox * p.y.strides[3];
    w.from = p.x.offset + n * p.x.strides[0] + c * p.x.strides[1] + w.rows.first * p.x.strides[2]
        + w.columns.first * p.x.strides[3];
    return w;
}

static IK_INLINE ik_c result(IK_RECORD(ik_args) p, window w, ik_fold f)
{
#ifdef IK_OP_avg_pool2d
    if (p.attr_count_include_pad)
        return ik_fold_value(f, (ik_c)(along(p.attr_kernel, 0, 1) * along(p.attr_kernel, 1, 1)));
#endif
    return ik_fold_value(f, (ik_c)w.count);
}
#endif
