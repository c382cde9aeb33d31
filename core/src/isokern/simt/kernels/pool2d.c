/* max_pool2d, avg_pool2d and adaptive_avg_pool2d, NCHW, any strides: one item per output, or one work-group where
 * windows are large.
 *
 * max: y = maximum of the window inside x, NaN where it holds one. avg: sum / number inside x, or / whole window
 * (count_include_pad). adaptive: mean over rows i h / oh to ceil((i + 1) h / oh), and columns likewise.
 *
 * Where outputs are few and windows huge, each is computed in parts, which the workspace holds as [part][output] and a
 * second launch joins in order. */
/* launch
 * let(outputs=y.numel, bins=op == "adaptive_avg_pool2d")
 * let(taps=ceil_div(x.numel, max(1, outputs)) if bins else attrs.kernel[0] * attrs.kernel[-1])
 * let(parts=count_parts(8 * device.units, outputs, taps // 4096))
 * workspace(when=parts > 1, bytes=4 * y.dtype.compute.itemsize * outputs * parts)
 * pool2d(when=taps <= 64, items=outputs, ALONE=1)
 * pool2d(when=taps > 64 and parts == 1, groups=outputs, local=64)
 * pool2d(when=parts > 1, groups=outputs * parts, local=64, PARTS=1, outputs=outputs, parts=parts)
 * pool2d_join(when=parts > 1, groups=outputs, local=64, outputs=outputs, parts=parts)
 */
#include "windows.h"

IK_ENTRY(pool2d)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
#ifdef ALONE
    if (IK_TASK >= p.items)
        return;
#endif
#ifdef PARTS
    const ik_index part = IK_TASK / p.outputs;
    const window w = window_of(p, IK_TASK - part * p.outputs);
    const ik_index length = (w.count + p.parts - 1) / p.parts;
#else
    const ik_index part = 0;
    const window w = window_of(p, IK_TASK);
    const ik_index length = w.count;
#endif
    const ik_index begin = part * length + IK_LANE;
    const ik_index end = (part + 1) * length < w.count ? (part + 1) * length : w.count,
                   columns = w.columns.count == 0 ? 1 : w.columns.count;
    const ik_index down = w.rows.step * p.x.strides[2], on = w.columns.step * p.x.strides[3];
    ik_fold f = ik_fold_none();
    ik_index row = begin / columns, column = begin - row * columns;
    for (ik_index i = begin; i < end; i += IK_LANES) {
        f = ik_fold_add(f, IK_LOAD(x, w.from + row * down + column * on));
        column += IK_LANES;
        if (column >= columns) {
            const ik_index rows = IK_LANES == 1 ? 1 : column / columns;
            row += rows;
            column -= rows * columns;
        }
    }
    f = ik_fold_group(f, scratch);
    if (IK_LANE == 0)
#ifdef PARTS
        ((IK_GLOBAL ik_fold *)workspace)[IK_TASK] = f;
#else
        IK_STORE(y, w.to, result(p, w, f));
#endif
}

IK_ENTRY(pool2d_join)(IK_PARAMS)
{
    IK_SCRATCH(ik_c, scratch, 2)
    const ik_index output = IK_TASK;
    IK_GLOBAL const ik_fold *const parts = (IK_GLOBAL const ik_fold *)workspace;
    ik_fold f = ik_fold_none();
    for (ik_index i = IK_LANE; i < p.parts; i += IK_LANES)
        f = ik_fold_join(f, parts[i * p.outputs + output]);
    f = ik_fold_group(f, scratch);
    const window w = window_of(p, output);
    if (IK_LANE == 0)
        IK_STORE(y, w.to, result(p, w, f));
}
